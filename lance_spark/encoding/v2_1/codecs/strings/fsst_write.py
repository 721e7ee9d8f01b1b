"""Writing of Fsst: symbols are found in a sample of a page; then each value is coded by the longest
symbol that matches at each place.

A table has at most one symbol of 3 to 8 bytes for the hash of its first three bytes, so one
comparison shows whether a text has it at a place. If it does not, a symbol of two bytes is used,
else a symbol of one byte, else an escape.

Symbols are found in rounds. Each round codes the sample with the symbols so far. The used symbols,
and each two symbols that were used one after the other, are the candidates of the next round. The
255 candidates that cover most bytes become its symbols.

To code a page, the symbol at every place of its text is found; then the used symbols are followed
from many places at once. No symbol crosses the end of its value, so the start of every value is
reached. Specification: Boncz, Neumann, Leis: FSST (VLDB 2020); the layout is described in `fsst`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.blocks import VariableWidthBlock
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import ChunkLimits, Encoded
from lance_spark.encoding.v2_1.codecs import variable
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

WordArray = npt.NDArray[np.uint64]
EntryArray = npt.NDArray[np.uint16]

TABLE_BYTES = 2312
_MAX_SYMBOLS = 255
_MAX_LENGTH = 8
_ESCAPE = 255
#: Bytes of the sample, bytes of its pieces, and its share in each round.
_SAMPLE_BYTES = 1 << 14
_PIECE = 256
_ROUNDS = (0.25, 0.25, 0.5, 1.0, 1.0)
#: Compressed share of a sample at which the search stops.
_WORTH = 0.98
#: Minimum uses of a symbol in the sample; fewer uses are chance.
_MIN_USES = 3
#: A byte without a symbol takes two bytes.
_BYTE_WEIGHT = 4
#: Index of the first single byte in `_Lookup.short`.
_SINGLE = 1 << 16
#: Steps between two checks whether all places are followed to the end.
_UNCHECKED = 16
#: Number of slots of the hash of three bytes.
_SLOT_BITS = 12
_SLOTS = 1 << _SLOT_BITS
_FACTOR = np.uint64(0x9E3779B185EBCA87)
_SLOT_SHIFT = np.uint64(64 - _SLOT_BITS)
_THREE = np.uint64(0xFFFFFF)
_TWO = np.uint64(0xFFFF)
#: An entry: a code, or with this bit a byte without a code; the number of its bytes is in the bits
#: from `_LENGTH_AT` on.
_LITERAL = 1 << 8
_LENGTH_AT = 9
#: Places whose symbols are found at once: the data of a step stays in the cache of the processor.
_BLOCK = 1 << 14
#: Bytes of text between two places that are followed at once.
_STRIDE = 1024
#: Number of codes of a chunk: to read a value, its chunk is decoded, which is several times as
#: long.
_CHUNK_BYTES = 16 * 1024


class Symbols(NamedTuple):
    """The first `length` bytes of each word, in order of their codes."""

    words: WordArray
    lengths: IndexArray

    def table(self) -> bytes:
        """Return the stored form of the table."""
        count = len(self.words)
        head = bytes((count, 0, 0, 1)) + b"TSSF"
        body = self.words.astype("<u8").tobytes() + self.lengths.astype(np.uint8).tobytes()
        return (head + body).ljust(TABLE_BYTES, b"\x00")


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Symbols by their first bytes."""

    #: For each slot the symbol of 3 bytes or more, the mask of its bits, and its entry.
    words: WordArray
    masks: WordArray
    entries: EntryArray
    #: The entry for each two bytes, then for each single byte at the end of a value.
    short: EntryArray


def _slot(words: WordArray) -> WordArray:
    # The product's upper bits depend on all three bytes.
    result: WordArray = (words & _THREE) * _FACTOR >> _SLOT_SHIFT
    return result


def _mask(lengths: IndexArray) -> WordArray:
    result: WordArray = ~np.uint64(0) >> (8 * (_MAX_LENGTH - lengths)).astype(np.uint64)
    return result


