"""Row numbers passed by callers: positions in the table's order, addresses and row ids."""

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


def parse_row_ids(row_ids: Any) -> npt.NDArray[np.uint64]:
    """Return the row ids that a caller passed. Unlike in `parse_numbers` they may exceed int64."""
    if isinstance(row_ids, np.ndarray) and row_ids.dtype == np.uint64 and row_ids.ndim == 1:
        return row_ids
    if isinstance(row_ids, pa.Array | pa.ChunkedArray) and row_ids.type == pa.uint64():
        if row_ids.null_count:
            raise InvalidInputError("row ids must be integers, not null")
        ids: npt.NDArray[np.uint64] = row_ids.to_numpy()
        return ids
    return parse_numbers(row_ids, "row ids").astype(np.uint64)


def parse_numbers(data: Any, name: str) -> Numbers:
    """Return the row numbers that a caller passed as a list, numpy array or Arrow array.

    Parameters
    ----------
    data : sequence of int
    name : str
        What errors call the numbers.

    Raises
    ------
    InvalidInputError
        A number is not an integer, or is negative.
    """
    values = data
    if isinstance(data, pa.Array | pa.ChunkedArray):
        values = data.to_numpy()
    try:
        numbers = np.asarray(values if len(values) else np.zeros(0, np.int64))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must be integers: {error}") from None
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InvalidInputError(f"{name} must be integers, not {numbers.dtype}")
    if len(numbers) and (int(numbers.min()) < 0 or int(numbers.max()) > np.iinfo(np.int64).max):
        bad = int(numbers.min()) if int(numbers.min()) < 0 else int(numbers.max())
        raise InvalidInputError(f"{name}: row {bad} is out of range")
    return numbers.astype(np.int64)


def parse_positions(data: Any, num_rows: int) -> Numbers:
    """Return the positions of rows that a caller passed.

    Raises
    ------
    InvalidInputError
        A position is not an integer, or is out of range in a table of `num_rows` rows.
    """
    positions = parse_numbers(data, "positions of rows")
    if len(positions) and int(positions.max()) >= num_rows:
        raise InvalidInputError(
            f"row {int(positions.max())} is out of range: the table has {num_rows} rows"
        )
    return positions


def by_fragment(
    fragments: Sequence[Fragment], positions: Numbers
) -> Iterator[tuple[Fragment, Numbers]]:
    """Yield the fragments that hold increasing positions, and numbers among their live rows."""
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
    # The i-th deleted row has deleted[i] - i live rows before it. The deletions before a live row
    # are those with at most as many live rows before them as the live row has.
    live_before = deleted - np.arange(len(deleted))
    return rows + np.searchsorted(live_before, rows, side="right")
