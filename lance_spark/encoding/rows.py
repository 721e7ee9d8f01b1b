"""Which rows of a page or column to read.

`Rows` is either a `range` with step 1 (a scan) or a strictly increasing int64 array of row numbers
(a take). Decoders read the chunks that hold these rows, and no others. A caller that needs another
order or repeated rows sorts them before, and takes from the result.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

RowNumbers = npt.NDArray[np.int64]
Rows = range | RowNumbers
_T = TypeVar("_T", bound=np.generic)


def split_rows(rows: Rows, lengths: Sequence[int]) -> list[tuple[int, Rows]]:
    """Cut rows of a column into rows of its consecutive pages.

    - `rows`: Row numbers counted from the first page's first row.
    - `lengths`: Rows of each page.

    Returns the page number, and rows counted from the start of that page. Pages without such rows
    are left out.
    """
    ends = np.cumsum(np.asarray(lengths, dtype=np.int64))
    starts = ends - np.asarray(lengths, dtype=np.int64)
    pieces: list[tuple[int, Rows]] = []
    if isinstance(rows, range):
        if not len(rows):
            return pieces
        first = int(np.searchsorted(ends, rows.start, side="right"))
        last = int(np.searchsorted(starts, rows.stop, side="left"))
        for page in range(first, last):
            start = max(rows.start - int(starts[page]), 0)
            stop = min(rows.stop, int(ends[page])) - int(starts[page])
            if stop > start:
                pieces.append((page, range(start, stop)))
        return pieces
    if not len(rows):
        return pieces
    page, last = np.searchsorted(ends, rows[[0, -1]], side="right").tolist()
    if page == last < len(ends):
        return [(page, rows - starts[page] if page else rows)]
    pages = np.searchsorted(ends, rows, side="right")
    page_numbers, cuts = np.unique(pages, return_index=True)
    bounds = [*cuts.tolist(), len(rows)]
    for i, page in enumerate(page_numbers.tolist()):
        pieces.append((page, rows[bounds[i] : bounds[i + 1]] - starts[page]))
    return pieces


def distinct(values: npt.NDArray[_T]) -> npt.NDArray[_T]:
    """Return the distinct values of an array of integers, sorted.

    `np.unique` does the same, but newer releases hash the values, which takes four to sixteen times
    as long if most are distinct.
    """
    values = np.sort(values)
    is_first = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=is_first[1:])
    return values[is_first]


def expanded(rows: Rows, per_row: int) -> Rows:
    """Return the numbers of the values of rows that have `per_row` values each."""
    if per_row == 1:
        return rows
    if isinstance(rows, range):
        return range(rows.start * per_row, rows.stop * per_row)
    return (rows[:, None] * per_row + np.arange(per_row)).reshape(-1)


# --------------------------------------------------------------------------------------------------
# Sets of rows as ranges.
#
# Statistics and indexes answer which rows a condition can hold for. Their answers are combined by
# `in_all` and `in_any`, in which None is an unknown set.

#: Of few rows among many, each is marked in a mask.
_FEW = 16
_CHUNK = 1024


# Not a dataclass, whose definition takes a part of the time in which a read is planned.
class RowRanges:
    """Ranges of rows, increasing, not empty, and not adjacent to one another. Immutable.

    - `starts`, `stops`: First row of each range, and the row after its last.
    """

    __slots__ = ("starts", "stops")

    def __init__(self, starts: RowNumbers, stops: RowNumbers) -> None:
        self.starts, self.stops = starts, stops

    @classmethod
    def of(cls, ranges: Iterable[range]) -> RowRanges:
        """Return the rows of some ranges, in any order."""
        bounds = [(rows.start, rows.stop) for rows in ranges if rows]
        starts, stops = np.array(bounds, np.int64).reshape(-1, 2).T
        return _covered([cls(starts, stops)], 1)

    @classmethod
    def of_rows(cls, rows: RowNumbers) -> RowRanges:
        """Return some rows, given as sorted numbers, which may be repeated."""
        breaks = np.flatnonzero(np.diff(rows) > 1)
        if not len(rows):
            return cls(rows, rows)
        return cls(rows[np.append(0, breaks + 1)], rows[np.append(breaks, len(rows) - 1)] + 1)

    @classmethod
    def of_blocks(cls, bounds: RowNumbers, chosen: npt.NDArray[np.bool_]) -> RowRanges:
        """Return the rows of the chosen blocks.

        - `bounds`: First row of each block, and the end of the last.
        """
        edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(np.int8), [0]])))
        rows = bounds[edges]
        return _covered([cls(rows[::2], rows[1::2])], 1)

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int((self.stops - self.starts).sum())

    @property
    def num_ranges(self) -> int:
        """The number of ranges."""
        return len(self.starts)

    @property
    def num_decoded(self) -> int:
        """The rows that are decoded to read them, at most: a chunk mostly has 1,024 rows."""
        first, last = self.starts // _CHUNK, (self.stops - 1) // _CHUNK
        repeated = np.count_nonzero(first[1:] == last[:-1])
        return int((last - first + 1).sum() - repeated) * _CHUNK

    @property
    def span(self) -> int:
        """The number of rows from the first to the last."""
        return int(self.stops[-1] - self.starts[0]) if len(self.starts) else 0

    def __repr__(self) -> str:
        return f"RowRanges of {self.num_rows} rows in {self.num_ranges} ranges"

    def __iter__(self) -> Iterator[range]:
        return map(range, self.starts.tolist(), self.stops.tolist())

    def numbers(self) -> RowNumbers:
        """Return the rows as increasing numbers."""
        lengths = self.stops - self.starts
        ends = np.cumsum(lengths)
        numbers: RowNumbers = np.arange(self.num_rows)
        numbers += np.repeat(self.starts - (ends - lengths), lengths)
        return numbers

    def within(self, start: int, stop: int) -> RowRanges:
        """Return the rows from `start` to `stop`."""
        first = int(np.searchsorted(self.stops, start, "right"))
        last = int(np.searchsorted(self.starts, stop, "left"))
        if first >= last:
            return NO_ROWS
        return RowRanges(
            np.maximum(self.starts[first:last], start), np.minimum(self.stops[first:last], stop)
        )

    def part(self, first: int, stop: int) -> RowRanges:
        """Return rows by their number among the rows of the set, at least one."""
        ends = np.cumsum(self.stops - self.starts)
        numbers = np.array([first, min(stop, int(ends[-1])) - 1])
        index = np.searchsorted(ends, numbers, "right")
        rows = self.stops[index] - (ends[index] - numbers)
        return self.within(int(rows[0]), int(rows[1]) + 1)

    def shifted(self, distance: int) -> RowRanges:
        """Return the rows with a number added."""
        return RowRanges(self.starts + distance, self.stops + distance)

    def count_of(self, rows: RowNumbers) -> int:
        """Return how many of some rows, given as increasing numbers, are in the set."""
        position = np.searchsorted(self.stops, rows, "right")
        is_before_end = position < len(self.stops)
        return int(np.count_nonzero(self.starts[position[is_before_end]] <= rows[is_before_end]))

    def joined(self, gap: int) -> RowRanges:
        """Return the rows, and the rows between two ranges that are less than `gap` rows apart."""
        if self.num_ranges < 2:
            return self
        is_apart = self.starts[1:] - self.stops[:-1] >= gap
        return RowRanges(
            self.starts[np.append(True, is_apart)], self.stops[np.append(is_apart, True)]
        )

    def mask(self, rows: range) -> npt.NDArray[np.bool_]:
        """Return for each row of a range whether it is in the set."""
        part = self.within(rows.start, rows.stop)
        if part.num_rows * _FEW < len(rows):
            mask = np.zeros(len(rows), np.bool_)
            mask[part.numbers() - rows.start] = True
            return mask
        changes = np.zeros(len(rows) + 1, np.int8)
        changes[part.starts - rows.start] += 1
        changes[part.stops - rows.start] -= 1
        return np.cumsum(changes[:-1], dtype=np.int8).view(np.bool_)


NO_ROWS = RowRanges(np.empty(0, np.int64), np.empty(0, np.int64))


def in_all(sets: Iterable[RowRanges | None]) -> RowRanges | None:
    """Return the rows that are in all known sets; None if all are unknown."""
    known = [rows for rows in sets if rows is not None]
    return _covered(known, len(known)) if known else None


def in_any(sets: Iterable[RowRanges | None]) -> RowRanges | None:
    """Return the rows that are in any of several sets; None if one of them is unknown."""
    known: list[RowRanges] = []
    for rows in sets:
        if rows is None:
            return None
        known.append(rows)
    return _covered(known, 1)


def _covered(sets: Sequence[RowRanges], count: int) -> RowRanges:
    """Return the rows that are in at least `count` of some sets.

    The ranges of one set may be in any order and adjacent. If they overlap, `count` is 1.
    """
    if len(sets) == 1 and count == 1 and _is_normal(sets[0]):
        return sets[0]
    starts = np.concatenate([NO_ROWS.starts, *(rows.starts for rows in sets)])
    stops = np.concatenate([NO_ROWS.stops, *(rows.stops for rows in sets)])
    if count == 1:
        return _union(starts, stops)
    rows, position = np.unique(np.concatenate([starts, stops]), return_inverse=True)
    changes = np.bincount(position[: len(starts)], minlength=len(rows)) - np.bincount(
        position[len(starts) :], minlength=len(rows)
    )
    is_inside = np.cumsum(changes) >= count
    edges = np.flatnonzero(np.diff(is_inside, prepend=False))
    return RowRanges(rows[edges[::2]], rows[edges[1::2]])


def _union(starts: RowNumbers, stops: RowNumbers) -> RowRanges:
    is_filled = starts < stops
    starts, stops = starts[is_filled], stops[is_filled]
    # The sets are mostly in order, which a stable sort takes advantage of.
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(stops[order])
    is_first = np.append(True, starts[1:] > ends[:-1])[: len(starts)]
    lasts = np.append(np.flatnonzero(is_first)[1:], len(starts)) - 1
    return RowRanges(starts[is_first], ends[lasts] if len(starts) else ends)


def _is_normal(rows: RowRanges) -> bool:
    return bool((rows.starts < rows.stops).all() and (rows.starts[1:] > rows.stops[:-1]).all())


# --------------------------------------------------------------------------------------------------
# Which integers are in a set: a table of flags by hashes rules most of the others out.
#
# A look-up in a hash table of Arrow takes 5 to 30 ns, one in the table of flags 2 ns.

_Integers = npt.NDArray[np.int64]
#: An odd number of 64 random bits, by which integers are hashed.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
#: Flags for each value of the set; the limits of a table: 64 KiB, which fit a cache, and 64 MiB.
_SLOTS_OF_VALUE, _FEWEST_BITS, _MOST_BITS = 8, 16, 26
#: Most flags for each value of a set in a table of all values of its span.
_PLACES_OF_VALUE = 64
#: Fewest values, or members of a set, for which a table of flags is made.
_FEWEST_VALUES = 1 << 14
#: Integers by their bits.
_TYPES = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


class IntegerFlags:
    """Tells which integers may be in a set.

    - `members`: The set.
    """

    def __init__(self, members: _Integers) -> None:
        bits = (_SLOTS_OF_VALUE * len(members)).bit_length()
        self._shift = np.uint64(64 - min(max(bits, _FEWEST_BITS), _MOST_BITS))
        self._flags = np.zeros(1 << (64 - int(self._shift)), np.bool_)
        self._flags[self._hashes(members)] = True

    def possible(self, values: _Integers) -> npt.NDArray[np.bool_]:
        """Return which values may be in the set: all that are, and few others."""
        return self._flags[self._hashes(values)]

    def places(self, values: _Integers) -> RowNumbers:
        """Return the places of the values that may be in the set."""
        return np.flatnonzero(self.possible(values))

    def _hashes(self, values: _Integers) -> RowNumbers:
        hashes = values.view(np.uint64) * _MULTIPLIER
        hashes >>= self._shift
        return hashes.view(np.int64)


class IntegerSet:
    """Tells which integers are in a set.

    - `members`: The set, not empty.
    """

    def __init__(self, members: _Integers) -> None:
        least = members.min()
        span = int(members.max()) - int(least)
        self._is_member: npt.NDArray[np.bool_] | None = None
        places = max(_PLACES_OF_VALUE * len(members), 1 << _FEWEST_BITS)
        # A large table has at most as many bytes as the members.
        if span <= max(min(places, 1 << _MOST_BITS), members.nbytes):
            # One more place is that of all values outside of the span.
            self._least, self._last = least, np.uint64(span + 1)
            self._is_member = np.zeros(span + 2, np.bool_)
            self._is_member[members - least] = True
            return
        self._flags = IntegerFlags(members)
        self._members = np.sort(members)

    def has(self, values: _Integers) -> npt.NDArray[np.bool_]:
        """Return which values are in the set."""
        if self._is_member is not None:
            offsets = (values - self._least).view(np.uint64)
            flags: npt.NDArray[np.bool_] = self._is_member[
                np.minimum(offsets, self._last).view(np.int64)
            ]
            return flags
        places = self._flags.places(values)
        result = np.zeros(len(values), np.bool_)
        if len(places):
            candidates = values[places]
            found = np.searchsorted(self._members, candidates)
            found[found == len(self._members)] = 0
            result[places] = self._members[found] == candidates
        return result


#: Sets by the ids of the arrays that they were made of, which refer to them as long as they exist.
_SETS: dict[int, IntegerSet] = {}


def _set_of(members: pa.Array) -> IntegerSet:
    """Return the set of some values. A scan asks for the same one for each of its batches."""
    key = id(members)
    result = _SETS.get(key)
    if result is None:
        result = _SETS[key] = IntegerSet(integers_of(members, 0))
        weakref.finalize(members, _SETS.pop, key, None)
    return result


def is_in(values: pa.Array, members: pa.Array) -> pa.BooleanArray:
    """Return which values are in a set without nulls, as `pyarrow.compute.is_in`: never null."""
    import pyarrow.compute as pc

    dtype = values.type
    if (
        max(len(values), len(members)) < _FEWEST_VALUES
        or not len(members)
        or dtype != members.type
        or not (pat.is_integer(dtype) or pat.is_temporal(dtype))
        or dtype.bit_width not in _TYPES
    ):
        return pc.is_in(values, value_set=members)
    flags = _set_of(members).has(integers_of(values, 0))
    if values.null_count:
        flags &= values.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(flags)


def integers_of(array: pa.Array, null: int) -> _Integers:
    """Return values of a fixed size as integers that are equal if the values are."""
    integers = array.view(_TYPES[array.type.bit_width])
    numbers: _Integers = integers.fill_null(null).to_numpy().astype(np.int64, copy=False)
    return numbers
