"""The contract of a compressive encoding of file versions 2.1 and 2.2.

One `CompressiveEncoding` message describes how the values of a page became bytes. It is used in
three ways:

* *chunks*: a mini-block page cuts its values into chunks of up to a few KiB; each chunk holds the
  same number of buffers. Decoders get all wanted chunks of a page at once, encoders hand out all
  chunks of a page at once, so that both work on whole pages.
* *block*: one buffer holds everything (levels, dictionaries). Levels come as many blocks of one
  encoding, one for each chunk of a page; codecs that levels use decode all of them at once.
* *values*: a full-zip page stores every value by itself; the page hands over the stored values as a
  block, the codec gives back the block they stand for.

A codec that cannot be used in one of these ways keeps the inherited refusal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.blocks import DataBlock, FixedWidthBlock
from lance_spark.errors import UnsupportedEncodingError
from lance_spark.storage.source import Bytes


@dataclass(frozen=True, slots=True)
class ChunkBuffer:
    """The same buffer of several chunks.

    Attributes
    ----------
    data : uint8 array
        Memory that holds all of them, with anything in between.
    starts, sizes : int64 arrays, one element per chunk
        Position of the buffer of each chunk in `data`, in bytes, without padding; checked to lie
        inside.
    """

    data: Bytes
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Chunks:
    """Some chunks of one mini-block page.

    Attributes
    ----------
    buffers : tuple of ChunkBuffer
        Value buffers of the chunks, in the page's order of buffers.
    num_values : int64 array
        Values in each chunk. When written, all but the last are powers of two.
    """

    buffers: tuple[ChunkBuffer, ...]
    num_values: npt.NDArray[np.int64]

    @property
    def total(self) -> int:
        return int(self.num_values.sum())


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """What a chunk may hold at most: `max_bytes` over all its value buffers, `max_values` (a power
    of two).
    """

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

    def decode_block(self, encoding: Any, data: Bytes, num_values: int) -> DataBlock:
        """Return the `num_values` values that one buffer holds."""
        raise UnsupportedEncodingError(f"encoding {self.name!r} cannot be used for a single buffer")

    def decode_blocks(
        self, encoding: Any, buffer: ChunkBuffer, num_values: npt.NDArray[np.int64]
    ) -> FixedWidthBlock:
        """Return the values of many single buffers of fixed-width values, in order, as one block.

        Same bytes as `decode_block` reads; this default calls it for each buffer.

        Parameters
        ----------
        buffer : ChunkBuffer
            One buffer for each block.
        num_values : int64 array, one element per block
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
