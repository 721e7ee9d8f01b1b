"""Products of queries with the levels of stored vectors.

If numba is installed, a compiled loop multiplies one query in a quarter of the time of numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lance_spark.encoding.compiled import CompiledLoop, sums_of
from lance_spark.scan.vectors.distances import products
from lance_spark.scan.vectors.quantizers.rabit.codes import Levels
from lance_spark.scan.vectors.quantizers.rabit.rotation import Floats

#: Items that are decoded in one step, so that they stay in the caches.
_STEP_ITEMS = 1 << 18


def steps(num_rows: int, dimension: int) -> Iterator[slice]:
    """Yield parts of the rows that are decoded at once."""
    count = max(1, _STEP_ITEMS // dimension)
    return (slice(first, first + count) for first in range(0, num_rows, count))


def level_products(levels: Levels, queries: Floats) -> Floats:
    """Return the product of each query with the levels of each row.

    Parameters
    ----------
    levels : integer array of shape (dimension, rows)
        The dimension is a multiple of 8.
    queries : float32 array of shape (queries, dimension)
    """
    dimension, num_rows = levels.shape
    result = np.empty((len(queries), num_rows), np.float32)
    is_single = len(queries) == 1
    if is_single and levels.dtype == np.uint8 and levels.flags.c_contiguous:
        loop = LOOP.after(levels.size)
        if loop is not None:
            loop(levels, np.ascontiguousarray(queries[0]), result[0])
            return result
    # BLAS multiplies one row in one thread.
    multiply = np.matmul if is_single else products
    for step in steps(num_rows, dimension):
        result[:, step] = multiply(queries, levels[:, step].astype(np.float32))
    return result


def _multiply(levels: Any, query: Any, out: Any) -> None:
    """Do the same for one query, eight dimensions at a time."""
    out[:] = 0
    for place in range(0, len(query), 8):
        first, second, third = levels[place], levels[place + 1], levels[place + 2]
        fourth, fifth, sixth = levels[place + 3], levels[place + 4], levels[place + 5]
        seventh, eighth = levels[place + 6], levels[place + 7]
        for row in range(len(out)):
            first_half = np.float32(first[row]) * query[place]
            first_half += np.float32(second[row]) * query[place + 1]
            first_half += np.float32(third[row]) * query[place + 2]
            first_half += np.float32(fourth[row]) * query[place + 3]
            second_half = np.float32(fifth[row]) * query[place + 4]
            second_half += np.float32(sixth[row]) * query[place + 5]
            second_half += np.float32(seventh[row]) * query[place + 6]
            second_half += np.float32(eighth[row]) * query[place + 7]
            out[row] += first_half + second_half


#: It compiles `_multiply`.
LOOP = CompiledLoop(_multiply, sums_of(("uint8", 2), ("float32", 1)), 1 << 28)
