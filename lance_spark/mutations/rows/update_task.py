"""The tasks of an update: they write the new files of some fragments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import StorageError
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.assignments import Assignment, assign, field_ids
from lance_spark.mutations.rewrite.fragment_rows import AddressedRows, add_offsets, matching_rows
from lance_spark.mutations.rewrite.overlay_files import (
    OverlayFile,
    check_null_structs,
    has_structs,
)
from lance_spark.mutations.rewrite.row_reader import RowReader, replace_data_file, spliced_rows
from lance_spark.mutations.rewrite.writer import (
    UNLIMITED,
    MovedRowsWriter,
    Written,
    rewrite_writer,
    undo,
)
from lance_spark.mutations.rows.candidates import CandidateRows
from lance_spark.mutations.rows.delete import FragmentDeletion, delete_offsets
from lance_spark.mutations.runner import FragmentTask, write_and_delete
from lance_spark.scan.fragment.column_reader import WINDOW_BYTES
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.table.align import align
from lance_spark.table.bases import Target
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.limits import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE
from lance_spark.table.fragments.writer import FragmentWriter
from lance_spark.table.paths import TablePaths
from lance_spark.table.placement import Placement
from lance_spark.table.rows.deletions import Offsets, bitmap_of, encode_bitmap, offsets_of

Mode = Literal["rows", "columns", "overlay"]


@dataclass(frozen=True, slots=True)
class ChangedColumns:
    """A fragment with a new data file for some columns.

    - `bitmap`: Offsets of the rows that changed, as a Roaring bitmap.
    - `field_ids`: Ids of the fields of the new file.
    """

    fragment: Fragment
    bitmap: bytes
    field_ids: tuple[int, ...]
    num_rows: int


@dataclass(frozen=True, slots=True)
class UpdateResult(Written):
    """The result of a task. Small, and can be pickled.

    - `new_fragments`: New fragments of the updated rows, with their lineage in tables with stable
      row ids.
    - `deletions`: Deletions of the same rows from their old fragments.
    """

    new_fragments: tuple[Fragment, ...] = ()
    deletions: tuple[FragmentDeletion, ...] = ()
    columns: tuple[ChangedColumns, ...] = ()
    overlays: tuple[OverlayFile, ...] = ()

    @property
    def num_rows(self) -> int:
        """Number of rows that changed."""
        moved = sum(deletion.num_rows for deletion in self.deletions)
        in_place = sum(change.num_rows for change in self.columns)
        return moved + in_place + sum(overlay.num_rows for overlay in self.overlays)

    @property
    def new_data(self) -> Iterable[Fragment]:
        """The new fragments, and the new files of columns and overlays."""
        columns = (Fragment(0, change.fragment.files[-1:], 0) for change in self.columns)
        overlays = (data for overlay in self.overlays for data in overlay.new_data)
        return (*self.new_fragments, *columns, *overlays)

    @property
    def new_deletion_files(self) -> Iterable[str]:
        """Deletion files of the rows that moved."""
        return [path for deletion in self.deletions for path in deletion.new_deletion_files]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTask(FragmentTask):
    """Fragments whose rows one task updates. Can be pickled if its functions can.

    - `filters`: Rows that meet all of them are updated.
    - `candidates`: By fragment, the rows for which the filters can hold.
    """

    schema: Schema
    file_version: tuple[int, int]
    read_version: int
    assignments: tuple[Assignment, ...]
    filters: tuple[Condition, ...] = ()
    candidates: CandidateRows = None
    mode: Mode = "rows"
    stable_row_ids: bool = False
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE
    placement: Placement = field(default_factory=Placement)
    first: int = 0

    def run(self) -> UpdateResult:
        """Write the new files; delete them after an error.

        Raises CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError. Raises
        InvalidInputError: a function returns a value that its column cannot have.
        """
        paths = self.open_paths()
        if self.mode == "rows":
            return self._rewrite_rows(paths)
        return self._rewrite_columns(paths) if self.mode == "columns" else self._overlay(paths)

    def _rewrite_rows(self, paths: TablePaths) -> UpdateResult:
        results: list[UpdateResult] = []
        try:
            for targets, fragments in self.placement.groups(self.fragments):
                results.append(self._rewrite_rows_of(paths, fragments, targets))
        except BaseException:
            for result in results:
                with suppress(StorageError):
                    undo(paths, result)
            raise
        return UpdateResult(
            tuple(fragment for result in results for fragment in result.new_fragments),
            tuple(deletion for result in results for deletion in result.deletions),
        )

    def _rewrite_rows_of(
        self, paths: TablePaths, fragments: Sequence[Fragment], targets: Sequence[Target]
    ) -> UpdateResult:
        """Rewrite rows of fragments whose new files have the same targets."""
        writer = MovedRowsWriter(
            self._writer(paths, self.schema, targets, self.max_rows_per_file), self.stable_row_ids
        )
        moved: dict[int, BitMap] = {}
        try:
            for rows in self._matching(paths, fragments):
                values = assign(rows.values, self.assignments, self.schema)
                writer.write(values, rows.row_ids, rows.created)
                add_offsets(moved, rows.addresses)
            new, deletions = write_and_delete(
                writer.finish,
                lambda: delete_offsets(paths, fragments, moved, self.read_version, self.tag),
                partial(undo, paths),
            )
        except BaseException:
            writer.abort()
            raise
        return UpdateResult(tuple(new), tuple(deletions))

    def _matching(
        self, paths: TablePaths, fragments: Sequence[Fragment]
    ) -> Iterator[AddressedRows]:
        return matching_rows(
            paths,
            fragments,
            self._read_fields(),
            self.file_version,
            self.base_paths,
            self.filters,
            self.candidates,
            with_lineage=self.stable_row_ids,
        )

    def _rewrite_columns(self, paths: TablePaths) -> UpdateResult:
        changed: list[ChangedColumns] = []
        try:
            for fragment in self.fragments:
                change = self._rewrite_columns_of(paths, fragment)
                if change is not None:
                    changed.append(change)
        except BaseException:
            undo(paths, UpdateResult(columns=tuple(changed)))
            raise
        return UpdateResult(columns=tuple(changed))

    def _rewrite_columns_of(self, paths: TablePaths, fragment: Fragment) -> ChangedColumns | None:
        schema = Schema(tuple(assignment.field for assignment in self.assignments))
        reader = self._reader(paths, fragment, self._read_fields())
        old_reader = self._reader(paths, fragment, schema.fields)
        writer = self._writer(paths, schema, self.placement.of_one_file(fragment))
        try:
            candidates = None if self.candidates is None else self.candidates[fragment.id]
            matching = reader.matching_offsets(candidates)
            if not matching:
                return None
            # Constants can be wider than the values that they replace.
            window = min(old_reader.window_rows(), self._rows_of_constants())
            for start in range(0, fragment.physical_rows, window):
                rows = range(start, min(start + window, fragment.physical_rows))
                for batch in self._new_columns(reader, old_reader, schema, matching, rows):
                    writer.write(batch)
            ((file,),) = (written.files for written in writer.finish())
        except BaseException:
            writer.abort()
            raise
        finally:
            reader.close()
            old_reader.close()
        superseded = set(field_ids(self.assignments)) | set(file.fields)
        state = replace_data_file(paths, fragment, file, superseded)
        return ChangedColumns(state, encode_bitmap(matching), file.fields, len(matching))

    def _overlay(self, paths: TablePaths) -> UpdateResult:
        overlays: list[OverlayFile] = []
        try:
            for fragment in self.fragments:
                overlay = self._overlay_of(paths, fragment)
                if overlay is not None:
                    overlays.append(overlay)
        except BaseException:
            undo(paths, UpdateResult(overlays=tuple(overlays)))
            raise
        return UpdateResult(overlays=tuple(overlays))

    def _overlay_of(self, paths: TablePaths, fragment: Fragment) -> OverlayFile | None:
        schema = Schema(tuple(assignment.field for assignment in self.assignments))
        arrow = input_schema(schema)
        reader = self._reader(paths, fragment, self._read_fields())
        writer = self._writer(paths, schema, self.placement.of_one_file(fragment))
        rows = BitMap()
        try:
            candidates = None if self.candidates is None else self.candidates[fragment.id]
            for batch in reader.matching(candidates):
                values = assign(batch.values, self.assignments, schema)
                for column, updated in zip(schema.fields, values.columns, strict=True):
                    if has_structs(column):
                        old = batch.values.column(column.name)
                        check_null_structs(column, old, updated)
                writer.write(align(values, arrow))
                rows |= bitmap_of(batch.offsets)
            written = writer.finish()
        except BaseException:
            writer.abort()
            raise
        finally:
            reader.close()
        if not written:
            return None
        ((file,),) = (new.files for new in written)
        return OverlayFile(fragment.id, file, encode_bitmap(rows), len(rows))

    def _rows_of_constants(self) -> int:
        constants = (
            assignment.value
            for assignment in self.assignments
            if isinstance(assignment.value, pa.Scalar)
        )
        width: int = sum(pa.repeat(value, 1).nbytes for value in constants)
        return max(WINDOW_BYTES // max(width, 1), 1)

    def _new_columns(
        self,
        reader: RowReader,
        old_reader: RowReader,
        schema: Schema,
        matching: BitMap,
        rows: range,
    ) -> Iterator[pa.RecordBatch]:
        """Yield columns of physical rows: new values at the offsets `matching`, else old values."""
        arrow = input_schema(schema)
        if matching.range_cardinality(rows.start, rows.stop) == len(rows):
            for moved in reader.matching(rows):
                yield align(assign(moved.values, self.assignments, schema), arrow)
            return
        for piece, batch in old_reader.pieces(rows):
            old = align(batch, arrow)
            offsets = _within(matching, piece)
            if not len(offsets):
                yield old
                continue
            parts = [
                align(assign(moved.values, self.assignments, schema), arrow)
                for moved in reader.matching(piece)
            ]
            yield from spliced_rows(piece, old, offsets, pa.Table.from_batches(parts, arrow))

    def _read_fields(self) -> tuple[Field, ...]:
        """Return the fields to read of the rows that change."""
        assigned_names = {assignment.field.name for assignment in self.assignments}
        names: set[str] = set()
        for assignment in self.assignments:
            if assignment.reads is None:
                return self.schema.fields
            names |= assignment.reads
        if self.mode == "rows":
            names |= {
                field.name for field in self.schema.fields if field.name not in assigned_names
            }
        elif self.mode == "overlay":
            names |= {a.field.name for a in self.assignments if has_structs(a.field)}
        return tuple(field for field in self.schema.fields if field.name in names)

    def _reader(self, paths: TablePaths, fragment: Fragment, fields: Sequence[Field]) -> RowReader:
        return RowReader(paths, fragment, fields, self.file_version, self.base_paths, self.filters)

    def _writer(
        self,
        paths: TablePaths,
        schema: Schema,
        targets: Sequence[Target],
        max_rows: int = UNLIMITED,
    ) -> FragmentWriter:
        return rewrite_writer(
            paths,
            schema,
            self.file_version,
            self.base_paths,
            max_rows_per_file=max_rows,
            max_bytes_per_file=UNLIMITED if max_rows == UNLIMITED else DEFAULT_MAX_BYTES_PER_FILE,
            tag=self.tag,
            targets=targets,
            first=self.first,
        )


def _within(offsets: BitMap, rows: range) -> Offsets:
    """Return the offsets within a range of rows, increasing."""
    return offsets_of(offsets & BitMap(rows))
