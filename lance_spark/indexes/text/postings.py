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
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.encoding.v2_1.codec import empty
from lance_spark.errors import CorruptFileError
from lance_spark.indexes.text.packing import (
    MAX_WIDTH,
    ROWS,
    Bytes,
    Words,
    encoded_varints,
    gathered,
    groups,
    joined,
    packed,
    put_rows,
    running_sums,
    unpacked,
    varints,
    widths,
)

FIXED, VARINT = "fixed32_v1", "varint_delta_v1"
_SCORE_BYTES = 4
#: Fewest bytes of a block of the full size, besides the score.
_FULL_BYTES = 6


@dataclass(frozen=True, slots=True)
class PostingFormat:
    """How the blocks of an index are stored.

    - `block_size`: 128 or 256.
    - `tail`: Codec of blocks of fewer documents: `FIXED` or `VARINT`.
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

    - `bounds` (int64 array): First posting of each token, and the number of postings.
    - `documents` (int64 array): The documents of a token increase.
    - `frequencies`: Uint32 array.
    """

    bounds: RowNumbers
    documents: RowNumbers
    frequencies: Words


@dataclass(frozen=True, slots=True)
class Blocks:
    """The stored blocks of some tokens.

    - `data`: Uint8 array.
    - `starts`, `stops` (int64 array): The bytes of each block.
    - `bounds` (int64 array): First block of each token, and the number of blocks.
    - `lengths` (int64 array): Documents of each token.
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

    - `lists`: List of large binary: the blocks of each token.
    - `lengths`: uint32: documents of each token.
    - `name`: Name of the file, for errors.

    Raises CorruptFileError: a value is null, or the number of blocks does not fit the documents.
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

    - `num_documents`: Documents of the part.
    - `name`: Name of the file, for errors.

    Raises CorruptFileError: a block is truncated, or its documents do not increase or do not exist.
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


# --------------------------------------------------------------------------------------------------
# Positions of tokens in their documents.
#
# Layout `shared_stream_v2` has one stream for each token, with a part for each posting block, whose
# starts are a column. A part has the first position of each document and the steps to the next
# ones, for all documents one after the other: groups of 128 as a byte of width and packed integers
# of 4 lanes, and the rest as varints.
#
# Format 1 has a list of binaries for each document: a u32 number of positions; for each 128 of them
# a u32 first position, a byte of width and packed steps; and the other positions as u32.
#
# Specification: table/index/scalar/fts.md.

LAYOUT, CODEC = "shared_stream_v2", "packed_delta_v1"
_GROUP = 128
_LANES = 4


def read_stream(
    streams: pa.Array,
    part_starts: pa.Array,
    frequencies: RowNumbers,
    block_counts: RowNumbers,
    name: str,
) -> RowNumbers:
    """Return the positions of tokens in their documents.

    Parameters
    ----------
    streams : pa.Array
        Large binary: the stream of each token.
    part_starts : pa.Array
        List of uint32: the parts of each stream.
    frequencies : int64 array
        Positions of each document of each token.
    block_counts : int64 array
        Documents of each posting block.
    name : str
        Name of the file, for errors.

    Returns
    -------
    int64 array
        Positions of each document, as many as its frequency, one document after the other.

    Raises
    ------
    CorruptFileError
        A part is truncated, or is not that of a posting block.
    """
    starts_of_parts = part_starts.flatten()
    if streams.null_count or part_starts.null_count or starts_of_parts.null_count:
        raise _error(name)
    parts_of_token = part_starts.value_lengths().to_numpy().astype(np.int64)
    data, offsets = bytes_of(streams)
    if parts_of_token.sum() != len(block_counts):
        raise _error(name)
    starts = starts_of_parts.to_numpy().astype(np.int64) + np.repeat(offsets[:-1], parts_of_token)
    stops = np.append(starts[1:], offsets[-1:])
    last = np.cumsum(parts_of_token)[parts_of_token > 0] - 1
    stops[last] = offsets[1:][parts_of_token > 0]
    document_bounds = np.append(0, np.cumsum(block_counts))
    value_bounds = np.append(0, np.cumsum(frequencies))
    bounds = value_bounds[document_bounds]
    counts = np.diff(bounds)
    # A byte has at most one group, or one position.
    if (
        (stops < starts).any()
        or (stops > len(data)).any()
        or (counts > _GROUP * (stops - starts)).any()
    ):
        raise _error(name)
    steps = np.empty(int(bounds[-1]), np.int64)
    cursor = starts.copy()
    for number in range(int(counts.max(initial=0)) // _GROUP):
        active = np.flatnonzero(counts >= (number + 1) * _GROUP)
        values, cursor[active] = _read_groups(data, cursor[active], stops[active], name)
        steps[(bounds[active] + number * _GROUP)[:, None] + np.arange(_GROUP)] = values
    rest = counts % _GROUP
    content, byte_bounds = joined(data, cursor, stops - cursor)
    numbers = varints(content, byte_bounds)
    if numbers is None or not np.array_equal(np.diff(numbers[1]), rest):
        raise _error(name)
    rows = np.arange(rest.sum()) + np.repeat(bounds[1:] - np.cumsum(rest), rest)
    steps[rows] = numbers[0]
    return running_sums(steps, value_bounds)


def read_lists(lists: pa.Array, frequencies: RowNumbers, name: str) -> RowNumbers:
    """Return the positions of tokens in their documents, of format 1; see `read_stream`.

    - `lists`: List of large binary for each document of each token.
    - `frequencies`: Int64 array.

    Raises CorruptFileError.
    """
    binary = lists.flatten()
    sizes = lists.value_lengths().to_numpy().astype(np.int64)
    full, rest = frequencies // _GROUP, frequencies % _GROUP
    if lists.null_count or binary.null_count or not np.array_equal(sizes, 1 + full + (rest > 0)):
        raise _error(name)
    data, offsets = bytes_of(binary)
    starts, stops = offsets[:-1], offsets[1:]
    first = np.append(0, np.cumsum(sizes))[:-1]
    if not (stops[first] - starts[first] == 4).all():
        raise _error(name)
    counts = gathered(data, starts[first], 4).view("<u4")[:, 0]
    if not np.array_equal(counts, frequencies):
        raise _error(name)
    value_bounds = np.append(0, np.cumsum(frequencies))
    positions = np.empty(int(value_bounds[-1]), np.int64)
    document = np.repeat(np.arange(len(full)), full)
    number = np.arange(len(document)) - np.repeat(np.append(0, np.cumsum(full))[:-1], full)
    block = first[document] + 1 + number
    if (starts[block] + 4 > stops[block]).any():
        raise _error(name)
    base = gathered(data, starts[block], 4).view("<u4")[:, 0].astype(np.int64)
    steps, ends = _read_groups(data, starts[block] + 4, stops[block], name)
    steps[:, 0] = 0
    rows = (value_bounds[document] + number * _GROUP)[:, None] + np.arange(_GROUP)
    positions[rows] = base[:, None] + np.cumsum(steps, axis=1)
    has_rest = rest > 0
    tail = first[has_rest] + 1 + full[has_rest]
    tail_sizes = stops[tail] - starts[tail]
    if not np.array_equal(ends, stops[block]) or not np.array_equal(tail_sizes, 4 * rest[has_rest]):
        raise _error(name)
    content, _ = joined(data, starts[tail], tail_sizes)
    rows = np.arange(rest.sum()) + np.repeat(value_bounds[1:] - np.cumsum(rest), rest)
    positions[rows] = content.view("<u4")
    return positions


def _read_groups(
    data: Bytes, starts: RowNumbers, stops: RowNumbers, name: str
) -> tuple[npt.NDArray[np.int64], RowNumbers]:
    """Return the values of packed groups, and the position after each."""
    if (starts >= stops).any():
        raise _error(name)
    width = data[starts].astype(np.int64)
    ends = starts + 1 + width * 4 * _LANES
    if (width > MAX_WIDTH).any() or (ends > stops).any():
        raise _error(name)
    values = np.empty((len(starts), _GROUP), np.int64)
    for bits, rows in groups(width):
        content = gathered(data, starts[rows] + 1, bits * 4 * _LANES)
        values[rows] = unpacked(content, bits, _LANES)
    return values, ends


def _error(name: str) -> CorruptFileError:
    return CorruptFileError(f"{name}: the positions of tokens are damaged; rebuild the index")


# --------------------------------------------------------------------------------------------------
# Encode posting lists, positions and impacts; `postings` and `positions` have the layouts.
#
# Impacts are what a reader needs to skip blocks. A token has an entry for each of its posting
# blocks, and then one for each 32 of them. An entry is
#
# | part | content |
# | --- | --- |
# | varint | last document |
# | varint | number of pairs |
# | pairs | varint ``steps << 1 | e``; if e is 1, a byte: the step of the length |
#
# A pair is a frequency and the length of a document as a byte (`length_byte`). The pairs increase
# both ways. An entry has those that no document exceeds: with a greater frequency or a smaller
# length. `steps` is the step of the frequency minus 1. If e is 0, the step of the length is 1.

BLOCK = 128
#: Posting blocks of an entry of the second level of impacts.
_LEVEL = 32
_LENGTH_BITS, _LENGTH_MASK = 8, 0xFF


@dataclass(frozen=True, slots=True)
class SortedPostings:
    """The postings of all tokens, by token and document.

    - `bounds` (int64 array): First posting of each token, and the number of postings. Each token
      has one or more.
    - `documents`, `frequencies`: Int64 array.
    """

    bounds: RowNumbers
    documents: RowNumbers
    frequencies: RowNumbers

    def split(self, size: int) -> tuple[RowNumbers, RowNumbers]:
        """Return the first posting of each block of a size and their number, and the blocks.

        The second array has the first block of each token, and the number of blocks.
        """
        counts = -(-np.diff(self.bounds) // size)
        block_bounds = np.append(0, np.cumsum(counts))
        number = np.arange(block_bounds[-1]) - np.repeat(block_bounds[:-1], counts)
        starts = np.repeat(self.bounds[:-1], counts) + number * size
        return np.append(starts, self.bounds[-1]), block_bounds


def encoded_blocks(postings: SortedPostings, scores: npt.NDArray[np.float32]) -> pa.Array:
    """Return the posting blocks of each token as a list of large binary.

    - `scores` (float32 array): The greatest score of each block.
    """
    starts, block_bounds = postings.split(BLOCK)
    counts = np.diff(starts)
    steps = np.diff(postings.documents, prepend=0)
    steps[starts[:-1]] = postings.documents[starts[:-1]]
    full, tails = np.flatnonzero(counts == BLOCK), np.flatnonzero(counts < BLOCK)
    rows = starts[full][:, None] + np.arange(BLOCK)
    matrices = [steps[rows].astype(np.uint32), postings.frequencies[rows].astype(np.uint32)]
    matrices[0][:, 0] = 0
    bits = [widths(matrix) for matrix in matrices]
    # The postings of all tails.
    tail_counts = counts[tails]
    bounds = np.append(0, np.cumsum(tail_counts))
    places = np.arange(bounds[-1]) + np.repeat(starts[tails] - bounds[:-1], tail_counts)
    # The documents of a tail, and then its frequencies.
    order = np.arange(bounds[-1]) + np.repeat(bounds[:-1], tail_counts)
    numbers = np.empty(2 * len(places), np.int64)
    numbers[order] = steps[places]
    numbers[order + np.repeat(tail_counts, tail_counts)] = postings.frequencies[places]
    content, varint_sizes = encoded_varints(numbers)
    byte_bounds = np.append(0, np.cumsum(varint_sizes))[2 * bounds]
    sizes = np.empty(len(counts), np.int64)
    sizes[full] = _SCORE_BYTES + 4 + 2 + 4 * _LANES * (bits[0] + bits[1])
    sizes[tails] = _SCORE_BYTES + np.diff(byte_bounds)
    offsets = np.append(0, np.cumsum(sizes))
    data = np.empty(int(offsets[-1]), np.uint8)
    _put(data, offsets[:-1], scores.astype("<f4").view(np.uint8).reshape(-1, _SCORE_BYTES))
    position = offsets[full] + _SCORE_BYTES
    first = postings.documents[starts[full]].astype("<u4").view(np.uint8).reshape(-1, 4)
    _put(data, position, first)
    position = position + 4
    for matrix, width in zip(matrices, bits, strict=True):
        position = _put_packed(data, position, matrix, width)
    _put_ranges(data, offsets[tails] + _SCORE_BYTES, content, byte_bounds)
    return _lists(_binary(offsets, data), block_bounds)


def encoded_positions(postings: SortedPostings, positions: RowNumbers) -> tuple[pa.Array, pa.Array]:
    """Return the stream of positions of each token, and the starts of its parts.

    - `positions` (int64 array): As many for each posting as its frequency, increasing.
    """
    starts, block_bounds = postings.split(BLOCK)
    value_bounds = np.append(0, np.cumsum(postings.frequencies))
    steps = np.diff(positions, prepend=0)
    steps[value_bounds[:-1]] = positions[value_bounds[:-1]]
    bounds = value_bounds[starts]
    counts = np.diff(bounds)
    full, rest = counts // BLOCK, counts % BLOCK
    group_bounds = np.append(0, np.cumsum(full))
    number = np.arange(group_bounds[-1]) - np.repeat(group_bounds[:-1], full)
    firsts = np.repeat(bounds[:-1], full) + number * BLOCK
    matrix = steps[firsts[:, None] + np.arange(BLOCK)].astype(np.uint32)
    bits = widths(matrix)
    group_bytes = np.append(0, np.cumsum(1 + 4 * _LANES * bits))
    rest_bounds = np.append(0, np.cumsum(rest))
    places = np.arange(rest_bounds[-1]) + np.repeat(bounds[1:] - rest_bounds[1:], rest)
    content, varint_sizes = encoded_varints(steps[places])
    byte_bounds = np.append(0, np.cumsum(varint_sizes))[rest_bounds]
    packed_sizes = np.diff(group_bytes[group_bounds])
    offsets = np.append(0, np.cumsum(packed_sizes + np.diff(byte_bounds)))
    data = np.empty(int(offsets[-1]), np.uint8)
    block = np.repeat(np.arange(len(full)), full)
    within = group_bytes[:-1] - group_bytes[group_bounds[:-1]][block]
    _put_packed(data, offsets[block] + within, matrix, bits)
    _put_ranges(data, offsets[:-1] + packed_sizes, content, byte_bounds)
    of_token = offsets[block_bounds]
    part_starts = offsets[:-1] - np.repeat(of_token[:-1], np.diff(block_bounds))
    return _binary(of_token, data), _lists(pa.array(part_starts, pa.uint32()), block_bounds)


def encoded_impacts(postings: SortedPostings, lengths: npt.NDArray[np.uint8]) -> pa.Array:
    """Return the impacts of each token as a list of large binary.

    - `lengths` (uint8 array): The length byte of the document of each posting.
    """
    starts, block_bounds = postings.split(BLOCK)
    pairs = _frontiers(
        np.repeat(np.arange(len(starts) - 1), np.diff(starts)), postings.frequencies, lengths
    )
    blocks = np.diff(block_bounds)
    group_counts = -(-blocks // _LEVEL)
    group_bounds = np.append(0, np.cumsum(group_counts))
    number = np.arange(block_bounds[-1]) - np.repeat(block_bounds[:-1], blocks)
    group = np.repeat(group_bounds[:-1], blocks) + number // _LEVEL
    # What no pair of its block exceeds is left for the group.
    upper = _frontiers(group[pairs.entry], pairs.frequencies, pairs.lengths)
    last = postings.documents[starts[1:] - 1]
    is_last = np.append(np.diff(group) != 0, True)[: len(group)]
    entries = [_encoded_pairs(pairs, last), _encoded_pairs(upper, last[is_last])]
    # The entries of the second level follow those of the first.
    list_bounds = block_bounds + group_bounds
    order = np.empty(int(list_bounds[-1]), np.int64)
    places = np.arange(len(group)) + np.repeat(group_bounds[:-1], blocks)
    order[places] = np.arange(len(group))
    places = np.arange(group_bounds[-1]) + np.repeat(block_bounds[1:], group_counts)
    order[places] = np.arange(len(group), len(order))
    return _lists(pa.concat_arrays(entries).take(pa.array(order)), list_bounds)


def length_byte(lengths: npt.NDArray[np.integer]) -> npt.NDArray[np.uint8]:
    """Return lengths in a byte each: the number of bits, and the upper four of them."""
    values = lengths.astype(np.int64)
    _, bits = np.frexp(values.astype(np.float64))
    shift = np.maximum(bits.astype(np.int64) - 4, 0)
    coded = ((values >> shift) & 7) | ((shift + 1) << 3)
    return np.where(values < 8, values, coded).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class _ImpactPairs:
    """Pairs of entries, by entry and increasing.

    - `entry`, `frequencies`, `lengths`: Int64 array.
    """

    entry: RowNumbers
    frequencies: RowNumbers
    lengths: RowNumbers


def _frontiers(
    entry: RowNumbers, frequencies: RowNumbers, lengths: npt.NDArray[np.integer]
) -> _ImpactPairs:
    """Return the pairs that no other pair of their entry exceeds."""
    # One number for each pair sorts them by entry, decreasing frequency, and length. It has less
    # than 63 bits: a part has at most 2**27 tokens, of which each entry and frequency needs some.
    most = int(frequencies.max(initial=0))
    bits = most.bit_length()
    keys = (entry << bits | (most - frequencies)) << _LENGTH_BITS | lengths
    keys.sort()
    entry, lengths = keys >> (bits + _LENGTH_BITS), keys & _LENGTH_MASK
    # A pair stays if no pair of a greater or equal frequency has a length as small. The least
    # length so far begins again with each entry.
    ranks = lengths - (entry << _LENGTH_BITS)
    least = np.minimum.accumulate(ranks)
    kept = np.ones(len(keys), np.bool_)
    kept[1:] = ranks[1:] < least[:-1]
    chosen = np.flatnonzero(kept)
    frequencies = most - (keys[chosen] >> _LENGTH_BITS & ((1 << bits) - 1))
    entry, lengths = entry[chosen], lengths[chosen]
    # Increasing frequencies.
    counts = np.bincount(entry)
    bounds = np.append(0, np.cumsum(counts))
    reverse = np.repeat(bounds[:-1] + bounds[1:] - 1, counts) - np.arange(len(chosen))
    return _ImpactPairs(entry, frequencies[reverse], lengths[reverse])


def _encoded_pairs(pairs: _ImpactPairs, documents: RowNumbers) -> pa.Array:
    """Return entries, of which the last documents are given."""
    counts = np.bincount(pairs.entry, minlength=len(documents))
    bounds = np.append(0, np.cumsum(counts))
    is_first = np.zeros(len(pairs.entry), np.bool_)
    is_first[bounds[:-1]] = True
    steps = [
        np.where(is_first, values, np.diff(values, prepend=0))
        for values in (pairs.frequencies, pairs.lengths)
    ]
    has_byte = steps[1] != 1
    # Two numbers of each entry, and two of each pair.
    header = 2 * (np.arange(len(counts)) + bounds[:-1])
    pair = 2 * (np.repeat(np.arange(1, len(counts) + 1), counts) + np.arange(bounds[-1]))
    numbers = np.empty(2 * (len(counts) + len(pairs.entry)), np.int64)
    numbers[header] = documents
    numbers[header + 1] = counts
    numbers[pair] = (steps[0] - 1) << 1 | has_byte
    numbers[pair + 1] = 0
    content, sizes = encoded_varints(numbers)
    # The lengths are bytes, not varints, and may be missing.
    keep = np.ones(len(content), np.bool_)
    places = np.append(0, np.cumsum(sizes))[pair + 1]
    content[places] = steps[1]
    keep[places] = has_byte
    sizes[pair + 1] = has_byte
    entry_bounds = np.append(header, len(numbers))
    return _binary(np.append(0, np.cumsum(sizes))[entry_bounds], content[keep])


def _put(data: Bytes, starts: RowNumbers, rows: Bytes) -> None:
    data[starts[:, None] + np.arange(rows.shape[1])] = rows


def _put_packed(
    data: Bytes, starts: RowNumbers, matrix: npt.NDArray[np.uint32], bits: RowNumbers
) -> RowNumbers:
    """Store widths and packed rows; return the position after each."""
    data[starts] = bits
    for width, rows in groups(bits):
        _put(data, starts[rows] + 1, packed(matrix[rows], width, _LANES))
    return starts + 1 + 4 * _LANES * bits


def _put_ranges(data: Bytes, starts: RowNumbers, content: Bytes, bounds: RowNumbers) -> None:
    sizes = np.diff(bounds)
    data[np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], sizes)] = content


def _binary(offsets: RowNumbers, data: Bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _lists(values: pa.Array, bounds: RowNumbers) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), values)
