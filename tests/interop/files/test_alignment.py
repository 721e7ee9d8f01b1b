"""Buffers of rows that are read: users of Arrow in Rust fail to import some that are not aligned."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark

#: Types, and the multiple of bytes at which the buffer of their values must begin.
ALIGNMENTS = [
    (pa.decimal128(30, 2), 16),
    (pa.decimal256(60, 2), 16),
    (pa.int64(), 8),
    (pa.float64(), 8),
    (pa.timestamp("us"), 8),
    (pa.int32(), 4),
    (pa.int16(), 2),
]


def values_of(dtype: pa.DataType, count: int, nulls: bool) -> pa.Array:
    numbers = [None if nulls and i % 3 == 0 else i * 7919 % 10_007 for i in range(count)]
    if pa.types.is_decimal(dtype):
        return pa.array([None if i is None else Decimal(i) for i in numbers], dtype)
    return pa.array(numbers, pa.int64()).cast(dtype, safe=False)


def value_buffers(array: pa.Array) -> Iterator[pa.Buffer]:
    """Yield the buffers of the values of fixed width in an array."""
    if isinstance(array, pa.StructArray):
        for number in range(array.type.num_fields):
            yield from value_buffers(array.field(number))
    elif isinstance(array, pa.ListArray | pa.FixedSizeListArray):
        yield from value_buffers(array.values)
    else:
        yield array.buffers()[1]


@pytest.mark.parametrize("nulls", [False, True], ids=["", "nulls"])
@pytest.mark.parametrize("count", [3, 1_000])
@pytest.mark.parametrize("version", ["legacy", "2.0", "2.1", "2.2", "2.3"])
def test_rows_can_be_imported(tmp_path: Path, version: str, count: int, nulls: bool) -> None:
    columns: dict[str, Any] = {"s": ["x" * (i % 5 + 1) for i in range(count)]}
    for number, (dtype, _) in enumerate(ALIGNMENTS):
        values = values_of(dtype, count, nulls and version != "legacy")
        columns[f"c{number}"] = values
        columns[f"t{number}"] = pa.StructArray.from_arrays([values], ["x"])
        columns[f"l{number}"] = pa.ListArray.from_arrays(list(range(count + 1)), values)
    rows = pa.table(columns)
    for client in (lance, lance_spark):
        path = str(tmp_path / client.__name__)
        client.write_dataset(rows, path, data_storage_version=version)
        dataset = lance_spark.open_dataset(path)
        chosen = dataset.take([count - 1, 0])
        filtered = dataset.to_table(filter="c2 >= 0")
        for result in (dataset.to_table(), chosen, filtered):
            for number, (_, unit) in enumerate(ALIGNMENTS):
                for name in (f"c{number}", f"t{number}", f"l{number}"):
                    for chunk in result[name].chunks:
                        addresses = [buffer.address for buffer in value_buffers(chunk)]
                        assert [address % unit for address in addresses] == [0] * len(addresses)
        imported = lance.write_dataset(dataset.to_table(), f"{path}_copy")
        assert imported.to_table() == rows
