"""Encode posting lists, positions and impacts; `postings` and `positions` have the layouts.

Impacts are what a reader needs to skip blocks. A token has an entry for each of its posting blocks,
and then one for each 32 of them. An entry is

| part | content |
| --- | --- |
| varint | last document |
| varint | number of pairs |
| pairs | varint ``steps << 1 | e``; if e is 1, a byte: the step of the length |

A pair is a frequency and the length of a document as a byte (`length_byte`). The pairs increase
both ways. An entry has those that no document exceeds: with a greater frequency or a smaller
length. `steps` is the step of the frequency minus 1. If e is 0, the step of the length is 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.scan.text.files.packing import Bytes, encoded_varints, groups, packed, widths

BLOCK = 128
_LANES = 4
#: Posting blocks of an entry of the second level of impacts.
_LEVEL = 32
_SCORE_BYTES = 4
_LENGTH_BITS, _LENGTH_MASK = 8, 0xFF


@dataclass(frozen=True, slots=True)
class SortedPostings:
    """The postings of all tokens, by token and document.

    Attributes
    ----------
    bounds : int64 array
        First posting of each token, and the number of postings. Each token has one or more.
    documents, frequencies : int64 array
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

    Parameters
    ----------
    postings : SortedPostings
    scores : float32 array
        The greatest score of each block.
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

    Parameters
    ----------
    postings : SortedPostings
    positions : int64 array
        As many for each posting as its frequency, increasing.
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

    Parameters
    ----------
    postings : SortedPostings
    lengths : uint8 array
        The length byte of the document of each posting.
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

    Attributes
    ----------
    entry, frequencies, lengths : int64 array
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
