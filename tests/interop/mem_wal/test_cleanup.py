"""Garbage of shards is removed by age, and pylance goes on with the shards."""

from __future__ import annotations

import os
import time
import uuid
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError
from lance_spark.mem_wal.cleanup import clean_mem_wal
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.mem_wal.sstable import open_sstable, write_sstable
from lance_spark.mem_wal.table.shard_manifest import read_latest_manifest
from lance_spark.storage.listing import FileInfo
from lance_spark.storage.store import ObjectStore
from lance_spark.table.open import open_table
from tests.interop.mem_wal.test_compaction import base, fresh, new_table, put, some_rows
from tests.interop.mem_wal.test_sstables import arrived

NOW = timedelta()
DAY = timedelta(days=1)


def names(root: Path, shard: str) -> dict[str, list[str]]:
    """Return the files of a shard, without SSTables, and the folders of SSTables."""
    folder = root / "_mem_wal" / shard
    return {
        "sstables": sorted(path.name for path in folder.glob("*_gen_*")),
        "wal": sorted(path.name for path in (folder / "wal").iterdir()),
        "manifest": sorted(path.name for path in (folder / "manifest").glob("*.binpb")),
    }


def age(root: Path, days: float) -> None:
    """Make all files older."""
    then = time.time() - days * 86_400
    for path in (root / "_mem_wal").rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def test_what_is_removed(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    shard = str(uuid.uuid4())
    put(root, shard, [[1], [2]], [3])
    put(root, shard, [[4]])
    table = open_table(str(root))
    compact_mem_wal(table)
    put(root, shard, [[5]])
    before = names(root, shard)
    table = open_table(str(root))
    assert clean_mem_wal(table).bytes_removed == 0
    assert names(root, shard) == before
    # The drain, the sixth version, is new: an older manifest was in use within the last day.
    age(root, 2)
    folder = root / "_mem_wal" / shard / "manifest"
    for path in sorted(folder.glob("*.binpb"), key=lambda path: path.name[::-1])[5:]:
        os.utime(path)
    # It lists both SSTables, and covers the entries of their rows.
    stats = clean_mem_wal(table, DAY)
    assert (stats.sstables_removed, stats.entries_removed) == (0, 4)
    age(root, 2)
    stats = clean_mem_wal(table, DAY)
    after = names(root, shard)
    assert (stats.sstables_removed, stats.entries_removed) == (2, 1)
    assert stats.bytes_removed > 60_000
    assert after["manifest"] == before["manifest"]
    assert [name[-1] for name in after["sstables"]] == ["3"]
    # Sentinels of the second and third writer.
    assert len(after["wal"]) == 2
    assert clean_mem_wal(table, NOW).bytes_removed == 0

    expected = fresh(root)
    assert [expected[1], expected[4], expected[5]] == ["new0.1", "new0.4", "new0.5"]
    put(root, shard, [[6]])
    expected = fresh(root)
    compact_mem_wal(table)
    assert base(root) == expected
    assert expected[6] == "new0.6"


def test_a_fenced_writer_stays_fenced(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    shard = str(uuid.uuid4())
    old = lance.dataset(root).mem_wal_writer(shard, max_wal_flush_interval_ms=5)
    old.put(some_rows([1], "old"))
    put(root, shard, [[2]])
    compact_mem_wal(open_table(str(root)))
    assert clean_mem_wal(open_table(str(root)), NOW).entries_removed == 2
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        old.put(some_rows([3], "old"))
    del old
    assert base(root)[1] == "old1"
    assert base(root)[3] == "base3"


def test_failed_flushes_and_temporary_files(tmp_path: Path) -> None:
    root = tmp_path / "t"
    new_table(root)
    shard = uuid.uuid4()
    put(root, str(shard), [[1]])
    table = open_table(str(root))
    failed = write_sstable(table, shard, 2, arrived(some_rows([9], "x")))
    partial = root / "_mem_wal" / str(shard) / "0badc0de_gen_2" / "data"
    partial.mkdir(parents=True)
    (partial / "x.lance").write_bytes(b"half")
    left = root / "_mem_wal" / str(shard) / "wal" / f".x.arrow.{'0' * 32}.tmp"
    left.write_bytes(b"half")
    other = root / "_mem_wal" / str(shard) / "notes.txt"
    other.write_bytes(b"a user's file")
    assert clean_mem_wal(table, DAY).sstables_removed == 0
    assert clean_mem_wal(table, NOW).sstables_removed == 2
    folder = root / "_mem_wal" / str(shard)
    assert not (folder / failed.folder).exists()
    assert not partial.exists()
    assert not left.exists()
    assert other.exists()
    manifest = read_latest_manifest(table.store, shard)
    assert manifest is not None
    assert open_sstable(table, shard, manifest.sstables[0].folder).version == 1
    assert fresh(root)[1] == "new0.1"


def test_arguments(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"v": [1]}), tmp_path / "t")
    table = open_table(str(tmp_path / "t"))
    with pytest.raises(InvalidInputError, match="no MemWAL"):
        clean_mem_wal(table)
    with pytest.raises(InvalidInputError, match="must not be negative"):
        clean_mem_wal(table, timedelta(seconds=-1))


def test_files_of_a_version_that_is_replaced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader can have read the shard manifest just before a compaction replaced it."""
    root = tmp_path / "t"
    new_table(root)
    shard = str(uuid.uuid4())
    put(root, shard, [[1], [2]])
    age(root, 30)
    table = open_table(str(root))
    reader = lance_spark.open_dataset(str(root)).fresh()
    original = ObjectStore.list_tree

    def list_tree(store: ObjectStore, folder: str) -> list[FileInfo]:
        files = original(store, folder)
        if folder.endswith(shard):
            monkeypatch.undo()
            compact_mem_wal(table)
        return files

    monkeypatch.setattr(ObjectStore, "list_tree", list_tree)
    assert clean_mem_wal(table, DAY).sstables_removed == 0
    assert reader.to_table(["id"], filter="name = 'new0.1'").num_rows == 1
