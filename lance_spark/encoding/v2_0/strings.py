"""Encodings of strings and binaries in pages of file version 2.0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from google.protobuf.message import Message

from lance_spark.encoding.blocks import (
    FixedWidthBlock,
    bitmap,
    from_block,
    is_variable,
    items_at,
    offset_type,
    strings_of,
    to_block,
    unsigned,
    validity_of,
    with_validity,
)
from lance_spark.encoding.levels import BoolArray
from lance_spark.encoding.rows import RowNumbers, Rows, distinct, expanded
from lance_spark.encoding.v2_0 import fixed_width
from lance_spark.encoding.v2_0.fixed_width import AllNulls, never_null, width_of
from lance_spark.encoding.v2_0.page import GAP, Decoder, NewBuffers, PageBuffers, open_encoding
from lance_spark.encoding.v2_1.codec import bounds, take_ranges
from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.proto import encodings_v2_1_pb2 as pb21
from lance_spark.storage.source import Bytes, ReadPlan, gather_plans

# --------------------------------------------------------------------------------------------------
# `Binary`: strings and binaries as ends and bytes.
#
# ============  ====================================================================================
# part          content
# ============  ====================================================================================
# `indices`     one u64 per value, of any encoding of numbers: where the value ends in the bytes. It
#               starts where the value before ends, the first one at 0. An entry of
#               `null_adjustment`
#               or more marks a null; its end is the entry less `null_adjustment`.
# `bytes`       the bytes of all values, 8 bits each, perhaps compressed
# ============  ====================================================================================
#
# Writers choose the number of bytes plus one as `null_adjustment`, which the end of a value cannot
# reach.


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


def open_binary(
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
    return never_null(fixed_width.encode_flat(ends, 64, buffers)), total, adjustment


def encode_binary(
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
    text = fixed_width.encode_flat(
        block.data[start : start + total], 8, buffers, compression, level
    )
    return pb.ArrayEncoding(
        binary=pb.Binary(
            indices=indices, bytes=text, null_adjustment=adjustment if lengths.size else 0
        )
    )


# --------------------------------------------------------------------------------------------------
# `FixedSizeBinary`: strings or binaries that all have `byte_width` bytes, back to back and without
# offsets.
#
# `bytes` encodes them one byte at a time, or as one wide value each. A column of Arrow type
# fixed-size binary never comes this way: its values are `Flat`.


class FixedSizeBinaryValues:
    """Strings or binaries of one length."""

    def __init__(self, data: Decoder, values_per_row: int, width: int, dtype: pa.DataType) -> None:
        self._data = data
        self._values_per_row = values_per_row
        self._width = width
        self._dtype = dtype

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        count = len(rows) * per_row
        data = yield from self._data.read(rows, per_row * self._values_per_row)
        dtype = offset_type(self._dtype)
        if count * self._width > np.iinfo(dtype).max:
            raise InvalidInputError(
                f"{count * self._width} bytes do not fit one array of type {self._dtype}: "
                "read fewer rows at a time"
            )
        if data.null_count:
            raise CorruptFileError("bytes of strings are null")
        offsets = (np.arange(count + 1) * self._width).astype(dtype)
        buffers = [None, pa.py_buffer(offsets), data.buffers()[1]]
        return pa.Array.from_buffers(self._dtype, count, buffers)


def open_fixed_size_binary(
    message: pb.FixedSizeBinary, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a `FixedSizeBinary` message; see `open_encoding`."""
    width = message.byte_width
    if not is_variable(dtype) or not 0 < width <= np.iinfo(np.int32).max:
        raise CorruptFileError(f"strings of {width} bytes store a column of type {dtype}")
    if width_of(message.bytes) == 8:
        total = None if count is None else count * width
        data = open_encoding(message.bytes, pa.uint8(), total, buffers)
        return FixedSizeBinaryValues(data, width, width, dtype)
    data = open_encoding(message.bytes, pa.binary(width), count, buffers)
    return FixedSizeBinaryValues(data, 1, width, dtype)


# --------------------------------------------------------------------------------------------------
# `Fsst`: strings whose bytes are FSST codes.
#
# `binary` holds the codes of every value by itself, with the nulls. The table `symbol_table` and
# the meaning of a code are as in later versions (`lance_spark.encoding.v2_1.codecs.fsst`).

