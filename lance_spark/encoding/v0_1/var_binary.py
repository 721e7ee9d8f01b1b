"""Variable-width encoding: strings and bytes.

==============  =====  ==================================================================
part of a page  bytes  content
==============  =====  ==================================================================
values                 the bytes of all values, back to back; they stand before the offsets as
                       a rule, but nothing depends on it
offsets         8 n+8  n + 1 int64: value i is the bytes of the *file* from offset i to offset
                       i + 1
==============  =====  ==================================================================

The position of the page is the position of the offsets, its length is n.

Validity is not stored. In a nullable field, nulls and empty values are read as null; in a field
that is not nullable, as empty values. A null is read as the bytes of its slot in the writer's
array, usually none. pylance reads the same.

Specification: format/file/encoding of the legacy format, "Variable-length binary".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import bitmap, is_text, offset_type, strings_of
from lance_spark.encoding.blocks import VariableWidthBlock
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v0_1.pages import (
    EncodedPages,
    FieldPages,
    Numbers,
    PagesReader,
    read_extents,
    read_ranges,
    spans_of,
)
from lance_spark.encoding.v2_1.fixed_width import ranges
from lance_spark.errors import CorruptFileError
from lance_spark.storage.source import Bytes, ReadPlan

_OFFSET_BITS = 64


class VarBinaryReader(PagesReader):
    """Reads strings or bytes, also large types; see `PagesReader`.

    - `nullable`: Whether empty values are nulls.
    """

    def __init__(
        self, dtype: pa.DataType, nullable: bool, pages: FieldPages, bounds: Numbers, size: int
    ) -> None:
        super().__init__(dtype, pages, bounds, size, _OFFSET_BITS, extra=1)
        self._nullable = nullable

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
        self._check_total(len(rows), extents.num_items, "bytes", dtype)
        data = yield from read_ranges(extents.starts, extents.stops - extents.starts)
        mask = None
        if self._nullable:
            valid = extents.lengths != 0
            mask = None if valid.all() else bitmap(valid)
        buffers = [mask, pa.py_buffer(extents.offsets(dtype)), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._dtype, len(rows), buffers)


def encode_var_binary(array: pa.Array, cuts: Numbers, start: int) -> EncodedPages:
    """Encode strings or bytes; each page has its values first, and then its offsets.

    - `array`: Nulls are stored as empty values.
    - `cuts`: First value of each page, and the number of all values.
    - `start`: Position of the bytes of the first page in the file.
    """
    block = _stored(array)
    offsets = block.offsets.astype(np.int64, copy=False)
    firsts = offsets[cuts]
    lengths = np.diff(cuts)
    entries = lengths + 1
    # The offsets of all earlier pages lie between the first values and the values of a page.
    before = (np.cumsum(entries) - entries) * (_OFFSET_BITS // 8)
    shift = start - offsets[0] + before
    stored = offsets[ranges(cuts[:-1], entries)] + np.repeat(shift, entries)
    parts = stored.astype("<i8", copy=False).view(np.uint8)
    position = np.concatenate([before, [len(parts)]])
    buffers: list[Bytes] = []
    for page in range(len(lengths)):
        buffers.append(block.data[firsts[page] : firsts[page + 1]])
        buffers.append(parts[position[page] : position[page + 1]])
    return EncodedPages(FieldPages(firsts[1:] + shift, lengths), buffers)


def _stored(array: pa.Array) -> VariableWidthBlock:
    """Return values with nulls as empty values."""
    block = strings_of(array)
    if array.null_count:
        # The slot of a null may hold bytes, which would be read as a value.
        null = array.is_null().to_numpy(zero_copy_only=False)
        if np.diff(block.offsets)[null].any():
            return strings_of(array.fill_null("" if is_text(array.type) else b""))
    return block
