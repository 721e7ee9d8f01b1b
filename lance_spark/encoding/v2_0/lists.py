"""`List` columns: the items of each list in the next column.

A list column has pages of its own, whose message is `List`:

=======================  =========================================================================
field                    content
=======================  =========================================================================
`offsets`                one u64 per list: where its items end, counted from the page's first
                         item. A list starts where the list before ends, the first one at 0. An
                         entry of `null_offset_adjustment` or more marks a null; its end is the
                         entry less `null_offset_adjustment`.
`num_items`              items of all lists of the page
=======================  =========================================================================

The items of all pages follow each other in the columns of the item, which may be cut into pages at
other places.

The first releases of file version 2.0 stored strings and binaries as lists of bytes, `ByteLists`:
where the bytes of each value end in the field's column, and the bytes of all values, as numbers of
8 bits, in the next one. That column belongs to no field of the schema: it is only there if the
pages of the first say `List` instead of `Binary`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import bitmap, is_variable, offset_type, validity_of
from lance_spark.encoding.meta import ColumnMeta, FieldReader, PageLocation, total_rows
from lance_spark.encoding.rows import Rows, split_rows
from lance_spark.encoding.v2_0.codecs.binary import ValueExtents, encode_ends, read_extents
from lance_spark.encoding.v2_0.columns import (
    PagedColumnReader,
    check_rows,
    message_of,
    parse,
    storage_type,
)
from lance_spark.encoding.v2_0.page import NewBuffers, PageBuffers, open_encoding
from lance_spark.encoding.v2_1.fixed_width import list_items, ranges
from lance_spark.encoding.v2_1.page import errors_at
from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ReadPlan, gather_plans


class ListReader:
    """Reads lists: first the positions of their items, then the items.

    - `dtype`: A list or large list type.
    - `column`: Column of the lists.
    - `items`: Reader of the items; its rows are items.
    - `num_items`: Number of items in the columns of the item.
    - `location`: Of the column, for error messages.
    """

    def __init__(
        self,
        dtype: pa.DataType,
        column: ColumnMeta,
        items: FieldReader,
        num_items: int,
        location: PageLocation,
    ) -> None:
        self._dtype = dtype
        self._column = column
        self._items = items
        self._location = location
        self._lengths = [page.num_rows for page in column.pages]
        self._messages: list[pb.List] = []
        for i in range(len(column.pages)):
            with errors_at(replace(location, page=i)):
                self._messages.append(message_of(column, i, "list").list)
        counts = [message.num_items for message in self._messages]
        if sum(counts) != num_items:
            raise CorruptFileError(
                f"{location.file}, column {location.column!r}: the lists have {sum(counts)} items, "
                f"but their column holds {num_items}"
            )
        self._first_items = np.cumsum([0, *counts[:-1]], dtype=np.int64)

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        pieces = split_rows(rows, self._lengths)
        check_rows(pieces, rows, self._lengths, self._location)
        parts = yield from gather_plans([self._read_page(page, part) for page, part in pieces])
        extents = _joined(parts)
        edges = extents.edges
        item_rows: Rows
        if edges is not None:
            item_rows = range(int(edges[0]), int(edges[-1]))
        else:
            item_rows = ranges(extents.starts, extents.ends - extents.starts)
            edges = np.concatenate([[0], np.cumsum(extents.ends - extents.starts)])
        dtype = np.int64 if pat.is_large_list(self._dtype) else np.int32
        if len(item_rows) > np.iinfo(dtype).max:
            raise InvalidInputError(
                f"{self._location.file}, column {self._location.column!r}: {len(item_rows)} items "
                f"do not fit one array of type {self._dtype}: read fewer rows at a time"
            )
        items = yield from self._items.read(item_rows)
        offsets = (edges - edges[0]).astype(dtype, copy=False)
        mask = None if extents.valid is None else bitmap(extents.valid)
        buffers = [mask, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(self._dtype, len(edges) - 1, buffers, children=[items])

    def _read_page(self, page: int, rows: Rows) -> ReadPlan[ValueExtents]:
        message = self._messages[page]
        with errors_at(replace(self._location, page=page)):
            buffers = PageBuffers(self._column.pages[page].buffers, self._column.buffers)
            count = self._column.pages[page].num_rows
            ends = open_encoding(message.offsets, pa.uint64(), count, buffers)
            extents = yield from read_extents(ends, rows, message.null_offset_adjustment)
            if len(extents.ends) and int(extents.ends[-1]) > message.num_items:
                raise CorruptFileError(
                    f"a list ends at item {int(extents.ends[-1])} of {message.num_items}"
                )
        first = self._first_items[page]
        if extents.edges is not None:
            return ValueExtents.between(extents.edges + first, extents.valid)
        return ValueExtents.of(extents.starts + first, extents.ends + first, extents.valid)


def _joined(pieces: list[ValueExtents]) -> ValueExtents:
    if not pieces:
        return ValueExtents.between(np.zeros(1, np.int64), None)
    if len(pieces) == 1:
        return pieces[0]
    starts = np.concatenate([piece.starts for piece in pieces])
    ends = np.concatenate([piece.ends for piece in pieces])
    if all(piece.valid is None for piece in pieces):
        return ValueExtents.of(starts, ends, None)
    flags = [np.ones(len(p.ends), np.bool_) if p.valid is None else p.valid for p in pieces]
    return ValueExtents.of(starts, ends, np.concatenate(flags))


def encode(array: pa.Array, buffers: NewBuffers) -> tuple[pb.ArrayEncoding, pa.Array]:
    """Return the message for an array of lists, and the items of the lists that are not null."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    valid = validity_of(array)
    if valid is not None:
        lengths *= valid
    ends, total, adjustment = encode_ends(lengths, valid, buffers)
    message = pb.List(offsets=ends, null_offset_adjustment=adjustment, num_items=total)
    return pb.ArrayEncoding(list=message), list_items(array.values, offsets, lengths)


class ByteLists:
    """Reads strings or binaries of two columns.

    - `dtype`: A string or binary type.
    - `ends`, `data`: The two columns.
    - `location`: For error messages.
    """

    def __init__(
        self, dtype: pa.DataType, ends: ColumnMeta, data: ColumnMeta, location: PageLocation
    ) -> None:
        self._dtype = dtype
        make_list_type = pa.list_ if offset_type(dtype) is np.int32 else pa.large_list
        items = PagedColumnReader(pa.uint8(), data, location)
        list_dtype = make_list_type(pa.field("item", pa.uint8(), nullable=False))
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
    """Return whether a column stores strings of type `dtype` as lists, and the next column their
    bytes.
    """
    if not column.pages or not is_variable(storage_type(dtype)):
        return False
    return bool(parse(column.pages[0].encoding).HasField("list"))
