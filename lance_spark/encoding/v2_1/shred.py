"""From a nested Arrow array to its leaf columns: values without structure, and the levels that stand for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import is_plain, storable, validity_of
from lance_spark.encoding.levels import BoolArray, IndexArray, Layer, Levels, Step
from lance_spark.encoding.levels_write import Ravel
from lance_spark.encoding.v2_1.hints import check_packed
from lance_spark.encoding.v2_1.shape import Leaf, child_fields, is_leaf, leaf_fields, storage_field
from lance_spark.errors import UnsupportedTypeError

_NO_STEPS = (Step(),)


@dataclass(frozen=True, slots=True)
class LeafColumn:
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
    if array.type == field.type and not array.null_count and is_plain(field.type):
        return [_flat_column(array, field)]
    leaves = leaf_fields(field)
    for leaf in leaves:
        if leaf.in_vectors and any(step.is_list for step in leaf.steps):
            raise UnsupportedTypeError(
                f"column {leaf.path!r}: a fixed-size list of structs cannot be stored inside or "
                "around a list"
            )
    ravel = Ravel(len(array), len(array))
    _shred(array, field, ravel, iter(leaves), columns)
    return columns


def _flat_column(array: pa.Array, field: pa.Field) -> LeafColumn:
    """Return the only leaf column of a field without structure and nulls."""
    count = len(array)
    return LeafColumn(Leaf(field.name, field, _NO_STEPS), count, array, None, _no_levels(count))


@lru_cache(maxsize=256)
def _no_levels(count: int) -> Levels:
    return Levels((Layer.ALL_VALID_ITEM,), count)


def _shred(
    array: pa.Array,
    field: pa.Field,
    ravel: Ravel,
    leaves: Iterator[Leaf],
    columns: list[LeafColumn],
) -> None:
    field = storage_field(field)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if is_leaf(field):
        values = storable(array)
        ravel = ravel.add_item(validity_of(values))
        levels = ravel.levels()
        columns.append(LeafColumn(next(leaves), ravel.num_rows, values, ravel.live(), levels))
        return
    kind = array.type
    validity = validity_of(array)
    if pat.is_struct(kind):
        check_packed(field)
        nullable = field.nullable or ravel.layers[-1:] == (Layer.NULLABLE_ITEM,)
        children = child_fields(field)
        declared = [nullable and _has_list(child.type) for child in children]
        inners = {flag: ravel.add_item(validity, nullable=flag) for flag in set(declared)}
        for index, (child, flag) in enumerate(zip(children, declared, strict=True)):
            _shred(array.field(index), child, inners[flag], leaves, columns)
        return
    (child,) = child_fields(field)
    if pat.is_fixed_size_list(kind):
        size = kind.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        inner = ravel.add_item(validity).repeat(size)
    else:
        offsets = array.offsets.to_numpy().astype(np.int64)
        inner, kept = ravel.add_list(np.diff(offsets), validity)
        items = _items(array.values, offsets, kept)
    _shred(items, child, inner, leaves, columns)


def _has_list(kind: pa.DataType) -> bool:
    """Whether a type is a list, or a struct around one."""
    if pat.is_struct(kind):
        return any(_has_list(kind.field(i).type) for i in range(kind.num_fields))
    if isinstance(kind, pa.BaseExtensionType):
        return _has_list(kind.storage_type)
    return bool(pat.is_list(kind) or pat.is_large_list(kind) or pat.is_map(kind))


def _items(values: pa.Array, offsets: IndexArray, kept: IndexArray) -> pa.Array:
    total = int(kept.sum())
    if total == offsets[-1] - offsets[0]:
        return values.slice(int(offsets[0]), total)
    starts = np.cumsum(kept) - kept
    positions = np.arange(total) + np.repeat(offsets[:-1] - starts, kept)
    return values.take(pa.array(positions))