def _lookup(symbols: Symbols) -> _Lookup:
    # A word that no masked word equals.
    words, masks = np.ones(_SLOTS, np.uint64), np.zeros(_SLOTS, np.uint64)
    entries = np.zeros(_SLOTS, np.uint16)
    codes = np.arange(len(symbols.words)) | symbols.lengths << _LENGTH_AT
    long = symbols.lengths > 2
    slots = _slot(symbols.words[long])
    words[slots], masks[slots] = symbols.words[long], _mask(symbols.lengths[long])
    entries[slots] = codes[long]
    single = (np.arange(256) | _LITERAL | 1 << _LENGTH_AT).astype(np.uint16)
    alone = symbols.lengths == 1
    single[symbols.words[alone]] = codes[alone]
    short = np.concatenate([np.tile(single, 256), single])
    two = symbols.lengths == 2
    short[symbols.words[two]] = codes[two]
    return _Lookup(words, masks, entries, short)


def _find(text: Bytes, ends: IndexArray, lookup: _Lookup) -> EntryArray:
    """Return the entry of every place of a text, which is followed by 8 more bytes; values have
    `ends`.
    """
    size = len(text) - _MAX_LENGTH
    words = np.ndarray((size,), "<u8", text, strides=(1,))
    result = np.empty(size, np.uint16)
    block, slots, masked, keys = np.empty((4, min(_BLOCK, size)), np.uint64)
    long = np.empty(len(block), np.uint16)
    for start in range(0, size, _BLOCK):
        entries = result[start : start + _BLOCK]
        if len(entries) < len(block):
            block, slots, masked, keys = (
                part[: len(entries)] for part in (block, slots, masked, keys)
            )
            long = long[: len(entries)]
        block[:] = words[start : start + _BLOCK]
        np.bitwise_and(block, _TWO, out=keys)
        np.take(lookup.short, keys.view(np.int64), out=entries, mode="clip")
        np.bitwise_and(block, _THREE, out=slots)
        np.multiply(slots, _FACTOR, out=slots)
        np.right_shift(slots, _SLOT_SHIFT, out=slots)
        position = slots.view(np.int64)
        np.take(lookup.masks, position, out=masked, mode="clip")
        np.bitwise_and(masked, block, out=masked)
        np.take(lookup.words, position, out=keys, mode="clip")
        np.take(lookup.entries, position, out=long, mode="clip")
        np.copyto(entries, long, where=masked == keys)
    room = np.full(size, _MAX_LENGTH, np.uint8)
    for bytes_left in range(_MAX_LENGTH - 1, 0, -1):
        places = ends - bytes_left
        room[places[places >= 0]] = bytes_left
    # The long symbol for this place crosses the end of the value.
    over = np.flatnonzero(result >> _LENGTH_AT > room)
    pairs = (words[over] & _TWO).astype(np.int64)
    result[over] = lookup.short[np.where(room[over] == 1, (pairs & 0xFF) + _SINGLE, pairs)]
    return result


def _follow(entries: EntryArray, starts: IndexArray) -> npt.NDArray[np.bool_]:
    """Return the places that are reached from the first one, if each step moves by the bytes of the
    entry.

    `starts` are some of these places, the first included.
    """
    size = len(entries)
    lengths = np.zeros(size + 1, np.uint8)
    np.right_shift(entries, _LENGTH_AT, out=lengths[:-1], casting="unsafe")
    reached = np.zeros(size + 1, np.bool_)
    position = starts.copy()
    stops = np.append(starts[1:], size)
    # Places that are followed to the end continue where others have been.
    while (position < stops).any():
        for _ in range(_UNCHECKED):
            reached[position] = True
            position += lengths.take(position)
    return reached[:-1]


# Finding symbols


