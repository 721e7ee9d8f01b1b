"""Blob columns: large binaries that lie elsewhere in the file.

The column's own encoding is `Blob`; its pages hold one row of 16 bytes per value (a
`PackedStruct`):

=========  =========  ============================================================================
bytes      field      content
=========  =========  ============================================================================
0 to 7     position   byte of the file where the value starts
8 to 15    size       bytes of the value
=========  =========  ============================================================================

An empty value is (0, 0), a null (1, 0).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat
from google.protobuf.message import DecodeError

from lance_spark.encoding.meta import ColumnMeta, FieldReader, PageLocation
from lance_spark.encoding.v2_0.pages import ColumnReader
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_0_pb2 as pb


def open_blob(dtype: pa.DataType, column: ColumnMeta, location: PageLocation) -> FieldReader:
    """Return the reader of a blob column.

    Parameters
    ----------
    dtype : pa.DataType
        A struct of two uint64 children: where the blobs are. A binary type for columns that are no
        blobs after all.
    column : ColumnMeta
    location : PageLocation
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
            f"{location}: the column's encoding cannot be parsed: {error}"
        ) from None
    if name != "blob":
        # Files of a table that became a blob column later, or that a writer without blobs wrote.
        return ColumnReader(dtype, column, location)
    if not pat.is_struct(dtype) or [field.type for field in dtype] != [pa.uint64(), pa.uint64()]:
        raise UnsupportedEncodingError(f"{location}: a blob cannot be read as type {dtype}")
    return ColumnReader(dtype, column, location)
