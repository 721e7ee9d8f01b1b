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

There is no validity: in a nullable field an empty value is read as null, whether it was one or an empty string; in a field that is not
nullable it is an empty value. A null comes back as the bytes that the writer's array had in that slot, none as a rule. pylance reads
the same.

Specification: format/file/encoding of the legacy format, "Variable-length binary".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import bitmap, offset_type
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v0_1.pages import Numbers, Pages, read_extents, read_ranges, spans_of
from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.storage.source import ReadPlan

_OFFSET_BITS = 64


class VarBinaryReader:
    """Reads strings or bytes.

    Parameters
    ----------
    kind : pa.DataType
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
        self, kind: pa.DataType, nullable: bool, pages: Pages, bounds: Numbers, size: int
    ) -> None:
        self._kind = kind
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
            at = int(np.argmax(bad))
            raise CorruptFileError(
                f"batch {int(spans.batch[at])}: a value ends at byte {int(extents.stops[at])} of a file of {self._size}"
            )
        dtype = offset_type(self._kind)
        total = extents.num_items
        if total > np.iinfo(dtype).max:
            raise InvalidInputError(
                f"{len(rows)} rows have {total} bytes, which do not fit one array of type {self._kind}: "
                "read fewer rows at a time"
            )
        data = yield from read_ranges(extents.starts, extents.stops - extents.starts)
        mask = None
        if self._nullable:
            valid = extents.lengths != 0
            mask = None if valid.all() else bitmap(valid)
        buffers = [mask, pa.py_buffer(extents.offsets(dtype)), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._kind, len(rows), buffers)