def _sample(block: VariableWidthBlock) -> tuple[Bytes, IndexArray]:
    """Return text from all parts of the block, and the ends of its values or of their pieces."""
    offsets = block.offsets
    first, last = int(offsets[0]), int(offsets[-1])
    count = max(1, min(_SAMPLE_BYTES, last - first) // _PIECE)
    # Values at evenly spread places, and at most a piece of each.
    offsets_of_pieces = np.linspace(first, max(first, last - _PIECE), count).astype(np.int64)
    starts, stops = [], []
    reached = first
    for piece_offset in offsets_of_pieces.tolist():
        value = max(int(np.searchsorted(offsets, piece_offset, side="right")) - 1, 0)
        begin = max(int(offsets[value]), reached, piece_offset - _PIECE)
        stop = min(begin + _PIECE, last)
        bounds = offsets[np.searchsorted(offsets, begin, side="right") :]
        inner = bounds[: int(np.searchsorted(bounds, stop))].tolist()
        starts += [begin, *inner]
        stops += [*inner, stop]
        reached = stop
    pieces = [block.data[a:b] for a, b in zip(starts, stops, strict=True) if b > a]
    text = np.concatenate([*pieces, np.zeros(_MAX_LENGTH, np.uint8)])
    return text, np.cumsum([len(piece) for piece in pieces])


def train(block: VariableWidthBlock) -> Symbols:
    """Return symbols for some values; equal values give equal symbols."""
    text, ends = _sample(block)
    size = int(ends[-1])
    symbols = Symbols(np.zeros(0, np.uint64), np.zeros(0, np.int64))
    for share in _ROUNDS:
        # The first symbols are soon replaced, so a part of the sample is enough for them.
        part = ends[: int(np.searchsorted(ends, size * share)) + 1]
        sample_text = text[: int(part[-1]) + _MAX_LENGTH]
        entries = _find(sample_text, part, _lookup(symbols))
        steps = (entries >> _LENGTH_AT).tolist()
        position: list[int] = []
        index = 0
        while index < len(steps):
            position.append(index)
            index += steps[index]
        symbols = _candidates(sample_text, part, np.array(position, np.int64), entries)
    return symbols


def _candidates(
    text: Bytes, ends: IndexArray, positions: IndexArray, entries: EntryArray
) -> Symbols:
    """Return the best of the symbols, and pairs of symbols, that are used at `positions`."""
    lengths = (entries[positions] >> _LENGTH_AT).astype(np.int64)
    bytes_left = np.minimum(
        ends[np.searchsorted(ends, positions, side="right")] - positions, _MAX_LENGTH
    )
    # Two adjacent symbols cover the text from the first one on.
    following = np.append(lengths[1:], 0)
    pair_lengths = np.minimum(lengths + following, bytes_left)
    one_more = np.minimum(lengths + 1, bytes_left)
    candidate_starts = np.concatenate([positions, positions, positions, positions])
    sizes = np.concatenate([lengths, pair_lengths, one_more, np.ones_like(lengths)])
    # Candidates of a use: the symbol, the pair, one byte more, the first byte. Equals count once.
    keep = np.ones(len(sizes), np.bool_)
    count = len(positions)
    keep[count : 2 * count] = pair_lengths > lengths
    keep[2 * count : 3 * count] = (one_more > lengths) & (one_more != pair_lengths)
    keep[3 * count :] = lengths > 1
    candidate_starts, sizes = candidate_starts[keep], sizes[keep]
    words = np.ndarray((len(entries),), "<u8", text, strides=(1,))
    texts = words[candidate_starts] & _mask(sizes)
    # A hash of text and length, to sort by one number; after a collision, one of the two would be
    # lost.
    keys = (texts ^ sizes.astype(np.uint64) << np.uint64(60)) * _FACTOR
    _, first, uses = np.unique(keys, return_index=True, return_counts=True)
    first, uses = first[uses >= _MIN_USES], uses[uses >= _MIN_USES]
    texts, sizes = texts[first], sizes[first]
    gains = uses * np.where(sizes > 1, sizes, _BYTE_WEIGHT)
    order = np.lexsort((texts, sizes, -gains))
    texts, sizes = texts[order], sizes[order]
    # Of the long symbols that share a slot, the best one stays.
    long = np.flatnonzero(sizes > 2)
    _, best = np.unique(_slot(texts[long]), return_index=True)
    chosen = np.sort(np.concatenate([np.flatnonzero(sizes <= 2), long[best]]))[:_MAX_SYMBOLS]
    return Symbols(texts[chosen], sizes[chosen])


# Coding


def encode(block: VariableWidthBlock, symbols: Symbols) -> VariableWidthBlock:
    """Return values as codes."""
    first, last = int(block.offsets[0]), int(block.offsets[-1])
    size = last - first
    text = np.empty(size + _MAX_LENGTH, np.uint8)
    text[:size], text[size:] = block.data[first:last], 0
    offsets = block.offsets - first
    ends, starts = offsets[1:].astype(np.int64), _starts(offsets, size)
    if int(np.diff(starts, append=size).max(initial=0)) > 4 * _STRIDE:
        # Long values are cut; a longer symbol across a cut is not found.
        starts = np.arange(0, size, _STRIDE)
        ends = np.union1d(ends, starts[1:])
    entries = _find(text, ends, _lookup(symbols))
    positions = np.flatnonzero(_follow(entries, starts))
    used_entries = entries.take(positions)
    codes = used_entries.astype(np.uint8)
    bounds = np.searchsorted(positions, offsets)
    escaped = np.flatnonzero(used_entries & _LITERAL)
    if len(escaped):
        codes = np.insert(codes, escaped, _ESCAPE)
        bounds += np.searchsorted(escaped, bounds)
    return VariableWidthBlock.of(bounds, codes, block.offsets.itemsize)


def _starts(offsets: npt.NDArray[np.integer], size: int) -> IndexArray:
    """Return the starts of some values, about evenly spread, of a text that is not empty."""
    value_starts = offsets[np.searchsorted(offsets, np.arange(0, size, _STRIDE))]
    return np.unique(value_starts[value_starts < size]).astype(np.int64)


def _wrap(symbols: Symbols, values: pb.CompressiveEncoding) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(fsst=pb.Fsst(symbol_table=symbols.table(), values=values))


def _coded(block: VariableWidthBlock) -> tuple[Symbols, VariableWidthBlock] | None:
    """Return codes and their symbols; None if they save no more bytes than the table takes."""
    size = int(block.offsets[-1] - block.offsets[0])
    if size <= TABLE_BYTES:
        return None
    symbols = train(block)
    text, ends = _sample(block)
    sample = VariableWidthBlock(np.append(0, ends), text)
    if len(encode(sample, symbols).data) > _WORTH * int(ends[-1]):
        return None
    codes = encode(block, symbols)
    return (symbols, codes) if len(codes.data) + TABLE_BYTES < size else None


def encode_chunks(block: VariableWidthBlock, limits: ChunkLimits) -> Encoded:
    """Return strings as mini-block chunks of codes; unchanged if codes are not smaller, or if a
    chunk has no room for the codes of two values, which can take twice the bytes of the values.

    Raises InvalidInputError: a value is too long for a chunk.
    """
    coded = _coded(block)
    if coded is None:
        return variable.encode_chunks(block, limits)
    symbols, codes = coded
    two = 2 * int(np.diff(codes.offsets).max()) + 4 * codes.offsets.itemsize
    if two > limits.max_bytes:
        return variable.encode_chunks(block, limits)
    size = max(_CHUNK_BYTES, two)
    small = ChunkLimits(max_bytes=min(size, limits.max_bytes), max_values=limits.max_values)
    values, chunks = variable.encode_chunks(codes, small)
    return _wrap(symbols, values), chunks


def encode_values(block: VariableWidthBlock) -> tuple[pb.CompressiveEncoding, VariableWidthBlock]:
    """Return strings as codes one by one, as full-zip pages store them; unchanged if codes are not
    smaller.
    """
    coded = _coded(block)
    if coded is None:
        return variable.encode_values(block)
    values, codes = variable.encode_values(coded[1])
    return _wrap(coded[0], values), codes
