"""Writers of shards: each client continues the shards of the other, and ends its writers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from lance_spark.mem_wal import claims
from lance_spark.mem_wal import claims as publishing
from lance_spark.mem_wal.entries import Entry, put_rows, read_tail, write_entry
from lance_spark.mem_wal.table import shard_manifest
from lance_spark.mem_wal.table.shard_manifest import list_shards, read_latest_manifest
from lance_spark.storage.store import ObjectStore

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=KEY),
        pa.field("v", pa.float32()),
        pa.field("s", pa.string()),
    ]
)
SHARD = str(uuid.UUID(int=2**100 + 5))
Rows = dict[int, str]


def rows(ids: list[int], s: str) -> pa.Table:
    return pa.table({"id": ids, "v": [float(i) for i in ids], "s": [s] * len(ids)}, schema=SCHEMA)


def keys(ids: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture(params=["2.1", "2.2"])
def uri(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A table with the rows 1 to 3, and a MemWAL without sharding."""
    path = str(tmp_path / "t")
    lance.write_dataset(rows([1, 2, 3], "base"), path, data_storage_version=request.param)
    lance_spark.open_dataset(path).initialize_mem_wal(unsharded=True)
    return path


def theirs(uri: str, shard: str = SHARD) -> Rows:
    """Return the rows as a writer of pylance sees them, which claims the shard."""
    with lance.dataset(uri).mem_wal_writer(shard) as writer:
        table = writer.lsm_scanner().to_table()
    return dict(zip(table["id"].to_pylist(), table["s"].to_pylist(), strict=True))


def ours(uri: str) -> Rows:
    """Return the rows of a fresh read, which claims nothing."""
    table = lance_spark.open_dataset(uri).fresh().to_table()
    return dict(zip(table["id"].to_pylist(), table["s"].to_pylist(), strict=True))


def writer_of(uri: str, client: str, **options: Any) -> Any:
    opened: Any = lance.dataset(uri) if client == "pylance" else lance_spark.open_dataset(uri)
    return opened.mem_wal_writer(SHARD, **options)


def test_pylance_reads_our_log(uri: str) -> None:
    writer = lance_spark.open_dataset(uri).mem_wal_writer(SHARD)
    writer.put(rows([1, 4], "a"))
    writer.delete(keys([2]))
    writer.put(rows([4, 5, 5], "b"))
    writer.close(flush=False)
    expected = {1: "a", 3: "base", 4: "b", 5: "b"}
    assert ours(uri) == expected
    assert theirs(uri) == expected
    assert ours(uri) == expected


def test_pylance_reads_our_sstables(uri: str) -> None:
    with lance_spark.open_dataset(uri).mem_wal_writer(SHARD) as writer:
        writer.put(rows([1, 4, 4], "a"))
        writer.flush()
        writer.flush()
        writer.put(rows([4], "b"))
        writer.delete(keys([3]))
    assert [s.num_sstables for s in lance_spark.open_dataset(uri).mem_wal_shards()] == [2]
    expected = {1: "a", 2: "base", 4: "b"}
    assert ours(uri) == expected
    assert theirs(uri) == expected


@pytest.mark.parametrize("close", [True, False])
def test_each_continues_the_shard_of_the_other(uri: str, close: bool) -> None:
    expected: Rows = {1: "base", 2: "base", 3: "base"}
    for turn in range(6):
        client = "pylance" if turn % 2 else "own"
        writer = writer_of(uri, client)
        writer.put(rows([1, 10 + turn], f"{client} {turn}"))
        writer.delete(keys([9 + turn]))
        expected |= {1: f"{client} {turn}", 10 + turn: f"{client} {turn}"}
        expected.pop(9 + turn, None)
        if client == "pylance":
            # A writer of pylance that is not closed is fenced by the next one.
            if close:
                writer.close()
        else:
            writer.close(flush=close)
        assert ours(uri) == expected
    assert theirs(uri) == expected


