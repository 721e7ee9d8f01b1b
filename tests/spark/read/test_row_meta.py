"""Row columns in Spark: named in a schema, in the option columns, or by their own options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark.errors import InvalidOptionError
from lance_spark.spark.options.read import ReadOptions

Read = Callable[..., Any]
ALL = [
    "_rowid",
    "_rowaddr",
    "_rowoffset",
    "_row_created_at_version",
    "_row_last_updated_at_version",
]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Write three fragments with stable row ids, deleted rows in one fragment and updated rows in
    another.
    """
    path = str(tmp_path / "t.lance")
    rows = pa.table({"id": range(40), "s": [f"s{i}" for i in range(40)]})
    lance.write_dataset(rows, path, enable_stable_row_ids=True, max_rows_per_file=20)
    lance.dataset(path).delete("id < 5")
    lance.dataset(path).update({"s": "'new'"}, where="id % 10 = 7")
    return lance.dataset(path)


def tuples(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in rows)


def expected(table: Any, columns: list[str]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_table(columns).to_pylist())


def test_row_columns_in_a_schema(spark: Any, table: Any) -> None:
    columns = ["_rowaddr", "id", *ALL[2:], "_rowid"]
    schema = "_rowaddr long, id long, " + ", ".join(f"{name} long" for name in columns[2:])
    frame = spark.read.schema(schema).format("lance").load(table.uri)
    assert frame.columns == columns
    assert tuples(frame.collect()) == expected(table, columns)
    # A partition may begin in the middle of a fragment.
    small = spark.read.schema("_rowoffset long, _fragid int, id long").format("lance")
    result = small.option("target_rows_per_partition", 3).load(table.uri)
    assert result.rdd.getNumPartitions() > 8
    addresses = table.to_table(["_rowoffset", "_rowaddr", "id"]).to_pylist()
    assert tuples(result.collect()) == sorted(
        (row["_rowoffset"], row["_rowaddr"] >> 32, row["id"]) for row in addresses
    )


def test_options(read: Read, table: Any) -> None:
    frame = read(with_row_id="true", WITH_ROW_ADDRESS="True")
    assert frame.dtypes[2:] == [("_rowid", "bigint"), ("_rowaddr", "bigint")]
    assert tuples(frame.collect()) == expected(table, ["id", "s", "_rowid", "_rowaddr"])
    chosen = read(columns="_row_last_updated_at_version, id")
    assert tuples(chosen.collect()) == expected(table, ["_row_last_updated_at_version", "id"])
    assert read(columns="id", with_row_id="true").columns == ["id", "_rowid"]
    assert read().columns == ["id", "s"]
    assert frame.where("_rowid = 9").select("id").collect()[0].id == 9
    assert ReadOptions.parse({"path": "t"}).with_row_id is False
    with pytest.raises(InvalidOptionError, match="with_row_id"):
        ReadOptions.parse({"path": "t", "with_row_id": "perhaps"})


def test_row_columns_are_not_written(read: Read, table: Any, tmp_path: Path) -> None:
    frame = read(with_row_id="true")
    with pytest.raises(Exception, match="_rowid"):
        frame.write.format("lance").mode("append").save(str(tmp_path / "copy.lance"))
    with pytest.raises(Exception, match="_rowid"):
        frame.write.format("lance").mode("append").save(table.uri)
