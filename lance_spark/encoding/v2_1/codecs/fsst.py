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
the array. Building a table of pairs takes longer than expanding some ten thousand codes. The reader
therefore expands fewer codes one at a time. It joins the symbols of several pages, and expands the
codes of all these pages together. If numba is installed, a compiled loop expands the codes
(`fsst_compiled`).
Specification: the fsst crate of Lance; Fsst in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.encoding.blocks import DataBlock, VariableWidthBlock
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import (
    ChunkLimits,
    Chunks,
    Codec,
    Encoded,
    decode_block,
    decode_chunks,
    decode_values,
    take_pieces,
)
from lance_spark.encoding.v2_1.codecs import fsst_compiled, variable
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
#: Codes of a page below which a table of all pairs costs more than it saves.
_FEWEST_FOR_PAIRS = 1 << 16
#: Mean codes of pages that are expanded together, even if the compiled loop is used.
_FEW_OF_PAGE = 1 << 13
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
    few = expand_few([encoding], codes, [entries])
    if few is not None:
        return few
    pieces = take_pieces(codes.data, codes.offsets.astype(np.int64), entries)
    return _expand(encoding.fsst, VariableWidthBlock.of(*pieces, codes.offsets.itemsize))


def expand_few(
    encodings: Sequence[pb.CompressiveEncoding],
    codes: DataBlock,
    entries_of_pages: Sequence[IndexArray],
) -> VariableWidthBlock | None:
    """Return the texts of few values of few codes of each of some pages, which cost less than calls
    of numpy.

    - `encodings`: An ``Fsst`` for each page.
    - `codes`: The codes of all pages.
    - `entries_of_pages`: The values of each page to return.

    None if they are many, are not compressed, or are damaged.
    """
    if not isinstance(codes, VariableWidthBlock) or any(
        not 0 < len(entries) <= _FEW_VALUES for entries in entries_of_pages
    ):
        return None
    entries = np.concatenate(entries_of_pages)
    starts, stops = codes.offsets[entries], codes.offsets[entries + 1]
    lengths = stops - starts
    if int(lengths.min()) < 0 or int(lengths.sum()) > _FEW_CODES * len(encodings):
        return None
    bounds = zip(starts.tolist(), stops.tolist(), strict=True)
    data, texts = codes.data, []
    try:
        for encoding, of_page in zip(encodings, entries_of_pages, strict=True):
            table = encoding.fsst.symbol_table
            if len(table) < _HEADER or table[4:8] != _MAGIC or not table[3] & 1:
                return None
            symbols = _texts_of_codes(table)
            for start, stop in islice(bounds, len(of_page)):
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


class _Texts(dict[int, bytes]):
    """The symbol of each code of a table, found when it is first asked for."""

    def __init__(self, table: bytes) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, code: int) -> bytes:
        table, count = self._table, self._table[0]
        if code >= count or len(table) < _HEADER + (_MAX_SYMBOL + 1) * count:
            raise KeyError(code)
        length = table[_HEADER + _MAX_SYMBOL * count + code]
        if not 1 <= length <= _MAX_SYMBOL:
            raise KeyError(code)
        start = _HEADER + _MAX_SYMBOL * code
        text = self[code] = table[start : start + length]
        return text


_texts_of_codes = lru_cache(maxsize=256)(_Texts)


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


def _single_symbols(tables: Sequence[bytes]) -> pa.Array:
    """Return the symbols of checked tables, 256 for each, and then the 256 literal bytes."""
    size = _HEADER + (_MAX_SYMBOL + 1) * 256
    data = np.frombuffer(b"".join([table[:size].ljust(size, b"\0") for table in tables]), np.uint8)
    data = data.reshape(len(tables), size)
    ends = data[:, :1].astype(np.int64)
    codes = np.arange(256)
    words = np.zeros((len(tables) + 1, 256, _MAX_SYMBOL), np.uint8)
    words[:-1] = data[:, _HEADER : _HEADER + _MAX_SYMBOL * 256].reshape(len(tables), 256, -1)
    words[-1, :, 0] = codes
    lengths = np.ones((len(tables) + 1, 256), np.uint8)
    stored = np.take_along_axis(data, _HEADER + _MAX_SYMBOL * ends + codes, axis=1)
    lengths[:-1] = np.where(codes < ends, stored, 0)
    return _packed(words.view(f"V{_MAX_SYMBOL}").reshape(-1), lengths.reshape(-1))


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
    """Return the first `lengths` bytes of texts of one width, as a binary array."""
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]) + texts.itemsize, np.uint8)
    # Each text overwrites the superfluous bytes of the previous text.
    windows = np.ndarray((int(offsets[-1]) + 1,), texts.dtype, buffer=data, strides=(1,))
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
    table = _checked_table(encoding)
    if table is None:
        return block
    text, ends = expand(table, block.data, block.offsets)
    return VariableWidthBlock(ends, text)


def _checked_table(encoding: pb.Fsst) -> bytes | None:
    """Return the symbol table; None if the values were too short to compress, so that the writer
    left their bytes unchanged.
    """
    table: bytes = encoding.symbol_table
    if len(table) < _HEADER or table[4:8] != _MAGIC:
        raise CorruptFileError(f"{len(table)} bytes are no FSST symbol table")
    if not table[3] & 1:
        return None
    _check_table(table)
    return table


