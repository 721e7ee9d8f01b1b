"""Compactions of what pylance wrote to its shards: pylance reads the same rows as before."""

from __future__ import annotations

import random
import shutil
import uuid
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import CompactedSsTable

import lance_spark
from lance_spark.errors import CommitConflictError, CorruptTableError, InvalidInputError
from lance_spark.mem_wal import compaction
from lance_spark.mem_wal.compaction import MemWalTask, compact_mem_wal, plan_shards, plan_tasks
from lance_spark.mem_wal.table.details import details_of
from lance_spark.mem_wal.table.shard_manifest import read_latest_manifest
from lance_spark.runner import LocalRunner
from lance_spark.table.commit.transaction import read_transaction
from lance_spark.table.open import open_table
from lance_spark.table.operations.update import Update
from tests.interop.mem_wal.shards import pylance_snapshots

_KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=_KEY),
        pa.field("name", pa.string(), nullable=False),
        ("items", pa.list_(pa.int32())),
    ]
)


def some_rows(ids: list[int], text: str) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "name": [f"{text}{key}" for key in ids],
            "items": [list(range(key % 4)) if key % 5 else None for key in ids],
        },
        schema=SCHEMA,
    )


def new_table(root: Path, count: int = 20, **options: Any) -> lance.LanceDataset:
    dataset = lance.write_dataset(
        some_rows(list(range(count)), "base"), root, max_rows_per_file=7, **options
    )
    dataset.initialize_mem_wal(unsharded=True)
    return dataset


def put(
    root: Path, shard: str, upserts: list[list[int]], deleted: list[int] = (), text: str = "new"
) -> None:  # type: ignore[assignment]
    """Write one generation by pylance."""
    with lance.dataset(root).mem_wal_writer(shard, max_wal_flush_interval_ms=5) as writer:
        for number, ids in enumerate(upserts):
            writer.put(some_rows(ids, f"{text}{number}."))
        if deleted:
            writer.delete(pa.table({"id": pa.array(deleted, pa.int64())}))


def fresh(root: Path) -> dict[int, str]:
    """Return names by key as pylance reads them, from base table and SSTables."""
    dataset = lance.dataset(root)
    rows = lance.LsmScanner.from_snapshots(dataset, pylance_snapshots(str(root))).to_table()
    return by_key(rows)


def by_key(rows: pa.Table) -> dict[int, str]:
    names = dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
    assert len(names) == rows.num_rows
    return names


def base(root: Path) -> dict[int, str]:
    dataset = lance.dataset(root)
    dataset.validate()
    return by_key(dataset.to_table())


@pytest.mark.parametrize("stable_row_ids", [False, True])
@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_several_generations(tmp_path: Path, version: str, stable_row_ids: bool) -> None:
    root = tmp_path / "t"
    new_table(root, data_storage_version=version, enable_stable_row_ids=stable_row_ids)
    before = lance.dataset(root).to_table(with_row_id=True).to_pydict()
    shard = str(uuid.uuid4())
    put(root, shard, [[1, 2, 30], [1, 3]], [4, 50])
    put(root, shard, [[2, 4]], [3, 30], "later")
    put(root, shard, [[60], [61, 60]], [19])
    expected = fresh(root)
    done = compact_mem_wal(open_table(str(root)))
    assert base(root) == expected
    assert fresh(root) == expected
    assert done.num_sstables == 3
    assert (done.num_inserted, done.num_updated, done.num_deleted) == (2, 3, 2)
    assert done.generations == {uuid.UUID(shard): 3}
    table = open_table(str(root))
    transaction = read_transaction(table.store, table.manifest)
    assert transaction is not None
    assert isinstance(transaction.operation, Update)
    details = details_of(table.manifest)
    assert details is not None
    assert details.compacted == done.generations
    manifest = read_latest_manifest(table.store, uuid.UUID(shard))
    assert manifest is not None
    assert (manifest.sstables, manifest.current_generation) == ((), 4)
    if stable_row_ids:
        after = lance.dataset(root).to_table(with_row_id=True).to_pydict()
        ids = dict(zip(after["id"], after["_rowid"], strict=True))
        for key, row_id in zip(before["id"], before["_rowid"], strict=True):
            assert ids.get(key, row_id) == row_id
    # The shard goes on.
    put(root, shard, [[1, 70]], [2], "last")
    expected = fresh(root)
    assert expected[1] == "last0.1"
    compact_mem_wal(table)
    assert base(root) == expected
    again = compact_mem_wal(table)
    assert again.num_sstables == 0
    assert again.version == open_table(str(root)).version


