"""RTREE indexes in Spark: made by tasks, and asked by the option `filter`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

import lance_spark
from lance_spark.spark.table import LanceTable
from tests.support.tables.geometries import column, field, wkb

CONDITION = "st_within(g, 'POLYGON ((10 10, 20 10, 20 20, 10 20))')"
ROWS = 10_000


def points() -> list[Any]:
    return [("POINT", (row % 100.0, row // 100.0)) for row in range(ROWS)]


def expected() -> list[int]:
    return [row for row in range(ROWS) if 10 < row % 100 < 20 and 10 < row // 100 < 20]


def ids(frame: Any) -> list[int]:
    return sorted(row.i for row in frame.select("i").collect())


def test_an_index_of_points(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    schema = pa.schema([pa.field("i", pa.int64()), field("g", "point")])
    data = pa.table([pa.array(range(ROWS)), column(points(), "point")], schema=schema)
    lance.write_dataset(data, path, max_rows_per_file=2_500)
    table = LanceTable.forPath(spark, path)
    table.create_index("g", "rtree", num_segments=2, page_size=64)
    (row,) = table.indexes().collect()
    assert (row.index_type, row.num_segments, row.num_indexed_rows) == ("RTree", 2, ROWS)
    assert all(row.is_valid for row in table.check_index("g_idx").collect())
    assert "index: g_idx (RTREE): 121 rows" in lance_spark.open_dataset(path).explain(
        filter=CONDITION
    )
    frame = spark.read.format("lance").option("filter", CONDITION).load(path)
    assert ids(frame) == expected()
    oracle = lance.dataset(path)
    assert "ScalarIndexQuery" in oracle.scanner(filter=CONDITION).explain_plan()
    assert oracle.to_table(["i"], filter=CONDITION)["i"].to_pylist() == expected()
    # Spark has no spatial predicate: it compares coordinates, and no index answers.
    box = "g.x > 10 AND g.x < 20 AND g.y > 10 AND g.y < 20"
    assert ids(table.toDF().where(box)) == expected()


@pytest.mark.skipif(not hasattr(T, "GeometryType"), reason="this Spark has no GEOMETRY")
def test_an_index_of_spark_s_geometries(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    values = [(row, wkb(point)) for row, point in enumerate(points())]
    frame = spark.createDataFrame(values, "i long, b binary")
    frame.select("i", F.st_geomfromwkb("b").alias("g")).write.format("lance").mode("append").save(
        path
    )
    table = LanceTable.forPath(spark, path)
    table.create_index("g", "RTREE")
    assert all(row.is_valid for row in table.check_index("g_idx").collect())
    assert ids(spark.read.format("lance").option("filter", CONDITION).load(path)) == expected()
    oracle = lance.dataset(path)
    assert "ScalarIndexQuery" in oracle.scanner(filter=CONDITION).explain_plan()
    assert sorted(oracle.to_table(["i"], filter=CONDITION)["i"].to_pylist()) == expected()
