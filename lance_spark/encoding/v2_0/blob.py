"""Blob columns: large binaries that lie elsewhere in the file.

The column's own encoding is `Blob`; its pages hold one row of 16 bytes per value (a `PackedStruct`):

=========  =========  ============================================================================
bytes      field      content
=========  =========  ============================================================================
0 to 7     position   byte of the file where the value starts
8 to 15    size       bytes of the value
=========  =========  ============================================================================

An empty value is (0, 0), a null (1, 0).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from lance_spark.encoding.arrow_blocks import bitmap, is_variable, offset_type
from lance_spark.encoding.meta import ColumnMeta, FieldReader, Place
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_0.pages import ColumnReader
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ByteRange, ReadPlan

DESCRIPTION = pa.struct(
    [
        pa.field("position", pa.uint64(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
    ]
)


class BlobReader:
    """Reads the bytes of blobs: first where they are, then each of them."""

    def __init__(self, descriptions: FieldReader, kind: pa.DataType, place: Place) -> None:
        self._descriptions = descriptions
        self._kind = kind
        self._place = place

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        found = yield from self._descriptions.read(rows)
        positions = found.field(0).to_numpy().astype(object)
        sizes = found.field(1).to_numpy().astype(object)
        total = int(sizes.sum()) if len(sizes) else 0
        dtype = offset_type(self._kind)
        if total > np.iinfo(dtype).max:
            raise InvalidInputError(
                f"{self._place.file}, column {self._place.column!r}: blobs of {total} bytes do not "
                f"fit one array of type {self._kind}: read fewer rows at a time"
            )
        lengths = sizes.astype(np.int64)
        stored = np.flatnonzero(lengths)
        wanted = [
            ByteRange(position, size)
            for position, size in zip(positions[stored], sizes[stored], strict=True)
        ]
        values = (yield wanted) if wanted else []
        offsets = np.zeros(len(lengths) + 1, dtype)
        np.cumsum(lengths, out=offsets[1:])
        data = np.concatenate(values) if values else np.zeros(0, np.uint8)
        absent = (lengths == 0) & (positions == 1)
        mask = bitmap(~absent) if absent.any() else None
        buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._kind, len(lengths), buffers)


def open_blob(kind: pa.DataType, column: ColumnMeta, place: Place) -> FieldReader:
    """Return the reader of a blob column.

    Parameters
    ----------
    kind : pa.DataType
        A struct of two uint64 children to read where the blobs are, or a binary type to read the blobs.
    column : ColumnMeta
    place : Place
        Of the column, for error messages.

    Raises
    ------
    CorruptFileError
        The column's own encoding cannot be parsed.
    UnsupportedEncodingError
        It is not `Blob`, or the type is another one.
    """
    try:
        name = pb.ColumnEncoding.FromString(column.encoding).WhichOneof("column_encoding")
    except DecodeError as error:
        raise CorruptFileError(
            f"{place}: the column's encoding cannot be parsed: {error}"
        ) from None
    if name != "blob":
        # Files of a table that became a blob column later, or that a writer without blobs wrote.
        return ColumnReader(kind, column, place)
    if is_variable(kind):
        return BlobReader(ColumnReader(DESCRIPTION, column, place), kind, place)
    if [field.type for field in kind] != [pa.uint64(), pa.uint64()]:
        raise UnsupportedEncodingError(f"{place}: a blob cannot be read as type {kind}")
    return ColumnReader(kind, column, place)
