"""Updating rows: planned on the driver, carried out by any number of workers, committed on the
driver.

| mode | a worker writes | the commit |
| --- | --- | --- |
| rows | the rows with their new values to new fragments, and deletion files for the old ones | moves them |
| columns | a new data file for the columns that change, with all rows of a fragment | changes them where they are |

Rows are the better choice if few of a fragment change, columns if most do and there are others,
which are not read. In tables with stable row ids rows keep their ids and the version that they were
created in, whatever the mode.

| step | where | what |
| --- | --- | --- |
| `plan_update` | driver | tasks |
| `UpdateTask.run` | workers | new files; nothing refers to them yet |
| `commit_updates` | driver | one `Update` of all fragments |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, get_args

from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.file.writer import check_types
from lance_spark.mutations.columns.assignments import Assignment, field_ids, parse_updates
from lance_spark.mutations.retry import (
    check_once,
    check_rows_writable,
    commit_rows,
    retry_on_conflict,
)
from lance_spark.mutations.rewrite.row_reader import check_first_field
from lance_spark.mutations.rows.delete import (
    Affected,
    Filter,
    candidates,
    changed_fragments,
    conditions_of,
    in_place,
    parse_conditions,
)
from lance_spark.mutations.rows.update_task import Mode, UpdateResult, UpdateTask, undo
from lance_spark.mutations.runner import Runner, runner_for
from lance_spark.table.commit.commit import DEFAULT_MAX_RETRIES
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
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

    Parameters
    ----------
    table : OpenTable
        At the version that it is planned on.
    updates : mapping of str to value, pa.Scalar or callable
        New values by column, or by child of a struct, whose name has dots; a callable gets the rows
        that change as a record batch, and returns as many values.
    filters : iterable of (column, operator, value) or Predicate, optional
        Rows that meet all of them are updated: all rows if there are none.
    mode : str
        "rows" or "columns".
    fragments_per_task : int, optional
        All in one task by default, whose rows go into as few new fragments as can be.
    tag : bytes
        Which the new files carry.

    Raises
    ------
    InvalidInputError, SchemaMismatchError
        A filter makes no sense, there is no such column, or a value is none of its type.
    InvalidOptionError
        There is no such mode.
    UnsupportedFeatureError, UnsupportedError
        The table needs more than this release does.
    """
    if mode not in get_args(Mode):
        raise InvalidOptionError(f"mode {mode!r} is none of {', '.join(get_args(Mode))}")
    check_rows_writable(table, data_files=True)
    schema, manifest = table.schema, table.manifest
    assignments = parse_updates(updates, schema)
    check_types(schema, manifest.data_storage_version)
    if mode == "columns":
        check_first_field(table, field_ids(assignments))
    comparisons = parse_conditions(table, filters)
    fragments = candidates(table, None)
    placement = placement_of(table)
    size = fragments_per_task or max(len(fragments), 1)
    return [
        UpdateTask(
            uri=table.store.uri,
            schema=schema,
            file_version=manifest.data_storage_version,
            fragments=fragments[position : position + size],
            read_version=table.version,
            assignments=assignments,
            filters=comparisons,
            mode=mode,
            stable_row_ids=manifest.flags.stable_row_ids,
            base_paths=manifest.base_paths,
            storage_options=table.store.options,
            tag=tag,
            placement=placement,
            first=position // size,
        )
        for position in range(0, len(fragments), size)
    ]


def update_operation(
    table: OpenTable, results: Iterable[UpdateResult], changed: Iterable[int], mode: Mode
) -> Update:
    """Return the operation that makes updates part of the table; see `commit_updates`."""
    results = list(results)
    columns = [item for result in results for item in result.columns]
    moved = [item for result in results for item in result.deletions]
    if (moved and mode == "columns") or (columns and mode == "rows"):
        raise InvalidInputError(f"the tasks were not planned with mode {mode!r}")
    check_once(table, (item.fragment_id for item in moved))
    check_once(table, (item.fragment.id for item in columns))
    if mode == "columns":
        return Update(
            fragments=tuple(item.fragment for item in columns),
            fields_modified=tuple(
                sorted({n for item in columns for n in item.field_ids if n >= 0})
            ),
            mode=UpdateMode.REWRITE_COLUMNS,
            updated_offsets={item.fragment.id: BitMap.deserialize(item.bitmap) for item in columns},
        )
    deletions = {item.fragment_id: item for item in moved}
    return Update(
        fragments=changed_fragments(table, deletions),
        new_fragments=tuple(item for result in results for item in result.new_fragments),
        removed_fragment_ids=tuple(sorted(i for i, item in deletions.items() if item.file is None)),
        fields_for_preserving_frag_bitmap=tuple(changed),
        affected=Affected(deletions),
    )


def commit_updates(
    table: OpenTable,
    results: Iterable[UpdateResult],
    assignments: Iterable[Assignment],
    *,
    mode: Mode = "rows",
    properties: Mapping[str, str] | None = None,
    max_retries: int = DEFAULT_MAX_RETRIES,
) -> Manifest:
    """Make the updates of all tasks part of the table.

    Parameters
    ----------
    table : OpenTable
        At the version that they were planned on.
    results : iterable of UpdateResult
        None at all make a version too.
    assignments : iterable of Assignment
    mode : str
    properties : mapping of str to str, optional
        Of the transaction.
    max_retries : int
        How often to start again after other writers were faster.

    Returns
    -------
    Manifest
        The new version.

    Raises
    ------
    CommitConflictError
        Others changed the same rows; the new files are deleted again.
    InvalidInputError
        Two of them are about one fragment, or they are of another mode.
    UncertainCommitError, StorageError, CorruptTableError
    """
    operation = update_operation(table, results, field_ids(assignments), mode)
    return commit_rows(table, operation, properties=properties, max_retries=max_retries)


def update_rows(
    table: OpenTable,
    updates: Mapping[str, Any],
    filters: str | Iterable[Filter] | None,
    *,
    mode: Mode,
    properties: Mapping[str, str] | None,
    conflict_retries: int,
    max_retries: int,
    runner: Runner | None = None,
    fragments_per_task: int | None = None,
) -> OpenTable:
    """Update rows; see `Dataset.update` and `plan_update`. The runner is this machine by
    default.
    """
    conditions = conditions_of(filters)

    def change(current: OpenTable) -> Manifest:
        by = runner_for(current, runner)
        tasks = plan_update(
            current,
            updates,
            conditions,
            mode=mode,
            fragments_per_task=fragments_per_task,
            tag=by.tag,
        )
        results = by.run(tasks, UpdateTask.run, partial(undo, current.paths))
        assignments = parse_updates(updates, current.schema)
        return commit_updates(
            current,
            results,
            assignments,
            mode=mode,
            properties=properties,
            max_retries=max_retries,
        )

    return retry_on_conflict(table, change, conflict_retries, again=in_place(table, conditions))
