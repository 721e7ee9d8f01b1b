"""JSON columns: text in batches, JSONB in pages.

===============  ===================================================================================
where            shape
===============  ===================================================================================
Arrow schema     string with the extension ``arrow.json``; a writer may give large_string or a view
manifest, file   logical type ``json``, extension ``lance.json`` (``arrow.json`` in 0.39 and 1.0)
pages            large_binary of JSONB, see `lance_spark.encoding.jsonb`
===============  ===================================================================================

Releases up to 0.33 at least stored the text itself: logical type ``string``, extension
``arrow.json``. These are strings here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding import jsonb
from lance_spark.encoding.v2_1.fixed_width import bounds
from lance_spark.errors import InvalidInputError, LanceError
from lance_spark.file.blobs.mapping import list_lengths
from lance_spark.file.schema.field import Field

_Convert = Callable[[pa.Array], pa.Array]


def has_json(field: Field) -> bool:
    """Whether the field, or one below it, is JSON."""
    return field.has_json


def paged_json(field: Field) -> Field:
    """Return a field as pages have it: JSON is binary."""
    if field.logical_type == "json":
        return replace(field, logical_type="large_binary")
    if not has_json(field):
        return field
    return replace(field, children=tuple(paged_json(child) for child in field.children))


def read_json(array: pa.Array, field: Field, name: str) -> pa.Array:
    """Return what pages gave with JSON as text.

    Parameters
    ----------
    array : pyarrow.Array
        Of the type of `paged_json(field)`.
    field : Field
        A top-level field.
    name : str
        What errors call the file.

    Raises
    ------
    CorruptFileError, UnsupportedEncodingError
        A value is not valid JSON.
    InvalidInputError
        The texts are more than one array holds.
    """
    if not has_json(field):
        return array
    try:
        return _replaced(array, field, jsonb.to_text)
    except LanceError as error:
        raise type(error)(f"{name}, column {field.name!r}: {error}") from None


def write_json(array: pa.Array, field: Field, name: str, first_row: int) -> pa.Array:
    """Return rows as pages have them, with JSON as binary.

    Parameters
    ----------
    array : pyarrow.Array
        Of the field's Arrow type.
    field : Field
        A top-level field.
    name : str
        What errors call the file.
    first_row : int
        Number of the first row, likewise.

    Raises
    ------
    InvalidInputError
        A text is not valid JSON, or contains values that JSONB cannot hold.
    """
    if not has_json(field):
        return array
    try:
        return _replaced(array, field, jsonb.to_jsonb)
    except InvalidInputError:
        # The row is looked for once it is needed: values in lists do not know theirs.
        for row in range(len(array)):
            try:
                _replaced(array.slice(row, 1), field, jsonb.to_jsonb)
            except InvalidInputError as error:
                raise InvalidInputError(
                    f"{name}, column {field.name!r}, row {first_row + row}: {error}"
                ) from None
        raise


def _replaced(array: pa.Array, field: Field, convert: _Convert) -> pa.Array:
    """Return an array with every JSON array in it converted; what stands below a null is null."""
    if field.logical_type == "json":
        return convert(array)
    if not has_json(field):
        return array
    dtype = array.type
    mask = array.is_null() if array.null_count else None
    if pat.is_struct(dtype):
        children = [
            _replaced(child, node, convert)
            for child, node in zip(array.flatten(), field.children, strict=True)
        ]
        fields = [dtype.field(index).with_type(child.type) for index, child in enumerate(children)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if pat.is_fixed_size_list(dtype):
        items = _replaced(_fixed_items(array), field.children[0], convert)
        item = dtype.value_field.with_type(items.type)
        return pa.FixedSizeListArray.from_arrays(
            items, type=pa.list_(item, dtype.list_size), mask=mask
        )
    lists = _as_list(array) if pat.is_map(dtype) else array
    items = _replaced(lists.flatten(), field.children[0], convert)
    offsets = bounds(list_lengths(lists))
    if pat.is_large_list(dtype):
        item = dtype.value_field.with_type(items.type)
        return pa.LargeListArray.from_arrays(
            pa.array(offsets), items, type=pa.large_list(item), mask=mask
        )
    offsets = pa.array(offsets.astype(np.int32))
    if pat.is_map(dtype):
        keys, values = items.flatten()
        key, value = dtype.key_field.with_type(keys.type), dtype.item_field.with_type(values.type)
        return pa.MapArray.from_arrays(offsets, keys, values, type=pa.map_(key, value), mask=mask)
    item = dtype.value_field.with_type(items.type)
    return pa.ListArray.from_arrays(offsets, items, type=pa.list_(item), mask=mask)


def _as_list(array: pa.MapArray) -> pa.ListArray:
    """Return a map as the list of structs that it is."""
    dtype = array.type
    entries = pa.StructArray.from_arrays(
        [array.keys, array.items], fields=[dtype.key_field, dtype.item_field]
    )
    return pa.Array.from_buffers(
        pa.list_(pa.field("entries", entries.type, nullable=False)),
        len(array),
        array.buffers()[:2],
        null_count=array.null_count,
        offset=array.offset,
        children=[entries],
    )


def _fixed_items(array: pa.FixedSizeListArray) -> pa.Array:
    """Return the items of all lists; items of null lists are null."""
    size = array.type.list_size
    items = array.values.slice(array.offset * size, len(array) * size)
    if not array.null_count:
        return items
    null = np.repeat(array.is_null().to_numpy(zero_copy_only=False), size)
    return items.take(pa.array(np.arange(len(items)), mask=null))
