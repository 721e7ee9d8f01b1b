"""Daft (with its extra `lance`) and Spark on the same tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lance_spark

daft = pytest.importorskip("daft")


def rows(numbers: range) -> pa.Table:
    kinds = [f"k{n % 7}" for n in numbers]
    return pa.table({"id": numbers, "kind": kinds, "tags": [[f"t{n % 3}"] for n in numbers]})


@pytest.fixture(scope="module")
def lake(spark: Any, folder: Path) -> Path:
    return folder / "lake"


@pytest.mark.parametrize("stable", [False, True], ids=["row addresses", "stable row ids"])
def test_reads_and_appends(spark: Any, lake: Path, stable: bool) -> None:
    """`daft.read_lance(PATH)` reads tables that Spark writes, indexes and changes, and
    `frame.write_lance(PATH, mode="append")` appends to them.
    """
    name = f"read_{stable}"
    path = lake / f"{name}.lance"
    dataset = lance_spark.write_dataset(
        rows(range(100)), path, max_rows_per_file=30, enable_stable_row_ids=stable
    )
    dataset.create_scalar_index("id", "BTREE")
    spark.sql(f"UPDATE lance.{name} SET kind = 'new' WHERE id BETWEEN 20 AND 24")
    spark.sql(f"DELETE FROM lance.{name} WHERE id < 10")
    frame = daft.read_lance(str(path))
    assert frame.count_rows() == 90
    assert frame.where(daft.col("kind") == "new").count_rows() == 5
    assert frame.where(daft.col("id") == 50).to_pydict()["kind"] == ["k1"]
    more = daft.from_arrow(rows(range(100, 105)).cast(dataset.schema))
    more.write_lance(str(path), mode="append")
    found = spark.table(f"lance.{name}")
    assert [found.where(f"id = {n}").count() for n in (9, 22, 104)] == [0, 1, 1]
    assert found.count() == 95


def test_spark_changes_what_daft_writes(spark: Any, lake: Path) -> None:
    """SQL merges into, updates and compacts tables that `frame.write_lance(PATH)` writes."""
    path = lake / "written.lance"
    daft.from_arrow(rows(range(100))).write_lance(str(path), mode="create")
    lance_spark.open_dataset(path).create_scalar_index("id", "BTREE")
    spark.sql(
        "MERGE INTO lance.written t USING (SELECT id, 'new' AS kind FROM range(95, 110)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET kind = s.kind "
        "WHEN NOT MATCHED THEN INSERT (id, kind) VALUES (s.id, s.kind)"
    )
    spark.sql("DELETE FROM lance.written WHERE id < 50")
    spark.sql("OPTIMIZE lance.written")
    frame = daft.read_lance(str(path))
    assert frame.count_rows() == 60
    assert frame.where(daft.col("kind") == "new").count_rows() == 15


def test_maintenance(spark: Any, lake: Path) -> None:
    """Tables of Spark are compacted and indexed by the package `daft-lance`, and Spark uses the
    index.
    """
    try:
        import daft_lance as tools
    except ImportError:
        pytest.xfail("there is no such package for this release")
    path = lake / "kept.lance"
    dataset = lance_spark.write_dataset(rows(range(100)), path, max_rows_per_file=30)
    dataset.create_scalar_index("kind", "BITMAP").delete("id < 10")
    tools.create_scalar_index(str(path), column="id", index_type="BTREE")
    spark.sql("UPDATE lance.kept SET kind = 'new' WHERE id = 50")
    tools.compact_files(str(path))
    tools.optimize_indices(str(path))
    dataset = lance_spark.open_dataset(path)
    assert all(dataset.check_index(index.name).is_valid for index in dataset.describe_indices())
    assert dataset.count_rows("id = 50") == dataset.count_rows("kind = 'new'") == 1
    assert "index: " in dataset.explain(filter="id = 50")


def test_arrow(lake: Path) -> None:
    """`daft.from_arrow(open_dataset(PATH).to_table())` reads, and `write_dataset(frame, PATH)` writes
    a frame.
    """
    path = lake / "arrow.lance"
    dataset = lance_spark.write_dataset(daft.from_arrow(rows(range(20))).to_arrow(), path)
    assert daft.from_arrow(dataset.to_table()).count_rows() == 20
    frame = daft.from_arrow(rows(range(20, 25)))
    if not hasattr(frame, "__arrow_c_stream__"):
        lance_spark.write_dataset(frame.to_arrow(), path, mode="append")
        pytest.xfail("frames are no Arrow data in this release; write `frame.to_arrow()`")
    assert lance_spark.write_dataset(frame, path, mode="append").count_rows() == 25
