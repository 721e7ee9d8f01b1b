"""Fsst: strings whose bytes are codes of a table of up to 255 symbols of 1 to 8 bytes.

``Fsst { symbol_table, values }``; `values` are strings (a Variable, perhaps compressed) whose bytes are codes. Each value
is coded by itself: code 255 stands for the byte after it, any other for the symbol of that number. The table, 2,312 bytes:

===============  ===================================================================================
bytes            content
===============  ===================================================================================
0                number of symbols n
1..2             what the encoder used to build the table
3                bit 0 set: the values are compressed
4..7             ``TSSF``
8 * n            the symbols, filled up to 8 bytes
n                their lengths
rest             zeros
===============  ===================================================================================

Codes are expanded two at a time: a table of all 65,536 pairs tells up to 16 bytes and how many of them count. They
are stored one after the other at ascending places, so that each pair covers what the one before wrote too much. Blocks
of codes with literal bytes among them go the same way one symbol at a time.
Specification: the fsst crate of Lance; Fsst in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.blocks import DataBlock, VariableWidthBlock
from lance_spark.encoding.v2_1 import registry
from lance_spark.encoding.v2_1.codec import Chunks, Codec
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

IndexArray = npt.NDArray[np.int64]

_ESCAPE = 255
_MAGIC = b"TSSF"
_HEADER = 8
_MAX_SYMBOL = 8
_INT32_MAX = (1 << 31) - 1
#: Codes that are expanded at once: what a step reads and writes stays in the processor's cache.
_BLOCK = 1 << 17


class FsstCodec(Codec):
    """Decodes ``Fsst``."""

    name = "fsst"

    def decode_chunks(self, encoding: pb.Fsst, chunks: Chunks) -> DataBlock:
        return _expand(encoding, registry.decode_chunks(encoding.values, chunks))

    def decode_block(self, encoding: pb.Fsst, data: Bytes, num_values: int) -> DataBlock:
        return _expand(encoding, registry.decode_block(encoding.values, data, num_values))

    def decode_values(self, encoding: pb.Fsst, values: DataBlock) -> DataBlock:
        return _expand(encoding, registry.decode_values(encoding.values, values))


@dataclass(frozen=True, slots=True)
class _Symbols:
    """A symbol table, ready for expansion.

    Attributes
    ----------
    single : 8-byte values, 512
        The symbol of each code; from 256 on the literal bytes.
    lengths : int64 array of 512
    pairs : 16-byte values, 65,536
        The symbols of two codes, the first in the low byte.
    pair_lengths : int64 array of 65,536
    """

    single: npt.NDArray[np.void]
    lengths: IndexArray
    pairs: npt.NDArray[np.void]
    pair_lengths: IndexArray


@lru_cache(maxsize=16)
def _symbols(table: bytes) -> _Symbols:
    count = table[0]
    if len(table) < _HEADER + (_MAX_SYMBOL + 1) * count:
        raise CorruptFileError(f"a symbol table of {len(table)} bytes for {count} symbols")
    texts = np.zeros((512, _MAX_SYMBOL), np.uint8)
    lengths = np.zeros(512, np.int64)
    end = _HEADER + _MAX_SYMBOL * count
    texts[:count] = np.frombuffer(table, np.uint8)[_HEADER:end].reshape(count, _MAX_SYMBOL)
    lengths[:count] = np.frombuffer(table, np.uint8)[end : end + count]
    if int(lengths.max(initial=0)) > _MAX_SYMBOL:
        raise CorruptFileError(f"a symbol of {int(lengths.max())} bytes")
    texts[256:, 0] = np.arange(256)
    lengths[256:] = 1
    # The bytes past a symbol's end are zeros, so that two symbols can be laid over each other.
    texts[np.arange(_MAX_SYMBOL) >= lengths[:, None]] = 0
    low, high = np.tile(np.arange(256), 256), np.repeat(np.arange(256), 256)
    pairs = np.zeros((65536, 2 * _MAX_SYMBOL), np.uint8)
    for length in range(_MAX_SYMBOL + 1):
        of_length = np.flatnonzero(lengths[low] == length)
        pairs[of_length, length : length + _MAX_SYMBOL] = texts[high[of_length]]
    pairs[:, :_MAX_SYMBOL] |= texts[low]
    return _Symbols(
        texts.view("V8").reshape(-1),
        lengths,
        pairs.view("V16").reshape(-1),
        lengths[low] + lengths[high],
    )


def _expand(encoding: pb.Fsst, block: DataBlock) -> VariableWidthBlock:
    if not isinstance(block, VariableWidthBlock):
        raise CorruptFileError("FSST codes are not stored as strings")
    table = encoding.symbol_table
    if len(table) < _HEADER or table[4:8] != _MAGIC:
        raise CorruptFileError(f"{len(table)} bytes are no FSST symbol table")
    if not table[3] & 1:
        # Too little to compress: the writer left the bytes as they were.
        return block
    first = int(block.offsets[0])
    offsets = block.offsets.astype(np.int64) - first
    text, ends = expand(_symbols(table), block.data[first : first + int(offsets[-1])], offsets)
    if len(text) > _INT32_MAX or block.offsets.dtype.itemsize == 8:
        return VariableWidthBlock(ends, text)
    return VariableWidthBlock(ends.astype(np.int32), text)


def expand(symbols: _Symbols, codes: Bytes, offsets: IndexArray) -> tuple[Bytes, IndexArray]:
    """Return the text of codes, and where in it each value starts.

    Parameters
    ----------
    symbols : _Symbols
    codes : uint8 array
    offsets : int64 array
        Where each value starts in `codes`, and their end.

    Raises
    ------
    CorruptFileError
        A value ends in the middle of an escape.
    """
    # No code stands for more than 8 bytes; memory that is not written to is never taken.
    out = np.empty(len(codes) * _MAX_SYMBOL + 2 * _MAX_SYMBOL, np.uint8)
    found = np.empty(len(offsets), np.int64)
    escapes = np.flatnonzero(codes == _ESCAPE)
    if len(escapes):
        escapes = _true_escapes(escapes, codes, offsets)
    written = at = 0
    done = 0
    while at < len(codes):
        stop = min(at + _BLOCK, len(codes))
        first, last = np.searchsorted(escapes, [at, stop])
        if last > first and escapes[last - 1] == stop - 1:
            stop += 1
        upto = int(np.searchsorted(offsets, stop, side="left"))
        inside = offsets[done:upto] - at
        block = codes[at:stop]
        if last > first:
            starts, size = _with_literals(symbols, block, escapes[first:last] - at, out, written)
            found[done:upto] = starts[inside]
        else:
            starts, size = _by_pairs(symbols, block, out, written)
            here = found[done:upto]
            np.take(starts, inside >> 1, out=here, mode="clip")
            # A value may start at the second code of a pair.
            before = symbols.lengths.take(block.take(inside - 1, mode="clip"), mode="clip")
            before *= inside & 1
            here += before
        written, at, done = size, stop, upto
    found[done:] = written
    return out[:written], found


def _true_escapes(marks: IndexArray, codes: Bytes, offsets: IndexArray) -> IndexArray:
    """Return which of the bytes 255 are escapes: the byte after an escape is none, whatever it is."""
    heads = np.flatnonzero(np.diff(marks, prepend=-2) != 1)
    number = np.arange(len(marks)) - np.repeat(heads, np.diff(heads, append=len(marks)))
    escapes: IndexArray = marks[number % 2 == 0]
    following = escapes + 1
    if int(following[-1]) >= len(codes) or np.isin(following, offsets, assume_unique=False).any():
        raise CorruptFileError("a string ends in the middle of an FSST escape")
    return escapes


def _stores(out: Bytes, width: int) -> npt.NDArray[np.void]:
    """Return `out` as one element of `width` bytes from every byte on."""
    kind: np.dtype[Any] = np.dtype(f"V{width}")
    return np.ndarray((len(out) - width + 1,), kind, buffer=out, strides=(1,))


def _by_pairs(symbols: _Symbols, codes: Bytes, out: Bytes, at: int) -> tuple[IndexArray, int]:
    """Expand codes without escapes; return where each pair starts, and the end."""
    even = len(codes) // 2
    pairs = codes[: 2 * even]
    if pairs.ctypes.data % 2:
        pairs = pairs.copy()
    numbers = pairs.view("<u2")
    starts = np.empty(even + 1, np.int64)
    starts[0] = at
    np.take(symbols.pair_lengths, numbers, out=starts[1:], mode="clip")
    np.cumsum(starts, out=starts)
    _stores(out, 2 * _MAX_SYMBOL)[starts[:-1]] = symbols.pairs.take(numbers, mode="clip")
    end = int(starts[-1])
    if len(codes) % 2:
        code = int(codes[-1])
        _stores(out, _MAX_SYMBOL)[end] = symbols.single[code]
        end += int(symbols.lengths[code])
    return starts, end


def _with_literals(
    symbols: _Symbols, codes: Bytes, escapes: IndexArray, out: Bytes, at: int
) -> tuple[IndexArray, int]:
    """Expand codes one by one; return where each code starts, and the end."""
    numbers = codes.astype(np.int64)
    numbers[escapes + 1] += 256
    lengths = symbols.lengths[numbers]
    lengths[escapes] = 0
    starts = np.empty(len(codes) + 1, np.int64)
    starts[0] = at
    np.cumsum(lengths, out=starts[1:])
    starts[1:] += at
    _stores(out, _MAX_SYMBOL)[starts[:-1]] = symbols.single[numbers]
    return starts, int(starts[-1])
