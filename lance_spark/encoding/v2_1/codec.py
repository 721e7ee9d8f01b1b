"""The contract of a compressive encoding of file versions 2.1 to 2.3.

One `CompressiveEncoding` message describes how the values of a page are encoded. It is used in
three ways:

* *chunks*: a mini-block page cuts its values into chunks of up to a few KiB; each chunk holds the
  same number of buffers. Decoders get all wanted chunks of a page at once, encoders hand out all
  chunks of a page at once, so that both work on whole pages.
* *block*: one buffer holds everything (levels, dictionaries). Levels come as many blocks of one
  encoding, one for each chunk of a page; codecs that levels use decode all of them at once.
* *values*: a full-zip page stores every value by itself; the page passes the stored values as a
  block, and the codec returns the decoded block.

A codec that cannot be used in one of these ways keeps the inherited refusal.

Codecs are found by the name of their field in the oneof. Their modules are imported when a page
first needs them; planning needs none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock, LowHalves
from lance_spark.encoding.levels import IndexArray
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

_CODECS = {
    "flat": ("v2_1.codecs.flat", "FlatCodec"),
    "variable": ("v2_1.codecs.variable", "VariableCodec"),
    "constant": ("v2_1.codecs.flat", "ConstantCodec"),
    "out_of_line_bitpacking": ("v2_1.codecs.bitpacking", "OutOfLineBitpackingCodec"),
    "inline_bitpacking": ("v2_1.codecs.bitpacking", "InlineBitpackingCodec"),
    "fsst": ("v2_1.codecs.fsst", "FsstCodec"),
    "dictionary": ("v2_1.codecs.flat", "DictionaryCodec"),
    "rle": ("v2_1.codecs.rle", "RleCodec"),
    "byte_stream_split": ("v2_1.codecs.flat", "ByteStreamSplitCodec"),
    "general": ("v2_1.codecs.general", "GeneralCodec"),
    "fixed_size_list": ("v2_1.codecs.fixed_size_list", "FixedSizeListCodec"),
    "packed_struct": ("v2_1.codecs.packed_structs", "PackedStructCodec"),
    "variable_packed_struct": ("v2_1.codecs.packed_structs", "VariablePackedStructCodec"),
    "range": ("v2_3.sequence", "RangeCodec"),
    "delta": ("v2_3.string_offsets", "DeltaCodec"),
}


@dataclass(frozen=True, slots=True)
class ChunkBuffer:
    """The same buffer of several chunks.

    - `data`: Memory that holds all of them, with other bytes between them.
    - `starts`, `sizes` (int64 arrays, one element per chunk): Position of the buffer of each chunk
      in `data`, in bytes, without padding; checked to lie inside.
    """

    data: Bytes
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chunks:
    """Some chunks of one mini-block page.

    - `buffers`: Value buffers of the chunks, in the page's order of buffers.
    - `num_values`: Values in each chunk. When written, all but the last are powers of two.
    """

    buffers: tuple[ChunkBuffer, ...]
    num_values: npt.NDArray[np.int64]

    @property
    def total(self) -> int:
        return int(self.num_values.sum())


#: Chunks, and the encoding of their values.
Encoded = tuple[pb.CompressiveEncoding, Chunks]


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Limits of a chunk: `max_bytes` of all its value buffers, `max_values` (a power of two)."""

    max_bytes: int
    max_values: int


