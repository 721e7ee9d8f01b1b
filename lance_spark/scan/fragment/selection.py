"""How the rows that a filter or deletions leave of a window are read.

Rows are read in one of two ways: as a *span*, which decodes all rows from one to another and takes the survivors out, or *picked* by
their numbers, which decodes the chunks that hold survivors and puts each value in its place. What is cheaper depends on the columns,
on how many survivors there are, and on where:

| values | a row of a span | a chunk that a picked row touches | a picked row |
| --- | --- | --- | --- |
| numbers: unpacked a thousand at a time | 2.5 ns | as much as its rows in a span | 60 ns |
| strings, lists: put together one by one | 20 ns, and 7 for each stored byte | 15 ns a row | 120 ns, and half of a span's |
| vectors and other wide values | a sixteenth of a picked one: only survivors are copied | nothing | 200 ns, and 0.3 for each byte |

Survivors that lie far apart make *segments*: what lies between two of them is not read, if that costs more than another call does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.levels import BoolArray
from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.scan.row_size import fixed_width

#: Rows of a chunk of numbers; survivors are looked for by so many rows.
_CHUNK = 1024
#: Nanoseconds that a call costs for each column.
_CALL = 150_000.0
#: Values of more bytes are stored one by one, not in chunks.
_WIDE = 128
#: Rows between two segments that are surely worth a call.
_FARTHEST = 256 * 1024
#: Spans begin at multiples of this where they can: chunks hold a power of two of rows, mostly, and no two spans share one.
ALIGNMENT = 4096


@dataclass(frozen=True, slots=True)
class Costs:
    """What reading some columns costs, in nanoseconds.

    Attributes
    ----------
    scan : float
        For each row of a span.
    touch : float
        For each row of a chunk that holds a picked row.
    pick : float
        For each picked row.
    call : float
    """

    scan: float
    touch: float
    pick: float
    call: float

    @classmethod
    def of(cls, columns: Sequence[tuple[pa.DataType, float | None]]) -> Costs:
        """Estimate them from the types of the columns and the stored bytes of a row, None where nothing is stored."""
        scan = touch = pick = 0.0
        for kind, stored in columns:
            if stored is None:
                continue
            one = _costs(kind, stored)
            scan, touch, pick = scan + one[0], touch + one[1], pick + one[2]
        return cls(scan, touch, pick, _CALL * len(columns))


class ReadRange(NamedTuple):
    """Rows to read, and which of these are wanted, counted from the first; None if all are."""

    rows: Rows
    kept: RowNumbers | None


class FilterResult(NamedTuple):
    """What the filters have read: columns of some rows."""

    rows: Rows
    batch: pa.RecordBatch

    def part(self, kept: BoolArray) -> FilterResult:
        """Return what was read of some of the rows that can be read, which are then counted without the others.

        Parameters
        ----------
        kept : bool array
            One for each row from the first one on.
        """
        rows = np.asarray(self.rows)
        mask = kept[rows]
        numbers = (np.cumsum(kept) - 1)[rows[mask]]
        return FilterResult(numbers, self.batch.filter(pa.array(mask)))

    def places(self, rows: Rows, kept: RowNumbers | None) -> slice | RowNumbers:
        """Return where some of the rows are in the batch."""
        if isinstance(rows, range) and isinstance(self.rows, range):
            first = rows.start - self.rows.start
            return slice(first, first + len(rows)) if kept is None else kept + first
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
        if kept is not None:
            numbers = numbers[kept]
        if isinstance(self.rows, range):
            return numbers - self.rows.start
        return np.searchsorted(self.rows, numbers)


def plan_ranges(
    rows: range, wanted: BoolArray | None, most: int, costs: Costs
) -> Iterator[ReadRange]:
    """Yield what to read, in order.

    Parameters
    ----------
    rows : range
        The rows that were looked at.
    wanted : bool array or None
        Which of them survive; None if all do.
    most : int
        Rows that may be read at once.
    costs : Costs
    """
    if wanted is None:
        yield from (ReadRange(span, None) for span in cut(rows, most))
        return
    gap = min(max(costs.call / max(costs.scan, 1e-3), _CHUNK), _FARTHEST)
    waiting = 0
    for start, stop in _segments(wanted, int(gap) // _CHUNK):
        count = int(np.count_nonzero(wanted[start:stop]))
        length = stop - start
        spanned = costs.call + length * costs.scan
        picked = count * costs.pick + min(length, count * _CHUNK) * costs.touch
        if spanned < picked:
            yield from _picked(rows, wanted, range(waiting, start), most)
            yield from _spans(rows, wanted, range(start, stop), most)
            waiting = stop
    yield from _picked(rows, wanted, range(waiting, len(wanted)), most)


def _segments(wanted: BoolArray, gap: int) -> list[tuple[int, int]]:
    """Return where survivors are: ranges of chunks that are more than `gap` chunks apart."""
    whole = len(wanted) // _CHUNK * _CHUNK
    held = wanted[:whole].reshape(-1, _CHUNK).any(axis=1)
    chunks = np.flatnonzero(np.append(held, wanted[whole:].any()))
    if not len(chunks):
        return []
    breaks = np.flatnonzero(np.diff(chunks) > gap + 1)
    firsts = chunks[np.append(0, breaks + 1)] * _CHUNK
    lasts = (chunks[np.append(breaks, len(chunks) - 1)] + 1) * _CHUNK
    return list(zip(firsts.tolist(), np.minimum(lasts, len(wanted)).tolist(), strict=True))


def _picked(rows: range, wanted: BoolArray, part: range, most: int) -> Iterator[ReadRange]:
    numbers = np.flatnonzero(wanted[part.start : part.stop]) + (rows.start + part.start)
    for at in range(0, len(numbers), most):
        yield ReadRange(numbers[at : at + most], None)


def _spans(rows: range, wanted: BoolArray, part: range, most: int) -> Iterator[ReadRange]:
    start = rows.start
    for span in cut(range(start + part.start, start + part.stop), most):
        kept = np.flatnonzero(wanted[span.start - start : span.stop - start])
        if len(kept) == len(span):
            yield ReadRange(span, None)
        elif len(kept):
            # Deletions mostly come in runs: what is before the first survivor and after the last is not read.
            first = int(kept[0])
            tight = range(span.start + first, span.start + int(kept[-1]) + 1)
            if len(kept) == len(tight):
                yield ReadRange(tight, None)
            else:
                yield ReadRange(tight, kept - first if first else kept)


def cut(rows: range, most: int) -> Iterator[range]:
    """Yield pieces of a range, in order, of at most so many rows."""
    start = rows.start
    while start < rows.stop:
        stop = min(rows.stop, start + most)
        if stop < rows.stop and most >= ALIGNMENT:
            stop -= stop % ALIGNMENT
        yield range(start, stop)
        start = stop


def _costs(kind: pa.DataType, stored: float) -> tuple[float, float, float]:
    width = fixed_width(kind)
    if width is None:
        scan = 20.0 + 7.0 * stored
        return scan, 15.0, 120.0 + scan / 2
    if width > _WIDE and not pat.is_struct(kind):
        pick = 200.0 + 0.3 * width
        return pick / 16, 0.0, pick
    leaves = _leaves(kind)
    return 2.5 * leaves, 2.8 * leaves, 60.0 * leaves


def _leaves(kind: pa.DataType) -> int:
    if pat.is_struct(kind):
        return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields))
    return 1
