"""Damaged files of SSTables are errors, and never other rows or a hang."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptError, CorruptFileError, LanceError
from lance_spark.indexes.cache import CACHE
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.mem_wal.entries import put_rows
from lance_spark.mem_wal.key_index import FOLDER, KeyPages, SortedKeys
from lance_spark.mem_wal.keys import (
    encode_filter,
    hashed_bytes,
    key_hashes,
    may_have,
    ordered_bytes,
)
from lance_spark.mem_wal.sstable import open_sstable, write_sstable
from lance_spark.mem_wal.table.shard_manifest import ShardManifest, publish, sstable_path
from lance_spark.storage.store import ObjectStore
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.paths import TablePaths

_KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=_KEY), ("v", pa.string())])
SHARD = uuid.UUID(int=7)


def rows(count: int) -> pa.Table:
    return pa.table({"id": range(count), "v": [f"v{key}" for key in range(count)]}, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> OpenTable:
    dataset = lance_spark.write_dataset(rows(5), str(tmp_path / "t"))
    return open_table(dataset.initialize_mem_wal(unsharded=True).uri)


@pytest.fixture
def folder(table: OpenTable) -> str:
    """A shard with one SSTable; its path below the root."""
    shaped = put_rows(table.schema, rows(300))
    sstable = write_sstable(table, SHARD, 1, shaped)
    assert publish(table.store, ShardManifest(SHARD, current_generation=2, sstables=(sstable,)))
    return sstable_path(SHARD, sstable.folder)


def keys_of(store: ObjectStore, num_rows: int = 300) -> pa.Array:
    """Read the index of keys, without the cache of the process."""
    CACHE.clear()
    pages = KeyPages.open(TablePaths.open(store.uri, store.options), pa.int64(), num_rows)
    assert pages is not None
    return pa.concat_arrays(pages.read(range(len(pages.pages.low))))


def test_bloom_filter_of_a_wrong_size() -> None:
    keys = [pa.array([1, 2, 3], pa.int64())]
    data = encode_filter(keys)
    assert may_have(data, keys, "f").all()
    assert may_have(data[:32], keys, "f").shape == (3,)
    for damaged in (b"", data[:-1], data + b"\0", b"x"):
        with pytest.raises(CorruptFileError, match="f: the file has"):
            may_have(damaged, keys, "f")


@pytest.mark.parametrize("cut", [0, 1, 40, 400])
def test_truncated_key_index(table: OpenTable, folder: str, cut: int) -> None:
    store = table.store.below(folder)
    assert keys_of(store).to_pylist() == list(range(300))
    paths = TablePaths.open(store.uri, store.options)
    assert KeyPages.open(paths, pa.string(), 300) is None
    assert KeyPages.open(paths, pa.int64(), 299) is None
    path = Path(store.uri) / FOLDER / "page_data.lance"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CorruptError):
        keys_of(store)


def test_flipped_bytes_of_the_key_index(table: OpenTable, folder: str) -> None:
    store = table.store.below(folder)
    path = Path(store.uri) / FOLDER / "page_data.lance"
    data = path.read_bytes()
    randomness = random.Random(1)
    for _ in range(60):
        damaged = bytearray(data)
        damaged[randomness.randrange(len(data))] ^= 1 << randomness.randrange(8)
        path.write_bytes(damaged)
        try:
            values = keys_of(store)
        except LanceError:
            continue
        assert values.type == pa.int64()


def test_a_damaged_sstable_is_not_compacted(table: OpenTable, folder: str) -> None:
    store: ObjectStore = table.store
    (data,) = (Path(store.uri) / folder / "data").iterdir()
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(CorruptError):
        compact_mem_wal(table)
    assert open_table(store.uri).version == table.version
    assert lance_spark.open_dataset(store.uri).to_table().equals(rows(5))
    assert len(list((Path(store.uri) / "data").iterdir())) == 1


def test_the_deletion_file_of_an_sstable_is_needed(table: OpenTable) -> None:
    shaped = put_rows(table.schema, pa.concat_tables([rows(3), rows(2)]))
    folder = write_sstable(table, SHARD, 1, shaped).folder
    sstable = open_sstable(table, SHARD, folder)
    assert lance_spark.open_dataset(sstable.store.uri).count_rows() == 3
    (deletions,) = (Path(sstable.store.uri) / "_deletions").iterdir()
    deletions.write_bytes(deletions.read_bytes()[:5])
    with pytest.raises(CorruptError):
        lance_spark.open_dataset(sstable.store.uri).to_table()


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        (pa.array([-1, 0, 1], pa.int8()), ["017fffffffffffffff", "018000000000000000"]),
        (pa.array([0, 255], pa.uint8()), ["010000000000000000", "0100000000000000ff"]),
        (pa.array([False, True]), ["0100", "0101"]),
        (pa.array(["", "\0q"]), ["010000", "0100ff710000"]),
        (pa.array([None, b"a"], pa.large_binary()), ["00", "01610000"]),
    ],
    ids=str,
)
def test_ordered_bytes(values: pa.Array, ordered: list[str]) -> None:
    encoded = ordered_bytes([values]).to_arrow().to_pylist()
    assert [data.hex() for data in encoded[: len(ordered)]] == ordered
    assert encoded == sorted(encoded)


def test_sliced_columns_and_many_keys() -> None:
    texts = pa.array(["x" * (number % 23) for number in range(200_000)])
    whole = key_hashes([texts])
    part = key_hashes([texts.slice(1000, 70_000)])
    assert (whole[1000:71_000] == part).all()
    assert len(hashed_bytes([texts.slice(3, 5)])) == 5
    keys = SortedKeys.of([texts.slice(10, 46)])
    assert len(keys.superseded()) == 23
    assert SortedKeys.of([texts.slice(0, 0)]).superseded().tolist() == []