def expand_pages(
    encodings: Sequence[pb.CompressiveEncoding], codes: DataBlock, ends: IndexArray
) -> Iterator[VariableWidthBlock]:
    """Yield the texts of the codes of several pages, of one page or some pages at a time.

    - `encodings`: An ``Fsst`` for each page, with its symbols.
    - `codes`: The codes of all values, one page after the other.
    - `ends`: Number of the values up to the end of each page.

    Raises CorruptFileError.
    """
    if not isinstance(codes, VariableWidthBlock):
        raise CorruptFileError(_NO_STRINGS)
    offsets = codes.offsets
    edges = [0, *ends.tolist()]
    bounds = offsets[edges].tolist()
    one_by_one = fsst_compiled.is_worthwhile(bounds[-1] - bounds[0]) and (
        bounds[-1] - bounds[0] > _FEW_OF_PAGE * len(encodings)
    )
    tables = [_checked_table(encoding.fsst) for encoding in encodings]
    first = 0
    while first < len(tables):
        stop = first + 1
        while (
            not one_by_one
            and stop < len(tables)
            and (tables[stop] is None) == (tables[first] is None)
            and bounds[stop + 1] - bounds[first] < _FEWEST_FOR_PAIRS
        ):
            stop += 1
        part = offsets[edges[first] : edges[stop] + 1]
        some = [table for table in tables[first:stop] if table is not None]
        if not some:
            yield VariableWidthBlock(part, codes.data)
        elif len(some) == 1:
            text, starts = expand(some[0], codes.data, part)
            yield VariableWidthBlock(starts, text)
        else:
            counts = [edge - edges[first] for edge in edges[first + 1 : stop + 1]]
            text, starts = _expand_singly(some, counts, codes.data, part)
            yield VariableWidthBlock(starts, text)
        first = stop


def _expand_singly(
    tables: Sequence[bytes], ends: Sequence[int], codes: Bytes, offsets: Offsets
) -> tuple[Bytes, Offsets]:
    """Return the texts of few codes of some pages, and the start of each value; see `expand`.

    - `tables`: A checked table for each page.
    - `ends`: Number of the values up to the end of each page.
    """
    begin, end = int(offsets[0]), int(offsets[-1])
    codes = codes[begin:end]
    if not len(codes):
        return codes, np.zeros(len(offsets), offsets.dtype)
    starts_of = offsets.astype(np.int64) - begin
    marks = np.flatnonzero(codes == _ESCAPE)
    escapes = _true_escapes(marks, codes, starts_of) if len(marks) else marks
    numbers = codes.astype(np.int32)
    sizes = np.diff(starts_of[np.array(ends)], prepend=0)
    numbers += np.repeat(np.arange(0, 256 * len(tables), 256, dtype=np.int32), sizes)
    numbers[escapes + 1] = codes[escapes + 1] + np.int32(256 * len(tables))
    texts = pc.take(_single_symbols(tables), pa.array(numbers), boundscheck=False)
    _, text_offsets, data = texts.buffers()
    starts = np.frombuffer(text_offsets, np.int32, len(codes) + 1)
    if np.count_nonzero(starts[1:] == starts[:-1]) != len(escapes):
        raise CorruptFileError("a code is outside the symbols of its page")
    size = int(starts[-1])
    text = np.frombuffer(data, np.uint8, size) if size else codes[:0]
    text_starts = starts.take(starts_of)
    return text, text_starts.astype(np.int64) if offsets.dtype == np.int64 else text_starts


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
    if len(codes) < _FEWEST_FOR_PAIRS:
        return _expand_singly([table], [len(offsets) - 1], codes, offsets - offsets[0])
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


# --------------------------------------------------------------------------------------------------
# Writing of Fsst: symbols are found in a sample of a page; then each value is coded by the longest
# symbol that matches at each place.
#
# A table has at most one symbol of 3 to 8 bytes for the hash of its first three bytes, so one
# comparison shows whether a text has it at a place. If it does not, a symbol of two bytes is used,
# else a symbol of one byte, else an escape.
#
# Symbols are found in rounds. Each round codes the sample with the symbols so far. The used
# symbols, and each two symbols that were used one after the other, are the candidates of the next
# round. The 255 candidates that cover most bytes become its symbols.
#
# To code a page, the symbol at every place of its text is found; then the used symbols are followed
# from many places at once. No symbol crosses the end of its value, so the start of every value is
# reached. Specification: Boncz, Neumann, Leis: FSST (VLDB 2020); the layout is described in `fsst`.

WordArray = npt.NDArray[np.uint64]
EntryArray = npt.NDArray[np.uint16]

TABLE_BYTES = 2312
_MAX_SYMBOLS = 255
_MAX_LENGTH = 8
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
_WRITTEN_BLOCK = 1 << 14
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
    block, slots, masked, keys = np.empty((4, min(_WRITTEN_BLOCK, size)), np.uint64)
    long = np.empty(len(block), np.uint16)
    for start in range(0, size, _WRITTEN_BLOCK):
        entries = result[start : start + _WRITTEN_BLOCK]
        if len(entries) < len(block):
            block, slots, masked, keys = (
                part[: len(entries)] for part in (block, slots, masked, keys)
            )
            long = long[: len(entries)]
        block[:] = words[start : start + _WRITTEN_BLOCK]
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
