"""Blobs inside nested arrays: found by the fields, replaced by what another shape holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.v2_1.fixed_width import bounds
from lance_spark.file.blobs.fields import has_blobs
from lance_spark.file.schema.field import Field

Lengths = npt.NDArray[np.int64]


def replace_blobs(
    array: pa.Array, field: Field, convert: Callable[[pa.Array, Field], pa.Array]
) -> pa.Array:
    """Return an array with every blob array in it converted.

    Parameters
    ----------
    array : pyarrow.Array
    field : Field
        Of the same shape as the array, but for the blobs.
    convert : callable
        Gets the array of a blob and its field; returns one of the same length. What stands below a
        null is null.
    """
    if field.is_blob:
        return convert(array, field)
    if not has_blobs(field):
        return array
    dtype = array.type
    mask = array.is_null() if array.null_count else None
    if pat.is_struct(dtype):
        children = [
            replace_blobs(child, node, convert)
            for child, node in zip(array.flatten(), field.children, strict=True)
        ]
        fields = [dtype.field(index).with_type(child.type) for index, child in enumerate(children)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    items = replace_blobs(array.flatten(), field.children[0], convert)
    offsets = bounds(list_lengths(array))
    item = dtype.value_field.with_type(items.type)
    if pat.is_large_list(dtype):
        return pa.LargeListArray.from_arrays(
            pa.array(offsets), items, type=pa.large_list(item), mask=mask
        )
    return pa.ListArray.from_arrays(
        pa.array(offsets.astype(np.int32)), items, type=pa.list_(item), mask=mask
    )


def sum_blobs(array: pa.Array, field: Field, measure: Callable[[pa.Array], Lengths]) -> Lengths:
    """Return for each row the sum of what `measure` gives for its blobs."""
    if field.is_blob:
        return measure(array)
    if not has_blobs(field):
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
    """Return the items of each list; none for null."""
    lengths: Lengths = array.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    return lengths
