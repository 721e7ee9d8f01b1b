"""The one commit of a merge: rows that moved, rows that are new, and rows that went, with the keys
that came.

The key is that of the table, which nobody enforces. Two merges that insert one of its keys at the
same time are told apart by the filter that each commit brings along. Specification: table/index.md,
"Unenforced Primary Key"; table/commit/transaction.md, "Update".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lance_spark.file.schema.schema import Field, Schema
from lance_spark.mutations.rewrite.row_rewriter import RewrittenRows
from lance_spark.mutations.rows.delete import FragmentDeletion
from lance_spark.mutations.rows.update import update_operation
from lance_spark.mutations.rows.update_task import UpdateResult
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.inserted_keys import InsertedKeys
from lance_spark.table.operations.data.update import Update


def primary_key(schema: Schema) -> list[tuple[Field, ...]]:
    """Return the fields of the primary key in its order, each behind those that it lies in; none if
    the table has no such key.

    Those whose place in the key is said come first, the others in the order of their ids.
    """
    result = []
    for top in schema.fields:
        for path in _paths((top,)):
            proto = path[-1].to_proto()
            if proto.unenforced_primary_key:
                place = proto.unenforced_primary_key_position
                result.append(((not place, place or proto.id, proto.id), path))
    return [path for _, path in sorted(result, key=lambda one: one[0])]


def upsert_operation(
    table: OpenTable,
    moved: Sequence[RewrittenRows],
    deletions: Iterable[FragmentDeletion],
    changed: Iterable[int],
    keys: InsertedKeys | None,
) -> Update:
    """Return the operation that makes a merge part of the table.

    Parameters
    ----------
    table : OpenTable
        At the version that it was planned on.
    moved : sequence of Moved
        What the tasks wrote.
    deletions : iterable of FragmentDeletion
        Of rows that moved or went.
    changed : iterable of int
        Ids of fields whose values changed in rows that moved.
    keys : InsertedKeys, optional
        Those of the new rows.

    Raises
    ------
    InvalidInputError
        Two deletions are of one fragment.
    """
    fragments = tuple(item for part in moved for item in part.fragments)
    result = UpdateResult(new_fragments=fragments, deletions=tuple(deletions))
    operation = update_operation(table, [result], changed, "rows")
    inserted = (item for part in moved for item in part.inserted)
    return replace(
        operation, new_fragments=(*operation.new_fragments, *inserted), inserted_rows=keys
    )


def _paths(path: tuple[Field, ...]) -> Iterable[tuple[Field, ...]]:
    yield path
    for child in path[-1].children:
        yield from _paths((*path, child))
