"""Few rows of a full-zip page: the reader fetches only their numbers of a long index, and refuses
damaged numbers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.errors import CorruptFileError
from lance_spark.file.reader import FileReader
from tests.file.sources import MemorySource, file_bytes

ROWS = 6_000
KINDS = ["strings", "lists"]


def column(column_name: str) -> pa.Array:
    rng = np.random.default_rng(1)
    if column_name == "strings":
        return pa.array([None if at % 7 == 3 else "x" * (at % 50) for at in range(ROWS)])
    sizes = rng.integers(0, 4, ROWS)
    items = pa.array(rng.integers(0, 99, int(sizes.sum())))
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(sizes)), pa.int32()), items)


def written(array: pa.Array) -> tuple[bytes, int, int]:
    """Return a file of one full-zip page, the place of its index, and the width of a number in
    it.
    """
    key = {"lance-encoding:structural-encoding": "fullzip"}
    dtype = array.type
    if pa.types.is_list(dtype):
        dtype = pa.list_(dtype.value_field.with_metadata(key))
        array = array.cast(dtype)
    schema = pa.schema([pa.field("c", dtype, metadata=key)])
    data = file_bytes(pa.record_batch([array], schema=schema))
    reader = FileReader.open(MemorySource(data))
    reader.read(reader.schema.fields, range(1))
    (page,) = reader._columns[0].pages
    assert len(page.buffers) == 2
    assert page.buffers[1].length > 8 * 1024
    return data, page.buffers[1].offset, page.buffers[1].length // (ROWS + 1)


def take(data: bytes, rows: object) -> tuple[pa.Array, MemorySource]:
    source = MemorySource(data)
    reader = FileReader.open(source)
    source.calls.clear()
    (array,) = reader.read(reader.schema.fields, rows)  # type: ignore[arg-type]
    return array, source


@pytest.mark.parametrize("column_name", KINDS)
def test_rows_and_ranges(column_name: str) -> None:
    array = column(column_name)
    data, _, width = written(array)
    for rows in (
        np.array([0]),
        np.array([ROWS - 1]),
        np.array([1, 2, 3, 4]),
        np.array([0, 17, 18, 3_000, ROWS - 1]),
        np.arange(0, ROWS, 100),
        range(5),
        range(ROWS - 3, ROWS),
        range(1_000, 1_050),
    ):
        wanted = (
            array.take(pa.array(rows))
            if not isinstance(rows, range)
            else array[slice(rows.start, rows.stop)]
        )
        result, source = take(data, rows)
        assert result.equals(wanted)
        index, values = source.calls
        assert sum(part.length for part in index) <= 2 * width * len(rows) + 4 * 1024 * (
            len(rows) - 1
        ) * (not isinstance(rows, range))
        assert len(values) <= len(rows)
    # For all rows, or many, the reader fetches the whole index.
    result, source = take(data, range(ROWS))
    assert result.equals(array)
    assert [len(call) for call in source.calls] == [2]
    rows = np.arange(0, ROWS, 3)
    assert take(data, rows)[0].equals(array.take(pa.array(rows)))


@pytest.mark.parametrize("column_name", KINDS)
@pytest.mark.parametrize("rows", [[1_000], [999, 1_000], [10, 1_000, 2_000]])
def test_numbers_that_make_no_sense(column_name: str, rows: list[int]) -> None:
    data, at, width = written(column(column_name))
    place = at + 1_000 * width
    (start, end) = np.frombuffer(data[place : place + 2 * width], f"<u{width}").tolist()
    top = (1 << 8 * width) - 1
    for first, last in (
        (end + 1, end),
        (start, start),
        (start, top),
        (top, top),
        (0, top),
        (end + 9, start),
    ):
        broken = bytearray(data)
        broken[place : place + 2 * width] = np.array([first, last], f"<u{width}").tobytes()
        with pytest.raises(CorruptFileError, match="column 'c"):
            take(bytes(broken), np.array(rows))
