"""Lists of row ranges, in order and apart from one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def intersection(one: Sequence[range], other: Sequence[range]) -> list[range]:
    """Return the rows that are in both of two lists."""
    found: list[range] = []
    at = 0
    for rows in one:
        while at < len(other) and other[at].stop <= rows.start:
            at += 1
        behind = at
        while behind < len(other) and other[behind].start < rows.stop:
            common = range(max(rows.start, other[behind].start), min(rows.stop, other[behind].stop))
            if common:
                found.append(common)
            behind += 1
    return found


def union(several: Iterable[Sequence[range]]) -> list[range]:
    """Return the rows that are in any of several lists, neighbours joined."""
    found: list[range] = []
    for rows in sorted((rows for ranges in several for rows in ranges), key=lambda r: r.start):
        if found and rows.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, rows.stop))
        else:
            found.append(rows)
    return found


def in_all(parts: Iterable[Sequence[range] | None]) -> list[range] | None:
    """Return the rows that are in all of several lists, of which None is one that is not known; None if none is."""
    found: list[range] | None = None
    for rows in parts:
        if rows is not None:
            found = list(rows) if found is None else intersection(found, rows)
    return found


def in_any(parts: Iterable[Sequence[range] | None]) -> list[range] | None:
    """Return the rows that are in any of several lists; None if one of these is not known."""
    known: list[Sequence[range]] = []
    for rows in parts:
        if rows is None:
            return None
        known.append(rows)
    return union(known)
