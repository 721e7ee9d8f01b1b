"""Writing a field of file versions 2.1 and 2.2: one page for each of its leaf columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_1.leaf_columns import leaf_fields
from lance_spark.encoding.v2_1.shred import shred
from lance_spark.encoding.v2_1.strategy import encode_leaf
from lance_spark.errors import UnsupportedTypeError


def encode_field(array: pa.Array, field: pa.Field, version: tuple[int, int]) -> list[EncodedPage]:
    """Return one page for each leaf column of `field`, holding all rows of `array`.

    - `array`: Of the field's type.
    - `field`: With the metadata keys ``lance-encoding:*`` that steer the choice of encodings.
    - `version`: File version, ``(2, 1)`` or ``(2, 2)``.

    Raises UnsupportedTypeError: the version has no encoding for the type. Raises InvalidInputError:
    the value of a metadata key is not valid.
    """
    if version < (2, 2):
        _check_2_1(field)
    return [encode_leaf(column, version) for column in shred(array, field)]


def _check_2_1(field: pa.Field) -> None:
    if _has_map(field.type):
        raise UnsupportedTypeError(f"column {field.name!r}: maps need file version 2.2")
    for leaf in leaf_fields(field):
        if leaf.slots_per_row != 1:
            raise UnsupportedTypeError(
                f"column {leaf.path!r}: fixed-size lists of structs need file version 2.2"
            )


def _has_map(dtype: pa.DataType) -> bool:
    if pat.is_map(dtype):
        return True
    return any(_has_map(dtype.field(i).type) for i in range(dtype.num_fields))
