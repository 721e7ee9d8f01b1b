"""`Binary`: strings and binaries as ends and bytes.

============  ====================================================================================
part          content
============  ====================================================================================
`indices`     one u64 per value, of any encoding of numbers: where the value ends in the bytes. It
              starts where the value before ends, the first one at 0. An entry of `null_adjustment`
              or more marks a null; its end is the entry less `null_adjustment`.
`bytes`       the bytes of all values, 8 bits each, perhaps compressed
============  ====================================================================================

Writers choose the number of bytes plus one as `null_adjustment`, which the end of a value cannot
reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import (
    bitmap,
    is_variable,
    offset_type,
    strings_of,
    validity_of,
)
from lance_spark.encoding.levels import BoolArray
from lance_spark.encoding.rows import RowNumbers, Rows, distinct, expanded
from lance_spark.encoding.v2_0.codecs import flat
from lance_spark.encoding.v2_0.codecs.nullable import never_null
from lance_spark.encoding.v2_0.page import GAP, Decoder, NewBuffers, PageBuffers, open_encoding
from lance_spark.encoding.v2_1.fixed_width import bounds, take_ranges
from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import Bytes, ReadPlan, gather_plans


@dataclass(frozen=True, slots=True)
class ValueExtents:
    """Positions of some values in their bytes.

    - `starts`, `ends`: Positions of each value; ``starts[i] <= ends[i] <= starts[i + 1]``.
    - `valid`: False where the value is null; None if none is.
    - `edges`: The start of the first value and the ends of all values, if every value starts where
      the previous value ends.
    """

    starts: RowNumbers
    ends: RowNumbers
    valid: BoolArray | None
    edges: RowNumbers | None

    @classmethod
    def between(cls, edges: RowNumbers, valid: BoolArray | None) -> ValueExtents:
        """Return the extents of adjacent values."""
        return cls(edges[:-1], edges[1:], valid, edges)

    @classmethod
    def of(cls, starts: RowNumbers, ends: RowNumbers, valid: BoolArray | None) -> ValueExtents:
        """Return the extents of values with or without gaps between them."""
        if len(starts) and (starts[1:] == ends[:-1]).all():
            return cls(starts, ends, valid, np.concatenate([starts[:1], ends]))
        return cls(starts, ends, valid, None if len(starts) else np.zeros(1, np.int64))


def read_extents(ends: Decoder, rows: Rows, adjustment: int) -> ReadPlan[ValueExtents]:
    """Plan the reading of the extents of `rows` out of a decoder of ends with marked nulls.

    Raises CorruptFileError: the ends decrease.
    """
    if not len(rows):
        return ValueExtents.between(np.zeros(1, np.int64), None)
    if isinstance(rows, range):
        before = int(rows.start > 0)
        array = yield from ends.read(range(rows.start - before, rows.stop))
        edges, valid = _adjusted(array, adjustment)
        if not before:
            edges = np.concatenate([[0], edges])
        if (edges[1:] < edges[:-1]).any():
            raise CorruptFileError("the ends of the page's values decrease")
        return ValueExtents.between(edges, None if valid is None else valid[before:])
    end_rows = distinct(np.concatenate([rows - 1, rows]))
    end_rows = end_rows[int(end_rows[0] < 0) :]
    array = yield from ends.read(end_rows)
    numbers, valid = _adjusted(array, adjustment)
    positions = np.searchsorted(end_rows, rows)
    starts, stops = numbers[positions - (rows > 0)], numbers[positions]
    starts[: int(rows[0] == 0)] = 0
    if (starts > stops).any() or (stops[:-1] > starts[1:]).any():
        raise CorruptFileError("the ends of the page's values decrease")
    return ValueExtents.of(starts, stops, None if valid is None else valid[positions])


def _adjusted(array: pa.Array, adjustment: int) -> tuple[RowNumbers, BoolArray | None]:
    if array.null_count:
        raise CorruptFileError("ends of values are null")
    numbers = np.frombuffer(array.buffers()[1], np.uint64)[array.offset :][: len(array)]
    valid: BoolArray = numbers < adjustment
    all_valid = bool(valid.all())
    if not all_valid:
        numbers = np.where(valid, numbers, numbers - np.uint64(adjustment))
    ends = numbers.view(np.int64)
    if int(ends.min(initial=0)) < 0:
        raise CorruptFileError("an end of a value is out of bounds")
    return ends, None if all_valid else valid


class BinaryValues:
    """Strings or binaries."""

    def __init__(self, ends: Decoder, data: Decoder, dtype: pa.DataType, adjustment: int) -> None:
        self._ends = ends
        self._data = data
        self._dtype = dtype
        self._adjustment = adjustment

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        rows = expanded(rows, per_row)
        extents = yield from read_extents(self._ends, rows, self._adjustment)
        starts, ends = extents.starts, extents.ends
        if not len(rows):
            return pa.nulls(0, self._dtype)
        if extents.edges is not None:
            first, last = int(starts[0]), int(ends[-1])
            array = yield from self._data.read(range(first, last))
            offsets = extents.edges - first if first else extents.edges
            return self._build(offsets, _bytes_of(array), extents.valid)
        cuts = np.flatnonzero(starts[1:] - ends[:-1] > GAP) + 1
        cuts_at = [0, *cuts.tolist(), len(rows)]
        firsts = starts[cuts_at[:-1]].tolist()
        lasts = ends[np.asarray(cuts_at[1:]) - 1].tolist()
        plans = [
            self._data.read(range(first, last)) for first, last in zip(firsts, lasts, strict=True)
        ]
        clusters = yield from gather_plans(plans)
        parts = [_bytes_of(array) for array in clusters]
        begins = bounds([len(part) for part in parts])[:-1]
        shift = np.repeat(begins - firsts, np.diff(cuts_at))
        offsets, data = take_ranges(np.concatenate(parts), starts + shift, ends + shift)
        return self._build(offsets, data, extents.valid)

    def _build(self, offsets: RowNumbers, data: Bytes, valid: BoolArray | None) -> pa.Array:
        dtype = offset_type(self._dtype)
        if int(offsets[-1]) > np.iinfo(dtype).max:
            raise InvalidInputError(
                f"{int(offsets[-1])} bytes do not fit one array of type {self._dtype}: "
                "read fewer rows at a time"
            )
        buffers = [
            None if valid is None else bitmap(valid),
            pa.py_buffer(offsets.astype(dtype, copy=False)),
            pa.py_buffer(data),
        ]
        return pa.Array.from_buffers(self._dtype, len(offsets) - 1, buffers)


def _bytes_of(array: pa.Array) -> Bytes:
    if array.null_count:
        raise CorruptFileError("bytes of strings are null")
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(0, np.uint8)
    return np.frombuffer(data, np.uint8)[array.offset :][: len(array)]


def open_message(
    message: pb.Binary, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a `Binary` message; see `open_encoding`."""
    if not is_variable(dtype):
        raise CorruptFileError(f"byte strings store a column of type {dtype}")
    ends = open_encoding(message.indices, pa.uint64(), count, buffers)
    data = open_encoding(message.bytes, pa.uint8(), None, buffers)
    return BinaryValues(ends, data, dtype, message.null_adjustment)


