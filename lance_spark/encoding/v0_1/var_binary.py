"""Variable-width encoding: strings and bytes.

==============  =====  ==================================================================
part of a page  bytes  content
==============  =====  ==================================================================
values                 the bytes of all values, back to back; they stand before the offsets as
                       a rule, but nothing depends on it
offsets         8 n+8  n + 1 int64: value i is the bytes of the *file* from offset i to offset
                       i + 1
==============  =====  ==================================================================

The page's position is that of the offsets, its length is n.

There is no validity: in a nullable field an empty value is read as null, whether it was one or an
empty string; in a field that is not nullable it is an empty value. A null comes back as the bytes
that the writer's array had in that slot, none as a rule. pylance reads the same.

Specification: format/file/encoding of the legacy format, "Variable-length binary".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import bitmap, offset_type
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v0_1.pages import (
    EncodedPages,
    Numbers,
    Pages,
    read_extents,
    read_ranges,
    spans_of,
)
from lance_spark.encoding.v2_1.fixed_width import ranges
from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.storage.source import Bytes, ReadPlan

_OFFSET_BITS = 64


class VarBinaryReader:
    """Reads strings or bytes.

    Parameters
    ----------
    dtype : pa.DataType
        A string or binary type, large ones included.
    nullable : bool
        Whether empty values are nulls.
    pages : Pages
    bounds : int64 array
        First row of each page, and the number of all rows.
    size : int
        Of the file in bytes.

    Raises
    ------
    CorruptFileError
        A page lies outside the file.
    """

    def __init__(
        self, dtype: pa.DataType, nullable: bool, pages: Pages, bounds: Numbers, size: int
    ) -> None:
        self._dtype = dtype
        self._nullable = nullable
        self._pages = pages
        self._bounds = bounds
        self._size = size
        pages.check(_OFFSET_BITS, size, extra=1)

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        spans = spans_of(rows, self._bounds)
        extents = yield from read_extents(self._pages, spans, np.int64)
        bad = extents.stops > self._size
        if bad.any():
            position = int(np.argmax(bad))
            raise CorruptFileError(
                f"batch {int(spans.batch[position])}: a value ends at byte "
                f"{int(extents.stops[position])} of a file of {self._size}"
            )
        dtype = offset_type(self._dtype)
        total = extents.num_items
        if total > np.iinfo(dtype).max:
            raise InvalidInputError(
                f"{len(rows)} rows have {total} bytes, which do not fit one array of type "
                f"{self._dtype}: "
                "read fewer rows at a time"
            )
        data = yield from read_ranges(extents.starts, extents.stops - extents.starts)
        mask = None
        if self._nullable:
            valid = extents.lengths != 0
            mask = None if valid.all() else bitmap(valid)
        buffers = [mask, pa.py_buffer(extents.offsets(dtype)), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._dtype, len(rows), buffers)


def encode_var_binary(array: pa.Array, cuts: Numbers, start: int) -> EncodedPages:
    """Encode strings or bytes; each page has its values first, and then its offsets.

    Parameters
    ----------
    array : pyarrow.Array
        Nulls are stored as empty values.
    cuts : int64 array
        First value of each page, and the number of all values.
    start : int
        Position of the bytes of the first page in the file.
    """
    offsets, data = _extents(array)
    firsts = offsets[cuts]
    lengths = np.diff(cuts)
    entries = lengths + 1
    # The offsets of all earlier pages lie between the values of a page and the first values.
    before = (np.cumsum(entries) - entries) * (_OFFSET_BITS // 8)
    shift = start - offsets[0] + before
    stored = offsets[ranges(cuts[:-1], entries)] + np.repeat(shift, entries)
    parts = stored.astype("<i8", copy=False).view(np.uint8)
    position = np.concatenate([before, [len(parts)]])
    buffers: list[Bytes] = []
    for page in range(len(lengths)):
        buffers.append(data[firsts[page] : firsts[page + 1]])
        buffers.append(parts[position[page] : position[page + 1]])
    return EncodedPages(Pages(firsts[1:] + shift, lengths), buffers)


def _extents(array: pa.Array) -> tuple[Numbers, Bytes]:
    """Return the offsets of values and the bytes that these point into; nulls are empty."""
    offsets = _offsets(array)
    if array.null_count:
        # The slot of a null may hold bytes, which would be read as a value.
        null = array.is_null().to_numpy(zero_copy_only=False)
        if np.diff(offsets)[null].any():
            array = array.fill_null(b"" if _holds_bytes(array.type) else "")
            offsets = _offsets(array)
    buffer = array.buffers()[2]
    data = np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    return offsets, data


def _offsets(array: pa.Array) -> Numbers:
    dtype = offset_type(array.type)
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(1, np.int64)
    offsets = np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array) + 1]
    return offsets.astype(np.int64, copy=False)


def _holds_bytes(dtype: pa.DataType) -> bool:
    return bool(pat.is_binary(dtype) or pat.is_large_binary(dtype))
