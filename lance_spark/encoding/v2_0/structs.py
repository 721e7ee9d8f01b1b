"""`SimpleStruct` columns: headers of structs.

A header has no buffers, and its message says nothing: structs of file version 2.0 cannot be null,
and their children are columns of their own with as many rows. It has one page for all rows, even if
there are none: pylance refuses more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lance_spark.encoding.meta import ColumnMeta, FieldReader, PageLocation
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_0.pages import message_of
from lance_spark.encoding.v2_1.page import errors_at
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ReadPlan, gather_plans


class StructReader:
    """Reads structs: their children side by side."""

    def __init__(self, dtype: pa.DataType, children: Sequence[FieldReader]) -> None:
        self._dtype = dtype
        self._children = children

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        arrays = yield from gather_plans([child.read(rows) for child in self._children])
        return pa.Array.from_buffers(self._dtype, len(rows), [None], children=arrays)


def check_header(column: ColumnMeta, location: PageLocation) -> None:
    """Check that a column is the header of a struct; CorruptFileError if it is not."""
    for page in range(len(column.pages)):
        with errors_at(replace(location, page=page)):
            message_of(column, page, "struct")


def encode() -> pb.ArrayEncoding:
    """Return the message of a header's page."""
    return pb.ArrayEncoding(struct=pb.SimpleStruct())
