"""Finding whole rows among the entries of a page that has lists."""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.levels import IndexArray, Levels, max_repetition
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.fixed_width import ranges
from lance_spark.errors import CorruptFileError

EntryIndex = slice | IndexArray


def levels_at(levels: Levels, where: EntryIndex) -> Levels:
    """Return the levels of some entries, in that order."""
    repetition, definition = levels.repetition, levels.definition
    count = where.stop - where.start if isinstance(where, slice) else len(where)
    return Levels(
        levels.layers,
        count,
        None if repetition is None else repetition[where],
        None if definition is None else definition[where],
    )


def starts_rows(levels: Levels, count: int) -> bool:
    """Tell whether levels describe exactly this many rows."""
    assert levels.repetition is not None
    begins = levels.repetition == max_repetition(levels.layers)
    return int(np.count_nonzero(begins)) == count and bool(begins[0])


def values_of(levels: Levels, entries: EntryIndex) -> EntryIndex:
    """Return which values belong to some entries: the values of a page are those of its visible
    entries.
    """
    visible = levels.visible()
    if visible is None:
        return entries
    if isinstance(entries, slice):
        before = int(np.count_nonzero(visible[: entries.start]))
        return slice(before, before + int(np.count_nonzero(visible[entries])))
    order: IndexArray = np.cumsum(visible) - 1
    return order[entries[visible[entries]]]


def entries_of(
    levels: Levels,
    rows: Rows,
    run_ends: IndexArray | None = None,
    first_rows: IndexArray | None = None,
) -> EntryIndex:
    """Return which entries belong to some rows.

    Parameters
    ----------
    levels : Levels
        With repetition levels.
    rows : Rows
        At least one.
    run_ends : int64 array, or None
        Where the levels were put together from runs of entries with rows missing in between: the
        end of each run. Only the wanted rows need to be complete. None: all are one run, of whole
        rows from row 0 on.
    first_rows : int64 array, or None
        Number of the first row that starts in each run.

    Raises
    ------
    CorruptFileError
        Some rows are not there.
    """
    assert levels.repetition is not None
    if run_ends is None or first_rows is None:
        run_ends, first_rows = np.array([levels.num_entries]), np.zeros(1, np.int64)
    starts = np.flatnonzero(levels.repetition == max_repetition(levels.layers))
    run_of = np.searchsorted(run_ends, starts, side="right")
    first_start = np.searchsorted(starts, np.append(0, run_ends[:-1]))
    numbers = first_rows[run_of] + np.arange(len(starts)) - first_start[run_of]
    # A row ends where the next one starts, or with its run.
    stops = np.minimum(np.append(starts[1:], levels.num_entries), run_ends[run_of])
    edges = np.array([rows.start, rows.stop - 1]) if isinstance(rows, range) else rows
    entry_indices = np.searchsorted(numbers, edges)
    if int(entry_indices[-1]) >= len(numbers) or (numbers[entry_indices] != edges).any():
        raise CorruptFileError("the repetition levels do not hold the rows that they should")
    if isinstance(rows, range):
        return slice(int(starts[entry_indices[0]]), int(stops[entry_indices[1]]))
    return ranges(starts[entry_indices], stops[entry_indices] - starts[entry_indices])
