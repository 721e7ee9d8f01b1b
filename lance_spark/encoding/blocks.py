"""Data blocks: the values of one leaf column without their nulls and lists, between Arrow and the
codecs.

A codec turns a block into bytes and back, without regard to Arrow types, nulls of outer layers or
lists. Null slots hold an arbitrary value, so a block has a value for every visible slot of its
page. The format has these blocks: fixed width, variable width, fixed-size list, struct (packed) and
dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.levels import BoolArray
from lance_spark.encoding.meta import PACKED_KEYS, is_true
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedTypeError
from lance_spark.storage.source import Bytes


@dataclass(frozen=True, slots=True)
class FixedWidthBlock:
    """Values of one width, back to back.

    - `data`: At least ``ceil(num_values * bits_per_value / 8)`` bytes, little-endian; 1-bit values
      LSB first.
    - `bits_per_value`: 1 or a multiple of 8; 0 if all are null.
    """

    data: Bytes
    bits_per_value: int
    num_values: int


@dataclass(frozen=True, slots=True)
class LowHalves(FixedWidthBlock):
    """The low 64 bits of values of 128 bits."""


@dataclass(frozen=True, slots=True)
class VariableWidthBlock:
    """Byte strings.

    - `offsets`: Value i is ``data[offsets[i]:offsets[i + 1]]``; never decreasing; the first need
      not be 0.
    """

    offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64]
    data: Bytes

    @property
    def num_values(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(
        cls, offsets: npt.NDArray[np.int64], data: Bytes, offset_bytes: int
    ) -> VariableWidthBlock:
        """Return values with offsets of 4 bytes if requested and possible, otherwise of 8 bytes."""
        if offset_bytes == 4 and int(offsets[-1]) <= np.iinfo(np.int32).max:
            return cls(offsets.astype(np.int32), data)
        return cls(offsets, data)


@dataclass(frozen=True, slots=True)
class FixedSizeListBlock:
    """Vectors of `dimension` items each.

    - `items`: ``num_values * dimension`` values.
    - `validity`: False where an item (not the vector) is null; None if no item is.
    """

    items: DataBlock
    dimension: int
    validity: npt.NDArray[np.bool_] | None = None

    @property
    def num_values(self) -> int:
        return self.items.num_values // self.dimension


@dataclass(frozen=True, slots=True)
class StructBlock:
    """Rows of a packed struct: one block per child, of equal lengths and without nulls."""

    children: tuple[DataBlock, ...]

    @property
    def num_values(self) -> int:
        return self.children[0].num_values


@dataclass(frozen=True, slots=True)
class DictionaryBlock:
    """Values given as positions in a list of distinct items.

    - `indices`: Unsigned positions of 8, 16, 32 or 64 bits; also null slots have a position inside
      `items`.
    """

    indices: FixedWidthBlock
    items: DataBlock

    @property
    def num_values(self) -> int:
        return self.indices.num_values


DataBlock = (
    FixedWidthBlock | VariableWidthBlock | FixedSizeListBlock | StructBlock | DictionaryBlock
)


# --------------------------------------------------------------------------------------------------
# Converts between Arrow arrays and data blocks.
#
# =====================================  ==========================================================
# Arrow type of the leaf                 block
# =====================================  ==========================================================
# null                                   fixed width, 0 bits (as items of a fixed-size list only)
# bool                                   fixed width, 1 bit (8 bits are read too: full-zip pages)
# numbers, dates, times, decimals,       fixed width, the width of the Arrow type
# fixed_size_binary
# string, binary, large_, _view          variable width; 32-bit offsets, 64-bit for large types
# fixed_size_list of such types          fixed-size list
# struct with `packed` metadata          struct
# dictionary                             dictionary
# =====================================  ==========================================================
#
# The validity of a leaf is not part of its block: it becomes definition levels. The validity of the
# items of a fixed-size list is. Blocks and arrays share their buffers wherever the layouts agree.

#: Mean occurrences of a dictionary item above which a sample is measured.
_REPEATED = 16
_SAMPLE = 1024
#: Spare room for bytes of strings, as a share of the estimate from a sample.
_ROOM = 1.04
_NO_BYTES = np.zeros(0, np.uint8)
_DECIMAL_ALIGNMENT = 16
#: Digits of the decimals that 64 bits hold.
LONG_DIGITS = 18


def with_each_column(
    batch: pa.RecordBatch, convert: Callable[[pa.Array], pa.Array]
) -> pa.RecordBatch:
    """Return a batch with converted columns of the same types; the argument if none changed."""
    old = batch.columns
    columns = [convert(column) for column in old]
    if all(column is old_column for column, old_column in zip(columns, old, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def is_packed(field: pa.Field) -> bool:
    """Return whether a struct field is stored as one leaf, row by row."""
    metadata = field.metadata or {}
    return any(is_true(metadata.get(key.encode())) for key in PACKED_KEYS)


def is_variable(dtype: pa.DataType) -> bool:
    """Return whether values of the type are byte strings of any length, stored with offsets."""
    return bool(
        pat.is_string(dtype)
        or pat.is_binary(dtype)
        or pat.is_large_string(dtype)
        or pat.is_large_binary(dtype)
    )


def is_text(dtype: pa.DataType) -> bool:
    """Return whether values of the type are strings, not bytes."""
    return bool(pat.is_string(dtype) or pat.is_large_string(dtype))


@lru_cache(maxsize=256)
def is_plain(dtype: pa.DataType) -> bool:
    """Return whether arrays of the type are stored without a change: byte strings, and values of
    fixed width without items.
    """
    if pat.is_nested(dtype) or pat.is_dictionary(dtype) or pat.is_null(dtype):
        return False
    return is_variable(dtype) or fixed_width(dtype) > 0


def holds_structs(dtype: pa.DataType) -> bool:
    """Return whether a fixed-size list, at any depth, has structs inside: it is a layer, not a
    leaf.
    """
    while pat.is_fixed_size_list(dtype):
        dtype = dtype.value_type
    return bool(pat.is_struct(dtype))


def bitmap(flags: BoolArray, offset: int = 0) -> pa.Buffer:
    """Pack flags into an Arrow bitmap, after `offset` unused bits."""
    if offset:
        flags = np.concatenate([np.zeros(offset, np.bool_), flags])
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def flags_of(bits: Bytes, offset: int, length: int) -> BoolArray:
    """Unpack `length` bits of a bitmap from bit `offset` on."""
    first = offset // 8
    unpacked = np.unpackbits(bits[first : (offset + length + 7) // 8], bitorder="little")
    return unpacked[offset - 8 * first : offset - 8 * first + length].view(np.bool_)


def validity_of(array: pa.Array) -> BoolArray | None:
    """Return which slots of the array are not null; None if all are valid."""
    if array.null_count == 0:
        return None
    if pat.is_null(array.type):
        return np.zeros(len(array), np.bool_)
    return flags_of(np.frombuffer(array.buffers()[0], np.uint8), array.offset, len(array))


def with_validity(array: pa.Array, validity: BoolArray | None) -> pa.Array:
    """Return a leaf array without nulls with the given validity; its other buffers are shared.

    - `validity`: False where the result is null; None for no change.
    """
    dtype = array.type
    if validity is None or pat.is_null(dtype) or validity.all():
        return array
    if pat.is_dictionary(dtype):
        indices = with_validity(array.indices, validity)
        return pa.DictionaryArray.from_arrays(
            indices, array.dictionary, ordered=dtype.ordered, safe=False
        )
    if pat.is_struct(dtype):
        children = [array.field(i) for i in range(dtype.num_fields)]
        return pa.Array.from_buffers(dtype, len(array), [bitmap(validity)], children=children)
    mask = bitmap(validity, array.offset)
    if pat.is_fixed_size_list(dtype):
        return pa.Array.from_buffers(
            dtype, len(array), [mask], offset=array.offset, children=[array.values]
        )
    buffers = [mask, *array.buffers()[1:]]
    return pa.Array.from_buffers(dtype, len(array), buffers, offset=array.offset)


# Blocks to arrays


def from_block(block: DataBlock, dtype: pa.DataType) -> pa.Array:
    """Return the values of a block as an array of type `dtype` without nulls of its own.

    Raises CorruptFileError: the block cannot store this type, or contradicts itself.
    """
    count = block.num_values
    if isinstance(block, DictionaryBlock):
        return look_up(block.indices, from_block(block.items, item_type(dtype)), dtype)
    if isinstance(block, StructBlock):
        if not pat.is_struct(dtype) or dtype.num_fields != len(block.children):
            raise CorruptFileError(f"a packed struct stores a column of type {dtype}")
        children = [from_block(c, f.type) for c, f in zip(block.children, dtype, strict=True)]
        return pa.StructArray.from_arrays(children, fields=list(dtype))
    if isinstance(block, FixedSizeListBlock):
        if not pat.is_fixed_size_list(dtype) or dtype.list_size != block.dimension:
            raise CorruptFileError(
                f"lists of {block.dimension} items store a column of type {dtype}"
            )
        items = with_validity(_items(block, dtype.value_type), block.validity)
        return pa.Array.from_buffers(dtype, count, [None], children=[items])
    if isinstance(block, VariableWidthBlock):
        return _from_variable(block, dtype)
    return _from_fixed(block, dtype)


def _items(block: FixedSizeListBlock, dtype: pa.DataType) -> pa.Array:
    items, validity = block.items, block.validity
    all_null = validity is not None and not validity.any()
    if all_null and isinstance(items, FixedWidthBlock) and not items.bits_per_value:
        # A constant without a value, as pylance writes them.
        return pa.nulls(items.num_values, dtype)
    return from_block(items, dtype)


def _from_fixed(block: FixedWidthBlock, dtype: pa.DataType) -> pa.Array:
    count, bits = block.num_values, block.bits_per_value
    if pat.is_null(dtype) and not bits:
        return pa.nulls(count)
    size = (count * bits + 7) // 8
    if size > len(block.data):
        raise CorruptFileError(f"{len(block.data)} bytes hold {count} values of {bits} bits")
    data = block.data[:size]
    if pat.is_boolean(dtype) and bits == 8:
        return pa.Array.from_buffers(dtype, count, [None, bitmap(data != 0)])
    if fixed_width(dtype) != bits or pat.is_nested(dtype) or pat.is_dictionary(dtype):
        raise CorruptFileError(f"values of {bits} bits store a column of type {dtype}")
    return from_bytes(data, count, dtype)


def from_bytes(data: Bytes, count: int, dtype: pa.DataType) -> pa.Array:
    """Return an array without nulls over the bytes of values of fixed width."""
    is_wide = pat.is_decimal128(dtype) or pat.is_decimal256(dtype)
    if is_wide and data.ctypes.data % _DECIMAL_ALIGNMENT:
        # pylance, and other users of Arrow in Rust, fail to import such decimals without a copy.
        data = data.copy()
    return pa.Array.from_buffers(dtype, count, [None, pa.py_buffer(data)])


def _from_variable(block: VariableWidthBlock, dtype: pa.DataType) -> pa.Array:
    if not is_variable(dtype):
        raise CorruptFileError(f"byte strings store a column of type {dtype}")
    offsets: npt.NDArray[np.signedinteger] = block.offsets
    expected = offset_type(dtype)
    if offsets.dtype != expected:
        if expected is np.int32 and int(offsets[-1]) > np.iinfo(np.int32).max:
            raise CorruptFileError(f"{int(offsets[-1])} bytes do not fit a column of type {dtype}")
        offsets = offsets.astype(expected)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block.data)]
    return pa.Array.from_buffers(dtype, block.num_values, buffers)


def item_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of the items of a dictionary that stores a column: the type of the values of
    the column.
    """
    return dtype.value_type if pat.is_dictionary(dtype) else dtype


