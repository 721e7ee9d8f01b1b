"""Few rows of pages that were fetched, and are decoded together where pages are alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.layouts.mini_block_table import has_same_codes, has_same_encoding
from lance_spark.encoding.v2_1.page import PageRows, SlottedRows, joined
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes


class _ChunkedPage(Protocol):
    """A mini-block page."""

    layout: pb.MiniBlockLayout

    def decode_rows(
        self,
        data: Bytes,
        starts: IndexArray,
        sizes: IndexArray,
        counts: IndexArray,
        entries: IndexArray,
        owners: Sequence[tuple[Any, IndexArray]] = (),
    ) -> PageRows:
        """Decode some values of chunks."""
        ...


class _WidePage(Protocol):
    """A full-zip page of values of fixed width."""

    layout: pb.FullZipLayout

    def decode_table(self, table: Bytes) -> PageRows:
        """Decode the entries of rows."""
        ...


class ChunkRows(NamedTuple):
    """Rows in chunks of a mini-block page, each of which is a value.

    - `buffers`: The chunks.
    - `counts`: Values of each chunk.
    - `entries`: Positions of the rows among the values of the chunks.
    """

    page: _ChunkedPage
    buffers: Sequence[Bytes]
    counts: list[int]
    entries: list[int]

    def is_like(self, other: object) -> bool:
        """Return whether other rows can be decoded together with these."""
        return (
            isinstance(other, ChunkRows)
            and not self.page.layout.HasField("dictionary")
            and (
                has_same_encoding(self.page.layout, other.page.layout)
                or has_same_codes(self.page.layout, other.page.layout)
            )
        )

    @staticmethod
    def decoded(parts: Sequence[ChunkRows]) -> SlottedRows:
        """Return the rows of pages that are alike."""
        buffers = [buffer for part in parts for buffer in part.buffers]
        sizes = np.array([len(buffer) for buffer in buffers], np.int64)
        counts = [count for part in parts for count in part.counts]
        entries: list[IndexArray] = []
        before = 0
        for part in parts:
            entries.append(np.array(part.entries, np.int64) + before)
            before += sum(part.counts)
        pages = [part.page for part in parts]
        return pages[0].decode_rows(
            joined(buffers),
            np.cumsum(sizes) - sizes,
            sizes,
            np.array(counts, np.int64),
            np.concatenate(entries),
            list(zip(pages, entries, strict=True)),
        )


class WideRows(NamedTuple):
    """Rows of a full-zip page of values of fixed width, as a table of bytes."""

    page: _WidePage
    table: Bytes

    def is_like(self, other: object) -> bool:
        """Return whether other rows can be decoded together with these."""
        return isinstance(other, WideRows) and self.page.layout == other.page.layout

    @staticmethod
    def decoded(parts: Sequence[WideRows]) -> SlottedRows:
        """Return the rows of pages that are alike."""
        tables = [part.table for part in parts]
        return parts[0].page.decode_table(tables[0] if len(tables) == 1 else np.concatenate(tables))


def decoded(fetched: Sequence[Any]) -> Iterator[SlottedRows]:
    """Yield the rows of consecutive pages: `ChunkRows`, `WideRows`, or rows that are decoded."""
    group: list[Any] = []
    for rows in fetched:
        if group and group[0].is_like(rows):
            group.append(rows)
            continue
        if group:
            yield type(group[0]).decoded(group)
            group = []
        if isinstance(rows, ChunkRows | WideRows):
            group = [rows]
        else:
            yield rows
    if group:
        yield type(group[0]).decoded(group)
