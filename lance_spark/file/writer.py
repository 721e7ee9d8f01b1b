"""Writes record batches as one file of version 2.0, 2.1, 2.2 or 2.3.

Each top-level column collects rows until they fill a page, independently of the other columns, so
memory holds about one page per column. A page ends at a row boundary. A field with several leaves
writes a page in each of their columns at once. Pages are written in the order in which they fill
up. Every buffer starts at a multiple of 64 bytes, and gaps hold the byte ``H``, as in files of
pylance.

Specification: format/file, "File layout"; `lance_spark.file.footer` documents the end of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lance_spark.encoding.meta import EncodedPage, TooManyLevelsError
from lance_spark.errors import SchemaMismatchError, UnsupportedFeatureError, UnsupportedTypeError
from lance_spark.file.arrays import with_offsets
from lance_spark.file.blobs.fields import input_field, paged, stored
from lance_spark.file.blobs.writer import BlobWriter
from lance_spark.file.checks import DictionaryCapacity, check_empty_structs, narrow_indices
from lance_spark.file.footer import (
    ALIGNMENT,
    PADDING,
    add_page,
    align_output,
    encode_tail,
    new_column,
)
from lance_spark.file.json_columns import paged_json, write_json
from lance_spark.file.page_buffer import BorrowedBatches, PageBuffer
from lance_spark.file.schema.field import Field, column_fields
from lance_spark.file.schema.schema import Schema
from lance_spark.proto import file2_pb2, file_pb2
from lance_spark.storage.output import OutputFile
from lance_spark.storage.source import ByteRange

#: Arrow bytes of a column that fill a page, as in pylance.
DEFAULT_PAGE_BYTES = 8 * 1024 * 1024
#: Buffers of a page up to this size are copied and written together.
_SHORT_BUFFER = 4096
_WRITABLE = ((2, 0), (2, 1), (2, 2), (2, 3))

_Encode = Callable[[pa.Array, pa.Field, tuple[int, int]], list[EncodedPage]]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """The facts about a written file that its manifest needs.

    - `field_ids`: Fields with columns: leaves only; in version 2.0 all fields outside of packed
      structs.
    - `column_indices`: Column of each field.
    """

    num_rows: int
    size_bytes: int
    field_ids: tuple[int, ...]
    column_indices: tuple[int, ...]


class FileWriter:
    """Writes one file; `finish` completes it, but does not close the output.

    - `output`: A new output, without any bytes.
    - `schema`: The file's columns with their field ids.
    - `version`: ``(2, 0)``, ``(2, 1)``, ``(2, 2)`` or ``(2, 3)``.
    - `page_bytes`: Arrow bytes of a column that fill a page.
    - `blobs`: Writes the blobs of this output; required if the schema has blobs.

    Raises UnsupportedFeatureError: files of that version cannot be written. Raises
    UnsupportedTypeError: the version cannot store a field.
    """

    def __init__(
        self,
        output: OutputFile,
        schema: Schema,
        version: tuple[int, int],
        page_bytes: int = DEFAULT_PAGE_BYTES,
        blobs: BlobWriter | None = None,
    ) -> None:
        if tuple(version) not in _WRITABLE:
            raise UnsupportedFeatureError(
                f"{output.name}: files of version {version[0]}.{version[1]} are not written; "
                "use data storage version 2.0, 2.1, 2.2 or 2.3"
            )
        check_types(schema, version)
        for field in schema.fields:
            if blobs is None and field.has_blobs:
                raise UnsupportedTypeError(
                    f"{output.name}: column {field.name!r} has blobs, but no BlobWriter is given; "
                    "pass one"
                )
        self._output = output
        self._schema = schema
        self._version = version
        self._num_rows = 0
        self._metadata = dict(schema.metadata)
        self._global_buffers: list[ByteRange] = []
        self._blobs = blobs
        encode = _encoder(version)
        self._leaves: list[Field] = []
        self._columns: list[_ColumnWriter] = []
        for field in schema.fields:
            leaves = list(column_fields(field, version))
            self._columns.append(
                _ColumnWriter(output, field, leaves, version, page_bytes, blobs, encode)
            )
            self._leaves += leaves
        self._loans = BorrowedBatches([column.pending for column in self._columns], page_bytes)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch.

        - `batch`: The columns of the schema in order, with exactly their Arrow types; blobs as
          `blobs.fields.input_field` returns.

        Raises SchemaMismatchError: names or types differ from the schema. Raises InvalidInputError:
        Dictionaries have more values than their indices allow; see `checks`.
        """
        types = [column.input_type for column in self._columns]
        arrays = checked_columns(batch, self._schema, types, self._output.name)
        loan = self._loans.open(arrays)
        for array, column in zip(arrays, self._columns, strict=True):
            column.add(array, loan)
        self._loans.settle()
        self._num_rows += batch.num_rows

    def set_metadata(self, key: str, value: str) -> None:
        """Set an entry in the metadata of the file's schema."""
        self._metadata[key] = value.encode()

    def add_global_buffer(self, data: bytes) -> int:
        """Write a global buffer, and return its number.

        The number of the first one is 1: global buffer 0 is the descriptor of the file.
        """
        start = align_output(self._output)
        self._output.write(data)
        self._global_buffers.append(ByteRange(start, len(data)))
        return len(self._global_buffers)

    def tell(self) -> int:
        """Return the bytes written so far, without the buffered rows."""
        return self._output.tell()

    def finish(self) -> WrittenFile:
        """Write the buffered rows and the end of the file."""
        for column in self._columns:
            column.finish()
        if self._blobs is not None:
            self._blobs.finish()
        fields = tuple(stored(field, self._version) for field in self._schema.fields)
        descriptor = file_pb2.FileDescriptor(
            schema=file_pb2.Schema(fields=Schema(fields).to_protos(), metadata=self._metadata),
            length=self._num_rows,
        )
        metadata = [
            proto.SerializeToString() for column in self._columns for proto in column.metadata
        ]
        start = align_output(self._output)
        parts = encode_tail(self._version, descriptor, metadata, start, self._global_buffers)
        for part in parts:
            if part:
                self._output.write(part)
        ids = tuple(leaf.id for leaf in self._leaves)
        return WrittenFile(self._num_rows, self._output.tell(), ids, tuple(range(len(ids))))


