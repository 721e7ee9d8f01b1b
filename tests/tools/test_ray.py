"""`lance-ray` and Spark on the same tables."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lance_spark

# A busy machine starts the processes of Ray late; it reads the variable when it is imported.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "240")
ray = pytest.importorskip("ray")
lance_ray = pytest.importorskip("lance_ray")


def rows(numbers: range) -> pa.Table:
    kinds = [f"k{n % 7}" for n in numbers]
    return pa.table({"id": numbers, "kind": kinds, "text": [f"word{n % 5} tree" for n in numbers]})


@pytest.fixture(scope="module")
def lake(spark: Any, folder: Path) -> Iterator[Path]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield folder / "lake"
    ray.shutdown()


@pytest.mark.parametrize("stable", [False, True], ids=["row addresses", "stable row ids"])
def test_reads_appends_and_compacts(spark: Any, lake: Path, stable: bool) -> None:
    """`lance_ray` reads tables that Spark writes, indexes and changes, appends to them, adds columns
    and compacts them.
    """
    name = f"read_{stable}"
    path = str(lake / f"{name}.lance")
    dataset = lance_spark.write_dataset(
        rows(range(100)), path, max_rows_per_file=30, enable_stable_row_ids=stable
    )
    dataset.create_scalar_index("id", "BTREE")
    spark.sql(f"UPDATE lance.{name} SET kind = 'new' WHERE id BETWEEN 20 AND 24")
    spark.sql(f"DELETE FROM lance.{name} WHERE id < 10")
    assert lance_ray.read_lance(path).count() == 90
    assert lance_ray.read_lance(path, filter="kind = 'new'").count() == 5
    lance_ray.write_lance(ray.data.from_arrow(rows(range(100, 105))), path, mode="append")
    lance_ray.add_columns(path, transform={"twice": "id * 2"}, concurrency=2)
    if hasattr(lance_ray, "compact_files"):
        lance_ray.compact_files(path, num_workers=2)
    found = spark.table(f"lance.{name}")
    assert [found.where(f"id = {n}").count() for n in (9, 22, 104)] == [0, 1, 1]
    assert found.where("twice = 2 * id").count() == found.count() == 95
    dataset = lance_spark.open_dataset(path)
    assert dataset.check_index("id_idx").is_valid


def test_spark_changes_what_ray_writes(spark: Any, lake: Path) -> None:
    """SQL merges into, updates and compacts tables that `lance_ray.write_lance` writes, with the
    indexes that `lance_ray.create_scalar_index` makes.
    """
    path = str(lake / "written.lance")
    lance_ray.write_lance(ray.data.from_arrow(rows(range(100))), path)
    lance_ray.create_scalar_index(path, column="id", index_type="BTREE", num_workers=2)
    lance_ray.create_scalar_index(path, column="text", index_type="INVERTED", num_workers=2)
    spark.sql(
        "MERGE INTO lance.written t USING (SELECT id, 'new' AS kind FROM range(95, 110)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET kind = s.kind "
        "WHEN NOT MATCHED THEN INSERT (id, kind) VALUES (s.id, s.kind)"
    )
    spark.sql("DELETE FROM lance.written WHERE id < 50")
    spark.sql("OPTIMIZE lance.written")
    assert lance_ray.read_lance(path).count() == 60
    assert lance_ray.read_lance(path, filter="kind = 'new'").count() == 15
    dataset = lance_spark.open_dataset(path)
    assert all(dataset.check_index(index.name).is_valid for index in dataset.describe_indices())
    assert dataset.count_rows("id = 77") == 1
    query = {"columns": ["text"], "query": "word3"}
    found = dataset.to_table(["id"], full_text_query=query, limit=100)["id"].to_pylist()
    assert sorted(found) == list(range(53, 100, 5))


def test_ray_data_over_arrow(lake: Path) -> None:
    """`ray.data.from_arrow(open_dataset(PATH).to_table())` reads a table without `lance-ray`; to write
    one, pass `ray.get(data.to_arrow_refs())` joined by `pyarrow.concat_tables`.
    """
    path = lake / "arrow.lance"
    data = ray.data.from_arrow(rows(range(20)))
    table = pa.concat_tables(ray.get(data.to_arrow_refs()))
    dataset = lance_spark.write_dataset(table, path)
    assert ray.data.from_arrow(dataset.to_table()).count() == 20
