"""DuckDB and Polars read a `Dataset` by Arrow's interfaces, and push columns and filters down."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import lance_spark
from lance_spark.dataset import ArrowDataset
from lance_spark.errors import UnsupportedFeatureError

ROWS = 500


@pytest.fixture
def dataset(tmp_path: Path) -> lance_spark.Dataset:
    rows = pa.table(
        {
            "id": list(range(ROWS)),
            "name": [f"n{i % 10}" for i in range(ROWS)],
            "price": [None if i % 7 == 0 else i / 2 for i in range(ROWS)],
            "s": [{"x": i} for i in range(ROWS)],
        }
    )
    made = lance_spark.write_dataset(rows, tmp_path / "t", max_rows_per_file=200)
    return made.create_scalar_index("id", "BTREE").delete("id = 3")


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str]]:
    """Columns and filters of the scans of a test."""
    seen: list[tuple[Any, str]] = []
    scanner = lance_spark.Dataset.scanner

    def recorded(self: Any, columns: Any = None, filter: Any = None, *args: Any, **kw: Any) -> Any:
        seen.append((columns, str(filter)))
        return scanner(self, columns, filter, *args, **kw)

    monkeypatch.setattr(lance_spark.Dataset, "scanner", recorded)
    return seen


def test_streams(dataset: lance_spark.Dataset) -> None:
    assert pa.table(dataset).equals(dataset.to_table())
    scanner = dataset.scanner(["id"], "id < 5")
    assert pa.table(scanner).equals(scanner.to_table())
    reader = pa.RecordBatchReader.from_stream(dataset)
    assert reader.schema.equals(dataset.schema)
    assert sum(batch.num_rows for batch in reader) == ROWS - 1


def test_the_dataset_of_arrow(dataset: lance_spark.Dataset) -> None:
    arrow = dataset.arrow_dataset()
    assert isinstance(arrow, ArrowDataset)
    assert isinstance(arrow, pads.Dataset)
    assert arrow.schema.equals(dataset.schema)
    condition = pads.field("id") < 10
    assert arrow.to_table(columns=["id"], filter=condition).num_rows == 9
    assert arrow.count_rows(condition) == 9
    assert arrow.head(3).num_rows == 3
    assert arrow.take([0, 3])["id"].to_pylist() == [0, 4]
    assert sum(batch.num_rows for batch in arrow.to_batches(use_threads=False)) == ROWS - 1
    assert [part.fragment_id for part in arrow.get_fragments()] == [0, 1, 2]
    assert arrow.scanner({"twice": "id * 2"}).to_table()["twice"][5].as_py() == 12
    assert pickle.loads(pickle.dumps(arrow)).count_rows() == ROWS - 1
    for refused in (
        lambda: arrow.filter(condition),
        lambda: arrow.replace_schema(arrow.schema),
        lambda: arrow.sort_by("id"),
        lambda: arrow.join(arrow, "id"),
        lambda: arrow.join_asof(arrow, "id", "id", 1),
    ):
        with pytest.raises(UnsupportedFeatureError):
            refused()


def test_duckdb(dataset: lance_spark.Dataset, scans: list[tuple[Any, str]]) -> None:
    duckdb = pytest.importorskip("duckdb")
    lance_table = dataset.arrow_dataset()  # noqa: F841 - DuckDB finds the variable
    query = "SELECT name, price FROM lance_table WHERE id >= 495 AND name <> 'n7' ORDER BY id"
    rows = duckdb.sql(query).fetchall()
    assert rows == [(f"n{i % 10}", None if i % 7 == 0 else i / 2) for i in (495, 496, 498, 499)]
    columns, condition = scans[-1]
    assert {"name", "price"} <= set(columns) <= {"name", "price", "id"}
    assert "id >= 495" in condition
    assert duckdb.sql("SELECT count(*) FROM lance_table").fetchall() == [(ROWS - 1,)]
    total = duckdb.sql("SELECT sum(s.x) FROM lance_table WHERE price IS NULL").fetchall()
    assert total == [(sum(i for i in range(ROWS) if i % 7 == 0),)]


def test_duckdb_reads_a_stream(dataset: lance_spark.Dataset) -> None:
    duckdb = pytest.importorskip("duckdb")
    scanner = dataset.scanner(["id"], "id < 10")  # noqa: F841 - DuckDB finds the variable
    assert duckdb.sql("SELECT count(*), max(id) FROM scanner").fetchall() == [(9, 9)]
    assert duckdb.sql("SELECT count(*) FROM dataset").fetchall() == [(ROWS - 1,)]


def test_polars(dataset: lance_spark.Dataset, scans: list[tuple[Any, str]]) -> None:
    polars = pytest.importorskip("polars")
    assert polars.DataFrame(dataset).height == ROWS - 1
    frame = polars.scan_pyarrow_dataset(dataset.arrow_dataset())
    rows = (
        frame.filter((polars.col("id") >= 495) & polars.col("name").is_in(["n5", "n9"]))
        .select("id", "price")
        .collect()
    )
    assert rows.rows() == [(495, 247.5), (499, 249.5)]
    columns, condition = scans[-1]
    assert {"id", "price"} <= set(columns) <= {"id", "price", "name"}
    assert "id >= 495" in condition
    assert "is_in" in condition
