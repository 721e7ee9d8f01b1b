"""Row addresses, and their lookup by row id.

A row address is `fragment id << 32 | offset among the physical rows of the fragment`.

In tables with stable row ids, an id belongs to one live row. After an update, the old fragment
still has the id at an offset that is deleted, so the index takes deletions into account. It is a
table of runs, sorted by id: consecutive ids at consecutive addresses. A fragment of new rows is one
run regardless of its size; 100,000 runs take a few megabytes.

In other tables the id of a row is its address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptTableError
from lance_spark.proto import rowids_pb2
from lance_spark.storage.parallel import read_all
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import by_id
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import expect_deletions, read_deletions
from lance_spark.table.rows.ids import parsed_row_ids_of
from lance_spark.table.rows.u64_segments import Offsets, UInt64Array

_Mask = npt.NDArray[np.bool_]
#: Returns for row ids whether a live row has the id, and the address of that row.
FindRows = Callable[[UInt64Array], tuple[_Mask, UInt64Array]]
#: Bits of a row address below the fragment id.
OFFSET_BITS = 32
_OFFSET_MASK = np.uint64((1 << OFFSET_BITS) - 1)


def first_address(fragment: Fragment) -> int:
    """Return the row address of the first physical row of a fragment.

    Raises CorruptTableError: the id of the fragment has more than 32 bits.
    """
    if fragment.id >> OFFSET_BITS:
        raise CorruptTableError(f"{fragment.name}: a fragment id must have at most 32 bits")
    return fragment.id << OFFSET_BITS


def split_addresses(addresses: UInt64Array) -> tuple[UInt64Array, Offsets]:
    """Return the fragment id and the row offset of each address."""
    fragment_ids: UInt64Array = addresses >> np.uint64(OFFSET_BITS)
    return fragment_ids, (addresses & _OFFSET_MASK).astype(np.int64)


def fragment_runs(addresses: UInt64Array) -> Iterator[tuple[int, slice, Offsets]]:
    """Yield each run of addresses in one fragment: fragment id, where in the array, row offsets."""
    fragment_ids, offsets = split_addresses(addresses)
    ends = [*(np.flatnonzero(np.diff(fragment_ids)) + 1).tolist(), len(addresses)]
    start = 0
    for end in ends if len(addresses) else ():
        yield int(fragment_ids[start]), slice(start, end), offsets[start:end]
        start = end


def offsets_by_fragment(addresses: UInt64Array) -> Iterator[tuple[int, Offsets]]:
    """Yield each fragment id with its row offsets, if the addresses of a fragment are together."""
    for number, _, offsets in fragment_runs(addresses):
        yield number, offsets


class RowIndex:
    """The addresses of the live rows of one version of a table with stable row ids. Immutable.

    - `firsts`: First row id of each run, increasing.
    - `counts`: Number of ids in each run.
    - `addresses`: Row address of the first row of each run.
    """

    def __init__(self, firsts: UInt64Array, counts: Offsets, addresses: UInt64Array) -> None:
        self._firsts, self._counts, self._addresses = firsts, counts, addresses

    @classmethod
    def build(cls, paths: TablePaths, fragments: Sequence[Fragment]) -> RowIndex:
        """Build the index from the row ids and deletion files of all fragments.

        - `fragments`: Fragments with known row counts.

        Raises CorruptFileError, MissingFileError, StorageError. Raises CorruptTableError: a
        fragment has no row ids, or an id belongs to two live rows.
        """
        single_runs: list[tuple[int, int, int]] = []
        parts: list[tuple[UInt64Array, Offsets, UInt64Array]] = []
        unindexed: list[Fragment] = []
        for fragment in fragments:
            run = None if fragment.deletion_file is not None else _single_range(fragment)
            if run is None:
                unindexed.append(fragment)
            elif run[1]:
                single_runs.append((*run, first_address(fragment)))
        if single_runs:
            columns = np.array(single_runs, dtype=np.uint64).T
            parts.append((columns[0], columns[1].astype(np.int64), columns[2]))
        parts += read_all(partial(_live_runs, paths), unindexed, local=paths.store.is_local)
        firsts = np.concatenate([np.empty(0, np.uint64), *(part[0] for part in parts)])
        counts = np.concatenate([np.empty(0, np.int64), *(part[1] for part in parts)])
        addresses = np.concatenate([np.empty(0, np.uint64), *(part[2] for part in parts)])
        order = np.argsort(firsts, kind="stable")
        firsts, counts, addresses = firsts[order], counts[order], addresses[order]
        overlaps = np.flatnonzero(firsts[1:] - firsts[:-1] < counts[:-1].astype(np.uint64))
        if len(overlaps):
            first = int(overlaps[0])
            fragment_ids = sorted(
                int(address) >> OFFSET_BITS for address in addresses[first : first + 2]
            )
            raise CorruptTableError(
                f"{paths.store.display}: row id {int(firsts[first + 1])} belongs to two live rows, "
                f"of the fragments {fragment_ids[0]} and {fragment_ids[1]}"
            )
        return cls(firsts, counts, addresses)

    @property
    def greatest_id(self) -> int | None:
        """The greatest id of a live row; None if the table has no rows."""
        if not len(self._firsts):
            return None
        return int(self._firsts[-1]) + int(self._counts[-1]) - 1

    def addresses(self, row_ids: UInt64Array) -> tuple[_Mask, UInt64Array]:
        """Look up row ids.

        Parameters
        ----------
        row_ids : uint64 array
            Ids in any order, possibly repeated.

        Returns
        -------
        bool array
            For each id, whether a live row has it.
        uint64 array
            The address of that row; 0 if no live row has the id.
        """
        if not len(self._firsts):
            return np.zeros(len(row_ids), np.bool_), np.zeros(len(row_ids), np.uint64)
        run = np.searchsorted(self._firsts, row_ids, "right") - 1
        below_first = run < 0
        run[below_first] = 0
        rank = row_ids - self._firsts[run]
        is_live = ~below_first & (rank < self._counts[run].astype(np.uint64))
        return is_live, np.where(is_live, self._addresses[run] + rank, np.uint64(0))


def live_addresses(
    paths: TablePaths, fragments: Iterable[Fragment], addresses: UInt64Array
) -> tuple[_Mask, UInt64Array]:
    """Look up row addresses, which are the row ids of tables without stable row ids.

    Reads the deletion files of the fragments that the addresses refer to.

    Returns
    -------
    bool array
        For each address, whether it belongs to a live row.
    uint64 array
        The addresses, unchanged.

    Raises
    ------
    CorruptTableError, CorruptFileError, MissingFileError, StorageError
    """
    numbered = by_id(fragments)
    fragment_ids, offsets = split_addresses(addresses)
    is_live = np.zeros(len(addresses), np.bool_)
    if not len(addresses):
        return is_live, addresses
    order = np.argsort(fragment_ids, kind="stable")
    numbers, starts = np.unique(fragment_ids[order], return_index=True)
    expect_deletions(paths, filter(None, map(numbered.get, numbers.tolist())))
    for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        fragment = numbered.get(number)
        if fragment is not None:
            row_offsets = offsets[rows]
            is_live[rows] = row_offsets < fragment.physical_rows
            deleted = read_deletions(paths, fragment)
            if len(deleted):
                first_position = np.searchsorted(deleted, row_offsets)
                is_kept = np.searchsorted(deleted, row_offsets, "right") == first_position
                is_live[rows] &= is_kept
    return is_live, addresses


def _single_range(fragment: Fragment) -> tuple[int, int] | None:
    """Return first id and number of ids of a fragment whose ids are one range, else None."""
    data = fragment.inline_lineage(Lineage.ROW_IDS)
    if data is None:
        return None
    try:
        segments = rowids_pb2.RowIdSequence.FromString(data).segments
    except DecodeError:
        return None
    if len(segments) != 1 or segments[0].WhichOneof("segment") != "range":
        return None
    ids = segments[0].range
    count = ids.end - ids.start
    # None for a wrong count as well: parsing the whole sequence raises the error.
    return (ids.start, count) if count == fragment.physical_rows else None


def _live_runs(paths: TablePaths, fragment: Fragment) -> tuple[UInt64Array, Offsets, UInt64Array]:
    """Return the runs of the live rows of a fragment: first ids, counts, first addresses."""
    ids = parsed_row_ids_of(fragment, paths)
    if ids is None:
        raise CorruptTableError(f"{fragment.name} has no row ids, but the table has stable row ids")
    firsts, offsets, counts = ids.runs()
    base = np.uint64(first_address(fragment))
    deleted = read_deletions(paths, fragment)
    if len(deleted):
        # Split the runs at the deleted rows, and drop the pieces that consist of a deleted row.
        bounds = _merged(np.append(offsets, ids.num_rows), deleted, deleted + 1)
        dropped = np.searchsorted(bounds, deleted)
        starts, lengths = np.delete(bounds[:-1], dropped), np.delete(np.diff(bounds), dropped)
        run = np.searchsorted(offsets, starts, "right") - 1
        firsts = firsts[run] + (starts - offsets[run]).astype(np.uint64)
        offsets, counts = starts, lengths
    return firsts, counts, base + offsets.astype(np.uint64)


def _merged(*arrays: Offsets) -> Offsets:
    """Return the union of increasing arrays as an increasing array."""
    # numpy's stable sort detects the sorted parts and merges them.
    merged: Offsets = np.sort(np.concatenate(arrays), kind="stable")
    unique: Offsets = merged[np.append(True, merged[1:] != merged[:-1])]
    return unique