class _ColumnWriter:
    """Collects the rows of one top-level field and writes them page by page."""

    def __init__(
        self,
        output: OutputFile,
        field: Field,
        leaves: Sequence[Field],
        version: tuple[int, int],
        page_bytes: int,
        blobs: BlobWriter | None,
        encode: _Encode,
    ) -> None:
        self.field = field
        self.input_type = input_field(field).type
        self.metadata: list[file2_pb2.ColumnMetadata] = [
            new_column(blob=version == (2, 0) and leaf.is_blob) for leaf in leaves
        ]
        self._field = paged(field, version)
        self._has_json = self._field.has_json
        self._paged = paged_json(self._field).arrow_field
        self._encode = encode
        self._blobs = blobs if field.has_blobs else None
        self._output = output
        self._version = version
        self.pending = PageBuffer(page_bytes)
        self._dictionary_capacity = (
            DictionaryCapacity(self.input_type, f"{output.name}, column {field.name!r}")
            if any(narrow_indices(self.input_type))
            else None
        )
        self._rows_added = 0
        self._rows_written = 0

    def add(self, array: pa.Array, loan: int | None) -> None:
        if self._blobs is not None:
            array = self._blobs.store(array, self.field)
        if self._has_json:
            array = write_json(array, self._field, self._output.name, self._rows_added)
        if not len(array):
            return
        if self._dictionary_capacity is not None:
            self._dictionary_capacity.add(array)
        self._rows_added += len(array)
        if self.pending.add(array, loan):
            self.flush()

    def flush(self) -> None:
        for page in self.pending.take():
            self._write_page(page)

    def finish(self) -> None:
        self.flush()
        if not self._rows_written and self._version == (2, 0):
            # Headers of structs need a page even without rows.
            self._write_page(pa.array([], self._paged.type))

    def _write_page(self, array: pa.Array) -> None:
        try:
            pages = self._encode(array, self._paged, self._version)
        except TooManyLevelsError:
            if len(array) == 1:
                raise
            half = len(array) // 2
            self._write_page(array.slice(0, half))
            self._write_page(array.slice(half))
            return
        for column, page in zip(self.metadata, pages, strict=True):
            if page.is_header and column.pages:
                column.pages[0].length += page.num_rows
                continue
            if not (len(array) or page.is_header):
                continue
            buffers = self._write_buffers(page)
            add_page(
                column, self._version, buffers, page.num_rows, self._rows_written, page.encoding
            )
        self._rows_written += len(array)

    def _write_buffers(self, page: EncodedPage) -> list[ByteRange]:
        ranges = []
        position = self._output.tell()
        # Short buffers and gaps are written together by one call.
        waiting: list[bytes] = []
        for buffer in page.buffers:
            size = len(buffer)
            gap = -position % ALIGNMENT
            if gap:
                waiting.append(PADDING * gap)
            ranges.append(ByteRange(position + gap, size))
            position += gap + size
            if size <= _SHORT_BUFFER:
                if size:
                    waiting.append(bytes(buffer))
                continue
            if waiting:
                self._output.write(b"".join(waiting))
                waiting.clear()
            self._output.write(buffer)
        if waiting:
            self._output.write(b"".join(waiting))
        return ranges


