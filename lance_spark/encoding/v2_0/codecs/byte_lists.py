"""Strings as lists of bytes: how the first releases of file version 2.0 stored strings and
binaries.

============  ====================================================================================
column        content
============  ====================================================================================
the field's   as of a list column (see `lists`): where the bytes of each value end
the next      the bytes of all values, as numbers of 8 bits
============  ====================================================================================

The second column belongs to no field of the schema: it is only there if the pages of the first say
`List` instead of `Binary`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import is_variable, offset_type
from lance_spark.encoding.meta import ColumnMeta, PageLocation, total_rows
from lance_spark.encoding.rows import Rows
from lance_spark.encoding.v2_0.extension import storage_type
from lance_spark.encoding.v2_0.lists import ListReader
from lance_spark.encoding.v2_0.pages import ColumnReader, parse
from lance_spark.errors import CorruptFileError
from lance_spark.storage.source import ReadPlan


class ByteLists:
    """Reads strings or binaries of two columns.

    Parameters
    ----------
    dtype : pa.DataType
        A string or binary type.
    ends, data : ColumnMeta
        The two columns.
    location : PageLocation
        For error messages.
    """

    def __init__(
        self, dtype: pa.DataType, ends: ColumnMeta, data: ColumnMeta, location: PageLocation
    ) -> None:
        self._dtype = dtype
        of = pa.list_ if offset_type(dtype) is np.int32 else pa.large_list
        items = ColumnReader(pa.uint8(), data, location)
        list_dtype = of(pa.field("item", pa.uint8(), nullable=False))
        self._lists = ListReader(list_dtype, ends, items, total_rows(data.pages), location)
        self._location = location

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        lists = yield from self._lists.read(rows)
        octets = lists.values
        if octets.null_count:
            raise CorruptFileError(
                f"{self._location.file}, column {self._location.column!r}: "
                "bytes of strings are null"
            )
        valid, offsets = lists.buffers()[:2]
        data = octets.buffers()[1]
        if data is not None:
            data = data.slice(octets.offset, len(octets))
        return pa.Array.from_buffers(self._dtype, len(lists), [valid, offsets, data])


def has_byte_lists(dtype: pa.DataType, column: ColumnMeta) -> bool:
    """Whether a column holds strings of type `dtype` as lists, so that the next one holds their
    bytes.
    """
    if not column.pages or not is_variable(storage_type(dtype)):
        return False
    return bool(parse(column.pages[0].encoding).HasField("list"))
