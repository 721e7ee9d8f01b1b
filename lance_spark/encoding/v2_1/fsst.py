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
are stored one after the other at ascending places, so that each pair covers what the one before wrote too much. An
escape and its byte are a pair; a code that stands alone before an escape has an entry of its own.
Specification: the fsst crate of Lance; Fsst in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.blocks import DataBlock, VariableWidthBlock
from lance_spark.encoding.v2_1 import registry
from lance_spark.encoding.v2_1.codec import Chunks, Codec
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

IndexArray = npt.NDArray[np.int64]

_NO_STRINGS = "FSST codes are not stored as strings"
_ESCAPE = 255
_MAGIC = b"TSSF"
_HEADER = 8
_MAX_SYMBOL = 8
_INT32_MAX = (1 << 31) - 1
_PAIRS = 1 << 16
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


def expand_some(
    encoding: pb.CompressiveEncoding, codes: DataBlock, where: slice | IndexArray
) -> VariableWidthBlock:
    """Return the text of some values; the others are not expanded.

    Parameters
    ----------
    encoding : pb.CompressiveEncoding
        An ``Fsst``.
    codes : DataBlock
        The codes of all values, as ``encoding.fsst.values`` has them.
    where : slice or int64 array
        Which of them.

    Raises
    ------
    CorruptFileError
    """
    if not isinstance(codes, VariableWidthBlock):
        raise CorruptFileError(_NO_STRINGS)
    if isinstance(where, slice):
        some = VariableWidthBlock(codes.offsets[where.start : where.stop + 1], codes.data)
        return _expand(encoding.fsst, some)
    kind = pa.large_binary() if codes.offsets.itemsize == 8 else pa.binary()
    buffers = [None, pa.py_buffer(codes.offsets), pa.py_buffer(codes.data)]
    taken = pa.Array.from_buffers(kind, codes.num_values, buffers).take(pa.array(where))
    _, offsets, data = taken.buffers()
    found: IndexArray = np.frombuffer(offsets, codes.offsets.dtype, len(taken) + 1)
    text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return _expand(encoding.fsst, VariableWidthBlock(found, text))


@dataclass(frozen=True, slots=True)
class _Symbols:
    """A symbol table, ready for expansion.

    Attributes
    ----------
    count : int
        Codes from this one on have no symbol.
    texts : 16-byte values, 65,536 + 256
        The symbols of two codes, the first in the low byte; then those of single codes.
    lengths : int64 array, one element for each text
    """

    count: int
    texts: npt.NDArray[np.void]
    lengths: IndexArray


@lru_cache(maxsize=16)
def _symbols(table: bytes) -> _Symbols:
    count = table[0]
    if len(table) < _HEADER + (_MAX_SYMBOL + 1) * count:
        raise CorruptFileError(f"a symbol table of {len(table)} bytes for {count} symbols")
    end = _HEADER + _MAX_SYMBOL * count
    stored = np.frombuffer(table, np.uint8)[end : end + count]
    if count and not 1 <= int(stored.min()) <= int(stored.max()) <= _MAX_SYMBOL:
        raise CorruptFileError("a symbol is not 1 to 8 bytes long")
    words = np.zeros(256, np.uint64)
    lengths = np.zeros(256, np.int64)
    # The bytes past a symbol's end become zeros, so that two symbols can be laid over each other.
    unused = 8 * (_MAX_SYMBOL - stored.astype(np.uint64))
    words[:count] = (np.frombuffer(table, "<u8", count, _HEADER) << unused) >> unused
    lengths[:count] = stored
    first, second, bits = words[None, :], words[:, None], (8 * lengths).astype(np.uint64)[None, :]
    texts = np.zeros((_PAIRS + 256, 2), np.uint64)
    pairs = texts[:_PAIRS].reshape(256, 256, 2)
    # numpy shifts a word by all its 64 bits to 0.
    pairs[:, :, 0] = first | (second << bits)
    pairs[:, :, 1] = second >> (64 - bits)
    pairs[:, _ESCAPE, 0] = np.arange(256)
    pairs[:, _ESCAPE, 1] = 0
    texts[_PAIRS:, 0] = words
    sums = np.zeros(_PAIRS + 256, np.int64)
    of_pairs = sums[:_PAIRS].reshape(256, 256)
    np.add(lengths[None, :], lengths[:, None], out=of_pairs)
    of_pairs[:, _ESCAPE] = 1
    sums[_PAIRS:] = lengths
    return _Symbols(count, texts.view("V16").reshape(-1), sums)


