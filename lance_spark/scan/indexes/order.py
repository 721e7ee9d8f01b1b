"""The order of values in indexes: nulls first, floats in the total order of IEEE 754."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers

#: Signed integers in the order of the floats of the same width.
_KEY_TYPES = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def order_of(values: pa.Array) -> RowNumbers:
    """Return the positions of values in the order of indexes; equal values in their given order.

    Raises
    ------
    pa.ArrowNotImplementedError
        The type has no order.
    """
    import pyarrow.compute as pc

    if pat.is_floating(values.type):
        values = float_keys(values)
    indices: RowNumbers = pc.array_sort_indices(values, null_placement="at_start").to_numpy()
    return indices.astype(np.int64)


def float_keys(values: pa.Array) -> pa.Array:
    """Return integers in the order of floats."""
    integers = values.view(_KEY_TYPES[values.type.bit_width])
    bits = integers.fill_null(0).to_numpy()
    is_null = integers.is_null().to_numpy(zero_copy_only=False)
    return pa.array(_ordered(bits), mask=is_null)


def floats_of_keys(keys: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return the floats whose `float_keys` are given."""
    bits = _ordered(keys.fill_null(0).to_numpy())
    return pa.array(bits, mask=keys.is_null().to_numpy(zero_copy_only=False)).view(dtype)


def _ordered(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Turn the bits of floats into their keys, and keys into bits."""
    # Negative floats have the reverse order of their bits.
    return np.where(bits < 0, bits ^ np.array(np.iinfo(bits.dtype).max, bits.dtype), bits)
