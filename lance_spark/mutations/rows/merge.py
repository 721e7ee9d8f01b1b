"""The commit of a merge: moved, inserted and deleted rows, and the primary keys of inserted rows.

No client enforces the primary key of a table. A filter of the inserted keys in each transaction
reveals that two concurrent merges inserted the same key. Specification: table/index.md, "Unenforced
Primary Key"; table/commit/transaction.md, "Update".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from lance_spark.errors import LanceError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.commits import commit_rows
from lance_spark.mutations.rewrite.row_rewriter import RewrittenRows
from lance_spark.mutations.rows.delete import run_delete, union_rows
from lance_spark.mutations.rows.update import update_operation
from lance_spark.mutations.rows.update_task import UpdateResult
from lance_spark.mutations.runner import Runner
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.inserted_keys import InsertedKeys


def primary_key(schema: Schema) -> list[tuple[Field, ...]]:
    """Return the paths of the fields of the primary key, in its order; empty without a primary key.

    Fields with a recorded position come first, the others in the order of their ids. A path has the
    field after the fields above it.
    """
    ranked = []
    for top in schema.fields:
        for path in _paths((top,)):
            proto = path[-1].to_proto()
            if proto.unenforced_primary_key:
                position = proto.unenforced_primary_key_position
                ranked.append(((not position, position or proto.id, proto.id), path))
    return [path for _, path in sorted(ranked, key=lambda pair: pair[0])]


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

    Parameters
    ----------
    table : OpenTable
        The version that the rows belong to.
    runner : Runner
        Runs the tasks that write deletion files.
    moved : sequence of RewrittenRows
        Results of the tasks that moved, deleted and inserted rows.
    count : int
        Number of rows that are moved or deleted.
    columns : collection of str
        Top-level columns whose values changed in rows that moved.
    options : CommitOptions
    keys : InsertedKeys, optional
        Primary keys of the new rows.

    Raises
    ------
    LanceError
        The number of deleted rows is not `count`; or errors of `commit`.
    """
    rows = union_rows((part.rows for part in moved), disjoint=True)
    deletions = run_delete(table, runner, (), rows) if rows else []
    if sum(deletion.num_rows for deletion in deletions) != count:
        raise LanceError(
            f"{table.store.display}: the tasks moved or deleted {count} rows, but the deletion "
            "files "
            "hold another number; nothing was changed, run it again"
        )
    fragments = tuple(fragment for part in moved for fragment in part.fragments)
    result = UpdateResult(new_fragments=fragments, deletions=tuple(deletions))
    fields = (field for field in table.schema.fields if field.name in columns)
    changed = [node.id for field in fields for node in field.walk() if node.id >= 0]
    operation = update_operation(table, [result], changed, "rows")
    inserted = (fragment for part in moved for fragment in part.inserted)
    operation = replace(
        operation, new_fragments=(*operation.new_fragments, *inserted), inserted_rows=keys
    )
    return commit_rows(table, operation, options)


def _paths(path: tuple[Field, ...]) -> Iterable[tuple[Field, ...]]:
    yield path
    for child in path[-1].children:
        yield from _paths((*path, child))
