"""Segments of an index that a task merges into the segment that it writes."""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap

from lance_spark.indexes import registry
from lance_spark.mutations.indexes.column import live_rows
from lance_spark.mutations.indexes.merging.sources import KeptRows, SegmentSource, sets_of
from lance_spark.mutations.runner import FragmentTask
from lance_spark.proto import table_pb2
from lance_spark.scan.fragment.row_meta import ROW_ID
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths


@dataclass(frozen=True, slots=True)
class MergedSegment:
    """An existing segment that becomes a part of a new one. Can be pickled.

    Attributes
    ----------
    segment : table_pb2.IndexMetadata
    fragments : tuple of Fragment
        The fragments whose rows the new segment takes from it.
    moved : MovedRows or None
        Rows that compactions moved since the segment was written; None if unknown.
    stable_row_ids : bool
    """

    segment: table_pb2.IndexMetadata
    fragments: tuple[Fragment, ...]
    moved: MovedRows | None
    stable_row_ids: bool

    @property
    def num_rows(self) -> int:
        """The physical rows of the fragments."""
        return sum(fragment.physical_rows for fragment in self.fragments)

    def source(self, task: FragmentTask, paths: TablePaths) -> SegmentSource:
        """Return the files of the segment, and the rows of them that stay.

        Raises
        ------
        CorruptFileError, CorruptTableError, StorageError
        """
        has_addresses = indexes.holds_addresses(self.segment, self.stable_row_ids)
        live = None
        if not has_addresses or not _keeps_deleted(self.segment):
            live = sets_of(live_rows(task, self.fragments, ROW_ID))
        kept = KeptRows(
            indexes.fragment_bitmap(self.segment) or BitMap(),
            BitMap(fragment.id for fragment in self.fragments),
            self.moved if has_addresses else None,
            live,
        )
        return SegmentSource(IndexFiles(paths, self.segment), kept)


def _keeps_deleted(segment: table_pb2.IndexMetadata) -> bool:
    """Return whether addresses of deleted rows may stay in the files."""
    index_type = registry.TYPES.get(indexes.type_of_index(segment))
    return index_type is not None and index_type.keeps_deleted
