"""General: buffers that LZ4 or Zstandard compressed after another encoding.

``General { compression, values }``; the bytes of a compressed buffer are described in
`lance_spark.encoding.compression`:

===========  =====================================================================================
used as      what is compressed
===========  =====================================================================================
mini-block   the first value buffer of each chunk; the others are as `values` leaves them
block        the buffer
full-zip     each value by itself; a value without bytes may have none
===========  =====================================================================================

Specification: General in protos/encodings_v2_1.proto.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.blocks import DataBlock, LowHalves, VariableWidthBlock
from lance_spark.encoding.compression import (
    compress,
    compressed_share,
    decompress,
    decompress_many,
    message_of,
    scheme_of,
)
from lance_spark.encoding.levels import IndexArray
from lance_spark.encoding.v2_1.codec import (
    WIDE_BITS,
    ChunkBuffer,
    Chunks,
    Codec,
    Encoded,
    bounds,
    decode_block,
    decode_chunks,
    decode_low,
    decode_values,
)
from lance_spark.errors import CorruptFileError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

#: Maximum size of all chunks of a page together, or of all values of a full-zip read.
_MAX_BYTES = (1 << 31) - 1
#: Number of values that are compressed as a sample, before all values are.
_SAMPLE = 16
#: Minimum number of chunks of strings whose frames are searched.
_MANY_CHUNKS = 4
#: Minimum saving of a compression of values one by one.
_WORTH = 0.9


class GeneralCodec(Codec):
    """Decodes ``General``."""

    name = "general"

    def decode_chunks(self, encoding: pb.General, chunks: Chunks) -> DataBlock:
        if not chunks.buffers:
            raise CorruptFileError("compressed chunks without a buffer")
        scheme = scheme_of(encoding.compression)
        if scheme == "zstd" and len(chunks.num_values) >= _MANY_CHUNKS:
            strings = _strings(encoding.values, chunks)
            if strings is not None:
                return strings
        if scheme == "zstd" and _has_wide_integers(encoding.values, chunks):
            from lance_spark.encoding.v2_1.codecs import wide_integers

            bits = encoding.values.flat.bits_per_value
            return wide_integers.decode_chunks(bits, chunks.buffers[0], chunks.num_values)
        first = inflate(scheme, chunks.buffers[0])
        return decode_chunks(
            encoding.values, Chunks((first, *chunks.buffers[1:]), chunks.num_values)
        )

    def decode_some(
        self, encoding: pb.General, chunks: Chunks, entries: IndexArray
    ) -> DataBlock | None:
        if scheme_of(encoding.compression) != "zstd":
            return None
        if not _has_wide_integers(encoding.values, chunks):
            return None
        from lance_spark.encoding.v2_1.codecs import wide_integers

        bits = encoding.values.flat.bits_per_value
        return wide_integers.decode_some(bits, chunks.buffers[0], chunks.num_values, entries)

    def decode_low(self, encoding: pb.General, chunks: Chunks) -> LowHalves | None:
        if not _has_wide_integers(encoding.values, chunks):
            return None
        scheme, buffer = scheme_of(encoding.compression), chunks.buffers[0]
        if scheme == "zstd":
            from lance_spark.encoding.v2_1.codecs import wide_integers

            bits = encoding.values.flat.bits_per_value
            return wide_integers.decode_low(bits, buffer, chunks.num_values)
        return decode_low(encoding.values, Chunks((inflate(scheme, buffer),), chunks.num_values))

    def decode_block(self, encoding: pb.General, data: Bytes, num_values: int) -> DataBlock:
        inner = decompress(scheme_of(encoding.compression), data)
        return decode_block(encoding.values, inner, num_values)

    def decode_values(self, encoding: pb.General, values: DataBlock) -> DataBlock:
        if not isinstance(values, VariableWidthBlock):
            raise CorruptFileError("compressed values are stored with a fixed width")
        scheme = scheme_of(encoding.compression)
        offsets = values.offsets.astype(np.int64)
        # The compressor has no interface for many buffers at once.
        pieces: list[Bytes] = []
        bytes_left = _MAX_BYTES
        for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            piece = (
                decompress(scheme, values.data[start:end], bytes_left) if end > start else _NOTHING
            )
            bytes_left -= len(piece)
            pieces.append(piece)
        edges = bounds([len(piece) for piece in pieces])
        data = np.concatenate(pieces) if pieces else _NOTHING
        block = VariableWidthBlock.of(edges, data, values.offsets.itemsize)
        return decode_values(encoding.values, block)


_NOTHING = np.zeros(0, np.uint8)


def _strings(values: pb.CompressiveEncoding, chunks: Chunks) -> DataBlock | None:
    width = values.variable.offsets.flat.bits_per_value // 8
    if width not in (4, 8) or values.variable.HasField("values") or len(chunks.buffers) != 1:
        return None
    from lance_spark.encoding.v2_1.codecs import compressed_strings

    return compressed_strings.decode_chunks(chunks.buffers[0], chunks.num_values, width)


def _has_wide_integers(values: pb.CompressiveEncoding, chunks: Chunks) -> bool:
    """Return whether compressed values are flat, and so wide that chunks can have the forms of
    `wide_integers`.
    """
    is_wide = values.flat.bits_per_value in WIDE_BITS and not values.flat.HasField("data")
    return is_wide and len(chunks.buffers) == 1


def inflate(scheme: str, buffer: ChunkBuffer, max_size: int = _MAX_BYTES) -> ChunkBuffer:
    """Decompress the buffer of each chunk; each result begins at a multiple of 8 bytes.

    - `scheme`: ``lz4`` or ``zstd``.
    - `max_size`: Maximum bytes of all chunks together.

    Raises CorruptFileError: a buffer does not have this scheme, or the buffers hold more than
    `max_size` bytes.
    """
    return ChunkBuffer(*decompress_many(scheme, buffer.data, buffer.starts, buffer.sizes, max_size))


# Writing


def _wrap(inner: pb.CompressiveEncoding, scheme: str, level: int | None) -> pb.CompressiveEncoding:
    general = pb.General(compression=message_of(scheme, level), values=inner)
    return pb.CompressiveEncoding(general=general)


def compress_chunks(
    encoding: pb.CompressiveEncoding, chunks: Chunks, scheme: str, level: int | None = None
) -> Encoded:
    """Compress the first buffer of each chunk; return all buffers unchanged if they would become
    larger.

    - `encoding`: Of `chunks`.
    - `scheme`: ``lz4`` or ``zstd``.
    - `level`: Of zstd.

    Raises InvalidInputError: the scheme or the level is not known.
    """
    first = chunks.buffers[0]
    pieces = [
        np.frombuffer(compress(scheme, first.data[start : start + size], level), np.uint8)
        for start, size in zip(first.starts.tolist(), first.sizes.tolist(), strict=True)
    ]
    sizes: npt.NDArray[np.int64] = np.array([len(piece) for piece in pieces], np.int64)
    if int(sizes.sum()) >= int(first.sizes.sum()) or (sizes > np.maximum(first.sizes, 64)).any():
        return encoding, chunks
    buffer = ChunkBuffer(np.concatenate(pieces), np.cumsum(sizes) - sizes, sizes)
    wrapped = _wrap(encoding, scheme, level)
    return wrapped, Chunks((buffer, *chunks.buffers[1:]), chunks.num_values)


def compress_block(
    encoding: pb.CompressiveEncoding, data: Bytes, scheme: str, level: int | None = None
) -> tuple[pb.CompressiveEncoding, Bytes]:
    """Compress one buffer; see `compress_chunks`."""
    return _wrap(encoding, scheme, level), np.frombuffer(compress(scheme, data, level), np.uint8)


def compress_values(
    encoding: pb.CompressiveEncoding,
    values: VariableWidthBlock,
    scheme: str,
    level: int | None = None,
) -> tuple[pb.CompressiveEncoding, VariableWidthBlock]:
    """Compress each value by itself; see `compress_chunks`.

    An empty value has no bytes with zstd; with lz4 it has a length, which pylance requires.
    """
    offsets = values.offsets.astype(np.int64)
    empty_frame = compress(scheme, _NOTHING) if scheme == "lz4" else b""
    pieces = [
        compress(scheme, values.data[start:end], level) if end > start else empty_frame
        for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]
    edges = bounds([len(piece) for piece in pieces])
    data = np.frombuffer(b"".join(pieces), np.uint8)
    wrapped = _wrap(encoding, scheme, level)
    return wrapped, VariableWidthBlock.of(edges, data, values.offsets.itemsize)


def pays_by_value(values: VariableWidthBlock) -> bool:
    """Return whether a compression of each value by itself would save a tenth, from some values."""
    count = values.num_values
    picked = np.unique(np.linspace(0, count - 1, min(_SAMPLE, count)).astype(np.int64))
    starts, ends = values.offsets[picked].tolist(), values.offsets[picked + 1].tolist()
    share = compressed_share([values.data[a:b] for a, b in zip(starts, ends, strict=True)])
    return share < _WORTH
