"""Matches the schema of appended data with the columns of a table, before anything is written.

- Fields are matched by name at every depth, in any order. The child of a list, and the key and
  value of a map, are matched by position: lists of `item` and of `element` are equal.
- Types must be equal; nothing is cast. Blobs may be given as any binary type, JSON as strings,
  which are checked when they are written. Tables of releases that stored JSON as strings accept
  JSON.
- Columns that the data lacks must be nullable; they are null in the new rows.
- The data must not have further columns.
- Nullable data may go into a non-nullable column: its values are checked when they are written.

pylance has the same rule, except that the names of list children must be equal, and that it refuses
strings as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lance_spark.errors import SchemaMismatchError
from lance_spark.file.schema.logical_types import is_json
from lance_spark.file.schema.schema import Field, Schema


def filled_by(table: Schema, data: Schema, name: str) -> Schema:
    """Return the fields of a table that appended data fills, in the order of the table.

    Parameters
    ----------
    table : Schema
    data : Schema
        Schema of the data; field ids are ignored.
    name : str
        Name of the table in errors.

    Raises
    ------
    SchemaMismatchError
        The data does not match; the error names the column.
    """
    return replace(table, fields=_children(table.fields, data.fields, (), name))


def _children(
    wanted: Sequence[Field], given: Sequence[Field], path: tuple[str, ...], name: str
) -> tuple[Field, ...]:
    by_name = {field.name: field for field in given}
    unknown = [field.name for field in given if field.name not in {w.name for w in wanted}]
    if unknown:
        raise SchemaMismatchError(
            f"{name} has no column {_shown(path, unknown[0])!r}, which the data has: drop it, add "
            "it to the table "
            "first, or overwrite the table. The table has "
            f"{', '.join(_shown(path, w.name) for w in wanted)}"
        )
    missing = [f for f in wanted if f.name not in by_name and not f.nullable]
    if missing:
        raise SchemaMismatchError(
            f"{name}: column {_shown(path, missing[0].name)!r} must not be null, and the data does "
            "not have it"
        )
    return tuple(
        _matched(field, by_name[field.name], (*path, field.name), name)
        for field in wanted
        if field.name in by_name
    )


def _matched(wanted: Field, given: Field, path: tuple[str, ...], name: str) -> Field:
    kind = wanted.logical_type
    if wanted.is_blob and (given.is_blob or given.logical_type in ("binary", "large_binary")):
        return wanted
    if _takes_json(wanted, given):
        return wanted
    if _without_item(wanted.logical_type) != _without_item(given.logical_type):
        raise SchemaMismatchError(
            f"{name}: column {'.'.join(path)!r} is {_type(wanted)}, but the data has "
            f"{_type(given)}; cast it"
        )
    if not wanted.children:
        return wanted
    if kind == "struct" and not wanted.is_packed:
        children = _children(wanted.children, given.children, path, name)
        return wanted if children == wanted.children else replace(wanted, children=children)
    if len(wanted.children) != len(given.children):
        raise SchemaMismatchError(
            f"{name}: column {'.'.join(path)!r} is {_type(wanted)}, but the data has {_type(given)}"
        )
    if kind == "struct":
        # A packed struct is one column: it has all children or none.
        for child in wanted.children:
            if all(other.name != child.name for other in given.children):
                raise SchemaMismatchError(
                    f"{name}: {'.'.join((*path, child.name))!r} is a part of a packed struct, and "
                    "the data does not have it"
                )
        by_name = {child.name: child for child in given.children}
        pairs = [(child, by_name[child.name]) for child in wanted.children]
    elif kind == "map":
        # The entries have key and value as children.
        pairs = list(zip(wanted.children[0].children, given.children[0].children, strict=True))
    else:
        pairs = list(zip(wanted.children, given.children, strict=True))
    children = tuple(_matched(own, other, (*path, own.name), name) for own, other in pairs)
    if kind == "map":
        children = (replace(wanted.children[0], children=children),)
    return wanted if children == wanted.children else replace(wanted, children=children)


def _without_item(logical_type: str) -> str:
    """Return the logical type of a field without the type of list items, which the child has.

    Lists of blobs are ``list`` or ``list.struct``, as the blobs were declared when the table was
    created. Binary values are accepted for both.
    """
    return logical_type.removesuffix(".struct")


def _takes_json(wanted: Field, given: Field) -> bool:
    if wanted.logical_type == "json":
        return given.logical_type in ("json", "string", "large_string")
    return given.logical_type == "json" and is_json(wanted.arrow_field)


def _type(field: Field) -> str:
    return str(field.arrow_field.type)


def _shown(path: tuple[str, ...], name: str) -> str:
    return ".".join((*path, name))
