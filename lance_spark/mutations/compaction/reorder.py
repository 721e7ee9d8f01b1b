"""Reordering: fragments are rewritten with their rows in a given order of row addresses.

| step | where | what |
| --- | --- | --- |
| `plan_reorder` | driver | groups fragments that the same indexes cover; groups are sorted alone |
| `Reorder` | task | reads rows by their addresses, in order, and writes them |
| `commit_reordered` | driver | checks that each live row was written once; commits one `Rewrite` |

In tables with stable row ids, rows keep their ids and the versions that created and last updated
them, and indexes that hold row ids stay valid. Indexes that hold row addresses (all indexes of
tables without stable row ids) no longer cover these fragments: queries scan them until the index is
built again.

The commit fails if another client deleted or changed a row meanwhile, as in a compaction. All
groups are planned again then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, StorageError, UnsupportedFeatureError
from lance_spark.file.writer import check_types
from lance_spark.mutations.commits import after_failure, check_rows_writable, commit_operation
from lance_spark.mutations.compaction.task import (
    CompactionMetrics,
    after_reserving,
    covered_fragments,
    metrics_of,
    reserve_fragment_ids,
)
from lance_spark.mutations.rewrite.readers import AddressReader, add_unique_addresses
from lance_spark.mutations.rewrite.writers import (
    UNLIMITED,
    MovedRowsWriter,
    Written,
    discard,
    rewrite_writer,
    with_reserved_ids,
)
from lance_spark.mutations.rows.delete import union_rows
from lance_spark.table.bases import Target
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.rewrite import Rewrite, RewriteGroup
from lance_spark.table.placement import placement_of
from lance_spark.table.rows.deletions import bitmap_of, expect_deletions, read_deletions
from lance_spark.table.rows.u64_segments import UInt64Array
from lance_spark.table.sort_order import SortedColumn


@dataclass(frozen=True, slots=True)
class Reordered(Written):
    """The result of a task. Small, and can be pickled.

    - `new`: With the lineage of their rows in tables with stable row ids. Their fragment ids are
      not assigned yet.
    - `rows`: Old offsets of the rows by fragment, as Roaring bitmaps.
    """

    new: tuple[Fragment, ...] = ()
    rows: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def new_data(self) -> Iterable[Fragment]:
        """The new fragments."""
        return self.new


class Reorder:
    """Writes rows in the order of the given addresses. Each task has one.

    - `max_rows_per_file`, `max_bytes_per_file`: A data file is closed once it has this number of
      rows or bytes.
    - `targets`: Targets of the files, used in turn: ids of base paths, or None for the table
      itself.
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
        """Append rows.

        - `addresses`: Addresses of live rows.

        Raises CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError. Raises
        InvalidInputError: an address is not that of a live row, or occurs twice.
        """
        if not len(addresses):
            return
        add_unique_addresses(self._table, self._rows, addresses)
        step = self._rows_at.window_rows(int(addresses[0]))
        for position in range(0, len(addresses), step):
            rows = self._rows_at.read(addresses[position : position + step])
            self._writer.write(rows.values, rows.row_ids, rows.created, rows.updated)

    def finish(self) -> Reordered:
        """Close the files, and return the result."""
        self._rows_at.close()
        new = self._writer.finish() if self._rows else []
        rows = {number: offsets.serialize() for number, offsets in self._rows.items()}
        return Reordered(tuple(new), rows)

    def abort(self) -> None:
        """Delete the files; those that cannot be deleted are left to cleanup."""
        self._rows_at.close()
        with suppress(StorageError):
            self._writer.abort()


