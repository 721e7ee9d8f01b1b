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

There is no validity: what was null comes back as what the writer's array had in that slot, 0 as a rule, and false for bools. pylance
reads the same.

Specification: format/file/encoding of the legacy format, "Plain".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import fixed_width
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v0_1.pages import (
    Numbers,
    Pages,
    Spans,
    read_ranges,
    read_values,
    spans_of,
)
from lance_spark.encoding.v2_1.fixed_width import ranges
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.storage.source import Bytes, ReadPlan


class PlainReader:
    """Reads values of a fixed width.

    Parameters
    ----------
    kind : pa.DataType
    pages : Pages
    bounds : int64 array
        First row of each page, and the number of all rows.
    size : int
        Of the file in bytes.

    Raises
    ------
    CorruptFileError
        A page lies outside the file.
    UnsupportedTypeError
        The type has no fixed width.
    """

    def __init__(self, kind: pa.DataType, pages: Pages, bounds: Numbers, size: int) -> None:
        self._kind = kind
        self._pages = pages
        self._bounds = bounds
        item, self._per_row = _innermost(kind)
        bits = fixed_width(item)
        if not bits or pat.is_nested(item) or pat.is_dictionary(item):
            raise UnsupportedTypeError(f"file version 0.1 cannot store values of type {kind}")
        self._bits = bits * self._per_row
        self._is_bits = bits == 1
        pages.check(self._bits, size)

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        spans = spans_of(rows, self._bounds)
        if len(rows) * self._per_row > np.iinfo(np.int64).max // 256:
            raise InvalidInputError(f"{len(rows)} values of type {self._kind} are too many to read")
        if self._is_bits:
            data = yield from self._read_bits(spans)
        else:
            data = yield from read_values(self._pages, spans, self._bits // 8)
        return _build(self._kind, len(rows), data)

    def _read_bits(self, spans: Spans) -> ReadPlan[Bytes]:
        first, last = spans.start * self._per_row, spans.stop * self._per_row
        at = self._pages.positions[spans.batch]
        sizes = (last + 7) // 8 - first // 8
        data = yield from read_ranges(at + first // 8, sizes)
        if not (first % 8).any() and not (last[:-1] % 8).any():
            return data
        bits = np.unpackbits(data, bitorder="little")
        begins = (np.cumsum(sizes) - sizes) * 8 + first % 8
        return np.packbits(bits[ranges(begins, last - first)], bitorder="little")


class NullReader:
    """Reads nulls, which have no bytes."""

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        return pa.nulls(len(rows))
        yield


def _innermost(kind: pa.DataType) -> tuple[pa.DataType, int]:
    per_row = 1
    while pat.is_fixed_size_list(kind):
        per_row *= kind.list_size
        kind = kind.value_type
    return kind, per_row


def _build(kind: pa.DataType, count: int, data: Bytes) -> pa.Array:
    if pat.is_fixed_size_list(kind):
        items = _build(kind.value_type, count * kind.list_size, data)
        return pa.Array.from_buffers(kind, count, [None], children=[items])
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])
