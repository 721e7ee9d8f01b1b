"""Nested arrays and their fields.

A field that is one column although it has children is read whole, then cut to the requested
children. The arrays of blobs and JSON are replaced at any depth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import nulls, vector_items
from lance_spark.encoding.meta import BLOB_V2
from lance_spark.encoding.v2_1.codec import bounds
from lance_spark.errors import UnsupportedTypeError
from lance_spark.file.blobs.fields import as_descriptor, described
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.types import EXTENSION_NAME

Lengths = npt.NDArray[np.int64]


def unpruned(field: Field, file_field: Field, version: tuple[int, int]) -> Field:
    """Return the field as the file stores it; `field` itself if that is the same.

    - `field`: A field of the table's schema, possibly with fewer children than in the file.
    - `file_field`: The field with the same id in the file's schema.
    - `version`: The file's version.
    """
    if file_field.is_blob:
        metadata = {**field.metadata, **file_field.metadata}
        if file_field.logical_type != "struct":
            # pylance adds such columns to tables of version 2.2 too, whose schema has the
            # extension.
            metadata.pop(EXTENSION_NAME, None)
        return described(
            replace(
                field,
                logical_type=file_field.logical_type,
                children=file_field.children,
                metadata=metadata,
            )
        )
    if not file_field.children and not field.children:
        return field
    read_whole = file_field.is_packed or (
        version == (2, 0) and file_field.logical_type.startswith("fixed_size_list:")
    )
    if read_whole:
        file_ids = [child.id for child in file_field.walk()]
        has_file_ids = [child.id for child in field.walk()] == file_ids
        return field if has_file_ids else replace(field, children=file_field.children)
    by_id = {child.id: child for child in file_field.children}
    children = tuple(
        unpruned(child, by_id[child.id], version) if child.id in by_id else child
        for child in field.children
    )
    if all(new is old for new, old in zip(children, field.children, strict=True)):
        return field
    return replace(field, children=children)


def project(array: pa.Array, stored: Field, field: Field) -> pa.Array:
    """Cut an array of the type of `stored` to the children of `field`; blobs stay complete.

    Children that `stored` does not have are null. Raises UnsupportedTypeError: children were left
    out below a map.
    """
    if stored.is_blob and field.metadata.get(EXTENSION_NAME) == BLOB_V2:
        return as_descriptor(array)
    if stored is field or stored.is_blob or not field.children:
        return array
    dtype = array.type
    mask = array.is_null() if array.null_count else None
    if pat.is_struct(dtype):
        index_of = {child.id: index for index, child in enumerate(stored.children)}
        cut = [
            project(array.field(index_of[child.id]), stored.children[index_of[child.id]], child)
            if child.id in index_of
            else nulls(len(array), child.arrow_field)
            for child in field.children
        ]
        fields = [
            child.arrow_field.with_type(values.type)
            for child, values in zip(field.children, cut, strict=True)
        ]
        return pa.StructArray.from_arrays(cut, fields=fields, mask=mask)
    child, inner = field.children[0], stored.children[0]
    if pat.is_fixed_size_list(dtype):
        items = project(vector_items(array), inner, child)
        list_type = pa.list_(child.arrow_field.with_type(items.type), dtype.list_size)
        return pa.FixedSizeListArray.from_arrays(items, type=list_type, mask=mask)
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        items = project(array.values, inner, child)
        item = child.arrow_field.with_type(items.type)
        make, array_kind = (
            (pa.list_, pa.ListArray) if pat.is_list(dtype) else (pa.large_list, pa.LargeListArray)
        )
        if array.offset:
            # Arrow accepts no mask together with offsets that are a slice.
            array = pa.concat_arrays([array.slice(0, 0), array])
            return project(array, stored, field)
        return array_kind.from_arrays(array.offsets, items, type=make(item), mask=mask)
    raise UnsupportedTypeError(
        f"column {field.name!r}: parts of a packed struct below {dtype} cannot be read alone"
    )


def replace_arrays(
    array: pa.Array,
    field: Field,
    convert: Callable[[pa.Array, Field], pa.Array],
    is_replaced: Callable[[Field], bool],
    holds_replaced: Callable[[Field], bool],
) -> pa.Array:
    """Return an array with the arrays of some fields in it converted.

    - `field`: Field with the shape of the array, except the converted fields.
    - `convert`: Gets the array of a field that is replaced, and the field; returns an array of the
      same length. Values below a null are null.
    - `holds_replaced`: Return whether the field is replaced, and whether it or a field below it is.
    """
    if not holds_replaced(field):
        return array
    if is_replaced(field):
        return convert(array, field)

    def below(child: pa.Array, node: Field) -> pa.Array:
        return replace_arrays(child, node, convert, is_replaced, holds_replaced)

    dtype = array.type
    mask = array.is_null() if array.null_count else None
    if pat.is_struct(dtype):
        children = list(map(below, array.flatten(), field.children))
        fields = [dtype.field(index).with_type(child.type) for index, child in enumerate(children)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if pat.is_fixed_size_list(dtype):
        items = below(_fixed_items(array), field.children[0])
        item = dtype.value_field.with_type(items.type)
        return pa.FixedSizeListArray.from_arrays(
            items, type=pa.list_(item, dtype.list_size), mask=mask
        )
    lists = as_list(array) if pat.is_map(dtype) else array
    items = below(lists.flatten(), field.children[0])
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


def replace_blobs(
    array: pa.Array, field: Field, convert: Callable[[pa.Array, Field], pa.Array]
) -> pa.Array:
    """Return an array with every blob array in it converted; see `replace_arrays`."""
    return replace_arrays(array, field, convert, attrgetter("is_blob"), attrgetter("has_blobs"))


def sum_blobs(
    array: pa.Array, field: Field, measure: Callable[[pa.Array, Field], Lengths]
) -> Lengths:
    """Return for each row the sum of `measure` of its blobs."""
    if field.is_blob:
        return measure(array, field)
    if not field.has_blobs:
        return np.zeros(len(array), np.int64)
    if pat.is_struct(array.type):
        total = np.zeros(len(array), np.int64)
        for child, node in zip(array.flatten(), field.children, strict=True):
            total += sum_blobs(child, node, measure)
        return total
    below = bounds(sum_blobs(array.flatten(), field.children[0], measure))
    position = bounds(list_lengths(array))
    return np.asarray(below[position[1:]] - below[position[:-1]], np.int64)


def list_lengths(array: pa.Array) -> Lengths:
    """Return the number of items of each list; 0 for null."""
    lengths: Lengths = array.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    return lengths


def as_list(array: pa.MapArray) -> pa.ListArray:
    """Return a map as its list of structs."""
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
    items = vector_items(array)
    if not array.null_count:
        return items
    null = np.repeat(array.is_null().to_numpy(zero_copy_only=False), array.type.list_size)
    return items.take(pa.array(np.arange(len(items)), mask=null))
