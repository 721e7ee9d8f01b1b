"""Writes mini-block pages; `mini_block_read` documents the layout."""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from lance_spark.encoding.levels import (
    IndexArray,
    LevelArray,
    Levels,
    layer_numbers,
    max_repetition,
)
from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_1.codec import ChunkBuffer, Chunks, bounds, empty
from lance_spark.encoding.v2_1.codecs import bitpacking, rle
from lance_spark.encoding.v2_1.shred import LeafColumn
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

#: Levels of a chunk are counted in 16 bits, and so are the bytes of its levels.
MAX_LEVELS = (1 << 16) - 1
#: A chunk word of 16 bits has 12 for the size in units of 8 bytes.
MAX_SMALL_CHUNK = 8 << 12
_MAX_LARGE_CHUNK = 8 << 28
_MAX_SMALL_BUFFER = (1 << 16) - 1
_FILL = 0xFE
#: Bytes of a run: a level of 16 bits and a length of 8. A buffer of runs begins with 8 bytes.
_RUN_BYTES = 3
_RUN_HEADER = 8
_LONGEST_RUN = 255
_FEW_CHUNKS = 16


def encode_level_block(levels: LevelArray) -> tuple[pb.CompressiveEncoding, Bytes]:
    """Return levels as one buffer."""
    packed = bitpacking.encode_block(levels)
    runs = rle.encode_block(levels)
    return runs if len(runs[1]) < len(packed[1]) else packed


