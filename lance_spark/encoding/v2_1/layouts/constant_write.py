"""Writes constant pages; `constant_read` documents the layout."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import is_variable, strings_of
from lance_spark.encoding.levels import Levels, layer_numbers
from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_1.layouts.mini_block_write import encode_level_block
from lance_spark.encoding.v2_1.shred import LeafColumn
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

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
