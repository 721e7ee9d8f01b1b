"""Lists: plainly encoded offsets, and the items in pages of their own.

A page of n lists holds n + 1 offsets, int32 of lists and int64 of large lists: list i is the items
of the *same batch* from offset i to offset i + 1. The page's length is n + 1. The item's field has
one page per batch with the items of that batch.

Validity is not stored: a null list is read as an empty list. pylance reads the same.

Specification: format/file/encoding of the legacy format, "Lists".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.meta import FieldReader
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v0_1.pages import (
    EncodedPages,
    FieldPages,
    Numbers,
    PagesReader,
    read_extents,
    spans_of,
)
from lance_spark.encoding.v2_1.fixed_width import ranges
from lance_spark.errors import CorruptFileError
from lance_spark.storage.source import ReadPlan


class ListPagesReader(PagesReader):
    """Reads lists or large lists; see `PagesReader`.

    - `item_bounds`: First item of each batch, and the number of all items.
    """

    def __init__(
        self,
        dtype: pa.DataType,
        pages: FieldPages,
        bounds: Numbers,
        items: FieldReader,
        item_bounds: Numbers,
        size: int,
    ) -> None:
        self._offset_dtype = np.int64 if pat.is_large_list(dtype) else np.int32
        self._items = items
        self._item_bounds = item_bounds
        super().__init__(dtype, pages, bounds, size, np.dtype(self._offset_dtype).itemsize * 8)

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        spans = spans_of(rows, self._bounds)
        extents = yield from read_extents(self._pages, spans, self._offset_dtype)
        num_items = np.diff(self._item_bounds)[spans.batch]
        if (extents.stops > num_items).any():
            position = int(np.argmax(extents.stops > num_items))
            raise CorruptFileError(
                f"batch {int(spans.batch[position])}: a list ends at item "
                f"{int(extents.stops[position])} of {int(num_items[position])}"
            )
        self._check_total(len(rows), extents.num_items, "items", self._offset_dtype)
        items = yield from self._items.read(
            self._item_rows(spans.batch, extents.starts, extents.stops)
        )
        buffers = [None, pa.py_buffer(extents.offsets(self._offset_dtype))]
        return pa.Array.from_buffers(self._dtype, len(rows), buffers, children=[items])

    def _item_rows(self, batch: Numbers, starts: Numbers, stops: Numbers) -> Rows:
        starts, stops = starts + self._item_bounds[batch], stops + self._item_bounds[batch]
        non_empty = stops > starts
        starts, stops = starts[non_empty], stops[non_empty]
        if not len(starts):
            return range(0)
        if _has_no_bytes(self._dtype.value_type):
            # These items have no bytes, and a corrupt page may claim any number of them, so no
            # memory is allocated for each.
            return range(int((stops - starts).sum()))
        if (starts[1:] == stops[:-1]).all():
            return range(int(starts[0]), int(stops[-1]))
        return ranges(starts, stops - starts)


def encode_offsets(
    array: pa.Array, cuts: Numbers, start: int
) -> tuple[EncodedPages, pa.Array, Numbers]:
    """Encode the offsets of lists.

    - `array`: Lists or large lists without nulls.
    - `cuts`: First list of each page, and the number of all lists.
    - `start`: Position of the first page in the file.

    Returns the pages, the items of all lists, and the first item of each page with the number of
    all items.
    """
    dtype = np.dtype(np.int64 if pat.is_large_list(array.type) else np.int32)
    offsets = array.offsets.to_numpy() if len(array) else np.zeros(1, dtype)
    entries = np.diff(cuts) + 1
    firsts = offsets[cuts]
    stored = offsets[ranges(cuts[:-1], entries)] - np.repeat(firsts[:-1], entries)
    data = stored.astype(dtype.newbyteorder("<"), copy=False).view(np.uint8)
    positions = start + (np.cumsum(entries) - entries) * dtype.itemsize
    items = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    item_cuts = (firsts - firsts[0]).astype(np.int64)
    return EncodedPages(FieldPages(positions, entries), [data]), items, item_cuts


def _has_no_bytes(dtype: pa.DataType) -> bool:
    if pat.is_struct(dtype):
        return all(_has_no_bytes(dtype.field(i).type) for i in range(dtype.num_fields))
    return bool(pat.is_null(dtype))
