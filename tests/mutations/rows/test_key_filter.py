"""Filters of inserted keys have the same bits as those of pylance, so both detect conflicts."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.dataset.dataset import open_dataset
from lance_spark.mutations.rows.merge import KeyFilter, xxh64
from lance_spark.table.operations.base import BloomFilter

PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}
#: XXH64 with seed 0, by the reference implementation.
KNOWN = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"abc": 0x44BC2CF5AD770999,
    b"Nobody inspects the spammish repetition": 0xFBCEA83C8A378BF1,
}


@pytest.mark.parametrize("text", KNOWN, ids=len)
def test_hashes_of_the_reference_implementation(text: bytes) -> None:
    rows = np.frombuffer(text * 2, np.uint8).reshape(2, len(text))
    assert xxh64(rows).tolist() == [KNOWN[text]] * 2


def filter_of_pylance(path: Path, keys: dict[str, pa.Array]) -> tuple[tuple[int, ...], BloomFilter]:
    """Insert keys with pylance, and return the filter that it records."""
    fields = [
        pa.field(name, column.type, nullable=False, metadata=PRIMARY_KEY)
        for name, column in keys.items()
    ]
    rows = pa.table(list(keys.values()), schema=pa.schema(fields))
    dataset = lance.write_dataset(rows.slice(0, 0), path)
    merge = dataset.merge_insert(list(keys)).when_matched_update_all()
    merge.when_not_matched_insert_all().execute(rows)
    operation: Any = open_dataset(str(path)).read_transaction(2).operation
    inserted = operation.inserted_keys
    assert isinstance(inserted.keys, BloomFilter)
    return inserted.field_ids, inserted.keys


LENGTHS = pa.array(["x" * n + "é" * (n % 3) for n in range(71)])


@pytest.mark.parametrize(
    "keys",
    [
        {"a": pa.array([1, -7, 2**40, -(2**63)], pa.int64())},
        {"a": pa.array([0, -1, 77], pa.int32())},
        {"a": pa.array([3, 2**64 - 1], pa.uint64())},
        {"a": LENGTHS},
        {"a": LENGTHS.cast(pa.binary())},
        {"a": pa.array(["b", "xyz", ""]), "b": pa.array([5, 6, -7], pa.int64())},
    ],
    ids=["int64", "int32", "uint64", "string", "binary", "composite"],
)
def test_the_bits_are_those_of_pylance(tmp_path: Path, keys: dict[str, pa.Array]) -> None:
    field_ids, theirs = filter_of_pylance(tmp_path / "t", keys)
    batch = pa.record_batch(keys)
    complete = KeyFilter([column.type for column in keys.values()])
    complete.add(batch)
    assert complete.inserted(field_ids).keys == theirs
    parts = [KeyFilter([column.type for column in keys.values()]) for _ in range(2)]
    parts[0].add(batch.slice(0, 1))
    parts[1].add(batch.slice(1))
    parts[0].merge(parts[1])
    assert parts[0].inserted(field_ids) == complete.inserted(field_ids)
    assert parts[0].num_keys == complete.num_keys == batch.num_rows


def test_keys_without_bytes_may_be_any() -> None:
    filter_ = KeyFilter([pa.date32()])
    filter_.add(pa.record_batch({"a": pa.array([None], pa.date32())}))
    assert not any(filter_.inserted([0]).keys.bitmap)  # type: ignore[union-attr]
    filter_.add(pa.record_batch({"a": [datetime.date(2026, 1, 1)]}))
    assert set(filter_.inserted([0]).keys.bitmap) == {0xFF}  # type: ignore[union-attr]


def test_keys_with_a_null_are_not_added() -> None:
    filter_ = KeyFilter([pa.int64(), pa.string()])
    filter_.add(pa.record_batch({"a": [1, None], "b": pa.array([None, "x"])}))
    assert filter_.num_keys == 0
    first, second = KeyFilter([pa.int64()]), KeyFilter([pa.int64()])
    first.add(pa.record_batch({"a": [None, 1]}))
    second.add(pa.record_batch({"a": [2]}))
    assert not first.inserted([0]).may_share_key(second.inserted([0]))
    second.add(pa.record_batch({"a": [1]}))
    assert first.inserted([0]).may_share_key(second.inserted([0]))