@pytest.mark.parametrize("first", ["own", "pylance"])
@pytest.mark.parametrize("second", ["own", "pylance"])
def test_a_claim_ends_the_writer_before(uri: str, first: str, second: str) -> None:
    old = writer_of(uri, first)
    old.put(rows([10], "old"))
    new = writer_of(uri, second)
    with pytest.raises((CommitConflictError, OSError), match="fenced"):
        old.put(rows([11], "lost"))
    # It stays so.
    again = []
    for _ in range(2):
        with pytest.raises(
            (CommitConflictError, OSError), match=r"fenced|poisoned|closed"
        ) as caught:
            old.put(rows([12], "lost"))
        again.append(caught.value)
    # The traceback of one error that is raised again would hold the rows of each call.
    assert again[0] is not again[1]
    new.put(rows([13], "new"))
    new.close()
    expected = {1: "base", 2: "base", 3: "base", 10: "old", 13: "new"}
    assert ours(uri) == expected
    assert theirs(uri) == expected


def test_a_fenced_writer_does_not_flush(uri: str) -> None:
    old = writer_of(uri, "own")
    old.put(rows([10], "old"))
    writer_of(uri, "own").close()
    with pytest.raises(CommitConflictError, match="fenced"):
        old.close()
    assert ours(uri) == {1: "base", 2: "base", 3: "base", 10: "old"}
    shard = shard_manifest.shard_path(uuid.UUID(SHARD))
    listed = read_latest_manifest(ObjectStore.from_uri(uri), uuid.UUID(SHARD))
    assert listed is not None
    folders = set(ObjectStore.from_uri(uri).list_folders(shard)) - {"wal", "manifest"}
    assert folders == {table.folder for table in listed.sstables}


def test_nothing_is_lost_when_the_claim_comes_between_put_and_sentinel(uri: str) -> None:
    store = ObjectStore.from_uri(uri)
    old = writer_of(uri, "own")
    old.put(rows([10], "a"))
    # The next claim finds an entry where it wants to put its sentinel.
    schema = lance_spark.open_dataset(uri)._table.schema
    late = put_rows(schema, rows([11], "late"))
    assert write_entry(store, uuid.UUID(SHARD), Entry(2, 1, 1, rows=late))
    with writer_of(uri, "own"):
        pass
    assert ours(uri) == {1: "base", 2: "base", 3: "base", 10: "a", 11: "late"}


def test_generations_that_were_not_flushed_are_flushed_at_the_next_claim(uri: str) -> None:
    """pylance writes entries of the next generation before the SSTable of the last is complete."""
    store, shard = ObjectStore.from_uri(uri), uuid.UUID(SHARD)
    schema = lance_spark.open_dataset(uri)._table.schema
    writer_of(uri, "own").close()
    for position, generation, text in ((1, 1, "a"), (2, 1, "b"), (3, 2, "c")):
        logged = put_rows(schema, rows([1, 10 + position], text))
        assert write_entry(store, shard, Entry(position, 1, generation, rows=logged))
    expected = {1: "c", 2: "base", 3: "base", 11: "a", 12: "b", 13: "c"}
    assert ours(uri) == expected
    writer = writer_of(uri, "own")
    (state,) = lance_spark.open_dataset(uri).mem_wal_shards()
    assert (state.current_generation, state.num_sstables, state.log_rows) == (2, 1, 2)
    writer.put(rows([14], "d"))
    writer.close(flush=False)
    assert theirs(uri) == ours(uri) == expected | {14: "d"}


@pytest.mark.parametrize("second", [3, 5])
def test_first_generation_may_be_greater(uri: str, second: int) -> None:
    store, shard = ObjectStore.from_uri(uri), uuid.UUID(SHARD)
    schema = lance_spark.open_dataset(uri)._table.schema
    writer_of(uri, "own").close()
    for position, generation in ((1, 3), (2, second)):
        logged = put_rows(schema, rows([10 + position], "a"))
        write_entry(store, shard, Entry(position, 1, generation, rows=logged))
    if second == 5:
        with pytest.raises(lance_spark.LanceError, match="generation 5"):
            writer_of(uri, "own")
        return
    with writer_of(uri, "own") as writer:
        writer.put(rows([14], "d"))
    assert theirs(uri) == ours(uri)
    assert set(ours(uri)) == {1, 2, 3, 11, 12, 14}


