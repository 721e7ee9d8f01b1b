"""Tables of distances of codewords, and sums of the items that the codes of vectors choose.

A table has 256 items for each byte of a vector's codes. A position is the place of an item among
those of all tables: 256 * number of the byte + byte.

If numba is installed, a compiled loop adds them up in a third of the time of numpy, and another one
makes the tables in a sixth. A process loads numba after it has looked up 256 million items.
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


def squared_differences(query: npt.NDArray[np.float32], columns: npt.NDArray[np.float32]) -> Any:
    """Return the squared distance of each codeword from its part of a query.

    Parameters
    ----------
    query : float32 array of shape (dimension,)
    columns : float32 array of shape (bytes, items, 256)
        The codewords of each byte.

    Returns
    -------
    float32 array of shape (bytes, 256)
    """
    count, _, words = columns.shape
    loop = SQUARES.loop if LOOP.is_used else None
    if loop is not None:
        table = np.empty(count * words, np.float32)
        loop(np.ascontiguousarray(query), columns, table)
        return table.reshape(count, words)
    difference = columns - query.reshape(count, -1, 1)
    difference *= difference
    return np.add.reduce(difference, axis=1)


def _sum(flat: Any, positions: Any, out: Any) -> None:
    """Do the same for all positions, eight bytes of a vector at a time."""
    count = positions.shape[0]
    even = count - count % 8
    out[:] = 0
    for byte in range(0, even, 8):
        first, second = positions[byte], positions[byte + 1]
        third, fourth = positions[byte + 2], positions[byte + 3]
        fifth, sixth = positions[byte + 4], positions[byte + 5]
        seventh, eighth = positions[byte + 6], positions[byte + 7]
        for row in range(len(out)):
            near = (flat[first[row]] + flat[second[row]]) + (flat[third[row]] + flat[fourth[row]])
            far = (flat[fifth[row]] + flat[sixth[row]]) + (flat[seventh[row]] + flat[eighth[row]])
            out[row] += near + far
    for byte in range(even, count):
        last = positions[byte]
        for row in range(len(out)):
            out[row] += flat[last[row]]


def _square(query: Any, columns: Any, out: Any) -> None:
    """Write the squared differences of the parts of a query from the codewords of each byte."""
    count, items, words = columns.shape
    for byte in range(count):
        table = out[byte * words : (byte + 1) * words]
        table[:] = 0
        for item in range(items):
            value = query[byte * items + item]
            for word in range(words):
                difference = columns[byte, item, word] - value
                table[word] += difference * difference


#: It compiles `_sum`.
LOOP = CompiledLoop(_sum, sums_of(("float32", 1), ("uint16", 2)), 1 << 28)
#: It compiles `_square`, and is used as soon as `LOOP` is.
SQUARES = CompiledLoop(_square, sums_of(("float32", 1), ("float32", 3)), 0)
