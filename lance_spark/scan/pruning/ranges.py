"""Set operations on lists of row ranges, which are in order and do not overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def intersection(left: Sequence[range], right: Sequence[range]) -> list[range]:
    """Return the rows that are in both lists."""
    result: list[range] = []
    first = 0
    for rows in left:
        while first < len(right) and right[first].stop <= rows.start:
            first += 1
        index = first
        while index < len(right) and right[index].start < rows.stop:
            common = range(max(rows.start, right[index].start), min(rows.stop, right[index].stop))
            if common:
                result.append(common)
            index += 1
    return result


def union(lists: Iterable[Sequence[range]]) -> list[range]:
    """Return the rows that are in any of several lists, with adjacent ranges joined."""
    result: list[range] = []
    for rows in sorted((rows for ranges in lists for rows in ranges), key=lambda r: r.start):
        if result and rows.start <= result[-1].stop:
            result[-1] = range(result[-1].start, max(result[-1].stop, rows.stop))
        else:
            result.append(rows)
    return result


def in_all(lists: Iterable[Sequence[range] | None]) -> list[range] | None:
    """Return the rows that are in all known lists. None stands for an unknown list.

    Returns None if all are unknown.
    """
    result: list[range] | None = None
    for rows in lists:
        if rows is not None:
            result = list(rows) if result is None else intersection(result, rows)
    return result


def in_any(lists: Iterable[Sequence[range] | None]) -> list[range] | None:
    """Return the rows that are in any of several lists; None if one of them is unknown."""
    range_lists: list[Sequence[range]] = []
    for rows in lists:
        if rows is None:
            return None
        range_lists.append(rows)
    return union(range_lists)