def test_a_full_memtable_becomes_an_sstable(uri: str) -> None:
    with writer_of(uri, "own", max_memtable_rows=100) as writer:
        writer.put(rows(list(range(250)), "a"))
        assert writer.memtable_stats()["row_count"] == 50
        assert writer.stats()["memtable_flush_count"] == 2
    assert theirs(uri) == ours(uri)
    assert len(ours(uri)) == 250


def test_pylance_reads_a_generation_that_was_nearly_full(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(uri, "own", max_memtable_rows=100)
    writer.put(rows(list(range(10, 80)), "a"))
    # The writer is killed before the flush that follows the entry.
    monkeypatch.setattr(type(writer), "_flush_if_full", lambda self: None)
    writer.put(rows(list(range(80, 150)), "b"))
    with lance.dataset(uri).mem_wal_writer(SHARD, max_memtable_rows=100) as next_writer:
        assert next_writer.lsm_scanner().count_rows() == 143
    assert len(ours(uri)) == 143


def test_pylance_reads_entries_of_many_batches(uri: str) -> None:
    writer = writer_of(uri, "own", max_memtable_batches=100)
    for first in (10, 90):
        added = rows(list(range(first, first + 80)), "a")
        writer.put(pa.Table.from_batches(added.to_batches(max_chunksize=1)))
    writer.close(flush=False)
    with lance.dataset(uri).mem_wal_writer(SHARD, max_memtable_batches=100) as next_writer:
        assert next_writer.lsm_scanner().count_rows() == 163
    assert theirs(uri) == ours(uri)


def test_batches_of_pylance_count(uri: str) -> None:
    """pylance stores many puts that are not durable as one entry."""
    first = writer_of(uri, "pylance", durable_write=False, max_wal_flush_interval_ms=200)
    for number in range(90):
        first.put(rows([10 + number], "a"))
    deadline = time.monotonic() + 20
    while len(ours(uri)) < 93 and time.monotonic() < deadline:
        time.sleep(0.02)
    writer = writer_of(uri, "own", max_memtable_batches=100)
    for number in range(20):
        writer.put(rows([200 + number], "b"))
    writer.close(flush=False)
    with lance.dataset(uri).mem_wal_writer(SHARD, max_memtable_batches=100) as next_writer:
        assert next_writer.lsm_scanner().count_rows() == 113


@pytest.mark.parametrize("interval", [10_000, 2**64 - 1])
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_puts_that_are_not_durable_share_entries(interval: int, uri: str) -> None:
    writer = writer_of(uri, "own", durable_write=False, max_wal_flush_interval_ms=interval)
    for number in range(50):
        writer.put(rows([10 + number], "a"))
    assert writer.stats()["wal_flush_count"] == 0
    writer.close(flush=False)
    assert writer.stats()["wal_flush_count"] == 1
    assert len(ours(uri)) == 53
    assert theirs(uri) == ours(uri)


def test_waiting_rows_are_stored_after_the_interval(uri: str) -> None:
    writer = writer_of(uri, "own", durable_write=False, max_wal_flush_interval_ms=20)
    writer.put(rows([10], "a"))
    deadline = time.monotonic() + 20
    while 10 not in ours(uri) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert ours(uri)[10] == "a"
    writer.close()


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (pa.table({"id": [1]}), SchemaMismatchError, "v"),
        (pa.table({"id": [None], "v": [1.0], "s": ["a"]}), SchemaMismatchError, "id"),
        (rows([1], "a").set_column(0, SCHEMA[0].with_nullable(True), [pa.array([None], pa.int64())]), InvalidInputError, "null"),
        ("text", InvalidInputError, "Arrow data"),
        (rows([1], "a").append_column("x", [[1]]), SchemaMismatchError, "x"),
    ],
)  # fmt: skip
def test_other_rows_are_refused_and_the_writer_goes_on(
    uri: str, data: Any, error: type[Exception], message: str
) -> None:
    with writer_of(uri, "own") as writer:
        with pytest.raises(error, match=message):
            writer.put(data)
        writer.put(rows([7], "a"))
    assert set(ours(uri)) == {1, 2, 3, 7}