def _expand(encoding: pb.Fsst, block: DataBlock) -> VariableWidthBlock:
    if not isinstance(block, VariableWidthBlock):
        raise CorruptFileError(_NO_STRINGS)
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
    if symbols.count < _ESCAPE:
        strange = codes >= symbols.count
        strange[escapes] = False
        strange[escapes + 1] = False
        if strange.any():
            raise CorruptFileError(f"a code is none of the {symbols.count} symbols")
    singles = symbols.lengths[_PAIRS:]
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
        items, block, inside = _paired(block, escapes[first:last] - at, inside)
        starts = np.empty(len(items) + 1, np.int64)
        starts[0] = written
        np.take(symbols.lengths, items, out=starts[1:], mode="clip")
        np.cumsum(starts, out=starts)
        _stores(out)[starts[:-1]] = symbols.texts.take(items, mode="clip")
        here = found[done:upto]
        np.take(starts, inside >> 1, out=here, mode="clip")
        # A value may start at the second code of a pair.
        before = singles.take(block.take(inside - 1, mode="clip"), mode="clip")
        before *= inside & 1
        here += before
        written, at, done = int(starts[-1]), stop, upto
    found[done:] = written
    return out[:written], found


def _paired(
    codes: Bytes, escapes: IndexArray, inside: IndexArray
) -> tuple[npt.NDArray[Any], Bytes, IndexArray]:
    """Pair codes up so that every escape is the first of its pair.

    Returns
    -------
    items : integer array
        Numbers of texts in the symbol table.
    codes : uint8 array
        With an escape, which has no symbol in the second place, after each code that stands alone.
    inside : int64 array
        Positions in the codes, moved with them.
    """
    # An escape in the second place, counted from the end of the escape before, moves on by one. What is put in its
    # place has no symbol, so that the code before stands alone.
    moved = escapes[np.diff(escapes, prepend=0) % 2 == 1]
    if len(moved):
        codes = np.insert(codes, moved, _ESCAPE)
        inside = inside + np.searchsorted(moved, inside)
    if len(codes) % 2:
        codes = np.append(codes, np.uint8(_ESCAPE))
    if codes.ctypes.data % 2:
        codes = codes.copy()
    return codes.view("<u2"), codes, inside


def _true_escapes(marks: IndexArray, codes: Bytes, offsets: IndexArray) -> IndexArray:
    """Return which of the bytes 255 are escapes: the byte after an escape is none, whatever it is."""
    heads = np.flatnonzero(np.diff(marks, prepend=-2) != 1)
    number = np.arange(len(marks)) - np.repeat(heads, np.diff(heads, append=len(marks)))
    escapes: IndexArray = marks[number % 2 == 0]
    # No value ends behind an escape; empty ones at the start end behind nothing.
    ends = offsets[int(np.searchsorted(offsets, 0, side="right")) :]
    marked = np.zeros(len(codes), np.bool_)
    marked[escapes] = True
    if marked[-1] or marked.take(ends - 1, mode="clip").any():
        raise CorruptFileError("a string ends in the middle of an FSST escape")
    return escapes


def _stores(out: Bytes) -> npt.NDArray[np.void]:
    """Return `out` as one element of 16 bytes from every byte on."""
    return np.ndarray((len(out) - 15,), np.dtype("V16"), buffer=out, strides=(1,))