def encode_ends(
    lengths: RowNumbers, valid: BoolArray | None, buffers: NewBuffers
) -> tuple[pb.ArrayEncoding, int, int]:
    """Return the message for the ends of values, the sum of the lengths, and the `null_adjustment`.

    - `lengths`: Lengths of the values; 0 for nulls.
    - `valid`: False where the value is null.
    - `buffers`: The ends are appended to it.
    """
    ends = np.cumsum(lengths, dtype=np.uint64)
    total = int(ends[-1]) if len(ends) else 0
    adjustment = total + 1
    if valid is not None:
        ends += ~valid * np.uint64(adjustment)
    return never_null(flat.encode(ends, 64, buffers)), total, adjustment


def encode(
    array: pa.Array, buffers: NewBuffers, compression: str | None = None, level: int | None = None
) -> pb.ArrayEncoding:
    """Return the message for an array of strings or binaries; see `flat.encode`."""
    valid, block = validity_of(array), strings_of(array)
    lengths = np.diff(block.offsets).astype(np.int64)
    if valid is not None:
        if lengths[~valid].any():
            # Readers would take bytes of null slots for the next value.
            block = strings_of(array.drop_null())
        lengths *= valid
    indices, total, adjustment = encode_ends(lengths, valid, buffers)
    start = int(block.offsets[0])
    text = flat.encode(block.data[start : start + total], 8, buffers, compression, level)
    return pb.ArrayEncoding(
        binary=pb.Binary(
            indices=indices, bytes=text, null_adjustment=adjustment if lengths.size else 0
        )
    )
