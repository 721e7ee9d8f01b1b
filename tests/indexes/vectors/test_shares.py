"""Shares of a vector search with a prefilter, which is evaluated by each share or once."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.indexes.vectors import search as tasks
from lance_spark.indexes.vectors.neighbors import merged
from lance_spark.indexes.vectors.query import parse_nearest
from lance_spark.predicates.sql import parse_local
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.metrics import ScanMetrics

ROWS, DIMENSION = 2000, 8


@pytest.mark.sample(3)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("text", ["g = 3", "id < 0", "g IS NOT NULL", "id = 1999 OR g = 1"])
def test_a_prefilter_that_is_evaluated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stable: bool, text: str
) -> None:
    path = str(tmp_path / "t.lance")
    values = np.random.default_rng(1).standard_normal((ROWS, DIMENSION)).astype(np.float32)
    vectors: list[Any] = values.tolist()
    vectors[4] = None
    groups = [None if number % 9 == 0 else number % 5 for number in range(ROWS)]
    column = pa.array(vectors, pa.list_(pa.float32(), DIMENSION))
    table = pa.table({"id": range(ROWS), "g": groups, "v": column})
    lance.write_dataset(table[:1900], path, max_rows_per_file=400, enable_stable_row_ids=stable)
    lance.dataset(path).create_index("v", "IVF_FLAT", num_partitions=7)
    lance.dataset(path).create_scalar_index("id", "BTREE")
    lance.dataset(path).delete("id % 11 = 5")
    lance.write_dataset(table[1900:], path, mode="append")
    dataset = lance_spark.open_dataset(path)
    nearest = {"column": "v", "q": values[:20], "k": 6, "nprobes": 7}
    search = dataset._reader.plan_nearest(parse_nearest(nearest))
    conditions = (parse_local(text, row_meta.with_all(dataset._table.schema)),)
    schema = dataset._reader.nearest_schema(["id"], is_batch=True, adds=False)
    whole = dataset._reader.nearest_task(search, schema, conditions, ())
    shares = search.shares(max(1, search.cost // 6))
    assert len(shares) > 3
    once = whole.with_passing()
    assert once.passing is not None
    neighbors = []
    for task in (whole, once):
        parts = [pickle.loads(pickle.dumps(task.share(share))) for share in shares]
        rows = merged([part.neighbors(ScanMetrics(), part.opened()) for part in parts], 6)
        neighbors.append(list(zip(rows.queries.tolist(), rows.ids.tolist(), strict=True)))
    assert neighbors[0] == neighbors[1]
    exact = dataset.to_table(
        ["id"],
        nearest={**nearest, "use_index": False},
        filter=text,
        prefilter=True,
        with_row_id=True,
    )
    queries, ids = exact["query_index"].to_pylist(), exact["_rowid"].to_pylist()
    assert neighbors[1] == list(zip(queries, ids, strict=True))
    for name in ("_PREFILTERED_ROWS", "_PASSING_BYTES"):
        with monkeypatch.context() as limits:
            limits.setattr(tasks, name, -1)
            assert whole.with_passing() is whole
