"""Deletion files for rows that are known: found, moved or merged away by tasks of other kinds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyroaring import BitMap

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.rows.delete import DeleteTask, plan_delete
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.index import OFFSET_BITS


def plan_vectors(
    table: OpenTable, rows: Mapping[int, BitMap], *, tag: bytes = b""
) -> list[DeleteTask]:
    """Return tasks that write the deletion files of fragments, one for each.

    Parameters
    ----------
    table : OpenTable
        At the version that the rows are of.
    rows : mapping of int to BitMap
        Offsets of live rows, by fragment.
    tag : bytes
        Which the files carry.

    Raises
    ------
    InvalidInputError
        The version has no such fragment.
    UnsupportedFeatureError, UnsupportedError
        The table needs more than this release does.
    """
    known = {fragment.id for fragment in table.manifest.fragments}
    missing = sorted(rows.keys() - known)
    if missing:
        raise InvalidInputError(
            f"{table.store.display}: version {table.version} has no fragment {missing[0]}"
        )
    return plan_delete(table, (), rows={n: result for n, result in rows.items() if result}, tag=tag)


def union(parts: Iterable[Mapping[int, bytes]], *, disjoint: bool) -> dict[int, BitMap]:
    """Return the rows of all parts, by fragment.

    Parameters
    ----------
    parts : iterable of mapping of int to bytes
        Roaring bitmaps of offsets, by fragment.
    disjoint : bool
        Whether it is an error that two parts have a row in common.

    Raises
    ------
    InvalidInputError
        They have.
    """
    results: dict[int, BitMap] = {}
    for part in parts:
        for number, data in part.items():
            rows = BitMap.deserialize(data)
            before = results.get(number)
            if before is None:
                results[number] = rows
                continue
            if disjoint and not before.isdisjoint(rows):
                address = (number << OFFSET_BITS) + (before & rows).min()
                raise InvalidInputError(
                    f"the row with _rowaddr {address} (fragment {number}) was handled by two "
                    "tasks; nothing was changed"
                )
            before |= rows
    return results
