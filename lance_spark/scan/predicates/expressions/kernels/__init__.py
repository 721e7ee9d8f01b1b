"""Kernels: functions that compute an Arrow array from arrays. Here: their type, error and casts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: Computes an array from the arrays of the arguments, the `detail` of the call, and the result
#: type.
Kernel = Callable[[Sequence[pa.Array], Any, pa.DataType], pa.Array]


class RowError(ValueError):
    """A kernel cannot compute the value of a row."""


def numpy_of(array: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the values of an array, 0 for null, and which of them are null."""
    null = array.is_null().to_numpy(zero_copy_only=False)
    filled = array.fill_null(0) if array.null_count else array
    return filled.to_numpy(zero_copy_only=False), null


def saturated(values: npt.NDArray[Any], dtype: Any) -> npt.NDArray[Any]:
    """Cast floats to integers as Java does: NaN becomes 0, other values the nearest integer."""
    info = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        # The least integer is exact as a float, and so is the integer after the greatest.
        result = np.where(np.isnan(values), 0, values).astype(np.float64)
        low, high = result <= float(info.min), result >= float(info.max)
        inner = np.where(low | high, 0, result).astype(dtype)
    return np.where(low, info.min, np.where(high, info.max, inner)).astype(dtype)
