"""Fields of file version 2.0, and their columns.

Every node of a field's tree has a column, depth first:

==================================  ==============================================================
node                                column
==================================  ==============================================================
struct                              a header whose pages say `SimpleStruct` and hold nothing;
                                    structs cannot be null
list, large list                    where the items of each list end (see `lists`); its rows are
                                    lists, rows of the columns below are items
packed struct, fixed-size list,     one column with the values; nothing below has any
dictionary, blob, everything else
string, binary                      the same; early releases wrote two, see `lists`
==================================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from google.protobuf.message import DecodeError

from lance_spark.encoding.blocks import bitmap, is_packed, is_variable, offset_type, validity_of
from lance_spark.encoding.meta import (
    ColumnMeta,
    FieldReader,
    PageLocation,
    StructReader,
    total_rows,
)
from lance_spark.encoding.rows import Rows, split_rows
from lance_spark.encoding.v2_0.page import Decoder, NewBuffers, PageBuffers, open_encoding
from lance_spark.encoding.v2_0.strings import ValueExtents, encode_ends, read_extents
from lance_spark.encoding.v2_1.codec import list_items, ranges
from lance_spark.encoding.v2_1.leaf_columns import child_fields, is_blob, storage_field
from lance_spark.encoding.v2_1.page import errors_at
from lance_spark.errors import (
    CorruptFileError,
    InvalidInputError,
    UnsupportedEncodingError,
    UnsupportedTypeError,
)
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ReadPlan, gather_plans

# --------------------------------------------------------------------------------------------------
# The columns of the fields of file version 2.0.
#
# * A column without children: its pages, which of them hold the rows asked for, and their decoders.
#   Decoders know storage types only; extension types are put around what they give.
# * The header of a struct: `SimpleStruct`. It has no buffers, and its message says nothing: structs
#   of file version 2.0 cannot be null, and their children are columns of their own with as many
# rows.   It has one page for all rows, even if there are none: pylance refuses more.
# * Blobs: large binaries that lie elsewhere in the file. The column's own encoding is `Blob`; its
#   pages hold one row of 16 bytes per value (a `PackedStruct`):
#
# =========  =========  ============================================================================
# bytes      field      content
# =========  =========  ============================================================================
# 0 to 7     position   byte of the file where the value starts
# 8 to 15    size       bytes of the value
# =========  =========  ============================================================================
#
# An empty value is (0, 0), a null (1, 0).


def parse(encoding: bytes) -> pb.ArrayEncoding:
    """Return the message that describes a page; raise CorruptFileError if it cannot be parsed."""
    try:
        return pb.ArrayEncoding.FromString(encoding)
    except DecodeError as error:
        raise CorruptFileError(f"the page's description cannot be parsed: {error}") from None


def message_of(column: ColumnMeta, page: int, name: str) -> pb.ArrayEncoding:
    """Return the message of a page of a column that only one encoding can store.

    Raises CorruptFileError: the page does not have the encoding of this name.
    """
    encoding = parse(column.pages[page].encoding)
    result = encoding.WhichOneof("array_encoding")
    if result != name:
        raise CorruptFileError(f"encoding {result or 'unknown'!r} where {name!r} was expected")
    return encoding


def check_rows(
    pieces: Sequence[tuple[int, Rows]], rows: Rows, lengths: Sequence[int], location: PageLocation
) -> None:
    """Raise CorruptFileError if the pages do not hold all of `rows`."""
    if sum(len(part) for _, part in pieces) != len(rows):
        raise CorruptFileError(
            f"{location.file}, column {location.column!r}: row {int(rows[-1])} was asked for, "
            f"but the pages hold {sum(lengths)} rows"
        )


class PagedColumnReader:
    """Reads rows of one column.

    Decoders of the last pages are kept with their dictionaries and decompressed bytes, so a scan in
    batches does that work once for each page.
    """

    def __init__(self, dtype: pa.DataType, column: ColumnMeta, location: PageLocation) -> None:
        self._dtype = dtype
        self._column = column
        self._location = location
        self._lengths = [page.num_rows for page in column.pages]
        self._decoders: dict[int, Decoder] = {}

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        pieces = split_rows(rows, self._lengths)
        check_rows(pieces, rows, self._lengths, self._location)
        decoders = {page: self._decoders.get(page) or self._open(page) for page, _ in pieces}
        self._decoders = decoders
        plans = [self._read_page(page, decoders[page], part) for page, part in pieces]
        arrays = yield from gather_plans(plans)
        if not arrays:
            return pa.nulls(0, self._dtype)
        if len(arrays) == 1:
            return arrays[0]
        try:
            if pat.is_dictionary(self._dtype):
                arrays = pa.chunked_array(arrays).unify_dictionaries().chunks
            return pa.concat_arrays(arrays)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"{self._location.file}, column {self._location.column!r}: {len(rows)} rows do "
                f"not fit one array of type {self._dtype}: read fewer rows at a time ({error})"
            ) from None

    def _open(self, page: int) -> Decoder:
        meta = self._column.pages[page]
        with errors_at(replace(self._location, page=page)):
            buffers = PageBuffers(meta.buffers, self._column.buffers)
            return open_encoding(parse(meta.encoding), self._dtype, meta.num_rows, buffers)

    def _read_page(self, page: int, decoder: Decoder, rows: Rows) -> ReadPlan[pa.Array]:
        with errors_at(replace(self._location, page=page)):
            return (yield from decoder.read(rows))


def check_header(column: ColumnMeta, location: PageLocation) -> None:
    """Raise CorruptFileError if a column is not the header of a struct."""
    for page in range(len(column.pages)):
        with errors_at(replace(location, page=page)):
            message_of(column, page, "struct")


class Wrapped:
    """Adds extension types to the values of another reader."""

    def __init__(self, reader: FieldReader, dtype: pa.DataType) -> None:
        self._reader = reader
        self._dtype = dtype

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        array = yield from self._reader.read(rows)
        return wrap(array, self._dtype)


def storage_type(dtype: pa.DataType) -> pa.DataType:
    """Return a leaf's type without extension types, at any depth."""
    while isinstance(dtype, pa.BaseExtensionType):
        dtype = dtype.storage_type
    if pat.is_fixed_size_list(dtype):
        item = dtype.value_field
        inner = storage_type(item.type)
        return dtype if inner == item.type else pa.list_(item.with_type(inner), dtype.list_size)
    if pat.is_struct(dtype):
        fields = [dtype.field(i) for i in range(dtype.num_fields)]
        return pa.struct([field.with_type(storage_type(field.type)) for field in fields])
    return dtype


