"""Reads few rows of each of several mini-block pages, as if their chunks belonged to one page.

Most of the cost of a chunk is the fixed cost of a decoder's call. Pages with lists or a dictionary
are read one by one.
"""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.layouts.mini_block_read import MiniBlockPage
from lance_spark.encoding.v2_1.layouts.mini_block_table import (
    has_same_encoding,
    parse_chunk_tables,
)
from lance_spark.encoding.v2_1.page import PageRows, buffer_at
from lance_spark.storage.source import ByteRange, ReadPlan

#: Most rows of a page that are few.
FEW_ROWS = 64
#: Maximum rows that are read together: a chunk of each is decoded.
_MAX_ROWS = 1024


class ScatteredRows:
    """Some rows of consecutive pages of a column.

    - `page`: The first page.
    - `rows`: Its rows, `FEW_ROWS` at most.
    """

    def __init__(self, page: object, rows: Rows) -> None:
        self._pages: list[MiniBlockPage] = []
        self._rows: list[Rows] = []
        self._num_rows = 0
        if isinstance(page, MiniBlockPage) and _is_flat(page):
            self._add(page, rows)

    def add(self, page: object, rows: Rows) -> bool:
        """Add the next page; return False if it cannot be decoded together with the others."""
        return (
            isinstance(page, MiniBlockPage)
            and bool(self._pages)
            and len(rows) <= FEW_ROWS
            and self._num_rows + len(rows) <= _MAX_ROWS
            and _is_flat(page)
            and has_same_encoding(self._pages[0].layout, page.layout)
            and self._add(page, rows)
        )

    def _add(self, page: MiniBlockPage, rows: Rows) -> bool:
        self._pages.append(page)
        self._rows.append(rows)
        self._num_rows += len(rows)
        return True

    def read(self) -> ReadPlan[PageRows]:
        """Plan the reading of the rows.

        Raises CorruptFileError: a page is corrupt; the error does not name it.
        """
        first = self._pages[0]
        data = [buffer_at(page.meta, 1) for page in self._pages]
        words = yield [buffer_at(page.meta, 0) for page in self._pages]
        tables = parse_chunk_tables(
            words,
            large=first.layout.has_large_chunk,
            num_values=[page.layout.num_items for page in self._pages],
            data_sizes=[buffer.length for buffer in data],
        )
        sizes, counts = tables.sizes, tables.counts
        ends, value_ends = np.cumsum(sizes), np.cumsum(counts)
        # Of each page: its number of chunks, and its first byte and value among those of all.
        num_chunks = np.diff(tables.last_chunks, prepend=-1)
        firsts = tables.last_chunks - num_chunks + 1
        first_bytes, first_values = (ends - sizes)[firsts], (value_ends - counts)[firsts]
        values = np.concatenate(
            [np.asarray(rows) + start for rows, start in zip(self._rows, first_values, strict=True)]
        )
        holder = np.searchsorted(value_ends, values, side="right")
        chunks = holder[np.diff(holder, prepend=-1) != 0]
        place = np.cumsum(np.diff(holder, prepend=holder[:1]) != 0)
        offset = np.array([buffer.offset for buffer in data]) - first_bytes
        starts = ends[chunks] - sizes[chunks]
        own_sizes, own_counts = sizes[chunks], counts[chunks]
        starts += offset[np.searchsorted(tables.last_chunks, chunks)]
        ranges = list(map(ByteRange, starts.tolist(), own_sizes.tolist()))
        read, read_starts = first.placed((yield ranges))
        before = np.cumsum(own_counts) - own_counts
        entries = values - (value_ends[chunks] - own_counts)[place] + before[place]
        return first.decode_rows(read, read_starts, own_sizes, own_counts, entries)


def _is_flat(page: MiniBlockPage) -> bool:
    """Return whether each value of a page is a row, and not an item of a dictionary."""
    layout = page.layout
    return bool(
        not layout.repetition_index_depth
        and not layout.HasField("dictionary")
        and layout.num_items == page.meta.num_rows
    )
