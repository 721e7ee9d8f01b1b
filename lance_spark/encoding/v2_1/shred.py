"""From a nested Arrow array to its leaf columns: values without structure, and the levels that
stand for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import is_plain, storable, validity_of
from lance_spark.encoding.levels import BoolArray, IndexArray, Layer, Levels, Step
from lance_spark.encoding.levels_write import Ravel
from lance_spark.encoding.v2_1.hints import check_packed
from lance_spark.encoding.v2_1.leaf_columns import (
    Leaf,
    child_fields,
    is_leaf,
    leaf_fields,
    storage_field,
)
from lance_spark.errors import UnsupportedTypeError

_ITEM = Step()


class LeafColumn(NamedTuple):
    """The rows of one leaf column, before encoding.

    Attributes
    ----------
    leaf : Leaf
    num_rows : int
        Slots that the column counts for the rows (`Leaf.slots_per_row` for each).
    values : pa.Array
        One value per visible entry; null slots hold any value.
    live : bool array, one per value, or None
        False where the value itself, or a struct above it, is null; None if none is.
    levels : Levels
    """

    leaf: Leaf
    num_rows: int
    values: pa.Array
    live: BoolArray | None
    levels: Levels


def shred(array: pa.Array, field: pa.Field) -> list[LeafColumn]:
    """Return the leaf columns of `array`, in column order.

    Values below null lists, and values that no list holds, are left out.

    Raises
    ------
    UnsupportedTypeError
        A list inside or around a fixed-size list of structs, which no Lance reader understands.
    """
    columns: list[LeafColumn] = []
    field = storage_field(field)
    dtype = field.type
    if not dtype.num_fields and array.type == dtype and not array.null_count and is_plain(dtype):
        return [_flat_column(array, field)]
    _shred(array, field, "", (), False, Ravel(len(array), len(array)), columns)
    return columns


def _flat_column(array: pa.Array, field: pa.Field) -> LeafColumn:
    """Return the only leaf column of a field without structure and nulls."""
    count = len(array)
    levels = Levels.all_valid((Layer.ALL_VALID_ITEM,), count)
    return LeafColumn(Leaf(field.name, field, (_ITEM,)), count, array, None, levels)


def _shred(
    array: pa.Array,
    field: pa.Field,
    above: str,
    outer: tuple[Step, ...],
    in_vectors: bool,
    ravel: Ravel,
    columns: list[LeafColumn],
) -> None:
    """Add the leaf columns of a field at any depth; `Leaf` documents the arguments."""
    field = storage_field(field)
    path = f"{above}.{field.name}" if above else field.name
    dtype = array.type
    if isinstance(dtype, pa.BaseExtensionType):
        array = array.storage
        dtype = array.type
    if is_leaf(field):
        values = storable(array)
        ravel = ravel.add_item(validity_of(values))
        leaf = Leaf(path, field, (_ITEM, *outer), in_vectors)
        columns.append(LeafColumn(leaf, ravel.num_rows, values, ravel.live(), ravel.levels()))
        return
    children = child_fields(field)
    validity = validity_of(array)
    if pat.is_struct(dtype):
        check_packed(field)
        nullable = field.nullable or ravel.layers[-1:] == (Layer.NULLABLE_ITEM,)
        steps = (_ITEM, *outer)
        inners: dict[bool, Ravel] = {}
        for index, child in enumerate(children):
            declared = nullable and _has_list(child.type)
            if declared not in inners:
                inners[declared] = ravel.add_item(validity, nullable=declared)
            inner = inners[declared]
            _shred(array.field(index), child, path, steps, in_vectors, inner, columns)
        return
    (child,) = children
    is_vector = pat.is_fixed_size_list(dtype)
    if any(step.is_list for step in outer) if is_vector else in_vectors:
        first = leaf_fields(field, above)[0]
        raise UnsupportedTypeError(
            f"column {first.path!r}: a fixed-size list of structs cannot be stored inside or "
            "around a list"
        )
    if is_vector:
        size = dtype.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        inner = ravel.add_item(validity).repeat(size)
        step = Step(dimension=size)
    else:
        offsets = array.offsets.to_numpy().astype(np.int64)
        inner, lengths = ravel.add_list(np.diff(offsets), validity)
        items = _items(array.values, offsets, lengths)
        step = Step(is_list=True)
    _shred(items, child, path, (step, *outer), in_vectors or is_vector, inner, columns)


def _has_list(dtype: pa.DataType) -> bool:
    """Whether a type is a list, or a struct around one."""
    if isinstance(dtype, pa.BaseExtensionType):
        return _has_list(dtype.storage_type)
    if not dtype.num_fields:
        return False
    if pat.is_struct(dtype):
        return any(_has_list(dtype.field(i).type) for i in range(dtype.num_fields))
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_map(dtype))


def _items(values: pa.Array, offsets: IndexArray, lengths: IndexArray) -> pa.Array:
    total = int(lengths.sum())
    if total == offsets[-1] - offsets[0]:
        return values.slice(int(offsets[0]), total)
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(total) + np.repeat(offsets[:-1] - starts, lengths)
    return values.take(pa.array(positions))
