"""General compressors of single buffers, as `BufferCompression` messages name them.

======  =======================================================
scheme  bytes
======  =======================================================
lz4     u32 length before compression, then one raw LZ4 block
zstd    u64 length before compression, then one Zstandard frame
======  =======================================================

Lengths are little-endian. A Zstandard frame without the length is read as well: it begins with the
magic number, and the reserved bit of its header is 0.

One call decompresses many LZ4 blocks, which are put together to one LZ4 frame:

==================  ================================================================================
bytes               content
==================  ================================================================================
4                   magic number, ``04 22 4d 18``
1                   flags: ``60``, version 1, blocks that do not depend on each other, no checksums
1                   largest block: ``40`` 64 KiB, ``50`` 256 KiB, ``60`` 1 MiB, ``70`` 4 MiB
1                   checksum of the two bytes before
4 + n, repeated     u32 n, little-endian, and a raw block of n bytes
4                   0
==================  ================================================================================

The length before compression and the length of the block both take 4 bytes, so the frame has the
second in the place of the first. Specification: lz4_Frame_format.md of LZ4.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

#: Start of a Zstandard frame.
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
#: Maximum bytes of a decompressed buffer: offsets of strings of a page have 31 bits in practice.
MAX_SIZE = (1 << 31) - 1

_NAMES = {pb.COMPRESSION_ALGORITHM_LZ4: "lz4", pb.COMPRESSION_ALGORITHM_ZSTD: "zstd"}
_SCHEMES = {name: scheme for scheme, name in _NAMES.items()}
#: A byte of LZ4 expands to at most 255; a Zstandard block of 4 bytes to at most 128 KiB.
_LZ4_RATIO = 255
_ZSTD_RATIO = 1 << 15
#: Bytes that one call decompresses, so that they stay in the cache of the processor.
_TOGETHER = 1 << 19
#: Bytes of the head of an LZ4 frame, and of the length of a block.
_LZ4_HEAD = 7
_LZ4_PREFIX = 4
#: Largest block, and the head of a frame of such blocks.
_LZ4_HEADS = (
    (1 << 16, bytes.fromhex("04224d18604082")),
    (1 << 18, bytes.fromhex("04224d186050fb")),
    (1 << 20, bytes.fromhex("04224d18606051")),
    (1 << 22, bytes.fromhex("04224d18607073")),
)
#: Bytes before a Zstandard frame, and the first bytes, which say how a buffer is stored.
_HEAD = 8
_NOTHING = np.zeros(0, np.uint8)
#: Literal bytes at the end of every LZ4 block that has as many.
_LZ4_LITERALS = 5


def scheme_of(message: pb.BufferCompression) -> str:
    """Return the name, ``lz4`` or ``zstd``, of the scheme that a message names.

    Raises UnsupportedEncodingError: the message names an unknown scheme.
    """
    name = _NAMES.get(message.scheme)
    if name is None:
        raise UnsupportedEncodingError(f"compression scheme {message.scheme} is not known")
    return name


def message_of(scheme: str, level: int | None) -> pb.BufferCompression:
    """Return the message for a scheme by its name; it records `level` for zstd only."""
    if scheme not in _SCHEMES:
        raise InvalidInputError(f"compression must be 'lz4' or 'zstd', not {scheme!r}")
    message = pb.BufferCompression(scheme=_SCHEMES[scheme])
    if level is not None and scheme == "zstd":
        message.level = level
    return message


def compress(scheme: str, data: Bytes, level: int | None = None) -> bytes:
    """Return `data` compressed, with its length in front.

    - `scheme`: ``lz4`` or ``zstd``.
    - `level`: Level of zstd: 1 to 22, or below 0 for more speed; 3 by default.

    Raises InvalidInputError: the scheme or the level is not known.
    """
    prefix = len(data).to_bytes(4 if scheme == "lz4" else 8, "little")
    return prefix + frame(scheme, data, level)


def frame(scheme: str, data: Bytes, level: int | None = None) -> bytes:
    """Return `data` compressed, without its length; see `compress`."""
    return _codec(scheme, level).compress(data, asbytes=True)  # type: ignore[no-any-return]


def compressed_share(
    pieces: Sequence[Bytes], scheme: str = "zstd", enough: float = float("inf")
) -> float:
    """Return the compressed size of a sample as a share of its bytes, with a quick compressor; 1
    for an empty sample.

    - `enough`: A share above which the result may be too small, but is above it.
    """
    before, after = sum(map(len, pieces)), 0
    for piece in pieces:
        after += len(compress(scheme, piece, 1))
        if after > enough * before:
            break
    return after / before if before else 1.0


def decompress(scheme: str, data: Bytes, max_size: int = MAX_SIZE) -> Bytes:
    """Return the bytes that `data` was compressed from.

    - `scheme`: ``lz4`` or ``zstd``.
    - `max_size`: Maximum bytes that the caller accepts; more is an error, raised before memory is
      allocated.

    Raises CorruptFileError: the bytes are not of this scheme, or the length in front is wrong.
    """
    if scheme == "lz4":
        return _decompress_lz4(data, max_size)
    if not len(data):
        return data
    if _is_bare(data):
        return _decompress_bare(data, max_size)
    size = int.from_bytes(data[:8].tobytes(), "little")
    _check_claim(size, len(data) - 8, _ZSTD_RATIO, max_size)
    return _decompress(scheme, data[8:], size)


def claimed_size(scheme: str, head: bytes) -> int | None:
    """Return the length that the first eight bytes of a buffer claim; None if they have none."""
    if scheme == "lz4":
        return int.from_bytes(head[:4], "little")
    return None if _is_bare(np.frombuffer(head, np.uint8)) else int.from_bytes(head[:8], "little")


class Decompressed(NamedTuple):
    """The contents of buffers: content i is ``data[starts[i] : starts[i] + sizes[i]]``."""

    data: Bytes
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


def decompress_many(
    scheme: str,
    data: Bytes,
    starts: npt.NDArray[np.int64],
    stored: npt.NDArray[np.int64],
    max_size: int,
) -> Decompressed:
    """Return the bytes that many buffers were compressed from; each begins at a multiple of 8.

    One call of the compressor decompresses many frames or blocks; see `decompress`.

    - `scheme`: ``lz4`` or ``zstd``.
    - `data`: Buffer i is ``data[starts[i] : starts[i] + stored[i]]``.
    - `max_size`: Maximum bytes of all contents together.

    Raises CorruptFileError: a buffer does not have this scheme, or the contents are larger than
    `max_size`.
    """
    bounds = zip(starts.tolist(), (starts + stored).tolist(), strict=True)
    buffers = [data[start:stop] for start, stop in bounds]
    sizes = _claimed_sizes(scheme, data, starts, stored)
    if sizes is None:
        return _joined(_one_by_one(scheme, buffers, max_size))
    # Each call has about as many bytes.
    groups = np.cumsum(sizes) // _TOGETHER
    heads = np.flatnonzero(np.diff(groups, prepend=-1))
    pieces: list[Bytes] = []
    bytes_left = max_size
    for begin, end in zip(heads.tolist(), [*heads[1:].tolist(), len(buffers)], strict=True):
        size = int(sizes[begin:end].sum())
        if size > bytes_left:
            raise CorruptFileError(f"compressed buffers claim to hold more than {max_size} bytes")
        text = _decompress_group(
            scheme, buffers[begin:end], stored[begin:end], sizes[begin:end], bytes_left
        )
        pieces.append(text)
        bytes_left -= size
    return _aligned(pieces, sizes)


def _claimed_sizes(
    scheme: str, data: Bytes, starts: npt.NDArray[np.int64], stored: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64] | None:
    """Return the lengths that buffers claim; None if one of them must be looked at alone."""
    if len(starts) < 2 or int(stored.min()) <= _HEAD:
        return None
    heads = data[starts[:, None] + np.arange(_HEAD)]
    if scheme == "lz4":
        words = heads[:, :_LZ4_PREFIX].copy().view("<u4").reshape(-1)
        sizes: npt.NDArray[np.int64] = words.astype(np.int64)
        return None if (sizes > (stored - _LZ4_PREFIX) * _LZ4_RATIO).any() else sizes
    is_bare = (heads[:, :4] == np.frombuffer(ZSTD_MAGIC, np.uint8)).all(axis=1)
    claims = heads.view("<u8").reshape(-1)
    limit = np.minimum((stored - _HEAD) * _ZSTD_RATIO, MAX_SIZE)
    if is_bare.any() or (claims > limit.astype(np.uint64)).any():
        return None
    result: npt.NDArray[np.int64] = claims.astype(np.int64)
    return result


def _decompress_group(
    scheme: str,
    buffers: Sequence[Bytes],
    stored: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    max_size: int,
) -> Bytes:
    """Return the contents of buffers, one after the other."""
    if scheme == "zstd":
        return decompress_frames([data[_HEAD:] for data in buffers], int(sizes.sum()))
    text = decompress_lz4_blocks(buffers, stored, sizes) if len(buffers) > 1 else None
    if text is None:
        # Decompressed one by one, so that the error names the buffer.
        text = np.concatenate([_NOTHING, *_one_by_one(scheme, buffers, max_size)])
    return text


def _one_by_one(scheme: str, buffers: Sequence[Bytes], max_size: int) -> list[Bytes]:
    pieces: list[Bytes] = []
    for data in buffers:
        pieces.append(decompress(scheme, data, max_size))
        max_size -= len(pieces[-1])
    return pieces


def _joined(contents: Sequence[Bytes]) -> Decompressed:
    return _aligned(contents, np.array([len(content) for content in contents], np.int64))


def _aligned(pieces: Sequence[Bytes], sizes: npt.NDArray[np.int64]) -> Decompressed:
    """Return contents, which follow one another in some pieces, at multiples of 8 bytes."""
    text = pieces[0] if len(pieces) == 1 else np.concatenate([_NOTHING, *pieces])
    room = (sizes + 7) // 8 * 8
    starts = np.cumsum(room) - room
    if np.array_equal(room, sizes):
        return Decompressed(text, starts, sizes)
    data = np.empty(int(room.sum()), np.uint8)
    ends = np.cumsum(sizes)
    for start, begin, end in zip(
        starts.tolist(), (ends - sizes).tolist(), ends.tolist(), strict=True
    ):
        data[start : start + end - begin] = text[begin:end]
    return Decompressed(data, starts, sizes)


def decompress_lz4_blocks(
    buffers: Sequence[Bytes], stored: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint8] | None:
    """Return the content of all blocks; None if they must be decompressed one by one.

    - `buffers`: Blocks with their length before compression in front.
    - `stored`: Bytes of each buffer.
    - `sizes`: The lengths before compression, which the caller has checked to be possible.
    """
    stored = stored - _LZ4_PREFIX
    if int(stored.min()) < _LZ4_LITERALS or int(sizes.min()) < _LZ4_LITERALS:
        return None
    largest = max(int(stored.max()), int(sizes.max()))
    head = next((head for limit, head in _LZ4_HEADS if largest <= limit), None)
    if head is None:
        return None
    parts = [np.frombuffer(head, np.uint8), *buffers, np.zeros(_LZ4_PREFIX, np.uint8)]
    frame = np.concatenate(parts)
    ends = np.cumsum(stored + _LZ4_PREFIX) + _LZ4_HEAD
    positions = (ends - stored - _LZ4_PREFIX)[:, None] + np.arange(_LZ4_PREFIX)
    frame[positions] = stored.astype("<u4")[:, None].view(np.uint8)
    total = int(sizes.sum())
    try:
        text = np.frombuffer(pa.Codec("lz4").decompress(frame, decompressed_size=total), np.uint8)
    except (OSError, ValueError, MemoryError, pa.ArrowException):
        return None
    # Arrow does not report blocks with too little content.
    last = np.arange(-_LZ4_LITERALS, 0)
    result = text[np.cumsum(sizes)[:, None] + last]
    return text if (result == frame[ends[:, None] + last]).all() else None


def decompress_frames(frames: list[Bytes], size: int) -> Bytes:
    """Return the content of adjacent Zstandard frames.

    - `size`: Total bytes of their content.

    Raises CorruptFileError: the content has another size.
    """
    body = frames[0] if len(frames) == 1 else np.concatenate(frames)
    _check_claim(size, len(body), _ZSTD_RATIO, MAX_SIZE)
    return _decompress("zstd", body, size)


def _is_bare(data: Bytes) -> bool:
    """Return whether a frame has no length before it."""
    head = data[:8].tobytes()
    return len(head) < 8 or (head.startswith(ZSTD_MAGIC) and not head[4] & 0x10)


def _decompress_lz4(data: Bytes, max_size: int) -> Bytes:
    size = int.from_bytes(data[:4].tobytes(), "little")
    body = data[4:]
    _check_claim(size, len(body), _LZ4_RATIO, max_size)
    if not size:
        return np.zeros(0, np.uint8)
    result = _decompress("lz4", body, size)
    # Arrow does not report a block with less content than claimed: bytes are missing at the end.
    literals = min(size, _LZ4_LITERALS)
    if result[-literals:].tobytes() != body[-literals:].tobytes():
        raise CorruptFileError(f"an LZ4 block does not hold the {size} bytes that it claims")
    return result


def _check_claim(size: int, stored: int, ratio: int, max_size: int) -> None:
    if stored <= 0 or size > min(max_size, stored * ratio):
        raise CorruptFileError(
            f"a compressed buffer of {max(stored, 0)} bytes claims to hold {size} bytes; "
            f"at most {max_size} are expected"
        )


def _decompress(scheme: str, body: Bytes, size: int) -> Bytes:
    try:
        result = _codec(scheme, None).decompress(body, decompressed_size=size)
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise CorruptFileError(f"a buffer cannot be decompressed: {error}") from None
    return np.frombuffer(result, np.uint8) if size else np.zeros(0, np.uint8)


def _decompress_bare(data: Bytes, max_size: int) -> Bytes:
    limit = min(max_size, len(data) * _ZSTD_RATIO)
    pieces: list[bytes] = []
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), "zstd") as stream:
            while limit >= 0 and (piece := stream.read(min(limit + 1, 1 << 20))):
                pieces.append(piece)
                limit -= len(piece)
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        raise CorruptFileError(f"a buffer cannot be decompressed: {error}") from None
    if limit < 0:
        raise CorruptFileError(f"a Zstandard frame holds more than the expected {max_size} bytes")
    return np.frombuffer(b"".join(pieces), np.uint8)


def zstd_levels() -> tuple[int, int]:
    """Return the lowest and the highest level of zstd."""
    codec = pa.Codec
    return codec.minimum_compression_level("zstd"), codec.maximum_compression_level("zstd")


@cache
def _codec(scheme: str, level: int | None) -> pa.Codec:
    if scheme == "lz4":
        return pa.Codec("lz4_raw")
    if scheme != "zstd":
        raise InvalidInputError(f"compression must be 'lz4' or 'zstd', not {scheme!r}")
    level = 3 if level is None else level
    low, high = zstd_levels()
    if not low <= level <= high:
        raise InvalidInputError(f"compression level {level} is not one of {low} to {high}")
    return pa.Codec("zstd", level)