class Codec:
    """Base of the codecs; `name` is the field's name in the `CompressiveEncoding` oneof.

    `encoding` is always the codec's own message (for example ``pb.Rle``), not the wrapping one.
    """

    name: ClassVar[str]

    def decode_chunks(self, encoding: Any, chunks: Chunks) -> DataBlock:
        """Return the values of all chunks, in order, as one block."""
        raise UnsupportedEncodingError(f"encoding {self.name!r} cannot be used inside mini-blocks")

    def decode_some(
        self, encoding: Any, chunks: Chunks, entries: npt.NDArray[np.int64]
    ) -> DataBlock | None:
        """Return some values of all chunks; None if it takes less time to decode all.

        - `entries`: Their positions among the values of all chunks, which exist.
        """
        return None

    def decode_low(self, encoding: Any, chunks: Chunks) -> LowHalves | None:
        """Return the low 64 bits of all values of 128 bits; None if it takes less time to decode
        the values.
        """
        return None

    def decode_block(self, encoding: Any, data: Bytes, num_values: int) -> DataBlock:
        """Return the `num_values` values that one buffer holds."""
        raise UnsupportedEncodingError(f"encoding {self.name!r} cannot be used for a single buffer")

    def decode_blocks(
        self, encoding: Any, buffer: ChunkBuffer, num_values: npt.NDArray[np.int64]
    ) -> FixedWidthBlock:
        """Return the values of many single buffers of fixed-width values, in order, as one block.

        The buffers have the form that `decode_block` reads; this default calls it for each buffer.

        - `buffer`: One buffer for each block.
        - `num_values`: int64 array, one element per block
        """
        width = 0
        pieces: list[Bytes] = []
        total = 0
        for start, size, count in zip(
            buffer.starts.tolist(), buffer.sizes.tolist(), num_values.tolist(), strict=True
        ):
            block = self.decode_block(encoding, buffer.data[start : start + size], count)
            if not isinstance(block, FixedWidthBlock) or block.bits_per_value % 8:
                raise UnsupportedEncodingError(
                    f"encoding {self.name!r} cannot be used for levels: their width must be whole "
                    "bytes"
                )
            width = block.bits_per_value
            total += count
            pieces.append(block.data[: count * width // 8])
        data = np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)
        return FixedWidthBlock(data, width or 8, total)

    def decode_values(self, encoding: Any, values: DataBlock) -> DataBlock:
        """Decode values that were encoded one by one."""
        raise UnsupportedEncodingError(
            f"encoding {self.name!r} cannot be used inside full-zip pages"
        )


class BlocksCodec(Codec):
    """Base of the codecs of numbers whose `decode_blocks` decodes one or more buffers at once."""

    def decode_block(self, encoding: Any, data: Bytes, num_values: int) -> FixedWidthBlock:
        """Return the values of one buffer."""
        buffer = ChunkBuffer(data, np.zeros(1, np.int64), np.array([len(data)]))
        return self.decode_blocks(encoding, buffer, np.array([num_values]))


@cache
def codec(name: str) -> Codec:
    """Return the codec of a oneof field name.

    Raises UnsupportedEncodingError: the name is not known to this release.
    """
    try:
        module, cls = _CODECS[name]
    except KeyError:
        raise UnsupportedEncodingError(f"unknown compressive encoding {name!r}") from None
    instance: Codec = getattr(import_module(f"lance_spark.encoding.{module}"), cls)()
    return instance


def _split(encoding: pb.CompressiveEncoding) -> tuple[Codec, object]:
    name = encoding.WhichOneof("compression")
    if name is None:
        raise UnsupportedEncodingError(
            "the page names a compressive encoding that this release does not know"
        )
    return codec(name), getattr(encoding, name)


def decode_chunks(encoding: pb.CompressiveEncoding, chunks: Chunks) -> DataBlock:
    """Decode mini-block chunks as `encoding` says; see `Codec.decode_chunks`."""
    result, message = _split(encoding)
    return result.decode_chunks(message, chunks)


def decode_some(
    encoding: pb.CompressiveEncoding, chunks: Chunks, entries: npt.NDArray[np.int64]
) -> DataBlock | None:
    """Decode some values of mini-block chunks; see `Codec.decode_some`."""
    result, message = _split(encoding)
    return result.decode_some(message, chunks, entries)


def decode_low(encoding: pb.CompressiveEncoding, chunks: Chunks) -> LowHalves | None:
    """Decode the low halves of values of mini-block chunks; see `Codec.decode_low`."""
    result, message = _split(encoding)
    return result.decode_low(message, chunks)


def decode_block(encoding: pb.CompressiveEncoding, data: Bytes, num_values: int) -> DataBlock:
    """Decode one buffer as `encoding` says; see `Codec.decode_block`."""
    result, message = _split(encoding)
    return result.decode_block(message, data, num_values)


def decode_blocks(
    encoding: pb.CompressiveEncoding, buffer: ChunkBuffer, num_values: npt.NDArray[np.int64]
) -> FixedWidthBlock:
    """Decode many single buffers, such as the levels of all chunks; see `Codec.decode_blocks`."""
    result, message = _split(encoding)
    return result.decode_blocks(message, buffer, num_values)


def decode_values(encoding: pb.CompressiveEncoding, values: DataBlock) -> DataBlock:
    """Decode the values of a full-zip page as `encoding` says; see `Codec.decode_values`."""
    result, message = _split(encoding)
    return result.decode_values(message, values)


def has_payload(encoding: pb.CompressiveEncoding) -> bool:
    """Whether an encoding of a sequence has a buffer."""
    compression = encoding.WhichOneof("compression")
    if compression == "delta":
        return has_payload(encoding.delta.deltas)
    if compression == "rle":
        return has_payload(encoding.rle.values) or has_payload(encoding.rle.run_lengths)
    if compression == "dictionary":
        return has_payload(encoding.dictionary.indices) or has_payload(encoding.dictionary.items)
    return compression not in ("constant", "range")


# --------------------------------------------------------------------------------------------------
# Basis of the codecs of fixed-width values: blocks as numbers, and chunks as one run of bytes.
#
# Such codecs treat values of every type as unsigned integers of the width.

UIntArray = npt.NDArray[Any]

#: Bits of integers that are wider than a word.
WIDE_BITS = (128, 256)
#: Maximum decoded bytes of a page: writers cut pages at a few MiB of values.
_MAX_PAGE_BYTES = 1 << 30

#: Up to this number, ranges are copied one by one.
_FEW_RANGES = 16
#: numpy does not return smaller arrays to the system.
_SMALL = 64 * 1024


def uint_type(bits: int) -> np.dtype[Any]:
    """Return the little-endian unsigned type of 8, 16, 32 or 64 bits."""
    return np.dtype(f"<u{bits // 8}")


def require_word(bits: int, name: str) -> int:
    """Return `bits` if integers of that width can be computed with.

    Raises UnsupportedEncodingError: the width is not 8, 16, 32 or 64.
    """
    if bits not in (8, 16, 32, 64):
        raise UnsupportedEncodingError(f"{name} of values of {bits} bits")
    return bits


def flat_bits(encoding: pb.CompressiveEncoding, name: str) -> int:
    """Return the width of values that must be flat.

    Raises UnsupportedEncodingError: the values are encoded in another way.
    """
    if encoding.WhichOneof("compression") != "flat" or encoding.flat.HasField("data"):
        raise UnsupportedEncodingError(f"{name} whose values are not flat")
    return int(encoding.flat.bits_per_value)


def flat(bits: int) -> pb.CompressiveEncoding:
    """Return the message for flat values."""
    return pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))


