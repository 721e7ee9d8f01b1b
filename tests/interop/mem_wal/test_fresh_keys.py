"""Which keys of SSTables and logs a task reads to find the hidden rows of a table."""

from __future__ import annotations

import pickle
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset.fresh import ShardSnapshot, rows_of
from lance_spark.errors import CorruptFileError
from lance_spark.indexes.cache import CACHE
from lance_spark.mem_wal.entries import Entry, write_entry
from lance_spark.mem_wal.fresh.key_sets import KeySet, LogKeys, SsTableKeys
from lance_spark.mem_wal.fresh.scan import Unshadowed
from tests.interop.mem_wal.shards import OwnWriter, PylanceWriter, key_field

#: Rows of a page of the index of keys.
PAGE = 8192

KEYS: dict[str, tuple[list[pa.DataType], Any]] = {
    "int8": ([pa.int8()], lambda number: (number - 40,)),
    "uint64": ([pa.uint64()], lambda number: (2**63 + number if number % 2 else number,)),
    "bool": ([pa.bool_()], lambda number: (bool(number % 2),)),
    "string": ([pa.string()], lambda number: (f"ä{number % 7}-{number}",)),
    "binary": ([pa.large_binary()], lambda number: (bytes([number % 9, 255, number]),)),
    "two": (
        [pa.int32(), pa.string()],
        lambda number: (number % 5 - 2, f"k\0{number}"),
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("writer", [OwnWriter, PylanceWriter])
@pytest.mark.parametrize("few_rows", [0, PAGE])
def test_types_of_keys(
    tmp_path: Path, name: str, writer: Any, few_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lance_spark.mem_wal.fresh.key_sets._FEW_ROWS", few_rows)
    dtypes, key_of = KEYS[name]
    path = str(tmp_path / "t.lance")
    fields = [key_field(f"k{n}", dtype, n + 1) for n, dtype in enumerate(dtypes)]
    schema = pa.schema([*fields, pa.field("s", pa.string())])

    def rows(numbers: list[int], text: str) -> pa.Table:
        keys = list(dict.fromkeys(map(key_of, numbers)))
        columns = [
            pa.array(column, t) for column, t in zip(zip(*keys, strict=True), dtypes, strict=True)
        ]
        return pa.table([*columns, [text] * len(keys)], schema=schema)

    base = rows(list(range(80)), "base")
    lance.write_dataset(base, path, max_rows_per_file=20).initialize_mem_wal(unsharded=True)
    shard = str(uuid.uuid4())
    own = writer(path, shard)
    own.put(rows([3, 20, 41, 79, 100], "sstable"))
    own.delete(rows([5], "").select(schema.names[:-1]))
    own.close()
    own = writer(path, shard)
    own.put(rows([4, 100], "log"))
    expected = {tuple(row.values())[:-1]: row["s"] for row in base.to_pylist()}
    for numbers, text in (([3, 20, 41, 79, 100], "sstable"), ([5], None), ([4, 100], "log")):
        for number in numbers:
            expected[key_of(number)] = text
    wanted = {key: text for key, text in expected.items() if text is not None}
    CACHE.clear()
    tasks = pickle.loads(pickle.dumps(lance_spark.open_dataset(path).fresh().plan()))
    result = [row for task in tasks for batch in task.batches() for row in batch.to_pylist()]
    assert {tuple(row.values())[:-1]: row["s"] for row in result} == wanted
    assert len(result) == len(wanted)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with increasing keys in 10 fragments, and an SSTable with each fifth of them."""
    path = str(tmp_path_factory.mktemp("keys") / "t.lance")
    schema = pa.schema([key_field("id", pa.int64())])
    numbers = np.arange(20 * PAGE)
    dataset = lance.write_dataset(
        pa.table([numbers], schema=schema), path, max_rows_per_file=2 * PAGE
    )
    dataset.initialize_mem_wal(unsharded=True)
    opened = lance_spark.open_dataset(path)
    with opened.mem_wal_writer() as writer:
        writer.put(pa.table([numbers[::5]], schema=schema))
    writer = opened.mem_wal_writer()
    writer.put(pa.table([numbers[:100]], schema=schema))
    writer.close(flush=False)
    return path


def key_set(task: Any) -> KeySet:
    (condition,) = task.filters
    assert isinstance(condition, Unshadowed)
    assert condition.keys is not None
    return condition.keys


def test_a_task_reads_the_pages_with_its_keys(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = lance_spark.open_dataset(path).fresh()
    assert fresh.count_rows() == 20 * PAGE
    tasks = [
        task for task in fresh.plan(rows_per_task=2 * PAGE) if type(task).__name__ == "ScanTask"
    ]
    assert len(tasks) == 10
    read: list[int] = []
    original = SsTableKeys.read

    def reading(self: SsTableKeys, pages: range) -> list[pa.Array]:
        read.append(len(pages))
        return original(self, pages)

    monkeypatch.setattr(SsTableKeys, "read", reading)
    num_rows = 0
    for task in tasks:
        CACHE.clear()
        read.clear()
        sent = pickle.loads(pickle.dumps(task))
        num_rows += sum(batch.num_rows for batch in sent.batches())
        # Of 4 pages, each with the keys of 2.5 fragments.
        assert 1 <= sum(read) <= 3
    assert num_rows == 20 * PAGE - len(range(0, 20 * PAGE, 5)) - 80


def test_threads_share_a_set_of_keys(path: str) -> None:
    """The driver of Spark reads tasks of one plan in several threads."""
    fresh = lance_spark.open_dataset(path).fresh()
    tasks = [task for task in fresh.plan(rows_per_task=PAGE) if type(task).__name__ == "ScanTask"]
    expected = [sum(batch.num_rows for batch in task.batches(prefetch=False)) for task in tasks]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            counts = pool.map(lambda task: sum(b.num_rows for b in task.batches()), tasks)
            assert list(counts) == expected


def test_keys_of_small_logs_are_in_the_task(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = lance_spark.open_dataset(path).fresh()
    task = pickle.loads(pickle.dumps(fresh.plan()))[0]
    log = key_set(task).sources[-1]
    assert isinstance(log, LogKeys)
    assert log.values is not None
    assert len(log.values) == 100
    monkeypatch.setattr("lance_spark.mem_wal.fresh.key_sets._SENT_BYTES", 0)
    tasks = pickle.loads(
        pickle.dumps(lance_spark.open_dataset(path).fresh().plan(rows_per_task=PAGE))
    )
    reads: list[int] = []
    read_entry = "lance_spark.mem_wal.entries.LogRows._entry"
    original = lance_spark.mem_wal.entries.LogRows._entry

    def reading(self: Any, position: int) -> Any:
        reads.append(position)
        return original(self, position)

    monkeypatch.setattr(read_entry, reading)
    own = [task for task in tasks if type(task).__name__ == "ScanTask"]
    assert len(own) > 5
    rows = sum(batch.num_rows for task in own for batch in task.batches())
    assert rows == 20 * PAGE - len(range(0, 20 * PAGE, 5)) - 80
    # The process keeps them for all tasks.
    assert len(reads) == 1


def test_another_log_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shards of a table that is created again have the same ids and positions."""
    monkeypatch.setattr("lance_spark.mem_wal.fresh.key_sets._SENT_BYTES", 0)
    path = str(tmp_path / "t.lance")
    schema = pa.schema([key_field("id", pa.int64()), pa.field("s", pa.string())])
    for number in range(2):
        rows = pa.table([[1, 2], ["base"] * 2], schema=schema)
        lance.write_dataset(rows, path, mode="create")
        opened = lance_spark.open_dataset(path).initialize_mem_wal(unsharded=True)
        writer = opened.mem_wal_writer()
        writer.put(pa.table([[1 + number], ["log"]], schema=schema))
        writer.close(flush=False)
        result = lance_spark.open_dataset(path).fresh().to_table().to_pylist()
        assert {row["id"]: row["s"] for row in result} == {1 + number: "log", 2 - number: "base"}
        assert len(result) == 2
        shutil.rmtree(path)


def test_keys_that_are_null(tmp_path: Path) -> None:
    """Columns that a caller names as the key can have nulls, which are the key of no other row."""
    path = str(tmp_path / "t.lance")
    schema = pa.schema([key_field("id", pa.int64()), pa.field("n", pa.int64()), ("s", pa.string())])
    large = 2**53

    def rows(ids: list[int], numbers: list[int | None], text: str) -> pa.Table:
        return pa.table([ids, numbers, [text] * len(ids)], schema=schema)

    base = rows([1, 2, 3, 4], [large, large + 1, None, None], "base")
    lance.write_dataset(base, path).initialize_mem_wal(unsharded=True)
    shard = str(uuid.uuid4())
    writer = OwnWriter(path, shard)
    writer.put(rows([7, 8, 9], [large + 1, None, large + 3], "fresh"))
    writer.close()
    opened = lance_spark.open_dataset(path)
    (sstable,) = next(part for part in opened.fresh()._reader.scan.state.manifests).sstables
    snapshot = ShardSnapshot(shard).with_sstable(1, sstable.folder)
    fresh = rows_of(opened, [snapshot], ["n"])
    assert sorted(fresh.to_table(["id"])["id"].to_pylist()) == [1, 3, 4, 7, 8, 9]


def test_a_log_with_null_keys(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    schema = pa.schema([key_field("id", pa.int64()), pa.field("s", pa.string())])
    rows = pa.table([[1, 2], ["a", "b"]], schema=schema)
    lance.write_dataset(rows, path).initialize_mem_wal(unsharded=True)
    opened = lance_spark.open_dataset(path)
    shard = uuid.uuid4()
    opened.mem_wal_writer(str(shard)).close()
    broken = pa.table({"id": [None, 1], "s": ["x", "y"]}).cast(
        pa.schema([("id", pa.int64()), ("s", pa.string())])
    )
    assert write_entry(opened._table.store, shard, Entry(1, 1, 1, rows=broken))
    with pytest.raises(CorruptFileError, match="rows without a value of key column 'id'"):
        opened.fresh().to_table()
