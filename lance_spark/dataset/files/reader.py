"""`LanceFileReader`: reads one data file without a table, and describes what is in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.dataset.files.places import folder_and_name, store_of
from lance_spark.encoding.meta import ColumnMeta
from lance_spark.encoding.rows import Rows
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.open import open_file
from lance_spark.file.reader import PAGE_BYTES, FileReader
from lance_spark.file.schema.extension_types import extended_batches, extended_schema
from lance_spark.file.schema.schema import Schema
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore
from lance_spark.table.fragments import file_versions


def stable_version() -> str:
    """Return the file version that writers use by default."""
    return file_versions.text(file_versions.DEFAULT)


@dataclass(frozen=True, slots=True)
class LanceBufferDescriptor:
    """A buffer of a file.

    Attributes
    ----------
    position, size : int
        First byte, and number of bytes.
    """

    position: int
    size: int


@dataclass(frozen=True, slots=True)
class LancePageMetadata:
    """A page of a column.

    Attributes
    ----------
    buffers : list of LanceBufferDescriptor
    encoding : bytes
        The serialized message that describes the encoding; pylance has a text.
    """

    buffers: list[LanceBufferDescriptor]
    encoding: bytes


@dataclass(frozen=True, slots=True)
class LanceColumnMetadata:
    """A column of a file.

    Attributes
    ----------
    column_buffers : list of LanceBufferDescriptor
    pages : list of LancePageMetadata
    """

    column_buffers: list[LanceBufferDescriptor]
    pages: list[LancePageMetadata]


@dataclass(frozen=True, slots=True)
class LanceFileMetadata:
    """What a file consists of.

    Attributes
    ----------
    schema : pa.Schema
    num_rows : int
    num_data_bytes, num_column_metadata_bytes, num_global_buffer_bytes : int
        Bytes of the pages with the gaps between buffers, of the metadata of columns with the table
        of its positions, and of all global buffers.
    global_buffers : list of LanceBufferDescriptor
        The first one is the descriptor of the file.
    columns : list of LanceColumnMetadata
    major_version, minor_version : int
        As in the footer.
    """

    schema: pa.Schema
    num_rows: int
    num_data_bytes: int
    num_column_metadata_bytes: int
    num_global_buffer_bytes: int
    global_buffers: list[LanceBufferDescriptor]
    columns: list[LanceColumnMetadata]
    major_version: int
    minor_version: int


@dataclass(frozen=True, slots=True)
class LanceColumnStatistics:
    """Number of pages of a column, and the bytes of their buffers."""

    num_pages: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LanceFileStatistics:
    """Statistics of the columns of a file, in order."""

    columns: list[LanceColumnStatistics]


class ReaderResults:
    """Rows of a file, as batches or as a table."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._schema = schema
        self._batches = batches

    def to_batches(self) -> pa.RecordBatchReader:
        """Return a reader of the batches."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        return self.to_batches().read_all()


class LanceFileReader:
    """Reads one data file of version 2.0 or later, with or without a table.

    Deletions, row ids and base paths belong to tables: read a table as a `Dataset`. Of blobs, the
    file has only descriptors.

    Parameters
    ----------
    path : str or path
        A path, or a URI of any scheme that fsspec knows.
    storage_options : mapping, optional
        Settings of the store.
    columns : sequence of str, optional
        Columns to read, or dotted paths of children; all by default.
    namespace_client, table_id : optional
        The table whose namespace gives the settings of the store; see `open_dataset`.

    Raises
    ------
    MissingFileError, CorruptFileError, StorageError
    InvalidInputError
        A column does not exist.
    UnsupportedFeatureError
        The file has version 0.1.

    Examples
    --------
    >>> LanceFileReader("/data/rows.lance").read_range(10, 5).to_table()  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        *,
        namespace_client: object | None = None,
        table_id: Sequence[str] | None = None,
    ) -> None:
        folder, name = folder_and_name(path)
        self._open(store_of(folder, storage_options, namespace_client, table_id), name, columns)

    @classmethod
    def _in(cls, store: ObjectStore, path: str, columns: Sequence[str] | None) -> LanceFileReader:
        reader = cls.__new__(cls)
        reader._open(store, path, columns)
        return reader

    def _open(self, store: ObjectStore, path: str, columns: Sequence[str] | None) -> None:
        file = open_file(store.open(path))
        if not isinstance(file, FileReader):
            file.close()
            raise UnsupportedFeatureError(
                f"{store.name(path)}: files of version 0.1 are read as tables only"
            )
        self._file = file
        self._schema = file.schema if columns is None else file.schema.select(columns)
        if not self._schema.fields:
            raise InvalidInputError(f"{store.name(path)}: columns must have at least one column")

    def __repr__(self) -> str:
        return f"LanceFileReader({self._file.source.name!r})"

    def num_rows(self) -> int:
        """Return the number of rows."""
        return self._file.num_rows

    def read_all(self, *, batch_size: int = 1024, batch_readahead: int = 16) -> ReaderResults:
        """Read all rows.

        Parameters
        ----------
        batch_size : int
            Most rows of a batch.
        batch_readahead : int
            Has no effect.
        """
        return self._results(range(self._file.num_rows), batch_size)

    def read_range(
        self, start: int, num_rows: int, *, batch_size: int = 1024, batch_readahead: int = 16
    ) -> ReaderResults:
        """Read rows that follow one another; the other parameters are those of `read_all`.

        Raises
        ------
        InvalidInputError
            The file has fewer rows.
        """
        if start < 0 or num_rows < 0 or start + num_rows > self._file.num_rows:
            raise InvalidInputError(
                f"{self._file.source.name}: rows {start} to {start + num_rows} are out of range; "
                f"the file has {self._file.num_rows}"
            )
        return self._results(range(start, start + num_rows), batch_size)

    def take_rows(
        self, indices: Sequence[int], *, batch_size: int = 1024, batch_readahead: int = 16
    ) -> ReaderResults:
        """Read rows by their numbers; the other parameters are those of `read_all`.

        Raises
        ------
        InvalidInputError
            The numbers do not increase, or are out of range.
        """
        rows = np.asarray(indices, np.int64)
        if (rows[1:] <= rows[:-1]).any():
            raise InvalidInputError(f"{self._file.source.name}: indices must increase")
        if len(rows) and (rows[0] < 0 or rows[-1] >= self._file.num_rows):
            raise InvalidInputError(
                f"{self._file.source.name}: indices from {rows[0]} to {rows[-1]} are out of range; "
                f"the file has {self._file.num_rows} rows"
            )
        return self._results(rows, batch_size)

    def metadata(self) -> LanceFileMetadata:
        """Return what the file consists of."""
        footer = self._file.footer
        buffers = _described(footer.global_buffers)
        sections = self._file.sections
        num_global = sum(buffer.size for buffer in buffers)
        return LanceFileMetadata(
            schema=extended_schema(self._file.schema.to_arrow()),
            num_rows=self._file.num_rows,
            num_data_bytes=sections.column_metadata - num_global,
            num_column_metadata_bytes=sections.global_buffer_table - sections.column_metadata,
            num_global_buffer_bytes=num_global,
            global_buffers=buffers,
            columns=[
                LanceColumnMetadata(
                    _described(column.buffers),
                    [
                        LancePageMetadata(_described(page.buffers), page.encoding)
                        for page in column.pages
                    ],
                )
                for column in self._file.columns()
            ],
            major_version=sections.major_version,
            minor_version=sections.minor_version,
        )

    def file_statistics(self) -> LanceFileStatistics:
        """Return the number of pages and bytes of each column."""
        return LanceFileStatistics([_statistics(column) for column in self._file.columns()])

    def read_global_buffer(self, index: int) -> bytes:
        """Return a global buffer; number 0 is the descriptor of the file.

        Raises
        ------
        CorruptFileError
            The file has no such buffer.
        """
        return self._file.footer.descriptor if index == 0 else self._file.global_buffer(index)

    def _results(self, rows: Rows, batch_size: int) -> ReaderResults:
        if batch_size < 1:
            raise InvalidInputError(f"batch_size must be at least 1, not {batch_size}")
        schema = self._arrow(self._schema)
        return ReaderResults(extended_schema(schema), lambda: self._batches(rows, batch_size))

    def _arrow(self, schema: Schema) -> pa.Schema:
        fields = [self._file.stored(field) for field in schema.fields]
        return pa.schema([field.arrow_field for field in fields], dict(schema.metadata) or None)

    def _batches(self, rows: Rows, batch_size: int) -> Iterator[pa.RecordBatch]:
        return extended_batches(self._read(rows, batch_size))

    def _read(self, rows: Rows, batch_size: int) -> Iterator[pa.RecordBatch]:
        """Yield batches; pages are decoded once for about 8 MiB of rows."""
        fields = self._schema.fields
        schema = self._arrow(self._schema)
        row_bytes = self._file.column_bytes(fields) / max(self._file.num_rows, 1)
        window = max(int(PAGE_BYTES / max(row_bytes, 1)) // batch_size, 1) * batch_size
        for start in range(0, len(rows), window):
            arrays = self._file.read(fields, rows[start : start + window])
            read = pa.RecordBatch.from_arrays(arrays, schema=schema)
            for first in range(0, read.num_rows, batch_size):
                yield read.slice(first, batch_size)


def _described(ranges: Sequence[ByteRange]) -> list[LanceBufferDescriptor]:
    return [LanceBufferDescriptor(part.offset, part.length) for part in ranges]


def _statistics(column: ColumnMeta) -> LanceColumnStatistics:
    size = sum(buffer.length for page in column.pages for buffer in page.buffers)
    return LanceColumnStatistics(len(column.pages), size)
