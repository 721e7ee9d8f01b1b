"""Drops columns, and fields below columns. Their values stay in the data files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.schema.field import Field
from lance_spark.mutations.commits import change_schema
from lance_spark.mutations.commits import check_names as check_name_list
from lance_spark.mutations.mem_wal import check_droppable
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.metadata.project import Project


def drop_columns(table: OpenTable, columns: Sequence[str], options: CommitOptions) -> OpenTable:
    """Drop columns; see `Dataset.drop_columns`."""
    names = check_name_list(columns, "columns")

    def plan(current: OpenTable) -> Project:
        dropped = [current.schema.field(name) for name in names]
        check_droppable(current, {node.id for field in dropped for node in field.walk()})
        ids = {field.id for field in dropped}
        pruned = (_without(field, ids) for field in current.schema.fields)
        remaining = tuple(field for field in pruned if field)
        if not remaining:
            raise InvalidInputError("cannot drop all columns: a table must have at least one")
        _check_witnesses(current, remaining)
        schema = replace(current.schema, fields=remaining)
        return Project(tuple(schema.to_protos()), preserves_nullability=True)

    return change_schema(table, plan, options)


def _check_witnesses(table: OpenTable, remaining: Sequence[Field]) -> None:
    """Raise an error if a struct or list stays, but not what says where it is null.

    From version 2.1 on, data files hold leaves alone. A fragment without any leaf below a struct
    would have nulls in place of its structs.
    """
    if table.manifest.data_storage_version <= (2, 0):
        return
    before = {node.id: node.leaf_ids for field in table.schema.fields for node in field.walk()}
    remaining_leaves = ((node, node.leaf_ids) for field in remaining for node in field.walk())
    shrunk = [
        (node, before[node.id], leaves)
        for node, leaves in remaining_leaves
        if leaves != before[node.id]
    ]
    if not shrunk:
        return
    for fragment in table.manifest.fragments:
        held = {number for file in fragment.files for number in file.fields}
        for node, old, new in shrunk:
            if held & old and not held & new:
                raise UnsupportedFeatureError(
                    f"{table.store.display}: fragment {fragment.id} has no values of the fields "
                    f"that would remain of {node.name!r}, so that nothing would say where it is "
                    "null; write values of one of them first (Dataset.update with mode='columns')"
                )


def _without(field: Field, dropped: set[int]) -> Field | None:
    """Return a field without the fields `dropped` below it; None if nothing remains."""
    if field.id in dropped:
        return None
    pruned = (_without(child, dropped) for child in field.children)
    children = tuple(child for child in pruned if child)
    if field.children and not children:
        return None
    if len(children) < len(field.children) and field.logical_type != "struct":
        # A list cannot exist without its items, nor a map without its keys.
        return None
    return replace(field, children=children)
