"""Match of appended data to a table: of its schema before any file is written, and of its batches.

The schema (`filled_by`):

- Fields are matched by name, at every depth; their order may differ. The child of a list, and the
  key and value of a map, are matched by position: their names may differ.
- Types must be equal, but for the size of offsets: strings, binary values and lists may be large
  ones, as those of polars, DuckDB and Daft are. Nothing else is cast. Blobs may be given as
  `binary` or `large_binary`, JSON as strings, which the writer parses. Tables of early releases
  store JSON as strings and accept JSON.
- Columns that the data does not have must be nullable; they are null in the new rows.
- The data must not have columns that the table does not have.
- A nullable column of the data may be matched to a required one: the writer checks its values.

pylance has the same rules, with three differences: the sizes of offsets and the names of the
children of lists must be equal, and strings are not accepted as JSON.

Batches (`align`) get the exact Arrow schema of the table, without a change of values:

- Columns and children of structs get the order of the table, children of lists and maps its names.
- Nullability becomes as in the table; nulls in a required field are refused.
- Extension types and views become their storage types, JSON becomes string.
- Strings, binary values and lists get the offsets of the table.
- Nothing else is cast. Dictionaries stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import (
    CorruptError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedTypeError,
)
from lance_spark.file.arrays import with_offsets
from lance_spark.file.blobs.fields import advice, is_v1, is_v2
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import is_json, logical_type, storage_type
from lance_spark.json.jsonb import to_text


def align(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch to a schema.

    - `batch`: Its columns may be in any order.
    - `schema`: A schema of storage types, as `Schema.to_arrow` returns it.

    Returns a batch with exactly that schema. It shares memory with `batch` where the layout is
    equal. Raises SchemaMismatchError: a column is missing, unknown, or of another type. Raises
    InvalidInputError: a column that must not be null has nulls.
    """
    arrays = batch.columns
    if batch.schema.names != schema.names:
        arrays = _reorder(batch, schema)
    aligned = []
    for array, field in zip(arrays, schema, strict=True):
        column = _align_array(with_offsets(array), field, field.name)
        _check_nulls(column, field, field.name)
        aligned.append(column)
    return pa.RecordBatch.from_arrays(aligned, schema=schema)


def _check_nulls(array: pa.Array, field: pa.Field, path: str) -> None:
    """Refuse nulls in required fields, at every depth. `array` has exactly the type of `field`."""
    if not field.nullable and array.null_count:
        raise InvalidInputError(
            f"column {path!r} must not be null, but {array.null_count} of {len(array)} values are"
        )
    dtype = array.type
    if not _has_required(dtype):
        return
    if pat.is_struct(dtype):
        # Children of a null struct are not values.
        valid = array.filter(array.is_valid()) if array.null_count else array
        for index in range(dtype.num_fields):
            child = dtype.field(index)
            _check_nulls(valid.field(index), child, f"{path}.{child.name}")
    elif pat.is_map(dtype):
        offsets = array.offsets
        start = offsets[0].as_py() if len(offsets) else 0
        length = offsets[-1].as_py() - start if len(offsets) else 0
        _check_nulls(array.keys.slice(start, length), dtype.key_field, f"{path}.key")
        _check_nulls(array.items.slice(start, length), dtype.item_field, f"{path}.value")
    else:
        _check_nulls(array.flatten(), dtype.value_field, f"{path}.{dtype.value_field.name}")


