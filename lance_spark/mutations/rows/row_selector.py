"""Selection of the rows of a mutation by row id, address or position.

A selector returns offsets by fragment for each version that the mutation is planned on.

| selected by | in a later version |
| --- | --- |
| row id, in tables with stable row ids | the row, in any fragment; removed rows are ignored |
| row address (the row id in other tables), position | the row, in the same fragment; an error if \
the fragment is removed, or rows of it have moved (`RowAddressGuard`) |

Rows that are deleted already are ignored, also those that another client deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lance_spark.encoding.rows import distinct
from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.mutations.rows.conditions import RowAddressGuard
from lance_spark.scan.fragment.reader import live_to_physical
from lance_spark.scan.take import (
    RowFinder,
    by_fragment,
    parse_numbers,
    parse_positions,
    parse_row_ids,
)
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.addresses import OFFSET_BITS, offsets_by_fragment
from lance_spark.table.rows.deletions import Offsets, expect_deletions, read_deletions
from lance_spark.table.rows.u64_segments import UInt64Array


class RowSelector:
    """Selects rows of a table by row id, address or position.

    - `ids`, `addresses`, `indices`: Exactly one of: row ids, row addresses (fragment id << 32 |
      offset), or positions in the table's order.

    Raises InvalidInputError: None or several of them are given, a number is not an integer, or a
    position is out of range.
    """

    def __init__(self, table: OpenTable, *, ids: Any, addresses: Any, indices: Any) -> None:
        selections = [numbers for numbers in (ids, addresses, indices) if numbers is not None]
        if len(selections) != 1:
            raise InvalidInputError(
                f"give one of ids, addresses and indices, not {len(selections)}"
            )
        self._planned = table
        self._guard = RowAddressGuard(table)
        self._ids: UInt64Array | None = None
        self._addresses: UInt64Array | None = None
        if indices is not None:
            self._addresses = _addresses_of(table, indices)
        elif addresses is not None or not table.manifest.flags.stable_row_ids:
            name = "row ids" if addresses is None else "row addresses"
            self._addresses = parse_numbers(selections[0], name).astype(np.uint64)
        else:
            self._ids = parse_row_ids(ids)

    def __call__(self, table: OpenTable) -> Mapping[int, Offsets]:
        """Return the offsets of the rows by fragment, also of deleted rows.

        Raises CorruptFileError, CorruptTableError, StorageError. Raises InvalidInputError: a row
        does not exist. Raises CommitConflictError: another client moved or removed a row.
        """
        addresses = self._addresses
        if addresses is None:
            fragments = counted_fragments(table.paths, table.manifest)
            exists, found_addresses = RowFinder(table, fragments).find(self._ids)
            return dict(offsets_by_fragment(distinct(found_addresses[exists])))
        rows = dict(offsets_by_fragment(distinct(addresses)))
        self._check_exists(table, rows)
        self._check_not_moved(table, rows)
        return rows

    def _check_exists(self, table: OpenTable, rows: Mapping[int, Offsets]) -> None:
        """Raise an error if a row address is out of range."""
        counts = {fragment.id: fragment.physical_rows for fragment in table.manifest.fragments}
        for number, offsets in rows.items():
            if number in counts and int(offsets[-1]) < (counts[number] or 1 << OFFSET_BITS):
                continue
            address = (number << OFFSET_BITS) + int(offsets[-1])
            if table.version == self._planned.version:
                raise InvalidInputError(f"{table.store.display}: row address {address} not found")
            raise self._moved(table, address)

    def _check_not_moved(self, table: OpenTable, rows: Mapping[int, Offsets]) -> None:
        """Raise an error if a row may have moved: its old address looks deleted."""
        self._guard.follow(table)
        vacated = sorted(self._guard.vacated.keys() & rows.keys())
        if not vacated:
            return
        planned = {fragment.id: fragment for fragment in self._planned.manifest.fragments}
        current = {fragment.id: fragment for fragment in table.manifest.fragments}
        for number in vacated:
            # Another client can have reused the id for another fragment.
            files = {file.path for file in planned[number].files}
            if files.isdisjoint(file.path for file in current[number].files):
                raise self._moved(table, (number << OFFSET_BITS) + int(rows[number][0]))
            deleted_before = read_deletions(self._planned.paths, planned[number])
            deleted = np.setdiff1d(read_deletions(table.paths, current[number]), deleted_before)
            affected = np.intersect1d(rows[number], deleted)
            if len(affected):
                raise self._moved(table, (number << OFFSET_BITS) + int(affected[0]))

    def _moved(self, table: OpenTable, address: int) -> CommitConflictError:
        return CommitConflictError(
            f"{table.store.display}: row {address} of version {self._planned.version} was moved or "
            "removed by another client; find the rows again in the newest version",
            retryable=False,
        )


def _addresses_of(table: OpenTable, indices: Any) -> UInt64Array:
    fragments = counted_fragments(table.paths, table.manifest)
    positions = distinct(parse_positions(indices, sum(fragment.num_rows for fragment in fragments)))
    parts = [np.empty(0, np.int64)]
    pieces = list(by_fragment(fragments, positions))
    expect_deletions(table.paths, (fragment for fragment, _ in pieces))
    for fragment, rows in pieces:
        offsets = live_to_physical(rows, read_deletions(table.paths, fragment))
        parts.append(offsets + (fragment.id << OFFSET_BITS))
    return np.concatenate(parts).astype(np.uint64)
