"""Sums of the items of tables that the codes of vectors choose.

A table has 256 items for each byte of a vector's codes. A position is the place of an item among
those of all tables: 256 * number of the byte + byte.

If numba is installed, a compiled loop adds them up in a third of the time of numpy. A process loads
numba after it has looked up 256 million items.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.compiled import CompiledLoop, sums_of

#: Positions of shape (bytes of a vector, vectors).
Positions = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

_BYTES = 256
#: Positions that are looked up in one step, so that they stay in the caches.
_STEP = 1 << 16


def positions_of(columns: npt.NDArray[np.uint8]) -> Positions:
    """Return the positions of codes, given the bytes of all vectors column after column."""
    count = len(columns)
    starts = np.arange(0, count * _BYTES, _BYTES)[:, None]
    dtype: type[Any] = np.uint16 if count <= _BYTES else np.uint32
    positions: Positions = np.add(columns, starts, dtype=dtype, casting="unsafe")
    return positions


def summed(tables: npt.NDArray[np.float32], positions: Positions, out: Any) -> None:
    """Add up the items of tables for each vector.

    Parameters
    ----------
    tables : float32 array of shape (bytes, 256)
    positions : array of shape (bytes, vectors)
    out : float32 array
        Gets a sum for each vector.
    """
    flat = np.ascontiguousarray(tables.reshape(-1))
    count, num_rows = positions.shape
    is_simple = positions.dtype == np.uint16 and positions.flags.c_contiguous
    loop = LOOP.after(positions.size) if is_simple else None
    if loop is not None:
        loop(flat, positions, out)
        return
    step = max(1, _STEP // count)
    for first in range(0, num_rows, step):
        # Positions are in range, so that "wrap" only saves their check.
        items = flat.take(positions[:, first : first + step], mode="wrap")
        np.add.reduce(items, axis=0, out=out[first : first + step])


def _sum(flat: Any, positions: Any, out: Any) -> None:
    """Do the same for all positions, four bytes of a vector at a time."""
    count = positions.shape[0]
    even = count - count % 4
    out[:] = 0
    for byte in range(0, even, 4):
        first, second = positions[byte], positions[byte + 1]
        third, fourth = positions[byte + 2], positions[byte + 3]
        for row in range(len(out)):
            near = flat[first[row]] + flat[second[row]]
            out[row] += near + (flat[third[row]] + flat[fourth[row]])
    for byte in range(even, count):
        last = positions[byte]
        for row in range(len(out)):
            out[row] += flat[last[row]]


#: It compiles `_sum`.
LOOP = CompiledLoop(_sum, sums_of(("float32", 1), ("uint16", 2)), 1 << 28)
