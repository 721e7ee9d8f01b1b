"""The keys of MemWAL rows: their bytes, their hashes, and the Bloom filter of an SSTable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers, distinct
from lance_spark.errors import CorruptFileError, UnsupportedTypeError
from lance_spark.indexes.bloom_filter.blocks import BLOCK_BYTES, block_of, filter_of, masks_of
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# The bytes of keys: those that are hashed, and those that composite keys are ordered by.
#
# | type | hashed bytes | ordered bytes |
# | --- | --- | --- |
# | null | 0x01 | 0x00 |
# | other values | 0x00, then | 0x01, then |
# | signed integers | little-endian, of their width | 8 bytes big-endian, sign bit flipped |
# | unsigned integers | little-endian, of their width | 8 bytes big-endian |
# | bool | one byte | one byte |
# | string | UTF-8, and 0xFF | UTF-8 with 0x00 0xFF in place of 0x00, and 0x00 0x00 |
# | binary | the length as 8 bytes little-endian, and the bytes | as a string |
#
# The bytes of a key are those of its columns, one after another. pylance 14 hashes only the first
# byte of values of some types; `FULLY_HASHED` has the others. Specification: table/mem_wal.md.

Bytes = npt.NDArray[np.uint8]

_TEXT = (pat.is_string, pat.is_large_string, pat.is_binary, pat.is_large_binary)
#: Types whose values pylance 14 adds to Bloom filters.
FULLY_HASHED = (pa.int32(), pa.int64(), pa.string(), pa.binary())
_LARGE = (pat.is_large_string, pat.is_large_binary)


@dataclass(frozen=True, slots=True)
class KeyBytes:
    """The bytes of many keys, one after another.

    - `offsets`: The first byte of each key, and the number of all bytes.
    """

    offsets: RowNumbers
    data: Bytes

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def to_arrow(self) -> pa.Array:
        """Return the bytes as a column of type `binary`.

        Raises UnsupportedTypeError: there are 2 GiB of bytes or more.
        """
        if self.offsets[-1] > np.iinfo(np.int32).max:
            raise UnsupportedTypeError(
                f"{len(self)} keys have {self.offsets[-1]} bytes, but fewer than 2 GiB are "
                "supported at once; write fewer rows at once"
            )
        offsets = pa.py_buffer(self.offsets.astype(np.int32))
        return pa.Array.from_buffers(
            pa.binary(), len(self), [None, offsets, pa.py_buffer(self.data)]
        )


def check_key_type(name: str, dtype: pa.DataType) -> None:
    """Raise an error if a column cannot be part of the key of a MemWAL.

    Raises UnsupportedTypeError.
    """
    tests = (pat.is_integer, pat.is_boolean, *_TEXT)
    if not any(test(dtype) for test in tests):
        raise UnsupportedTypeError(
            f"key column {name!r} has type {dtype}, but a MemWAL needs a key of integers, "
            "booleans, strings or binary values"
        )


def hashed_bytes(columns: Sequence[pa.Array], *, as_pylance: bool = False) -> KeyBytes:
    """Return the bytes of keys that are hashed.

    - `columns`: The columns of the key, in its order, of types that `check_key_type` accepts.
    - `as_pylance`: Whether to leave out the values that pylance leaves out.
    """
    parts = []
    for column in columns:
        column_parts = _hashed_parts(column)
        is_left_out = as_pylance and column.type not in FULLY_HASHED
        parts += column_parts[:1] if is_left_out else column_parts
    return _joined(parts)


def ordered_bytes(columns: Sequence[pa.Array]) -> KeyBytes:
    """Return the bytes of keys whose order is that of the keys; see `hashed_bytes`."""
    return _joined([part for column in columns for part in _ordered_parts(column)])


def _hashed_parts(column: pa.Array) -> list[KeyBytes]:
    valid, values = _valid(column)
    parts = [_fixed(np.where(valid, 0, 1).astype(np.uint8))]
    dtype = values.type
    if not _is_text(dtype):
        return [*parts, _spread(_fixed(_numbers(values)), valid)]
    text = _text(values)
    if pat.is_string(dtype) or pat.is_large_string(dtype):
        end = _fixed(np.full(len(values), 0xFF, np.uint8))
        return [*parts, _spread(text, valid), _spread(end, valid)]
    lengths = _fixed(np.diff(text.offsets).astype("<u8"))
    return [*parts, _spread(lengths, valid), _spread(text, valid)]


def _ordered_parts(column: pa.Array) -> list[KeyBytes]:
    valid, values = _valid(column)
    parts = [_fixed(valid.astype(np.uint8))]
    dtype = values.type
    if _is_text(dtype):
        end = _fixed(np.zeros(len(values), np.uint16))
        return [*parts, _spread(_escaped(_text(values)), valid), _spread(end, valid)]
    numbers = _numbers(values)
    if pat.is_integer(dtype):
        if pat.is_signed_integer(dtype):
            numbers = numbers.astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
        numbers = numbers.astype(">u8")
    return [*parts, _spread(_fixed(numbers), valid)]


def _is_text(dtype: pa.DataType) -> bool:
    return any(test(dtype) for test in _TEXT)


def _valid(column: pa.Array) -> tuple[npt.NDArray[np.bool_], pa.Array]:
    """Return which values are not null, and these values."""
    if not column.null_count:
        return np.ones(len(column), np.bool_), column
    return column.is_valid().to_numpy(zero_copy_only=False), column.drop_null()


def _numbers(values: pa.Array) -> npt.NDArray[np.generic]:
    numbers: npt.NDArray[np.generic] = values.to_numpy(zero_copy_only=False)
    return numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)


def _fixed(values: npt.NDArray[np.generic]) -> KeyBytes:
    """Return the bytes of values of one width, as they are in memory."""
    width = values.dtype.itemsize
    data = np.ascontiguousarray(values).view(np.uint8)
    return KeyBytes(np.arange(len(values) + 1, dtype=np.int64) * width, data)


def _text(values: pa.Array) -> KeyBytes:
    is_large = any(test(values.type) for test in _LARGE)
    _, raw, data = values.buffers()
    if not len(values):
        return KeyBytes(np.zeros(1, np.int64), np.empty(0, np.uint8))
    offsets = np.frombuffer(raw, np.int64 if is_large else np.int32)
    offsets = offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)
    content = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
    return KeyBytes(offsets - offsets[0], content)


def _escaped(text: KeyBytes) -> KeyBytes:
    """Return texts with 0xFF after each 0x00."""
    zeros = np.flatnonzero(text.data == 0)
    if not len(zeros):
        return text
    offsets = text.offsets + np.searchsorted(zeros, text.offsets)
    return KeyBytes(offsets, np.insert(text.data, zeros + 1, np.uint8(0xFF)))


def _spread(part: KeyBytes, valid: npt.NDArray[np.bool_]) -> KeyBytes:
    """Return the bytes of all rows from those of the rows that are not null."""
    if len(part) == len(valid):
        return part
    lengths = np.zeros(len(valid), np.int64)
    lengths[valid] = np.diff(part.offsets)
    return KeyBytes(np.append(0, np.cumsum(lengths)), part.data)


def _joined(parts: Sequence[KeyBytes]) -> KeyBytes:
    """Return the bytes of all parts of each row, one after another."""
    offsets = np.sum([part.offsets for part in parts], axis=0)
    data = np.empty(int(offsets[-1]), np.uint8)
    position = offsets[:-1].copy()
    for part in parts:
        lengths = np.diff(part.offsets)
        places = np.repeat(position - part.offsets[:-1], lengths) + np.arange(part.offsets[-1])
        data[places] = part.data
        position += lengths
    return KeyBytes(offsets, data)


# --------------------------------------------------------------------------------------------------
# The hash of a key: SipHash-1-3 with the key (0, 0) of its bytes, of many keys at once.
#
# The bytes are consumed in words of 8 bytes, little-endian. The last word has the bytes that are
# left, and the length of the key in its highest byte. All keys are processed together, one word
# after another: the longest first, so that the keys that still have a word are the first ones.
# Specification: Aumasson and Bernstein, "SipHash: a fast short-input PRF"; table/mem_wal.md.

_WORD = 8
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
#: Rounds after the last word.
_LAST_ROUNDS = 3
#: Keys that are hashed at once.
_AT_ONCE = 1 << 16


def key_hashes(columns: Sequence[pa.Array], *, as_pylance: bool = False) -> UInt64Array:
    """Return the hash of each key; see `key_bytes.hashed_bytes`."""
    count = len(columns[0])
    result = np.empty(count, np.uint64)
    for start in range(0, count, _AT_ONCE):
        part = [column.slice(start, _AT_ONCE) for column in columns]
        keys = hashed_bytes(part, as_pylance=as_pylance)
        result[start : start + _AT_ONCE] = siphash(keys)
    return result


def siphash(keys: KeyBytes) -> UInt64Array:
    """Return the SipHash-1-3 of byte strings."""
    lengths = np.diff(keys.offsets)
    order = np.argsort(-lengths, kind="stable")
    lengths, position = lengths[order], keys.offsets[:-1][order]
    padded = np.concatenate([keys.data, np.zeros(_WORD, np.uint8)])
    words = np.ndarray((len(keys.data) + 1,), "<u8", padded, strides=(1,))
    state = [np.full(len(keys), number, np.uint64) for number in _START]
    whole = lengths // _WORD
    for number in range(int(whole[0]) if len(keys) else 0):
        active = int(np.searchsorted(-whole, -number, "left"))
        _add_word(state, words[position[:active] + _WORD * number], active)
    left = (lengths % _WORD).astype(np.uint64)
    mask = (np.uint64(1) << (np.uint64(8) * left)) - np.uint64(1)
    last = words[position + _WORD * whole] & mask
    last |= (lengths & 255).astype(np.uint64) << np.uint64(56)
    _add_word(state, last, len(keys))
    state[2] ^= np.uint64(0xFF)
    for _ in range(_LAST_ROUNDS):
        state = list(_round(*state))
    result = np.empty(len(keys), np.uint64)
    result[order] = state[0] ^ state[1] ^ state[2] ^ state[3]
    return result


def _add_word(state: list[UInt64Array], words: UInt64Array, active: int) -> None:
    """Consume a word of each of the first keys."""
    first = [part[:active] for part in state]
    first[3] = first[3] ^ words
    changed = list(_round(*first))
    changed[0] ^= words
    for part, new in zip(state, changed, strict=True):
        part[:active] = new


def _round(
    a: UInt64Array, b: UInt64Array, c: UInt64Array, d: UInt64Array
) -> tuple[UInt64Array, UInt64Array, UInt64Array, UInt64Array]:
    a = a + b
    b = _rotated(b, 13) ^ a
    a = _rotated(a, 32)
    c = c + d
    d = _rotated(d, 16) ^ c
    a = a + d
    d = _rotated(d, 21) ^ a
    c = c + b
    b = _rotated(b, 17) ^ c
    return a, b, _rotated(c, 32), d


def _rotated(words: UInt64Array, bits: int) -> UInt64Array:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


# --------------------------------------------------------------------------------------------------
# The Bloom filter of the keys of an SSTable: `bloom_filter.bin`.
#
# The file is a split-block Bloom filter as in Parquet, without a header: blocks of 8 words of 32
# bits, little-endian. The upper half of the hash of a key (`key_hash`) chooses the block, the lower
# half a bit in each word. Writers make 1,024 blocks for any number of keys. So the filters of
# SSTables with more than about 50,000 keys seem to have many other keys. Keys of superseded rows
# and of tombstones are in it, too.
#
# pylance 14 leaves values of some types out (`key_bytes.FULLY_HASHED` has the others). A writer
# here adds the key without and with them, so that no reader misses a key. A reader here does not
# use the filter of such a key. Specification: table/mem_wal.md.

FILE = "bloom_filter.bin"
#: Bytes of a new filter.
FILTER_BYTES = 32 * 1024
MAX_FILTER_BYTES = 128 * 1024 * 1024


def encode_filter(columns: Sequence[pa.Array]) -> bytes:
    """Return the bytes of the filter of some keys.

    - `columns`: The columns of the key, in its order; none in a table without a key.
    """
    if not columns:
        return bytes(FILTER_BYTES)
    hashes = key_hashes(columns, as_pylance=True)
    if not _is_fully_hashed(columns):
        hashes = np.concatenate([distinct(hashes), key_hashes(columns)])
    return filter_of(hashes, FILTER_BYTES).tobytes()


def may_have(data: bytes, columns: Sequence[pa.Array], name: str) -> npt.NDArray[np.bool_]:
    """Return for each key whether an SSTable may have it; never False for a key that it has.

    - `data`: The filter.
    - `columns`: The columns of the key, in its order.
    - `name`: The name of the file in errors.

    Raises CorruptFileError.
    """
    if not data or len(data) % BLOCK_BYTES or len(data) > MAX_FILTER_BYTES:
        raise CorruptFileError(
            f"{name}: the file has {len(data)} bytes, but a Bloom filter consists of 1 to "
            f"{MAX_FILTER_BYTES // BLOCK_BYTES} blocks of {BLOCK_BYTES} bytes"
        )
    if not _is_fully_hashed(columns):
        return np.ones(len(columns[0]), np.bool_)
    hashes = key_hashes(columns)
    words = np.frombuffer(data, "<u4").reshape(-1, BLOCK_BYTES // 4)
    blocks = words[block_of(hashes, np.uint64(len(words))).astype(np.int64)]
    masks = masks_of(hashes)
    may_contain: npt.NDArray[np.bool_] = ((blocks & masks) == masks).all(axis=1)
    return may_contain


def _is_fully_hashed(columns: Sequence[pa.Array]) -> bool:
    return all(column.type in FULLY_HASHED for column in columns)
