"""Run-length encoding: values and run lengths.

``Rle { values = Flat { bits_per_value = b }, run_lengths = Flat { bits_per_value = 8 } }``, b = 8,
16, 32 or 64. Two buffers per chunk of r runs:

=============  =======================================================================
bytes          content
=============  =======================================================================
r * b / 8      value of each run
r              length of each run, from 1 to 255; longer runs come as several
=============  =======================================================================

Lengths may have 16 or 32 bits. Each buffer may be compressed (`general`), and one of the two may be
bit-packed (`out_of_line_bitpacking`): the number of runs is computed from the size of the other
buffer. Values or lengths that are equal or have equal steps (`constant`, `range`) are not stored;
the number of runs is then computed from the number of values. pylance writes all that into files of
version 2.3 only.

The runs of a chunk may have more values than the chunk: a writer that cuts a chunk inside a run
stores the whole run, and the next chunk starts with the rest of it again. A block is one buffer:

=============  =======================================================================
bytes          content
=============  =======================================================================
8              length of the values in bytes, little-endian
r * b / 8      value of each run
r              length of each run
=============  =======================================================================

A block has no bytes if neither is stored. Specification: Rle in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

from math import isqrt

import numpy as np

from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock
from lance_spark.encoding.compression import scheme_of
from lance_spark.encoding.levels import BoolArray, IndexArray
from lance_spark.encoding.v2_1.codec import (
    BlocksCodec,
    ChunkBuffer,
    ChunkLimits,
    Chunks,
    Encoded,
    UIntArray,
    block_of,
    bounds,
    decode_blocks,
    flat,
    flat_bits,
    gather,
    has_payload,
    require_word,
    uint_type,
    values_of,
)
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

_LONGEST_RUN = 255
_BLOCK_HEADER = 8


class RleCodec(BlocksCodec):
    """Decodes ``Rle``."""

    name = "rle"

    def decode_chunks(self, encoding: pb.Rle, chunks: Chunks) -> FixedWidthBlock:
        if len(chunks.buffers) != 2:
            raise CorruptFileError(f"runs in {len(chunks.buffers)} buffers instead of 2")
        values, lengths = chunks.buffers
        return _decode(encoding, values, lengths, chunks.num_values)

    def decode_blocks(
        self, encoding: pb.Rle, buffer: ChunkBuffer, num_values: IndexArray
    ) -> FixedWidthBlock:
        if not (has_payload(encoding.values) or has_payload(encoding.run_lengths)):
            return _decode(encoding, buffer, buffer, num_values)
        empty = (num_values == 0) & (buffer.sizes == 0)
        if empty.any():
            non_empty = np.flatnonzero(~empty)
            buffer = ChunkBuffer(buffer.data, buffer.starts[non_empty], buffer.sizes[non_empty])
            num_values = num_values[non_empty]
        if (buffer.sizes < _BLOCK_HEADER).any():
            raise CorruptFileError("a buffer of runs is too short for its header")
        positions = buffer.starts[:, None] + np.arange(_BLOCK_HEADER)
        headers = buffer.data[positions].view("<u8")[:, 0]
        room = buffer.sizes - _BLOCK_HEADER
        if (headers > room.astype(np.uint64)).any():
            raise CorruptFileError("the values of runs are longer than their buffer")
        sizes = headers.astype(np.int64)
        starts = buffer.starts + _BLOCK_HEADER
        return _decode(
            encoding,
            ChunkBuffer(buffer.data, starts, sizes),
            ChunkBuffer(buffer.data, starts + sizes, room - sizes),
            num_values,
        )


def _decode(
    encoding: pb.Rle, values: ChunkBuffer, lengths: ChunkBuffer, num_values: IndexArray
) -> FixedWidthBlock:
    if int(num_values.min(initial=0)) < 0:
        raise CorruptFileError("a chunk has an impossible number of values")
    of_values, values = _opened(encoding.values, values, num_values)
    of_lengths, lengths = _opened(encoding.run_lengths, lengths, num_values)
    require_word(_width(of_values), "run-length encoding")
    of_length = _width(of_lengths)
    if of_length not in (8, 16, 32):
        raise UnsupportedEncodingError(f"lengths of runs of {of_length} bits")
    runs = _number_of_runs(of_values, values, of_lengths, lengths, num_values)
    result = _numbers(of_values, values, runs)
    times = _numbers(of_lengths, lengths, runs).astype(np.int64)
    until = bounds(times)
    last = np.cumsum(runs)
    begin = until[last - runs]
    num_decoded = until[last] - begin
    if (num_decoded < num_values).any():
        raise CorruptFileError("the runs of a chunk hold fewer values than the chunk")
    if (num_decoded > num_values).any():
        times = np.clip(np.repeat(begin + num_values, runs) - until[:-1], 0, times)
    return block_of(np.repeat(result, times))


def _opened(
    encoding: pb.CompressiveEncoding, buffer: ChunkBuffer, num_values: IndexArray
) -> tuple[pb.CompressiveEncoding, ChunkBuffer]:
    """Return values or lengths of runs, decompressed if they are compressed."""
    # A chunk has at most as many runs as values, and one run that continues in the next chunk.
    max_size = (int(num_values.sum()) + len(num_values)) * 8
    while encoding.WhichOneof("compression") == "general":
        from lance_spark.encoding.v2_1.codecs.general import inflate

        buffer = inflate(scheme_of(encoding.general.compression), buffer, max_size)
        encoding = encoding.general.values
    if encoding.WhichOneof("compression") not in ("out_of_line_bitpacking", "constant", "range"):
        flat_bits(encoding, "run-length encoding")
    return encoding, buffer


def _width(encoding: pb.CompressiveEncoding) -> int:
    compression = encoding.WhichOneof("compression")
    if compression == "flat":
        return int(encoding.flat.bits_per_value)
    if compression == "constant":
        return len(encoding.constant.value) * 8
    if compression == "range":
        return int(encoding.range.uncompressed_bits_per_value)
    return int(encoding.out_of_line_bitpacking.uncompressed_bits_per_value)


def _number_of_runs(
    of_values: pb.CompressiveEncoding,
    values: ChunkBuffer,
    of_lengths: pb.CompressiveEncoding,
    lengths: ChunkBuffer,
    num_values: IndexArray,
) -> IndexArray:
    """Return the number of runs of each chunk, from the size of a flat buffer or from the sum of
    lengths.
    """
    counts = []
    for encoding, buffer in ((of_values, values), (of_lengths, lengths)):
        if encoding.WhichOneof("compression") == "flat":
            runs, remainders = np.divmod(buffer.sizes, _width(encoding) // 8)
            if remainders.any():
                raise CorruptFileError("values or lengths of runs do not fill their buffer")
            counts.append(runs)
    if not counts:
        return _runs_for(of_lengths, num_values)
    if (counts[0] != counts[-1]).any():
        raise CorruptFileError("there are not as many lengths of runs as values")
    result: IndexArray = counts[0]
    return result


def _runs_for(encoding: pb.CompressiveEncoding, num_values: IndexArray) -> IndexArray:
    """Return the number of runs for a number of values, if the lengths are not stored."""
    compression = encoding.WhichOneof("compression")
    if compression == "constant":
        start, step = int.from_bytes(encoding.constant.value, "little"), 0
    elif compression == "range":
        start, step = int(encoding.range.start), int(encoding.range.step)
    else:
        raise UnsupportedEncodingError("runs whose values and lengths are both bit-packed")
    max_values = int(num_values.max(initial=0))
    if not start and max_values:
        raise CorruptFileError("runs without values")
    if start >= max_values or not step:
        return -(-num_values // max(start, 1))
    # This number of lengths has a sum above the number of values.
    longest = isqrt(2 * max_values // step) + 2
    totals = np.cumsum(start + min(step, max_values) * np.arange(longest))
    result: IndexArray = np.searchsorted(totals, num_values) + 1
    return np.where(num_values == 0, 0, result)


def _numbers(encoding: pb.CompressiveEncoding, buffer: ChunkBuffer, runs: IndexArray) -> UIntArray:
    if encoding.WhichOneof("compression") == "flat":
        data = gather(buffer.data, buffer.starts, buffer.sizes)
        return data.view(uint_type(_width(encoding)))
    return values_of(decode_blocks(encoding, buffer, runs))


def count_runs(block: DataBlock) -> int:
    """Return the number of runs of equal values, of any length; 0 without values."""
    values = values_of(block)
    return int(np.count_nonzero(values[1:] != values[:-1])) + bool(len(values))


def _changes(values: UIntArray) -> BoolArray:
    """Return which values start a run."""
    changes = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes


def _runs_of(changes: BoolArray, cuts: IndexArray) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Return starts and lengths of runs, cut at the ends of chunks.

    `cuts` has the start of each chunk and the end of the last; the starts are added to `changes`.
    The third array has the number of entries, of up to 255 values each, for the runs of each chunk.
    """
    changes[cuts[cuts < len(changes)]] = True
    starts = np.flatnonzero(changes)
    lengths = np.diff(starts, append=cuts[-1])
    until = np.concatenate([[0], np.cumsum(-(-lengths // _LONGEST_RUN))])
    return starts, lengths, np.diff(until[np.searchsorted(starts, cuts)])


def _cut(changes: BoolArray, width: int, limits: ChunkLimits) -> IndexArray:
    """Return the bounds of the chunks; all except the last hold a power of two of values."""
    total, step = len(changes), limits.max_values
    cuts = np.append(np.arange(0, total, step), total)
    while True:
        sizes = _runs_of(changes, cuts)[2] * (width + 1)
        large = np.flatnonzero(sizes > limits.max_bytes)
        if not len(large):
            return cuts
        counts = cuts[large + 1] - cuts[large]
        if int(counts.min()) <= 2:
            raise InvalidInputError(f"no runs of values fit {limits.max_bytes} bytes")
        # The largest power of two that leaves values for a second chunk.
        half = np.left_shift(1, np.ceil(np.log2(counts)).astype(np.int64) - 1)
        cuts = np.sort(np.concatenate([cuts, cuts[large] + half]))


def _entries(values: UIntArray, starts: IndexArray, lengths: IndexArray) -> tuple[UIntArray, Bytes]:
    pieces = -(-lengths // _LONGEST_RUN)
    times = np.full(int(pieces.sum()), _LONGEST_RUN, np.uint8)
    times[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * _LONGEST_RUN
    return np.repeat(values[starts], pieces), times


def _message(bits: int) -> pb.CompressiveEncoding:
    return pb.CompressiveEncoding(rle=pb.Rle(values=flat(bits), run_lengths=flat(8)))


def encode_chunks(block: DataBlock, limits: ChunkLimits) -> Encoded:
    """Turn values into runs that end with their chunk.

    Chunks have ``limits.max_values`` values, halved as often as their runs need to fit
    ``limits.max_bytes``. Raises InvalidInputError: the block does not have values of 8, 16, 32 or
    64 bits, or the limits do not allow two values.
    """
    values = values_of(block)
    width = values.itemsize
    changes = _changes(values)
    cuts = _cut(changes, width, limits)
    starts, lengths, entries = _runs_of(changes, cuts)
    result, times = _entries(values, starts, lengths)
    first = np.cumsum(entries) - entries
    buffers = (
        ChunkBuffer(result.view(np.uint8), first * width, entries * width),
        ChunkBuffer(times, first, entries),
    )
    return _message(width * 8), Chunks(buffers, np.diff(cuts))


def encode_blocks(
    values: UIntArray, counts: IndexArray
) -> tuple[pb.CompressiveEncoding, ChunkBuffer]:
    """Turn the levels of all chunks of a page into runs, one buffer each.

    Parameters
    ----------
    values : array of uint8, uint16, uint32 or uint64
    counts : int64 array, one element per buffer
        Number of values in each buffer, at least one; their sum is the number of values.

    Returns
    -------
    encoding : pb.CompressiveEncoding
    buffers : ChunkBuffer
        Back to back, without padding.
    """
    width = values.itemsize
    starts, lengths, entries = _runs_of(_changes(values), bounds(counts))
    result, times = _entries(values, starts, lengths)
    of_values = entries * width
    sizes = _BLOCK_HEADER + of_values + entries
    position = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    out[position[:, None] + np.arange(_BLOCK_HEADER)] = of_values.astype("<u8")[:, None].view(
        np.uint8
    )
    stored = result.view(np.uint8)
    begin = 0
    for value_start, count in zip(
        (position + _BLOCK_HEADER).tolist(), entries.tolist(), strict=True
    ):
        end, middle = begin + count, value_start + count * width
        out[value_start:middle] = stored[begin * width : end * width]
        out[middle : middle + count] = times[begin:end]
        begin = end
    return _message(width * 8), ChunkBuffer(out, position, sizes)


def encode_block(values: UIntArray) -> tuple[pb.CompressiveEncoding, Bytes]:
    """Turn values into runs in one buffer; see `encode_blocks`.

    - `values`: array of uint8, uint16, uint32 or uint64
    """
    encoding, buffers = encode_blocks(values, np.array([len(values)]))
    return encoding, buffers.data