def encode_level_blocks(
    levels: LevelArray, counts: IndexArray
) -> tuple[pb.CompressiveEncoding, ChunkBuffer]:
    """Return levels as one buffer for each chunk, all with the same encoding.

    - `counts` (int64 array, one element per chunk): Number of levels in each buffer; their sum is
      the number of levels.
    """
    changes = int(np.count_nonzero(levels[1:] != levels[:-1])) + len(counts)
    least = (changes + len(levels) // _LONGEST_RUN) * _RUN_BYTES + len(counts) * _RUN_HEADER
    bits = max(1, int(levels.max(initial=0)).bit_length())
    # Runs are decoded chunk by chunk, so they must save enough bytes.
    if least > len(levels) * bits / 8 * 0.75:
        return bitpacking.encode_blocks(levels, counts)
    return rle.encode_blocks(levels, counts)


class DictionaryItems(NamedTuple):
    """The items of the dictionary of a page, as one buffer."""

    encoding: pb.CompressiveEncoding
    data: Bytes
    num_items: int


def write_mini_block(
    column: LeafColumn,
    encoding: pb.CompressiveEncoding,
    chunks: Chunks,
    version: tuple[int, int],
    dictionary: DictionaryItems | None = None,
) -> EncodedPage | None:
    """Return the page; None if a chunk has too many levels or bytes for this layout.

    - `encoding`: Encoding of `chunks`.
    - `chunks`: The column's values, at least one; the number of values of each chunk but the last
      is a power of two.
    - `dictionary`: The items, if the values are positions in a dictionary.
    """
    levels = column.levels
    counts = chunks.num_values
    large = version >= (2, 2)
    level_bounds = _level_bounds(levels, counts)
    num_levels = np.diff(level_bounds)
    layout = pb.MiniBlockLayout(
        value_compression=encoding,
        layers=layer_numbers(levels.layers),
        num_buffers=len(chunks.buffers),
        num_items=int(counts.sum()),
        has_large_chunk=large,
    )
    parts: list[ChunkBuffer] = []
    if levels.repetition is not None or levels.definition is not None:
        if int(num_levels.max(initial=0)) > MAX_LEVELS:
            return None
    else:
        num_levels = np.zeros_like(num_levels)
    if levels.repetition is not None:
        message, buffer = encode_level_blocks(levels.repetition, num_levels)
        layout.rep_compression.CopyFrom(message)
        parts.append(buffer)
    if levels.definition is not None:
        message, buffer = encode_level_blocks(levels.definition, num_levels)
        layout.def_compression.CopyFrom(message)
        parts.append(buffer)
    if any(int(part.sizes.max(initial=0)) > MAX_LEVELS for part in parts):
        return None
    assembled = _assemble(num_levels, parts, chunks.buffers, large)
    if assembled is None:
        return None
    data, sizes = assembled
    words = (sizes // 8 - 1) << 4
    words[:-1] |= np.log2(counts[:-1]).astype(np.int64)
    buffers = [words.astype("<u4" if large else "<u2").view(np.uint8), data]
    if dictionary is not None:
        layout.dictionary.CopyFrom(dictionary.encoding)
        layout.num_dictionary_items = dictionary.num_items
        buffers.append(dictionary.data)
    if levels.repetition is not None:
        layout.repetition_index_depth = 1
        buffers.append(_row_index(levels, level_bounds))
    page = pb.PageLayout(mini_block_layout=layout)
    return EncodedPage(tuple(buffers), column.num_rows, page.SerializeToString())


def _level_bounds(levels: Levels, counts: IndexArray) -> IndexArray:
    """Return the start of the levels of each chunk, and the end of the last: a chunk ends with its
    last value.
    """
    values_at = bounds(counts)
    result = np.empty_like(values_at)
    result[0], result[-1] = 0, levels.num_entries
    result[1:-1] = levels.entries_of(values_at[1:-1] - 1) + 1
    return result


def _row_index(levels: Levels, level_bounds: IndexArray) -> Bytes:
    assert levels.repetition is not None
    starts = np.flatnonzero(levels.repetition == max_repetition(levels.layers))
    # The rows that ended at a bound are the rows that started up to it, the bound included, except
    # a row that continues there.
    started = np.searchsorted(starts, level_bounds, side="right")
    started[-1] = len(starts)
    ended = np.append(0, started[1:] - 1)
    ended[-1] = len(starts)
    index = np.zeros((len(level_bounds) - 1, 2), "<u8")
    index[:, 0] = np.diff(ended)
    last_start = starts[np.searchsorted(starts, level_bounds[1:], side="left") - 1]
    unfinished = np.ones(len(level_bounds) - 1, np.bool_)
    inner = level_bounds[1:-1]
    unfinished[:-1] = levels.repetition[inner] != max_repetition(levels.layers)
    unfinished[-1] = False
    index[:, 1] = np.where(
        unfinished, level_bounds[1:] - np.maximum(last_start, level_bounds[:-1]), 0
    )
    return index.reshape(-1).view(np.uint8)


def _assemble(
    num_levels: IndexArray, levels: list[ChunkBuffer], values: tuple[ChunkBuffer, ...], large: bool
) -> tuple[Bytes, IndexArray] | None:
    """Return all chunks back to back, and their sizes; None if a chunk is too large."""
    width = 4 if large else 2
    head = 2 + 2 * len(levels) + width * len(values)
    parts = [*levels, *values]
    room = [(part.sizes + 7) // 8 * 8 for part in parts]
    first = (head + 7) // 8 * 8
    sizes: IndexArray = np.full(len(num_levels), first, np.int64)
    for size in room:
        sizes += size
    if int(sizes.max()) > (_MAX_LARGE_CHUNK if large else MAX_SMALL_CHUNK):
        return None
    if not large and any(int(part.sizes.max()) > _MAX_SMALL_BUFFER for part in values):
        return None
    if len(num_levels) <= _FEW_CHUNKS:
        form = Struct("<" + "H" * (1 + len(levels)) + ("I" if large else "H") * len(values))
        return _joined_chunks(form, num_levels.tolist(), parts), sizes
    starts = np.cumsum(sizes) - sizes
    out = empty(int(sizes.sum()), np.uint8)
    out.fill(_FILL)
    words = [num_levels, *(part.sizes for part in levels)]
    header = np.empty((len(num_levels), head), np.uint8)
    header[:, : 2 * len(words)] = np.stack(words, axis=1).astype("<u2").view(np.uint8)
    tail = np.stack([part.sizes for part in values], axis=1).astype(f"<u{width}")
    header[:, 2 * len(words) :] = tail.view(np.uint8)
    _write_chunks(
        out,
        starts,
        ChunkBuffer(header.reshape(-1), np.arange(len(header)) * head, np.full(len(header), head)),
    )
    position = starts + first
    for part, size in zip(parts, room, strict=True):
        _write_chunks(out, position, part)
        position = position + size
    return out, sizes


def _joined_chunks(form: Struct, num_levels: list[int], parts: list[ChunkBuffer]) -> Bytes:
    """Return few chunks back to back: one join of bytes costs less than the calls of numpy.

    - `form`: Of the header of a chunk.
    """
    fill = bytes((_FILL,))
    sizes_of = [part.sizes.tolist() for part in parts]
    starts_of = [part.starts.tolist() for part in parts]
    pieces: list[Any] = []
    for chunk, count in enumerate(num_levels):
        sizes = [part_sizes[chunk] for part_sizes in sizes_of]
        pieces += [form.pack(count, *sizes), fill * (-form.size % 8)]
        for part, starts, size in zip(parts, starts_of, sizes, strict=True):
            start = starts[chunk]
            pieces += [part.data[start : start + size], fill * (-size % 8)]
    return np.frombuffer(b"".join(pieces), np.uint8)


def _write_chunks(out: Bytes, targets: IndexArray, part: ChunkBuffer) -> None:
    """Copy each chunk's buffer to its target; evenly spaced buffers at once."""
    count = len(targets)
    even = 0
    if count > 2:
        size = int(part.sizes[0])
        step, stride = int(targets[1] - targets[0]), int(part.starts[1] - part.starts[0])
        evenly_spaced = (
            (part.sizes[:-1] == size).all()
            and (np.diff(targets[:-1]) == step).all()
            and (np.diff(part.starts[:-1]) == stride).all()
        )
        if evenly_spaced and size and step >= size and stride >= size:
            even = count - 1
            np.ndarray((even, size), np.uint8, out, int(targets[0]), (step, 1))[...] = np.ndarray(
                (even, size), np.uint8, part.data, int(part.starts[0]), (stride, 1)
            )
    for target, start, size in zip(
        targets[even:].tolist(),
        part.starts[even:].tolist(),
        part.sizes[even:].tolist(),
        strict=True,
    ):
        out[target : target + size] = part.data[start : start + size]
