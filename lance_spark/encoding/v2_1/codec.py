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

from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock
from lance_spark.errors import UnsupportedEncodingError
from lance_spark.proto import encodings_v2_1_pb2 as pb
from lance_spark.storage.source import Bytes

_CODECS = {
    "flat": ("v2_1.codecs.flat", "FlatCodec"),
    "variable": ("v2_1.codecs.variable", "VariableCodec"),
    "constant": ("v2_1.codecs.constant", "ConstantCodec"),
    "out_of_line_bitpacking": ("v2_1.codecs.out_of_line_bitpacking", "OutOfLineBitpackingCodec"),
    "inline_bitpacking": ("v2_1.codecs.inline_bitpacking", "InlineBitpackingCodec"),
    "fsst": ("v2_1.codecs.strings.fsst", "FsstCodec"),
    "dictionary": ("v2_1.codecs.dictionary", "DictionaryCodec"),
    "rle": ("v2_1.codecs.rle", "RleCodec"),
    "byte_stream_split": ("v2_1.codecs.byte_stream_split", "ByteStreamSplitCodec"),
    "general": ("v2_1.codecs.general", "GeneralCodec"),
    "fixed_size_list": ("v2_1.codecs.fixed_size_list", "FixedSizeListCodec"),
    "packed_struct": ("v2_1.codecs.packed_struct", "PackedStructCodec"),
    "variable_packed_struct": ("v2_1.codecs.variable_packed_struct", "VariablePackedStructCodec"),
    "range": ("v2_3.range", "RangeCodec"),
    "delta": ("v2_3.delta", "DeltaCodec"),
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
