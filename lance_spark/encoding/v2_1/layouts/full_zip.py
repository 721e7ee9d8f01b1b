"""Full-zip pages: wide values one by one, each with its levels in front."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

import numpy as np
import pyarrow as pa

from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock, VariableWidthBlock, from_block
from lance_spark.encoding.levels import (
    BoolArray,
    IndexArray,
    LevelArray,
    Levels,
    layer_numbers,
    max_definition,
    max_repetition,
    max_visible_definition,
    parse_layers,
)
from lance_spark.encoding.meta import EncodedPage, PageMeta
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.codec import bounds, decode_values, take_pieces, take_ranges
from lance_spark.encoding.v2_1.layouts.fetched_rows import WideRows
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
from lance_spark.encoding.v2_1.shred import LeafColumn
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan

# --------------------------------------------------------------------------------------------------
# Entries of full-zip rows: their positions, control words and lengths.
#
# Most rows of fixed width are recognised at once: their length fits entries that all have a value,
# or a single entry without one, and the levels at these positions agree. The length of any other
# entry is stored in the entry itself, so all other rows are walked in parallel: one step takes the
# next entry of each unfinished row. Entries of fixed width mostly have one stride, so a step looks
# several strides ahead and takes all entries up to the first short one. When few rows are left,
# each of them is walked alone.

#: Number of entries that one step looks at, over all rows.
_LOOK_AHEAD = 1 << 16
#: Formats of numbers of some bytes.
_NUMBERS = {1: "B", 2: "H", 4: "I", 8: "Q"}
#: If a step takes fewer entries, it is cheaper to take them one by one.
_FEW = 64


def control_bytes(bits_rep: int, bits_def: int) -> int:
    """Return the bytes of the control word for levels of these numbers of bits."""
    bits = bits_rep + bits_def
    return 0 if not bits else 1 if bits <= 8 else 2 if bits <= 16 else 4


@dataclass(frozen=True, slots=True)
class Grid:
    """The layout of the entries of a page.

    - `control`: Bytes of the control word.
    - `bits_def`: Bits of the definition level in it.
    - `width`: Bytes of a value, or of a value's length.
    - `max_visible`: Highest definition level of an entry that has a value.
    """

    control: int
    bits_def: int
    width: int
    variable: bool
    max_visible: int


@dataclass(frozen=True, slots=True)
class FullZipEntries:
    """The entries of some rows, in order.

    - `control` (int64 array, one per entry): Control words; zeros if the page has none.
    - `value_at`, `value_size` (int64 arrays, one per visible entry): Positions of values, in bytes;
      a null value of variable width has size 0 at the end of its control word.
    """

    control: IndexArray
    value_at: IndexArray
    value_size: IndexArray


def numbers_at(data: Bytes, positions: IndexArray, width: int) -> IndexArray:
    """Return little-endian numbers of `width` bytes at any positions; 0 for no bytes.

    Raises CorruptFileError: a position is too near the end, or a number does not fit 63 bits.
    """
    numbers = np.zeros(positions.shape, np.int64)
    if width and positions.size:
        if int(positions.max()) + width > len(data):
            raise CorruptFileError("an entry is cut off")
        for byte in range(width):
            numbers |= data[positions + byte].astype(np.int64) << (8 * byte)
        if int(numbers.min()) < 0:
            raise CorruptFileError("a 64-bit length is out of bounds")
    return numbers


def walk_rows(grid: Grid, data: Bytes, starts: IndexArray, ends: IndexArray) -> FullZipEntries:
    """Return the entries of rows that lie at ``data[starts[i]:ends[i]]``.

    Raises CorruptFileError: entries do not fill their row exactly.
    """
    if (ends <= starts).any():
        raise CorruptFileError("a row has no entry")
    mask = (1 << grid.bits_def) - 1
    if grid.variable:
        _, positions, control, length = _walk(grid, data, starts, ends)
        definition = control & mask
        value_at = positions + grid.control + np.where(definition == 0, grid.width, 0)
        visible = definition <= grid.max_visible
        return FullZipEntries(control, value_at[visible], length[visible])
    positions, control = _fixed_entries(grid, data, starts, ends)
    value_at = positions.compress((control & mask) <= grid.max_visible)
    value_at += grid.control
    return FullZipEntries(control, value_at, np.full(len(value_at), grid.width))


def _fixed_entries(
    grid: Grid, data: Bytes, starts: IndexArray, ends: IndexArray
) -> tuple[IndexArray, IndexArray]:
    """Return position and control word of each entry of rows whose values have a fixed width."""
    stride = grid.control + grid.width
    sizes = ends - starts
    counts, remainders = np.divmod(sizes, stride)
    alone = sizes == grid.control
    counts[alone] = 1
    plain = alone | (remainders == 0)
    counts *= plain
    before = np.cumsum(counts) - counts
    positions = np.arange(int(counts.sum())) * stride
    positions += np.repeat(starts - before * stride, counts)
    control = numbers_at(data, positions, grid.control)
    hidden = (control & ((1 << grid.bits_def) - 1)) > grid.max_visible
    irregular = hidden != np.repeat(alone, counts)
    if plain.all() and not irregular.any():
        return positions, control
    row = np.repeat(np.arange(len(starts)), counts)
    plain[row[irregular]] = False
    is_plain, walked = plain[row], np.flatnonzero(~plain)
    number, walked_positions, controls, _ = _walk(grid, data, starts[walked], ends[walked])
    order = np.argsort(np.concatenate([row[is_plain], walked[number]]), kind="stable")
    return (
        np.concatenate([positions[is_plain], walked_positions])[order],
        np.concatenate([control[is_plain], controls])[order],
    )


_Walked = tuple[IndexArray, IndexArray, IndexArray, IndexArray]


def _walk(grid: Grid, data: Bytes, starts: IndexArray, ends: IndexArray) -> _Walked:
    """Return row, position, control word and length of each entry, row by row."""
    rows: list[IndexArray] = []
    all_positions: list[IndexArray] = []
    controls: list[IndexArray] = []
    lengths: list[IndexArray] = []
    active = np.arange(len(starts))
    position, stop = starts, ends
    look_ahead = _FEW
    while len(active):
        if grid.variable:
            walk_index, entry_positions, control, length, after = _variable_step(
                grid, data, position
            )
        else:
            max_ahead = max(_LOOK_AHEAD // len(position), 1)
            walk_index, entry_positions, control, length, after = _fixed_step(
                grid, data, position, stop, min(look_ahead, max_ahead)
            )
            # Twice as far as the entries of this step reached.
            look_ahead = 2 * int(np.bincount(walk_index).max())
        rows.append(active[walk_index])
        all_positions.append(entry_positions)
        controls.append(control)
        lengths.append(length)
        if (after > stop).any():
            raise CorruptFileError("an entry is longer than its row")
        has_more = after < stop
        active, position, stop = active[has_more], after[has_more], stop[has_more]
        if len(walk_index) < _FEW:
            break
    for number, first, end in zip(active.tolist(), position.tolist(), stop.tolist(), strict=True):
        row_entries = _walk_row(grid, data[first:end])
        rows.append(np.full(row_entries.shape[1], number))
        all_positions.append(row_entries[0] + first)
        controls.append(row_entries[1])
        lengths.append(row_entries[2])
    row, entry_positions = np.concatenate(rows), np.concatenate(all_positions)
    control, length = np.concatenate(controls), np.concatenate(lengths)
    if len(rows) > 1:
        order = np.argsort(row, kind="stable")
        row, entry_positions, control, length = (
            row[order],
            entry_positions[order],
            control[order],
            length[order],
        )
    return row, entry_positions, control, length


def _walk_row(grid: Grid, data: Bytes) -> IndexArray:
    """Return position, control word and length of each entry of one row."""
    if not grid.control:
        # Without levels, a row is one entry, which was taken before.
        raise CorruptFileError("an entry is shorter than its row")
    # Each entry determines where the next one starts, so this loop cannot be vectorised.
    end, head, width = len(data), grid.control, grid.width
    mask, max_visible = (1 << grid.bits_def) - 1, grid.max_visible
    has_length = _NUMBERS[width] if grid.variable else ""
    read = Struct(f"<{_NUMBERS[head]}{has_length}").unpack_from
    # The last entry may have fewer bytes than are read.
    raw = data.tobytes() + bytes(head + width)
    positions: list[int] = []
    controls: list[int] = []
    lengths: list[int] = []
    position = 0
    while position < end:
        entry = read(raw, position)
        positions.append(position)
        controls.append(entry[0])
        definition = entry[0] & mask
        position += head
        if not has_length:
            lengths.append(width)
            position += width if definition <= max_visible else 0
        elif definition:
            lengths.append(0)
        else:
            lengths.append(entry[1])
            position += width + entry[1]
    if position != end:
        raise CorruptFileError("an entry is longer than its row")
    return np.array([positions, controls, lengths], np.int64)


_Step = tuple[IndexArray, IndexArray, IndexArray, IndexArray, IndexArray]


def _variable_step(grid: Grid, data: Bytes, positions: IndexArray) -> _Step:
    control = numbers_at(data, positions, grid.control)
    valid = (control & ((1 << grid.bits_def) - 1)) == 0
    length = np.zeros(len(positions), np.int64)
    length[valid] = numbers_at(data, positions[valid] + grid.control, grid.width)
    if int(length.max(initial=0)) > len(data):
        raise CorruptFileError("an entry is longer than its row")
    after = positions + grid.control + np.where(valid, grid.width + length, 0)
    return np.arange(len(positions)), positions, control, length, after


def _fixed_step(
    grid: Grid, data: Bytes, row_positions: IndexArray, stop: IndexArray, look_ahead: int
) -> _Step:
    stride = grid.control + grid.width
    look_ahead = min(look_ahead, int((stop - row_positions).max()) // stride + 1)
    entry_positions = row_positions[:, None] + stride * np.arange(look_ahead)
    inside = entry_positions + grid.control <= stop[:, None]
    if not inside[:, 0].all():
        raise CorruptFileError("an entry is longer than its row")
    control = numbers_at(
        data, np.where(inside, entry_positions, row_positions[:, None]), grid.control
    )
    hidden = (control & ((1 << grid.bits_def) - 1)) > grid.max_visible
    # A row's step ends with its first hidden entry, which is short, or before its end.
    cut = hidden | ~inside
    num_entries = np.where(cut.any(axis=1), cut.argmax(axis=1), look_ahead)
    rows = np.arange(len(row_positions))
    ends_hidden = num_entries < look_ahead
    ends_hidden[ends_hidden] = inside[rows[ends_hidden], num_entries[ends_hidden]]
    after = row_positions + num_entries * stride + np.where(ends_hidden, grid.control, 0)
    mask = np.arange(look_ahead) < (num_entries + ends_hidden)[:, None]
    walk_index = np.repeat(rows, num_entries + ends_hidden)
    positions = entry_positions[mask]
    return walk_index, positions, control[mask], np.full(len(positions), grid.width), after


# --------------------------------------------------------------------------------------------------
# Reads full-zip pages: wide values one by one, each with its levels in front.
#
# Buffer 0 holds the entries back to back:
#
# ================  ================================================================================
# part of an entry  content
# ================  ================================================================================
# control word      none if the page has no levels, else 1, 2 or 4 bytes, little-endian:
#                   ``repetition << bits_def | definition``
# length            variable width only, and only if the definition is 0: bits_per_offset / 8 bytes
# value             fixed width: bits_per_value / 8 bytes if the entry is visible, null or not;
#                   variable width: `length` bytes
# ================  ================================================================================
#
# Buffer 1, the repetition index, exists for variable width and for lists. It has the start of each
# row in buffer 0, and the end, as ``rows + 1`` numbers of 1, 2, 4 or 8 bytes, as few as possible. A
# row without lists is an entry. A read of few rows takes two reads: their numbers in the index, and
# their bytes. A short index is kept, and a whole page is read at once.

#: A longer index of rows is not read as a whole if fewer than one row in `_FEW` is requested.
_SHORT_INDEX = 4 * 1024


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


# --------------------------------------------------------------------------------------------------
# Writes full-zip pages; `full_zip_read` documents the layout.


def write_full_zip(
    column: LeafColumn, encoding: pb.CompressiveEncoding, block: DataBlock
) -> EncodedPage:
    """Return the page.

    - `encoding`: Encoding of the stored values.
    - `block`: The stored values, one for each visible entry; without null values if the width is
      variable.
    """
    levels = column.levels
    bits_rep = max_repetition(levels.layers).bit_length() if levels.repetition is not None else 0
    bits_def = max_definition(levels.layers).bit_length() if levels.definition is not None else 0
    layout = pb.FullZipLayout(
        bits_rep=bits_rep,
        bits_def=bits_def,
        num_items=levels.num_entries,
        num_visible_items=block.num_values,
        value_compression=encoding,
        layers=layer_numbers(levels.layers),
    )
    control = _control_words(levels, bits_rep, bits_def)
    if isinstance(block, FixedWidthBlock):
        layout.bits_per_value = block.bits_per_value
        buffers = _fixed(levels, control, block)
    else:
        assert isinstance(block, VariableWidthBlock)
        layout.bits_per_offset = block.offsets.dtype.itemsize * 8
        buffers = _variable(levels, control, block)
    page = pb.PageLayout(full_zip_layout=layout)
    return EncodedPage(buffers, column.num_rows, page.SerializeToString())


def _control_words(levels: Levels, bits_rep: int, bits_def: int) -> Bytes:
    """Return the control word of each entry, as a table of entries x bytes."""
    width = control_bytes(bits_rep, bits_def)
    words = np.zeros(levels.num_entries, f"<u{max(width, 1)}")
    if levels.repetition is not None:
        words |= levels.repetition.astype(words.dtype) << bits_def
    if levels.definition is not None:
        words |= levels.definition.astype(words.dtype)
    return words.view(np.uint8).reshape(levels.num_entries, max(width, 1))[:, :width]


def _fixed(levels: Levels, control: Bytes, block: FixedWidthBlock) -> tuple[Bytes, ...]:
    width = block.bits_per_value // 8
    values = block.data[: block.num_values * width]
    head = control.shape[1]
    if not head:
        return (values,)
    table = np.empty((block.num_values, head + width), np.uint8)
    visible = levels.visible()
    table[:, :head] = control if visible is None else control[visible]
    table[:, head:] = values.reshape(block.num_values, width)
    if levels.repetition is None:
        return (table.reshape(-1),)
    if visible is None:
        sizes: IndexArray = np.full(levels.num_entries, head + width, np.int64)
        return table.reshape(-1), _row_index(levels, sizes)
    sizes = np.where(visible, head + width, head)
    out = _interleave(
        table.reshape(-1), head + width, np.ascontiguousarray(control[~visible]), visible
    )
    return out, _row_index(levels, sizes)


def _interleave(shown: Bytes, width: int, hidden: Bytes, visible: BoolArray) -> Bytes:
    """Return entries of two widths in their order; Arrow copies them, one by one."""
    head = hidden.shape[1]
    pool = np.concatenate([shown, hidden.reshape(-1)])
    count, num_hidden = int(np.count_nonzero(visible)), len(hidden)
    offsets = np.concatenate(
        [np.arange(count) * width, len(shown) + np.arange(num_hidden + 1) * head]
    ).astype(np.int64)
    order = np.empty(count + num_hidden, np.int64)
    order[visible] = np.arange(count)
    order[~visible] = count + np.arange(num_hidden)
    return take_pieces(pool, offsets, order)[1]


def _variable(levels: Levels, control: Bytes, block: VariableWidthBlock) -> tuple[Bytes, ...]:
    """Combine control word, length and bytes: Arrow joins the three columns of pieces."""
    offsets = block.offsets.astype(np.int64)
    head = control.shape[1]
    lengths = np.diff(offsets)
    visible = levels.visible()
    dtype = block.offsets.dtype
    # A value for each entry: empty for hidden and null entries.
    holds = np.ones(levels.num_entries, np.bool_)
    if levels.definition is not None:
        holds = levels.definition == 0
    of_visible = holds if visible is None else holds[visible]
    sizes = np.zeros(levels.num_entries, np.int64)
    sizes[holds] = lengths[of_visible]
    width = dtype.itemsize
    heads = np.zeros((levels.num_entries, head + width), np.uint8)
    heads[:, :head] = control
    heads[:, head:] = sizes.astype(f"<u{width}").view(np.uint8).reshape(-1, width)
    head_sizes = np.where(holds, head + width, head)
    # Pieces, alternately: the head of an entry and its value. Both live in one pool.
    pool = np.concatenate([heads.reshape(-1), block.data[offsets[0] : offsets[-1]]])
    value_at = np.zeros(levels.num_entries, np.int64)
    value_at[holds] = offsets[:-1][of_visible] - offsets[0]
    position = np.empty(2 * levels.num_entries, np.int64)
    position[0::2] = np.arange(levels.num_entries) * (head + width)
    position[1::2] = heads.size + value_at
    long = np.empty_like(position)
    long[0::2], long[1::2] = head_sizes, sizes
    return _joined(pool, position, long), _row_index(levels, head_sizes + sizes)


def _joined(pool: Bytes, piece_starts: IndexArray, sizes: IndexArray) -> Bytes:
    """Return pieces of the pool back to back. The pool is cut at the ends of all pieces."""
    starts, ends = piece_starts, piece_starts + sizes
    order = np.argsort(starts, kind="stable")
    # Between two neighbours of the pool, bytes can belong to no piece.
    cuts = np.empty(2 * len(piece_starts) + 1, np.int64)
    cuts[0] = 0
    cuts[1::2] = starts[order]
    cuts[2::2] = ends[order]
    # Empty pieces may have a position inside another piece.
    np.maximum.accumulate(cuts, out=cuts)
    cut_positions = np.empty(len(piece_starts), np.int64)
    cut_positions[order] = 2 * np.arange(len(piece_starts)) + 1
    return take_pieces(pool, cuts, cut_positions)[1]


def _row_index(levels: Levels, sizes: IndexArray) -> Bytes:
    """Return the start of each row, and the end, in numbers of as few bytes as possible."""
    ends = bounds(sizes)
    if levels.repetition is not None:
        starts = np.flatnonzero(levels.repetition == max_repetition(levels.layers))
        ends = np.append(ends[starts], ends[-1])
    end = int(ends[-1])
    width = 1 if end < 1 << 8 else 2 if end < 1 << 16 else 4 if end < 1 << 32 else 8
    return ends.astype(f"<u{width}").view(np.uint8)
