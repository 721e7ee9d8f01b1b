"""Each commit looks at the shards of a MemWAL again: rows can come after a change was planned."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset, FreshRows, LanceOperation, write_fragments
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.mem_wal.table.details import find_index
from lance_spark.table.indexes.sections import section_of
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.columns import Project
from lance_spark.table.operations.indexes import CreateIndex
from tests.support.forking import CONTEXT
from tests.support.stores import shard_writers
from tests.support.tables.damaged import files_below

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False, KEY), pa.field("s", pa.string()), pa.field("n", pa.int64())]
)


def rows(ids: list[int], text: str) -> pa.Table:
    return pa.table({"id": ids, "s": [text] * len(ids), "n": ids}, SCHEMA)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    lance_spark.write_dataset(rows(list(range(6)), "base"), uri)
    return uri


def start(uri: str, *, flush: bool = False) -> None:
    """Give the table a MemWAL whose shard has a row of key 1."""
    dataset = lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    writer = dataset.mem_wal_writer()
    writer.put(rows([1], "fresh"))
    writer.close(flush=flush)


def text(dataset: Dataset | FreshRows) -> dict[int, str]:
    table = dataset.to_table(["id", "s"])
    return dict(zip(table["id"].to_pylist(), table["s"].to_pylist(), strict=True))


STALE: dict[str, tuple[Callable[[Dataset], Any], str]] = {
    "delete": (lambda dataset: dataset.delete("id = 1"), "hide or undo"),
    "truncate": (lambda dataset: dataset.truncate_table(), "hide or undo"),
    "update": (lambda dataset: dataset.update({"s": "x"}, "id = 1"), "hide or undo"),
    "columns": (lambda dataset: dataset.update({"s": "x"}, mode="columns"), "hide or undo"),
    "overlay": (lambda dataset: dataset.update({"s": "x"}, "id = 1", mode="overlay"), "hide or"),
    "merge": (
        lambda dataset: (
            dataset.merge_insert("id").when_matched_update_all().execute(rows([1], "x"))
        ),
        "hide or undo",
    ),
    "restore": (lambda dataset: dataset.restore(), "shards"),
    "overwrite": (
        lambda dataset: lance_spark.write_dataset(rows([1], "x"), dataset.uri, mode="overwrite"),
        "shards",
    ),
    "computed column": (lambda dataset: dataset.add_columns({"c": "n + 1"}), "'c'"),
    "cast": (
        lambda dataset: dataset.alter_columns({"path": "n", "data_type": pa.int32()}),
        "cast|computed",
    ),
    "not null": (
        lambda dataset: dataset.alter_columns({"path": "n", "nullable": False}),
        "not nullable",
    ),
    "drop of the key": (lambda dataset: dataset.drop_columns(["id"]), "key or sharding"),
}


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("name", STALE)
def test_a_handle_from_before_the_mem_wal(uri: str, name: str, flush: bool) -> None:
    change, message = STALE[name]
    opened = lance_spark.open_dataset(uri)
    start(uri, flush=flush)
    before = files_below(Path(uri))
    with pytest.raises(UnsupportedFeatureError, match=message):
        change(opened)
    assert files_below(Path(uri)) == before
    assert text(lance_spark.open_dataset(uri).fresh()) == {
        **dict.fromkeys(range(6), "base"),
        1: "fresh",
    }


def _merge(dataset: Dataset) -> Operation:
    parts = [part.merge_columns({"c": "n + 1"}) for part in dataset.get_fragments()]
    return LanceOperation.Merge([part[0] for part in parts], parts[0][1])


def _new_values(dataset: Dataset) -> Operation:
    """A merge that gives an existing column other files."""
    changed = {part.fragment_id: part.metadata for part in dataset.get_fragments()}
    changed.update(_update(dataset).updated_fragments)
    return LanceOperation.Merge(changed.values(), dataset._table.schema)


def _update(dataset: Dataset) -> Operation:
    fragment = dataset.get_fragments()[0]
    changed, fields, *_ = fragment.update_columns(rows([1], "x").drop(["n"]), "id")
    return LanceOperation.Update(
        updated_fragments=[changed], fields_modified=fields, update_mode="rewrite_columns"
    )


def _delete(dataset: Dataset) -> Operation:
    fragment = dataset.get_fragments()[0]
    changed = fragment.delete("id = 1")
    assert changed is not None
    return LanceOperation.Delete([changed], [], "id = 1")


def _replacement(dataset: Dataset) -> Operation:
    changed = next(iter(_update(dataset).updated_fragments.values()))
    return LanceOperation.DataReplacement([(changed.id, changed.files[-1])])


def _overwrite(dataset: Dataset) -> Operation:
    new = write_fragments(rows([9], "x"), dataset, mode="overwrite")
    return LanceOperation.Overwrite(SCHEMA, new)


def _without_index(dataset: Dataset) -> Operation:
    index = find_index(section_of(dataset._table.manifest))
    assert index is not None
    return CreateIndex((), (index,))


def _projection(change: Callable[[Any], None], *, drops: str = "") -> Any:
    def plan(dataset: Dataset) -> Operation:
        fields = [field for field in dataset._table.schema.to_protos() if field.name != drops]
        for field in fields:
            change(field)
        return Project(tuple(fields), preserves_nullability=True)

    return plan


def _require(field: Any) -> None:
    field.nullable = False


def _widen(field: Any) -> None:
    field.logical_type = field.logical_type.replace("string", "large_string")


def _rename(field: Any) -> None:
    field.name = f"{field.name}_2"


def _key(dataset: Dataset) -> Operation:
    return LanceOperation.UpdateConfig(
        field_metadata_updates={2: LanceOperation.UpdateMap(KEY)},
    )


RAW: dict[str, tuple[Callable[[Dataset], Operation], str]] = {
    "delete": (_delete, "hide or undo"),
    "update": (_update, "hide or undo"),
    "data replacement": (_replacement, "hide or undo"),
    "other values": (_new_values, "hide or undo"),
    "computed column": (_merge, "'c'"),
    "overwrite": (_overwrite, "shards"),
    "restore": (lambda dataset: LanceOperation.Restore(1), "shards"),
    "drop of the MemWAL": (_without_index, "MemWAL cannot be dropped"),
    "drop of the key": (_projection(lambda field: None, drops="id"), "key or sharding"),
    "not null": (_projection(_require), "not nullable"),
    "another type": (_projection(_widen), "is 's' of type string, and would become"),
    "another key": (_key, "primary key cannot be changed"),
}


@pytest.mark.parametrize("name", RAW)
def test_rows_that_come_between_plan_and_commit(uri: str, name: str) -> None:
    """Operations that the caller planned: pylance refuses the computed column, too."""
    plan, message = RAW[name]
    if name == "another key":
        lance_spark.open_dataset(uri).alter_columns({"path": "n", "nullable": False})
    opened = lance_spark.open_dataset(uri)
    dataset = opened.initialize_mem_wal(bucket_column="id", num_buckets=1)
    operation = plan(opened if name == "computed column" else dataset)
    (shard,) = dataset.split_by_shard(rows([1], "fresh"))
    with dataset.mem_wal_writer(shard) as writer:
        writer.put(rows([1], "fresh"))
        with pytest.raises((UnsupportedFeatureError, InvalidInputError), match=message):
            Dataset.commit(dataset, operation, dataset.version)
    assert lance_spark.open_dataset(uri).version == dataset.version
    assert text(dataset.fresh())[1] == "fresh"


@pytest.mark.parametrize("name", ["delete", "update", "data replacement", "other values"])
def test_compacted_rows_do_not_refuse_a_change(uri: str, name: str) -> None:
    dataset = lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer() as writer:
        writer.put(rows([8], "fresh"))
    dataset = dataset.compact_mem_wal()
    operation = RAW[name][0](lance_spark.open_dataset(uri))
    Dataset.commit(dataset, operation, dataset.version)


ALLOWED: dict[str, Callable[[Dataset], Operation]] = {
    "append": lambda dataset: LanceOperation.Append(write_fragments(rows([7], "x"), dataset)),
    "rename": _projection(_rename),
    "drop of a column": _projection(lambda field: None, drops="n"),
    "configuration": lambda dataset: LanceOperation.UpdateConfig(
        LanceOperation.UpdateMap({"a": "b"})
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_other_operations_do_not_wait(uri: str, name: str) -> None:
    start(uri)
    dataset = lance_spark.open_dataset(uri)
    Dataset.commit(dataset, ALLOWED[name](dataset), dataset.version)
    column = "s_2" if name == "rename" else "s"
    assert "fresh" in lance_spark.open_dataset(uri).fresh().to_table()[column].to_pylist()


def test_a_column_of_nulls_is_allowed(uri: str) -> None:
    start(uri)
    lance_spark.open_dataset(uri).add_columns(pa.field("c", pa.int64()))
    assert text(lance_spark.open_dataset(uri).fresh())[1] == "fresh"


def test_a_mem_wal_is_not_made_for_a_dropped_column(uri: str) -> None:
    """The sharding of the first commit names a column that the second has dropped."""
    data = pa.table({"a": [1], "b": [2]})
    planned = lance_spark.write_dataset(data, f"{uri}_2").initialize_mem_wal(identity_column="b")
    index = find_index(section_of(planned._table.manifest))
    assert index is not None
    opened = lance_spark.write_dataset(data, f"{uri}_3")
    opened.drop_columns(["b"])
    with pytest.raises(UnsupportedFeatureError, match="key or sharding"):
        Dataset.commit(opened, CreateIndex((index,)), opened.version)


def test_deletes_beside_a_writer(tmp_path: Path) -> None:
    """A row that was acknowledged after a delete is never gone, and no older one comes back."""
    uri = str(tmp_path / "t")
    lance_spark.write_dataset(shard_writers.SCHEMA.empty_table(), uri)
    lance_spark.open_dataset(uri).initialize_mem_wal(unsharded=True)
    latest, done = CONTEXT.Value("q", 0), CONTEXT.Event()
    process = CONTEXT.Process(target=shard_writers.come_and_go, args=(uri, {}, latest, done))
    process.start()
    known_when_deleted = seen = 0
    deleted = refused = 0
    ends = time.monotonic() + 60
    try:
        while (deleted < 2 or not refused) and time.monotonic() < ends:
            dataset = lance_spark.open_dataset(uri).compact_mem_wal()
            try:
                dataset.delete("id = 0")
            except UnsupportedFeatureError:
                refused += 1
            else:
                deleted += 1
                known_when_deleted = latest.value
            known = latest.value
            numbers = lance_spark.open_dataset(uri).fresh().to_table()["n"].to_pylist()
            if numbers:
                assert numbers[0] >= max(known, seen)
                seen = numbers[0]
            else:
                assert known <= known_when_deleted
    finally:
        done.set()
        process.join(60)
    assert process.exitcode == 0
    assert deleted
    assert refused


def test_a_new_column_never_gets_the_id_of_a_dropped_one(tmp_path: Path) -> None:
    """Shards hold values by field id, and no file of the base table has the dropped column."""
    path = str(tmp_path / "t")
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema([pa.field("id", pa.int64(), False, key), pa.field("c", pa.string())])
    lance_spark.write_dataset(schema.empty_table(), path).initialize_mem_wal(unsharded=True)
    with lance_spark.open_dataset(path).mem_wal_writer() as writer:
        writer.put(pa.table({"id": [1], "c": ["old"]}, schema))
    late = lance_spark.open_dataset(path).mem_wal_writer()
    lance_spark.open_dataset(path).drop_columns(["c"])
    lance.dataset(path).update_config({"a": "b"})
    lance_spark.open_dataset(path).add_columns(pa.field("d", pa.string()))
    late.put(pa.table({"id": [2], "c": ["late"]}, schema))
    late.close()
    rows = [{"id": 1, "d": None}, {"id": 2, "d": None}]
    assert sorted(fresh_rows(path), key=lambda row: row["id"]) == rows
    # pylance honours the record, too.
    lance_spark.open_dataset(path).drop_columns(["d"])
    lance.dataset(path).add_columns(pa.schema([pa.field("c", pa.string())]))
    assert lance_spark.open_dataset(path).lance_schema.field("c").id() == 3
    lance_spark.open_dataset(path).compact_mem_wal(flush=True)
    rows = [{"id": 1, "c": None}, {"id": 2, "c": None}]
    assert sorted(lance.dataset(path).to_table().to_pylist(), key=lambda row: row["id"]) == rows


@pytest.mark.parametrize("is_log", [False, True])
def test_a_new_column_with_the_id_of_one_that_pylance_dropped(tmp_path: Path, is_log: bool) -> None:
    """pylance records no greatest id, and no file of the base table has the dropped column."""
    path = str(tmp_path / "t")
    point = pa.struct([pa.field("x", pa.string())])
    schema = pa.schema([SCHEMA.field("id"), pa.field("c", point)])
    lance_spark.write_dataset(schema.empty_table(), path).initialize_mem_wal(unsharded=True)
    writer = lance_spark.open_dataset(path).mem_wal_writer()
    writer.put(pa.table({"id": [1], "c": [{"x": "old"}]}, schema))
    writer.close(flush=not is_log)
    lance.dataset(path).drop_columns(["c"])
    added = pa.schema([pa.field("d", pa.struct([pa.field("y", pa.string())]))])
    with pytest.raises(UnsupportedFeatureError, match="field id 1 of a dropped column"):
        lance_spark.open_dataset(path).add_columns(added)
    lance_spark.open_dataset(path).compact_mem_wal(flush=True).add_columns(added)
    rows = [{"id": 1, "d": None}]
    assert fresh_rows(path) == lance.dataset(path).to_table().to_pylist() == rows


def fresh_rows(path: str) -> list[dict[str, Any]]:
    return lance_spark.open_dataset(path).fresh().to_table().to_pylist()
