"""Vector indexes of `LanceTable` and of SQL: written by tasks, with one model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from lance_spark.indexes.vectors import maintenance
from lance_spark.mutations.compaction import remap
from lance_spark.spark.table import LanceTable
from tests.spark.sql.catalogs import TestCatalog

ROWS, DIMENSION = 3000, 16


def rows(first: int = 0, count: int = ROWS) -> pa.Table:
    matrix = np.random.default_rng(first).normal(size=(count, DIMENSION)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), DIMENSION)
    return pa.table({"v": vectors, "id": np.arange(first, first + count)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t"
    lance.write_dataset(rows(), str(path), max_rows_per_file=ROWS // 4)
    return path


def statistics(path: Path, name: str = "v_idx") -> dict[str, Any]:
    result: dict[str, Any] = lance.dataset(str(path)).stats.index_stats(name)
    return result


@pytest.mark.parametrize("index_type", ["IVF_PQ", "ivf_rq", "IVF_HNSW_SQ"])
def test_tasks_write_segments_of_one_model(spark: Any, path: Path, index_type: str) -> None:
    table = LanceTable.forPath(spark, str(path))
    table.create_index("v", index_type, metric="cosine", num_partitions=6, num_segments=2)
    stats = statistics(path)
    first, second = stats["indices"]
    assert first["index_type"] == index_type.upper()
    assert first["centroids"] == second["centroids"]
    assert len(first["partitions"]) == 6
    assert (stats["num_indexed_rows"], stats["num_unindexed_rows"]) == (ROWS, 0)
    query = {"column": "v", "q": np.ones(DIMENSION), "k": 5, "metric": "cosine"}
    assert "ANNSubIndex" in lance.dataset(str(path)).scanner(nearest=query).explain_plan()
    (row,) = table.indexes().collect()
    assert (row.index_type, row.num_segments) == (index_type.upper(), 2)
    lance.write_dataset(rows(ROWS, 500), str(path), mode="append")
    table.optimize_indices(num_indices_to_merge=2)
    stats = statistics(path)
    assert (len(stats["indices"]), stats["num_indexed_rows"]) == (1, ROWS + 500)
    assert [row.is_valid for row in table.check_index("v_idx").collect()] == [True]


def test_executors_write_graphs_after_a_compaction(
    spark: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LanceTable.forPath(spark, str(path))
    table.create_index("v", "IVF_HNSW_SQ", num_partitions=2, num_segments=2)
    lance.dataset(str(path)).delete("id % 3 = 0")

    def refuse(*arguments: object) -> None:
        raise AssertionError("the driver writes no graphs")

    # Workers are other processes, which do not have these.
    monkeypatch.setattr(remap, "_OWN_BYTES", 0)
    monkeypatch.setattr(remap, "_GRAPH_ROWS", 200)
    refused = replace(maintenance.REMAPPING, remap=refuse, build_part=refuse)
    monkeypatch.setattr(maintenance, "REMAPPING", refused)
    table.optimize().executeCompaction()
    assert len(lance.dataset(str(path)).get_fragments()) == 2
    assert statistics(path)["num_unindexed_rows"] == 0
    assert [row.is_valid for row in table.check_index("v_idx").collect()] == [True, True]


def test_sql(spark: Any, tmp_path: Path) -> None:
    catalog = TestCatalog.of(spark, "vector_indexes", tmp_path)
    vector = f"transform(sequence(1, {DIMENSION}), i -> cast(sin(id * i) AS float)) AS v"
    catalog.sql(
        "CREATE TABLE CAT.t (id BIGINT, v ARRAY<FLOAT>) "
        f"TBLPROPERTIES ('v.arrow.fixed-size-list.size' = '{DIMENSION}')"
    )
    catalog.sql(f"INSERT INTO CAT.t SELECT id, {vector} FROM range(0, 1000, 1, 1)")
    created = catalog.sql(
        "ALTER TABLE CAT.t CREATE INDEX i USING ivf_pq (v) WITH "
        "(num_partitions = 2, distance_type = 'cosine', num_sub_vectors = 4, num_bits = 8)"
    )
    assert created == [(1, "i")]
    created = catalog.sql("CALL CAT.system.create_index('t', 'j', 'IVF_SQ', array('v'))")
    assert created == [(1, "j")]
    shown = {row[0]: row[2] for row in catalog.sql("SHOW INDEXES IN CAT.t")}
    assert shown == {"i": "IVF_PQ", "j": "IVF_SQ"}
    catalog.sql(f"INSERT INTO CAT.t SELECT id, {vector} FROM range(1000, 1010, 1, 1)")
    assert catalog.sql("ALTER TABLE CAT.t OPTIMIZE INDEX i") == [(2, "i")]
    assert [row[1] for row in catalog.sql("CALL CAT.system.check_index('t', 'i')")] == [True]
    with pytest.raises(AnalysisException, match="num_bits must be one of 4, 8"):
        catalog.sql("ALTER TABLE CAT.t CREATE INDEX i USING ivf_pq (v) WITH (num_bits = 5)")
