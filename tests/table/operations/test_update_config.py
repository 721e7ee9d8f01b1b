"""Configuration and metadata: written by each client and read by the other, and fields of older
writers.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.open import read_latest
from lance_spark.table.operations.metadata import MapUpdate, UpdateConfig
from tests.support.tables.pylance_written import new_table, rows

SECTIONS = ("fields", "schema_metadata", "config", "table_metadata")

#: (change by both, in turn on the same table)
CHANGES = [
    ("update_config", ({"a": "1", "b": "2"},), {}),
    ("update_config", ({"a": None, "c": "3"},), {}),
    ("update_config", ({"d": "4", "b": None},), {"replace": True}),
    ("delete_config_keys", (["d", "never"],), {}),
    ("update_metadata", ({"m": "1", "n": "2"},), {}),
    ("update_metadata", ({"n": "3"},), {"replace": True}),
    ("update_metadata", ({},), {"replace": True}),
    ("update_schema_metadata", ({"s": "1", "t": "ü"},), {}),
    ("update_schema_metadata", ({"s": None},), {}),
    ("update_field_metadata", ({"id": {"k": "v", "l": "w"}, "word": {"x": "y"}},), {}),
    ("update_field_metadata", ({"id": {"k": "u"}},), {"replace": True}),
    ("replace_schema_metadata", ({"z": "9"},), {}),
    ("replace_field_metadata", ("word", {"q": "9"}), {}),
]


def content(path: Path) -> dict[str, object]:
    proto = read_latest(ObjectStore.from_uri(path)).to_proto()
    result: dict[str, object] = {name: dict(getattr(proto, name)) for name in SECTIONS[1:]}
    result["fields"] = {field.name: dict(field.metadata) for field in proto.fields}
    return {**result, "writer": proto.writer_feature_flags}


def operation(path: Path) -> transaction_pb2.Transaction:
    section = read_latest(ObjectStore.from_uri(path)).transaction_section
    assert section is not None
    message = transaction_pb2.Transaction.FromString(section)
    message.ClearField("uuid")
    return message


def sorted_entries(message: transaction_pb2.Transaction) -> list[str]:
    return sorted(str(message).split())


@pytest.mark.filterwarnings("ignore:replace_:DeprecationWarning")
def test_config_updates_equal_those_of_pylance(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    new_table(theirs)
    shutil.copytree(theirs, ours)
    for name, args, options in CHANGES:
        getattr(lance.dataset(str(theirs)), name)(*args, **options)
        made: Dataset = getattr(open_dataset(str(ours)), name)(*args, **options)
        assert content(ours) == content(theirs), (name, args)
        assert sorted_entries(operation(ours)) == sorted_entries(operation(theirs)), (name, args)
        read = lance.dataset(str(ours))
        read.validate()
        assert (read.config(), read.metadata) == (made.config(), made.metadata)
        assert read.schema.metadata == made.schema.metadata
        assert made.schema == open_dataset(str(theirs)).schema


def test_messages_of_older_writers() -> None:
    message = transaction_pb2.Transaction.UpdateConfig(
        upsert_values={"a": "1"}, delete_keys=["b"], schema_metadata={"s": "1"}
    )
    message.field_metadata[1].metadata["k"] = "v"
    parsed = UpdateConfig.from_proto(message, "file")
    assert parsed == UpdateConfig(
        config=MapUpdate({"a": "1", "b": None}),
        schema_metadata=MapUpdate({"s": "1"}, replace=True),
        field_metadata={1: MapUpdate({"k": "v"}, replace=True)},
    )
    newer = transaction_pb2.Transaction()
    parsed.write_to(newer)
    assert not newer.update_config.upsert_values
    assert UpdateConfig.from_proto(newer.update_config, "file") == parsed
    message.config_updates.SetInParent()
    assert UpdateConfig.from_proto(message, "file").config == MapUpdate({})


def test_bytes_in_metadata_are_kept() -> None:
    proto = table_pb2.Manifest()
    proto.schema_metadata["raw"] = b"\xff\x00"
    proto.schema_metadata["text"] = b"old"
    builder = ManifestBuilder(None)
    builder.proto.MergeFrom(proto)
    UpdateConfig(schema_metadata=MapUpdate({"text": "new"})).apply(builder)
    assert dict(builder.proto.schema_metadata) == {"raw": b"\xff\x00", "text": b"new"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update_field_metadata({"nope": {"a": "b"}}), "nope"),
        (lambda d: d.update_config({"a": 1}), "a key must be a string"),
        (lambda d: d.update_metadata({1: "a"}), "a key must be a string"),
        (lambda d: d.update_config({"a": "1"}, transaction_properties={"x": 1}), "not a string"),
        (
            lambda d: d.update_field_metadata(
                {"id": {"lance-schema:unenforced-primary-key": "true"}}
            ),
            "primary key",
        ),
    ],
)
def test_invalid_updates_are_refused(tmp_path: Path, change, message: str) -> None:  # type: ignore[no-untyped-def]
    new_table(tmp_path / "t")
    dataset = open_dataset(str(tmp_path / "t"))
    with pytest.raises(InvalidInputError, match=message):
        change(dataset)
    assert dataset.latest_version == 1


def test_update_of_a_dropped_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    store = ObjectStore.from_uri(path)
    base = read_latest(store)
    lance.dataset(str(path)).drop_columns(["word"])
    update = UpdateConfig(field_metadata={1: MapUpdate({"k": "v"})})
    with pytest.raises(InvalidInputError, match="no field with the id 1"):
        commit(store, Transaction.new(1, update), base)


@pytest.mark.parametrize(
    ("mine", "theirs", "holds"),
    [
        ({"config": {"a": "1"}}, {"config": {"a": None}}, False),
        ({"config": {"a": None}}, {"config": {"a": None}}, True),
        ({"schema_metadata": {"a": "1"}}, {"config": {"a": "1"}}, True),
        ({"field_metadata": {0: {"a": "1"}}}, {"field_metadata": {1: {"a": "1"}}}, True),
    ],
)
def test_concurrent_config_updates(
    tmp_path: Path, mine: dict[str, dict], theirs: dict[str, dict], holds: bool
) -> None:
    path, other_path = tmp_path / "t", tmp_path / "other"
    new_table(path)
    shutil.copytree(path, other_path)
    store = ObjectStore.from_uri(path)
    base = read_latest(store)
    lance.LanceDataset.commit(str(path), by_pylance(theirs), read_version=1)
    if holds:
        commit(store, Transaction.new(1, by_us(mine)), base)
        config = lance.dataset(str(path)).config()
        for part in (mine, theirs):
            assert all(config.get(key) == value for key, value in part.get("config", {}).items())
    else:
        with pytest.raises(CommitConflictError) as raised:
            commit(store, Transaction.new(1, by_us(mine)), base)
        assert not raised.value.retryable
    # The clients in the other order.
    commit(ObjectStore.from_uri(other_path), Transaction.new(1, by_us(theirs)), base)
    if holds:
        lance.LanceDataset.commit(str(other_path), by_pylance(mine), read_version=1)
        return
    with pytest.raises(OSError, match="Incompatible"):
        lance.LanceDataset.commit(str(other_path), by_pylance(mine), read_version=1)


def by_us(parts: dict[str, dict]) -> UpdateConfig:
    made: dict[str, object] = {}
    for name, values in parts.items():
        if name == "field_metadata":
            made[name] = {number: MapUpdate(update) for number, update in values.items()}
        else:
            made[name] = MapUpdate(values)
    return UpdateConfig(**made)  # type: ignore[arg-type]


def by_pylance(parts: dict[str, dict]) -> object:
    operations = lance.LanceOperation
    made: dict[str, object] = {}
    for name, values in parts.items():
        if name == "field_metadata":
            maps = {number: operations.UpdateMap(update) for number, update in values.items()}
            made["field_metadata_updates"] = maps
        else:
            made[f"{name}_updates"] = operations.UpdateMap(values)
    return operations.UpdateConfig(**made)


@pytest.mark.parametrize(
    "change",
    [
        lambda d, **why: d.delete([("id", "==", 1)], **why),
        lambda d, **why: d.update({"word": "x"}, [("id", "==", 1)], **why),
        lambda d, **why: d.drop_columns(["word"], **why),
        lambda d, **why: d.alter_columns({"path": "word", "name": "text"}, **why),
        lambda d, **why: d.add_columns({"x": 1}, **why),
        lambda d, **why: d.restore(**why),
        lambda d, **why: d.update_metadata({"a": "1"}, **why),
        lambda d, **why: write_dataset(rows(6), d.uri, mode="append", **why),
        lambda d, **why: write_dataset(rows(6), d.uri, mode="overwrite", **why),
    ],
)
def test_every_change_takes_a_message(tmp_path: Path, change) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "t"
    new_table(path)
    change(open_dataset(str(path)), commit_message="why", transaction_properties={"who": "us"})
    result = lance.dataset(str(path)).read_transaction(2).transaction_properties
    assert result == {"who": "us", "__lance_commit_message": "why"}


def test_properties_and_messages(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    properties = {"who": "us", "__lance_commit_message": "not this"}
    made = open_dataset(str(path)).update_config(
        {"a": "1"}, commit_message="why", transaction_properties=properties
    )
    kept = {"who": "us", "__lance_commit_message": "why"}
    assert lance.dataset(str(path)).read_transaction(2).transaction_properties == kept
    written = (path / "_transactions").glob("1-*.txn")
    assert [transaction_pb2.Transaction.FromString(p.read_bytes()) for p in written] == [
        transaction_pb2.Transaction.FromString(
            read_latest(ObjectStore.from_uri(path)).transaction_section or b""
        )
    ]
    transaction = made.read_transaction(2)
    assert transaction is not None
    assert transaction.properties == kept


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.drop_columns([]),
        lambda table: table.update_config({}),
        lambda table: table.add_bases([]),
    ],
    ids=["drop_columns", "update_config", "add_bases"],
)
def test_an_empty_update_creates_a_version_as_in_pylance(
    tmp_path: Path, change: Callable[[Any], Any]
) -> None:
    pairs = []
    for name, opened in (("ours", open_dataset), ("theirs", lance.dataset)):
        uri = str(tmp_path / name)
        lance.write_dataset(pa.table({"a": [1, 2], "b": [3, 4]}), uri)
        change(opened(uri))
        after = lance.dataset(uri)
        pairs.append((after.version, after.to_table(), after.config()))
    assert pairs[0] == pairs[1]
    assert pairs[0][0] == 2
