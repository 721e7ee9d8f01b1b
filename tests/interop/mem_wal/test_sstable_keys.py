"""Bloom filters and key indexes of SSTables are those of pylance, byte by byte."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.file.open import open_file
from lance_spark.indexes.bloom_filter.blocks import filter_of
from lance_spark.indexes.btree.files import DATA_FILE, LOOKUP_FILE
from lance_spark.mem_wal.key_index import FOLDER, KeyPages, SortedKeys
from lance_spark.mem_wal.keys import (
    FILE,
    FILTER_BYTES,
    FULLY_HASHED,
    encode_filter,
    key_hashes,
    may_have,
)
from lance_spark.storage.store import ObjectStore
from lance_spark.table.paths import TablePaths

_KEY = {"lance-schema:unenforced-primary-key": "true"}
_TEXTS = ["", "z\0q", "a", "a\0", "\0", "\0\0a", "ü" * 9, "b" * 300]


def _keys(dtype: pa.DataType) -> list[Any]:
    if pa.types.is_boolean(dtype):
        return [True, False, True]
    if pa.types.is_integer(dtype):
        bounds = np.iinfo(dtype.to_pandas_dtype())
        return [int(bounds.max), 0, int(bounds.min), 7, 1, 0, 100]
    if pa.types.is_binary(dtype) or pa.types.is_large_binary(dtype):
        return [text.encode() for text in _TEXTS] + [b"\xff\x00", b""]
    return [*_TEXTS, "a"]


_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_SINGLE = [[name] for name in (*_INTEGERS, "bool", "string", "large_string", "binary")]
_COMPOSITE = [["string", "int64"], ["binary", "bool", "uint16"], ["int8", "large_binary"]]


def _columns(names: list[str]) -> list[pa.Array]:
    columns = []
    for number, name in enumerate(names):
        dtype = getattr(pa, name + "_" if name == "bool" else name)()
        values = _keys(dtype)
        columns.append(pa.array([values[(row + number) % len(values)] for row in range(23)], dtype))
    return columns


def _others(columns: list[pa.Array]) -> list[pa.Array]:
    """Return keys that the SSTable does not have."""
    texts = {pa.string(): "other", pa.binary(): b"other"}
    return [pa.array([texts.get(column.type, 12345)], column.type) for column in columns]


def _sstable_of_pylance(root: Path, columns: list[pa.Array]) -> ObjectStore:
    fields = [
        pa.field(f"k{number}", column.type, nullable=False, metadata=_KEY)
        for number, column in enumerate(columns)
    ]
    schema = pa.schema([*fields, pa.field("v", pa.int32())])
    rows = pa.table([*columns, pa.array(range(len(columns[0])), pa.int32())], schema=schema)
    dataset = lance.write_dataset(schema.empty_table(), root)
    dataset.initialize_mem_wal(unsharded=True)
    shard = str(uuid.uuid4())
    with dataset.mem_wal_writer(shard) as writer:
        writer.put(rows)
    (folder,) = (root / "_mem_wal" / shard).glob("*_gen_1")
    return ObjectStore.from_uri(str(folder))


@pytest.mark.sample(2)
@pytest.mark.parametrize("names", [*_SINGLE, ["large_binary"], *_COMPOSITE], ids="-".join)
def test_equal_to_pylance(tmp_path: Path, names: list[str]) -> None:
    columns = _columns(names)
    store = _sstable_of_pylance(tmp_path / "t", columns)
    written, own = store.read_bytes(FILE), encode_filter(columns)
    assert may_have(written, columns, FILE).all()
    bits, own_bits = (np.frombuffer(data, np.uint8) for data in (written, own))
    assert not (bits & ~own_bits).any()
    if all(column.type in FULLY_HASHED for column in columns):
        assert own == written
        assert not may_have(written, _others(columns), FILE).any()
    else:
        # pylance leaves values of some types out: its filter has only one of them.
        assert filter_of(key_hashes(columns, as_pylance=True), FILTER_BYTES).tobytes() == written
        full = np.frombuffer(filter_of(key_hashes(columns), FILTER_BYTES).tobytes(), np.uint8)
        assert not (full & ~own_bits).any()

    keys = SortedKeys.of(columns)
    file = open_file(store.open(f"{FOLDER}/{DATA_FILE}"))
    values, rows = file.read(file.schema.fields, range(file.num_rows))
    assert values.equals(keys.values)
    assert rows.to_pylist() == keys.rows.tolist()
    pages = KeyPages.open(TablePaths.open(store.uri, store.options), values.type, len(values))
    assert pages is not None
    assert pa.concat_arrays(pages.read(range(len(pages.pages.low)))).equals(values)
    dataset = lance.dataset(store.uri)
    live = dataset.to_table(columns=["v"])["v"].to_pylist()
    assert sorted(set(range(23)) - set(live)) == keys.superseded().tolist()


def test_layout_of_the_key_index(tmp_path: Path) -> None:
    store = _sstable_of_pylance(tmp_path / "t", [pa.array(range(20_000), pa.int64())])
    file = open_file(store.open(f"{FOLDER}/{LOOKUP_FILE}"))
    assert file.num_rows == 3
    assert file.schema.metadata == {"batch_size": b"8192", "range_partitioned": b"false"}
    assert file.version == (2, 0)
