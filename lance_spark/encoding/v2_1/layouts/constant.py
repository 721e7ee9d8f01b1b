"""Constant pages: every value is null, or every value is the same scalar."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from google.protobuf.message import DecodeError

from lance_spark.encoding.blocks import (
    bitmap,
    fixed_width,
    innermost_items,
    is_plain,
    is_variable,
    item_type,
    offset_type,
    strings_of,
    unsigned,
    unstored_nulls,
)
from lance_spark.encoding.levels import (
    Layer,
    LevelArray,
    Levels,
    layer_numbers,
    max_definition,
    parse_layers,
)
from lance_spark.encoding.meta import EncodedPage, PageMeta
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_1.codec import decode_block
from lance_spark.encoding.v2_1.layouts.mini_block_write import encode_level_block
from lance_spark.encoding.v2_1.leaf_columns import Leaf
from lance_spark.encoding.v2_1.page import (
    PageRows,
    check_layers,
    entries_of,
    fetch_rows,
    levels_at,
    parse_layout,
)
from lance_spark.encoding.v2_1.shred import LeafColumn
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan

# --------------------------------------------------------------------------------------------------
# Reads constant pages: every value is null, or every value is the same scalar.
#
# ====================  ==============================
# ============================================== inline_value          buffers
# content ====================  ==============================
# ============================================== absent                none
# every row is null absent                repetition, definition          nulls in lists and structs
# present (2.2)         none                            one fixed-width scalar for all rows present
# (2.2)         repetition, definition          the same among nulls, lists and structs absent
# scalar [, repetition,           one scalar of any width
#                       definition] ====================  ==============================
# ==============================================
#
# The scalar of a buffer: u32 number of Arrow buffers, u32 length of each, then the buffers of an
# array of one value, without its validity. Levels are u16 words unless `rep_compression` and
# `def_compression` name another encoding. A buffer without levels is empty. If a page has no lists,
# the definition word of a row is at a known place, and only the words of the requested rows are
# read. The places of other levels are not stored: all levels are read once.

#: Maximum number of levels of a page: levels can take 0 bytes, so the file does not bound their
#: number.
_MAX_LEVELS = 1 << 30
#: Up to this number, the values of a page are copied one by one.
_FEW = 1024


class ConstantPage:
    """Reads rows of one constant page; keeps the scalar after the first read, and levels if all
    were read.
    """

    def __init__(self, layout: pb.ConstantLayout, meta: PageMeta, leaf: Leaf) -> None:
        self._layout = layout
        self._meta = meta
        self._leaf = leaf
        self._layers = _layers(layout, leaf)
        self._levels: Levels | None = None
        self._scalar: pa.Array | None = None
        if len(meta.buffers) > 3:
            raise CorruptFileError(f"a constant page of {len(meta.buffers)} buffers")
        if len(meta.buffers) < 2 and (layout.num_rep_values or layout.num_def_values):
            raise CorruptFileError("the buffers of levels are missing")
        if layout.HasField("inline_value"):
            self._scalar = _fixed_scalar(layout.inline_value, leaf.field.type)
        self._words = self._find_words()

    @property
    def kept_bytes(self) -> int:
        """Bytes of the scalar and the levels."""
        levels = self._levels
        arrays = (None, None) if levels is None else (levels.repetition, levels.definition)
        size = sum(array.nbytes for array in arrays if array is not None)
        return size if self._scalar is None else size + int(self._scalar.nbytes)

    def read(self, rows: Rows) -> ReadPlan[PageRows]:
        """Plan the reading of some rows: one round for the scalar and levels that are kept, one for
        the words of these rows.
        """
        if self._levels is None:
            self._levels = yield from self._open()
        levels = self._levels
        if self._words is not None:
            fetched = yield from fetch_rows(self._words.offset, 2, rows, 2)
            words = fetched.data[fetched.starts[:, None] + np.arange(2)].reshape(-1).view("<u2")
            chosen = Levels(self._layers, len(rows), None, words.astype(np.uint16, copy=False))
            chosen.check()
        elif levels.repetition is not None:
            chosen = levels_at(levels, entries_of(levels, rows))
        else:
            definition = levels.definition
            if definition is not None:
                definition = definition[
                    slice(rows.start, rows.stop) if isinstance(rows, range) else rows
                ]
            elif max_definition(self._layers) and self._scalar is None:
                # All rows are null, at the level of the leaf itself.
                definition = np.ones(len(rows), np.uint16)
            chosen = Levels(self._layers, len(rows), None, definition)
        visible = chosen.visible()
        count = chosen.num_entries if visible is None else int(np.count_nonzero(visible))
        return PageRows(self._values(count), chosen)

    def _find_words(self) -> ByteRange | None:
        """Return the buffer of definition words, if word i belongs to row i."""
        buffers = self._meta.buffers[len(self._meta.buffers) % 2 :]
        if not buffers or any(layer.is_list for layer in self._layers):
            return None
        repetition, definition = buffers
        plain = self._layout.def_compression.WhichOneof("compression") is None
        fits = not repetition.length and definition.length == 2 * self._meta.num_rows
        return definition if plain and fits else None

    def _open(self) -> ReadPlan[Levels]:
        layout = self._layout
        buffer_ranges = list(self._meta.buffers)
        has_scalar = len(buffer_ranges) % 2 == 1
        if self._words is not None:
            buffer_ranges = buffer_ranges[:has_scalar]
        buffers = list((yield buffer_ranges)) if buffer_ranges else []
        if has_scalar:
            self._scalar = _scalar(buffers.pop(0), self._leaf.field.type)
        repetition = definition = None
        if buffers:
            repetition = _parse_levels(buffers[0], layout.rep_compression, layout.num_rep_values)
            definition = _parse_levels(buffers[1], layout.def_compression, layout.num_def_values)
        return self._checked(repetition, definition)

    def _checked(self, repetition: LevelArray | None, definition: LevelArray | None) -> Levels:
        entries = self._meta.num_rows
        if repetition is not None:
            entries = len(repetition)
        levels = Levels(self._layers, entries, repetition, definition)
        levels.check()
        return levels

    def _values(self, count: int) -> pa.Array:
        dtype = self._leaf.field.type
        if self._scalar is not None:
            if pat.is_dictionary(dtype):
                indices = pa.array(np.zeros(count, np.int8)).cast(dtype.index_type)
                return pa.DictionaryArray.from_arrays(indices, self._scalar, ordered=dtype.ordered)
            return _repeated(self._scalar, count)
        if pat.is_struct(dtype) and not dtype.num_fields:
            return pa.Array.from_buffers(dtype, count, [None], children=[])
        return unstored_nulls(count, dtype)


def repeats_inline(leaf: Leaf) -> bool:
    """Return whether `inline_rows` can return the values of a leaf."""
    dtype = leaf.field.type
    plain = is_plain(dtype) and not is_variable(dtype) and fixed_width(dtype) % 8 == 0
    return plain and not any(step.is_list or step.dimension != 1 for step in leaf.steps)


def inline_rows(meta: PageMeta, leaf: Leaf, count: int) -> bytes | None:
    """Return the bytes of a few values of a page that has an inline scalar and no null; None for
    any other page.

    Files of many columns have many such pages. This function takes a fraction of the time of a
    `ConstantPage`.
    """
    if meta.buffers or not 0 < count <= _FEW:
        return None
    try:
        layout = parse_layout(meta.encoding).constant_layout
        layers = parse_layers(layout.layers)
    except (DecodeError, UnsupportedEncodingError):
        return None
    # A page of another layout has no such value.
    value = layout.inline_value
    if len(value) * 8 != fixed_width(leaf.field.type) or layout.num_rep_values:
        return None
    if layout.num_def_values or layers != (Layer.ALL_VALID_ITEM,) * len(leaf.steps):
        return None
    return bytes(value) * count


def _repeated(scalar: pa.Array, count: int) -> pa.Array:
    """Return an array of `count` values, from an array of one value."""
    dtype = scalar.type
    if count == 1:
        return scalar
    if count <= _FEW and is_plain(dtype) and fixed_width(dtype) % 8 == 0 and not is_variable(dtype):
        # Cheaper than one call of Arrow for each column of a file with many columns.
        value = bytes(memoryview(scalar.buffers()[1]))
        return pa.Array.from_buffers(dtype, count, [None, pa.py_buffer(value * count)])
    return scalar.take(pa.array(np.zeros(count, np.int8)))


def _layers(layout: pb.ConstantLayout, leaf: Leaf) -> tuple[Layer, ...]:
    layers = parse_layers(layout.layers)
    dtype = leaf.field.type
    if pat.is_struct(dtype) and not dtype.num_fields and len(layers) == 1:
        # pylance writes this for a struct without children at any depth; no field above it may be
        # null.
        layers = (Layer.ALL_VALID_ITEM,) * len(leaf.steps)
    return check_layers(layers, leaf)


def _parse_levels(data: Bytes, encoding: pb.CompressiveEncoding, count: int) -> LevelArray | None:
    if not len(data):
        if count:
            raise CorruptFileError(f"the buffer of {count} levels is empty")
        return None
    if encoding.WhichOneof("compression") is None:
        if len(data) % 2:
            raise CorruptFileError(f"{len(data)} bytes of levels")
        return data.view("<u2").astype(np.uint16, copy=False)
    if count > _MAX_LEVELS:
        raise CorruptFileError(f"{count} levels in one page")
    levels = unsigned(decode_block(encoding, data, count))
    if len(levels) != count:
        raise CorruptFileError(f"{len(levels)} levels where {count} were announced")
    return levels.astype(np.uint16, copy=False)


def _fixed_scalar(value: bytes, dtype: pa.DataType) -> pa.Array:
    dtype = item_type(dtype)
    if pat.is_boolean(dtype):
        if len(value) != 1:
            raise CorruptFileError(f"a constant of {len(value)} bytes for a column of type {dtype}")
        return pa.Array.from_buffers(dtype, 1, [None, bitmap(np.array([value[0] & 1], np.bool_))])
    return _of_buffers([pa.py_buffer(value)], dtype)


def _of_buffers(buffers: list[pa.Buffer], dtype: pa.DataType) -> pa.Array:
    if pat.is_fixed_size_list(dtype):
        flat = _primitive(buffers, *innermost_items(dtype))
        return _nest(flat, dtype)
    return _primitive(buffers, dtype, 1)


def _nest(flat: pa.Array, dtype: pa.DataType) -> pa.Array:
    if not pat.is_fixed_size_list(dtype):
        return flat
    inner = _nest(flat, dtype.value_type)
    return pa.Array.from_buffers(dtype, len(inner) // dtype.list_size, [None], children=[inner])


def _primitive(buffers: list[pa.Buffer], dtype: pa.DataType, count: int) -> pa.Array:
    refusal = CorruptFileError(f"the constant is not one of type {dtype}")
    if is_variable(dtype):
        # Offsets have the width of the writer, also if the column type changed.
        if len(buffers) != 2 or buffers[0].size not in (8, 16) or count != 1:
            raise refusal
        first, last = np.frombuffer(buffers[0], f"<i{buffers[0].size // 2}").tolist()
        if first != 0 or last != buffers[1].size:
            raise refusal
        buffers = [pa.py_buffer(np.array([0, last], offset_type(dtype))), buffers[1]]
    else:
        bits = fixed_width(dtype)
        fixed = bits or pat.is_fixed_size_binary(dtype)
        if not fixed or len(buffers) != 1 or buffers[0].size != (bits * count + 7) // 8:
            raise refusal
    return pa.Array.from_buffers(dtype, count, [None, *buffers])


def _scalar(data: Bytes, dtype: pa.DataType) -> pa.Array:
    refusal = CorruptFileError(f"a constant of {len(data)} bytes contradicts itself")
    if len(data) < 4:
        raise refusal
    count = int(data[:4].view("<u4")[0])
    if not 1 <= count <= 8 or len(data) < 4 + 4 * count:
        raise refusal
    sizes = data[4 : 4 + 4 * count].view("<u4").astype(np.int64)
    if int(sizes.sum()) != len(data) - 4 - 4 * count:
        raise refusal
    ends = 4 + 4 * count + np.cumsum(sizes)
    buffers = [
        pa.py_buffer(data[end - size : end])
        for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)
    ]
    return _of_buffers(buffers, item_type(dtype))


# --------------------------------------------------------------------------------------------------
# Writes constant pages; `constant_read` documents the layout.

#: Maximum bytes of a scalar in the page's description; longer scalars are stored in a buffer.
_MAX_INLINE = 32
_NO_BYTES = np.zeros(0, np.uint8)


def write_all_null(column: LeafColumn, version: tuple[int, int]) -> EncodedPage:
    """Return the page of a column whose values are all null."""
    levels = column.levels
    layout = _layout(levels)
    if column.has_one_level or column.num_rows == 0:
        return _page(column, layout, ())
    # The pages of other versions do not say how levels are encoded.
    if version == (2, 2):
        repetition = definition = _NO_BYTES
        if levels.repetition is not None:
            encoding, repetition = encode_level_block(levels.repetition)
            layout.rep_compression.CopyFrom(encoding)
            layout.num_rep_values = levels.num_entries
        if levels.definition is not None:
            encoding, definition = encode_level_block(levels.definition)
            layout.def_compression.CopyFrom(encoding)
            layout.num_def_values = levels.num_entries
        return _page(column, layout, (repetition, definition))
    return _page(column, layout, _raw_levels(levels))


def write_scalar(column: LeafColumn, scalar: pa.Array) -> EncodedPage:
    """Return the page of a column whose values are all null or `scalar`, an array of length 1 (from
    2.2 on).
    """
    levels = column.levels
    layout = _layout(levels)
    buffers: tuple[Bytes, ...] = ()
    dtype = scalar.type
    if is_variable(dtype):
        buffers = (_scalar_buffer(scalar),)
    else:
        raw = _fixed_bytes(scalar)
        if len(raw) <= _MAX_INLINE:
            layout.inline_value = raw
        else:
            value = np.frombuffer(raw, np.uint8)
            buffers = (_framed([value]),)
    if levels.repetition is not None or levels.definition is not None:
        buffers = (*buffers, *_raw_levels(levels))
    return _page(column, layout, buffers)


def is_inline(scalar: pa.Array) -> bool:
    """Return whether `write_scalar` puts a scalar into the description of the page."""
    return not is_variable(scalar.type) and len(_fixed_bytes(scalar)) <= _MAX_INLINE


def _layout(levels: Levels) -> pb.ConstantLayout:
    return pb.ConstantLayout(layers=layer_numbers(levels.layers))


def _page(column: LeafColumn, layout: pb.ConstantLayout, buffers: tuple[Bytes, ...]) -> EncodedPage:
    page = pb.PageLayout(constant_layout=layout)
    return EncodedPage(buffers, column.num_rows, page.SerializeToString())


def _raw_levels(levels: Levels) -> tuple[Bytes, Bytes]:
    result = [
        _NO_BYTES if part is None else np.ascontiguousarray(part, "<u2").view(np.uint8)
        for part in (levels.repetition, levels.definition)
    ]
    return result[0], result[1]


def _fixed_bytes(scalar: pa.Array) -> bytes:
    if pat.is_boolean(scalar.type):
        return bytes([bool(scalar[0].as_py())])
    while pat.is_fixed_size_list(scalar.type):
        scalar = scalar.flatten()
    width = scalar.type.bit_width // 8
    start = scalar.offset * width
    return scalar.buffers()[1].slice(start, width * len(scalar)).to_pybytes()  # type: ignore[no-any-return]


def _scalar_buffer(scalar: pa.Array) -> Bytes:
    block = strings_of(scalar)
    first, last = block.offsets.tolist()
    offsets = np.array([0, last - first], block.offsets.dtype).view(np.uint8)
    return _framed([offsets, block.data[first:last]])


def _framed(buffers: list[Bytes]) -> Bytes:
    sizes = np.array([len(buffers), *(len(buffer) for buffer in buffers)], "<u4")
    return np.concatenate([sizes.view(np.uint8), *buffers])
