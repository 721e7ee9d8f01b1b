"""Integers of 128 and 256 bits, such as decimals, of which few low bytes differ: ``General { zstd,
Flat }``.

A chunk is one Zstandard frame. The writer makes the frame without a compressor. It has two forms.
W is the width of a value in bytes, k the number of low bytes that each value has of its own.

If all values of a chunk have the same upper bytes (form *common*), the frame has three blocks:

===========  =======================================================================================
block        content
===========  =======================================================================================
raw          value 0: W bytes
compressed   k literal bytes of value 1, and one match of W - k bytes at the offset W
compressed   k literal bytes of each further value, and as many matches at the last offset
===========  =======================================================================================

If values have different signs (form *signed*), k includes a byte that has only the sign, and a
match repeats it:

===========  =======================================================================================
block        content
===========  =======================================================================================
compressed   k literal bytes of each value, and as many matches of W - k bytes at the offset 1,
             which a decompressor has at the start of a frame
===========  =======================================================================================

All matches of a block have one literal length, one length and one offset, so their codes are
stored once (mode RLE), and a match takes no bits. A value takes k bytes. Any decompressor of
Zstandard reads such frames. The reader of this package recognises them, and reads the literals
where they are; it decompresses other frames.

A chunk of other values is compressed, in the same page. Pages whose values repeat are compressed by
LZ4 instead: ``General { lz4, Flat }``. The bytes before a frame are the length of the values
(`lance_spark.encoding.compression`). Specification: RFC 8878, section 3.1.1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lance_spark.encoding.blocks import FixedWidthBlock, LowHalves
from lance_spark.encoding.compression import (
    ZSTD_MAGIC,
    compress,
    compressed_share,
    decompress_many,
    message_of,
)
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import (
    ChunkBuffer,
    ChunkLimits,
    Chunks,
    Encoded,
    UIntArray,
    bounds,
    empty,
    flat,
    gather,
    require_page_size,
)
from lance_spark.encoding.v2_1.codecs import flat as flat_values
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

#: Chunks of other numbers of values are compressed. Up to this maximum, the literals fit a block,
#: which has 128 KiB at most; from this minimum on, the length of the content takes two bytes.
_MAX_VALUES = 2048
_MIN_VALUES = 16
#: Literal lengths and match lengths up to these have a code without further bits.
_MAX_LITERALS = 15
_MIN_MATCH = 3
#: Bytes of the length in front of a frame.
_PREFIX = 8
#: The modes of the three codes of matches: one value each.
_ONE_VALUE_EACH = 0x54
#: Chunks of a sample, and the values of each.
_SAMPLE = 4
_SAMPLE_VALUES = 1024
#: Minimum saving, so that the decoding is worth it.
_WORTH = 0.9
#: The same of a compressor, beside literals. In a scan, a value that LZ4 compressed takes 18 ns
#: and literals 9 ns: the bytes that it saves must take as long to read.
_COMPRESSOR_WORTH = 0.4
_LEVEL = 1


class _Form(NamedTuple):
    """The form of a chunk.

    - `size`: Bytes that each value has of its own; 0 if the chunk has neither form.
    - `is_signed`: Whether the last of them is the sign.
    """

    size: int
    is_signed: bool


_OTHER = _Form(0, False)


class _Frame(NamedTuple):
    """The bytes of a chunk around its values.

    - `first`: Position of value 0, in frames that are not signed.
    - `second`: Position of the literal bytes of value 1, in the same frames.
    - `literals`: Position of the other literal bytes, which belong to `num_literals` values.
    - `size`: Bytes of the chunk.
    - `pieces`: The other bytes, by position.
    """

    first: int
    second: int
    literals: int
    num_literals: int
    size: int
    pieces: tuple[tuple[int, bytes], ...]


@lru_cache(maxsize=256)
def _frame(form: _Form, count: int, width: int) -> _Frame:
    """Return the frame of a chunk of `count` values of `width` bytes."""
    size = form.size
    content = count * width
    # One segment, and its size less 256.
    head = ZSTD_MAGIC + b"\x60" + (content - 256).to_bytes(2, "little")
    head = content.to_bytes(_PREFIX, "little") + head
    codes = bytes((size, 0, width - size - _MIN_MATCH))
    if form.is_signed:
        tail = _number_of_matches(count) + bytes((_ONE_VALUE_EACH,)) + codes + b"\x01"
        literal_head = _literal_head(count * size)
        begin = head + _block(len(literal_head) + count * size + len(tail)) + literal_head
        end = len(begin) + count * size
        return _Frame(0, 0, len(begin), count, end + len(tail), ((0, begin), (end, tail)))
    # The offset and 3: the code has the number of bits below the highest, which follow.
    offset = width + 3
    bits = offset.bit_length() - 1
    once = bytes((1, _ONE_VALUE_EACH, size, bits, codes[2], offset))
    head += _block(width, last=False, raw=True)
    second_head = _block(1 + size + len(once), last=False) + bytes((size << 3,))
    tail = _number_of_matches(count - 2) + bytes((_ONE_VALUE_EACH,)) + codes + b"\x01"
    rest = (count - 2) * size
    literal_head = _literal_head(rest)
    middle = once + _block(len(literal_head) + rest + len(tail)) + literal_head
    first = len(head)
    second = first + width + len(second_head)
    literals = second + size + len(middle)
    pieces = (
        (0, head),
        (first + width, second_head),
        (second + size, middle),
        (literals + rest, tail),
    )
    return _Frame(first, second, literals, count - 2, literals + rest + len(tail), pieces)


def _block(size: int, *, last: bool = True, raw: bool = False) -> bytes:
    kind = 0 if raw else 2
    return (size << 3 | kind << 1 | last).to_bytes(3, "little")


def _literal_head(size: int) -> bytes:
    return (size << 4 | 0b1100).to_bytes(3, "little")


def _number_of_matches(count: int) -> bytes:
    return bytes((count,)) if count < 128 else bytes((count >> 8 | 0x80, count & 0xFF))


# --------------------------------------------------------------------------------------------------
# Writing


class Shares(NamedTuple):
    """Bytes of encoded values as a share of their plain bytes, from a sample."""

    literal: float
    compressed: float

    @property
    def best(self) -> float:
        """The share of the smaller form."""
        return self.compressed if self.is_compressed else min(self.literal, 1.0)

    @property
    def is_compressed(self) -> bool:
        """Whether LZ4 is so much smaller that it should compress the plain values."""
        return self.compressed < self.literal * _COMPRESSOR_WORTH


def shares(block: FixedWidthBlock) -> Shares:
    """Estimate the size of the values of a page."""
    width, count = block.bits_per_value // 8, block.num_values
    step = min(_SAMPLE_VALUES, count)
    starts = np.unique(np.linspace(0, count - step, _SAMPLE).astype(np.int64)).tolist()
    pieces = [block.data[start * width : (start + step) * width] for start in starts]
    sizes = [form.size or width for piece in pieces for form in _forms(_words(piece, step, width))]
    return Shares(sum(sizes) / (len(sizes) * width), compressed_share(pieces, "lz4"))


def _words(data: Bytes, step: int, width: int) -> UIntArray:
    """Return the words of chunks of `step` values, in the shape (chunks, `step`, words)."""
    return np.ascontiguousarray(data).view("<u8").reshape(-1, step, width // 8)


def _forms(values: UIntArray) -> list[_Form]:
    """Return the form of each chunk.

    - `values`: In the shape (chunks, values, words).
    """
    count, words = values.shape[1:]
    longest = min(_MAX_LITERALS, 8 * words - _MIN_MATCH)
    if count < _MIN_VALUES:
        return [_OTHER] * len(values)
    common = _bytes_set(values, values[:, :1])
    forms = [_Form(size, False) if 0 < size <= longest else _OTHER for size in common.tolist()]
    mixed = np.flatnonzero(common > longest)
    if len(mixed):
        chosen = values[mixed]
        signs = (chosen[..., -1:].view("<i8") >> 63).view("<u8")
        sizes = _bytes_set(chosen, np.broadcast_to(signs, chosen.shape)) + 1
        for chunk, size in zip(mixed.tolist(), sizes.tolist(), strict=True):
            if size <= longest:
                forms[chunk] = _Form(size, True)
    return forms


def _bytes_set(values: UIntArray, others: UIntArray) -> IndexArray:
    """Return the number of low bytes in which any value of a chunk differs from `others`."""
    result = np.zeros(len(values), np.int64)
    for word in range(values.shape[2]):
        other = others[..., word]
        changed = np.bitwise_or.reduce(values[..., word] ^ other, axis=1)
        for byte in range(8):
            result[changed >> np.uint64(8 * byte) != 0] = 8 * word + byte + 1
    return result


def encode_chunks(block: FixedWidthBlock, limits: ChunkLimits) -> Encoded | None:
    """Return values of 128 or 256 bits in chunks; None if that saves too little, or less than a
    compressor.
    """
    width, count = block.bits_per_value // 8, block.num_values
    estimate = shares(block)
    if estimate.best > _WORTH or estimate.is_compressed:
        return None
    fit = min(limits.max_bytes // width, limits.max_values, _MAX_VALUES)
    step = 1 << max(fit, 1).bit_length() - 1
    full = count // step
    parts = [(full, step)] if full else []
    if count % step:
        parts.append((1, count % step))
    pieces: list[ChunkBuffer] = []
    position = 0
    for chunks, of_chunk in parts:
        end = position + chunks * of_chunk * width
        values = _words(block.data[position:end], of_chunk, width)
        pieces.append(_encode(values))
        position = end
    before = bounds([len(piece.data) for piece in pieces])[:-1]
    starts = [piece.starts + start for piece, start in zip(pieces, before.tolist(), strict=True)]
    buffer = ChunkBuffer(
        np.concatenate([piece.data for piece in pieces]),
        np.concatenate(starts),
        np.concatenate([piece.sizes for piece in pieces]),
    )
    if int(buffer.sizes.sum()) > count * width * _WORTH:
        return None
    counts = np.repeat([of_chunk for _, of_chunk in parts], [chunks for chunks, _ in parts])
    message = pb.General(compression=message_of("zstd", _LEVEL), values=flat(block.bits_per_value))
    return pb.CompressiveEncoding(general=message), Chunks((buffer,), counts)


def _encode(values: UIntArray) -> ChunkBuffer:
    """Return chunks of one number of values."""
    num_chunks = len(values)
    forms = _forms(values)
    members: dict[_Form, list[int]] = {}
    for chunk, form in enumerate(forms):
        members.setdefault(form, []).append(chunk)
    starts, sizes = np.empty(num_chunks, np.int64), np.empty(num_chunks, np.int64)
    tables: list[Bytes] = []
    position = 0
    for form, of_form in members.items():
        chosen = values if len(of_form) == num_chunks else values[of_form]
        if form is _OTHER:
            contents = chosen.reshape(len(chosen), -1).view(np.uint8)
            frames = [compress("zstd", content, _LEVEL) for content in contents]
            lengths = np.array([len(frame) for frame in frames], np.int64)
            table = np.frombuffer(b"".join(frames), np.uint8)
            sizes[of_form], starts[of_form] = lengths, position + np.cumsum(lengths) - lengths
        else:
            size = _frame(form, values.shape[1], 8 * values.shape[2]).size
            table = _literal_chunks(chosen, form)
            sizes[of_form] = size
            starts[of_form] = position + np.arange(len(of_form)) * table.shape[1]
            table = table.reshape(-1)
        tables.append(table)
        position += len(table)
    return ChunkBuffer(tables[0] if len(tables) == 1 else np.concatenate(tables), starts, sizes)


def _literal_chunks(values: UIntArray, form: _Form) -> Bytes:
    """Return chunks of one form, one in each row, which has some more bytes."""
    num_chunks, count, words = values.shape
    frame = _frame(form, count, 8 * words)
    # The last word that is stored reaches beyond the literals, and perhaps beyond the frame.
    table = empty((num_chunks, frame.size + 8), np.uint8)
    row_bytes = values.view(np.uint8).reshape(num_chunks, count, 8 * words)
    skipped, size = count - frame.num_literals, form.size
    shape, strides = (num_chunks, frame.num_literals), (table.shape[1], size)
    if size <= 8:
        # Each word overwrites the bytes that the word before has too many.
        stored = np.ndarray(shape, "<u8", table, frame.literals, strides)
        stored[...] = values[:, skipped:, 0]
    else:
        for byte in range(size):
            stored = np.ndarray(shape, np.uint8, table, frame.literals + byte, strides)
            stored[...] = row_bytes[:, skipped:, byte]
    for position, piece in frame.pieces:
        table[:, position : position + len(piece)] = np.frombuffer(piece, np.uint8)
    if not form.is_signed:
        table[:, frame.first : frame.first + 8 * words] = row_bytes[:, 0]
        table[:, frame.second : frame.second + size] = row_bytes[:, 1, :size]
    return table


# --------------------------------------------------------------------------------------------------
# Reading

#: Output bytes processed at once, so that they stay in the cache of a core.
_GROUP_BYTES = 256 << 10


class _Rows(NamedTuple):
    """Bytes of chunks of one size at one distance: chunk i begins at ``data[start + i * step]``."""

    data: Bytes
    start: int
    step: int
    number: int
    size: int

    @property
    def table(self) -> Bytes:
        """The bytes, one chunk in each row."""
        shape, strides = (self.number, self.size), (self.step, 1)
        return np.ndarray(shape, np.uint8, self.data, self.start, strides)

    def part(self, first: int, number: int) -> _Rows:
        """Return at most some chunks."""
        start, number = self.start + first * self.step, min(number, self.number - first)
        return self._replace(start=start, number=number)


class _Group(NamedTuple):
    """Chunks of one form.

    - `members`: Their numbers.
    - `num_values`: Values of each.
    """

    form: _Form
    members: IndexArray
    num_values: int
    rows: _Rows


def decode_chunks(bits: int, buffer: ChunkBuffer, counts: IndexArray) -> FixedWidthBlock:
    """Return the values of compressed chunks of flat values.

    - `bits`: Of a value: one of `WIDE_BITS`.

    Raises CorruptFileError: a chunk cannot be decompressed, or is too short.
    """
    words = _decoded(bits, buffer, counts, bits // 64)
    return FixedWidthBlock(words.reshape(-1).view(np.uint8), bits, len(words))


def decode_low(bits: int, buffer: ChunkBuffer, counts: IndexArray) -> LowHalves | None:
    """Return the low halves of values of 128 bits; see `decode_chunks`."""
    if bits != 128:
        return None
    words = _decoded(bits, buffer, counts, 1)
    return LowHalves(words.reshape(-1).view(np.uint8), 64, len(words))


def _decoded(bits: int, buffer: ChunkBuffer, counts: IndexArray, num_words: int) -> UIntArray:
    """Return the lowest words of all values, in the shape (values, `num_words`)."""
    width, total = bits // 8, int(counts.sum())
    if int(counts.min(initial=0)) < 0:
        raise CorruptFileError("a chunk has an impossible number of values")
    require_page_size(total, bits)
    groups, others = _groups(width, buffer, counts)
    # The other chunks are decompressed before, so the bytes of the chunks bound this memory.
    of_others = np.zeros((0, num_words), "<u8")
    if len(others):
        inflated = _inflated(bits, buffer, counts, others)
        of_others = inflated.data.view("<u8").reshape(-1, width // 8)[:, :num_words]
    if not groups:
        return np.ascontiguousarray(of_others)
    values = empty((total, num_words), "<u8")
    position = bounds(counts)
    for group in groups:
        first, last = int(group.members[0]), int(group.members[-1])
        shape = (len(group.members), group.num_values, num_words)
        if last - first == len(group.members) - 1:
            _expand(group, width, values[position[first] : position[last + 1]].reshape(shape))
            continue
        out = empty(shape, "<u8")
        _expand(group, width, out)
        for chunk, of_chunk in zip(position[group.members].tolist(), out, strict=True):
            values[chunk : chunk + group.num_values] = of_chunk
    taken = 0
    for chunk in others.tolist():
        begin, end = position[chunk], position[chunk + 1]
        values[begin:end] = of_others[taken : taken + end - begin]
        taken += end - begin
    return values


def _inflated(
    bits: int, buffer: ChunkBuffer, counts: IndexArray, chosen: IndexArray
) -> FixedWidthBlock:
    """Return the values of chunks that a compressor made."""
    starts, sizes, num_values = buffer.starts[chosen], buffer.sizes[chosen], counts[chosen]
    max_size = int(num_values.sum()) * bits // 8
    inflated = ChunkBuffer(*decompress_many("zstd", buffer.data, starts, sizes, max_size))
    return flat_values.FlatCodec().decode_blocks(flat(bits).flat, inflated, num_values)


def _groups(width: int, buffer: ChunkBuffer, counts: IndexArray) -> tuple[list[_Group], IndexArray]:
    """Return the chunks that have one of the two forms, and the numbers of the others."""
    groups: list[_Group] = []
    is_other = np.ones(len(counts), np.bool_)
    for count in sorted(set(counts.tolist())):
        if not _MIN_VALUES <= count <= _MAX_VALUES:
            continue
        of_count = np.flatnonzero(counts == count)
        sizes = buffer.sizes[of_count]
        for size in sorted(set(sizes.tolist())):
            forms = _possible_forms(count, size, width)
            if not forms:
                continue
            members = of_count[sizes == size]
            rows = _rows_at(buffer.data, buffer.starts[members], size)
            for form in forms:
                fits = _has_form(rows, form, count, width)
                if fits.any():
                    own = members[fits]
                    some = (
                        rows
                        if len(own) == rows.number
                        else _rows_at(buffer.data, buffer.starts[own], size)
                    )
                    groups.append(_Group(form, own, count, some))
                    is_other[own] = False
    return groups, np.flatnonzero(is_other)


def _rows_at(data: Bytes, starts: IndexArray, size: int) -> _Rows:
    """Return chunks of `size` bytes; copied if they do not lie at one distance."""
    step = int(starts[1] - starts[0]) if len(starts) > 1 else size
    if step >= size and (np.diff(starts) == step).all():
        return _Rows(data, int(starts[0]), step, len(starts), size)
    sizes = np.full(len(starts), size)
    return _Rows(gather(data, starts, sizes), 0, size, len(starts), size)


@lru_cache(maxsize=256)
def _possible_forms(count: int, size: int, width: int) -> list[_Form]:
    """Return the forms in which a chunk of `count` values has `size` bytes."""
    result = []
    for is_signed in (False, True):
        number = count if is_signed else count - 1
        beside = _frame(_Form(1, is_signed), count, width).size - number
        literals, rest = divmod(size - beside, number)
        if not rest and 1 <= literals <= min(_MAX_LITERALS, width - _MIN_MATCH):
            result.append(_Form(literals, is_signed))
    return result


@lru_cache(maxsize=256)
def _bytes_around(form: _Form, count: int, width: int) -> tuple[IndexArray, Bytes]:
    """Return the positions of the bytes of a form around its values, and these bytes."""
    pieces = _frame(form, count, width).pieces
    places = [np.arange(position, position + len(piece)) for position, piece in pieces]
    return np.concatenate(places), np.frombuffer(b"".join(piece for _, piece in pieces), np.uint8)


def _has_form(
    rows: _Rows, form: _Form, count: int, width: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return which rows have the bytes of a form around their values."""
    frame = _frame(form, count, width)
    places, pieces = _bytes_around(form, count, width)
    result: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = (rows.table[:, places] == pieces).all(
        axis=1
    )
    if form.is_signed:
        # A match repeats the byte, whatever it is.
        signs = _literals(rows, frame, form, form.size - 1, np.dtype(np.uint8))
        result &= ((signs + np.uint8(1)) <= 1).all(axis=1)
    return result


