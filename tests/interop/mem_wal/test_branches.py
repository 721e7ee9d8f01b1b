"""Shards that pylance makes on branches and clones, which have the progress of their origin.

pylance begins such a shard with generation 1, also if the progress counts this generation as
compacted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset, LsmScanner, ShardSnapshot
from lance_spark.errors import CorruptTableError
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.mem_wal.table.shard_manifest import list_shards, read_latest_manifest
from lance_spark.table.open import open_table
from tests.interop.mem_wal.shards import key_field

SCHEMA = pa.schema([key_field("id", pa.int64()), ("s", pa.string())])


def rows(ids: list[int], s: str) -> pa.Table:
    return pa.table({"id": ids, "s": [s] * len(ids)}, schema=SCHEMA)


def text(source: Any) -> dict[int, str]:
    table = source.to_table()
    return dict(zip(table["id"].to_pylist(), table["s"].to_pylist(), strict=True))


@pytest.fixture
def origin(tmp_path: Path) -> str:
    """A table whose only shard has two generations, both compacted."""
    path = str(tmp_path / "t")
    dataset = lance_spark.write_dataset(rows([1, 2, 3], "base"), path)
    dataset = dataset.initialize_mem_wal(unsharded=True)
    for number in range(2):
        with dataset.mem_wal_writer() as writer:
            writer.put(rows([1], f"main{number}"))
    dataset.compact_mem_wal()
    return path


def _branch(origin: str, tmp_path: Path, by_pylance: bool) -> str:
    if by_pylance:
        lance.dataset(origin).create_branch("work")
    else:
        lance_spark.open_dataset(origin).create_branch("work")
    return f"{origin}/tree/work"


def _clone(origin: str, tmp_path: Path, by_pylance: bool) -> str:
    target = str(tmp_path / "clone")
    dataset: Any = lance.dataset(origin) if by_pylance else lance_spark.open_dataset(origin)
    version = dataset.version
    dataset.shallow_clone(target, version) if by_pylance else dataset.shallow_clone(target)
    return target


def _deep_clone(origin: str, tmp_path: Path, by_pylance: bool) -> str:
    target = str(tmp_path / "clone")
    lance_spark.open_dataset(origin).deep_clone(target)
    return target


def put(uri: str, table: pa.Table) -> None:
    """Write a generation by pylance, to the shard that the origin has, too."""
    shard = next(iter(lance_spark.open_dataset(uri).split_by_shard(table)))
    opened = lance.dataset(uri)
    if "/tree/" in uri:
        opened = lance.dataset(uri.partition("/tree/")[0]).checkout_version(("work", None))
    with opened.mem_wal_writer(str(shard)) as writer:
        writer.put(table)


def _snapshot(uri: str) -> ShardSnapshot:
    store = open_table(uri).store
    (shard,) = list_shards(store)
    manifest = read_latest_manifest(store, shard)
    assert manifest is not None
    (first, *_) = manifest.sstables
    return ShardSnapshot(str(shard)).with_sstable(first.generation, first.folder)


@pytest.mark.parametrize("by_pylance", [False, True])
@pytest.mark.parametrize("make", [_branch, _clone, _deep_clone])
def test_rows_that_only_seem_to_be_compacted(
    origin: str, tmp_path: Path, make: Any, by_pylance: bool
) -> None:
    uri = make(origin, tmp_path, by_pylance)
    put(uri, rows([2, 50], "first"))
    dataset = lance_spark.open_dataset(uri)
    with pytest.raises(CorruptTableError, match="at generation 2, but the table"):
        dataset.mem_wal_writer()
    put(uri, rows([3, 51], "second"))
    with dataset.mem_wal_writer() as writer:
        writer.put(rows([52], "third"))
    calls = [
        lambda: dataset.fresh().to_table(),
        lambda: LsmScanner.from_snapshots(dataset, [_snapshot(uri)]),
        dataset.mem_wal_shards,
        dataset.compact_mem_wal,
        dataset.disable_mem_wal,
    ]
    for call in calls:
        with pytest.raises(CorruptTableError, match="generation 1 of shard"):
            call()
    store = open_table(uri).store
    (shard,) = list_shards(store)
    manifest = read_latest_manifest(store, shard)
    assert manifest is not None
    assert [sstable.generation for sstable in manifest.sstables] == [1, 2, 3]


def test_shards_of_this_package_go_on(origin: str, tmp_path: Path) -> None:
    """SSTables that a compaction of the branch has left are compacted."""
    branch = lance_spark.open_dataset(origin).create_branch("work")
    with branch.mem_wal_writer() as writer:
        writer.put(rows([2, 50], "branch"))
    compact_mem_wal(branch._table, drains=False)
    expected = {1: "main1", 2: "branch", 3: "base", 50: "branch"}
    assert text(branch.fresh()) == expected
    put(f"{origin}/tree/work", rows([51], "pylance"))
    opened = _opened(origin)
    assert text(opened.fresh()) == {**expected, 51: "pylance"}
    assert text(opened.compact_mem_wal()) == {**expected, 51: "pylance"}
    assert text(opened.disable_mem_wal()) == {**expected, 51: "pylance"}


def _opened(origin: str) -> Dataset:
    return lance_spark.open_dataset(origin, branch="work")
