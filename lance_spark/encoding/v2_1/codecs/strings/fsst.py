"""Fsst: strings whose bytes are codes of a table of up to 255 symbols of 1 to 8 bytes.

``Fsst { symbol_table, values }``; `values` are strings (a Variable, perhaps compressed) whose bytes
are codes. Each value is coded by itself: code 255, an escape, means the byte after it; any other
code means the symbol of that number. The table has 2,312 bytes:

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

Codes are expanded two at a time: an Arrow array has the text of each of the 65,536 pairs. A take
from it by the codes, as numbers of 16 bits, writes the text and the end of each pair in it. An
escape and its byte are a pair. If an escape is the second code of a pair, the text of the pair is
that of the first code alone; the next pair, of a literal byte and a code, is in a second half of
the array. If numba is installed, a compiled loop expands the codes (`fsst_compiled`).
Specification: the fsst crate of Lance; Fsst in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.encoding.blocks import DataBlock, VariableWidthBlock
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import (
    Chunks,
    Codec,
    decode_block,
    decode_chunks,
    decode_values,
)
from lance_spark.encoding.v2_1.codecs.strings import fsst_compiled
from lance_spark.encoding.v2_1.fixed_width import take_pieces
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

Offsets = npt.NDArray[np.int32] | npt.NDArray[np.int64]
Pairs = npt.NDArray[np.uint16] | npt.NDArray[np.int32]

_NO_STRINGS = "FSST codes are not stored as strings"
_ESCAPE = 255
_MAGIC = b"TSSF"
_HEADER = 8
_MAX_SYMBOL = 8
_INT32_MAX = (1 << 31) - 1
_PAIRS = 1 << 16
_ESCAPE_BYTE = b"\xff"
#: Values and codes that are expanded one by one.
_FEW_VALUES, _FEW_CODES = 16, 1024
#: Number of values whose positions are computed at once, in the cache of the processor.
_BLOCK = 1 << 15


class FsstCodec(Codec):
    """Decodes ``Fsst``."""

    name = "fsst"

    def decode_chunks(self, encoding: pb.Fsst, chunks: Chunks) -> DataBlock:
        _check_once(encoding)
        return _expand(encoding, decode_chunks(encoding.values, chunks))

    def decode_block(self, encoding: pb.Fsst, data: Bytes, num_values: int) -> DataBlock:
        _check_once(encoding)
        return _expand(encoding, decode_block(encoding.values, data, num_values))

    def decode_values(self, encoding: pb.Fsst, values: DataBlock) -> DataBlock:
        _check_once(encoding)
        return _expand(encoding, decode_values(encoding.values, values))


def _check_once(encoding: pb.Fsst) -> None:
    """Refuse codes of codes: a message can have dozens of levels, and each level expands eight
    times.
    """
    inner = encoding.values
    while (name := inner.WhichOneof("compression")) in ("fsst", "general"):
        if name == "fsst":
            raise CorruptFileError("FSST codes are stored as FSST codes")
        inner = inner.general.values


def expand_some(
    encoding: pb.CompressiveEncoding, codes: DataBlock, entries: slice | IndexArray
) -> VariableWidthBlock:
    """Return the text of some values; the others are not expanded.

    - `encoding`: An ``Fsst``.
    - `codes`: The codes of all values, as ``encoding.fsst.values`` has them.
    - `entries`: The values to return.

    Raises CorruptFileError.
    """
    if not isinstance(codes, VariableWidthBlock):
        raise CorruptFileError(_NO_STRINGS)
    if isinstance(entries, slice):
        part = VariableWidthBlock(codes.offsets[entries.start : entries.stop + 1], codes.data)
        return _expand(encoding.fsst, part)
    if len(entries) <= _FEW_VALUES:
        few = _few_texts(encoding.fsst, codes, entries)
        if few is not None:
            return few
    pieces = take_pieces(codes.data, codes.offsets.astype(np.int64), entries)
    return _expand(encoding.fsst, VariableWidthBlock.of(*pieces, codes.offsets.itemsize))


def _few_texts(
    encoding: pb.Fsst, codes: VariableWidthBlock, entries: IndexArray
) -> VariableWidthBlock | None:
    """Return the texts of few values of few codes, which cost less than calls of numpy.

    None if they are many, are not compressed, or are damaged.
    """
    table = encoding.symbol_table
    if len(table) < _HEADER or table[4:8] != _MAGIC or not table[3] & 1 or not len(entries):
        return None
    starts, stops = codes.offsets[entries], codes.offsets[entries + 1]
    lengths = stops - starts
    if int(lengths.min()) < 0 or int(lengths.sum()) > _FEW_CODES:
        return None
    symbols = _texts_of_codes(table)
    data, texts = codes.data, []
    try:
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            text = _text(data[start:stop].tobytes(), symbols)
            if text is None:
                return None
            texts.append(text)
    except KeyError:
        return None
    offsets = np.zeros(len(texts) + 1, codes.offsets.dtype)
    np.cumsum(list(map(len, texts)), out=offsets[1:])
    return VariableWidthBlock(offsets, np.frombuffer(b"".join(texts), np.uint8))


def _text(codes: bytes, symbols: Mapping[int, bytes]) -> bytes | None:
    """Return the text of a value; None if it ends in the middle of an escape.

    Raises KeyError if a code has no symbol.
    """
    first, *others = codes.split(_ESCAPE_BYTE)
    parts = [b"".join(map(symbols.__getitem__, first))]
    rest = iter(others)
    for part in rest:
        literal, follows = part[:1], part[1:]
        if not part:
            # The byte after the escape is an escape, which ends the part.
            after = next(rest, None)
            if after is None:
                return None
            literal, follows = _ESCAPE_BYTE, after
        parts += [literal, *map(symbols.__getitem__, follows)]
    return b"".join(parts)


@lru_cache(maxsize=256)
def _texts_of_codes(table: bytes) -> Mapping[int, bytes]:
    """Return the symbol of each code of a table."""
    _check_table(table)
    words, lengths = _words(table)
    data = words.astype("<u8").tobytes()
    return {
        code: data[_MAX_SYMBOL * code : _MAX_SYMBOL * code + length]
        for code, length in enumerate(lengths[: table[0]].tolist())
    }


@dataclass(frozen=True, slots=True)
class _Symbols:
    """A symbol table, ready for expansion."""

    #: 65,536 texts of two codes, the first in the low byte. In an optional second half, the first
    #: byte is a literal byte.
    texts: pa.Array
    #: Length of the first code's part of each text.
    firsts: Bytes


@lru_cache(maxsize=16)
def _symbols(table: bytes, literals: bool) -> _Symbols:
    """Return the symbols of a table; with `literals`, also pairs that begin with a literal byte."""
    words, lengths = _words(table)
    halves = 1 + literals
    # The dimensions are: the half, the second code, the first code.
    texts = np.empty((halves, 256, 256, 2), np.uint64)
    sums = np.empty((halves, 256, 256), np.uint8)
    firsts = np.empty((halves, 256, 256), np.uint8)
    _lay(words, lengths, words, lengths, texts[0], sums[0])
    texts[0, :, _ESCAPE, 0] = np.arange(256)
    texts[0, :, _ESCAPE, 1] = 0
    sums[0, :, _ESCAPE] = 1
    firsts[0] = lengths
    if literals:
        single = np.ones(256, np.uint8)
        _lay(np.arange(256, dtype=np.uint64), single, words, lengths, texts[1], sums[1])
        firsts[1] = 1
    return _Symbols(_packed(texts.view("V16").reshape(-1), sums.reshape(-1)), firsts.reshape(-1))


def _words(table: bytes) -> tuple[npt.NDArray[np.uint64], Bytes]:
    """Return the symbols of a table as words, and their lengths; 0 for codes without a symbol."""
    count = table[0]
    stored = np.frombuffer(table, np.uint8)[_HEADER + _MAX_SYMBOL * count :][:count]
    words = np.zeros(256, np.uint64)
    lengths = np.zeros(256, np.uint8)
    # The bytes after the end of a symbol become zeros, so that two symbols can be combined by OR.
    unused = 8 * (_MAX_SYMBOL - stored.astype(np.uint64))
    words[:count] = (np.frombuffer(table, "<u8", count, _HEADER) << unused) >> unused
    lengths[:count] = stored
    return words, lengths


def _packed(texts: npt.NDArray[np.void], lengths: Bytes) -> pa.Array:
    """Return the first `lengths` bytes of texts of 16 bytes, as a binary array."""
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]) + 16, np.uint8)
    # Each text overwrites the superfluous bytes of the previous text.
    windows = np.ndarray((len(data) - 15,), texts.dtype, buffer=data, strides=(1,))
    windows[offsets[:-1]] = texts
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers)


def _lay(
    first: npt.NDArray[np.uint64],
    first_lengths: Bytes,
    second: npt.NDArray[np.uint64],
    second_lengths: Bytes,
    texts: npt.NDArray[np.uint64],
    lengths: Bytes,
) -> None:
    """Lay 256 words behind 256 others, into `texts` and `lengths` of all their pairs."""
    bits = 8 * first_lengths.astype(np.uint64)
    # numpy shifts a word by all its 64 bits to 0.
    np.bitwise_or(first, second[:, None] << bits, out=texts[:, :, 0])
    np.right_shift(second[:, None], 64 - bits, out=texts[:, :, 1])
    np.add(first_lengths, second_lengths[:, None], out=lengths)


def _check_table(table: bytes) -> None:
    count = table[0]
    if len(table) < _HEADER + (_MAX_SYMBOL + 1) * count:
        raise CorruptFileError(f"a symbol table of {len(table)} bytes for {count} symbols")
    lengths = np.frombuffer(table, np.uint8)[_HEADER + _MAX_SYMBOL * count :][:count]
    if count and not 1 <= int(lengths.min()) <= int(lengths.max()) <= _MAX_SYMBOL:
        raise CorruptFileError("a symbol is not 1 to 8 bytes long")


def _expand(encoding: pb.Fsst, block: DataBlock) -> VariableWidthBlock:
    if not isinstance(block, VariableWidthBlock):
        raise CorruptFileError(_NO_STRINGS)
    table = encoding.symbol_table
    if len(table) < _HEADER or table[4:8] != _MAGIC:
        raise CorruptFileError(f"{len(table)} bytes are no FSST symbol table")
    if not table[3] & 1:
        # The values were too short to compress, so the writer left the bytes unchanged.
        return block
    _check_table(table)
    text, ends = expand(table, block.data, block.offsets)
    return VariableWidthBlock(ends, text)


def expand(table: bytes, codes: Bytes, offsets: Offsets) -> tuple[Bytes, Offsets]:
    """Return the text of codes, and the start of each value in it.

    Parameters
    ----------
    table : bytes
        A checked symbol table.
    codes : uint8 array
    offsets : int32 or int64 array
        Start of each value in `codes`, and the end of the last; never decreasing.

    Returns
    -------
    text : uint8 array
    offsets : int32 or int64 array
        In the type of the argument; in int64 if the text is too long for int32.

    Raises
    ------
    CorruptFileError
        A code has no symbol, or a value ends in the middle of an escape.
    """
    begin = int(offsets[0])
    codes = codes[begin : int(offsets[-1])]
    if fsst_compiled.is_worthwhile(len(codes)):
        return fsst_compiled.expand(*_words(table), codes, offsets - offsets[0])
    highest = int(codes.max(initial=0))
    escapes = np.flatnonzero(codes == _ESCAPE) if highest == _ESCAPE else np.empty(0, np.int64)
    if len(escapes):
        escapes = _true_escapes(escapes, codes, offsets.astype(np.int64) - begin)
    if highest >= table[0] and table[0] < _ESCAPE:
        strange = codes >= table[0]
        strange[escapes] = False
        strange[escapes + 1] = False
        if strange.any():
            raise CorruptFileError(f"a code is outside the {table[0]} symbols")
    if not len(codes):
        return codes, np.zeros(len(offsets), offsets.dtype)
    pairs: Pairs = _whole_pairs(codes)
    # If an escape is the second code of a pair, its byte belongs to the next pair.
    literals = (escapes[escapes % 2 == 1] + 1) // 2
    symbols = _symbols(table, len(literals) > 0)
    if len(literals):
        pairs = pairs.astype(np.int32)
        pairs[literals] += _PAIRS
    texts = symbols.texts
    if len(codes) * _MAX_SYMBOL > _INT32_MAX:
        texts = texts.cast(pa.large_binary())
    _, ends, data = pc.take(texts, pa.array(pairs), boundscheck=False).buffers()
    width = "<i8" if pa.types.is_large_binary(texts.type) else "<i4"
    starts = np.frombuffer(ends, width, len(pairs) + 1)
    size = int(starts[-1])
    result = np.empty(len(offsets), offsets.dtype if size <= _INT32_MAX else np.int64)
    for position in range(0, len(offsets), _BLOCK):
        # In int64, so that numpy indexes without another copy.
        inside = offsets[position : position + _BLOCK] - np.int64(begin)
        holders = inside >> 1
        # A value may start at the second code of a pair.
        inside &= 1
        inside *= symbols.firsts.take(pairs.take(holders, mode="clip"), mode="clip")
        inside += starts.take(holders, mode="clip")
        result[position : position + _BLOCK] = inside
    return np.frombuffer(data, np.uint8, size), result


def _whole_pairs(codes: Bytes) -> npt.NDArray[np.uint16]:
    """Return codes as pairs; an odd number of codes gets an escape at its end, without a symbol."""
    if len(codes) % 2:
        codes = np.append(codes, np.uint8(_ESCAPE))
    elif codes.ctypes.data % 2:
        codes = codes.copy()
    pairs: npt.NDArray[np.uint16] = codes.view("<u2")
    return pairs


def _true_escapes(marks: IndexArray, codes: Bytes, offsets: IndexArray) -> IndexArray:
    """Return which bytes 255 are escapes: the byte after an escape is not an escape."""
    heads = np.flatnonzero(np.diff(marks, prepend=-2) != 1)
    number = np.arange(len(marks)) - np.repeat(heads, np.diff(heads, append=len(marks)))
    escapes: IndexArray = marks[number % 2 == 0]
    # No value may end after an escape; empty values at the start have no byte before their end.
    ends = offsets[int(np.searchsorted(offsets, 0, side="right")) :]
    marked = np.zeros(len(codes), np.bool_)
    marked[escapes] = True
    if marked[-1] or marked.take(ends - 1, mode="clip").any():
        raise CorruptFileError("a string ends in the middle of an FSST escape")
    return escapes