def _literals(
    rows: _Rows, frame: _Frame, form: _Form, byte: int, dtype: np.dtype[np.integer]
) -> UIntArray:
    """Return a part of the literals of each value, from a byte on."""
    shape, strides = (rows.number, frame.num_literals), (rows.step, form.size)
    return np.ndarray(shape, dtype, rows.data, rows.start + frame.literals + byte, strides)


def _expand(group: _Group, width: int, values: UIntArray) -> None:
    """Decode the lowest words of chunks to `values`, of the shape (chunks, values, words)."""
    step = max(1, _GROUP_BYTES // (group.num_values * values.shape[2] * 8))
    for first in range(0, len(values), step):
        rows = group.rows.part(first, step)
        _expand_rows(rows, group.form, width, values[first : first + step])


def _expand_rows(rows: _Rows, form: _Form, width: int, values: UIntArray) -> None:
    count, words = values.shape[1:]
    frame = _frame(form, count, width)
    firsts = None
    if not form.is_signed:
        begin, table = frame.first, rows.table
        firsts = np.ascontiguousarray(table[:, begin : begin + 8 * words]).view("<u8")
        values[:, 0] = values[:, 1] = firsts
        size = min(form.size, 8 * words)
        second = values[:, 1].view(np.uint8)
        second[:, :size] = table[:, frame.second : frame.second + size]
    targets = values[:, count - frame.num_literals :]
    for word in range(words):
        target, size = targets[..., word], min(form.size - 8 * word, 8)
        if size > 0:
            _load(rows, frame, form, 8 * word, size, target)
        if firsts is not None:
            upper = firsts[:, word, None]
            if size <= 0:
                target[...] = upper
            elif size < 8:
                upper = upper >> np.uint64(8 * size) << np.uint64(8 * size)
                if upper.any():
                    target |= upper
        elif size <= 0:
            target[...] = targets[..., word - 1].view("<i8") >> 63


def _load(rows: _Rows, frame: _Frame, form: _Form, byte: int, size: int, target: UIntArray) -> None:
    """Copy bytes of the literals of each value to words, extended by zeros or by the sign."""
    signed = target.view("<i8")
    if size in (1, 2, 4, 8):
        kind = "i" if form.is_signed else "u"
        signed[...] = _literals(rows, frame, form, byte, np.dtype(f"<{kind}{size}"))
        return
    # The load of a word ends in the frame: at least 6 bytes follow the literals.
    source = _literals(rows, frame, form, byte, np.dtype("<u8"))
    if not form.is_signed:
        np.bitwise_and(source, np.uint64((1 << 8 * size) - 1), out=target)
        return
    target[...] = source
    shift = np.int64(64 - 8 * size)
    np.left_shift(signed, shift, out=signed)
    np.right_shift(signed, shift, out=signed)


def decode_some(
    bits: int, buffer: ChunkBuffer, counts: IndexArray, entries: IndexArray
) -> FixedWidthBlock | None:
    """Return some of the values; None if a chunk must be decompressed."""
    width = bits // 8
    groups, others = _groups(width, buffer, counts)
    if len(others):
        return None
    ends = np.cumsum(counts)
    holders = np.searchsorted(ends, entries, side="right")
    places = entries - (ends - counts)[holders]
    values = np.empty((len(entries), width), np.uint8)
    for group in groups:
        form, frame = group.form, _frame(group.form, group.num_values, width)
        table = group.rows.table
        row_of = np.full(len(counts), -1)
        row_of[group.members] = np.arange(len(group.members))
        chosen = np.flatnonzero(row_of[holders] >= 0)
        rows, place = row_of[holders[chosen]], places[chosen]
        start = frame.literals + (place - (group.num_values - frame.num_literals)) * form.size
        if not form.is_signed:
            values[chosen] = table[rows, frame.first : frame.first + width]
            start = np.where(place == 0, frame.first, np.where(place == 1, frame.second, start))
        found = table[rows[:, None], start[:, None] + np.arange(form.size)]
        if form.is_signed:
            values[chosen] = found[:, -1:]
        values[chosen[:, None], np.arange(form.size)] = found
    return FixedWidthBlock(values.reshape(-1), bits, len(entries))
