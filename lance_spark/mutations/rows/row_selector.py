"""Rows that a caller names, as offsets by fragment in whatever version the change is planned on.

| named by | found in a later version |
| --- | --- |
| id, in tables with stable row ids | wherever the row is; rows that are gone are passed over |
| address (which is the id in other tables), position | in the same fragment, or not at all: if that is gone, or rows of it have moved \
(`places`), nobody can tell where the rows are |

Rows that somebody else has deleted are passed over, as those are that were deleted before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.mutations.rewrite.address_reader import offsets_by_fragment
from lance_spark.mutations.rows.row_address_guard import RowAddressGuard
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.scan.positions import (
    by_fragment,
    live_to_physical,
    parse_numbers,
    parse_positions,
    parse_row_ids,
)
from lance_spark.scan.take import RowFinder
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.deletions import Offsets, read_deletions
from lance_spark.table.rows.index import OFFSET_BITS

_Words = npt.NDArray[np.uint64]


class RowSelector:
    """Rows of a table by id, address or position.

    Parameters
    ----------
    table : OpenTable
        At the version that the numbers are about.
    ids, addresses, indices : sequence of int, optional
        One of the three: row ids, row addresses (fragment id << 32 | offset), or positions in the
        table's order.

    Raises
    ------
    InvalidInputError
        Not one is given, they are no integers, or there are no such fragments or positions.
    """

    def __init__(self, table: OpenTable, *, ids: Any, addresses: Any, indices: Any) -> None:
        given = [item for item in (ids, addresses, indices) if item is not None]
        if len(given) != 1:
            raise InvalidInputError(f"give one of ids, addresses and indices, not {len(given)}")
        self._planned = table
        self._places = RowAddressGuard(table)
        self._ids: _Words | None = None
        self._addresses: _Words | None = None
        if indices is not None:
            self._addresses = _addresses_of(table, indices)
        elif addresses is not None or not table.manifest.flags.stable_row_ids:
            name = "row ids" if addresses is None else "row addresses"
            self._addresses = parse_numbers(given[0], name).astype(np.uint64)
        else:
            self._ids = parse_row_ids(ids)

    def __call__(self, table: OpenTable) -> Mapping[int, Offsets]:
        """Return the offsets of the rows, by fragment; of rows that are deleted, too.

        Raises
        ------
        InvalidInputError
            There is no such row.
        CommitConflictError
            There was; or it has moved since.
        CorruptFileError, CorruptTableError, StorageError
        """
        addresses = self._addresses
        if addresses is None:
            fragments = counted_fragments(table.paths, table.manifest)
            result, known = RowFinder(table, fragments).find(self._ids)
            return dict(offsets_by_fragment(np.unique(known[result])))
        rows = dict(offsets_by_fragment(np.unique(addresses)))
        self._check_there(table, rows)
        self._check_not_moved(table, rows)
        return rows

    def _check_there(self, table: OpenTable, rows: Mapping[int, Offsets]) -> None:
        """Refuse rows that the table has no place of."""
        counts = {fragment.id: fragment.physical_rows for fragment in table.manifest.fragments}
        for number, offsets in rows.items():
            if number in counts and int(offsets[-1]) < (counts[number] or 1 << OFFSET_BITS):
                continue
            address = (number << OFFSET_BITS) + int(offsets[-1])
            if table.version == self._planned.version:
                raise InvalidInputError(f"{table.store.display}: there is no row {address}")
            raise self._moved(table, address)

    def _check_not_moved(self, table: OpenTable, rows: Mapping[int, Offsets]) -> None:
        """Refuse rows that may live on elsewhere: a row that moves looks deleted where it was."""
        self._places.follow(table)
        suspect = sorted(self._places.left.keys() & rows.keys())
        if not suspect:
            return
        then = {item.id: item for item in self._planned.manifest.fragments}
        now = {item.id: item for item in table.manifest.fragments}
        for number in suspect:
            # Others can have given the id to another fragment.
            files = {item.path for item in then[number].files}
            if files.isdisjoint(item.path for item in now[number].files):
                raise self._moved(table, (number << OFFSET_BITS) + int(rows[number][0]))
            before = read_deletions(self._planned.paths, then[number])
            gone = np.setdiff1d(read_deletions(table.paths, now[number]), before)
            lost = np.intersect1d(rows[number], gone)
            if len(lost):
                raise self._moved(table, (number << OFFSET_BITS) + int(lost[0]))

    def _moved(self, table: OpenTable, address: int) -> CommitConflictError:
        return CommitConflictError(
            f"{table.store.display}: row {address} of version {self._planned.version} was moved or "
            "removed by others; find the "
            "rows again in the newest version",
            retryable=False,
        )


def _addresses_of(table: OpenTable, indices: Any) -> _Words:
    fragments = counted_fragments(table.paths, table.manifest)
    wanted = np.unique(parse_positions(indices, sum(item.num_rows for item in fragments)))
    parts = [np.empty(0, np.int64)]
    for fragment, rows in by_fragment(fragments, wanted):
        reader = FragmentReader(table.paths, fragment, table.schema.select([]))
        parts.append(live_to_physical(rows, reader.deleted()) + (fragment.id << OFFSET_BITS))
    return np.concatenate(parts).astype(np.uint64)
