"""Byte ranges of increasing place: those that are near each other are read together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.page import joined
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan

#: Ranges that are nearer than this are one: what lies between is on the same page of memory, or the
#: next. Stores that charge for requests merge ranges further apart by themselves.
NEAR = 4 * 1024


class Fetched(NamedTuple):
    """Bytes that were read, and where in them each range begins and ends."""

    data: Bytes
    starts: IndexArray
    ends: IndexArray


def fetch(base: int, starts: IndexArray, ends: IndexArray) -> ReadPlan[Fetched]:
    """Plan the reading of at least one range, ``base + starts[i]`` to ``base + ends[i]``; neither
    starts nor ends decrease.
    """
    is_gap = starts[1:] - ends[:-1] > NEAR
    group = np.concatenate([[0], np.cumsum(is_gap)])
    heads = np.flatnonzero(np.append(True, is_gap))
    tails = np.append(heads[1:], len(starts)) - 1
    firsts, lasts = starts[heads], ends[tails]
    sizes = lasts - firsts
    byte_offsets = (firsts + base).tolist()
    buffers = yield list(map(ByteRange, byte_offsets, sizes.tolist()))
    shift = (np.cumsum(sizes) - sizes - firsts)[group]
    return Fetched(joined(buffers), starts + shift, ends + shift)


def fetch_rows(base: int, stride: int, rows: Rows, length: int) -> ReadPlan[Fetched]:
    """Plan the reading of `length` bytes for each of some rows; row ``r`` begins at byte ``base + r
    * stride``.
    """
    if isinstance(rows, range):
        numbers = np.arange(len(rows)) * stride
        size = (len(rows) - 1) * stride + length
        (data,) = yield [ByteRange(base + rows.start * stride, size)]
        return Fetched(data, numbers, numbers + length)
    return (yield from fetch(base, rows * stride, rows * stride + length))