def plan_reorder(table: OpenTable, excluded: Collection[int] = ()) -> list[tuple[Fragment, ...]]:
    """Return the groups of fragments whose rows can be sorted together.

    - `excluded`: Ids of fragments that stay as they are.

    Returns fragments that the same indexes cover and whose files have the same targets, in the
    order of their ids. Raises UnsupportedError, CorruptTableError, StorageError. Raises
    UnsupportedFeatureError: the table has a fragment reuse index, which cannot describe rows in
    another order.
    """
    check_rows_writable(table, data_files=True)
    manifest = table.manifest
    check_types(table.schema, manifest.data_storage_version)
    if fragment_reuse.find_entry(indexes.section_of(manifest)) is not None:
        raise UnsupportedFeatureError(
            f"{table.store.display}: the rows of a table with a fragment reuse index cannot be "
            "reordered; compact the table without sorting, or drop its indexes first"
        )
    covered = covered_fragments(table)
    placement = placement_of(table)
    groups: dict[tuple[object, ...], list[Fragment]] = {}
    for fragment in sorted(
        counted_fragments(table.paths, manifest), key=lambda fragment: fragment.id
    ):
        if fragment.id not in excluded and fragment.num_rows:
            covering = tuple(index for index, bitmap in enumerate(covered) if fragment.id in bitmap)
            groups.setdefault((placement.of(fragment), covering), []).append(fragment)
    return [tuple(group) for group in groups.values()]


def commit_reordered(
    table: OpenTable,
    groups: Iterable[tuple[Sequence[Fragment], Sequence[Reordered]]],
    options: CommitOptions | None = None,
    sorted_by: tuple[SortedColumn, ...] = (),
) -> tuple[Manifest, CompactionMetrics]:
    """Replace the old fragments by the new fragments.

    - `groups`: The fragments of each group, and the results of its tasks, in order.
    - `sorted_by`: The columns by which the rows of each group are sorted in Spark's order. Recorded
      if they are all rows of the new version, in one group.

    Raises StorageError, CorruptTableError. Raises InvalidInputError: a live row was not written
    exactly once. The new files are deleted, as after all errors except `UncertainCommitError`.
    Raises CommitConflictError: another client changed the same fragments.
    """
    parts = [(tuple(old), list(written)) for old, written in groups]
    options = options or CommitOptions()
    results = [result for _, written in parts for result in written]
    with after_failure(lambda: discard(table.paths, results)):
        for old, written in parts:
            _check_complete(table, old, written)
        new = [fragment for result in results for fragment in result.new]
        reserved = reserve_fragment_ids(table, len(new), options)
        first_id = (reserved.max_fragment_id or 0) - len(new) + 1
        rewrites = []
        for old, written in parts:
            fragments = [fragment for result in written for fragment in result.new]
            rewrites.append(RewriteGroup(old, with_reserved_ids(fragments, first_id)))
            first_id += len(fragments)
        order = sorted_by if len(rewrites) == 1 else ()
        planned = after_reserving(table, reserved)
        manifest = commit_operation(planned, Rewrite(tuple(rewrites), sorted_by=order), options)
    removed = [fragment for old, _ in parts for fragment in old]
    return manifest, metrics_of(removed, new)


def _check_complete(
    table: OpenTable, old: Sequence[Fragment], written: Sequence[Reordered]
) -> None:
    """Raise an error unless each live row of the fragments was written once."""
    name = table.store.display
    written_rows = union_rows((result.rows for result in written), disjoint=True)
    count = sum(len(rows) for rows in written_rows.values())
    expect_deletions(table.paths, old)
    for fragment in old:
        live = BitMap(range(fragment.physical_rows))
        live -= bitmap_of(read_deletions(table.paths, fragment))
        if written_rows.pop(fragment.id, BitMap()) != live:
            raise InvalidInputError(
                f"{name}: the rows that were written of fragment {fragment.id} are not its "
                f"{len(live)} live rows; reorder it again"
            )
    if written_rows:
        raise InvalidInputError(
            f"{name}: rows of fragment {min(written_rows)} were written, which is not in the group"
        )
    num_written = sum(fragment.physical_rows for result in written for fragment in result.new)
    if num_written != count:
        raise InvalidInputError(f"{name}: {num_written} of {count} rows were written")
