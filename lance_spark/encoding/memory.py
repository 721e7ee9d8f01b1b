"""Memory for the values that decoders hand out.

It comes from Arrow's pool, which keeps what is given back and hands it out again. numpy's large
arrays go back to the system with every array: to get their pages anew takes as long as to decode
most encodings into them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

#: Arrays of fewer bytes do not go back to the system.
_SMALL = 64 * 1024


def empty(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array whose elements are not set, as `numpy.empty` does."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if count * kind.itemsize < _SMALL:
        return np.empty(shape, kind)
    buffer = pa.allocate_buffer(count * kind.itemsize)
    return np.frombuffer(buffer, kind, count).reshape(shape)