def _reorder(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of a batch in the order of a schema."""
    positions = {name: index for index, name in enumerate(batch.schema.names)}
    missing = [name for name in schema.names if name not in positions]
    known = set(schema.names)
    unknown = [name for name in batch.schema.names if name not in known]
    if missing or unknown or len(positions) != batch.num_columns:
        if missing:
            problem = f"does not have the column {missing[0]!r}"
        elif unknown:
            problem = f"has the unknown column {unknown[0]!r}"
        else:
            problem = "has two columns of the same name"
        raise SchemaMismatchError(
            f"a batch {problem}: its columns are {batch.schema.names}, expected {schema.names}"
        )
    return [batch.column(positions[name]) for name in schema.names]


def _align_array(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    dtype = array.type
    if dtype == field.type:
        return array
    target = storage_type(field.type)
    if dtype == target:
        return array
    if is_v2(field):
        return _align_blob(array, target, path)
    if is_v1(field) and pat.is_large_binary(target) and pat.is_binary(dtype):
        return array.cast(target)
    if is_json(field) and (pat.is_large_binary(dtype) or pat.is_large_string(dtype)):
        return _align_json(array, path)
    if pat.is_struct(dtype) and pat.is_struct(target):
        return _align_struct(array, target, path)
    if pat.is_map(dtype) and pat.is_map(target):
        keys = _align_array(array.keys, target.key_field, f"{path}.key")
        items = _align_array(array.items, target.item_field, f"{path}.value")
        fields = [target.key_field, target.item_field]
        entries = pa.StructArray.from_arrays([keys, items], fields=fields)
        return _replace_values(array, target, entries)
    if _same_list(dtype, target):
        child = f"{path}.{target.value_field.name}"
        values = _align_array(array.values, target.value_field, child)
        return _replace_values(_resized(array, target, path), target, values)
    if not pat.is_nested(dtype) and _same_logical_type(dtype, target):
        return _cast(array, target, path)
    blob_advice = advice(dtype) if is_v1(field) else ""
    raise SchemaMismatchError(
        f"column {path!r} is {target}, but a batch has {dtype}{blob_advice or '; cast it'}"
    )


def _align_blob(array: pa.Array, target: pa.StructType, path: str) -> pa.Array:
    """Return blobs as the struct of the schema, from binaries or from a struct with some children.

    A child of the schema that the struct does not have becomes null.
    """
    dtype, count = array.type, len(array)
    if pat.is_struct(dtype):
        data_children = dict(zip([child.name for child in dtype], array.flatten(), strict=True))
    elif pat.is_binary(dtype) or pat.is_large_binary(dtype):
        data_children = {"data": array}
    else:
        raise SchemaMismatchError(
            f"column {path!r} is a blob, but a batch has {dtype}; give binary"
        )
    extra = data_children.keys() - {child.name for child in target}
    # A table without columns for ranges of URIs accepts data whose ranges are all null.
    empty = {
        name
        for name in extra & {"position", "size"}
        if not data_children[name].is_valid().sum().as_py()
    }
    if extra != empty or "data" not in data_children:
        raise SchemaMismatchError(
            f"column {path!r} is a blob, but a batch has {dtype}"
            f"{advice(dtype) or f'; give binary, or {target}'}"
        )
    children = [
        data_children[child.name].cast(child.type)
        if child.name in data_children
        else pa.nulls(count, child.type)
        for child in target
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _align_json(array: pa.Array, path: str) -> pa.Array:
    """Return JSON as string, from large strings or from pylance's binary form `lance.json`."""
    try:
        if pat.is_large_binary(array.type):
            return to_text(array)
        return array.cast(pa.string())
    except (CorruptError, pa.ArrowInvalid) as error:
        raise InvalidInputError(f"column {path!r}: {error}") from None


def _align_struct(array: pa.StructArray, target: pa.StructType, path: str) -> pa.Array:
    dtype = array.type
    fields = [target.field(index) for index in range(target.num_fields)]
    positions = {dtype.field(index).name: index for index in range(dtype.num_fields)}
    if len(positions) != dtype.num_fields or positions.keys() != {field.name for field in fields}:
        raise SchemaMismatchError(f"column {path!r} is {target}, but a batch has {dtype}")
    children = [
        _align_array(array.field(positions[field.name]), field, f"{path}.{field.name}")
        for field in fields
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _replace_values(array: pa.Array, target: pa.DataType, child: pa.Array) -> pa.Array:
    """Return a list array with the offsets and validity of `array` and the values of `child`."""
    num_buffers = 1 if pat.is_fixed_size_list(target) else 2
    return pa.Array.from_buffers(
        target,
        len(array),
        array.buffers()[:num_buffers],
        null_count=array.null_count,
        offset=array.offset,
        children=[child],
    )


def _resized(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    """Return a list with offsets of the size of those of another type of lists."""
    if pat.is_fixed_size_list(target) or pat.is_large_list(array.type) == pat.is_large_list(target):
        return array
    wanted = pa.large_list if pat.is_large_list(target) else pa.list_
    offsets = _cast(array.offsets, pa.int64() if wanted is pa.large_list else pa.int32(), path)
    return pa.Array.from_buffers(
        wanted(array.type.value_field),
        len(array),
        [array.is_valid().buffers()[1] if array.null_count else None, offsets.buffers()[1]],
        null_count=array.null_count,
        children=[array.values],
    )


def _cast(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"column {path!r}: a batch is too large for {target}: {error}; write smaller batches"
        ) from None


def _same_list(dtype: pa.DataType, target: pa.DataType) -> bool:
    if pat.is_fixed_size_list(dtype) and pat.is_fixed_size_list(target):
        return bool(dtype.list_size == target.list_size)
    return _is_variable_list(dtype) and _is_variable_list(target)


def _is_variable_list(dtype: pa.DataType) -> bool:
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype))


def _same_logical_type(dtype: pa.DataType, target: pa.DataType) -> bool:
    try:
        return _kind(logical_type(dtype, "")) == _kind(logical_type(target, ""))
    except UnsupportedTypeError:
        return False


def _has_required(dtype: pa.DataType) -> bool:
    """Return whether a field below a nested type must not be null."""
    fields: list[Any]
    if not dtype.num_fields:
        return False
    if pat.is_struct(dtype):
        fields = [dtype.field(index) for index in range(dtype.num_fields)]
    elif pat.is_map(dtype):
        fields = [dtype.key_field, dtype.item_field]
    elif pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_fixed_size_list(dtype):
        fields = [dtype.value_field]
    else:
        return False
    return any(not field.nullable or _has_required(field.type) for field in fields)


#: Types below which pylance writes files without some fields, and cannot read them.
_READ_WHOLE = ("map", "large_list", "fixed_size_list")


def filled_by(table: Schema, data: Schema, name: str) -> Schema:
    """Return the fields of a table that appended data has, in the table's order, with its ids.

    - `data`: Its field ids are ignored.
    - `name`: The table's name in errors.

    Raises SchemaMismatchError: the data does not fit; the message names the column.
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
    if _kind(target.logical_type) != _kind(data_field.logical_type):
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
        _match_field(child, data_child, (*path, child.name), name) for child, data_child in pairs
    )
    if is_map:
        children = (replace(target.children[0], children=children),)
    if children == target.children:
        return target
    if target.logical_type.startswith(_READ_WHOLE):
        given = {node.id for child in children for node in child.walk()}
        missing = next(node.name for node in target.walk() if node.id not in {target.id, *given})
        raise SchemaMismatchError(
            f"{name}: column {_path(path)!r} of type {_type(target)} has the field {missing!r}, "
            "which the data does not have; add it to the data, with nulls if need be"
        )
    return replace(target, children=children)


def _kind(logical_type: str) -> str:
    """Return the logical type of a field without the type of its items and the size of its offsets.

    The child has the type of items, too. A list of blobs is ``list`` or ``list.struct``, depending
    on how the blobs were declared when the table was created. Both accept binary values.
    """
    return logical_type.removesuffix(".struct").removeprefix("large_")


def _accepts_json(target: Field, data_field: Field) -> bool:
    if target.logical_type == "json":
        return data_field.logical_type in ("json", "string", "large_string")
    return data_field.logical_type == "json" and is_json(target.arrow_field)


def _type(field: Field) -> str:
    return str(field.arrow_field.type)


def _path(names: tuple[str, ...]) -> str:
    return ".".join(names)
