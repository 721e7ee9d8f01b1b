"""The bytes of keys: those that are hashed, and those that composite keys are ordered by.

| type | hashed bytes | ordered bytes |
| --- | --- | --- |
| null | 0x01 | 0x00 |
| other values | 0x00, then | 0x01, then |
| signed integers | little-endian, of their width | 8 bytes big-endian, sign bit flipped |
| unsigned integers | little-endian, of their width | 8 bytes big-endian |
| bool | one byte | one byte |
| string | UTF-8, and 0xFF | UTF-8 with 0x00 0xFF in place of 0x00, and 0x00 0x00 |
| binary | the length as 8 bytes little-endian, and the bytes | as a string |

The bytes of a key are those of its columns, one after another. pylance 14 hashes only the first
byte of values of some types; `FULLY_HASHED` has the others. Specification: table/mem_wal.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import UnsupportedTypeError

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
