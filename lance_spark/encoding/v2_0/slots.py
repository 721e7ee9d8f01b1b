"""Reading values of one width that lie back to back in a buffer: value i is at byte ``i * width``.

A range of rows is one byte range and no copy. Scattered rows are read in clusters, so that rows
which lie close cost one read and rows which lie far apart do not fetch what is between them, and
picked out of the clusters by kernels.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.encoding.v2_0.page import GAP
from lance_spark.errors import CorruptFileError
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan


def read_slots(buffer: ByteRange, width: int, rows: Rows) -> ReadPlan[Bytes]:
    """Plan the reading of values of `width` bytes.

    Parameters
    ----------
    buffer : ByteRange
        Only the last value may stick out of it: its missing bytes are read as zeros.
    width : int
        Bytes per value.
    rows : Rows
        Need not be strictly increasing, only never decrease.

    Returns
    -------
    uint8 array of ``len(rows) * width``
        Aligned for values of up to 8 bytes, if `width` is a power of two.

    Raises
    ------
    CorruptFileError
        A value lies outside the buffer.
    """
    size = len(rows) * width
    if not size:
        return np.zeros(0, np.uint8)
    if isinstance(rows, range):
        (data,) = yield [_inside(buffer, rows.start, rows.stop - 1, width)]
        return _aligned(_padded(data, size), width)
    cuts = np.flatnonzero(np.diff(rows) * width > GAP) + 1
    bounds = [0, *cuts.tolist(), len(rows)]
    firsts = rows[bounds[:-1]].tolist()
    lasts = rows[np.asarray(bounds[1:]) - 1].tolist()
    clusters = yield [
        _inside(buffer, first, last, width) for first, last in zip(firsts, lasts, strict=True)
    ]
    slots = np.empty((len(rows), width), np.uint8)
    for i, data in enumerate(clusters):
        first, last = firsts[i], lasts[i]
        piece = slice(bounds[i], bounds[i + 1])
        values = _padded(data, (last + 1 - first) * width).reshape(-1, width)
        slots[piece] = _pick(values, rows[piece] - first)
    return slots.reshape(-1)


def pick_slots(data: Bytes, width: int, rows: Rows) -> Bytes:
    """Return values of `width` bytes out of bytes at hand."""
    if isinstance(rows, range):
        return _aligned(data[rows.start * width : rows.stop * width], width)
    return _pick(data[: len(data) // width * width].reshape(-1, width), rows).reshape(-1)


def _inside(buffer: ByteRange, first: int, last: int, width: int) -> ByteRange:
    if last * width >= buffer.length:
        raise CorruptFileError(
            f"value {last} of {width} bytes lies outside its buffer of {buffer.length} bytes"
        )
    start = first * width
    return ByteRange(buffer.offset + start, min((last + 1) * width, buffer.length) - start)


def _padded(data: Bytes, size: int) -> Bytes:
    if len(data) == size:
        return data
    return np.concatenate([data, np.zeros(size - len(data), np.uint8)])


def _pick(values: npt.NDArray[np.uint8], rows: RowNumbers) -> npt.NDArray[np.uint8]:
    width = values.shape[1]
    if width in (2, 4, 8):
        words = values.view(f"<u{width}")[:, 0][rows]
        return words.view(np.uint8).reshape(-1, width)
    picked: npt.NDArray[np.uint8] = values[rows]
    return picked


def _aligned(data: Bytes, width: int) -> Bytes:
    # Writers align buffers; only a file by another hand makes a copy necessary.
    unit = min(width & -width, 8)
    return data if unit <= 1 or data.ctypes.data % unit == 0 else data.copy()
