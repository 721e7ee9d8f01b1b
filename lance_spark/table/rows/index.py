"""From row ids to row addresses: fragment id << 32 | offset among the physical rows of the fragment.

In tables with stable row ids an id belongs to one live row. The fragment that a row was in before an update still has the id,
at an offset that is deleted, so that an index has to know of deletions. It is a table of runs: consecutive ids at consecutive
addresses, sorted by id. A fragment of new rows is one run, whatever its size; 100,000 of them are a few megabytes.

In other tables the id of a row is its address.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptTableError
from lance_spark.proto import rowids_pb2
from lance_spark.storage.read.parallel_reads import read_all
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.addresses import OFFSET_BITS, first_address, split_addresses
from lance_spark.table.rows.deletions import read_deletions
from lance_spark.table.rows.ids import parsed_row_ids_of
from lance_spark.table.rows.u64_segments import Offsets, Words

_Mask = npt.NDArray[np.bool_]


class RowIndex:
    """Where the live rows of one version of a table with stable row ids are. Immutable.

    Parameters
    ----------
    firsts : uint64 array
        First id of each run, increasing.
    counts : int64 array
        Ids of each run.
    addresses : uint64 array
        Address of the first row of each run.
    """

    def __init__(self, firsts: Words, counts: Offsets, addresses: Words) -> None:
        self._firsts, self._counts, self._addresses = firsts, counts, addresses

    @classmethod
    def build(cls, paths: TablePaths, fragments: Sequence[Fragment]) -> RowIndex:
        """Read the row ids and deletions of all fragments.

        Parameters
        ----------
        paths : TablePaths
        fragments : sequence of Fragment
            With their rows counted.

        Raises
        ------
        CorruptTableError
            A fragment has no row ids, or an id belongs to two live rows.
        CorruptFileError, MissingFileError, StorageError
        """
        plain: list[tuple[int, int, int]] = []
        parts: list[tuple[Words, Offsets, Words]] = []
        others: list[Fragment] = []
        for fragment in fragments:
            run = None if fragment.deletion_file is not None else _one_range(fragment)
            if run is None:
                others.append(fragment)
            elif run[1]:
                plain.append((*run, first_address(fragment)))
        if plain:
            columns = np.array(plain, dtype=np.uint64).T
            parts.append((columns[0], columns[1].astype(np.int64), columns[2]))
        parts += read_all(partial(_live_runs, paths), others, local=paths.store.is_local)
        firsts = np.concatenate([np.empty(0, np.uint64), *(part[0] for part in parts)])
        counts = np.concatenate([np.empty(0, np.int64), *(part[1] for part in parts)])
        addresses = np.concatenate([np.empty(0, np.uint64), *(part[2] for part in parts)])
        order = np.argsort(firsts, kind="stable")
        firsts, counts, addresses = firsts[order], counts[order], addresses[order]
        twice = np.flatnonzero(firsts[1:] - firsts[:-1] < counts[:-1].astype(np.uint64))
        if len(twice):
            at = int(twice[0])
            holders = sorted(int(number) >> OFFSET_BITS for number in addresses[at : at + 2])
            raise CorruptTableError(
                f"{paths.store.display}: row id {int(firsts[at + 1])} belongs to two live rows, "
                f"of the fragments {holders[0]} and {holders[1]}"
            )
        return cls(firsts, counts, addresses)

    @property
    def greatest_id(self) -> int | None:
        """The greatest id of a live row; None if there are no rows."""
        if not len(self._firsts):
            return None
        return int(self._firsts[-1]) + int(self._counts[-1]) - 1

    def addresses(self, row_ids: Words) -> tuple[_Mask, Words]:
        """Look rows up.

        Parameters
        ----------
        row_ids : uint64 array
            In any order, repeated or not.

        Returns
        -------
        bool array
            Whether a live row has the id, for each id.
        uint64 array
            Its address; 0 where there is none.
        """
        if not len(self._firsts):
            return np.zeros(len(row_ids), np.bool_), np.zeros(len(row_ids), np.uint64)
        run = np.searchsorted(self._firsts, row_ids, "right") - 1
        before = run < 0
        run[before] = 0
        rank = row_ids - self._firsts[run]
        found = ~before & (rank < self._counts[run].astype(np.uint64))
        return found, np.where(found, self._addresses[run] + rank, np.uint64(0))


def live_addresses(
    paths: TablePaths, fragments: Iterable[Fragment], addresses: Words
) -> tuple[_Mask, Words]:
    """Look up addresses, which are the row ids of tables without stable ones.

    Reads the deletions of the fragments that are named.

    Returns
    -------
    bool array
        Whether a live row has the address, for each.
    uint64 array
        The addresses.

    Raises
    ------
    CorruptTableError, CorruptFileError, MissingFileError, StorageError
    """
    by_id = {fragment.id: fragment for fragment in fragments}
    holders, offsets = split_addresses(addresses)
    found = np.zeros(len(addresses), np.bool_)
    if not len(addresses):
        return found, addresses
    order = np.argsort(holders, kind="stable")
    numbers, starts = np.unique(holders[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        fragment = by_id.get(number)
        if fragment is not None:
            deleted, wanted = read_deletions(paths, fragment), offsets[rows]
            before = np.searchsorted(deleted, wanted)
            kept = np.searchsorted(deleted, wanted, "right") == before
            found[rows] = kept & (wanted < fragment.physical_rows)
    return found, addresses


def _one_range(fragment: Fragment) -> tuple[int, int] | None:
    """Return first id and number of ids of a fragment whose ids are one range; None if they are not."""
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
    # Whoever parses the sequence says what is wrong with it.
    return (ids.start, count) if count == fragment.physical_rows else None


def _live_runs(paths: TablePaths, fragment: Fragment) -> tuple[Words, Offsets, Words]:
    ids = parsed_row_ids_of(fragment, paths)
    if ids is None:
        raise CorruptTableError(f"{fragment.name} has no row ids, but the table has stable row ids")
    firsts, offsets, counts = ids.runs()
    base = np.uint64(first_address(fragment))
    deleted = read_deletions(paths, fragment)
    if len(deleted):
        # What lies between runs' starts and deleted rows is a run, unless it starts with a deleted row.
        bounds = _merged(np.append(offsets, ids.num_rows), deleted, deleted + 1)
        gone = np.searchsorted(bounds, deleted)
        starts, lengths = np.delete(bounds[:-1], gone), np.delete(np.diff(bounds), gone)
        run = np.searchsorted(offsets, starts, "right") - 1
        firsts = firsts[run] + (starts - offsets[run]).astype(np.uint64)
        offsets, counts = starts, lengths
    return firsts, counts, base + offsets.astype(np.uint64)


def _merged(*several: Offsets) -> Offsets:
    """Return the numbers that are in any of some increasing arrays, once."""
    # A stable sort finds what is in order already, and merges.
    merged: Offsets = np.sort(np.concatenate(several), kind="stable")
    found: Offsets = merged[np.append(True, merged[1:] != merged[:-1])]
    return found
