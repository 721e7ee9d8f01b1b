"""Reads whole mini-block pages of one layout together, as if their chunks belonged to one page.

Writers end the pages of lists early, so a column may have some hundreds of small pages. In any
column, pages that are decoded together need not be joined afterwards. Whole pages need no
repetition index: levels show where rows start.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import unsigned
from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock
from lance_spark.encoding.levels import IndexArray, Levels, max_repetition
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.layouts.mini_block_read import MiniBlockPage
from lance_spark.encoding.v2_1.layouts.mini_block_table import (
    has_same_encoding,
    parse_chunk_tables,
)
from lance_spark.encoding.v2_1.page import PageRows, buffer_at
from lance_spark.errors import CorruptFileError
from lance_spark.storage.source import Bytes, ReadPlan

#: Maximum values and bytes of pages that are decoded together, so that intermediate results take no
#: more memory than these.
_MAX_VALUES = 1 << 22
_MAX_BYTES = 32 << 20

#: Equal items are searched if the dictionaries of all pages together have at most this number of
#: items.
_FEW_ITEMS = 1 << 12


class PageGroup:
    """Consecutive pages of a column.

    - `page`: The first page.
    """

    def __init__(self, page: object) -> None:
        self._pages: list[MiniBlockPage] = []
        self._values = self._bytes = 0
        # Positions are not joined if the result has their dictionary too.
        if isinstance(page, MiniBlockPage) and not (
            page.layout.HasField("dictionary") and pat.is_dictionary(page.dtype)
        ):
            self._add(page)

    def add(self, page: object, rows: Rows) -> bool:
        """Add the next page; return False if it cannot be decoded together with the others.

        - `rows`: The rows of the page that are read.
        """
        return (
            isinstance(page, MiniBlockPage)
            and len(rows) == page.meta.num_rows
            and self._fits(page)
            and self._add(page)
        )

    def _fits(self, page: MiniBlockPage) -> bool:
        return bool(
            self._pages
            and self._values + page.layout.num_items <= _MAX_VALUES
            and self._bytes + buffer_at(page.meta, 1).length <= _MAX_BYTES
            and has_same_encoding(self._pages[0].layout, page.layout)
        )

    def _add(self, page: MiniBlockPage) -> bool:
        self._pages.append(page)
        self._values += page.layout.num_items
        self._bytes += buffer_at(page.meta, 1).length
        return True

    def read(self) -> ReadPlan[PageRows]:
        """Plan the reading of all rows.

        Raises CorruptFileError: a page is corrupt; the error does not name it.
        """
        first, count = self._pages[0], len(self._pages)
        numbers = (0, 1, 2) if first.layout.HasField("dictionary") else (0, 1)
        buffers = yield [buffer_at(page.meta, number) for number in numbers for page in self._pages]
        tables = parse_chunk_tables(
            buffers[:count],
            large=first.layout.has_large_chunk,
            num_values=[page.layout.num_items for page in self._pages],
            data_sizes=[len(data) for data in buffers[count : 2 * count]],
        )
        data, page_starts = _one_run(buffers[count : 2 * count])
        sizes, counts, last_chunks = tables.sizes, tables.counts, tables.last_chunks
        ends = np.cumsum(sizes)
        first_chunks = last_chunks - np.diff(last_chunks, prepend=-1) + 1
        before = ends[first_chunks] - sizes[first_chunks]
        starts = ends - sizes
        starts += np.repeat(np.array(page_starts) - before, np.diff(last_chunks, prepend=-1))
        decoded = first.decode(data, starts, sizes, counts)
        ends = np.cumsum(decoded.num_levels)[last_chunks]
        value_ends = np.cumsum(counts)[last_chunks]
        self._check(decoded.levels, ends, value_ends)
        if len(numbers) == 3:
            items = self._looked_up(decoded.block, value_ends, buffers[2 * count :])
            return PageRows(items, decoded.levels)
        return PageRows(first.array(decoded.block, slice(0, int(value_ends[-1]))), decoded.levels)

    def _looked_up(
        self, block: DataBlock, value_ends: IndexArray, dictionaries: Sequence[Bytes]
    ) -> pa.Array:
        """Return the items at positions in the dictionaries of the pages."""
        opened = zip(self._pages, dictionaries, strict=True)
        items = [page.open_dictionary(data) for page, data in opened]
        sizes = np.array([len(page_items) for page_items in items])
        positions = unsigned(block)
        counts = np.diff(value_ends, prepend=0)
        if (np.maximum.reduceat(positions, value_ends - counts) >= sizes).any():
            raise CorruptFileError("a position is outside its dictionary")
        before = (np.cumsum(sizes) - sizes).astype(np.uint32)
        item_positions = positions + np.repeat(before, counts)
        every = pa.concat_arrays(items)
        if len(every) <= _FEW_ITEMS:
            # Pages often have equal items. The fewer items there are, the more of them stay in the
            # cache of the processor.
            unique = every.dictionary_encode()
            item_positions = unique.indices.to_numpy().astype(np.uint32).take(item_positions)
            every = unique.dictionary
        result = FixedWidthBlock(
            item_positions.view(np.uint8), item_positions.itemsize * 8, len(item_positions)
        )
        return self._pages[0].look_up(result, every)

    def _check(self, levels: Levels, ends: IndexArray, value_ends: IndexArray) -> None:
        """Check that the levels of each page, up to `ends`, match its values and rows."""
        if levels.repetition is None and levels.definition is None:
            return
        firsts = ends - np.diff(ends, prepend=0)
        visible = levels.visible()
        decoded_ends = (
            ends if visible is None else np.cumsum(np.add.reduceat(visible, firsts, dtype=np.int64))
        )
        if (decoded_ends != value_ends).any():
            raise CorruptFileError("the levels of a page do not stand for its values")
        if levels.repetition is None:
            return
        begins = levels.repetition == max_repetition(levels.layers)
        rows = np.add.reduceat(begins, firsts, dtype=np.int64)
        if not begins[firsts].all() or (rows != [page.meta.num_rows for page in self._pages]).any():
            raise CorruptFileError("the repetition levels do not hold the rows that they should")


def _one_run(buffers: Sequence[Bytes]) -> tuple[Bytes, list[int]]:
    """Return memory that holds all buffers, and the start of each in it. A single buffer is not
    copied.
    """
    base = buffers[0].base
    if isinstance(base, np.ndarray) and base.dtype == np.uint8 and base.flags.c_contiguous:
        first = _address(buffers[0])
        buffer_starts = [_address(buffer) - first for buffer in buffers]
        if all(
            buffer.base is base and buffer_start >= 0 and buffer_start % 8 == 0
            for buffer, buffer_start in zip(buffers, buffer_starts, strict=True)
        ):
            start = first - _address(base)
            end = max(
                buffer_start + len(buffer)
                for buffer_start, buffer in zip(buffer_starts, buffers, strict=True)
            )
            return base.reshape(-1)[start : start + end], buffer_starts
    sizes = [len(buffer) for buffer in buffers]
    return np.concatenate(buffers), (np.cumsum(sizes) - sizes).tolist()


def _address(data: Bytes) -> int:
    return int(data.__array_interface__["data"][0])
