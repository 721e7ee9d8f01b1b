"""Numbers that Spark sends to different partitions.

`DataFrame.repartition(count, column)` sends a row to the partition `hash(column) mod count`: of as
many numbers as there are partitions, several would go to one and none to others. The hash is that
of Spark's function `hash`, which is Murmur3 for 32 bits with the seed 42.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.murmur3 import hash_numbers

_SEED = 42
#: Numbers that are tried for each partition at once.
_TRIED = 8


@lru_cache(maxsize=8)
def partition_keys(count: int) -> npt.NDArray[np.int32]:
    """Return a number for each partition.

    Parameters
    ----------
    count : int
        Number of the partitions.

    Examples
    --------
    >>> partition_keys(3)
    array([ 0,  1, 11], dtype=int32)
    """
    keys = np.full(count, -1, np.int32)
    first = 0
    while (keys < 0).any():
        tried = np.arange(first, first + _TRIED * count, dtype=np.int32)
        place, index = np.unique(
            hash_numbers(tried, _SEED).view(np.int32) % count, return_index=True
        )
        missing = keys[place] < 0
        keys[place[missing]] = tried[index[missing]]
        first += len(tried)
    keys.flags.writeable = False
    return keys
