"""Writes full-zip pages; `full_zip_read` documents the layout."""

from __future__ import annotations

import numpy as np

from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock, VariableWidthBlock
from lance_spark.encoding.levels import (
    BoolArray,
    IndexArray,
    Levels,
    layer_numbers,
    max_definition,
    max_repetition,
)
from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_1.fixed_width import bounds, take_pieces
from lance_spark.encoding.v2_1.layouts.full_zip_walk import control_bytes
from lance_spark.encoding.v2_1.shred import LeafColumn
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes


def write_full_zip(
    column: LeafColumn, encoding: pb.CompressiveEncoding, block: DataBlock
) -> EncodedPage:
    """Return the page.

    - `encoding`: Encoding of the stored values.
    - `block`: The stored values, one for each visible entry; without null values if the width is
      variable.
    """
    levels = column.levels
    bits_rep = max_repetition(levels.layers).bit_length() if levels.repetition is not None else 0
    bits_def = max_definition(levels.layers).bit_length() if levels.definition is not None else 0
    layout = pb.FullZipLayout(
        bits_rep=bits_rep,
        bits_def=bits_def,
        num_items=levels.num_entries,
        num_visible_items=block.num_values,
        value_compression=encoding,
        layers=layer_numbers(levels.layers),
    )
    control = _control_words(levels, bits_rep, bits_def)
    if isinstance(block, FixedWidthBlock):
        layout.bits_per_value = block.bits_per_value
        buffers = _fixed(levels, control, block)
    else:
        assert isinstance(block, VariableWidthBlock)
        layout.bits_per_offset = block.offsets.dtype.itemsize * 8
        buffers = _variable(levels, control, block)
    page = pb.PageLayout(full_zip_layout=layout)
    return EncodedPage(buffers, column.num_rows, page.SerializeToString())


def _control_words(levels: Levels, bits_rep: int, bits_def: int) -> Bytes:
    """Return the control word of each entry, as a table of entries x bytes."""
    width = control_bytes(bits_rep, bits_def)
    words = np.zeros(levels.num_entries, f"<u{max(width, 1)}")
    if levels.repetition is not None:
        words |= levels.repetition.astype(words.dtype) << bits_def
    if levels.definition is not None:
        words |= levels.definition.astype(words.dtype)
    return words.view(np.uint8).reshape(levels.num_entries, max(width, 1))[:, :width]


def _fixed(levels: Levels, control: Bytes, block: FixedWidthBlock) -> tuple[Bytes, ...]:
    width = block.bits_per_value // 8
    values = block.data[: block.num_values * width]
    head = control.shape[1]
    if not head:
        return (values,)
    table = np.empty((block.num_values, head + width), np.uint8)
    visible = levels.visible()
    table[:, :head] = control if visible is None else control[visible]
    table[:, head:] = values.reshape(block.num_values, width)
    if levels.repetition is None:
        return (table.reshape(-1),)
    if visible is None:
        sizes: IndexArray = np.full(levels.num_entries, head + width, np.int64)
        return table.reshape(-1), _row_index(levels, sizes)
    sizes = np.where(visible, head + width, head)
    out = _interleave(
        table.reshape(-1), head + width, np.ascontiguousarray(control[~visible]), visible
    )
    return out, _row_index(levels, sizes)


def _interleave(shown: Bytes, width: int, hidden: Bytes, visible: BoolArray) -> Bytes:
    """Return entries of two widths in their order; Arrow copies them, one by one."""
    head = hidden.shape[1]
    pool = np.concatenate([shown, hidden.reshape(-1)])
    count, num_hidden = int(np.count_nonzero(visible)), len(hidden)
    offsets = np.concatenate(
        [np.arange(count) * width, len(shown) + np.arange(num_hidden + 1) * head]
    ).astype(np.int64)
    order = np.empty(count + num_hidden, np.int64)
    order[visible] = np.arange(count)
    order[~visible] = count + np.arange(num_hidden)
    return take_pieces(pool, offsets, order)[1]


def _variable(levels: Levels, control: Bytes, block: VariableWidthBlock) -> tuple[Bytes, ...]:
    """Combine control word, length and bytes: Arrow joins the three columns of pieces."""
    offsets = block.offsets.astype(np.int64)
    head = control.shape[1]
    lengths = np.diff(offsets)
    visible = levels.visible()
    dtype = block.offsets.dtype
    # A value for each entry: empty for hidden and null entries.
    holds = np.ones(levels.num_entries, np.bool_)
    if levels.definition is not None:
        holds = levels.definition == 0
    of_visible = holds if visible is None else holds[visible]
    sizes = np.zeros(levels.num_entries, np.int64)
    sizes[holds] = lengths[of_visible]
    width = dtype.itemsize
    heads = np.zeros((levels.num_entries, head + width), np.uint8)
    heads[:, :head] = control
    heads[:, head:] = sizes.astype(f"<u{width}").view(np.uint8).reshape(-1, width)
    head_sizes = np.where(holds, head + width, head)
    # Pieces, alternately: the head of an entry and its value. Both live in one pool.
    pool = np.concatenate([heads.reshape(-1), block.data[offsets[0] : offsets[-1]]])
    value_at = np.zeros(levels.num_entries, np.int64)
    value_at[holds] = offsets[:-1][of_visible] - offsets[0]
    position = np.empty(2 * levels.num_entries, np.int64)
    position[0::2] = np.arange(levels.num_entries) * (head + width)
    position[1::2] = heads.size + value_at
    long = np.empty_like(position)
    long[0::2], long[1::2] = head_sizes, sizes
    return _joined(pool, position, long), _row_index(levels, head_sizes + sizes)


def _joined(pool: Bytes, piece_starts: IndexArray, sizes: IndexArray) -> Bytes:
    """Return pieces of the pool back to back. The pool is cut at the ends of all pieces."""
    starts, ends = piece_starts, piece_starts + sizes
    order = np.argsort(starts, kind="stable")
    # Between two neighbours of the pool, bytes can belong to no piece.
    cuts = np.empty(2 * len(piece_starts) + 1, np.int64)
    cuts[0] = 0
    cuts[1::2] = starts[order]
    cuts[2::2] = ends[order]
    # Empty pieces may have a position inside another piece.
    np.maximum.accumulate(cuts, out=cuts)
    cut_positions = np.empty(len(piece_starts), np.int64)
    cut_positions[order] = 2 * np.arange(len(piece_starts)) + 1
    return take_pieces(pool, cuts, cut_positions)[1]


def _row_index(levels: Levels, sizes: IndexArray) -> Bytes:
    """Return the start of each row, and the end, in numbers of as few bytes as possible."""
    ends = bounds(sizes)
    if levels.repetition is not None:
        starts = np.flatnonzero(levels.repetition == max_repetition(levels.layers))
        ends = np.append(ends[starts], ends[-1])
    end = int(ends[-1])
    width = 1 if end < 1 << 8 else 2 if end < 1 << 16 else 4 if end < 1 << 32 else 8
    return ends.astype(f"<u{width}").view(np.uint8)
