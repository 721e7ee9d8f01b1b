"""Committed transactions of a type that this release does not know."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    UnsupportedFeatureError,
)
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.manifest.codec import encode
from lance_spark.table.manifest.versions import latest
from lance_spark.table.open import read_latest
from lance_spark.table.operations.base import Conflict
from lance_spark.table.operations.indexes import UpdateMemWalState
from lance_spark.table.operations.registry import OPERATIONS, UnknownOperation, operation_of
from tests.support.tables.pylance_written import new_table, rows

#: Field 117, wire type 2: an operation that nobody knows yet, such as a composite one.
COMPOSITE = bytes([0xAA, 0x07, 2, 0x0A, 0])
#: Field 116, which pylance 14 does not know.
FRI_TRANSITIONS = bytes([0xA2, 0x07, 0])


def composite(data: bytes = COMPOSITE) -> UnknownOperation:
    made = operation_of(transaction_pb2.Transaction.FromString(data), "file")
    assert isinstance(made, UnknownOperation)
    return made


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (FRI_TRANSITIONS, "append_fri_transitions"),
        (COMPOSITE, "unknown operation 117"),
        (b"", ""),
    ],
)
def test_later_operations_have_names(data: bytes, name: str) -> None:
    operation = composite(data)
    assert operation.name == name
    again = transaction_pb2.Transaction()
    operation.write_to(again)
    assert again.SerializeToString() == data


@pytest.mark.parametrize("operation_name", OPERATIONS)
def test_operations_are_replanned_after_an_unknown_one(operation_name: str) -> None:
    message = transaction_pb2.Transaction()
    getattr(message, operation_name).SetInParent()
    known = operation_of(message, "file")
    assert type(known) is OPERATIONS[operation_name]
    if operation_name != "clone":
        assert known.conflict(composite()) is Conflict.RETRYABLE


@pytest.mark.parametrize("operation_name", OPERATIONS)
def test_messages_round_trip(operation_name: str) -> None:
    message = transaction_pb2.Transaction()
    getattr(message, operation_name).SetInParent()
    again = transaction_pb2.Transaction()
    operation_of(message, "file").write_to(again)
    assert again == message


def test_commits_after_an_unknown_operation(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    store = ObjectStore.from_uri(path)
    base = read_latest(store)
    lance.write_dataset(rows(6), str(path), mode="append")
    made = read_latest(store)
    section = transaction_pb2.Transaction(read_version=1, uuid="x").SerializeToString() + COMPOSITE
    data = encode(made.to_proto(), made.index_section, section)
    (path / latest(store).path).write_bytes(data)
    operation = OPERATIONS["update_config"].from_proto(
        transaction_pb2.Transaction.UpdateConfig(), "test"
    )
    with pytest.raises(CommitConflictError, match="unknown operation 117") as raised:
        commit(store, Transaction.new(1, operation), base)
    assert raised.value.retryable
    assert commit(store, Transaction.new(2, operation), read_latest(store)).version == 3
    with pytest.raises(UnsupportedFeatureError, match="unknown"):
        commit(store, Transaction.new(3, composite()), read_latest(store))


def log_table(path: Path) -> None:
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=key)])
    dataset = lance.write_dataset(pa.table({"id": range(4)}, schema=schema), str(path))
    dataset.initialize_mem_wal(unsharded=True)


def compacted(*shards: tuple[int, int]) -> UpdateMemWalState:
    return UpdateMemWalState(
        tuple(
            table_pb2.CompactedSsTable(
                shard_id=table_pb2.UUID(uuid=bytes([shard]) * 16), generation=generation
            )
            for shard, generation in shards
        )
    )


def test_mem_wal_state_records_newer_generations(tmp_path: Path) -> None:
    path = tmp_path / "t"
    log_table(path)
    store = ObjectStore.from_uri(path)
    before = lance.dataset(str(path)).mem_wal_index_details()
    for step in (compacted((1, 5), (2, 1)), compacted((2, 4))):
        base = read_latest(store)
        commit(store, Transaction.new(base.version, step), base)
    base = read_latest(store)
    for stale in ((1, 5), (1, 3)):
        with pytest.raises(CommitConflictError, match="is stale") as raised:
            commit(store, Transaction.new(base.version, compacted((2, 5), stale)), base)
        assert not raised.value.retryable
    with pytest.raises(InvalidInputError, match="two generations of one shard"):
        commit(store, Transaction.new(base.version, compacted((1, 6), (1, 7))), base)
    section = table_pb2.IndexSection.FromString(read_latest(store).index_section or b"")
    (index,) = section.indices
    details = table_pb2.MemWalIndexDetails.FromString(index.index_details.value)
    result = {item.shard_id.uuid[0]: item.generation for item in details.compacted_sstables}
    assert result == {1: 5, 2: 4}
    dataset = lance.dataset(str(path))
    dataset.validate()
    assert dataset.mem_wal_index_details() == before
    with pytest.raises(OSError, match="Incompatible"):
        lance.write_dataset(dataset.to_table(), lance.dataset(str(path), version=2), mode="append")


def test_mem_wal_state_needs_the_index(tmp_path: Path) -> None:
    path = tmp_path / "t"
    new_table(path)
    store = ObjectStore.from_uri(path)
    with pytest.raises(InvalidInputError, match="__lance_mem_wal"):
        commit(store, Transaction.new(1, compacted((1, 1))), read_latest(store))


def test_conflicts_of_mem_wal_states() -> None:
    mine = compacted((1, 5))
    assert mine.conflict(compacted((2, 5))) is Conflict.COMPATIBLE
    assert mine.conflict(compacted((1, 6))) is Conflict.INCOMPATIBLE
    assert mine.conflict(compacted((1, 4))) is Conflict.COMPATIBLE
    update = transaction_pb2.Transaction()
    update.update.SetInParent()
    assert mine.conflict(operation_of(update, "file")) is Conflict.INCOMPATIBLE
    update.update.compacted_sstables.extend(compacted((1, 7)).compacted_sstables)
    later = operation_of(update, "file")
    assert mine.conflict(later) is Conflict.INCOMPATIBLE
    assert later.conflict(mine) is Conflict.COMPATIBLE
    assert later.conflict(later) is Conflict.INCOMPATIBLE
    assert later.conflict(compacted((1, 9))) is Conflict.INCOMPATIBLE


def test_invalid_messages_are_refused() -> None:
    """Numbers and sets that a manifest cannot hold are reported when they are read."""
    update = transaction_pb2.Transaction()
    update.update.updated_fragment_offset_bitmaps[1] = b""
    rewrite = transaction_pb2.Transaction()
    index = rewrite.rewrite.rewritten_indices.add(new_index_version=2**31)
    index.old_id.uuid = index.new_id.uuid = bytes(16)
    for message in (update, rewrite):
        with pytest.raises(CorruptTableError, match="file: "):
            operation_of(message, "file")
