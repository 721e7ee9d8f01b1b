"""What all encoders of version 2.0 pages share: the buffers of the page that is being made.

An encoder appends the buffers it needs and returns the `ArrayEncoding` message that refers to them
by number. A validity bitmap comes before the values it belongs to, indices before what they point
into, as pylance orders them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lance_spark.encoding.meta import EncodedPage
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import Bytes


class NewBuffers:
    """The buffers of one page, in the order of their numbers."""

    def __init__(self) -> None:
        self._buffers: list[Bytes] = []

    def add(self, data: Bytes | pa.Buffer | bytes) -> pb.Buffer:
        """Append a buffer and return the message that refers to it."""
        self._buffers.append(np.frombuffer(data, np.uint8))
        return pb.Buffer(buffer_index=len(self._buffers) - 1, buffer_type=pb.Buffer.page)

    def page(self, num_rows: int, encoding: pb.ArrayEncoding) -> EncodedPage:
        """Return the finished page."""
        raw, is_header = encoding.SerializeToString(), encoding.HasField("struct")
        return EncodedPage(tuple(self._buffers), num_rows, raw, is_header)