def _encoder(version: tuple[int, int]) -> _Encode:
    """Return the function that makes the pages of a field in a file version."""
    if version == (2, 0):
        from lance_spark.encoding.v2_0.field_write import encode_field as encode_2_0

        return lambda array, field, _: encode_2_0(array, field)
    if version == (2, 3):
        from lance_spark.encoding.v2_3.field_write import encode_field as encode_2_3

        return encode_2_3
    from lance_spark.encoding.v2_1.field_write import encode_field

    return encode_field


def checked_columns(
    batch: pa.RecordBatch, schema: Schema, types: Sequence[pa.DataType], name: str
) -> list[pa.Array]:
    """Return the columns of a batch, with `with_offsets` of each, and check them against a schema.

    Raises SchemaMismatchError: the columns do not have the names of the schema or the given types.
    """
    names = schema.names
    if batch.schema.names != names:
        raise SchemaMismatchError(
            f"{name}: a batch has columns {batch.schema.names}, but the schema has {names}"
        )
    # Each call makes an object for every column.
    columns = batch.columns
    for column, array, dtype in zip(names, columns, types, strict=True):
        if array.type != dtype:
            raise SchemaMismatchError(
                f"{name}: column {column!r} of a batch is {array.type}, but the schema has "
                f"{dtype}; cast it"
            )
    return list(map(with_offsets, columns))


def check_types(schema: Schema, version: tuple[int, int]) -> None:
    """Raise UnsupportedTypeError if files of a version cannot store a field of a schema."""
    if version == (0, 1):
        from lance_spark.file.v0_1.fields import check_field as check_legacy

        for field in schema.fields:
            if field.has_blobs:
                raise UnsupportedTypeError(
                    f"field {field.name!r}: files of version 0.1 have no blobs; use data storage "
                    "version 2.2, or plain binary"
                )
            check_legacy(paged_json(field).arrow_field)
        return
    if version == (2, 0):
        from lance_spark.encoding.v2_0.field_write import check_field

        for field in schema.fields:
            check_field(field.arrow_field)
        return
    nodes = list(schema.walk())
    if any(node.logical_type == "struct" and not node.children for node in nodes):
        check_empty_structs(schema.fields)
    if version >= (2, 2):
        return
    for node in nodes:
        logical_type = node.logical_type
        if logical_type == "map" or logical_type.startswith("fixed_size_list:struct:"):
            raise UnsupportedTypeError(
                f"field {node.name!r}: {logical_type} needs data storage version 2.2"
            )