def look_up(indices: FixedWidthBlock, items: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return `items` at the given unsigned positions as an array of type `dtype`.

    `dtype` is the type of the items, or a dictionary type over it. Raises CorruptFileError: a
    position is outside the items.
    """
    positions = unsigned(indices)
    highest = int(positions.max(initial=0))
    if len(positions) and highest >= len(items):
        raise CorruptFileError(f"position {highest} in a dictionary of {len(items)} items")
    if not pat.is_dictionary(dtype):
        return items_at(items, positions)
    width = fixed_width(dtype.index_type)
    if indices.bits_per_value != width:
        positions = positions.astype(f"u{width // 8}")
    result = pa.Array.from_buffers(
        dtype.index_type, len(positions), [None, pa.py_buffer(positions)]
    )
    return pa.DictionaryArray.from_arrays(result, items, ordered=dtype.ordered, safe=False)


def decoded(array: pa.Array) -> pa.Array:
    """Return the values of a dictionary array; another array as it is."""
    return array.dictionary_decode() if pat.is_dictionary(array.type) else array


def with_kept_forms(schema: pa.Schema, columns: Sequence[pa.Array]) -> pa.Schema:
    """Return the schema of columns, some of which may be dictionary arrays of its types, or
    unscaled values of its decimals.
    """
    for index, (field, column) in enumerate(zip(schema, columns, strict=True)):
        is_kept = pat.is_dictionary(column.type) and not pat.is_dictionary(field.type)
        if is_kept or (pat.is_int64(column.type) and is_short_decimal(field.type)):
            schema = schema.set(index, field.with_type(column.type))
    return schema


def is_short_decimal(dtype: pa.DataType) -> bool:
    """Return whether a type is a decimal128 of at most `LONG_DIGITS` digits."""
    return bool(pat.is_decimal128(dtype)) and int(dtype.precision) <= LONG_DIGITS


def unscaled(array: pa.Array) -> pa.Array:
    """Return the unscaled values of short decimals, as int64.

    decimal128       validity bitmap | low half, high half of each value
    """
    # The high half repeats the sign of the low half.
    low = np.ascontiguousarray(decimal_words(array)[:, 0])
    return pa.Array.from_buffers(
        pa.int64(), len(array), [validity_bitmap(array), pa.py_buffer(low)]
    )


def from_unscaled(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return decimals, from their unscaled values as int64."""
    low = array.fill_null(0).to_numpy()
    words = np.stack([low, low >> 63], axis=1)
    return pa.Array.from_buffers(dtype, len(array), [validity_bitmap(array), pa.py_buffer(words)])


def unscaled_if_short(array: pa.Array) -> pa.Array | None:
    """Return the unscaled values of decimals as int64; None if a value does not fit."""
    if is_short_decimal(array.type):
        return unscaled(array)
    words = decimal_words(array)
    low, high = words[:, 0], words[:, 1]
    null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    fits = high == low >> 63
    if null is not None:
        # The words of a null can be any bytes.
        fits |= null
    return pa.array(low, mask=null) if fits.all() else None


def decimal_words(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the low and the high half of each decimal128; a null can have any bytes."""
    data = array.buffers()[1]
    words = np.frombuffer(data, np.int64, 2 * (array.offset + len(array)))
    return words[2 * array.offset :].reshape(-1, 2)


def from_decimal_words(
    words: npt.NDArray[np.int64], dtype: pa.DataType, null: npt.NDArray[np.bool_] | None
) -> pa.Array:
    """Return decimal128 of their halves."""
    validity = None if null is None or not null.any() else pa.array(~null).buffers()[1]
    return pa.Array.from_buffers(dtype, len(words), [validity, pa.py_buffer(words)])


def validity_bitmap(array: pa.Array) -> pa.Buffer | None:
    """Return the validity bitmap of an array, starting at bit 0; None without nulls."""
    bits = array.buffers()[0]
    if bits is None or array.null_count == 0:
        return None
    start, bit = divmod(array.offset, 8)
    if bit == 0:
        return bits.slice(start) if start else bits
    return bitmap(flags_of(np.frombuffer(bits, np.uint8), array.offset, len(array)))


def items_at(items: pa.Array, positions: npt.NDArray[np.unsignedinteger]) -> pa.Array:
    """Return the items at unsigned positions, all of which are inside."""
    if is_variable(items.type) and len(positions) > len(items) * _REPEATED:
        items = _with_room(items, positions)
    # Imported here, as planning does not need it.
    import pyarrow.compute as pc

    return pc.take(items, pa.array(positions), boundscheck=False)


def _with_room(items: pa.Array, positions: npt.NDArray[np.unsignedinteger]) -> pa.Array:
    """Return the items and one unused item, so that Arrow reserves enough memory for a look-up.

    Arrow reserves the bytes of the mean item for each position, and copies everything if that is
    too little by one byte.
    """
    import pyarrow.compute as pc

    lengths = pc.binary_length(items).fill_null(0).to_numpy()
    sample = positions[:: max(len(positions) // _SAMPLE, 1)]
    mean = float(lengths[sample].mean()) * _ROOM + 1
    missing = int(mean * (len(items) + 1)) - int(lengths.sum(dtype=np.int64))
    if missing <= 0:
        return items
    return pa.concat_arrays([items, pa.array(["H" * missing]).cast(items.type)])


def unsigned(block: DataBlock) -> npt.NDArray[np.unsignedinteger]:
    """Return a fixed-width block of 8, 16, 32 or 64 bits as unsigned numbers."""
    if not isinstance(block, FixedWidthBlock) or block.bits_per_value not in (8, 16, 32, 64):
        raise CorruptFileError("numbers of 8, 16, 32 or 64 bits were expected")
    size = block.num_values * block.bits_per_value // 8
    if size > len(block.data):
        raise CorruptFileError(f"{len(block.data)} bytes hold {block.num_values} numbers")
    return block.data[:size].view(f"<u{block.bits_per_value // 8}")


def fixed_width(dtype: pa.DataType) -> int:
    """Return the bits per value of a fixed-width type; 0 for any other type."""
    if pat.is_fixed_size_binary(dtype):
        # Arrow counts its bits modulo 2^32.
        return 8 * int(dtype.byte_width)
    try:
        return int(dtype.bit_width)
    except ValueError:
        return 0


def innermost_items(dtype: pa.DataType) -> tuple[pa.DataType, int]:
    """Return the type of the items of fixed-size lists at all depths, and their number in a value.

    A value of any other type is one item.
    """
    num_items = 1
    while pat.is_fixed_size_list(dtype):
        num_items *= dtype.list_size
        dtype = dtype.value_type
    return dtype, num_items


def offset_type(dtype: pa.DataType) -> type[np.int32] | type[np.int64]:
    """Return the type of the offsets of a byte string type."""
    return np.int64 if pat.is_large_string(dtype) or pat.is_large_binary(dtype) else np.int32


# Arrays to blocks


def storable(array: pa.Array) -> pa.Array:
    """Return a leaf array in the form that blocks are made from.

    Views become plain strings, extension arrays their storage, and nulls among the items of a
    dictionary nulls of its indices.
    """
    dtype = array.type
    if isinstance(dtype, pa.BaseExtensionType):
        return storable(array.storage)
    if pat.is_string_view(dtype):
        return array.cast(pa.string())
    if pat.is_binary_view(dtype):
        return array.cast(pa.binary())
    if pat.is_dictionary(dtype) and array.dictionary.null_count:
        valid = validity_of(array.dictionary)
        assert valid is not None
        new_positions = np.cumsum(valid) - 1
        mask = (
            np.zeros(len(array), np.bool_)
            if (validity := validity_of(array)) is None
            else ~validity
        )
        positions = np.where(mask, 0, array.indices.fill_null(0).to_numpy(zero_copy_only=False))
        mask |= ~valid[positions]
        indices = pa.array(new_positions[positions], mask=mask).cast(dtype.index_type, safe=False)
        return pa.DictionaryArray.from_arrays(
            indices, array.dictionary.drop_null(), ordered=dtype.ordered
        )
    return array


def to_block(array: pa.Array, live: BoolArray | None = None) -> DataBlock:
    """Return the values of a leaf array (see `storable`) as a block that shares its buffers.

    - `live`: False where the slot is null, so that its content has no meaning.

    Raises InvalidInputError: a child of a packed struct has nulls: the format cannot store them.
    Raises UnsupportedTypeError: the format has no block for the type.
    """
    dtype, count, start = array.type, len(array), array.offset
    if pat.is_dictionary(dtype):
        return _to_dictionary(array, live)
    if pat.is_struct(dtype):
        return StructBlock(tuple(_child_block(array, i, live) for i in range(dtype.num_fields)))
    if pat.is_fixed_size_list(dtype):
        size = dtype.list_size
        items = storable(vector_items(array))
        inner = None if live is None else np.repeat(live, size)
        valid = validity_of(items)
        if valid is not None and inner is not None:
            valid |= ~inner
        if valid is not None and valid.all():
            valid = None
        if valid is not None:
            inner = valid if inner is None else inner & valid
        return FixedSizeListBlock(to_block(items, inner), size, valid)
    if is_variable(dtype):
        return strings_of(array)
    if pat.is_null(dtype):
        return FixedWidthBlock(_NO_BYTES, 0, count)
    bits = fixed_width(dtype)
    if not bits or pat.is_nested(dtype):
        raise UnsupportedTypeError(f"values of type {dtype} cannot be stored")
    buffer = array.buffers()[1]
    if buffer is None:
        return FixedWidthBlock(np.zeros((count * bits + 7) // 8, np.uint8), bits, count)
    data = np.frombuffer(buffer, np.uint8)
    if bits == 1:
        if start % 8:
            return FixedWidthBlock(
                np.packbits(flags_of(data, start, count), bitorder="little"), 1, count
            )
        return FixedWidthBlock(data[start // 8 : (start + count + 7) // 8], 1, count)
    width = bits // 8
    return FixedWidthBlock(data[start * width : (start + count) * width], bits, count)


def strings_of(array: pa.Array) -> VariableWidthBlock:
    """Return an array of byte strings as a block that shares its buffers."""
    _, buffer, data = array.buffers()
    count = len(array) + 1
    offsets: npt.NDArray[Any] = np.zeros(count, offset_type(array.type))
    if buffer is not None and buffer.size:
        offsets = np.frombuffer(buffer, offsets.dtype)[array.offset :][:count]
    content = _NO_BYTES if data is None else np.frombuffer(data, np.uint8)
    return VariableWidthBlock(offsets, content)


def vector_items(array: pa.FixedSizeListArray) -> pa.Array:
    """Return the items of all fixed-size lists, also of those that are null."""
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


def _child_block(array: pa.Array, index: int, live: BoolArray | None) -> DataBlock:
    child = storable(array.field(index))
    valid = validity_of(child)
    if valid is not None and not (valid if live is None else valid | ~live).all():
        name = array.type.field(index).name
        raise InvalidInputError(
            f"child {name!r} of a packed struct has nulls, which the format cannot store: "
            "drop the field's 'packed' metadata"
        )
    return to_block(child, live)


def _to_dictionary(array: pa.DictionaryArray, live: BoolArray | None) -> DictionaryBlock:
    indices = to_block(array.indices)
    assert isinstance(indices, FixedWidthBlock)
    if live is not None:
        # Null slots may hold any index, but readers look them up.
        zeroed = np.where(live, unsigned(indices), 0).astype(f"<u{indices.bits_per_value // 8}")
        indices = FixedWidthBlock(zeroed.view(np.uint8), indices.bits_per_value, len(array))
    return DictionaryBlock(indices, to_block(storable(array.dictionary)))


# --------------------------------------------------------------------------------------------------
# Nulls that no page stores: a schema of a hundred bytes can claim a type whose null is as large
# as any number, for example a list of fixed size.

#: Most bytes of a null that no file stores: enough for a tensor, but not for any size that a
#: damaged schema claims.
WIDEST_NULL = 1 << 26
_OFFSET = 4


def is_too_wide(dtype: pa.DataType) -> bool:
    """Return whether a null of a type, or of a type in it, takes more than `WIDEST_NULL` bytes."""
    if _least_width(dtype) > WIDEST_NULL:
        return True
    return any(is_too_wide(dtype.field(index).type) for index in range(dtype.num_fields))


def _least_width(dtype: pa.DataType) -> float:
    """Return the least bytes of a value: an offset for strings and lists."""
    if pat.is_null(dtype):
        return 0
    if pat.is_fixed_size_list(dtype):
        return _least_width(dtype.value_type) * int(dtype.list_size)
    if pat.is_struct(dtype):
        return sum(_least_width(field.type) for field in dtype)
    return fixed_width(dtype) / 8 or _OFFSET


def nulls(count: int, field: pa.Field) -> pa.Array:
    """Return the nulls of a column that no file holds.

    Raises UnsupportedTypeError: a null takes more than `WIDEST_NULL` bytes.
    """
    if is_too_wide(field.type):
        raise UnsupportedTypeError(
            f"column {field.name!r}: no data file holds it, and a null of type {field.type} takes "
            f"more than {WIDEST_NULL} bytes; read the other columns"
        )
    return pa.nulls(count, field.type)


def unstored_nulls(count: int, dtype: pa.DataType) -> pa.Array:
    """Return nulls of a page that stores no values.

    Raises CorruptFileError: a null takes more than `WIDEST_NULL` bytes.
    """
    if is_too_wide(dtype):
        raise CorruptFileError(
            f"a null of type {dtype} takes more than {WIDEST_NULL} bytes; read the other columns"
        )
    return pa.nulls(count, dtype)
