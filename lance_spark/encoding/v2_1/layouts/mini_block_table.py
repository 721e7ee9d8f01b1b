"""The chunk table and the repetition index of a mini-block page: which chunks hold which rows.

Chunk table, one word per chunk (u16; u32 if `has_large_chunk`), little-endian:

==========  ===================================================================================
bits        content
==========  ===================================================================================
0..3        log2 of the number of values; 0 in the last chunk, which holds the rest
4..         size of the chunk in units of 8 bytes, less 1
==========  ===================================================================================

Repetition index, present iff there are lists: ``depth + 1`` u64 per chunk. The first is the number
of rows that end in the chunk. The others are not 0 iff a row continues after the end of the chunk.
A row belongs to the chunk in which it starts and to all chunks that continue it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lance_spark.encoding.levels import BoolArray, IndexArray
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.codec import bounds
from lance_spark.encoding.v2_1.page import little_endian
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

#: Maximum number of values of a chunk: the words of the table reach to 2**15, and levels are
#: counted in 16 bits.
_MAX_VALUES = 1 << 16


@dataclass(frozen=True, slots=True)
class ChunkRowEnds:
    """The ends of rows, for pages with lists.

    - `ended`: Rows that end before each chunk; the last element is the number of rows.
    - `unfinished`: Whether a row continues in the next chunk.
    """

    ended: IndexArray
    unfinished: BoolArray

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.ended.nbytes + self.unfinished.nbytes

    def first_started(self, chunks: IndexArray) -> IndexArray:
        """Return the number of the first row that starts in each chunk or after it."""
        return self.ended[chunks] + ((chunks > 0) & self.unfinished[chunks - 1])

    def chunks_of(self, rows: Rows) -> tuple[IndexArray, IndexArray]:
        """Return the first and the last chunk of each row, or of the whole range."""
        if isinstance(rows, range):
            firsts, lasts = np.array([rows.start]), np.array([rows.stop - 1])
        else:
            firsts = lasts = rows
        last = np.searchsorted(self.ended[1:], lasts, side="right")
        before = np.searchsorted(self.ended[1:], firsts - 1, side="right")
        # The previous row ends in `before`. This row starts there too, unless no further row starts
        # there.
        alone = (self.ended[before + 1] == firsts) & ~self.unfinished[before]
        first = np.where(firsts == 0, 0, before + alone)
        return first, last


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """The chunks of a mini-block page.

    - `bytes_at`: Start of each chunk in the data buffer, and its end.
    - `values_at`: Number of the first value of each chunk, and the number of values.
    - `rows`: None if every value is a row.
    """

    bytes_at: IndexArray
    values_at: IndexArray
    rows: ChunkRowEnds | None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        of_rows = 0 if self.rows is None else self.rows.nbytes
        return self.bytes_at.nbytes + self.values_at.nbytes + of_rows

    def chunks_of(self, rows: Rows) -> IndexArray:
        """Return the numbers of the chunks that hold some of the rows, increasing."""
        if self.rows is not None:
            firsts, lasts = self.rows.chunks_of(rows)
        elif isinstance(rows, range):
            ends = np.array([rows.start, rows.stop - 1])
            result = np.searchsorted(self.values_at, ends, side="right") - 1
            return np.arange(result[0], result[1] + 1)
        else:
            firsts = lasts = np.searchsorted(self.values_at, rows, side="right") - 1
        steps = np.zeros(len(self.bytes_at), np.int64)
        np.add.at(steps, firsts, 1)
        np.add.at(steps, lasts + 1, -1)
        return np.flatnonzero(np.cumsum(steps[:-1]))


def parse_chunk_table(
    words: Bytes, *, large: bool, num_values: int, data_size: int, rows: ChunkRowEnds | None
) -> ChunkTable:
    """Parse the chunk table of a page.

    - `large`: Whether words have 32 bits.
    - `num_values`: Values of the page.
    - `data_size`: Length of the buffer of the chunks.

    Raises CorruptFileError: the chunks do not fill the buffer, or do not hold `num_values` values.
    """
    width = 4 if large else 2
    if len(words) % width or not len(words):
        raise CorruptFileError(f"a chunk table of {len(words)} bytes")
    numbers = little_endian(words, width)
    sizes = ((numbers >> 4) + 1) * 8
    logs = numbers & 15
    counts = np.left_shift(1, logs)
    if not logs[:-1].all():
        raise CorruptFileError("a chunk before the last has no number of values")
    last_count = num_values - int(counts[:-1].sum())
    if not 0 <= last_count <= _MAX_VALUES or (logs[-1] and counts[-1] != last_count):
        raise CorruptFileError(f"the chunks do not hold the page's {num_values} values")
    counts[-1] = last_count
    if int(sizes.sum()) != data_size:
        raise CorruptFileError(f"chunks of {int(sizes.sum())} bytes in a buffer of {data_size}")
    return ChunkTable(bounds(sizes), bounds(counts), rows)


class ChunkTables(NamedTuple):
    """The chunks of several mini-block pages, one page after the other.

    - `sizes`, `counts`: Bytes and values of each chunk.
    - `last_chunks`: Number of the last chunk of each page.
    """

    sizes: IndexArray
    counts: IndexArray
    last_chunks: IndexArray

    @property
    def first_chunks(self) -> IndexArray:
        """Number of the first chunk of each page."""
        return np.append(0, self.last_chunks[:-1] + 1)


def parse_chunk_tables(
    words: Sequence[Bytes], *, large: bool, num_values: Sequence[int], data_sizes: Sequence[int]
) -> ChunkTables:
    """Parse the chunk tables of several pages that have no lists or are read whole; see
    `parse_chunk_table`.

    Raises CorruptFileError: one of the tables is corrupt; the error does not name its page.
    """
    width = 4 if large else 2
    lengths = np.array([len(page_words) for page_words in words])
    if (lengths % width).any() or not lengths.all():
        raise CorruptFileError("a chunk table is empty or incomplete")
    totals = np.array(num_values, np.uint64)
    if int(totals.max()) > np.iinfo(np.int64).max:
        raise CorruptFileError("a page has an impossible number of values")
    numbers = little_endian(np.concatenate(words), width)
    ends = np.cumsum(lengths // width)
    firsts, lasts = ends - lengths // width, ends - 1
    sizes = ((numbers >> 4) + 1) * 8
    logs = numbers & 15
    counts = np.left_shift(1, logs)
    last_logs, last_counts = logs[lasts], counts[lasts]
    logs[lasts] = 1
    if not logs.all():
        raise CorruptFileError("a chunk before the last has no number of values")
    counts[lasts] = 0
    remaining = totals.astype(np.int64) - np.add.reduceat(counts, firsts)
    if ((remaining < 0) | (remaining > _MAX_VALUES)).any() or (
        (last_logs > 0) & (last_counts != remaining)
    ).any():
        raise CorruptFileError("the chunks do not hold the values of their page")
    counts[lasts] = remaining
    if (np.add.reduceat(sizes, firsts) != data_sizes).any():
        raise CorruptFileError("chunks of other sizes than the buffer has room for")
    return ChunkTables(sizes, counts, lasts)


def parse_row_index(data: Bytes, *, depth: int, num_chunks: int, num_rows: int) -> ChunkRowEnds:
    """Parse the repetition index of a page.

    Raises CorruptFileError: the index does not fit `num_chunks` chunks with `num_rows` rows.
    """
    if len(data) != num_chunks * (depth + 1) * 8:
        raise CorruptFileError(f"a repetition index of {len(data)} bytes for {num_chunks} chunks")
    table = little_endian(data, 8).reshape(num_chunks, depth + 1)
    ends = table[:, 0]
    if int(ends.max()) > num_rows or int(ends.sum()) != num_rows:
        raise CorruptFileError(f"the repetition index does not count {num_rows} rows")
    unfinished: BoolArray = np.any(table[:, 1:], axis=1)
    if unfinished[-1]:
        raise CorruptFileError("the last chunk leaves a row unfinished")
    return ChunkRowEnds(bounds(ends), unfinished)


def has_same_encoding(first: pb.MiniBlockLayout, second: pb.MiniBlockLayout) -> bool:
    """Return whether chunks of two pages can be decoded together."""
    return first is second or bool(
        has_same_parts(first, second) and first.value_compression == second.value_compression
    )


def has_same_codes(first: pb.MiniBlockLayout, second: pb.MiniBlockLayout) -> bool:
    """Return whether chunks of FSST codes of two pages, each with its symbols, are alike."""
    codes, others = first.value_compression, second.value_compression
    return bool(
        codes.HasField("fsst")
        and others.HasField("fsst")
        and codes.fsst.values == others.fsst.values
        and has_same_parts(first, second)
    )


def has_same_parts(first: pb.MiniBlockLayout, second: pb.MiniBlockLayout) -> bool:
    """Return whether chunks of two pages have the same parts and levels."""
    return bool(
        first.HasField("dictionary") == second.HasField("dictionary")
        and first.layers == second.layers
        and first.num_buffers == second.num_buffers
        and first.has_large_chunk == second.has_large_chunk
        and first.HasField("rep_compression") == second.HasField("rep_compression")
        and first.HasField("def_compression") == second.HasField("def_compression")
        and first.rep_compression == second.rep_compression
        and first.def_compression == second.def_compression
    )
