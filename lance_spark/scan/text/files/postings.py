"""Posting lists: the documents of a token, in blocks.

A full block has as many documents as `PostingFormat.block_size` says; the last block of a token may
have fewer. Documents of a block are stored as the steps from one to the next. Little-endian.

| block size 128 | block size 256 |
| --- | --- |
| f32 greatest score, in the last block too | - |
| u32 first document | u32 first document |
| u8 width, packed steps in 4 lanes; the first is 0 | u8 width, packed steps in 8 lanes |
| u8 width, packed frequencies | u8 width, u8 exceptions, packed frequencies |
| - | for each exception: u8 number, varint of the bits above the width |

A block of fewer documents has the documents and then the frequencies, as varints of steps (the
first from 0) and of frequencies (`varint_delta_v1`), or as u32 (`fixed32_v1`).

Specification: table/index/scalar/fts.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.encoding.v2_1.fixed_width import empty
from lance_spark.errors import CorruptFileError
from lance_spark.scan.text.files.packing import (
    MAX_WIDTH,
    ROWS,
    Bytes,
    Words,
    gathered,
    groups,
    joined,
    put_rows,
    running_sums,
    unpacked,
    varints,
)

FIXED, VARINT = "fixed32_v1", "varint_delta_v1"
_SCORE_BYTES = 4
#: Fewest bytes of a block of the full size, besides the score.
_FULL_BYTES = 6


@dataclass(frozen=True, slots=True)
class PostingFormat:
    """How the blocks of an index are stored.

    Attributes
    ----------
    block_size : int
        128 or 256.
    tail : str
        Codec of blocks of fewer documents: `FIXED` or `VARINT`.
    """

    block_size: int = 128
    tail: str = VARINT

    @property
    def lanes(self) -> int:
        """Lanes of packed integers."""
        return self.block_size // ROWS

    @property
    def score_bytes(self) -> int:
        """Bytes before the documents."""
        return _SCORE_BYTES if self.block_size == 128 else 0

    def least_bytes(self, counts: RowNumbers) -> RowNumbers:
        """Return the fewest bytes of blocks with some numbers of documents."""
        # Each document of a shorter block has two numbers.
        tail_bytes = 8 if self.tail == FIXED else 2
        least = np.where(counts == self.block_size, _FULL_BYTES, tail_bytes * counts)
        total: RowNumbers = least + self.score_bytes
        return total


@dataclass(frozen=True, slots=True)
class Postings:
    """The documents of some tokens, one token after the other.

    Attributes
    ----------
    bounds : int64 array
        First posting of each token, and the number of postings.
    documents : int64 array
        The documents of a token increase.
    frequencies : uint32 array
    """

    bounds: RowNumbers
    documents: RowNumbers
    frequencies: Words


@dataclass(frozen=True, slots=True)
class Blocks:
    """The stored blocks of some tokens.

    Attributes
    ----------
    data : uint8 array
    starts, stops : int64 array
        The bytes of each block.
    bounds : int64 array
        First block of each token, and the number of blocks.
    lengths : int64 array
        Documents of each token.
    """

    data: Bytes
    starts: RowNumbers
    stops: RowNumbers
    bounds: RowNumbers
    lengths: RowNumbers

    def counts(self, block_size: int) -> RowNumbers:
        """Return the documents of each block."""
        counts = np.full(len(self.starts), block_size)
        has_blocks = np.diff(self.bounds) > 0
        last = self.bounds[1:][has_blocks] - 1
        rest = self.lengths - (np.diff(self.bounds) - 1) * block_size
        counts[last] = rest[has_blocks]
        return counts

    def select(self, numbers: RowNumbers, block_size: int) -> Blocks:
        """Return some blocks by their numbers, which increase."""
        counts = self.counts(block_size)[numbers]
        bounds = np.searchsorted(numbers, self.bounds)
        lengths = np.diff(np.append(0, np.cumsum(counts))[bounds])
        return Blocks(self.data, self.starts[numbers], self.stops[numbers], bounds, lengths)


def blocks_of(lists: pa.Array, lengths: pa.Array, block_size: int, name: str) -> Blocks:
    """Return the blocks in columns of an index file.

    Parameters
    ----------
    lists : pa.Array
        List of large binary: the blocks of each token.
    lengths : pa.Array
        uint32: documents of each token.
    block_size : int
    name : str
        Name of the file, for errors.

    Raises
    ------
    CorruptFileError
        A value is null, or the number of blocks does not fit the documents.
    """
    binary = lists.flatten()
    if lists.null_count or lengths.null_count or binary.null_count:
        raise CorruptFileError(f"{name}: postings must not be null; rebuild the index")
    sizes = lists.value_lengths().to_numpy().astype(np.int64)
    documents = lengths.to_numpy().astype(np.int64)
    if not np.array_equal(sizes, -(-documents // block_size)):
        raise CorruptFileError(
            f"{name}: a token has a wrong number of posting blocks; rebuild the index"
        )
    data, offsets = bytes_of(binary)
    bounds = np.append(0, np.cumsum(sizes))
    return Blocks(data, offsets[:-1], offsets[1:], bounds, documents)


def bytes_of(binary: pa.Array) -> tuple[Bytes, RowNumbers]:
    """Return the bytes of an array of large binary, and the offsets of its values."""
    _, offset_buffer, data_buffer = binary.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[binary.offset :][: len(binary) + 1]
    data = np.frombuffer(b"" if data_buffer is None else data_buffer, np.uint8)
    return data, offsets


def decoded(
    blocks: Blocks, posting_format: PostingFormat, num_documents: int, name: str
) -> Postings:
    """Return the documents and frequencies of blocks.

    Parameters
    ----------
    blocks : Blocks
    posting_format : PostingFormat
    num_documents : int
        Documents of the part.
    name : str
        Name of the file, for errors.

    Raises
    ------
    CorruptFileError
        A block is truncated, or its documents do not increase or do not exist.
    """
    size = posting_format.block_size
    counts = blocks.counts(size)
    if (blocks.stops - blocks.starts < posting_format.least_bytes(counts)).any():
        raise truncated(name)
    bounds = np.append(0, np.cumsum(counts))
    documents = empty(int(bounds[-1]), np.int64)
    frequencies = empty(int(bounds[-1]), np.uint32)
    decoder = _Decoder(blocks, posting_format, bounds, documents, frequencies, name)
    decoder.read_full(np.flatnonzero(counts == size))
    decoder.read_tails(np.flatnonzero(counts < size))
    first_of_token = np.append(0, np.cumsum(blocks.lengths))
    increases = np.ones(len(documents), np.bool_)
    np.greater(documents[1:], documents[:-1], out=increases[1:])
    increases[first_of_token[:-1][blocks.lengths > 0]] = True
    if (
        not increases.all()
        or documents.min(initial=0) < 0
        or documents.max(initial=-1) >= num_documents
        or frequencies.min(initial=1) < 1
    ):
        raise decoder.error("its documents do not increase, or do not exist")
    return Postings(first_of_token, documents, frequencies)


def truncated(name: str) -> CorruptFileError:
    """Return the error about a block that is too short."""
    return CorruptFileError(f"{name}: a posting block is truncated; rebuild the index")


class _Decoder:
    """Decodes blocks into arrays."""

    def __init__(
        self,
        blocks: Blocks,
        posting_format: PostingFormat,
        bounds: RowNumbers,
        documents: RowNumbers,
        frequencies: Words,
        name: str,
    ) -> None:
        self._blocks = blocks
        self._format = posting_format
        self._bounds = bounds
        self._documents = documents
        self._frequencies = frequencies
        self._name = name

    def error(self, problem: str) -> CorruptFileError:
        return CorruptFileError(
            f"{self._name}: a posting block is damaged: {problem}; rebuild the index"
        )

    def read_full(self, numbers: RowNumbers) -> None:
        """Read blocks of the full size."""
        data, lanes = self._blocks.data, self._format.lanes
        starts = self._blocks.starts[numbers] + self._format.score_bytes
        stops = self._blocks.stops[numbers]
        self._check(starts + 5 <= stops)
        first = gathered(data, starts, 4).view("<u4")[:, 0].astype(np.int64)
        steps, after = self._packed(starts + 4, stops, lanes, extra=0)
        steps[:, 0] = 0
        documents = np.cumsum(steps, axis=1, out=empty(steps.shape, np.int64))
        documents += first[:, None]
        rows = self._bounds[numbers]
        put_rows(self._documents, rows, documents)
        exceptions = 0 if self._format.block_size == 128 else 1
        values, ends = self._packed(after, stops, lanes, extra=exceptions)
        if exceptions:
            self._patch(values, after, ends, stops)
        else:
            self._check(ends == stops)
        put_rows(self._frequencies, rows, values)

    def _packed(
        self, starts: RowNumbers, stops: RowNumbers, lanes: int, extra: int
    ) -> tuple[Words, RowNumbers]:
        """Return packed values of each block, and the position after them.

        `extra` bytes are between width and values.
        """
        data = self._blocks.data
        self._check(starts + 1 + extra <= stops)
        width = data[starts].astype(np.int64)
        ends = starts + 1 + extra + width * 4 * lanes
        self._check((width <= MAX_WIDTH) & (ends <= stops))
        values = empty((len(starts), ROWS * lanes), np.uint32)
        for bits, positions in groups(width):
            packed = gathered(data, starts[positions] + 1 + extra, bits * 4 * lanes)
            values[positions] = unpacked(packed, bits, lanes)
        return values, ends

    def _patch(
        self, values: Words, starts: RowNumbers, ends: RowNumbers, stops: RowNumbers
    ) -> None:
        """Add the upper bits of the frequencies that do not fit the width of their block."""
        data = self._blocks.data
        width = data[starts].astype(np.int64)
        remaining = data[starts + 1].astype(np.int64)
        position = ends.copy()
        active = np.flatnonzero(remaining)
        while len(active):
            self._check(position[active] + 2 <= stops[active])
            number = data[position[active]].astype(np.int64)
            position[active] += 1
            upper = np.zeros(len(active), np.int64)
            more = np.arange(len(active))
            for shift in range(0, 35, 7):
                at = position[active[more]]
                self._check(at < stops[active[more]])
                byte = data[at].astype(np.int64)
                upper[more] |= (byte & 0x7F) << shift
                position[active[more]] += 1
                more = more[byte >= 0x80]
            self._check(upper << width[active] <= 0xFFFF_FFFF)
            values[active, number] |= (upper << width[active]).astype(np.uint32)
            remaining[active] -= 1
            active = active[remaining[active] > 0]
        self._check(position == stops)

    def read_tails(self, numbers: RowNumbers) -> None:
        """Read blocks of fewer documents."""
        blocks = self._blocks
        starts = blocks.starts[numbers] + self._format.score_bytes
        sizes = blocks.stops[numbers] - starts
        counts = np.diff(self._bounds)[numbers]
        self._check(sizes >= 0)
        # The postings of all tails.
        bounds = np.append(0, np.cumsum(counts))
        rows = np.arange(bounds[-1]) + np.repeat(self._bounds[numbers] - bounds[:-1], counts)
        # The place of each posting among the numbers of all tails: a tail has twice as many.
        places = np.arange(bounds[-1]) + np.repeat(bounds[:-1], counts)
        data, byte_bounds = joined(blocks.data, starts, sizes)
        if self._format.tail == FIXED:
            self._check(sizes == 8 * counts)
            values = data.view("<u4").astype(np.int64)
            self._documents[rows] = values[places]
        else:
            streams = varints(data, byte_bounds)
            if streams is None or not np.array_equal(np.diff(streams[1]), 2 * counts):
                raise self.error("its numbers are truncated")
            values = streams[0]
            self._documents[rows] = running_sums(values[places], bounds)
        self._frequencies[rows] = values[places + np.repeat(counts, counts)]

    def _check(self, holds: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> None:
        if not holds.all():
            raise self.error("its size is wrong")
