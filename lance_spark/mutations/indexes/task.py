"""The task that writes one segment of an index.

It reads the column of some fragments, with the id or address of each row
(`lance_spark.indexes.builds`), and the files of segments that it merges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyroaring import BitMap

from lance_spark import progress
from lance_spark.errors import InvalidInputError, UnsupportedError
from lance_spark.file.schema.field import Field
from lance_spark.indexes import builds, registry
from lance_spark.indexes.builds import (
    Builder,
    StoredParts,
    builder_of,
    column_batches,
    column_parts,
    live_rows,
    naming_damaged_files,
    target_of,
    value_type,
    write_files,
)
from lance_spark.indexes.files import IndexFiles, SegmentWriter, delete_segment_files
from lance_spark.indexes.merges import KeptRows, SegmentSource, sets_of
from lance_spark.indexes.row_sets import MovedRows
from lance_spark.proto import table_pb2
from lance_spark.runner import FragmentTask
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS, ROW_ID
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths

# --------------------------------------------------------------------------------------------------
# Segments of an index that a task merges into the segment that it writes.


@dataclass(frozen=True, slots=True)
class MergedSegment:
    """An existing segment that becomes a part of a new one. Can be pickled.

    - `fragments`: The fragments whose rows the new segment takes from it.
    - `moved`: Rows that compactions moved since the segment was written; None if unknown.
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

        Raises CorruptFileError, CorruptTableError, StorageError.
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


# --------------------------------------------------------------------------------------------------
# The task that writes one segment of an index.


@dataclass(frozen=True, slots=True)
class RefusedSegment:
    """The result of a task that cannot write its segment, for example without a package."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexTask(FragmentTask):
    """Writes one segment of an index over some fragments.

    - `path`: The fields from the top-level field to the column.
    - `version`: File version of the table.
    - `merged`: Existing segments whose rows the new segment has, too.
    """

    path: tuple[Field, ...]
    index_type: str
    parameters: Mapping[str, Any]
    version: tuple[int, int]
    stable_row_ids: bool
    merged: tuple[MergedSegment, ...] = ()

    def run(self) -> table_pb2.IndexMetadata:
        """Write the files; return the segment without its name and version.

        Raises CorruptFileError, CorruptTableError, UnsupportedTypeError, StorageError.
        """
        builder = builder_of(self.index_type)
        paths = self.open_paths()
        with SegmentWriter(paths, self.version) as segment:
            self._write(segment, builder, paths)
            files = segment.finish()
        message = table_pb2.IndexMetadata(
            fields=[self.path[-1].id],
            index_version=builder.version
            if builder.version_of is None
            else builder.version_of(self.parameters),
            created_at=time.time_ns() // 1_000_000,
            files=files,
        )
        message.uuid.uuid = segment.id.bytes
        message.index_details.type_url = builder.type_url
        message.index_details.value = builder.details(value_type(self.path[-1]), self.parameters)
        # An empty bitmap is not the same as an unknown one.
        covered = BitMap(fragment.id for fragment in self.fragments)
        covered |= BitMap(fragment.id for merged in self.merged for fragment in merged.fragments)
        indexes.set_fragment_bitmap(message, covered)
        return message

    def run_if_possible(self) -> table_pb2.IndexMetadata | RefusedSegment:
        """Do what `run` does; return the reason if this release cannot write the segment."""
        try:
            return self.run()
        except (UnsupportedError, InvalidInputError) as error:
            return RefusedSegment(str(error))

    def _write(self, segment: SegmentWriter, builder: Builder, paths: TablePaths) -> None:
        row_field = ROW_ADDRESS if target_of(builder, self.parameters).with_addresses else ROW_ID
        with naming_damaged_files(self, self.path):
            if builder.write_batches is not None:
                batches = column_batches(self, self.path, row_field, stage=builder.stage)
                stored: Iterable[Any]
                if builder.stored_parts is not None:
                    stored = self._stored(paths, builder.stored_parts)
                else:
                    stored = [merged.source(self, paths) for merged in self.merged]
                builder.write_batches(segment, batches, self.parameters, stored)
                return
            parts = column_parts(self, self.path, row_field, builds.PART_BYTES)
            sources = [merged.source(self, paths) for merged in self.merged]
            dtype = value_type(self.path[-1])
            write_files(segment, builder, dtype, parts, sources, self.parameters)

    def _stored(self, paths: TablePaths, stored_parts: StoredParts) -> Iterator[Any]:
        """Yield the parts of the segments that are merged."""
        count = len(self.merged)
        for merged in progress.counted(self.merged, "copy_partitions", count, "segments"):
            ids = None
            if self.stable_row_ids:
                live = live_rows(self, merged.fragments, ROW_ID)
                ids = np.sort(np.concatenate([np.empty(0, np.uint64), *live]))
            covered = BitMap(fragment.id for fragment in merged.fragments)
            assert merged.moved is not None  # else the rows are read again
            yield from stored_parts(IndexFiles(paths, merged.segment), covered, merged.moved, ids)

    def undo(self, segment: table_pb2.IndexMetadata | RefusedSegment) -> None:
        """Delete the files of a segment."""
        if not isinstance(segment, RefusedSegment):
            delete_segment_files(self.open_paths(), segment)


def undo_of(
    tasks: Sequence[IndexTask],
) -> Callable[[table_pb2.IndexMetadata | RefusedSegment], None]:
    """Return a function that deletes the files of a segment that one of the tasks wrote."""
    return tasks[0].undo
