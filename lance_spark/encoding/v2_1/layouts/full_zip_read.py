"""Reads full-zip pages: wide values one by one, each with its levels in front.

Buffer 0 holds the entries back to back:

================  ================================================================================
part of an entry  content
================  ================================================================================
control word      none if the page has no levels, else 1, 2 or 4 bytes, little-endian:
                  ``repetition << bits_def | definition``
length            variable width only, and only if the definition is 0: bits_per_offset / 8 bytes
value             fixed width: bits_per_value / 8 bytes if the entry is visible, null or not;
                  variable width: `length` bytes
================  ================================================================================

Buffer 1, the repetition index, exists for variable width and for lists. It has the start of each
row in buffer 0, and the end, as ``rows + 1`` numbers of 1, 2, 4 or 8 bytes, as few as possible. A
row without lists is an entry. A read of few rows takes two reads: their numbers in the index, and
their bytes. A short index is kept, and a whole page is read at once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import from_block
from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock, VariableWidthBlock
from lance_spark.encoding.levels import (
    IndexArray,
    LevelArray,
    Levels,
    max_visible_definition,
    parse_layers,
)
from lance_spark.encoding.meta import PageMeta
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.codec import decode_values
from lance_spark.encoding.v2_1.fixed_width import take_ranges
from lance_spark.encoding.v2_1.layouts.fetched_rows import WideRows
from lance_spark.encoding.v2_1.layouts.full_zip_walk import (
    FullZipEntries,
    Grid,
    control_bytes,
    walk_rows,
)
from lance_spark.encoding.v2_1.leaf_columns import Leaf
from lance_spark.encoding.v2_1.page import (
    Fetched,
    PageRows,
    buffer_at,
    check_layers,
    fetch,
    fetch_rows,
    joined,
    little_endian,
)
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan

#: A longer index of rows is not read as a whole if fewer than one row in `_FEW` is requested.
_SHORT_INDEX = 4 * 1024
_FEW = 64


class FullZipPage:
    """Reads rows of one full-zip page; keeps the repetition index once it has read all of it.

    Raises CorruptFileError: the layout does not fit the column or the page's buffers.
    """

    def __init__(self, layout: pb.FullZipLayout, meta: PageMeta, leaf: Leaf) -> None:
        self.layout = layout
        self._meta = meta
        self._dtype = leaf.field.type
        self._layers = check_layers(parse_layers(layout.layers), leaf)
        self._has_lists = any(layer.is_list for layer in self._layers)
        if layout.bits_rep > 16 or layout.bits_def > 16:
            raise CorruptFileError(f"levels of {layout.bits_rep} and {layout.bits_def} bits")
        self._variable = layout.WhichOneof("details") == "bits_per_offset"
        width = layout.bits_per_offset if self._variable else layout.bits_per_value
        if width % 8 or not width or (self._variable and width not in (8, 16, 32, 64)):
            raise CorruptFileError(f"values or lengths of {width} bits")
        self._grid = Grid(
            control=control_bytes(layout.bits_rep, layout.bits_def),
            bits_def=layout.bits_def,
            width=width // 8,
            variable=self._variable,
            max_visible=max_visible_definition(self._layers),
        )
        if self._has_lists and not layout.bits_rep:
            raise CorruptFileError("a page below a list has no repetition levels")
        self._starts: IndexArray | None = None

    @property
    def kept_bytes(self) -> int:
        """Bytes of the index of rows."""
        return 0 if self._starts is None else self._starts.nbytes

    def read(self, rows: Rows) -> ReadPlan[PageRows]:
        """Plan the reading of some rows: one round, after another round for the index of rows if
        the page has one.

        A whole page takes one round.
        """
        if not self._variable and not self._has_lists:
            return self.decode_table((yield from self._fetch_fixed(rows)))
        fetched = yield from self._fetch_indexed(rows)
        entries = self._entries(fetched)
        if self._variable:
            starts = entries.value_at
            # Null values have no bytes.
            strings = take_ranges(fetched.data, starts, starts + entries.value_size)
            return self._finish(entries.control, VariableWidthBlock(*strings))
        return self._finish(entries.control, self._gather_fixed(fetched.data, entries))

    def fetch(self, rows: IndexArray) -> ReadPlan[WideRows | PageRows]:
        """Plan the fetching of few rows, which are decoded together with those of other pages."""
        if self._variable or self._has_lists:
            return (yield from self.read(rows))
        stride = self._grid.control + self._grid.width
        start = self._entries_range(stride).offset
        buffers = yield [ByteRange(start + row * stride, stride) for row in rows.tolist()]
        return WideRows(self, joined(buffers).reshape(len(rows), stride))

    def decode_table(self, table: Bytes) -> PageRows:
        """Decode the entries of rows, as the rows of a table: values of fixed width."""
        control, values = self._split_fixed(table)
        return self._finish(control, FixedWidthBlock(values, self._grid.width * 8, len(table)))

    # Fixed width without lists: the place of a row is known

    def _entries_range(self, stride: int) -> ByteRange:
        """Return the range of all entries, of `stride` bytes each."""
        page_range = buffer_at(self._meta, 0)
        if page_range.length != stride * self._meta.num_rows:
            raise CorruptFileError(
                f"{self._meta.num_rows} rows of {stride} bytes in a buffer of {page_range.length}"
            )
        return page_range

    def _fetch_fixed(self, rows: Rows) -> ReadPlan[Bytes]:
        """Plan the reading of the entries of rows, as the rows of a table."""
        stride = self._grid.control + self._grid.width
        page_range = self._entries_range(stride)
        if isinstance(rows, range):
            (data,) = yield [ByteRange(page_range.offset + rows.start * stride, len(rows) * stride)]
            return data.reshape(len(rows), stride)
        fetched = yield from fetch_rows(page_range.offset, stride, rows, stride)
        if len(fetched.data) == len(rows) * stride:
            return fetched.data.reshape(len(rows), stride)
        return np.lib.stride_tricks.sliding_window_view(fetched.data, stride)[fetched.starts]

    def _split_fixed(self, table: Bytes) -> tuple[IndexArray | None, Bytes]:
        grid = self._grid
        if not grid.control:
            return None, np.ascontiguousarray(table).reshape(-1)
        words = np.ascontiguousarray(table[:, : grid.control]).reshape(-1)
        values = np.ascontiguousarray(table[:, grid.control :]).reshape(-1)
        return little_endian(words, grid.control), values

    # All other pages: the place of a row is in the index

    def _fetch_indexed(self, rows: Rows) -> ReadPlan[Fetched]:
        data, index = buffer_at(self._meta, 0), buffer_at(self._meta, 1)
        count = self._meta.num_rows
        starts = self._starts
        if starts is None:
            if len(rows) == count:
                raw, everything = yield [index, data]
                starts = self._starts = self._parse_index(raw)
                return Fetched(everything, starts[:-1], starts[1:])
            if index.length > _SHORT_INDEX and len(rows) < count // _FEW:
                return (yield from self._fetch_few(rows))
            (raw,) = yield [index]
            starts = self._starts = self._parse_index(raw)
        if isinstance(rows, range):
            first, last = rows.start, rows.stop
            return (yield from fetch(data.offset, starts[first:last], starts[first + 1 : last + 1]))
        return (yield from fetch(data.offset, starts[rows], starts[rows + 1]))

    def _fetch_few(self, rows: Rows) -> ReadPlan[Fetched]:
        data, index = buffer_at(self._meta, 0), buffer_at(self._meta, 1)
        width = self._index_width()
        fetched = yield from fetch_rows(index.offset, width, rows, 2 * width)
        positions = fetched.starts[:, None] + np.arange(2 * width)
        edges = little_endian(fetched.data[positions].reshape(-1), width).reshape(-1, 2)
        starts, ends = edges[:, 0], edges[:, 1]
        if (starts > ends).any() or (ends[:-1] > starts[1:]).any() or ends[-1] > data.length:
            raise CorruptFileError("the index of rows does not go through the page")
        return (yield from fetch(data.offset, starts, ends))

    def _index_width(self) -> int:
        count, length = self._meta.num_rows + 1, buffer_at(self._meta, 1).length
        if length % count or length // count not in (1, 2, 4, 8):
            raise CorruptFileError(f"an index of {length} bytes for {count - 1} rows")
        return length // count

    def _parse_index(self, data: Bytes) -> IndexArray:
        size = buffer_at(self._meta, 0).length
        starts = little_endian(data, self._index_width())
        if starts[0] != 0 or starts[-1] != size or (np.diff(starts) < 0).any():
            raise CorruptFileError("the index of rows does not go through the page")
        return starts

    def _entries(self, fetched: Fetched) -> FullZipEntries:
        entries = walk_rows(self._grid, fetched.data, fetched.starts, fetched.ends)
        if self._has_lists:
            return entries
        if len(entries.control) != len(fetched.starts):
            raise CorruptFileError("a row without lists has not exactly one value")
        return entries

    def _gather_fixed(self, data: Bytes, entries: FullZipEntries) -> FixedWidthBlock:
        width = self._grid.width
        positions = entries.value_at
        if len(positions) and len(data) >= width:
            windows = np.ndarray((len(data) - width + 1,), f"V{width}", buffer=data, strides=(1,))
            values = windows[positions].view(np.uint8)
        else:
            values = np.zeros(0, np.uint8)
        return FixedWidthBlock(values, width * 8, len(positions))

    def _finish(self, control: IndexArray | None, block: DataBlock) -> PageRows:
        layout = self.layout
        repetition: LevelArray | None = None
        definition: LevelArray | None = None
        entries = block.num_values if control is None else len(control)
        if control is not None and layout.bits_def:
            definition = (control & ((1 << layout.bits_def) - 1)).astype(np.uint16)
        if control is not None and self._has_lists:
            repetition = (control >> layout.bits_def).astype(np.uint16)
        levels = Levels(self._layers, entries, repetition, definition)
        levels.check()
        values: pa.Array = from_block(decode_values(layout.value_compression, block), self._dtype)
        if len(values) != block.num_values:
            raise CorruptFileError(f"{len(values)} values where there must be {block.num_values}")
        return PageRows(values, levels)
