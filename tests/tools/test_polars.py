"""polars scans tables of Spark, and its frames are written, appended and merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lance_spark

pl = pytest.importorskip("polars")

COLUMNS = "id long, kind string, tags array<string>, place struct<city: string, codes: array<int>>"


def row(number: int, kind: str | None = None) -> dict[str, Any]:
    place = {"city": f"c{number % 3}", "codes": [number, number + 1]}
    tags = None if number % 4 == 0 else [f"t{number % 3}"]
    return {"id": number, "kind": kind or f"k{number % 7}", "tags": tags, "place": place}


@pytest.fixture(scope="module")
def table(spark: Any, folder: Path) -> str:
    """A table that Spark writes, indexes and changes."""
    frame = spark.createDataFrame([row(number) for number in range(100)], COLUMNS)
    frame.writeTo("lance.read").create()
    spark.sql("ALTER TABLE lance.read CREATE INDEX by_id USING btree (id)")
    spark.sql("UPDATE lance.read SET kind = 'new' WHERE id < 5")
    spark.sql("DELETE FROM lance.read WHERE id = 50")
    return str(folder / "lake" / "read.lance")


EXPECTED = [row(number, "new" if number < 5 else None) for number in range(100) if number != 50]


def check(frame: Any) -> None:
    assert frame.sort("id").collect().to_dicts() == EXPECTED
    for condition in (
        pl.col("id") == 70,
        pl.col("id") == 50,
        pl.col("kind").is_in(["new", "k3"]),
        pl.col("tags").is_null(),
        pl.col("kind").str.starts_with("n") & (pl.col("id") > 2),
        pl.col("place").struct.field("city") == "c1",
    ):
        expected = pl.DataFrame(EXPECTED).filter(condition).height
        assert frame.filter(condition).select(pl.len()).collect().item() == expected, condition
    assert frame.group_by("kind").len().collect().height == 8


def test_scans_by_arrow(table: str) -> None:
    """`pl.scan_pyarrow_dataset(open_dataset(PATH).arrow_dataset())` pushes columns and conditions
    down.
    """
    check(pl.scan_pyarrow_dataset(lance_spark.open_dataset(table).arrow_dataset()))


def test_scan_lance(table: str) -> None:
    """`pl.scan_lance(PATH)` reads by pylance."""
    if not hasattr(pl, "scan_lance"):
        pytest.xfail("polars has it since 2.0; use `scan_pyarrow_dataset`")
    check(pl.scan_lance(table))


def test_streams(table: str) -> None:
    """`pl.DataFrame(open_dataset(PATH))` reads all rows, and `pl.DataFrame(scanner)` those of a
    scanner.
    """
    dataset = lance_spark.open_dataset(table)
    assert pl.DataFrame(dataset).sort("id").to_dicts() == EXPECTED
    scanner = dataset.scanner(["kind"], filter="id = 70")
    assert pl.DataFrame(scanner).to_dicts() == [{"kind": "k0"}]


def test_frames_are_written(spark: Any, folder: Path) -> None:
    """`lance_spark.write_dataset(frame, PATH)` writes a frame, and SQL merges into the table."""
    frame = pl.DataFrame([row(number) for number in range(20)])
    path = folder / "lake" / "written.lance"
    lance_spark.write_dataset(frame, path).create_scalar_index("id", "BTREE")
    source = spark.createDataFrame([row(number, "new") for number in range(15, 25)], COLUMNS)
    source.createOrReplaceTempView("source")
    spark.sql(
        "MERGE INTO lance.written t USING source s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    found = pl.DataFrame(lance_spark.open_dataset(path)).sort("id").to_dicts()
    assert found == [row(number, "new" if number >= 15 else None) for number in range(25)]


def test_frames_are_appended_and_merged(spark: Any, folder: Path) -> None:
    """Frames are appended to tables of Spark, and merged into them by `Dataset.merge_insert`."""
    spark.createDataFrame([row(number) for number in range(10)], COLUMNS).writeTo(
        "lance.appended"
    ).create()
    path = folder / "lake" / "appended.lance"
    frame = pl.DataFrame([row(number) for number in range(10, 20)])
    frame = frame.with_columns(
        pl.col("place").struct.with_fields(pl.field("codes").cast(pl.List(pl.Int32)))
    )
    dataset = lance_spark.write_dataset(frame, path, mode="append")
    merged = frame.with_columns(kind=pl.lit("new")).head(5)
    dataset.merge_insert("id").when_matched_update_all().execute(merged)
    rows = [found.asDict(True) for found in spark.table("lance.appended").orderBy("id").collect()]
    assert rows == [row(number, "new" if 10 <= number < 15 else None) for number in range(20)]


def test_categories(folder: Path) -> None:
    """`Categorical` and `Enum` columns come back as they were."""
    frame = pl.DataFrame(
        {
            "c": pl.Series(["a", "b", "a"], dtype=pl.Categorical),
            "e": pl.Series(["x", "y", None], dtype=pl.Enum(["x", "y"])),
        }
    )
    dataset = lance_spark.write_dataset(frame, folder / "categories.lance")
    assert pa.types.is_dictionary(dataset.schema.field("c").type)
    back = pl.DataFrame(dataset)
    assert back.to_dicts() == frame.to_dicts()