def wrap(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return an array of a storage type with its extension types."""
    if array.type == dtype:
        return array
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, wrap(array, dtype.storage_type))
    if pat.is_fixed_size_list(dtype):
        children = [wrap(array.values, dtype.value_type)]
    elif pat.is_struct(dtype):
        children = [wrap(array.field(i), dtype.field(i).type) for i in range(dtype.num_fields)]
    else:
        return array
    return pa.Array.from_buffers(
        dtype, len(array), array.buffers()[:1], offset=array.offset, children=children
    )


def open_blob(dtype: pa.DataType, column: ColumnMeta, location: PageLocation) -> FieldReader:
    """Return the reader of a blob column.

    - `dtype`: A struct of two uint64 children, the positions and sizes of the blobs; a binary type
      for columns that are not blobs in this file.
    - `location`: Location of the column, for error messages.

    Raises CorruptFileError: the column's own encoding cannot be parsed. Raises
    UnsupportedEncodingError: the encoding is not `Blob`, or the type is not one of these.
    """
    try:
        name = pb.ColumnEncoding.FromString(column.encoding).WhichOneof("column_encoding")
    except DecodeError as error:
        raise CorruptFileError(
            f"{location}: the column's encoding cannot be parsed: {error}"
        ) from None
    if name != "blob":
        # The column became a blob column after this file was written, or its writer has no blobs.
        return PagedColumnReader(dtype, column, location)
    if not pat.is_struct(dtype) or [field.type for field in dtype] != [pa.uint64(), pa.uint64()]:
        raise UnsupportedEncodingError(f"{location}: a blob cannot be read as type {dtype}")
    return PagedColumnReader(dtype, column, location)


# --------------------------------------------------------------------------------------------------
# `List` columns: the items of each list in the next column.
#
# A list column has pages of its own, whose message is `List`:
#
# =======================  =========================================================================
# field                    content
# =======================  =========================================================================
# `offsets`                one u64 per list: where its items end, counted from the page's first
#                          item. A list starts where the list before ends, the first one at 0. An
#                          entry of `null_offset_adjustment` or more marks a null; its end is the
#                          entry less `null_offset_adjustment`.
# `num_items`              items of all lists of the page
# =======================  =========================================================================
#
# The items of all pages follow each other in the columns of the item, which may be cut into pages
# at other places.
#
# The first releases of file version 2.0 stored strings and binaries as lists of bytes, `ByteLists`:
# where the bytes of each value end in the field's column, and the bytes of all values, as numbers
# of 8 bits, in the next one. That column belongs to no field of the schema: it is only there if the
# pages of the first say `List` instead of `Binary`.


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


# --------------------------------------------------------------------------------------------------
# Fields of file version 2.0, and their columns.

#: Maximum number of rows, far above that of any file: products of row numbers must fit into 64
#: bits.
_MOST_ROWS = 1 << 48


def is_leaf(field: pa.Field) -> bool:
    """Return whether no field below a field (of storage type) has a column."""
    dtype = field.type
    if pat.is_struct(dtype):
        return is_packed(field) or is_blob(field)
    return not (pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_map(dtype))


def count_columns(field: pa.Field) -> int:
    """Return the number of columns of a field."""
    field = storage_field(field)
    if is_leaf(field):
        return 1
    return 1 + sum(count_columns(child) for child in child_fields(field))


def open_field(
    field: pa.Field,
    columns: Sequence[ColumnMeta],
    file: str,
    byte_columns: Mapping[int, ColumnMeta] | None = None,
) -> FieldReader:
    """Return the reader of a field.

    - `field`: Its type selects what to read: a struct may lack children that the file has, a blob
      is read as its ``struct<position: uint64, size: uint64>`` or as its bytes.
    - `columns`: The columns of `field`, depth first.
    - `file`: Name of the file, for errors.
    - `byte_columns`: The columns with the bytes of strings that are stored as lists, by the index
      of their list in `columns`; see `lists`.

    Raises CorruptFileError: the columns do not match the field, or contradict each other. Raises
    UnsupportedTypeError: File version 2.0 cannot store the type.
    """
    expected = count_columns(field)
    if len(columns) != expected:
        raise CorruptFileError(
            f"{file}: field {field.name!r} has {len(columns)} columns where its type needs "
            f"{expected}"
        )
    bytes_of = byte_columns or {}
    pairs = ((column, bytes_of.get(i)) for i, column in enumerate(columns))
    reader, _ = _open(field, "", pairs, file)
    return reader


def _open(
    field: pa.Field,
    prefix: str,
    columns: Iterator[tuple[ColumnMeta, ColumnMeta | None]],
    file: str,
    *,
    in_list: bool = False,
) -> tuple[FieldReader, int]:
    # Returns the reader and its number of rows.
    stored = storage_field(field)
    dtype = stored.type
    location = PageLocation(file, f"{prefix}.{field.name}" if prefix else field.name, 0)
    column, octets = next(columns)
    rows = total_rows(column.pages)
    if rows > _MOST_ROWS:
        raise CorruptFileError(f"{file}, column {location.column!r}: the pages claim {rows} values")
    reader: FieldReader
    if pat.is_map(dtype):
        raise UnsupportedTypeError(
            f"{file}, column {location.column!r}: file version 2.0 cannot store maps; use 2.2 or "
            "later"
        )
    if is_leaf(stored):
        plain = storage_type(dtype)
        if is_blob(stored):
            reader = open_blob(plain, column, location)
        elif octets is not None:
            reader = ByteLists(plain, column, octets, location)
        else:
            reader = PagedColumnReader(plain, column, location)
        return (reader if plain == field.type else Wrapped(reader, field.type)), rows
    is_struct = pat.is_struct(dtype)
    below_list = in_list or not is_struct
    opened = [
        _open(child, location.column, columns, file, in_list=below_list)
        for child in child_fields(stored)
    ]
    if is_struct:
        check_header(column, location)
        if in_list and opened:
            # A compaction of pylance that copies pages gives this column as many rows as the file.
            rows = opened[0][1]
        for _, child_rows in opened:
            if child_rows != rows:
                raise CorruptFileError(
                    f"{file}, column {location.column!r}: {rows} structs, "
                    f"but a child has {child_rows} values"
                )
        reader = StructReader(dtype, [child for child, _ in opened])
    else:
        ((items, num_items),) = opened
        reader = ListReader(dtype, column, items, num_items, location)
    return (reader if stored is field else Wrapped(reader, field.type)), rows
