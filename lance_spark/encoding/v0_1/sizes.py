"""Estimates the stored bytes of the pages of a field from the page table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import fixed_width, is_variable
from lance_spark.encoding.v0_1.field import Node
from lance_spark.encoding.v0_1.pages import Pages
from lance_spark.storage.source import ByteRange, ReadPlan

#: Pages of strings whose bytes are looked up; the others are taken to be like them.
_SAMPLE = 16


def stored_bytes(node: Node, size: int) -> ReadPlan[int]:
    """Plan the estimate of the stored bytes of a field and all fields below it.

    The page table does not say how many bytes strings have: that is estimated from some of their
    pages.

    Parameters
    ----------
    node : Node
        Not checked; damaged pages count nothing.
    size : int
        Of the file in bytes.
    """
    total = 0
    for child in node.children:
        total += yield from stored_bytes(child, size)
    pages, dtype = node.pages, node.field.type
    if pages is None or not len(pages.lengths) or pat.is_null(dtype):
        return total
    values = int(np.clip(pages.lengths, 0, 8 * size).sum())
    if is_variable(dtype):
        return total + 8 * values + (yield from _value_bytes(pages, values, size))
    return total + int(values * _bits(dtype)) // 8


def _bits(dtype: pa.DataType) -> int:
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        return 64 if pat.is_large_list(dtype) else 32
    if pat.is_dictionary(dtype):
        return fixed_width(dtype.index_type)
    if pat.is_fixed_size_list(dtype):
        return _bits(dtype.value_type) * int(dtype.list_size)
    return fixed_width(dtype)


def _value_bytes(pages: Pages, values: int, size: int) -> ReadPlan[int]:
    # Writers put the bytes of a page right before its offsets, so that the first offset says how
    # many there are.
    non_empty = np.flatnonzero(
        (pages.lengths > 0) & (pages.positions >= 0) & (pages.positions <= size - 8)
    )
    if not len(non_empty):
        return 0
    sample = non_empty[
        np.linspace(0, len(non_empty) - 1, min(_SAMPLE, len(non_empty))).astype(np.int64)
    ]
    firsts = yield [ByteRange(int(position), 8) for position in pages.positions[sample]]
    begins = np.array([int.from_bytes(first.tobytes(), "little") for first in firsts], np.uint64)
    sizes = np.clip(pages.positions[sample] - np.minimum(begins, size).astype(np.int64), 0, size)
    return int(sizes.sum() / pages.lengths[sample].sum() * values)
