"""HNSW indexes in Spark: graphs are built by faiss in workers, which are forked processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.indexes.vectors.hnsw import required_faiss
from lance_spark.spark.table import LanceTable

ROWS, DIMENSION = 1_200, 8


def vectors() -> Any:
    return np.random.default_rng(1).normal(size=(ROWS, DIMENSION)).astype(np.float32)


def built(_: Iterator[int]) -> Iterator[tuple[int, int, int]]:
    """Build a graph in a worker."""
    faiss = required_faiss("graphs")
    graph = faiss.IndexHNSWFlat(DIMENSION, 8)
    graph.add(vectors())
    yield os.getpid(), graph.ntotal, faiss.omp_get_max_threads()


def test_graphs_are_built_by_tasks(spark: Any, tmp_path: Path) -> None:
    """The driver has used threads of faiss, and a worker runs several tasks."""
    pytest.importorskip("faiss")
    graph = required_faiss("graphs", 2).IndexHNSWFlat(DIMENSION, 8)
    graph.add(vectors())
    seen = spark.sparkContext.parallelize(range(4), 4).mapPartitions(built).collect()
    assert {count for _, count, _ in seen} == {ROWS}
    # Spark gives a task one processor.
    assert {threads for _, _, threads in seen} == {1}

    path = str(tmp_path / "t")
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors().reshape(-1)), DIMENSION)
    lance.write_dataset(pa.table({"i": range(ROWS), "v": column}), path, max_rows_per_file=600)
    table = LanceTable.forPath(spark, path)
    table.create_index("v", "IVF_HNSW_SQ", num_partitions=2, num_segments=2)
    (row,) = table.indexes().collect()
    assert (row.num_segments, row.num_indexed_rows) == (2, ROWS)
    for client in (lance_spark.open_dataset, lance.dataset):
        nearest = {"column": "v", "q": vectors()[7], "k": 5, "ef": 40, "nprobes": 2}
        assert client(path).to_table(columns=["i"], nearest=nearest)["i"][0].as_py() == 7
