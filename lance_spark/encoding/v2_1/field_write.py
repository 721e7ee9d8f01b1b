"""Writing a field of file versions 2.1 and 2.2: one page for each of its leaf columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_1.leaf_columns import Leaf, leaf_fields
from lance_spark.encoding.v2_1.shred import shred
from lance_spark.encoding.v2_1.strategy import encode_leaf
from lance_spark.errors import UnsupportedTypeError


def encode(array: pa.Array, field: pa.Field, version: tuple[int, int]) -> list[EncodedPage]:
    """Return the pages of all rows of `array`; see `field.encode_field`."""
    if version < (2, 2):
        check_2_1(field)
    return [encode_leaf(column, version) for column in shred(array, field)]


def check_2_1(field: pa.Field) -> None:
    """Raise UnsupportedTypeError if file version 2.1 cannot store the field."""
    if _has_map(field.type):
        raise UnsupportedTypeError(f"column {field.name!r}: maps need file version 2.2")
    for leaf in leaf_fields(field):
        if _below_fixed_size_list(leaf):
            raise UnsupportedTypeError(
                f"column {leaf.path!r}: fixed-size lists of structs need file version 2.2"
            )


def _below_fixed_size_list(leaf: Leaf) -> bool:
    return leaf.slots_per_row != 1


def _has_map(dtype: pa.DataType) -> bool:
    if pat.is_map(dtype):
        return True
    return any(_has_map(dtype.field(i).type) for i in range(dtype.num_fields))
