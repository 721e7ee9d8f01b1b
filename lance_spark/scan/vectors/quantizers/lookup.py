"""Sums of the items of tables that the codes of vectors choose.

A table has 256 items for each byte of a vector's codes. A position is the place of an item among
those of all tables: 256 * number of the byte + byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

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
    flat = tables.reshape(-1)
    count, num_rows = positions.shape
    step = max(1, _STEP // count)
    for first in range(0, num_rows, step):
        # Positions are in range, so that "wrap" only saves their check.
        items = flat.take(positions[:, first : first + step], mode="wrap")
        np.add.reduce(items, axis=0, out=out[first : first + step])
