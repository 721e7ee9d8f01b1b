"""Batches of streams in shards: pylance reads them, and each is written once."""

from __future__ import annotations

import random
import shutil
import uuid
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.mem_wal import stream_batches, writer
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.mem_wal.open import flush_logs
from lance_spark.mem_wal.snapshot import read_state
from lance_spark.mem_wal.stream_batches import StreamBatch, StreamMode, shaped_rows, write_batch
from lance_spark.mem_wal.table.shard_manifest import list_shards, read_latest_manifest
from lance_spark.table.open import OpenTable, open_table
from tests.interop.mem_wal.test_compaction import base, by_key, fresh, put, some_rows

MODES = [StreamMode.SSTABLE, StreamMode.LOG]


def new_table(root: Path, buckets: int = 3) -> None:
    dataset = lance.write_dataset(some_rows(list(range(20)), "base"), root)
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=buckets)


def write(
    root: Path,
    number: int,
    ids: list[int],
    deleted: list[int] = (),  # type: ignore[assignment]
    *,
    mode: StreamMode = StreamMode.SSTABLE,
    query: str = "q",
    text: str = "s",
) -> list[uuid.UUID]:
    table = open_table(str(root))
    rows = some_rows([*ids, *deleted], f"{text}{number}.")
    flags = pa.chunked_array([[False] * len(ids) + [True] * len(deleted)])
    shaped = shaped_rows(table, rows, flags, None)
    return write_batch(table, shaped, StreamBatch(query, number, mode=mode))


def read(root: Path) -> dict[int, str]:
    """Return names by key as pylance reads them, after the logs are flushed."""
    flush_logs(open_table(str(root)))
    return fresh(root)


@pytest.fixture(autouse=True)
def other_process() -> None:
    """Forget the writers of the tests before."""
    stream_batches._WRITERS.clear()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_each_batch_is_written_once(tmp_path: Path, mode: StreamMode, restarts: bool) -> None:
    root = tmp_path / "t"
    new_table(root)
    randomness = random.Random(3)
    expected = {key: f"base{key}" for key in range(20)}
    for number in range(5):
        ids = randomness.sample(range(30), 6)
        deleted = randomness.sample([key for key in range(30) if key not in ids], 3)
        assert write(root, number, ids, deleted, mode=mode)
        if restarts:
            stream_batches._WRITERS.clear()
        assert write(root, number, ids, deleted, mode=mode) == []
        expected.update({key: f"s{number}.{key}" for key in ids})
        for key in deleted:
            expected.pop(key, None)
    store = open_table(str(root)).store
    epochs = [read_latest_manifest(store, shard).writer_epoch for shard in list_shards(store)]  # type: ignore[union-attr]
    if not restarts or mode is StreamMode.SSTABLE:
        assert epochs == [1, 1, 1]
    assert read(root) == expected
    compact_mem_wal(open_table(str(root)))
    assert base(root) == expected
    # The SSTables are gone, but not the progress.
    assert write(root, 4, list(range(20)), mode=mode) == []
    assert write(root, 5, [1], mode=mode) != []


