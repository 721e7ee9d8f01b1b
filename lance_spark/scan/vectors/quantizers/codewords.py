"""The nearest codeword of each sub-vector."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lance_spark.scan.vectors.ivf import Vectors

#: Products that one step computes, so that they stay in the caches.
_STEP_ITEMS = 1 << 18


def nearest_codewords(vectors: Vectors, codebook: Vectors) -> npt.NDArray[np.uint8]:
    """Return the number of the nearest codeword of each sub-vector by L2 distance.

    Parameters
    ----------
    vectors : array of shape (rows, dimension)
    codebook : array of shape (sub-vectors, codewords, items of a sub-vector)
        At most 256 codewords.

    Returns
    -------
    uint8 array of shape (rows, sub-vectors)
    """
    dtype = np.float64 if codebook.dtype == np.float64 else np.float32
    book: Vectors = codebook.astype(dtype, copy=False)
    count, size, width = book.shape
    # The square of a sub-vector's length is equal for all codewords.
    halves = (book * book).sum(axis=2) / 2
    codes = np.empty((len(vectors), count), np.uint8)
    step = max(1, _STEP_ITEMS // size)
    for first in range(0, len(vectors), step):
        rows = vectors[first : first + step].astype(dtype, copy=False)
        for number in range(count):
            part = rows[:, number * width : (number + 1) * width]
            scores = part @ book[number].T
            scores -= halves[number]
            codes[first : first + step, number] = scores.argmax(axis=1)
    return codes
