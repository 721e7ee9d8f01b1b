"""Aligns record batches with the exact Arrow schema of a table, without changing values.

Columns and children of structs are reordered. Children of lists and maps get the names of the
table. Nulls are checked against the nullability of the table. Extension types and views become
their storage types, JSON becomes string. Types are not cast, and dictionaries stay as they are.
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
    """Align a batch with a schema.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        Columns in any order.
    schema : pyarrow.Schema
        Schema of storage types, from `Schema.to_arrow`.

    Returns
    -------
    pyarrow.RecordBatch
        A batch with exactly that schema; equal layouts share memory.

    Raises
    ------
    SchemaMismatchError
        A column is missing, unknown, or of another type.
    InvalidInputError
        A non-nullable column has nulls.
    """
    arrays = batch.columns
    if batch.schema.names != schema.names:
        arrays = _in_order(batch, schema)
    fitted = []
    for array, field in zip(arrays, schema, strict=True):
        one = _fit(with_offsets(array), field, field.name)
        check_nulls(one, field, field.name)
        fitted.append(one)
    return pa.RecordBatch.from_arrays(fitted, schema=schema)


def check_nulls(array: pa.Array, field: pa.Field, path: str) -> None:
    """Refuse nulls in non-nullable fields, at any depth.

    Parameters
    ----------
    array : pyarrow.Array
        An array of exactly the type of the field.
    field : pyarrow.Field
    path : str
        Name of the column in errors.

    Raises
    ------
    InvalidInputError
    """
    if not field.nullable and array.null_count:
        raise InvalidInputError(
            f"column {path!r} must not be null, but {array.null_count} of {len(array)} values are"
        )
    dtype = array.type
    if not _has_required(dtype):
        return
    if pat.is_struct(dtype):
        # Children of a null struct have no values.
        whole = array.filter(array.is_valid()) if array.null_count else array
        for index in range(dtype.num_fields):
            child = dtype.field(index)
            check_nulls(whole.field(index), child, f"{path}.{child.name}")
    elif pat.is_map(dtype):
        offsets = array.offsets
        start = offsets[0].as_py() if len(offsets) else 0
        length = offsets[-1].as_py() - start if len(offsets) else 0
        check_nulls(array.keys.slice(start, length), dtype.key_field, f"{path}.key")
        check_nulls(array.items.slice(start, length), dtype.item_field, f"{path}.value")
    else:
        check_nulls(array.flatten(), dtype.value_field, f"{path}.{dtype.value_field.name}")


def _in_order(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    places = {name: index for index, name in enumerate(batch.schema.names)}
    missing = [name for name in schema.names if name not in places]
    unknown = [name for name in batch.schema.names if name not in set(schema.names)]
    if missing or unknown or len(places) != batch.num_columns:
        what = f"no column {missing[0]!r}" if missing else f"a column {unknown[:1]} too many"
        raise SchemaMismatchError(
            f"a batch has {what}: it has {batch.schema.names}, not {schema.names}"
        )
    return [batch.column(places[name]) for name in schema.names]


def _fit(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    dtype = array.type
    if dtype == field.type:
        return array
    wanted = storage_type(field.type)
    if dtype == wanted:
        return array
    if is_v2(field):
        return _fit_blob(array, wanted, path)
    if is_v1(field) and pat.is_large_binary(wanted) and pat.is_binary(dtype):
        return array.cast(wanted)
    if is_json(field) and (pat.is_large_binary(dtype) or pat.is_large_string(dtype)):
        return _fit_json(array, path)
    if pat.is_struct(dtype) and pat.is_struct(wanted):
        return _fit_struct(array, wanted, path)
    if pat.is_map(dtype) and pat.is_map(wanted):
        keys = _fit(array.keys, wanted.key_field, f"{path}.key")
        items = _fit(array.items, wanted.item_field, f"{path}.value")
        fields = [wanted.key_field, wanted.item_field]
        return _rebuilt(array, wanted, pa.StructArray.from_arrays([keys, items], fields=fields))
    if _same_list(dtype, wanted):
        child = f"{path}.{wanted.value_field.name}"
        return _rebuilt(array, wanted, _fit(array.values, wanted.value_field, child))
    if not pat.is_nested(dtype) and _stored_alike(dtype, wanted):
        return array.cast(wanted)
    advised = advice(dtype) if is_v1(field) else ""
    raise SchemaMismatchError(
        f"column {path!r} is {wanted}, but a batch has {dtype}{advised or '; cast it'}"
    )


def _fit_blob(array: pa.Array, wanted: pa.StructType, path: str) -> pa.Array:
    """Return blobs as the struct of the schema, from bytes alone or a part of its children."""
    kind, count = array.type, len(array)
    if pat.is_struct(kind):
        given = dict(zip([child.name for child in kind], array.flatten(), strict=True))
    elif pat.is_binary(kind) or pat.is_large_binary(kind):
        given = {"data": array}
    else:
        raise SchemaMismatchError(f"column {path!r} is a blob, but a batch has {kind}; give binary")
    extra = given.keys() - {child.name for child in wanted}
    # Unused columns for ranges of URIs are accepted even if the table does not have them.
    empty = {
        name for name in extra & {"position", "size"} if not given[name].is_valid().sum().as_py()
    }
    if extra != empty or "data" not in given:
        raise SchemaMismatchError(
            f"column {path!r} is a blob, but a batch has "
            f"{kind}{advice(kind) or f'; give binary, or {wanted}'}"
        )
    children = [
        given[child.name].cast(child.type) if child.name in given else pa.nulls(count, child.type)
        for child in wanted
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)


def _fit_json(array: pa.Array, path: str) -> pa.Array:
    """Return JSON as string, from large strings or from JSONB, the `lance.json` of pylance."""
    try:
        if pat.is_large_binary(array.type):
            return to_text(array)
        return array.cast(pa.string())
    except (CorruptError, pa.ArrowInvalid) as error:
        raise InvalidInputError(f"column {path!r}: {error}") from None


def _fit_struct(array: pa.StructArray, wanted: pa.StructType, path: str) -> pa.Array:
    fields = [wanted.field(index) for index in range(wanted.num_fields)]
    places = {array.type.field(index).name: index for index in range(array.type.num_fields)}
    if len(places) != array.type.num_fields or places.keys() != {field.name for field in fields}:
        raise SchemaMismatchError(f"column {path!r} is {wanted}, but a batch has {array.type}")
    children = [
        _fit(array.field(places[field.name]), field, f"{path}.{field.name}") for field in fields
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _rebuilt(array: pa.Array, wanted: pa.DataType, child: pa.Array) -> pa.Array:
    """Return a list array with another child, and the offsets and validity of `array`."""
    own = 1 if pat.is_fixed_size_list(wanted) else 2
    return pa.Array.from_buffers(
        wanted,
        len(array),
        array.buffers()[:own],
        null_count=array.null_count,
        offset=array.offset,
        children=[child],
    )


def _same_list(dtype: pa.DataType, wanted: pa.DataType) -> bool:
    if pat.is_fixed_size_list(dtype) and pat.is_fixed_size_list(wanted):
        return bool(dtype.list_size == wanted.list_size)
    return any(is_kind(dtype) and is_kind(wanted) for is_kind in (pat.is_list, pat.is_large_list))


def _stored_alike(dtype: pa.DataType, wanted: pa.DataType) -> bool:
    try:
        return logical_type(dtype, "") == logical_type(wanted, "")
    except UnsupportedTypeError:
        return False


def _has_required(dtype: pa.DataType) -> bool:
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