def values_of(block: DataBlock) -> UIntArray:
    """Return a block's values as an array of unsigned integers.

    Raises InvalidInputError: the block's values are not integers of 8, 16, 32 or 64 bits.
    """
    if not isinstance(block, FixedWidthBlock) or block.bits_per_value not in (8, 16, 32, 64):
        raise InvalidInputError("only values of 8, 16, 32 or 64 bits can be encoded this way")
    size = block.num_values * block.bits_per_value // 8
    return block.data[:size].view(uint_type(block.bits_per_value))


def block_of(values: UIntArray) -> FixedWidthBlock:
    """Return contiguous unsigned integers as a block."""
    return FixedWidthBlock(values.view(np.uint8), values.itemsize * 8, len(values))


def only_buffer(chunks: Chunks, name: str) -> ChunkBuffer:
    """Return the buffer of chunks that have one each.

    Raises CorruptFileError: the chunks have another number of buffers.
    """
    if len(chunks.buffers) != 1:
        raise CorruptFileError(f"{name} in {len(chunks.buffers)} buffers instead of 1")
    return chunks.buffers[0]


def require_page_size(num_values: int, bits: int) -> None:
    """Refuse values that would decode to more bytes than a page can hold.

    Raises CorruptFileError: the values would fill more than 1 GiB.
    """
    if num_values < 0 or num_values * bits // 8 > _MAX_PAGE_BYTES:
        raise CorruptFileError(f"{num_values} values of {bits} bits in one page")


