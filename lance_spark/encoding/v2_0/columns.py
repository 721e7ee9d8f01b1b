"""The columns of the fields of file version 2.0.

* A column without children: its pages, which of them hold the rows asked for, and their decoders.
  Decoders know storage types only; extension types are put around what they give.
* The header of a struct: `SimpleStruct`. It has no buffers, and its message says nothing: structs
  of file version 2.0 cannot be null, and their children are columns of their own with as many rows.
  It has one page for all rows, even if there are none: pylance refuses more.
* Blobs: large binaries that lie elsewhere in the file. The column's own encoding is `Blob`; its
  pages hold one row of 16 bytes per value (a `PackedStruct`):

=========  =========  ============================================================================
bytes      field      content
=========  =========  ============================================================================
0 to 7     position   byte of the file where the value starts
8 to 15    size       bytes of the value
=========  =========  ============================================================================

An empty value is (0, 0), a null (1, 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pat
from google.protobuf.message import DecodeError

from lance_spark.encoding.meta import ColumnMeta, FieldReader, PageLocation
from lance_spark.encoding.rows import Rows, split_rows
from lance_spark.encoding.v2_0.page import Decoder, PageBuffers, open_encoding
from lance_spark.encoding.v2_1.page import errors_at
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ReadPlan, gather_plans


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
