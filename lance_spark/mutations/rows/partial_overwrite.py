"""Partial overwrite: one version deletes the rows that meet a condition and adds new rows.

| step | where | what |
| --- | --- | --- |
| `begin_write` with the mode append | driver | plans the write on a version |
| `WriteJob.writer` | task | writes data files of the new rows; no version refers to them yet |
| `ReplaceRows.commit` | driver | finds the rows, writes deletion files, commits one `Update` |

A fragment that loses all rows is removed without a deletion file. Only the columns of the condition
are read. The first attempt deletes rows of the version that the write was planned on: rows that
another client appended meanwhile stay. If another client changed rows to delete, the overwrite is
planned again on the newest version, and deletes the rows that meet the condition there.
Specification: table/commit/transaction.md, `Update`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lance_spark.errors import CommitConflictError
from lance_spark.mutations.commits import commit_rows, retry_on_conflict
from lance_spark.mutations.rows.conditions import Filter
from lance_spark.mutations.rows.delete import (
    Affected,
    RowsByFragment,
    changed_fragments,
    run_delete,
)
from lance_spark.mutations.runner import LocalRunner, Runner, check_once
from lance_spark.scan.predicates.tree import Predicate
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.commit.write_job import WriteJob, WriteStrategy
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.update import Update

#: Number of tasks that search fragments at the same time.
_THREADS = 16


def replace_once(
    table: OpenTable,
    runner: Runner,
    filters: Sequence[Filter],
    rows: RowsByFragment | None,
    fragments: Sequence[Fragment],
    options: CommitOptions,
    *,
    keep_new_fragments: bool = False,
) -> tuple[Manifest, int]:
    """Replace rows of one version by the rows of new fragments: plan, run and commit.

    Parameters
    ----------
    table, runner, filters, rows
        As for `run_delete`: the rows to replace.
    fragments : sequence of Fragment
        The new rows.
    keep_new_fragments : bool
        As for `commit_rows`.

    Returns
    -------
    tuple of Manifest and int
        The new version, and the number of replaced rows.
    """
    deletions = run_delete(table, runner, filters, rows)
    check_once(table, (deletion.fragment_id for deletion in deletions))
    by_id = {deletion.fragment_id: deletion for deletion in deletions}
    operation = Update(
        fragments=changed_fragments(table, by_id),
        new_fragments=tuple(fragments),
        removed_fragment_ids=tuple(
            sorted(i for i, deletion in by_id.items() if deletion.file is None)
        ),
        affected=Affected(by_id),
    )
    manifest = commit_rows(table, operation, options, keep_new_fragments=keep_new_fragments)
    return manifest, sum(deletion.num_rows for deletion in deletions)


@dataclass(frozen=True, slots=True)
class ReplaceRows(WriteStrategy):
    """Replace the rows that meet a condition, in a table that exists.

    Attributes
    ----------
    condition : Predicate
        On columns of the table.
    """

    condition: Predicate

    def commit(
        self, job: WriteJob, fragments: Sequence[Fragment], options: CommitOptions
    ) -> Manifest:
        """Find the rows, write their deletion files, and commit; plan again after a conflict.

        Raises
        ------
        LanceError
            Errors of `commit`. The new fragments stay: `WriteJob.abort` deletes them.
        """
        table = job.base_table()
        runner = LocalRunner(table.store.is_local, _THREADS)
        runner.tag = job.tag

        def change(current: OpenTable) -> Manifest:
            _check_columns(current, job, self.condition)
            condition = [self.condition]
            return replace_once(
                current, runner, condition, None, fragments, options, keep_new_fragments=True
            )[0]

        return retry_on_conflict(table, change, options.conflict_retries)


def _check_columns(table: OpenTable, job: WriteJob, condition: Predicate) -> None:
    """Raise an error if a version lacks columns of the new rows or of the condition.

    Raises
    ------
    CommitConflictError
    """
    for field in [*job.schema.walk(), *(field for path in condition.paths for field in path)]:
        current = table.schema.field_by_id(field.id)
        # The id of a dropped column can be used again.
        if current is None or (current.name, current.logical_type) != (
            field.name,
            field.logical_type,
        ):
            raise _overtaken(
                table, f"column {field.name!r} was dropped, renamed or given another type"
            )
    if table.version != job.read_version and not job.fits(table.manifest):
        raise _overtaken(table, "the columns no longer fit the rows to write: they were changed")


def _overtaken(table: OpenTable, change: str) -> CommitConflictError:
    return CommitConflictError(
        f"{table.store.display}: {change} by version {table.version}, while this overwrite was "
        "running; write again",
        retryable=False,
    )
