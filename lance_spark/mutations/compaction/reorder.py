"""Rows in another order: fragments are written anew, their rows in the order that somebody gives by
their addresses.

| step | where | what |
| --- | --- | --- |
| `groups_of` | driver | fragments that the same indexes cover: each group is put in order by itself |
| `Reorder` | workers | reads rows by their addresses, in order, and writes them; nothing refers to them yet |
| `commit_reordered` | driver | checks that each live row came once; one `Rewrite` |

Rows keep their ids in tables with stable row ids, and the versions that they were created and last
changed in: indexes that hold ids follow. Those that hold addresses, all of them without stable row
ids, do not know these fragments any more: the rows there are looked at one by one until the index
is built again.

A row that is deleted or changed meanwhile makes the commit fail, as in a compaction; all of it has
to be planned anew then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from pyroaring import BitMap

from lance_spark.errors import (
    InvalidInputError,
    LanceError,
    StorageError,
    UncertainCommitError,
    UnsupportedFeatureError,
)
from lance_spark.file.writer import check_types
from lance_spark.mutations.compaction.task import CompactionMetrics, covered_fragments
from lance_spark.mutations.retry import check_rows_writable
from lance_spark.mutations.rewrite.address_reader import AddressReader, add_unique_addresses
from lance_spark.mutations.rewrite.row_reader import keeping_references
from lance_spark.mutations.rows.deletion_vectors import union
from lance_spark.table.bases import Target
from lance_spark.table.commit.commit import DEFAULT_MAX_RETRIES, commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.fragments.writer import FragmentWriter, delete_fragments
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.rewrite import Rewrite, RewriteGroup
from lance_spark.table.operations.metadata.reserve_fragments import ReserveFragments
from lance_spark.table.placement import placement_of
from lance_spark.table.rows.deletion_writer import bitmap_of
from lance_spark.table.rows.deletions import read_deletions
from lance_spark.table.rows.ids import store_lineage
from lance_spark.table.rows.u64_segments import UInt64Array

_UNLIMITED = 2**62


@dataclass(frozen=True, slots=True)
class Reordered:
    """What a worker wrote. Small, and can be pickled.

    Attributes
    ----------
    new : tuple of Fragment
        With the ids and versions of their rows, in tables with stable row ids; their own ids are
        not yet assigned.
    rows : mapping of int to bytes
        By fragment, offsets of the rows where they were before, as a Roaring bitmap.
    """

    new: tuple[Fragment, ...] = ()
    rows: Mapping[int, bytes] = field(default_factory=dict)


class Reorder:
    """Writes rows in the order of the addresses that it is given. One for each task.

    Parameters
    ----------
    table : OpenTable
        At the version that the addresses are of.
    tag : bytes
        Ends the names of the files.
    max_rows_per_file, max_bytes_per_file : int
        A data file is closed once it has so many.
    targets : sequence of int or None
        Ids of the base paths that files go to in turns; None for the table itself.
    first : int
        Which of them comes first; see `FragmentWriter`.
    """

    def __init__(
        self,
        table: OpenTable,
        *,
        tag: bytes = b"",
        max_rows_per_file: int = _UNLIMITED,
        max_bytes_per_file: int = _UNLIMITED,
        targets: Sequence[Target] = (None,),
        first: int = 0,
    ) -> None:
        manifest = table.manifest
        self._table = table
        self._rows_at = AddressReader(table, table.schema.fields)
        self._stable = manifest.flags.stable_row_ids
        self._lineage: list[tuple[UInt64Array, UInt64Array, UInt64Array]] = []
        self._rows: dict[int, BitMap] = {}
        self._writer = FragmentWriter(
            table.paths,
            table.schema,
            manifest.data_storage_version,
            max_rows_per_file=max_rows_per_file,
            max_bytes_per_file=max_bytes_per_file,
            tag=tag,
            blobs=keeping_references(manifest.base_paths),
            targets=targets,
            first=first,
        )

    def write(self, addresses: UInt64Array) -> None:
        """Write rows behind those that have been written.

        Parameters
        ----------
        addresses : uint64 array
            Of live rows.

        Raises
        ------
        InvalidInputError
            No live row has an address, or one comes twice.
        CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
        """
        if not len(addresses):
            return
        add_unique_addresses(self._table, self._rows, addresses)
        step = self._rows_at.window_rows(int(addresses[0]))
        for position in range(0, len(addresses), step):
            rows = self._rows_at.read(addresses[position : position + step])
            if self._stable:
                self._lineage.append((rows.row_ids, rows.created, rows.updated))
            self._writer.write(rows.values)

    def finish(self) -> Reordered:
        """Close the files, and return what was written."""
        self._rows_at.close()
        new = self._writer.finish() if self._rows else []
        if self._stable and new:
            new = _with_lineage(new, self._lineage)
        rows = {number: item.serialize() for number, item in self._rows.items()}
        return Reordered(tuple(new), rows)

    def abort(self) -> None:
        """Delete what was written; what cannot be deleted is left to cleanup."""
        self._rows_at.close()
        with suppress(StorageError):
            self._writer.abort()


def groups_of(table: OpenTable, excluded: Collection[int] = ()) -> list[tuple[Fragment, ...]]:
    """Return the fragments of a table that can be put in order together.

    Parameters
    ----------
    table : OpenTable
    excluded : collection of int
        Ids of fragments that stay as they are.

    Returns
    -------
    list of tuple of Fragment
        Fragments that the same indexes cover, and whose files go to the same base paths, in the
        order of their ids.

    Raises
    ------
    UnsupportedFeatureError
        The table has a fragment reuse index, which has no words for rows in another order.
    UnsupportedError, CorruptTableError, StorageError
    """
    check_rows_writable(table, data_files=True)
    manifest = table.manifest
    check_types(table.schema, manifest.data_storage_version)
    if fragment_reuse.find_entry(indexes.section_of(manifest)) is not None:
        raise UnsupportedFeatureError(
            f"{table.store.display}: the table has a fragment reuse index, and rows of such a "
            "table cannot be put in another order; "
            "compact it without sorting, or drop its indexes first"
        )
    covered = covered_fragments(table)
    placement = placement_of(table)
    groups: dict[tuple[object, ...], list[Fragment]] = {}
    for item in sorted(counted_fragments(table.paths, manifest), key=lambda item: item.id):
        if item.id not in excluded and item.num_rows:
            known = tuple(index for index, bitmap in enumerate(covered) if item.id in bitmap)
            groups.setdefault((placement.of(item), known), []).append(item)
    return [tuple(group) for group in groups.values()]


def commit_reordered(
    table: OpenTable,
    groups: Iterable[tuple[Sequence[Fragment], Sequence[Reordered]]],
    *,
    properties: Mapping[str, str] | None = None,
    max_retries: int = DEFAULT_MAX_RETRIES,
) -> tuple[Manifest, CompactionMetrics]:
    """Put the new fragments in the place of the old ones.

    Parameters
    ----------
    table : OpenTable
        At the version that they were made of.
    groups : iterable of (sequence of Fragment, sequence of Reordered)
        Of each group, its fragments, and what was written of them, in order.
    properties : mapping of str to str, optional
        Of the transaction.
    max_retries : int
        How often to start again after other writers were faster.

    Raises
    ------
    InvalidInputError
        Not every live row came once. The new files are deleted again, as with all errors but
        `UncertainCommitError`.
    CommitConflictError
        Others changed the same fragments.
    StorageError, CorruptTableError
    """
    parts = [(tuple(old), list(written)) for old, written in groups]
    store = table.store
    try:
        for old, written in parts:
            _check_complete(table, old, written)
        new = [fragment for _, written in parts for item in written for fragment in item.new]
        reserve = Transaction.new(table.version, ReserveFragments(len(new)))
        reserved = commit(store, reserve, table.manifest, max_retries=max_retries)
        number = (reserved.max_fragment_id or 0) - len(new) + 1
        rewrites = []
        for old, written in parts:
            made = [fragment for item in written for fragment in item.new]
            rewrites.append(RewriteGroup(old, _numbered(made, number)))
            number += len(made)
        transaction = Transaction.new(table.version, Rewrite(tuple(rewrites)), properties)
        manifest = commit(store, transaction, table.manifest, max_retries=max_retries)
    except UncertainCommitError:
        raise
    except LanceError:
        for _, written in parts:
            undo(table, written)
        raise
    gone = [item for old, _ in parts for item in old]
    return manifest, CompactionMetrics(
        fragments_removed=len(gone),
        fragments_added=len(new),
        files_removed=sum(len(item.files) + (item.deletion_file is not None) for item in gone),
        files_added=sum(len(item.files) for item in new),
    )


def undo(table: OpenTable, written: Iterable[Reordered]) -> None:
    """Delete the files of what is not committed; what cannot be deleted is left to cleanup."""
    with suppress(StorageError):
        delete_fragments(table.paths, [fragment for item in written for fragment in item.new])


def _check_complete(
    table: OpenTable, old: Sequence[Fragment], written: Sequence[Reordered]
) -> None:
    """Refuse what does not have each live row of the fragments once."""
    name = table.store.display
    came = union((item.rows for item in written), disjoint=True)
    count = sum(len(result) for result in came.values())
    for fragment in old:
        live = BitMap(range(fragment.physical_rows))
        live -= bitmap_of(read_deletions(table.paths, fragment))
        if came.pop(fragment.id, BitMap()) != live:
            raise InvalidInputError(
                f"{name}: the rows that came of fragment {fragment.id} are not its {len(live)} "
                "live ones; put it in order again"
            )
    if came:
        raise InvalidInputError(f"{name}: rows of fragment {min(came)} came, which stays as it is")
    rows = sum(fragment.physical_rows for item in written for fragment in item.new)
    if rows != count:
        raise InvalidInputError(f"{name}: {rows} rows were written of {count}")


def _numbered(fragments: Sequence[Fragment], first: int) -> tuple[Fragment, ...]:
    result = []
    for number, fragment in enumerate(fragments, first):
        proto = fragment.to_proto()
        proto.id = number
        result.append(Fragment.from_proto(proto, "new fragment"))
    return tuple(result)


def _with_lineage(
    fragments: Sequence[Fragment], parts: Sequence[tuple[UInt64Array, UInt64Array, UInt64Array]]
) -> list[Fragment]:
    ids, created, updated = (np.concatenate(some) for some in zip(*parts, strict=True))
    start = 0
    result = []
    for fragment in fragments:
        stop = start + fragment.physical_rows
        proto = fragment.to_proto()
        store_lineage(
            proto,
            row_ids=ids[start:stop],
            created=created[start:stop],
            updated=updated[start:stop],
        )
        result.append(Fragment.from_proto(proto, "new fragment"))
        start = stop
    return result
