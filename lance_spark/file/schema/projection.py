"""Fields that are one column although they have children: read whole, then cut to the children
wanted.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import UnsupportedTypeError
from lance_spark.file.blobs.fields import as_descriptor, described
from lance_spark.file.schema.field import BLOB_V2, Field
from lance_spark.file.schema.logical_types import EXTENSION_NAME


def unpruned(field: Field, file_field: Field, version: tuple[int, int]) -> Field:
    """Return the field as the file stores it; `field` itself if that is the same.

    Parameters
    ----------
    field : Field
        A field of the table's schema, possibly with fewer children than in the file.
    file_field : Field
        The field with the same id in the file's schema.
    version : tuple of int
        The file's version.
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
        same = [child.id for child in field.walk()] == file_ids
        return field if same else replace(field, children=file_field.children)
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

    Raises
    ------
    UnsupportedTypeError
        Children were left out below a map.
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
            for child in field.children
        ]
        fields = [
            child.arrow_field.with_type(values.type)
            for child, values in zip(field.children, cut, strict=True)
        ]
        return pa.StructArray.from_arrays(cut, fields=fields, mask=mask)
    child, inner = field.children[0], stored.children[0]
    if pat.is_fixed_size_list(dtype):
        size = dtype.list_size
        values = array.values.slice(array.offset * size, len(array) * size)
        items = project(values, inner, child)
        item = child.arrow_field.with_type(items.type)
        return pa.FixedSizeListArray.from_arrays(items, type=pa.list_(item, size), mask=mask)
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        items = project(array.values, inner, child)
        item = child.arrow_field.with_type(items.type)
        make, array_kind = (
            (pa.list_, pa.ListArray) if pat.is_list(dtype) else (pa.large_list, pa.LargeListArray)
        )
        if array.offset:
            # Arrow takes no mask beside offsets that are a slice.
            array = pa.concat_arrays([array.slice(0, 0), array])
            return project(array, stored, field)
        return array_kind.from_arrays(array.offsets, items, type=make(item), mask=mask)
    raise UnsupportedTypeError(
        f"column {field.name!r}: parts of a packed struct below {dtype} cannot be read alone"
    )
