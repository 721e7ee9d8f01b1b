"""Overwriting a part of a table: the rows that meet a condition go, and new ones come, in one
version.

| step | where | what |
| --- | --- | --- |
| `begin_write` with the mode append | driver | looks at the table |
| `WriteJob.writer` | workers | data files of the new rows; nothing refers to them yet |
| `commit_replacement` | driver | finds the rows that go, writes deletion files, one `Update` with new fragments |

Fragments that lose all rows go without a deletion file. Only the columns of the condition are read.
The first attempt is planned on the version that the write was planned on: rows that others appended
meanwhile stay. If others changed rows that go, it is planned anew on the newest version, and what
meets the condition there goes. Specification: table/commit/transaction.md, `Update`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from lance_spark.errors import CommitConflictError
from lance_spark.mutations.retry import (
    DEFAULT_CONFLICT_RETRIES,
    check_once,
    commit_rows,
    retry_on_conflict,
)
from lance_spark.mutations.rows.delete import (
    Affected,
    DeleteTask,
    FragmentDeletion,
    changed_fragments,
    plan_delete,
    undo,
)
from lance_spark.mutations.runner import LocalRunner, Runner
from lance_spark.scan.predicates.tree import Constant, Predicate
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.idempotency import WriteToken
from lance_spark.table.commit.write_job import WriteJob
from lance_spark.table.commit.write_rebase import fits
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.update import Update

#: Fragments that are searched at the same time.
_AT_ONCE = 16


def replacement(
    table: OpenTable, deletions: Sequence[FragmentDeletion], fragments: Sequence[Fragment]
) -> Update:
    """Return the operation that puts new fragments in the place of rows; see `commit_replacement`.

    Raises
    ------
    InvalidInputError
        Two deletions are about one fragment.
    """
    check_once(table, (item.fragment_id for item in deletions))
    by_id = {item.fragment_id: item for item in deletions}
    return Update(
        fragments=changed_fragments(table, by_id),
        new_fragments=tuple(fragments),
        removed_fragment_ids=tuple(sorted(i for i, item in by_id.items() if item.file is None)),
        affected=Affected(by_id),
    )


@dataclass(frozen=True, slots=True)
class ReplacingWrite(WriteJob):
    """An append to a table that is there, in the place of rows. Can be pickled; holds no manifest.

    Attributes
    ----------
    condition : Predicate
        Rows that meet it go.
    """

    condition: Predicate = field(default_factory=lambda: Constant(False))

    def commit_manifest(
        self,
        fragments: Sequence[Fragment],
        properties: Mapping[str, str] | None = None,
        once: WriteToken | None = None,
    ) -> Manifest:
        """Put the fragments in the place of the rows; see `commit_replacement`."""
        return commit_replacement(self, self.condition, fragments, properties=properties, once=once)


def commit_replacement(
    job: WriteJob,
    condition: Predicate,
    fragments: Sequence[Fragment],
    *,
    properties: Mapping[str, str] | None = None,
    once: WriteToken | None = None,
    conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    runner: Runner | None = None,
) -> Manifest:
    """Replace the rows that meet a condition by those of fragments that are written.

    Parameters
    ----------
    job : WriteJob
        That wrote the fragments: an append to a table that was there.
    condition : Predicate
        On columns of the table.
    fragments : sequence of Fragment
    properties : mapping of str to str, optional
        Of the transaction.
    once : Once, optional
        The change must not be made if it has been before.
    conflict_retries : int
        How often it is planned anew, if others commit what it does not fit.
    runner : Runner, optional
        Finds the rows; this machine by default.

    Returns
    -------
    Manifest
        The new version.

    Raises
    ------
    LanceError
        What `commit` raises. The new fragments stay: `WriteJob.abort` deletes them.
    """
    store = ObjectStore.from_uri(job.uri, job.storage_options)
    by = runner or LocalRunner(store.is_local, _AT_ONCE)

    def change(current: OpenTable) -> Manifest:
        _check_columns(current, job, condition)
        tasks = plan_delete(current, [condition], tag=by.tag or job.tag)
        result = by.run(tasks, DeleteTask.run, partial(undo, current.store))
        deletions = [deletion for part in result for deletion in part]
        operation = replacement(current, deletions, fragments)
        return commit_rows(
            current,
            operation,
            properties=properties,
            max_retries=job.commit_retries,
            once=once,
            keep_new_fragments=True,
        )

    table = OpenTable(job.paths(), job.base(store))
    return retry_on_conflict(table, change, conflict_retries).manifest


def _check_columns(table: OpenTable, job: WriteJob, condition: Predicate) -> None:
    """Refuse a version that has no longer the columns that rows were written for and are chosen by.

    Raises
    ------
    CommitConflictError
    """
    for item in [*job.schema.walk(), *(item for path in condition.paths for item in path)]:
        there = table.schema.field_by_id(item.id)
        # Ids of columns that are dropped can be given again.
        if there is None or (there.name, there.logical_type) != (item.name, item.logical_type):
            raise _overtaken(
                table, f"column {item.name!r} was dropped, renamed or given another type"
            )
    if table.version != job.read_version and not fits(job, table.manifest):
        raise _overtaken(
            table, "the columns were made others than those that the rows are written for"
        )


def _overtaken(table: OpenTable, what: str) -> CommitConflictError:
    return CommitConflictError(
        f"{table.store.display}: {what} by version {table.version}, while this overwrite was under "
        "way; write again",
        retryable=False,
    )
