"""Numbers that Spark sends to different partitions.

`DataFrame.repartition(count, column)` sends a row to the partition `hash(column) mod count`: of as
many numbers as there are partitions, several would go to one and none to others. The hash is that
of Spark's function `hash`, which is Murmur3 for 32 bits with the seed 42.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

_SEED = 42
#: Bytes of a number, which the hash includes.
_BYTES = 4
#: Numbers that are tried for each partition at once.
_TRIED = 8

_Words = npt.NDArray[np.uint32]


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
        place, index = np.unique(_hashes(tried) % count, return_index=True)
        missing = keys[place] < 0
        keys[place[missing]] = tried[index[missing]]
        first += len(tried)
    keys.flags.writeable = False
    return keys


def _hashes(numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return what the function `hash` of Spark returns for numbers."""
    words = numbers.view(np.uint32) * np.uint32(0xCC9E2D51)
    words = _rotated(words, 15) * np.uint32(0x1B873593)
    words = _rotated(words ^ np.uint32(_SEED), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    words ^= np.uint32(_BYTES)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        words = (words ^ words >> np.uint32(shift)) * np.uint32(factor)
    return (words ^ words >> np.uint32(16)).view(np.int32)


def _rotated(words: _Words, count: int) -> _Words:
    return words << np.uint32(count) | words >> np.uint32(32 - count)
