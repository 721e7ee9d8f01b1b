"""Fields that are one column although they have children: read whole, then cut to the children
wanted.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import UnsupportedTypeError
from lance_spark.file.blobs.fields import as_descriptor, described
from lance_spark.file.schema.logical_types import EXTENSION_NAME
from lance_spark.file.schema.schema import BLOB_V2, Field


def unpruned(wanted: Field, own: Field, version: tuple[int, int]) -> Field:
    """Return `wanted` in the shape that the file's own schema stores it in; `wanted` itself if that
    is the same.

    Parameters
    ----------
    wanted : Field
        As the table's schema has it, possibly with fewer children than the file.
    own : Field
        The field with the same id in the file's schema.
    version : tuple of int
        The file's version.
    """
    if own.is_blob:
        metadata = {**wanted.metadata, **own.metadata}
        if own.logical_type != "struct":
            # pylance adds such columns to tables of version 2.2 too, whose schema has the
            # extension.
            metadata.pop(EXTENSION_NAME, None)
        kind, children = own.logical_type, own.children
        return described(replace(wanted, logical_type=kind, children=children, metadata=metadata))
    if not own.children and not wanted.children:
        return wanted
    whole = own.is_packed or (version == (2, 0) and own.logical_type.startswith("fixed_size_list:"))
    if whole:
        same = [child.id for child in wanted.walk()] == [child.id for child in own.walk()]
        return wanted if same else replace(wanted, children=own.children)
    by_id = {child.id: child for child in own.children}
    children = tuple(
        unpruned(child, by_id[child.id], version) if child.id in by_id else child
        for child in wanted.children
    )
    if all(new is old for new, old in zip(children, wanted.children, strict=True)):
        return wanted
    return replace(wanted, children=children)


def project(array: pa.Array, held: Field, wanted: Field) -> pa.Array:
    """Cut an array of the type of `held` to the children of `wanted`; blobs keep all that is known
    of them.

    Raises
    ------
    UnsupportedTypeError
        Children were left out below a map.
    """
    if held.is_blob and wanted.metadata.get(EXTENSION_NAME) == BLOB_V2:
        return as_descriptor(array)
    if held is wanted or held.is_blob or not wanted.children:
        return array
    dtype = array.type
    mask = array.is_null() if array.null_count else None
    if pat.is_struct(dtype):
        place = {child.id: index for index, child in enumerate(held.children)}
        cut = [
            project(array.field(place[child.id]), held.children[place[child.id]], child)
            for child in wanted.children
        ]
        fields = [
            child.arrow_field.with_type(values.type)
            for child, values in zip(wanted.children, cut, strict=True)
        ]
        return pa.StructArray.from_arrays(cut, fields=fields, mask=mask)
    child, inner = wanted.children[0], held.children[0]
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
            return project(array, held, wanted)
        return array_kind.from_arrays(array.offsets, items, type=make(item), mask=mask)
    raise UnsupportedTypeError(
        f"column {wanted.name!r}: parts of a packed struct below {dtype} cannot be read alone"
    )
