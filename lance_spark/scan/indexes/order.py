"""The order of values in indexes: nulls first, floats in the total order of IEEE 754."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers


def order_of(values: pa.Array) -> RowNumbers:
    """Return the positions of values in the order of indexes; equal values in their given order.

    Raises
    ------
    pa.ArrowNotImplementedError
        The type has no order.
    """
    import pyarrow.compute as pc

    if pat.is_floating(values.type):
        values = _float_keys(values)
    indices: RowNumbers = pc.array_sort_indices(values, null_placement="at_start").to_numpy()
    return indices.astype(np.int64)


def _float_keys(values: pa.Array) -> pa.Array:
    """Return integers in the order of floats."""
    dtype = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[values.type.bit_width]
    integers = values.view(dtype)
    bits = integers.fill_null(0).to_numpy()
    # Negative floats have the reverse order of their bits.
    keys = np.where(bits < 0, bits ^ np.array(np.iinfo(bits.dtype).max, bits.dtype), bits)
    return pa.array(keys, mask=integers.is_null().to_numpy(zero_copy_only=False))