def test_an_sstable_for_each_touched_shard(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    shards = write(root, 0, [1])
    assert len(shards) == 1
    shards = write(root, 1, list(range(10)))
    assert len(shards) == 3
    state = read_state(open_table(str(root)))
    assert sorted(len(shard.sstables) for shard in state.shards) == [1, 1, 2]
    assert not any(shard.entries for shard in state.shards)


def test_a_log_entry_for_each_touched_shard(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    for number in range(4):
        write(root, number, list(range(10)), mode=StreamMode.LOG)
    state = read_state(open_table(str(root)))
    assert [len(shard.entries) for shard in state.shards] == [4, 4, 4]
    assert not any(shard.sstables for shard in state.shards)
    # pylance replays the entries.
    shard = str(state.shards[0].shard)
    with lance.dataset(root).mem_wal_writer(shard) as writer:
        rows = writer.lsm_scanner().to_table()
    assert set(by_key(rows).values()) >= {"s3.0"} or set(by_key(rows).values()) >= {"s3.1"}
    # A repeated batch finds itself in the SSTable that pylance has made of the log.
    stream_batches._WRITERS.clear()
    assert write(root, 4, list(range(10)), mode=StreamMode.LOG)
    assert read(root)[9] == "s4.9"


def test_the_log_is_flushed_by_size(tmp_path: Path) -> None:
    root = tmp_path / "t"
    dataset = lance.write_dataset(some_rows([1], "base"), root)
    dataset.initialize_mem_wal(unsharded=True, max_memtable_rows=10)
    for number in range(7):
        write(root, number, list(range(4)), mode=StreamMode.LOG)
        assert write(root, number, list(range(4)), mode=StreamMode.LOG) == []
    (state,) = read_state(open_table(str(root))).shards
    assert (len(state.sstables), len(state.entries)) == (3, 1)
    stream_batches._WRITERS.clear()
    assert write(root, 6, list(range(4)), mode=StreamMode.LOG) == []
    assert read(root) == {key: f"s6.{key}" for key in range(4)}


@pytest.mark.parametrize("cleared", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_batch_before_the_last_one_is_refused(
    tmp_path: Path, mode: StreamMode, cleared: bool
) -> None:
    """A checkpoint that was set back makes new batches of known numbers, whose rows are not lost."""
    root = tmp_path / "t"
    new_table(root, buckets=1)
    for number in range(3):
        write(root, number, [number], mode=mode)
        if cleared:
            stream_batches._WRITERS.clear()
    for number in range(2):
        with pytest.raises(
            InvalidInputError, match=f"batch {number} .* has its batch 2: the check"
        ):
            write(root, number, [7], mode=mode)
    assert write(root, 2, [2], mode=mode) == []
    assert write(root, 3, [3], mode=mode)
    assert [read(root)[key] for key in (2, 3, 7)] == ["s2.2", "s3.3", "base7"]


@pytest.mark.parametrize("mode", MODES)
def test_a_crash_between_shards(
    tmp_path: Path, mode: StreamMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "t"
    new_table(root)
    write(root, 0, [1], mode=mode)
    real = stream_batches._ShardOfStream.write
    done: list[Any] = []

    def crashing(part: Any) -> bool:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(part)
        return real(part)

    monkeypatch.setattr(stream_batches._ShardOfStream, "write", crashing)
    with pytest.raises(KeyboardInterrupt):
        write(root, 1, list(range(12)), [15], mode=mode)
    monkeypatch.undo()
    stream_batches._WRITERS.clear()
    # Meanwhile another client changes a row that is in a finished shard.
    key = next(key for key in (3, 6, 4) if _is_in(done, key))
    put(
        root, str(done[0].part.shard) if _is_in(done[:1], key) else str(done[1].part.shard), [[key]]
    )
    written = write(root, 1, list(range(12)), [15], mode=mode)
    assert len(written) == 1
    names = read(root)
    expected = {number: f"s1.{number}" for number in range(12)}
    expected.update({number: f"base{number}" for number in range(12, 20) if number != 15})
    expected[key] = f"new0.{key}"
    assert names == expected


def _is_in(parts: list[Any], key: int) -> bool:
    return any(key in part.part.rows["id"].to_pylist() for part in parts)


@pytest.mark.parametrize("mode", MODES)
def test_another_writer_in_between(tmp_path: Path, mode: StreamMode) -> None:
    """The stream fences a writer of pylance, whose acknowledged rows stay, and the other way."""
    root = tmp_path / "t"
    new_table(root, buckets=1)
    write(root, 0, [1], mode=mode)
    shard = str(list_shards(open_table(str(root)).store)[0])
    other = lance.dataset(root).mem_wal_writer(shard, max_wal_flush_interval_ms=5)
    other.put(some_rows([1, 2, 3], "other"))
    assert write(root, 1, [2], mode=mode)
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        other.put(some_rows([9], "late"))
    del other
    assert write(root, 2, [4], mode=mode)
    names = read(root)
    assert [names[key] for key in (1, 2, 3, 4, 9)] == ["other1", "s1.2", "other3", "s2.4", "base9"]
    assert write(root, 2, [4], mode=mode) == []


@pytest.mark.parametrize("mode", MODES)
def test_two_streams_in_turns(tmp_path: Path, mode: StreamMode) -> None:
    root = tmp_path / "t"
    new_table(root, buckets=2)
    for number in range(3):
        assert write(root, number, [1, 2, 3], mode=mode, query="a", text="a")
        assert write(root, number, [3, 4], mode=mode, query="b", text="b")
        assert write(root, number, [1, 2, 3], mode=mode, query="a") == []
        assert write(root, number, [3, 4], mode=mode, query="b") == []
    names = read(root)
    assert [names[key] for key in (1, 2, 3, 4)] == ["a2.1", "a2.2", "b2.3", "b2.4"]


@pytest.mark.parametrize("change", ["table", "mem_wal"])
@pytest.mark.parametrize("mode", MODES)
def test_shards_that_were_made_again(tmp_path: Path, mode: StreamMode, change: str) -> None:
    """They have the ids of the shards before, which this process has claimed."""
    root = tmp_path / "t"
    new_table(root, buckets=1)
    for query in ("q", "other"):
        write(root, 0, [1], mode=mode, query=query)
        write(root, 1, [2], mode=mode, query=query)
    if change == "table":
        shutil.rmtree(root)
        new_table(root, buckets=1)
    else:
        lance_spark.open_dataset(str(root)).disable_mem_wal()
        lance.dataset(root).initialize_mem_wal(bucket_column="id", num_buckets=1)
    for number, query in ((2, "other"), (2, "q"), (3, "other"), (3, "q")):
        key = 10 * number + len(query)
        assert write(root, number, [key], mode=mode, query=query, text=query)
    names = read(root)
    assert [names[key] for key in (21, 25, 31, 35)] == ["q2.21", "other2.25", "q3.31", "other3.35"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_stream_that_changes_its_mode(tmp_path: Path, restarts: bool) -> None:
    root = tmp_path / "t"
    dataset = lance.write_dataset(some_rows([1], "base"), root)
    dataset.initialize_mem_wal(unsharded=True, max_memtable_rows=10)
    for number in range(7):
        write(root, number, list(range(4)), mode=StreamMode.LOG)
    (state,) = read_state(open_table(str(root))).shards
    assert (len(state.sstables), len(state.entries)) == (3, 1)
    if restarts:
        stream_batches._WRITERS.clear()
    assert write(root, 7, [3], mode=StreamMode.SSTABLE)
    assert fresh(root) == {0: "s6.0", 1: "s6.1", 2: "s6.2", 3: "s7.3"}
    assert write(root, 8, [2], mode=StreamMode.LOG)
    assert read(root) == {0: "s6.0", 1: "s6.1", 2: "s8.2", 3: "s7.3"}


def test_a_checkpoint_that_was_set_back_with_another_mode(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root, buckets=1)
    for number in range(3):
        write(root, number, [7], mode=StreamMode.LOG)
    stream_batches._WRITERS.clear()
    with pytest.raises(InvalidInputError, match=r"batch 1 .* has its batch 2: the check"):
        write(root, 1, [7])
    assert write(root, 2, [7]) == []
    assert read(root)[7] == "s2.7"


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_driver_that_slept_before_its_claim(
    tmp_path: Path, mode: StreamMode, flushed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver has repeated its batch, and gone on: the old rows must not come back."""
    root = tmp_path / "t"
    new_table(root, buckets=1)
    real = stream_batches._ShardOfStream._writer

    def slow(part: Any) -> Any:
        monkeypatch.undo()
        for number in range(3):
            write(root, number, [5], mode=mode)
        if flushed:
            flush_logs(open_table(str(root)))
        stream_batches._WRITERS.clear()
        return real(part)

    monkeypatch.setattr(stream_batches._ShardOfStream, "_writer", slow)
    with pytest.raises(InvalidInputError, match=r"batch 0 .* has its batch 2: the check"):
        write(root, 0, [5], mode=mode)
    assert read(root)[5] == "s2.5"


def _table(root: Path) -> OpenTable:
    new_table(root, buckets=1)
    return open_table(str(root))


def test_sequence_and_duplicates(tmp_path: Path) -> None:
    table = _table(tmp_path / "t")
    rows = some_rows([1, 1, 1, 2, 2, 3], "x").set_column(
        1, "name", pa.array(["a", "b", "c", "d", "e", "f"])
    )
    order = pa.chunked_array([[5, 7, 7, None, 1, 1]], pa.int64())
    deleted = pa.chunked_array([[False, True, False, None, False, True]])
    write_batch(table, shaped_rows(table, rows, deleted, order), StreamBatch("q", 0))
    names = fresh(tmp_path / "t")
    assert (names[1], names[2], names.get(3)) == ("c", "e", None)


def test_refused_tables(tmp_path: Path) -> None:
    rows = some_rows([1], "x")
    lance.write_dataset(rows, tmp_path / "a")
    dataset = lance.write_dataset(rows, tmp_path / "b")
    dataset.initialize_mem_wal()
    plain = pa.table({"v": [1]})
    lance.write_dataset(plain, tmp_path / "c").initialize_mem_wal(unsharded=True)
    for name, message in [("a", "no MemWAL"), ("b", "0 sharding specs"), ("c", "no primary key")]:
        table = open_table(str(tmp_path / name))
        with pytest.raises(InvalidInputError, match=message):
            write_batch(table, rows, StreamBatch("q", 0))


def _unsharded(root: Path, **options: int) -> None:
    dataset = lance.write_dataset(some_rows([100], "base"), root)
    dataset.initialize_mem_wal(unsharded=True, **options)


def test_writers_of_ended_streams_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_batches, "_MOST_WRITERS", 2)
    kept = []
    for number in range(3):
        root = tmp_path / str(number)
        _unsharded(root)
        write(root, 0, [number], mode=StreamMode.LOG)
        kept.append(list(stream_batches._WRITERS.values())[-1].writer)
    assert len(stream_batches._WRITERS) == 2
    with pytest.raises(InvalidInputError, match="is closed"):
        kept[0].put(some_rows([7], "s"))
    assert _names(tmp_path / "0") == {0: "s0.0", 100: "base100"}
    write(tmp_path / "0", 1, [1], mode=StreamMode.LOG)
    # Another stream to the same shard.
    write(tmp_path / "0", 0, [2], mode=StreamMode.LOG, query="r")
    assert len([key for key in stream_batches._WRITERS if key[0].endswith("/0")]) == 1
    assert read(tmp_path / "0") == {0: "s0.0", 1: "s1.1", 2: "s0.2", 100: "base100"}


def _names(root: Path) -> dict[int, str]:
    """Return names by key, of SSTables and logs."""
    return by_key(lance_spark.open_dataset(str(root)).fresh().to_table(["id", "name"]))


def test_a_stream_changes_from_log_to_sstables(tmp_path: Path) -> None:
    """Entries that no SSTable has stay, also if the log was flushed before by the same claim."""
    root = tmp_path / "t"
    _unsharded(root, max_memtable_rows=2)
    for number in range(3):
        write(root, number, [number], mode=StreamMode.LOG)
    stream_batches._WRITERS.clear()
    # The log has the batch.
    assert write(root, 2, [2]) == []
    write(root, 3, [3])
    expected = {100: "base100"} | {number: f"s{number}.{number}" for number in range(4)}
    assert _names(root) == expected
    assert read(root) == expected


def test_a_batch_that_is_flushed_by_the_next_claim_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "t"
    _unsharded(root, max_memtable_rows=2)
    write(root, 0, [0], mode=StreamMode.LOG)

    def crash(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writer, "write_sstable", crash)
        with pytest.raises(KeyboardInterrupt):
            write(root, 1, [1], mode=StreamMode.LOG)
    stream_batches._WRITERS.clear()
    assert write(root, 1, [1], mode=StreamMode.LOG) == []


def test_a_failed_flush_leaves_a_batch_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is stored, and the next one claims the shard again."""
    root = tmp_path / "t"
    _unsharded(root, max_memtable_rows=2)
    write(root, 0, [0], mode=StreamMode.LOG)

    def fail(*arguments: Any) -> None:
        raise StorageError("the store is gone")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "write_sstable", fail)
        assert write(root, 1, [1], mode=StreamMode.LOG)
    assert write(root, 1, [1], mode=StreamMode.LOG) == []
    assert write(root, 2, [2], mode=StreamMode.LOG)
    assert _names(root) == {100: "base100", 0: "s0.0", 1: "s1.1", 2: "s2.2"}


def _pylance_writes(root: Path, shard: str) -> None:
    """Let pylance flush the log, and replace a row. It does not keep `stream_progress`."""
    put(root, shard, [[1]], text="theirs")


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_that_pylance_has_flushed(tmp_path: Path, mode: StreamMode) -> None:
    """A restart repeats the batch, which must not hide what pylance has written since."""
    root = tmp_path / "t"
    _unsharded(root)
    for number in range(2):
        (shard,) = write(root, number, [1], mode=StreamMode.LOG)
    stream_batches._WRITERS.clear()
    _pylance_writes(root, str(shard))
    assert write(root, 1, [1], mode=mode) == []
    assert _names(root)[1] == "theirs0.1"
    with pytest.raises(InvalidInputError, match=r"batch 0 .* has its batch 1: the check"):
        write(root, 0, [1], mode=mode)
    assert write(root, 2, [1], mode=mode)
    assert _names(root)[1] == "s2.1"


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_that_pylance_flushes_before_the_claim(
    tmp_path: Path, mode: StreamMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "t"
    _unsharded(root)
    (shard,) = write(root, 0, [1], mode=StreamMode.LOG)
    stream_batches._WRITERS.clear()
    real = stream_batches._ShardOfStream._writer

    def slow(part: Any) -> Any:
        monkeypatch.undo()
        _pylance_writes(root, str(shard))
        return real(part)

    monkeypatch.setattr(stream_batches._ShardOfStream, "_writer", slow)
    assert write(root, 0, [1], mode=mode) == []
    assert _names(root)[1] == "theirs0.1"


def test_a_stream_claims_the_shard_of_another_mem_wal(tmp_path: Path) -> None:
    """The MemWAL is disabled and made again between two batches of one process."""
    root = tmp_path / "t"
    _unsharded(root)
    for number in range(2):
        write(root, number, [number], mode=StreamMode.LOG)
    dataset = lance_spark.open_dataset(str(root)).disable_mem_wal()
    dataset.initialize_mem_wal(unsharded=True)
    write(root, 2, [2], mode=StreamMode.LOG)
    assert _names(root)[2] == "s2.2"
    # A compaction changes the entry of the MemWAL, and ends no claim.
    lance_spark.open_dataset(str(root)).compact_mem_wal(flush=False)
    kept = next(iter(stream_batches._WRITERS.values())).writer
    write(root, 3, [3], mode=StreamMode.LOG)
    assert next(iter(stream_batches._WRITERS.values())).writer is kept
