"""Slices of fragments without the rows that indexes rule out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from lance_spark.encoding.row_ranges import NO_ROWS, RowRanges, in_all
from lance_spark.scan.task import FragmentSlice

#: Each task searches whole segments, so that a task has many of their rows.
_LEFT_ROWS = 4


def narrowed(
    groups: Sequence[tuple[FragmentSlice, ...]],
    rows: Mapping[int, RowRanges],
    target_rows: int,
    deferred: Collection[int] = (),
) -> list[tuple[FragmentSlice, ...]]:
    """Return groups of slices without the rows that are ruled out.

    Parameters
    ----------
    groups : sequence of tuple of FragmentSlice
    rows : mapping of int to RowRanges
        The rows to keep, by the fragment's id.
    target_rows : int
        Consecutive groups are joined up to this number of rows that are decoded.
    deferred : collection of int
        Ids of the fragments for which the task searches indexes. It is expected to decode one row
        in `_LEFT_ROWS` of them.
    """
    result: list[tuple[FragmentSlice, ...]] = []
    current: list[FragmentSlice] = []
    size = 0
    for group in groups:
        remaining = [part for piece in group for part in narrowed_slices(piece, rows)]
        count = sum(
            piece.num_rows // (_LEFT_ROWS if piece.fragment.id in deferred else 1)
            if piece.rows is None
            else piece.rows.num_decoded
            for piece in remaining
        )
        if current and size + count > target_rows:
            result.append(tuple(current))
            current, size = [], 0
        current += remaining
        size += count
    if current:
        result.append(tuple(current))
    return result


def narrowed_slices(piece: FragmentSlice, rows: Mapping[int, RowRanges]) -> Iterator[FragmentSlice]:
    """Yield the slice of the rows that are kept, if there are any; see `narrowed`."""
    ranges = in_all((rows.get(piece.fragment.id, NO_ROWS), piece.rows))
    assert ranges is not None
    ranges = ranges.within(piece.start, piece.stop)
    if ranges.num_ranges:
        start, stop = int(ranges.starts[0]), int(ranges.stops[-1])
        yield piece._replace(
            start=start, stop=stop, rows=None if ranges.num_ranges == 1 else ranges
        )
