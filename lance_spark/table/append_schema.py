"""Match of the schema of appended data to the schema of a table, before any file is written.

- Fields are matched by name, at every depth; their order may differ. The child of a list, and the
  key and value of a map, are matched by position: their names may differ.
- Types must be equal. Nothing is cast. Blobs may be given as `binary` or `large_binary`, JSON as
  strings, which the writer parses. Tables of early releases store JSON as strings and accept JSON.
- Columns that the data does not have must be nullable; they are null in the new rows.
- The data must not have columns that the table does not have.
- A nullable column of the data may be matched to a required one: the writer checks its values.

pylance has the same rules, with two differences: the names of the children of lists must be equal,
and strings are not accepted as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lance_spark.errors import SchemaMismatchError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.logical_types import is_json
from lance_spark.file.schema.schema import Schema


def filled_by(table: Schema, data: Schema, name: str) -> Schema:
    """Return the fields of a table that appended data has, in the table's order, with its ids.

    Parameters
    ----------
    table : Schema
    data : Schema
        Its field ids are ignored.
    name : str
        The table's name in errors.

    Raises
    ------
    SchemaMismatchError
        The data does not fit; the message names the column.
    """
    return replace(table, fields=_match_fields(table.fields, data.fields, (), name))


def _match_fields(
    table_fields: Sequence[Field], data_fields: Sequence[Field], path: tuple[str, ...], name: str
) -> tuple[Field, ...]:
    by_name = {field.name: field for field in data_fields}
    table_names = [field.name for field in table_fields]
    unknown = [field.name for field in data_fields if field.name not in table_names]
    if unknown:
        raise SchemaMismatchError(
            f"{name} does not have the column {_path((*path, unknown[0]))!r} of the data: drop it, "
            "add it to the table first, or overwrite the table. "
            f"The table has {', '.join(_path((*path, column)) for column in table_names)}"
        )
    missing = [f.name for f in table_fields if f.name not in by_name and not f.nullable]
    if missing:
        raise SchemaMismatchError(
            f"{name}: column {_path((*path, missing[0]))!r} must not be null, "
            "and the data does not have it"
        )
    return tuple(
        _match_field(field, by_name[field.name], (*path, field.name), name)
        for field in table_fields
        if field.name in by_name
    )


def _match_field(target: Field, data_field: Field, path: tuple[str, ...], name: str) -> Field:
    if target.is_blob and (
        data_field.is_blob or data_field.logical_type in ("binary", "large_binary")
    ):
        return target
    if _accepts_json(target, data_field):
        return target
    if _without_item_type(target.logical_type) != _without_item_type(data_field.logical_type):
        raise SchemaMismatchError(
            f"{name}: column {_path(path)!r} is {_type(target)}, "
            f"but the data has {_type(data_field)}; cast it"
        )
    if not target.children:
        return target
    is_map = target.logical_type == "map"
    is_struct = target.logical_type == "struct"
    if is_struct and not target.is_packed:
        children = _match_fields(target.children, data_field.children, path, name)
        return target if children == target.children else replace(target, children=children)
    if len(target.children) != len(data_field.children):
        raise SchemaMismatchError(
            f"{name}: column {_path(path)!r} is {_type(target)}, but the data has "
            f"{_type(data_field)}"
        )
    if is_struct:
        by_name = {child.name: child for child in data_field.children}
        # A packed struct is stored as one column, so the data must have all children.
        for child in target.children:
            if child.name not in by_name:
                raise SchemaMismatchError(
                    f"{name}: {_path((*path, child.name))!r} is a part of a packed struct, "
                    "and the data does not have it"
                )
        pairs = [(child, by_name[child.name]) for child in target.children]
    elif is_map:
        # The only child of a map has the key and the value as children.
        pairs = list(zip(target.children[0].children, data_field.children[0].children, strict=True))
    else:
        pairs = list(zip(target.children, data_field.children, strict=True))
    children = tuple(
        _match_field(child, other, (*path, child.name), name) for child, other in pairs
    )
    if is_map:
        children = (replace(target.children[0], children=children),)
    return target if children == target.children else replace(target, children=children)


def _without_item_type(logical_type: str) -> str:
    """Return the logical type of a field without the type of its items, which the child has too.

    A list of blobs is ``list`` or ``list.struct``, depending on how the blobs were declared when
    the table was created. Both accept binary values.
    """
    return logical_type.removesuffix(".struct")


def _accepts_json(target: Field, data_field: Field) -> bool:
    if target.logical_type == "json":
        return data_field.logical_type in ("json", "string", "large_string")
    return data_field.logical_type == "json" and is_json(target.arrow_field)


def _type(field: Field) -> str:
    return str(field.arrow_field.type)


def _path(names: tuple[str, ...]) -> str:
    return ".".join(names)