def test_a_closed_writer_refuses_calls(uri: str) -> None:
    writer = writer_of(uri, "own")
    writer.close()
    writer.close()
    with pytest.raises(InvalidInputError, match="closed"):
        writer.put(rows([1], "a"))


@pytest.mark.parametrize("change", ["overwrite", "drop"])
def test_a_writer_notices_that_pylance_has_taken_the_mem_wal_away(uri: str, change: str) -> None:
    writer = writer_of(uri, "own")
    writer.put(rows([10], "a"))
    if change == "drop":
        lance.dataset(uri).drop_index("__lance_mem_wal")
    else:
        lance.write_dataset(rows([1], "other"), uri, mode="overwrite")
    writer.put(rows([11], "a"))
    with pytest.raises(InvalidInputError, match="the MemWAL was removed"):
        writer.close()
    assert set(ours(uri)) == ({1} if change == "overwrite" else {1, 2, 3})


def test_tables_without_key_are_appended_to(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"a": [1, 1]}), uri)
    dataset = lance_spark.open_dataset(uri).initialize_mem_wal()
    with dataset.mem_wal_writer(SHARD) as writer:
        writer.put(pa.table({"a": [1, 2]}))
        with pytest.raises(UnsupportedFeatureError, match="primary key"):
            writer.delete(pa.table({"a": [1]}))
    with lance.dataset(uri).mem_wal_writer(SHARD) as writer:
        writer.put(pa.table({"a": [3]}))
    assert [s.sstable_rows for s in dataset.mem_wal_shards()] == [3]


@pytest.mark.parametrize("second", ["own", "pylance"])
def test_columns_change_between_writers(uri: str, second: str) -> None:
    writer = writer_of(uri, "own")
    writer.put(rows([10], "a"))
    dataset = lance_spark.open_dataset(uri)
    dataset = dataset.alter_columns({"path": "s", "name": "text"})
    dataset = dataset.drop_columns(["v"]).add_columns([pa.field("new", pa.int32())])
    with writer_of(uri, second) as following:
        following.put(
            pa.table(
                {"id": [11], "text": ["b"], "new": pa.array([5], pa.int32())},
                schema=dataset.schema,
            )
        )
    table = lance_spark.open_dataset(uri).fresh().to_table().sort_by("id").slice(3)
    assert table.to_pylist() == [
        {"id": 10, "text": "a", "new": None},
        {"id": 11, "text": "b", "new": 5},
    ]


def test_shards_are_listed(uri: str) -> None:
    assert list_shards(ObjectStore.from_uri(uri)) == []
    writer_of(uri, "own").close()
    assert list_shards(ObjectStore.from_uri(uri)) == [uuid.UUID(SHARD)]


@pytest.mark.parametrize("client", ["own", "pylance"])
def test_a_slow_claim_does_not_end_a_newer_one(
    uri: str, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claimant finds the newer claim. pylance writes its sentinel before that."""
    store, shard = ObjectStore.from_uri(uri), uuid.UUID(SHARD)
    writer_of(uri, "own").close()
    newer: list[Any] = []

    def read_late(*arguments: Any) -> Iterator[Entry]:
        monkeypatch.undo()
        newer.append(writer_of(uri, "own"))
        return read_tail(*arguments)

    monkeypatch.setattr(claims, "read_tail", read_late)
    with pytest.raises(CommitConflictError, match="fenced"):
        claims.claim(store, shard)
    (writer,) = newer
    if client == "pylance":
        assert write_entry(store, shard, Entry(2, 2, is_sentinel=True))
    writer.put(rows([10], "a"))
    writer.close()
    assert ours(uri) == theirs(uri) == {1: "base", 2: "base", 3: "base", 10: "a"}


def test_an_sstable_that_cannot_be_published_is_deleted(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(uri, "own")
    writer.put(rows([10], "a"))
    monkeypatch.setattr(publishing, "publish", lambda *arguments: None)
    with pytest.raises(CommitConflictError, match="10 times"):
        writer.close()
    assert set(ObjectStore.from_uri(uri).list_folders(f"_mem_wal/{SHARD}")) == {"manifest", "wal"}
