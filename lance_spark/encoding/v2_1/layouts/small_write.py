"""Writing pages of few values.

A table of thousands of columns and few rows has one such page for each column. The cost of its
write is the cost of pages, not of values. Encodings cannot save bytes here: the buffers of a file
start at multiples of 64 bytes, and the description of a page is longer than its values. A small
page is therefore a constant, or a mini-block page of one chunk of plain values. The chunk is joined
from byte strings, and equal pages share one message.

`mini_block_read` and `constant_read` have the layouts.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lance_spark.encoding.blocks import fixed_width, is_plain, is_variable, offset_type
from lance_spark.encoding.levels import Layer, Levels, layer_numbers
from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_1.codec import flat
from lance_spark.encoding.v2_1.codecs import variable
from lance_spark.proto import encodings_v2_1_pb2 as pb

#: Maximum values and bytes of a small page. For larger pages, encodings are chosen by size.
_MAX_VALUES = 64
_MAX_BYTES = 512
#: Maximum bytes of a constant. Longer constants need a buffer, which this module does not write.
_MAX_CONSTANT = 32
_FILL = b"\xfe" * 7


class _Width(NamedTuple):
    """Bits of a value of fixed width, or bytes of an offset; the other number is 0."""

    bits: int
    offset: int


class _PageFrame(NamedTuple):
    """The parts of a page around its levels and values. It has one chunk."""

    table: bytes
    head: bytes
    end: bytes
    message: bytes


def encode_small(
    values: pa.Array, levels: Levels, num_rows: int, version: tuple[int, int], *, constant: bool
) -> EncodedPage | None:
    """Return the page of a few values; None if the page is not small or its type is not plain.

    - `values`: One value per entry, without nulls.
    - `constant`: Whether a page of equal values becomes a constant; only if no value is null.
    """
    count = len(values)
    if not 0 < count <= _MAX_VALUES or levels.repetition is not None:
        return None
    width = _width(values.type)
    if width is None:
        return None
    raw = _variable(values, width.offset) if width.offset else _fixed(values, width.bits)
    if raw is None:
        return None
    if constant and version >= (2, 2) and levels.definition is None and width.bits:
        scalar = _scalar(raw, width.bits, count)
        if scalar is not None:
            return EncodedPage((), num_rows, _constant(scalar, levels.layers))
    large = version >= (2, 2)
    if levels.definition is None:
        frame = _frame(width, levels.layers, count, None, len(raw), large)
        chunk = frame.head + raw + frame.end
    else:
        definition = levels.definition.astype("<u2").tobytes()
        frame = _frame(width, levels.layers, count, len(definition), len(raw), large)
        chunk = frame.head + definition + _FILL[: -len(definition) % 8] + raw + frame.end
    return EncodedPage((frame.table, chunk), num_rows, frame.message)


@lru_cache(maxsize=256)
def _width(dtype: pa.DataType) -> _Width | None:
    if not is_plain(dtype):
        return None
    if is_variable(dtype):
        return _Width(0, np.dtype(offset_type(dtype)).itemsize)
    bits = fixed_width(dtype)
    return _Width(bits, 0) if bits == 1 or bits % 8 == 0 else None


def _fixed(values: pa.Array, bits: int) -> bytes | None:
    """Return the stored form of values of fixed width; None if it has many bytes."""
    start, count = values.offset, len(values)
    if count * bits > 8 * _MAX_BYTES:
        return None
    data = values.buffers()[1]
    if data is None:
        return None
    if bits > 1:
        width = bits // 8
        return bytes(memoryview(data)[start * width : (start + count) * width])
    packed = bytes(memoryview(data)[start // 8 : (start + count + 7) // 8])
    flags: int = int.from_bytes(packed, "little") >> start % 8 & (1 << count) - 1
    return flags.to_bytes((count + 7) // 8, "little")


def _variable(values: pa.Array, width: int) -> bytes | None:
    """Return the stored form of byte strings, offsets first; None if it has many bytes."""
    start, count = values.offset, len(values)
    _, offset_buffer, data = values.buffers()
    if offset_buffer is None:
        return None
    offsets = np.frombuffer(offset_buffer, np.int64 if width == 8 else np.int32)[
        start : start + count + 1
    ]
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first > _MAX_BYTES:
        return None
    text = b"" if data is None else bytes(memoryview(data)[first:last])
    table = (offsets - (first - offsets.nbytes)).tobytes()
    return table + text + variable.padding(len(text), width)


def _scalar(raw: bytes, bits: int, count: int) -> bytes | None:
    """Return the bytes of the value that all slots have; None if they differ."""
    if bits == 1:
        flags = int.from_bytes(raw, "little")
        if flags == 0:
            return b"\0"
        return b"\1" if flags == (1 << count) - 1 else None
    width = bits // 8
    scalar = raw[:width]
    return scalar if width <= _MAX_CONSTANT and raw == scalar * count else None


@lru_cache(maxsize=1024)
def _constant(scalar: bytes, layers: tuple[Layer, ...]) -> bytes:
    layout = pb.ConstantLayout(layers=layer_numbers(layers), inline_value=scalar)
    return pb.PageLayout(constant_layout=layout).SerializeToString()


def _mini_block(
    width: _Width, layers: tuple[Layer, ...], count: int, has_definition: bool, large: bool
) -> bytes:
    layout = pb.MiniBlockLayout(
        value_compression=variable.message(width.offset) if width.offset else flat(width.bits),
        def_compression=flat(16) if has_definition else None,
        layers=layer_numbers(layers),
        num_buffers=1,
        num_items=count,
        has_large_chunk=large,
    )
    return pb.PageLayout(mini_block_layout=layout).SerializeToString()


@lru_cache(maxsize=1024)
def _frame(
    width: _Width,
    layers: tuple[Layer, ...],
    count: int,
    definition: int | None,
    values: int,
    large: bool,
) -> _PageFrame:
    """Return the common parts of pages whose levels and values have `definition` and `values`
    bytes.
    """
    sizes = [0] if definition is None else [definition // 2, definition]
    head = struct.pack(f"<{len(sizes)}H{'I' if large else 'H'}", *sizes, values)
    head += _FILL[: -len(head) % 8]
    end = _FILL[: -values % 8]
    words = sum(-(-size // 8) for size in (len(head), definition or 0, values))
    table = (words - 1 << 4).to_bytes(4 if large else 2, "little")
    message = _mini_block(width, layers, count, definition is not None, large)
    return _PageFrame(table, head, end, message)
