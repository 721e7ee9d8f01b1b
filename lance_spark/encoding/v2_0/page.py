"""Basis of all encodings of version 2.0 pages: buffers of a page, decoders, and values of one
width.

A page is described by a tree of `ArrayEncoding` messages. Each message is opened once into a
decoder, which checks that the page's buffers are large enough for its values. Decoders then read
any rows of the page, any number of times. The count of values is never stored: a page has a number
of rows, from which every encoding derives its inner counts.

An encoder appends the buffers it needs and returns the message that refers to them by number. As in
pylance, a validity bitmap comes before its values, and indices before the items that they refer to.

Values of one width lie back to back in a buffer: value i is at byte ``i * width``. A range of rows
is one byte range and no copy. Scattered rows are read in clusters: one read for rows that lie close
together, without the bytes between distant rows. Kernels select the rows from the clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ByteRange, Bytes, ReadPlan

#: Scattered reads of one buffer that lie this close are one read: stores merge them anyway.
GAP = 64 * 1024

_ENCODINGS = {
    "binary": "strings",
    "bitpacked": "fixed_width",
    "bitpacked_for_non_neg": "fixed_width",
    "dictionary": "strings",
    "fixed_size_binary": "strings",
    "fixed_size_list": "fixed_width",
    "flat": "fixed_width",
    "fsst": "strings",
    "nullable": "fixed_width",
    "packed_struct": "fixed_width",
}


class Decoder(Protocol):
    """Reads values of one encoding of one page."""

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        """Plan the reading of ``len(rows) * per_row`` values.

        - `rows`: Row ``r`` consists of the values ``r * per_row`` to ``(r + 1) * per_row - 1``.
        - `per_row`: More than 1 below fixed-size lists.

        Returns an array of the type that the decoder was opened for.
        """
        ...


@dataclass(frozen=True, slots=True)
class PageBuffers:
    """The buffers that the messages of one page refer to."""

    page: tuple[ByteRange, ...]
    column: tuple[ByteRange, ...]

    def find(self, reference: pb.Buffer) -> ByteRange:
        """Return the place of a buffer.

        Raises CorruptFileError: the buffer does not exist. Raises UnsupportedEncodingError: the
        buffer belongs to the file: no known writer makes such references.
        """
        if reference.buffer_type not in (pb.Buffer.page, pb.Buffer.column):
            raise UnsupportedEncodingError(
                f"the page refers to a buffer of type {reference.buffer_type}; only buffers of the "
                "page (0) and of the column (1) can be read"
            )
        owned = self.page if reference.buffer_type == pb.Buffer.page else self.column
        if reference.buffer_index >= len(owned):
            raise CorruptFileError(
                f"buffer {reference.buffer_index} is missing: the page refers to it, and has "
                f"{len(owned)}"
            )
        return owned[reference.buffer_index]


Open = Callable[[Any, pa.DataType, "int | None", PageBuffers], Decoder]


def open_encoding(
    encoding: pb.ArrayEncoding, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a message.

    - `dtype`: Type of the arrays to return.
    - `count`: Number of values; None for the bytes of strings, which fill the buffer.

    Raises CorruptFileError: the message contradicts itself, the type or the page's buffers. Raises
    UnsupportedEncodingError: the encoding is unknown, or does not belong to version 2.0.
    """
    name = encoding.WhichOneof("array_encoding")
    if name not in _ENCODINGS:
        raise UnsupportedEncodingError(
            f"encoding {name or 'unknown'!r} cannot be read in pages of file version 2.0"
        )
    module = import_module(f"lance_spark.encoding.v2_0.{_ENCODINGS[name]}")
    opener: Open = getattr(module, f"open_{name}")
    return opener(getattr(encoding, name), dtype, count, buffers)


def last_of(rows: Rows) -> int:
    """Return the highest of `rows`, which must not be empty."""
    return int(rows[-1])


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


def read_slots(buffer: ByteRange, width: int, rows: Rows) -> ReadPlan[Bytes]:
    """Plan the reading of values of `width` bytes.

    - `buffer`: Only the last value may end outside of it: the missing bytes are read as zeros.
    - `width`: Bytes per value.
    - `rows`: May repeat a row, but must not decrease.

    The result is aligned for values of up to 8 bytes, if `width` is a power of two. Raises
    CorruptFileError: a value lies outside the buffer.
    """
    size = len(rows) * width
    if not size:
        return np.zeros(0, np.uint8)
    if isinstance(rows, range):
        (data,) = yield [_inside(buffer, rows.start, rows.stop - 1, width)]
        return _aligned(_padded(data, size), width)
    cuts = np.flatnonzero(np.diff(rows) * width > GAP) + 1
    bounds = [0, *cuts.tolist(), len(rows)]
    firsts = rows[bounds[:-1]].tolist()
    lasts = rows[np.asarray(bounds[1:]) - 1].tolist()
    clusters = yield [
        _inside(buffer, first, last, width) for first, last in zip(firsts, lasts, strict=True)
    ]
    slots = np.empty((len(rows), width), np.uint8)
    for i, data in enumerate(clusters):
        first, last = firsts[i], lasts[i]
        piece = slice(bounds[i], bounds[i + 1])
        values = _padded(data, (last + 1 - first) * width).reshape(-1, width)
        slots[piece] = _pick(values, rows[piece] - first)
    return slots.reshape(-1)


def pick_slots(data: Bytes, width: int, rows: Rows) -> Bytes:
    """Return values of `width` bytes from bytes in memory."""
    if isinstance(rows, range):
        return _aligned(data[rows.start * width : rows.stop * width], width)
    return _pick(data[: len(data) // width * width].reshape(-1, width), rows).reshape(-1)


def _inside(buffer: ByteRange, first: int, last: int, width: int) -> ByteRange:
    if last * width >= buffer.length:
        raise CorruptFileError(
            f"value {last} of {width} bytes lies outside its buffer of {buffer.length} bytes"
        )
    start = first * width
    return ByteRange(buffer.offset + start, min((last + 1) * width, buffer.length) - start)


def _padded(data: Bytes, size: int) -> Bytes:
    if len(data) == size:
        return data
    return np.concatenate([data, np.zeros(size - len(data), np.uint8)])


def _pick(values: npt.NDArray[np.uint8], rows: RowNumbers) -> npt.NDArray[np.uint8]:
    width = values.shape[1]
    if width in (2, 4, 8):
        words = values.view(f"<u{width}")[:, 0][rows]
        return words.view(np.uint8).reshape(-1, width)
    picked: npt.NDArray[np.uint8] = values[rows]
    return picked


def _aligned(data: Bytes, width: int) -> Bytes:
    # Known writers align buffers; other files need a copy.
    unit = min(width & -width, 8)
    return data if unit <= 1 or data.ctypes.data % unit == 0 else data.copy()
