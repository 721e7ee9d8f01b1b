"""Rows in another order: fragments are written anew, their rows in the order that somebody gives by
their addresses.

| step | where | what |
| --- | --- | --- |
| `groups_of` | driver | groups fragments that the same indexes cover; each group is sorted alone |
| `Reorder` | task | reads rows by their addresses, in order, and writes them |
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

from pyroaring import BitMap

from lance_spark.errors import (
    InvalidInputError,
    StorageError,
    UnsupportedFeatureError,
)
from lance_spark.file.writer import check_types
from lance_spark.mutations.commits import after_failure, check_rows_writable, commit_operation
from lance_spark.mutations.compaction.task import (
    CompactionMetrics,
    covered_fragments,
    reserve_fragment_ids,
)
from lance_spark.mutations.rewrite.address_reader import AddressReader, add_unique_addresses
from lance_spark.mutations.rewrite.writer import (
    UNLIMITED,
    MovedRowsWriter,
    Written,
    discard,
    numbered,
    rewrite_writer,
)
from lance_spark.mutations.rows.delete import union
from lance_spark.table.bases import Target
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.rewrite import Rewrite, RewriteGroup
from lance_spark.table.placement import placement_of
from lance_spark.table.rows.deletion_writer import bitmap_of
from lance_spark.table.rows.deletions import read_deletions
from lance_spark.table.rows.u64_segments import UInt64Array


@dataclass(frozen=True, slots=True)
class Reordered(Written):
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

    @property
    def new_data(self) -> Iterable[Fragment]:
        """The new fragments."""
        return self.new


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
        max_rows_per_file: int = UNLIMITED,
        max_bytes_per_file: int = UNLIMITED,
        targets: Sequence[Target] = (None,),
        first: int = 0,
    ) -> None:
        manifest = table.manifest
        self._table = table
        self._rows_at = AddressReader(table, table.schema.fields)
        self._rows: dict[int, BitMap] = {}
        writer = rewrite_writer(
            table.paths,
            table.schema,
            manifest.data_storage_version,
            manifest.base_paths,
            max_rows_per_file=max_rows_per_file,
            max_bytes_per_file=max_bytes_per_file,
            tag=tag,
            targets=targets,
            first=first,
        )
        self._writer = MovedRowsWriter(writer, manifest.flags.stable_row_ids)

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
            self._writer.write(rows.values, rows.row_ids, rows.created, rows.updated)

    def finish(self) -> Reordered:
        """Close the files, and return what was written."""
        self._rows_at.close()
        new = self._writer.finish() if self._rows else []
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
    options: CommitOptions | None = None,
) -> tuple[Manifest, CompactionMetrics]:
    """Put the new fragments in the place of the old ones.

    Parameters
    ----------
    table : OpenTable
        At the version that they were made of.
    groups : iterable of (sequence of Fragment, sequence of Reordered)
        Of each group, its fragments, and what was written of them, in order.
    options : CommitOptions, optional

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
    options = options or CommitOptions()
    results = [result for _, written in parts for result in written]
    with after_failure(lambda: discard(table.paths, results)):
        for old, written in parts:
            _check_complete(table, old, written)
        new = [fragment for result in results for fragment in result.new]
        reserved = reserve_fragment_ids(table, len(new), options)
        number = (reserved.max_fragment_id or 0) - len(new) + 1
        rewrites = []
        for old, written in parts:
            made = [fragment for item in written for fragment in item.new]
            rewrites.append(RewriteGroup(old, numbered(made, number)))
            number += len(made)
        manifest = commit_operation(table, Rewrite(tuple(rewrites)), options)
    gone = [item for old, _ in parts for item in old]
    return manifest, CompactionMetrics(
        fragments_removed=len(gone),
        fragments_added=len(new),
        files_removed=sum(len(item.files) + (item.deletion_file is not None) for item in gone),
        files_added=sum(len(item.files) for item in new),
    )


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