def test_an_index_of_the_key_finds_the_rows(tmp_path: Path) -> None:
    root = tmp_path / "t"
    dataset = new_table(root, 200)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("name", "BTREE")
    shard = str(uuid.uuid4())
    put(root, shard, [[5, 300, 199]], [100])
    expected = fresh(root)
    compact_mem_wal(open_table(str(root)))
    assert base(root) == expected
    table = lance.dataset(root).to_table(filter="name = 'new0.5' or name = 'base5'")
    assert table["id"].to_pylist() == [5]


def test_only_tombstones_of_missing_keys(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    put(root, str(uuid.uuid4()), [], [1000])
    done = compact_mem_wal(open_table(str(root)))
    assert (done.num_inserted, done.num_updated, done.num_deleted) == (0, 0, 0)
    assert done.version == open_table(str(root)).version == 3
    assert len(base(root)) == 20


def test_all_rows_are_deleted(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    put(root, str(uuid.uuid4()), [], list(range(20)))
    compact_mem_wal(open_table(str(root)))
    assert base(root) == {}


def test_composite_keys_and_buckets(tmp_path: Path) -> None:
    root = tmp_path / "t"
    schema = pa.schema(
        [
            pa.field("name", pa.string(), nullable=False, metadata=_KEY),
            pa.field("id", pa.int32(), nullable=False, metadata=_KEY),
            ("value", pa.float64()),
        ]
    )

    def rows(keys: list[tuple[str, int]], value: float) -> pa.Table:
        names, ids = zip(*keys, strict=True)
        return pa.table([names, ids, [value] * len(keys)], schema=schema)

    keys = [("a", 1), ("a", 2), ("b\0", 1), ("", 0)]
    dataset = lance.write_dataset(rows(keys, 0.0), root)
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=4)
    shards = [str(uuid.uuid4()) for _ in range(2)]
    with dataset.mem_wal_writer(shards[0]) as writer:
        writer.put(rows([("a", 1), ("c", 1), ("a", 1)], 1.0))
        writer.delete(rows([("b\0", 1)], 0.0).select(["name", "id"]))
    with dataset.mem_wal_writer(shards[1]) as writer:
        writer.put(rows([("a", 2), ("", 2)], 2.0))
    done = compact_mem_wal(open_table(str(root)))
    assert set(map(str, done.generations)) == set(shards)
    result = lance.dataset(root).to_table().to_pylist()
    assert sorted((row["name"], row["id"], row["value"]) for row in result) == [
        ("", 0, 0.0),
        ("", 2, 2.0),
        ("a", 1, 1.0),
        ("a", 2, 2.0),
        ("c", 1, 1.0),
    ]


def test_several_base_rows_of_a_key(tmp_path: Path) -> None:
    root = tmp_path / "t"
    lance.write_dataset(some_rows([1, 2, 1, 3, 1], "base"), root).initialize_mem_wal(unsharded=True)
    put(root, str(uuid.uuid4()), [[1]])
    done = compact_mem_wal(open_table(str(root)))
    assert (done.num_updated, done.num_deleted) == (1, 2)
    assert base(root) == {1: "new0.1", 2: "base2", 3: "base3"}


def test_changed_columns(tmp_path: Path) -> None:
    """Columns are found by field id: after a rename, a drop, and with the id of `_tombstone`."""
    root = tmp_path / "t"
    new_table(root)
    shard = str(uuid.uuid4())
    put(root, shard, [[1, 40]], [2])
    dataset = lance.dataset(root)
    dataset.alter_columns({"path": "name", "name": "title"})
    dataset.drop_columns(["items"])
    dataset.add_columns(pa.field("flag", pa.bool_()))
    assert [field.id() for field in dataset.lance_schema.fields()] == [0, 1, 4]
    compact_mem_wal(open_table(str(root)))
    rows = lance.dataset(root).to_table(filter="id in (1, 2, 3, 40)").sort_by("id").to_pylist()
    assert rows == [
        {"id": 1, "title": "new0.1", "flag": None},
        {"id": 3, "title": "base3", "flag": None},
        {"id": 40, "title": "new0.40", "flag": None},
    ]


class _Between(LocalRunner):
    """Lets another client change the table after the tasks ran for the first time."""

    def __init__(self, *changes: Any) -> None:
        super().__init__(True)
        self._changes = list(changes)

    def run(self, tasks: Any, run: Any, undo: Any) -> Any:
        results = super().run(tasks, run, undo)
        if self._changes and isinstance(tasks[0], MemWalTask):
            self._changes.pop(0)()
        return results


_CHANGES = {
    "append": lambda root, shard: lance.write_dataset(
        some_rows([100], "appended"), root, mode="append"
    ),
    "delete": lambda root, shard: lance.dataset(root).delete("id = 7"),
    "delete of the same row": lambda root, shard: lance.dataset(root).delete("id = 1"),
    "update": lambda root, shard: lance.dataset(root).update({"name": "'direct'"}, "id < 3"),
    "index": lambda root, shard: lance.dataset(root).create_scalar_index("id", "BTREE"),
    "compaction of fragments": lambda root, shard: lance.dataset(root).optimize.compact_files(),
    "new column": lambda root, shard: lance.dataset(root).add_columns(pa.field("n", pa.int8())),
    "generation": lambda root, shard: put(root, shard, [[30, 31]], [3], "second"),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_another_client_changes_the_table_meanwhile(tmp_path: Path, change: str) -> None:
    root = tmp_path / "t"
    new_table(root)
    shard = str(uuid.uuid4())
    put(root, shard, [[1, 30]], [2])
    between = _Between(lambda: _CHANGES[change](root, shard))
    compact_mem_wal(open_table(str(root)), runner=between)
    expected = fresh(root)
    assert {key: expected.get(key) for key in (1, 2)} == {1: "new0.1", 2: None}
    assert (expected.get(100) is None) == (change != "append")
    assert (expected.get(7) is None) == (change == "delete")
    assert expected[30] == ("second0.30" if change == "generation" else "new0.30")
    compact_mem_wal(open_table(str(root)))
    assert base(root) == expected


def test_a_generation_is_compacted_only_once(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    shard = str(uuid.uuid4())
    put(root, shard, [[1, 30]], [2])

    def by_pylance() -> None:
        table = open_table(str(root))
        newest = _rows_of(table, uuid.UUID(shard))
        dataset = lance.dataset(root)
        dataset.delete("id = 2")
        merge = lance.dataset(root).merge_insert("id").when_matched_update_all()
        merge = merge.when_not_matched_insert_all()
        merge.mark_sstables_as_compacted([CompactedSsTable(shard, 1)]).execute(newest)

    done = compact_mem_wal(open_table(str(root)), runner=_Between(by_pylance))
    assert done.num_sstables == 0
    assert base(root)[30] == "new0.30"
    assert list((root / "data").glob("*.lance")) != []
    # Our compaction ends that of pylance for good, too.
    put(root, shard, [[1, 31]], text="second")
    compact_mem_wal(open_table(str(root)), drains=False)
    with pytest.raises(OSError, match="Stale"):
        by_pylance()
    assert base(root)[1] == "second0.1"


def _rows_of(table: Any, shard: uuid.UUID) -> pa.Table:
    manifest = read_latest_manifest(table.store, shard)
    assert manifest is not None
    folder = f"{table.store.uri}/_mem_wal/{shard}/{manifest.sstables[-1].folder}"
    return lance.dataset(folder).to_table(filter="not _tombstone").drop_columns(["_tombstone"])


def test_two_of_our_compactions(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    shard = str(uuid.uuid4())
    put(root, shard, [[1, 30]], [2])
    expected = fresh(root)
    table = open_table(str(root))
    other = _Between(lambda: compact_mem_wal(table))
    done = compact_mem_wal(table, runner=other)
    assert done.num_sstables == 0
    assert base(root) == expected
    # Without replanning, the second commit fails for good.
    put(root, shard, [[2]])
    newest, shards = plan_shards(table)
    results = [task.run() for task in plan_tasks(newest, shards, b"")]
    compact_mem_wal(table)
    with pytest.raises(CommitConflictError) as raised:
        compaction.commit_tasks(newest, shards, results, LocalRunner(True))
    assert not raised.value.retryable


def test_crash_between_commit_and_drain(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    shard = str(uuid.uuid4())
    put(root, shard, [[1, 30]], [2])
    expected = fresh(root)
    table = open_table(str(root))
    done = compact_mem_wal(table, drains=False)
    manifest = read_latest_manifest(table.store, uuid.UUID(shard))
    assert manifest is not None
    assert len(manifest.sstables) == 1
    assert fresh(root) == base(root) == expected
    assert compact_mem_wal(table).version == done.version
    manifest = read_latest_manifest(table.store, uuid.UUID(shard))
    assert manifest is not None
    assert manifest.sstables == ()
    assert fresh(root) == base(root) == expected


def test_a_writer_of_pylance_goes_on_after_a_drain(tmp_path: Path) -> None:
    """The drain keeps the epoch: an open writer flushes its rows, and keeps what was drained."""
    root = tmp_path / "t"
    new_table(root)
    shard = str(uuid.uuid4())
    put(root, shard, [[1, 30]])
    with lance.dataset(root).mem_wal_writer(shard, max_wal_flush_interval_ms=5) as writer:
        writer.put(some_rows([2], "open"))
        compact_mem_wal(open_table(str(root)))
        writer.put(some_rows([3], "open"))
    table = open_table(str(root))
    manifest = read_latest_manifest(table.store, uuid.UUID(shard))
    assert manifest is not None
    assert [part.generation for part in manifest.sstables] == [2]
    assert [manifest.writer_epoch, manifest.current_generation] == [2, 3]
    names = fresh(root)
    assert [names[1], names[2], names[3]] == ["new0.1", "open2", "open3"]
    compact_mem_wal(table)
    assert base(root) == names


def test_a_lost_sstable_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    shard = str(uuid.uuid4())
    put(root, shard, [[1]])
    put(root, shard, [[2]])
    (folder,) = (root / "_mem_wal" / shard).glob("*_gen_1")
    shutil.move(folder, tmp_path / "moved")
    before = lance.dataset(root).version
    with pytest.raises(Exception, match="gen_1"):
        compact_mem_wal(open_table(str(root)))
    assert lance.dataset(root).version == before


def test_a_restored_table_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    shard = str(uuid.uuid4())
    put(root, shard, [[1]])
    before = lance.dataset(root).version
    compact_mem_wal(open_table(str(root)))
    put(root, shard, [[2]])
    lance.dataset(root, version=before).restore()
    with pytest.raises(CorruptTableError, match="restored to an older version"):
        compact_mem_wal(open_table(str(root)))


def test_rows_of_more_than_2_gib() -> None:
    """Arrow cannot join the strings of all SSTables of a shard then."""
    size = 2**27
    offsets = pa.py_buffer(np.array([0, size], np.int32))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(bytes(size))])
    values = pa.table({"v": pa.chunked_array([value] * 17), "n": list(range(17))})
    numbers = np.array([0, 3, 16])
    parts = [(part, batch["n"].to_pylist()) for part, batch in compaction._parts(values, numbers)]
    assert parts == [(slice(0, 1), [0]), (slice(1, 2), [3]), (slice(2, 3), [16])]


def test_a_table_without_mem_wal(tmp_path: Path) -> None:
    lance.write_dataset(some_rows([1], ""), tmp_path / "t")
    with pytest.raises(InvalidInputError, match="no MemWAL"):
        compact_mem_wal(open_table(str(tmp_path / "t")))


def test_a_table_without_key_gets_each_row_once(tmp_path: Path) -> None:
    """pylance writes such SSTables, and has no compaction of them in Python."""
    uri = str(tmp_path / "t")
    dataset = lance.write_dataset(pa.table({"v": [1]}), uri)
    dataset.initialize_mem_wal(unsharded=True)
    shard = str(uuid.uuid4())
    for values in ([1, None], [1], [2]):
        with lance.dataset(uri).mem_wal_writer(shard) as writer:
            writer.put(pa.table({"v": pa.array(values, pa.int64())}))
    done = compact_mem_wal(open_table(uri))
    assert (done.num_inserted, done.num_updated, done.num_deleted) == (4, 0, 0)
    assert lance.dataset(uri).to_table()["v"].to_pylist() == [1, 1, None, 1, 2]
    assert compact_mem_wal(open_table(uri)).num_sstables == 0
    writer = lance_spark.open_dataset(uri).mem_wal_writer(shard)
    writer.put(pa.table({"v": [3]}))
    lance_spark.open_dataset(uri).disable_mem_wal()
    assert lance.dataset(uri).to_table()["v"].to_pylist() == [1, 1, None, 1, 2, 3]


def test_random_generations(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root, enable_stable_row_ids=True)
    randomness = random.Random(7)
    shard = str(uuid.uuid4())
    for number in range(6):
        upserts = [
            randomness.sample(range(40), randomness.randrange(1, 8))
            for _ in range(randomness.randrange(1, 4))
        ]
        put(root, shard, upserts, randomness.sample(range(40), 5), f"{number}.")
        if randomness.random() < 0.5:
            expected = fresh(root)
            compact_mem_wal(open_table(str(root)))
            assert base(root) == expected
