"""Strings in mini-block chunks that are compressed: ``General { zstd or lz4, Variable }``, written.

A Zstandard buffer holds two frames one after the other, the offsets of the chunk and its bytes, where the offsets are
more than a trifle:

========  ==============================================
bytes     content
========  ==============================================
8         length before compression
a frame   offsets of the chunk, as `variable` tells
a frame   bytes of its values, and padding
========  ==============================================

A decompressor takes frames in a row for one text. The two are coded by the frequencies of their own bytes, which saves
a tenth, and the bytes are compressed from where they lie. LZ4 blocks cannot follow one another, and have no such
frequencies.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.blocks import VariableWidthBlock
from lance_spark.encoding.compression import compress, frame, message_of
from lance_spark.encoding.v2_1 import variable
from lance_spark.encoding.v2_1.codec import ChunkBuffer, ChunkLimits, Chunks
from lance_spark.proto import encodings_v2_1_pb2 as pb

Encoded = tuple[pb.CompressiveEncoding, Chunks]
IndexArray = npt.NDArray[np.int64]

#: A frame of their own costs offsets some 20 bytes and microseconds.
_WORTH_A_FRAME = 1024
#: Chunks that are compressed before all are.
_SAMPLE = 4
#: What compression must save if nobody asked for it.
_WORTH = 0.9
_TOO_LITTLE = 1024


def encode_chunks(
    block: VariableWidthBlock,
    limits: ChunkLimits,
    scheme: str,
    level: int | None = None,
    *,
    forced: bool = False,
) -> Encoded:
    """Return strings as mini-block chunks, compressed if that pays.

    Parameters
    ----------
    block : VariableWidthBlock
    limits : ChunkLimits
    scheme : str
        ``lz4`` or ``zstd``.
    level : int, optional
        Of zstd.
    forced : bool
        Compress whenever that saves anything at all.

    Raises
    ------
    InvalidInputError
        A value is too long for a chunk, or the scheme or the level is not known.
    """
    cuts = variable.cut(block, limits)
    pieces = _compressed(block, cuts, scheme, level, forced)
    if pieces is None:
        return variable.cut_chunks(block, cuts)
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    data = np.frombuffer(b"".join(pieces), np.uint8)
    inner = variable.message(block.offsets.dtype.itemsize)
    general = pb.General(compression=message_of(scheme, level), values=inner)
    chunks = Chunks((ChunkBuffer(data, np.cumsum(sizes) - sizes, sizes),), np.diff(cuts))
    return pb.CompressiveEncoding(general=general), chunks


def _compressed(
    block: VariableWidthBlock, cuts: IndexArray, scheme: str, level: int | None, forced: bool
) -> list[bytes] | None:
    """Return the chunks compressed, or None if too little is saved."""
    count = len(cuts) - 1
    width = block.offsets.dtype.itemsize
    total = int(block.offsets[-1] - block.offsets[0]) + width * (block.num_values + count)
    if not forced and total < _TOO_LITTLE:
        return None
    tried: dict[int, bytes] = {}
    if not forced:
        plain = 0
        for i in np.unique(np.linspace(0, count - 1, _SAMPLE).astype(np.int64)).tolist():
            offsets, text = variable.chunk_parts(block, int(cuts[i]), int(cuts[i + 1]))
            plain += len(offsets) + len(text)
            tried[i] = _chunk(offsets, text, scheme, level)
        if sum(len(piece) for piece in tried.values()) >= plain * _WORTH:
            return None
    bounds = cuts.tolist()
    pieces = [
        tried[i]
        if i in tried
        else _chunk(*variable.chunk_parts(block, bounds[i], bounds[i + 1]), scheme, level)
        for i in range(count)
    ]
    return pieces if sum(len(piece) for piece in pieces) < total else None


def _chunk(
    offsets: npt.NDArray[np.uint8], text: npt.NDArray[np.uint8], scheme: str, level: int | None
) -> bytes:
    size = len(offsets) + len(text)
    if scheme == "zstd" and len(offsets) >= _WORTH_A_FRAME and len(text) >= _WORTH_A_FRAME:
        return b"".join(
            (size.to_bytes(8, "little"), frame(scheme, offsets, level), frame(scheme, text, level))
        )
    return compress(scheme, np.concatenate([offsets, text]), level)
