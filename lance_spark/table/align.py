"""Conversion of record batches to the exact Arrow schema of a table, without a change of values.

- Columns and children of structs get the order of the table, children of lists and maps its names.
- Nullability becomes that of the table; nulls in a required field are refused.
- Extension types and views become their storage types, JSON becomes string.
- Nothing else is cast. Dictionaries stay as they are.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.jsonb import to_text
from lance_spark.errors import (
    CorruptError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedTypeError,
)
from lance_spark.file.blobs.fields import advice, is_v1, is_v2
from lance_spark.file.offsets import with_offsets
from lance_spark.file.schema.logical_types import is_json, logical_type, storage_type


def align(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch to a schema.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        Its columns may be in any order.
    schema : pyarrow.Schema
        A schema of storage types, as `Schema.to_arrow` returns it.

    Returns
    -------
    pyarrow.RecordBatch
        A batch with exactly that schema. It shares memory with `batch` where the layout is equal.

    Raises
    ------
    SchemaMismatchError
        A column is missing, unknown, or of another type.
    InvalidInputError
        A column that must not be null has nulls.
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
    unknown = [name for name in batch.schema.names if name not in set(schema.names)]
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
        return _replace_values(array, target, _align_array(array.values, target.value_field, child))
    if not pat.is_nested(dtype) and _same_logical_type(dtype, target):
        return array.cast(target)
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


def _same_list(dtype: pa.DataType, target: pa.DataType) -> bool:
    if pat.is_fixed_size_list(dtype) and pat.is_fixed_size_list(target):
        return bool(dtype.list_size == target.list_size)
    return any(is_list(dtype) and is_list(target) for is_list in (pat.is_list, pat.is_large_list))


def _same_logical_type(dtype: pa.DataType, target: pa.DataType) -> bool:
    try:
        return logical_type(dtype, "") == logical_type(target, "")
    except UnsupportedTypeError:
        return False


def _has_required(dtype: pa.DataType) -> bool:
    """Tell whether a field below a nested type must not be null."""
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
