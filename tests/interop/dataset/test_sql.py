"""`Dataset.sql` by DuckDB answers as pylance's `sql`."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark import Dataset, open_dataset
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError

QUERIES = [
    "SELECT * FROM dataset",
    "SELECT id, name FROM dataset WHERE id > 20 AND name <> 'n1'",
    "SELECT name, count(*) AS n, CAST(sum(id) AS INT) AS total FROM dataset GROUP BY name",
    "SELECT id FROM dataset WHERE name IS NULL OR id IN (1, 2, 99)",
    "SELECT id + 1 AS x FROM dataset ORDER BY id DESC LIMIT 3",
    "SELECT a.id FROM dataset a JOIN dataset b ON a.id = b.id + 7 WHERE b.name LIKE 'n2%'",
    "SELECT count(*) AS n FROM dataset",
    "SELECT id FROM dataset WHERE id < 0",
    "SELECT id FROM dataset WHERE x > 3.5 OR x <> x",
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[lance.LanceDataset, Dataset]:
    path = str(tmp_path_factory.mktemp("sql") / "t.lance")
    names = [None if i % 11 == 5 else f"n{i % 7}" for i in range(40)]
    values = [float("nan") if i % 13 == 2 else i / 8 for i in range(40)]
    table = pa.table({"id": range(40), "name": names, "x": values})
    written = lance.write_dataset(table, path, max_rows_per_file=9)
    written.create_scalar_index("id", "BTREE")
    written.delete("id % 10 = 3")
    return written, open_dataset(path)


@pytest.fixture
def duckdb() -> Any:
    return pytest.importorskip("duckdb")


def rows(query: Any) -> list[str]:
    records = query.build().to_batch_records()
    return sorted(str(row) for batch in records for row in batch.to_pylist())


@pytest.mark.usefixtures("duckdb")
@pytest.mark.parametrize("text", QUERIES[:-1])
def test_queries(both: Any, text: str) -> None:
    theirs, ours = both
    assert rows(ours.sql(text)) == rows(theirs.sql(text))


@pytest.mark.usefixtures("duckdb")
def test_nan_is_as_duckdb_has_it(both: Any) -> None:
    """NaN is the greatest number and equals itself, as in Spark; not as in pylance."""
    expected = both[1].to_table(["id"], filter="x > 3.5")["id"].to_pylist()
    batches = both[1].sql("SELECT id FROM dataset WHERE x > 3.5").build().to_batch_records()
    assert sorted(pa.Table.from_batches(batches)["id"].to_pylist()) == expected


@pytest.mark.usefixtures("duckdb")
def test_options(both: Any) -> None:
    text = "SELECT id, _rowid, _rowaddr FROM t WHERE _rowaddr >= 4294967296 AND id < 20"
    result, expected = (
        rows(dataset.sql(text).table_name("t").with_row_id().with_row_addr())
        for dataset in (both[1], both[0])
    )
    assert result == expected
    query = both[1].sql("SELECT id FROM dataset").batch_size(5).batch_size_bytes(100).build()
    reader = query.to_stream_reader()
    batches = list(reader)
    assert sum(batch.num_rows for batch in batches) == 36
    assert len(query.to_batch_records()) == len(batches), "a query can be run again"
    with pytest.raises(InvalidInputError, match="_rowid"):
        both[1].sql("SELECT _rowid FROM dataset").build().to_batch_records()


@pytest.mark.usefixtures("duckdb")
def test_columns_and_filters_are_pushed_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"id": range(30), "name": ["a"] * 30, "x": ["b"] * 30})
    lance.write_dataset(table, str(tmp_path / "t"))
    dataset = open_dataset(tmp_path / "t")
    scans: list[Any] = []
    scanner = Dataset.scanner

    def spy(self: Dataset, columns: Any = None, filter: Any = None, **others: Any) -> Any:
        scans.append((columns, str(filter)))
        return scanner(self, columns, filter, **others)

    monkeypatch.setattr(Dataset, "scanner", spy)
    rows(dataset.sql("SELECT name FROM dataset WHERE id = 25"))
    ((columns, filter_text),) = scans
    assert "x" not in columns
    assert "25" in filter_text


@pytest.mark.usefixtures("duckdb")
def test_blobs(tmp_path: Path) -> None:
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = pa.table([[1, 2], [b"ab", None]], schema=pa.schema([("id", pa.int64()), blob]))
    lance.write_dataset(table, str(tmp_path / "t"), data_storage_version="2.1")
    query = open_dataset(tmp_path / "t").sql("SELECT b FROM dataset ORDER BY id")
    (batch,) = query.blob_handling("all_binary").build().to_batch_records()
    assert batch["b"].to_pylist() == [b"ab", None]
    (batch,) = query.blob_handling("blobs_descriptions").build().to_batch_records()
    assert batch["b"].to_pylist()[0]["size"] == 2


@pytest.mark.usefixtures("duckdb")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT q FROM dataset",
        "SELEC 1",
        "SELECT * FROM '{path}/other.csv'",
        "COPY (SELECT 1) TO '{path}/out.csv'",
        "SELECT * FROM local_rows",
        "CREATE TABLE t (x INT)",
        "SELECT 1; SELECT 2",
        "",
        "SET enable_external_access = true",
    ],
)
def test_refused(both: Any, tmp_path: Path, text: str) -> None:
    """Also all that is not a query of this table."""
    (tmp_path / "other.csv").write_text("a\n1\n")
    local_rows = pa.table({"a": [1]})
    assert local_rows.num_rows
    with pytest.raises(InvalidInputError, match="sql: "):
        both[1].sql(text.format(path=tmp_path)).build().to_batch_records()
    assert [path.name for path in tmp_path.iterdir()] == ["other.csv"]


@pytest.mark.usefixtures("duckdb")
def test_errors_of_a_scan_are_raised(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"a": range(10_000)}), str(tmp_path / "t"))
    ours = open_dataset(tmp_path / "t")
    (file,) = (tmp_path / "t" / "data").iterdir()
    file.write_bytes(b"x" * file.stat().st_size)
    del dataset
    with pytest.raises(InvalidInputError, match=file.name):
        ours.sql("SELECT sum(a) FROM dataset").build().to_batch_records()


def test_without_duckdb(both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "duckdb", raising=False)
    imported = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "duckdb":
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UnsupportedFeatureError, match=r"lance-spark\[sql\]"):
        both[1].sql("SELECT 1").build().to_batch_records()
