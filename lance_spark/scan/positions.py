"""Rows named by callers: positions in the table's order, and addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import InvalidInputError
from lance_spark.table.fragments.fragment import Fragment

Numbers = npt.NDArray[np.int64]


def parse_row_ids(given: Any) -> npt.NDArray[np.uint64]:
    """Return row ids that a caller gave; they may be past the greatest int64. See `parse_numbers`."""
    if isinstance(given, np.ndarray) and given.dtype == np.uint64 and given.ndim == 1:
        return given
    if isinstance(given, pa.Array | pa.ChunkedArray) and given.type == pa.uint64():
        if given.null_count:
            raise InvalidInputError("row ids must be integers, not null")
        ids: npt.NDArray[np.uint64] = given.to_numpy()
        return ids
    return parse_numbers(given, "row ids").astype(np.uint64)


def parse_numbers(given: Any, what: str) -> Numbers:
    """Return integers that a caller gave as a list, numpy array or Arrow array.

    Raises
    ------
    InvalidInputError
        They are no integers, or negative.
    """
    found = given
    if isinstance(given, pa.Array | pa.ChunkedArray):
        found = given.to_numpy()
    try:
        numbers = np.asarray(found if len(found) else np.zeros(0, np.int64))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{what} must be integers: {error}") from None
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InvalidInputError(f"{what} must be integers, not {numbers.dtype}")
    if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) > np.iinfo(np.int64).max):
        bad = int(numbers.min()) if int(numbers.min()) < 0 else int(numbers.max())
        raise InvalidInputError(f"{what}: there is no row {bad}")
    return numbers.astype(np.int64)


def parse_positions(given: Any, num_rows: int) -> Numbers:
    """Return positions of rows; InvalidInputError if one is past the end of a table of `num_rows`."""
    wanted = parse_numbers(given, "positions of rows")
    if len(wanted) and int(wanted.max()) >= num_rows:
        raise InvalidInputError(
            f"there is no row {int(wanted.max())}: the table has {num_rows} rows"
        )
    return wanted


def by_fragment(
    fragments: Sequence[Fragment], positions: Numbers
) -> Iterator[tuple[Fragment, Numbers]]:
    """Yield the fragments that increasing positions are in, with the numbers among each one's live rows."""
    ends = np.cumsum([fragment.num_rows for fragment in fragments], dtype=np.int64)
    holders = np.searchsorted(ends, positions, side="right")
    numbers, cuts = np.unique(holders, return_index=True)
    bounds = [*cuts.tolist(), len(positions)]
    for i, number in enumerate(numbers.tolist()):
        fragment = fragments[number]
        yield (
            fragment,
            positions[bounds[i] : bounds[i + 1]] - (int(ends[number]) - fragment.num_rows),
        )


def live_to_physical(rows: RowNumbers, deleted: RowNumbers) -> RowNumbers:
    """Turn numbers among the live rows into physical row offsets.

    Parameters
    ----------
    rows : int64 array
        Row numbers that count live rows only.
    deleted : int64 array
        Physical offsets of the deleted rows, increasing.
    """
    if not len(deleted):
        return rows
    # deleted[i] - i live rows stand before the i-th deleted one: as many deletions precede a live row as have fewer.
    live_before = deleted - np.arange(len(deleted))
    return rows + np.searchsorted(live_before, rows, side="right")
