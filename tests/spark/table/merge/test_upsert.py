"""`LanceTable.upsert` by the primary key, also beside clients that insert the same key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark import LanceTable
from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import AmbiguousMergeError, InvalidInputError, SchemaMismatchError
from lance_spark.mutations import commits
from lance_spark.mutations.rows import update as row_update
from lance_spark.table.operations.update import Update
from lance_spark.table.primary_key import primary_key
from tests.spark.table.tables import checked, left_over

KEY = "lance-schema:unenforced-primary-key"
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False, metadata={KEY: "true"}), ("v", pa.string())]
)


def keyed(path: Path, **options: Any) -> None:
    rows = pa.table({"id": range(10), "v": [f"old {n}" for n in range(10)]}, schema=SCHEMA)
    write_dataset(rows, str(path), max_rows_per_file=4, **options)


def values_by_id(path: Path) -> dict[int, str]:
    rows = checked(path).to_table()
    assert len(set(rows["id"].to_pylist())) == len(rows)
    return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


def inserted_keys(path: Path, version: int) -> Any:
    transaction = open_dataset(str(path)).read_transaction(version)
    assert transaction is not None
    assert isinstance(transaction.operation, Update)
    return transaction.operation.inserted_keys


def test_composite_keys_in_their_order(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    names = ("at", "name", "v", "w")
    marks = ({f"{KEY}:position": "2"}, {f"{KEY}:position": "1"}, None, None)
    types = (pa.timestamp("ns"), pa.string(), pa.int64(), pa.int64())
    schema = pa.schema(
        [
            pa.field(name, dtype, nullable=mark is None, metadata=mark)
            for name, dtype, mark in zip(names, types, marks, strict=True)
        ]
    )
    rows = pa.table({"at": [0, 0, 1000], "name": ["a", "b", "a"], "v": [1, 2, 3], "w": [1, 2, 3]})
    write_dataset(rows.cast(schema), str(path), enable_stable_row_ids=True)
    key = primary_key(open_dataset(str(path))._table.schema)
    assert [[field.name for field in path] for path in key] == [["name"], ["at"]]
    table = LanceTable.forPath(spark, str(path))
    source = spark.createDataFrame(
        [(10, "a", 0), (20, "a", 1), (30, "c", 0)], "V bigint, Name string, us bigint"
    ).selectExpr(
        "V", "Name", "timestamp_ntz '1970-01-01' + make_dt_interval(0, 0, 0, us / 1e6) AS at"
    )
    result = table.upsert(source)
    assert (result.num_inserted_rows, result.num_updated_rows) == (1, 2)
    after = checked(path).to_table(["at", "name", "v", "w"], with_row_id=True).sort_by("_rowid")
    assert after["at"].cast(pa.int64()).to_pylist() == [0, 0, 1000, 0]
    assert after.drop(["at", "_rowid"]).to_pydict() == {
        "name": ["a", "b", "a", "c"],
        "v": [10, 2, 20, 30],
        "w": [1, 2, 3, None],
    }
    assert inserted_keys(path, 2).field_ids == (1, 0)
    # A source with only the key has no values to update.
    second_result = table.upsert(source.select("name", "at"))
    assert (second_result.version, second_result.num_updated_rows) == (2, 0)


def test_a_table_without_rows(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    builder = LanceTable.create(spark).location(str(path))
    builder = builder.addColumn("id", "bigint", nullable=False, primary_key=True)
    table = builder.addColumn("v", "string").execute()
    source = spark.createDataFrame([(1, "a"), (2, "b")], "id bigint, v string")
    assert table.upsert(source).num_inserted_rows == 2
    result = table.upsert(source.selectExpr("id + 1 AS id", "concat(v, '!') AS v"))
    assert (result.num_inserted_rows, result.num_updated_rows) == (1, 1)
    assert values_by_id(path) == {1: "a", 2: "a!", 3: "b!"}
    assert table.upsert(source.limit(0)).version == result.version
    table.delete()
    assert table.upsert(source).num_inserted_rows == 2
    assert values_by_id(path) == {1: "a", 2: "b"}


def test_invalid_sources_are_refused(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "t"
    keyed(path)
    table = LanceTable.forPath(spark, str(path))
    new = spark.createDataFrame([(3, "a"), (77, "b"), (77, "c")], "id bigint, v string")
    with pytest.raises(AmbiguousMergeError, match="id=77"):
        table.upsert(new)
    with pytest.raises(AmbiguousMergeError, match="id=3 at _rowaddr 3 "):
        table.upsert(new.where("id = 3").union(new.where("id = 3")))
    with pytest.raises(SchemaMismatchError, match="'id' of the primary key"):
        table.upsert(new.drop("id"))
    with pytest.raises(SchemaMismatchError, match="'extra'"):
        table.upsert(new.selectExpr("*", "1 AS extra"))
    with pytest.raises(InvalidInputError, match="id"):
        table.upsert(new.selectExpr("nullif(id, 77) AS id", "v"))
    assert lance.dataset(path).version == 1
    assert left_over(path) == set()
    # Keys are compared after the cast of an insert: 3.5 becomes 3, which the table has.
    result = table.upsert(spark.sql("SELECT 3.5D AS id, 'half' AS v"))
    assert (result.num_inserted_rows, result.num_updated_rows) == (0, 1)
    assert values_by_id(path)[3] == "half"
    plain = tmp_path / "plain"
    lance.write_dataset(
        pa.table({"id": [3]}, schema=pa.schema([SCHEMA.field("id").remove_metadata()])), plain
    )
    table = LanceTable.forPath(spark, str(plain))
    with pytest.raises(InvalidInputError, match="no primary key"):
        table.upsert(new)
    # The primary key can be set after the table was created.
    open_dataset(str(plain)).update_field_metadata({"id": {KEY: "yes"}})
    assert table.upsert(new.select("id").distinct()).num_inserted_rows == 1
    assert lance.dataset(plain).merge_insert() is not None
    assert checked(plain).count_rows() == 2


def test_pylance_inserts_the_key_at_the_same_time(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    keyed(path)
    stale = lance.dataset(path)
    commit = commits.commit_rows
    attempts = 0

    def merge_insert(dataset: Any, key: int, value: str) -> None:
        merge = dataset.merge_insert("id").when_matched_update_all()
        rows = pa.table({"id": [key], "v": [value]}, schema=SCHEMA)
        merge.when_not_matched_insert_all().execute(rows)

    def later(*arguments: Any, **options: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts in (1, 3):
            merge_insert(lance.dataset(path), 100 if attempts == 1 else 500, "pylance")
        return commit(*arguments, **options)

    monkeypatch.setattr(row_update, "commit_rows", later)
    table = LanceTable.forPath(spark, str(path))
    source = spark.createDataFrame([(100, "ours")], "id bigint, v string")
    result = table.upsert(source)
    assert (result.version, result.num_inserted_rows, result.num_updated_rows) == (3, 0, 1)
    assert attempts == 2
    assert values_by_id(path)[100] == "ours"
    # Another client inserted other keys. This does not cause a second attempt.
    result = table.upsert(spark.createDataFrame([(200, "ours")], "id bigint, v string"))
    assert (result.version, result.num_inserted_rows, attempts) == (5, 1, 3)
    # pylance planned on the first version. The key filter of the commit shows that the key was
    # inserted since then.
    assert inserted_keys(path, 5).field_ids == (0,)
    merge_insert(stale, 200, "pylance")
    assert values_by_id(path)[200] == "pylance"
    assert len(values_by_id(path)) == 13