#: The codes of each page are strings; only the table differs.
_STRINGS = pb21.CompressiveEncoding(
    variable=pb21.Variable(offsets=pb21.CompressiveEncoding(flat=pb21.Flat(bits_per_value=32)))
)


class FsstValues:
    """Strings decompressed one by one."""

    def __init__(self, codes: Decoder, symbol_table: bytes, dtype: pa.DataType) -> None:
        self._codes = codes
        self._dtype = dtype
        self._encoding = pb21.CompressiveEncoding(
            fsst=pb21.Fsst(symbol_table=symbol_table, values=_STRINGS)
        )

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        from lance_spark.encoding.v2_1.codec import decode_values

        codes = yield from self._codes.read(rows, per_row)
        if not len(codes):
            return pa.array([], self._dtype)
        block = decode_values(self._encoding, to_block(codes))
        if block.num_values != len(codes):
            raise CorruptFileError(f"{block.num_values} strings for {len(codes)} values")
        return with_validity(from_block(block, self._dtype), validity_of(codes))


def open_fsst(
    message: pb.Fsst, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of an `Fsst` message; see `open_encoding`."""
    if not is_variable(dtype):
        raise CorruptFileError(f"byte strings store a column of type {dtype}")
    if _holds_fsst(message.binary):
        raise CorruptFileError("FSST codes are stored as FSST codes")
    codes = pa.large_binary() if offset_type(dtype) is np.int64 else pa.binary()
    return FsstValues(
        open_encoding(message.binary, codes, count, buffers), message.symbol_table, dtype
    )


def _holds_fsst(message: Message) -> bool:
    """Return whether a message contains FSST: nested FSST would expand eight times per level."""
    inner = [
        item
        for field, value in message.ListFields()
        if field.message_type is not None
        for item in ([value] if isinstance(value, Message) else value)
    ]
    return any(isinstance(item, pb.Fsst) or _holds_fsst(item) for item in inner)


# --------------------------------------------------------------------------------------------------
# `Dictionary`: distinct items, and the number of its item for every value.
#
# The numbers of the items depend on the column:
#
# * A column of dictionary type holds 0-based `indices` in its index type. Items may be null:
# writers
#   turn the nulls of such a column into the index of a null item.
# * Any other column (writers do this to strings with few distinct values) holds 1-based `indices`;
# 0
#   is a null.
#
# The items are read once and kept: they belong to every row of the page.

_INDEX_TYPES = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}

#: Minimum number of strings for a dictionary, whose distinct items must fit indices of 8 bits.
_MIN_VALUES = 100
_MAX_ITEMS = 255
#: Values of a sample that reveals most columns with many distinct values.
_SAMPLE = 4096


class DictionaryValues:
    """Values looked up in a dictionary, or a dictionary array."""

    def __init__(
        self, indices: Decoder, items: Decoder, dtype: pa.DataType, num_items: int
    ) -> None:
        self._indices = indices
        self._decoder = items
        self._dtype = dtype
        self._num_items = num_items
        self._items: pa.Array | None = None
        self._item_positions: npt.NDArray[np.int64] | None = None

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        if isinstance(self._decoder, AllNulls):
            # These nulls have no bytes, so the file does not bound their number.
            return pa.nulls(len(rows) * per_row, self._dtype)
        plans = [self._indices.read(rows, per_row)]
        if self._items is None:
            plans.append(self._decoder.read(range(self._num_items)))
        indices, *items = yield from gather_plans(plans)
        if items:
            self._keep(items[0])
        if pat.is_dictionary(self._dtype):
            return self._positions(indices)
        return self._values(indices)

    def _keep(self, items: pa.Array) -> None:
        if not pat.is_dictionary(self._dtype):
            # Index 0 is a null, index 1 the first item.
            items = pa.concat_arrays([pa.nulls(1, self._dtype), items])
        elif items.null_count:
            # Arrow cannot join dictionaries that hold nulls: they become nulls of the indices.
            valid = validity_of(items)
            assert valid is not None
            self._item_positions = np.where(valid, np.cumsum(valid) - 1, -1)
            items = items.drop_null()
        self._items = items

    def _positions(self, indices: pa.Array) -> pa.Array:
        valid = validity_of(indices)
        positions = _numbers(indices)
        live = positions if valid is None else positions[valid]
        self._check(int(live.max(initial=0)) if len(live) else -1)
        if self._item_positions is not None:
            item_positions = self._item_positions[
                positions if valid is None else np.where(valid, positions, 0)
            ]
            present = item_positions >= 0 if valid is None else (item_positions >= 0) & valid
            moved = np.where(present, item_positions, 0).astype(indices.type.to_pandas_dtype())
            indices = with_validity(pa.array(moved, indices.type), present)
        return pa.DictionaryArray.from_arrays(
            indices, self._items, ordered=self._dtype.ordered, safe=False
        )

    def _values(self, indices: pa.Array) -> pa.Array:
        positions = _numbers(indices)
        self._check(int(positions.max(initial=0)) - 1)
        assert self._items is not None
        return self._items.take(indices) if indices.null_count else items_at(self._items, positions)

    def _check(self, highest: int) -> None:
        if highest >= self._num_items:
            raise CorruptFileError(f"position {highest} in a dictionary of {self._num_items} items")


def _numbers(indices: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]:
    bits = indices.type.bit_width
    data = np.frombuffer(indices.buffers()[1], np.uint8)[indices.offset * bits // 8 :]
    return unsigned(FixedWidthBlock(data, bits, len(indices)))


def open_dictionary(
    message: pb.Dictionary, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a `Dictionary` message; see `open_encoding`."""
    if pat.is_dictionary(dtype):
        index_type, item_type = dtype.index_type, dtype.value_type
    else:
        bits = width_of(message.indices)
        if bits not in _INDEX_TYPES:
            raise CorruptFileError(f"positions of {bits} bits point into a dictionary")
        index_type, item_type = _INDEX_TYPES[bits], dtype
    num_items = message.num_dictionary_items
    indices = open_encoding(message.indices, index_type, count, buffers)
    items = open_encoding(message.items, item_type, num_items, buffers)
    return DictionaryValues(indices, items, dtype, num_items)


def encode_dictionary(
    array: pa.Array, buffers: NewBuffers, items: Callable[[pa.Array], pb.ArrayEncoding]
) -> pb.ArrayEncoding:
    """Return the message for an array of dictionary type: nulls point at an item that is null.

    - `array`: As `arrow_blocks.storable` returns it.
    - `items`: Returns the message for the items.

    Raises InvalidInputError: the index type has no number left for the null.
    """
    indices, dictionary = array.indices, array.dictionary
    if indices.null_count or not len(dictionary):
        highest = np.iinfo(indices.type.to_pandas_dtype()).max
        if len(dictionary) > highest:
            used = pc.unique(indices.drop_null())
            if len(used) > highest:
                raise InvalidInputError(
                    f"{len(dictionary)} items and a null need more indices than {indices.type} "
                    "has: cast the column to a dictionary with a wider index type"
                )
            indices = pc.index_in(indices, used).cast(indices.type)
            dictionary = dictionary.take(used)
        indices = indices.fill_null(len(dictionary))
        dictionary = pa.concat_arrays([dictionary, pa.nulls(1, dictionary.type)])
    message = pb.Dictionary(num_dictionary_items=len(dictionary))
    message.indices.CopyFrom(never_null(fixed_width.encode_values(indices, buffers)))
    message.items.CopyFrom(items(dictionary))
    return pb.ArrayEncoding(dictionary=message)


def encode_repeated(
    array: pa.Array, buffers: NewBuffers, items: Callable[[pa.Array], pb.ArrayEncoding]
) -> pb.ArrayEncoding | None:
    """Return the message for strings with few distinct values; None if they have many.

    Readers expect indices of 8 bits here, and strings with 32-bit offsets.
    """
    if not pat.is_string(array.type) or len(array) < _MIN_VALUES:
        return None
    if len(array.slice(0, _SAMPLE).dictionary_encode().dictionary) > _MAX_ITEMS:
        return None
    encoded = array.dictionary_encode()
    dictionary = encoded.dictionary
    if len(dictionary) > _MAX_ITEMS:
        return None
    if not len(dictionary):
        dictionary = pa.array([""])
    positions = encoded.indices.to_numpy(zero_copy_only=False)
    if encoded.indices.null_count:
        positions = encoded.indices.fill_null(-1).to_numpy()
    message = pb.Dictionary(num_dictionary_items=len(dictionary))
    message.indices.CopyFrom(
        never_null(fixed_width.encode_flat((positions + 1).astype(np.uint8), 8, buffers))
    )
    message.items.CopyFrom(items(dictionary))
    return pb.ArrayEncoding(dictionary=message)
