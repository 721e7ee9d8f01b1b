"""Update rows: plan on the driver, write new files in tasks, commit on the driver; commit a merge.

| mode | a task writes | the commit |
| --- | --- | --- |
| rows | the rows with new values to new fragments; deletion files for the old rows | moves rows |
| columns | a data file of the columns that change, with all rows of a fragment | replaces files |
| overlay | an overlay file for a fragment: the new values of the rows that change | adds overlays |

Mode "rows" is better if few rows of a fragment change. Mode "columns" is better if most rows change
and the table has other columns, which are not read. Mode "overlay" writes least, but other clients
do not open a table with overlays by default. In all modes, rows of tables with stable row ids keep
their ids and the versions that created them.

| step | where | what |
| --- | --- | --- |
| `plan_update` | driver | cuts the fragments into tasks |
| `UpdateTask.run` | task | writes new files; no version refers to them yet |
| `commit_updates` | driver | commits one `Update`, or `DataOverlay`, of all fragments |

`commit_moved` commits a merge: moved, inserted and deleted rows, and the primary keys of inserted
rows. No client enforces the primary key of a table. A filter of the inserted keys in each
transaction reveals that two concurrent merges inserted the same key. Specification: table/index.md,
"Unenforced Primary Key"; table/commit/transaction.md, "Update".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, InvalidOptionError, LanceError, StorageError
from lance_spark.file.blobs.fields import has_blobs, input_schema
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import check_types
from lance_spark.mutations.columns.assignments import Assignment, assign, field_ids, parse_updates
from lance_spark.mutations.commits import (
    at_version,
    commit_rows,
    retry_on_conflict,
    with_unaffected,
)
from lance_spark.mutations.mem_wal import check_rows_changeable
from lance_spark.mutations.rewrite.overlay_files import (
    OverlayFile,
    check_null_structs,
    check_overlaid_fields,
    has_structs,
    overlay_operation,
)
from lance_spark.mutations.rewrite.readers import (
    AddressedRows,
    RowReader,
    add_offsets,
    check_first_field,
    hides_first_field,
    matching_rows,
    replace_data_file,
    spliced_rows,
)
from lance_spark.mutations.rewrite.writers import (
    UNLIMITED,
    MovedRowsWriter,
    RewrittenRows,
    Written,
    rewrite_writer,
    undo,
)
from lance_spark.mutations.rows.conditions import (
    CandidateRows,
    Filter,
    address_check,
    candidate_rows,
    candidates_of,
    conditions_of,
    parse_conditions,
    with_candidates,
)
from lance_spark.mutations.rows.delete import (
    FragmentDeletion,
    delete_offsets,
    deletion_effects,
    run_delete,
    union_rows,
)
from lance_spark.predicates.conditions import Condition
from lance_spark.proto import table_pb2
from lance_spark.runner import FragmentTask, Runner, check_once, runner_for, write_and_delete
from lance_spark.scan.fragment.column_reader import WINDOW_BYTES
from lance_spark.scan.plan import estimated_bytes, read_bytes
from lance_spark.table.align import align
from lance_spark.table.bases import Target
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.commit.write import check_stored
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.limits import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.fragments.writer import FragmentWriter
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.base import InsertedKeys
from lance_spark.table.operations.columns import DataOverlay
from lance_spark.table.operations.update import Update, UpdateMode
from lance_spark.table.paths import TablePaths
from lance_spark.table.placement import Placement, placement_of
from lance_spark.table.rows.deletions import Offsets, bitmap_of, encode_bitmap, offsets_of

# --------------------------------------------------------------------------------------------------
# The choice between the modes of an update: rows that move, or columns that are rewritten.


def can_rewrite_columns(table: OpenTable, fields: Sequence[Field]) -> bool:
    """Return whether the mode ``columns`` can update top-level columns."""
    ids = {node.id for field in fields for node in field.walk()}
    return not any(map(has_blobs, fields)) and not hides_first_field(table.manifest.fragments, ids)


def columns_are_cheaper(
    table: OpenTable, fields: Sequence[Field], fragments: Collection[int], num_rows: int
) -> bool:
    """Return whether the mode ``columns`` writes fewer bytes than the mode ``rows``.

    - `fields`: Top-level columns to update, without blobs.
    - `fragments`: Ids of the fragments with rows to update.
    - `num_rows`: The number of rows to update.
    """
    touched = [
        fragment
        for fragment in counted_fragments(table.paths, table.manifest)
        if fragment.id in fragments
    ]
    physical = sum(fragment.physical_rows for fragment in touched)
    stored = estimated_bytes(touched, physical)
    if not stored:
        # The manifest does not record the sizes of the files.
        return num_rows >= physical
    row_bytes = stored * num_rows / physical
    return 2 * read_bytes(stored, physical, fields, table.schema.fields) < row_bytes


# --------------------------------------------------------------------------------------------------
# The tasks of an update: they write the new files of some fragments.

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


# --------------------------------------------------------------------------------------------------
# Update rows: plan on the driver, write new files in tasks, commit on the driver; commit a merge.


def plan_update(
    table: OpenTable,
    updates: Mapping[str, Any],
    filters: Iterable[Filter] | None = None,
    *,
    mode: Mode = "rows",
    fragments_per_task: int | None = None,
    tag: bytes = b"",
) -> list[UpdateTask]:
    """Cut an update into tasks.

    - `updates`: New values by column, or by child of a struct, whose name has dots. A callable gets
      the rows that change as a record batch, and returns one value for each row.
    - `filters`: Rows that meet all of them are updated: all rows without filters.
    - `fragments_per_task`: By default one task has all fragments, and writes as few new fragments
      as possible.

    Raises InvalidInputError, SchemaMismatchError: a filter cannot be parsed, a column does not
    exist, or a value does not have its type. Raises InvalidOptionError: the mode does not exist.
    Raises UnsupportedFeatureError, UnsupportedError: the table needs a newer release.
    """
    if mode not in get_args(Mode):
        raise InvalidOptionError(f"mode must be one of {', '.join(get_args(Mode))}, not {mode!r}")
    schema, manifest = table.schema, table.manifest
    assignments = parse_updates(updates, schema)
    check_rows_changeable(table, data_files=True, written=set(field_ids(assignments)))
    check_types(schema, manifest.data_storage_version)
    if mode == "columns":
        check_first_field(table, field_ids(assignments))
    elif mode == "overlay":
        check_overlaid_fields(table, (assignment.field for assignment in assignments))
    comparisons = parse_conditions(table, filters)
    fragments = counted_fragments(table.paths, table.manifest)
    candidates = candidate_rows(table, fragments, comparisons)
    fragments = with_candidates(fragments, candidates)
    placement = placement_of(table)
    size = fragments_per_task or max(len(fragments), 1)
    groups = [fragments[start : start + size] for start in range(0, len(fragments), size)]
    return [
        UpdateTask(
            uri=table.store.uri,
            schema=schema,
            file_version=manifest.data_storage_version,
            fragments=chosen,
            candidates=candidates_of(chosen, candidates),
            read_version=table.version,
            assignments=assignments,
            filters=comparisons,
            mode=mode,
            stable_row_ids=manifest.flags.stable_row_ids,
            base_paths=manifest.base_paths,
            storage_options=table.store.options,
            tag=tag,
            placement=placement,
            first=number,
        )
        for number, chosen in enumerate(groups)
    ]


def update_operation(
    table: OpenTable, results: Iterable[UpdateResult], changed: Iterable[int], mode: Mode
) -> Update:
    """Return the operation that makes updates part of the table; see `commit_updates`.

    Overlays are not in it.
    """
    results = list(results)
    columns = [change for result in results for change in result.columns]
    moved = [deletion for result in results for deletion in result.deletions]
    if (moved and mode != "rows") or (columns and mode != "columns"):
        raise InvalidInputError(f"the tasks were not planned with mode {mode!r}")
    check_once(table, (change.fragment.id for change in columns))
    if mode == "columns":
        return Update(
            fragments=tuple(change.fragment for change in columns),
            fields_modified=tuple(
                sorted({n for change in columns for n in change.field_ids if n >= 0})
            ),
            mode=UpdateMode.REWRITE_COLUMNS,
            updated_offsets={
                change.fragment.id: BitMap.deserialize(change.bitmap) for change in columns
            },
        )
    fragments, removed, affected = deletion_effects(table, moved)
    return Update(
        fragments=fragments,
        new_fragments=tuple(fragment for result in results for fragment in result.new_fragments),
        removed_fragment_ids=removed,
        fields_for_preserving_frag_bitmap=tuple(changed),
        affected=affected,
    )


def commit_updates(
    table: OpenTable,
    results: Iterable[UpdateResult],
    assignments: Iterable[Assignment],
    *,
    mode: Mode = "rows",
    options: CommitOptions | None = None,
) -> Manifest:
    """Make the updates of all tasks part of the table.

    - `results`: No results make a version too.

    Raises UncertainCommitError, StorageError, CorruptTableError. Raises CommitConflictError:
    another client changed the same rows; the new files are deleted. Raises InvalidInputError: two
    results are of one fragment, or results are of another mode.
    """
    results = list(results)
    overlays = [overlay for result in results for overlay in result.overlays]
    if overlays and mode != "overlay":
        raise InvalidInputError(f"the tasks were not planned with mode {mode!r}")
    options = options or CommitOptions()
    changed = list(field_ids(assignments))
    operation: Update | DataOverlay = update_operation(table, results, changed, mode)
    if overlays:
        operation = overlay_operation(table, overlays)
    if mode == "rows":
        options = with_unaffected(table, options, changed)
    return commit_rows(table, operation, options)


def update_rows(
    table: OpenTable,
    updates: Mapping[str, Any],
    filters: str | Iterable[Filter] | None,
    mode: Mode,
    options: CommitOptions,
    runner: Runner | None = None,
    fragments_per_task: int | None = None,
) -> OpenTable:
    """Update rows; see `Dataset.update` and `plan_update`. Tasks run in this process by default."""
    conditions = conditions_of(filters)

    def change(current: OpenTable) -> Manifest:
        task_runner = runner_for(current, runner)
        tasks = plan_update(
            current,
            updates,
            conditions,
            mode=mode,
            fragments_per_task=fragments_per_task,
            tag=task_runner.tag,
        )
        rows = sum(fragment.num_rows for task in tasks for fragment in task.fragments)
        total = None if conditions else rows
        undo_all = partial(undo, current.paths)
        results = task_runner.run_counted(tasks, UpdateTask.run, undo_all, "rewrite", total, "rows")
        assignments = parse_updates(updates, current.schema)
        return commit_updates(current, results, assignments, mode=mode, options=options)

    check = address_check(table, conditions)
    manifest = retry_on_conflict(table, change, options, before_replan=check)
    return at_version(table, manifest)


def commit_moved(
    table: OpenTable,
    runner: Runner,
    moved: Sequence[RewrittenRows],
    count: int,
    columns: Collection[str],
    options: CommitOptions,
    keys: InsertedKeys | None = None,
) -> Manifest:
    """Commit the new fragments of moved and inserted rows, and delete the old rows.

    - `runner`: Runs the tasks that write deletion files.
    - `moved`: Results of the tasks that moved, deleted and inserted rows.
    - `count`: Number of rows that are moved or deleted.
    - `columns`: Top-level columns whose values changed in rows that moved.

    Raises LanceError: the number of deleted rows is not `count`; or errors of `commit`.
    """
    rows = union_rows((part.rows for part in moved), disjoint=True)
    deletions = run_delete(table, runner, (), rows) if rows else []
    return commit_moved_rows(table, moved, deletions, count, columns, options, keys)


def commit_moved_rows(
    table: OpenTable,
    moved: Sequence[RewrittenRows],
    deletions: Sequence[FragmentDeletion],
    count: int,
    columns: Collection[str],
    options: CommitOptions,
    keys: InsertedKeys | None = None,
    compacted: Sequence[table_pb2.CompactedSsTable] = (),
) -> Manifest:
    """Commit as `commit_moved` does, with deletion files that are written."""
    written = (new for part in moved for new in (*part.fragments, *part.inserted))
    check_stored(table.paths, written, table.version, table.manifest.identity)
    operation = moved_operation(table, moved, deletions, count, columns, keys, compacted)
    if not compacted and not any(part.num_inserted for part in moved):
        options = with_unaffected(table, options, operation.fields_for_preserving_frag_bitmap)
    return commit_rows(table, operation, options)


def moved_operation(
    table: OpenTable,
    moved: Sequence[RewrittenRows],
    deletions: Sequence[FragmentDeletion],
    count: int,
    columns: Collection[str],
    keys: InsertedKeys | None = None,
    compacted: Sequence[table_pb2.CompactedSsTable] = (),
) -> Update:
    """Return the operation of `commit_moved_rows`.

    - `compacted`: Generations of the MemWAL whose rows these are.
    """
    if sum(deletion.num_rows for deletion in deletions) != count:
        raise LanceError(
            f"{table.store.display}: the tasks moved or deleted {count} rows, but the deletion "
            "files hold another number; nothing was changed, run it again"
        )
    fragments = tuple(fragment for part in moved for fragment in part.fragments)
    result = UpdateResult(new_fragments=fragments, deletions=tuple(deletions))
    fields = (field for field in table.schema.fields if field.name in columns)
    changed = [node.id for field in fields for node in field.walk() if node.id >= 0]
    operation = update_operation(table, [result], changed, "rows")
    inserted = (fragment for part in moved for fragment in part.inserted)
    return replace(
        operation,
        new_fragments=(*operation.new_fragments, *inserted),
        inserted_rows=keys,
        compacted_sstables=tuple(compacted),
    )
