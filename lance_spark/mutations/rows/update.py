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

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, InvalidOptionError, LanceError
from lance_spark.file.writer import check_types
from lance_spark.mutations.columns.assignments import Assignment, field_ids, parse_updates
from lance_spark.mutations.commits import (
    at_version,
    commit_rows,
    retry_on_conflict,
)
from lance_spark.mutations.mem_wal import check_rows_changeable
from lance_spark.mutations.rewrite.overlay_files import check_overlaid_fields, overlay_operation
from lance_spark.mutations.rewrite.row_reader import check_first_field
from lance_spark.mutations.rewrite.row_rewriter import RewrittenRows
from lance_spark.mutations.rewrite.writer import undo
from lance_spark.mutations.rows.candidates import candidate_rows, candidates_of, with_candidates
from lance_spark.mutations.rows.conditions import (
    Filter,
    address_check,
    conditions_of,
    parse_conditions,
)
from lance_spark.mutations.rows.delete import (
    FragmentDeletion,
    deletion_effects,
    run_delete,
    union_rows,
)
from lance_spark.mutations.rows.update_task import Mode, UpdateResult, UpdateTask
from lance_spark.mutations.runner import Runner, check_once, runner_for
from lance_spark.proto import table_pb2
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.data_overlay import DataOverlay
from lance_spark.table.operations.data.inserted_keys import InsertedKeys
from lance_spark.table.operations.data.update import Update, UpdateMode
from lance_spark.table.placement import placement_of


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
    check_rows_changeable(table, data_files=True)
    schema, manifest = table.schema, table.manifest
    assignments = parse_updates(updates, schema)
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
    operation: Update | DataOverlay = update_operation(table, results, field_ids(assignments), mode)
    if overlays:
        operation = overlay_operation(table, overlays)
    return commit_rows(table, operation, options or CommitOptions())


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
    operation = moved_operation(table, moved, deletions, count, columns, keys, compacted)
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
