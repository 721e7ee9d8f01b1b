"""Memory for decoded values.

It comes from the pool of Arrow, which reuses released memory. numpy returns large arrays to the
system: to get their pages again takes as long as most decoding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: Smaller arrays are not returned to the system.
_SMALL = 64 * 1024


def empty(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array whose elements are not set, as `numpy.empty` does."""
    item_dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if count * item_dtype.itemsize < _SMALL:
        return np.empty(shape, item_dtype)
    buffer = pa.allocate_buffer(count * item_dtype.itemsize)
    return np.frombuffer(buffer, item_dtype, count).reshape(shape)
