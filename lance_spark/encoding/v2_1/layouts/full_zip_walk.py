"""Entries of full-zip rows: their positions, control words and lengths.

Most rows of fixed width are recognised at once: their length fits entries that all have a value, or
a single entry without one, and the levels at these positions agree. The length of any other entry
is stored in the entry itself, so all other rows are walked in parallel: one step takes the next
entry of each unfinished row. Entries of fixed width mostly have one stride, so a step looks several
strides ahead and takes all entries up to the first short one. When few rows are left, each of them
is walked alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

import numpy as np

from lance_spark.encoding.levels import IndexArray
from lance_spark.errors import CorruptFileError
from lance_spark.storage.source import Bytes

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
