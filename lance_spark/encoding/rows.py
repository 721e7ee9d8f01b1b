"""Which rows of a page or column to read.

`Rows` is either a `range` with step 1 (a scan) or a strictly increasing int64 array of row numbers
(a take). Decoders read the chunks that hold these rows, and no others. A caller that needs another
order or repeated rows sorts them before, and takes from the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

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
