"""What all encodings of version 2.0 pages share: the page at hand, the contract of a decoder, and
opening one.

A page is described by a tree of `ArrayEncoding` messages. Each message is opened once into a
decoder, which checks that the page's buffers are large enough for the values it promises; decoders
then read any rows of the page, as often as asked. The count of values is never stored: the page has
its rows, and every encoding derives its inner counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from lance_spark.encoding.rows import Rows
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ByteRange, ReadPlan

#: Scattered reads of one buffer that lie this close are one read: stores merge them anyway.
GAP = 64 * 1024

_ENCODINGS = {
    "flat": "flat",
    "nullable": "nullable",
    "fixed_size_list": "fixed_size_list",
    "binary": "binary",
    "dictionary": "dictionary",
    "fsst": "fsst",
    "packed_struct": "packed_struct",
    "bitpacked": "bitpacked",
    "bitpacked_for_non_neg": "bitpacked_for_non_neg",
    "fixed_size_binary": "fixed_size_binary",
}


class Decoder(Protocol):
    """Reads values of one encoding of one page."""

    def read(self, rows: Rows, per_row: int = 1) -> ReadPlan[pa.Array]:
        """Plan the reading of ``len(rows) * per_row`` values.

        Parameters
        ----------
        rows : Rows
            Row ``r`` consists of the values ``r * per_row`` to ``(r + 1) * per_row - 1``.
        per_row : int
            More than 1 below fixed-size lists.

        Returns
        -------
        pa.Array
            Of the type that the decoder was opened for.
        """
        ...


@dataclass(frozen=True, slots=True)
class PageBuffers:
    """The buffers that the messages of one page refer to."""

    page: tuple[ByteRange, ...]
    column: tuple[ByteRange, ...]

    def find(self, reference: pb.Buffer) -> ByteRange:
        """Return the place of a buffer.

        Raises
        ------
        CorruptFileError
            The buffer does not exist.
        UnsupportedEncodingError
            The buffer belongs to the file: nothing writes such references.
        """
        if reference.buffer_type not in (pb.Buffer.page, pb.Buffer.column):
            raise UnsupportedEncodingError(
                f"a buffer of type {reference.buffer_type} is asked for; only those of the page "
                "(0) "
                "and of the column (1) can be read"
            )
        owned = self.page if reference.buffer_type == pb.Buffer.page else self.column
        if reference.buffer_index >= len(owned):
            raise CorruptFileError(
                f"buffer {reference.buffer_index} is missing: there are {len(owned)}"
            )
        return owned[reference.buffer_index]


Open = Callable[[Any, pa.DataType, "int | None", PageBuffers], Decoder]


def open_encoding(
    encoding: pb.ArrayEncoding, dtype: pa.DataType, count: int | None, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of a message.

    Parameters
    ----------
    encoding : ArrayEncoding
    dtype : pa.DataType
        Type of the arrays to return.
    count : int or None
        How many values there are; None for the bytes of strings: as many as the buffer holds.
    buffers : PageBuffers

    Raises
    ------
    CorruptFileError
        The message contradicts itself, the type or the page's buffers.
    UnsupportedEncodingError
        The encoding is unknown, or does not belong to version 2.0.
    """
    name = encoding.WhichOneof("array_encoding")
    if name not in _ENCODINGS:
        raise UnsupportedEncodingError(
            f"encoding {name or 'unknown'!r} cannot be read in pages of file version 2.0"
        )
    module = import_module(f"lance_spark.encoding.v2_0.codecs.{_ENCODINGS[name]}")
    opener: Open = module.open_message
    return opener(getattr(encoding, name), dtype, count, buffers)


def expand(rows: Rows, per_row: int) -> Rows:
    """Return the numbers of the values that `rows` stand for."""
    if per_row == 1:
        return rows
    if isinstance(rows, range):
        return range(rows.start * per_row, rows.stop * per_row)
    return (rows[:, None] * per_row + np.arange(per_row)).ravel()


def last_of(rows: Rows) -> int:
    """Return the highest of `rows`, of which there is at least one."""
    return int(rows[-1])