def ranges(starts: IndexArray, lengths: IndexArray) -> IndexArray:
    """Return the positions of all ranges of `lengths` from `starts` on, one after the other."""
    before = np.cumsum(lengths) - lengths
    positions: IndexArray = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return positions


def list_items(values: pa.Array, offsets: IndexArray, lengths: IndexArray) -> pa.Array:
    """Return the first `lengths[i]` values of each list, which begins at `offsets[i]`; as a slice
    if they are adjacent.
    """
    total = int(lengths.sum())
    if total == offsets[-1] - offsets[0]:
        return values.slice(int(offsets[0]), total)
    return values.take(pa.array(ranges(offsets[:-1], lengths)))


def bounds(lengths: npt.ArrayLike) -> IndexArray:
    """Return the start of each piece if the pieces lie back to back, and the end: one number more
    than pieces.
    """
    lengths = np.asarray(lengths, np.int64)
    result = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=result[1:])
    return result


def gather(data: Bytes, starts: IndexArray, sizes: IndexArray) -> Bytes:
    """Return the bytes of several ranges as one run; a view if they already are one.

    - `starts`, `sizes`: Ranges inside `data`.
    """
    if not len(starts):
        return data[:0]
    ends = starts + sizes
    if (starts[1:] == ends[:-1]).all():
        return data[int(starts[0]) : int(ends[-1])]
    size = int(sizes[0])
    step = int(starts[1] - starts[0])
    if (
        size
        and step >= size
        and (sizes[:-1] == size).all()
        and (np.diff(starts[:-1]) == step).all()
    ):
        # Chunks of a page have one size and one distance, except the last chunk.
        count = len(starts) - 1
        first = int(starts[0])
        joined: Bytes = empty(count * size + int(sizes[-1]), np.uint8)
        joined[: count * size].reshape(count, size)[...] = np.ndarray(
            (count, size), np.uint8, buffer=data, offset=first, strides=(step, 1)
        )
        joined[count * size :] = data[int(starts[-1]) : int(ends[-1])]
        return joined
    return _scattered(data, starts, ends)


def _scattered(data: Bytes, starts: IndexArray, ends: IndexArray) -> Bytes:
    """Return the bytes of several ranges as one run; Arrow copies many that increase."""
    if len(starts) < _FEW_RANGES or (starts[1:] < ends[:-1]).any() or (starts > ends).any():
        return np.concatenate(
            [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        )
    return take_ranges(data, starts, ends)[1]


def take_ranges(data: Bytes, starts: IndexArray, ends: IndexArray) -> tuple[IndexArray, Bytes]:
    """Return ranges of bytes as one run, and offsets into it; see `take_pieces`.

    No range begins before the end of the previous range.
    """
    edges = np.zeros(2 * len(starts) + 1, np.int64)
    edges[1::2] = starts
    edges[2::2] = ends
    # Alternately a gap between two ranges, and a range.
    return take_pieces(data, edges, np.arange(1, 2 * len(starts), 2))


def take_pieces(data: Bytes, edges: IndexArray, indices: IndexArray) -> tuple[IndexArray, Bytes]:
    """Return pieces of bytes as one run, and offsets into it, by one copy of Arrow.

    - `edges`: Start of each piece of `data`, and the end of the last piece.
    - `indices`: Numbers of the pieces, in the order of the result.
    """
    if not len(indices):
        return np.zeros(1, np.int64), data[:0]
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
    pieces = pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, buffers)
    _, offset_buffer, content = pieces.take(pa.array(indices)).buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)[: len(indices) + 1]
    if content is None:
        return offsets, data[:0]
    return offsets, np.frombuffer(content, np.uint8)[: int(offsets[-1])]


def empty(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array whose elements are not set, as `numpy.empty` does.

    Its memory comes from the pool of Arrow, which reuses released memory. numpy returns large
    arrays to the system: to get their pages again takes as long as most decoding.
    """
    item_dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if count * item_dtype.itemsize < _SMALL:
        return np.empty(shape, item_dtype)
    buffer = pa.allocate_buffer(count * item_dtype.itemsize)
    return np.frombuffer(buffer, item_dtype, count).reshape(shape)
