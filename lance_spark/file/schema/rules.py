"""Rules for new schemas and for changes of schemas. Other clients could not read a table, or would
read other values, if a version broke them.

==============  ===================================================================================
what            rule
==============  ===================================================================================
primary key     see `keys`
map             its entries have a key and a value; entries and key are not nullable
packed struct   its children stay, with their types: its pages hold the values of all children
packed          ``true`` or ``false``: pylance writes a packed struct for ``1``, but cannot read it;
                not for lists and maps: pylance writes values there that no client can read
layout          a field stays packed or not, and a blob or not: its files were written so
`FIELD_ID`      is not in the metadata of a field: pylance takes it for the id of the field
==============  ===================================================================================

What is wrong in the schema before already does not prevent other changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from lance_spark.encoding.meta import BLOB_KEY, BLOB_V2, FIELD_ID, PACKED_KEYS, is_packed, is_true
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import wrong_keys
from lance_spark.proto import file_pb2 as pb

_Fields = Collection[pb.Field]


def check_fields(fields: _Fields, existing: _Fields = ()) -> None:
    """Raise an error if a table cannot have a schema.

    - `fields`: The new schema: a tree, parents before their children.
    - `existing`: The schema before; empty if all columns are new.

    Raises InvalidInputError.
    """
    before = {(field.id, reason) for field, reason in _wrong_fields(existing)}
    paths = _paths(fields)
    for field, reason in _wrong_fields(fields):
        if (field.id, reason) not in before:
            raise InvalidInputError(
                f"column {paths[field.id]!r} {reason}: pylance could not read the table"
            )
    old = {field.id: field for field in existing}
    for field in fields:
        if field.id in old and _layout(field) != _layout(old[field.id]):
            raise InvalidInputError(
                f"column {paths[field.id]!r}: its metadata cannot be changed so that it is "
                f"{_layout(field)} instead of {_layout(old[field.id])}, because its values are "
                "stored; add another column, or write the rows to a new table"
            )
    trees, old_trees = _packed_trees(fields), _packed_trees(existing)
    for number, tree in trees.items():
        if tree != old_trees.get(number, tree):
            raise InvalidInputError(
                f"column {paths[number]!r} is a packed struct, whose values are stored together: "
                "its fields cannot be added, dropped or cast; write the rows to a new table"
            )


def _wrong_fields(fields: _Fields) -> Iterator[tuple[pb.Field, str]]:
    """Yield each field that breaks a rule for itself, and what is wrong."""
    yield from wrong_keys(fields)
    children: dict[int, list[pb.Field]] = {}
    for field in fields:
        children.setdefault(field.parent_id, []).append(field)
    for field in fields:
        if FIELD_ID in field.metadata:
            yield field, f"cannot have the metadata {FIELD_ID!r}"
        for key in PACKED_KEYS:
            value = field.metadata.get(key, b"")
            if field.logical_type == "struct" and is_true(value) and value.lower() != b"true":
                yield field, f"must have 'true' or 'false' as its metadata {key!r}"
            if field.logical_type != "struct" and field.id in children and is_true(value):
                yield field, f"is not a struct, and only structs can have the metadata {key!r}"
    for field in fields:
        if field.logical_type != "map":
            continue
        entries = children.get(field.id, [])
        pair = [child for part in entries for child in children.get(part.id, [])]
        if (len(entries), len(pair)) != (1, 2):
            yield field, "is a map, which needs keys and values"
        elif entries[0].nullable or pair[0].nullable:
            yield field, "is a map, whose entries and keys cannot be nullable"


def _layout(field: pb.Field) -> str:
    """Return how the values of a field are stored."""
    if BLOB_KEY in field.metadata or field.metadata.get("ARROW:extension:name") == BLOB_V2:
        return "a blob"
    is_struct = field.logical_type == "struct"
    return "a packed struct" if is_struct and is_packed(field.metadata) else "stored in pages"


def _packed_trees(fields: _Fields) -> dict[int, list[tuple[int, int, str]]]:
    """Return the fields below each packed struct: ids, ids of their parents, and types."""
    trees: dict[int, list[tuple[int, int, str]]] = {}
    packed: dict[int, int] = {}
    for field in fields:
        if field.parent_id in packed:
            packed[field.id] = packed[field.parent_id]
            trees[packed[field.id]].append((field.id, field.parent_id, field.logical_type))
        elif _layout(field) == "a packed struct":
            packed[field.id] = field.id
            trees[field.id] = []
    return trees


def _paths(fields: _Fields) -> dict[int, str]:
    """Return the names of fields by their ids; a child has the names above it before its own."""
    paths: dict[int, str] = {}
    for field in fields:
        above = paths.get(field.parent_id)
        paths[field.id] = field.name if above is None else f"{above}.{field.name}"
    return paths
