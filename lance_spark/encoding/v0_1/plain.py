"""Plain encoding: values of a fixed width.

==========================  =============================================================
type                        bytes of a page of n values
==========================  =============================================================
bool                        n bits, the lowest bit of a byte first
fixed-size list of m bools  n * m bits
numbers, dates, times,      n values of the width of the Arrow type, little-endian
decimals, fixed-size
binary
fixed-size list of m items  n * m items
null                        none
==========================  =============================================================

Validity is not stored: a null is read as the content of its slot in the writer's array, usually 0
or false. pylance reads the same.

Specification: format/file/encoding of the legacy format, "Plain".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import (
    fixed_width,
    flags_of,
    from_bytes,
    innermost_items,
    vector_items,
)
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v0_1.pages import (
    EncodedPages,
    FieldPages,
    Numbers,
    PagesReader,
    Spans,
    read_ranges,
    read_values,
    spans_of,
)
from lance_spark.encoding.v2_1.fixed_width import ranges
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.storage.source import Bytes, ReadPlan


class PlainReader(PagesReader):
    """Reads values of a fixed width; see `PagesReader`.

    Raises UnsupportedTypeError: the type has no fixed width.
    """

    def __init__(self, dtype: pa.DataType, pages: FieldPages, bounds: Numbers, size: int) -> None:
        self._bits = plain_bits(dtype)
        _, self._per_row = innermost_items(dtype)
        self._is_bits = self._bits == self._per_row
        super().__init__(dtype, pages, bounds, size, self._bits)

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        spans = spans_of(rows, self._bounds)
        if len(rows) * self._per_row > np.iinfo(np.int64).max // 256:
            raise InvalidInputError(
                f"{len(rows)} values of type {self._dtype} are too many to read"
            )
        if self._is_bits:
            data = yield from self._read_bits(spans)
        else:
            data = yield from read_values(self._pages, spans, self._bits // 8)
        return _build(self._dtype, len(rows), data)

    def _read_bits(self, spans: Spans) -> ReadPlan[Bytes]:
        first, last = spans.start * self._per_row, spans.stop * self._per_row
        position = self._pages.positions[spans.batch]
        sizes = (last + 7) // 8 - first // 8
        data = yield from read_ranges(position + first // 8, sizes)
        if not (first % 8).any() and not (last[:-1] % 8).any():
            return data
        bits = np.unpackbits(data, bitorder="little")
        begins = (np.cumsum(sizes) - sizes) * 8 + first % 8
        return np.packbits(bits[ranges(begins, last - first)], bitorder="little")


def encode_plain(array: pa.Array, cuts: Numbers, start: int) -> EncodedPages:
    """Encode values of a fixed width.

    - `array`: Without nulls, or of type null.
    - `cuts`: First value of each page, and the number of all values.
    - `start`: Position of the first page in the file.

    Raises UnsupportedTypeError: the type has no fixed width.
    """
    lengths = np.diff(cuts)
    if pat.is_null(array.type):
        return EncodedPages(FieldPages(np.full(len(lengths), start, np.int64), lengths))
    values, per_row = array, 1
    while pat.is_fixed_size_list(values.type):
        per_row *= values.type.list_size
        values = vector_items(values)
    bits = plain_bits(array.type)
    ends = cuts * per_row
    if bits == per_row:
        data, begins = _pack_bits(values, ends)
    else:
        width = bits // per_row // 8
        first, last = values.offset * width, (values.offset + len(values)) * width
        data = _bytes_of(values)[first:last]
        begins = ends[:-1] * width
    return EncodedPages(FieldPages(start + begins, lengths), [data])


def plain_bits(dtype: pa.DataType) -> int:
    """Return the bits of one value of a type.

    Raises UnsupportedTypeError: the type has no fixed width, or a width of 0.
    """
    item, per_row = innermost_items(dtype)
    bits = fixed_width(item) * per_row
    if not bits or pat.is_nested(item) or pat.is_dictionary(item):
        raise UnsupportedTypeError(f"file version 0.1 cannot store values of type {dtype}")
    return bits


def _pack_bits(values: pa.BooleanArray, cuts: Numbers) -> tuple[Bytes, Numbers]:
    """Return the bits of all pages, each from a whole byte on, and where in them each begins."""
    sizes = (np.diff(cuts) + 7) // 8
    begins = np.cumsum(sizes) - sizes
    flags = flags_of(_bytes_of(values), values.offset, len(values))
    if not (cuts[1:-1] % 8).any():
        return np.packbits(flags, bitorder="little"), begins
    padded = np.zeros(int(sizes.sum()) * 8, np.bool_)
    padded[ranges(begins * 8, np.diff(cuts))] = flags
    return np.packbits(padded, bitorder="little"), begins


def _bytes_of(array: pa.Array) -> Bytes:
    buffer = array.buffers()[1]
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


class NullReader:
    """Reads nulls, which have no bytes."""

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        return pa.nulls(len(rows))
        yield


def _build(dtype: pa.DataType, count: int, data: Bytes) -> pa.Array:
    if pat.is_fixed_size_list(dtype):
        items = _build(dtype.value_type, count * dtype.list_size, data)
        return pa.Array.from_buffers(dtype, count, [None], children=[items])
    return from_bytes(data, count, dtype)
