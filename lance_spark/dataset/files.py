"""Single Lance files without a table: their reader, writer and session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from lance_spark.arguments import pylance_keywords
from lance_spark.encoding.meta import ColumnMeta
from lance_spark.encoding.rows import Rows
from lance_spark.errors import InvalidInputError, MissingFileError, UnsupportedFeatureError
from lance_spark.file.open import open_file
from lance_spark.file.reader import PAGE_BYTES, FileReader
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import extended_batches, extended_schema
from lance_spark.file.writer import DEFAULT_PAGE_BYTES, FileWriter
from lance_spark.namespace import table_entry
from lance_spark.storage.output import OutputFile
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore
from lance_spark.table.align import align
from lance_spark.table.fragments import files

# --------------------------------------------------------------------------------------------------
# Where a single file is: the store of its folder, and its name there.


def store_of(
    folder: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
    namespace_client: object | None,
    table_id: Sequence[str] | None,
) -> ObjectStore:
    """Return the store of a folder, with the settings that the namespace of a table gives.

    Raises InvalidOptionError, TableNotFoundError, StorageError.
    """
    options = dict(storage_options or {})
    if namespace_client is not None or table_id is not None:
        with table_entry(None, namespace_client, table_id, options) as entry:
            options = dict(entry.storage_options)
    return ObjectStore.from_uri(os.fspath(folder), options)


def folder_and_name(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the folder of a file, and its name in it.

    Raises InvalidInputError: the path has no name of a file.
    """
    folder, slash, name = os.fspath(path).rpartition("/")
    if not name:
        raise InvalidInputError(f"path must name a file, not {os.fspath(path)!r}")
    return (folder or slash or "."), name


# --------------------------------------------------------------------------------------------------
# `LanceFileReader`: reads one data file without a table, and describes what is in it.


def stable_version() -> str:
    """Return the file version that writers use by default."""
    return files.text(files.DEFAULT)


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


# --------------------------------------------------------------------------------------------------
# `LanceFileWriter`: writes one data file without a table.


class LanceFileWriter:
    """Writes one data file. As a context manager, it closes the file; after an error it drops it.

    Parameters
    ----------
    path : str or path
        A path, or a URI of any scheme that fsspec knows. An existing file is replaced.
    schema : pa.Schema, optional
        By default the schema of the first batch. Columns of blobs are refused.
    data_cache_bytes : int, optional
        Bytes of all columns that are collected before a page is written; 8 MiB for each column by
        default.
    version : str, optional
        File version, as in `write_dataset`; not 0.1.
    storage_options, namespace_client, table_id
        As for `LanceFileReader`.
    max_page_bytes : int, optional
        Most bytes of a page, 8 MiB by default. Pages end at a row.

    Attributes
    ----------
    closed : bool
    size_bytes : int or None
        The size of the file after `close`.

    Raises
    ------
    InvalidOptionError, UnsupportedFeatureError
        The version is unknown, or 0.1.

    Examples
    --------
    >>> with LanceFileWriter("/data/rows.lance") as writer:  # doctest: +SKIP
    ...     writer.write_batch(pa.table({"id": [1, 2]}))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: pa.Schema | None = None,
        *,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        namespace_client: object | None = None,
        table_id: Sequence[str] | None = None,
        max_page_bytes: int | None = None,
    ) -> None:
        folder, name = folder_and_name(path)
        store = store_of(folder, storage_options, namespace_client, table_id)
        self._start(store, name, schema, data_cache_bytes, version, max_page_bytes)

    @classmethod
    def _in(cls, store: ObjectStore, path: str, schema: pa.Schema | None, **options: Any) -> Self:
        writer = cls.__new__(cls)
        writer._start(store, path, schema, **options)
        return writer

    def _start(
        self,
        store: ObjectStore,
        path: str,
        schema: pa.Schema | None,
        data_cache_bytes: int | None,
        version: str | None,
        max_page_bytes: int | None,
    ) -> None:
        self.closed = False
        self.size_bytes: int | None = None
        self._store, self._path = store, path
        self._version = files.parse_version(version or "stable")
        if self._version == files.LEGACY:
            raise UnsupportedFeatureError(
                f"{store.name(path)}: files of version 0.1 are written as tables only"
            )
        for name, value in (
            ("data_cache_bytes", data_cache_bytes),
            ("max_page_bytes", max_page_bytes),
        ):
            if value is not None and value < 1:
                raise InvalidInputError(f"{name} must be at least 1, not {value}")
        self._cache_bytes, self._max_page_bytes = data_cache_bytes, max_page_bytes
        self._output: OutputFile | None = None
        self._writer: FileWriter | None = None
        self._metadata: dict[str, str] = {}
        self._buffers: list[bytes] = []
        if schema is not None:
            self._create(schema)

    def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Write rows.

        Raises
        ------
        SchemaMismatchError
            The columns are not those of the file.
        InvalidInputError
            The file is closed, or a column that must not be null has nulls.
        """
        self._check_open()
        writer = self._writer or self._create(batch.schema)
        batches = batch.to_batches() if isinstance(batch, pa.Table) else [batch]
        for part in batches:
            writer.write(align(part, self._arrow))

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add an entry to the metadata of the file's schema."""
        self._check_open()
        self._metadata[key] = value

    def add_global_buffer(self, data: bytes) -> int:
        """Add a global buffer, and return its number. The first one has number 1."""
        self._check_open()
        self._buffers.append(bytes(data))
        return len(self._buffers)

    def close(self) -> int | None:
        """Write the end of the file; return the number of rows, or None if it is closed.

        Raises
        ------
        InvalidInputError
            There is neither a schema nor a batch.
        StorageError
        """
        if self.closed:
            return None
        self.closed = True
        if self._writer is None or self._output is None:
            raise InvalidInputError(
                f"{self._store.name(self._path)}: a file needs a schema, or a batch"
            )
        for key, value in self._metadata.items():
            self._writer.set_metadata(key, value)
        for data in self._buffers:
            self._writer.add_global_buffer(data)
        written = self._writer.finish()
        self._output.close()
        self.size_bytes = written.size_bytes
        return written.num_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error_type is None:
            self.close()
        elif not self.closed:
            self.closed = True
            if self._output is not None:
                self._output.abort()

    def _create(self, schema: pa.Schema) -> FileWriter:
        """Begin the file."""
        own = Schema.from_arrow(schema)
        self._arrow = own.to_arrow()
        cached = self._cache_bytes and max(self._cache_bytes // max(len(own.fields), 1), 1)
        sizes = [size for size in (cached, self._max_page_bytes) if size]
        output = self._store.open_output(self._path, replace=True)
        try:
            writer = FileWriter(
                output, own, self._version, page_bytes=min(sizes, default=DEFAULT_PAGE_BYTES)
            )
        except BaseException:
            output.abort()
            raise
        self._output, self._writer = output, writer
        return writer

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidInputError(f"{self._store.name(self._path)}: the writer is closed")


# --------------------------------------------------------------------------------------------------
# `LanceFileSession`: data files and other files below one folder, with one connection.


@dataclass(frozen=True, slots=True)
class ListResult:
    """The folders and files directly in a folder.

    Attributes
    ----------
    common_prefixes, objects : list of str
        Folders and files, relative to the folder of the session.
    """

    common_prefixes: list[str]
    objects: list[str]


@pylance_keywords(renamed={"uri_or_path": "base_path"})
class LanceFileSession:
    """Readers, writers and other operations on files below a folder.

    Paths are relative to the folder.

    Parameters
    ----------
    base_path : str or path
        The folder: a path, or a URI of any scheme that fsspec knows.
    storage_options, namespace_client, table_id
        As for `LanceFileReader`.

    Raises
    ------
    InvalidOptionError, StorageError
    """

    def __init__(
        self,
        base_path: str | os.PathLike[str],
        storage_options: Mapping[str, Any] | None = None,
        namespace_client: object | None = None,
        table_id: Sequence[str] | None = None,
    ) -> None:
        self._store = store_of(base_path, storage_options, namespace_client, table_id)

    @classmethod
    def _of(cls, store: ObjectStore) -> LanceFileSession:
        session = cls.__new__(cls)
        session._store = store
        return session

    def open_reader(self, path: str, columns: Sequence[str] | None = None) -> LanceFileReader:
        """Open a data file; see `LanceFileReader`."""
        return LanceFileReader._in(self._store, path, columns)

    def open_writer(
        self,
        path: str,
        *,
        schema: pa.Schema | None = None,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        keep_original_array: bool | None = None,
        max_page_bytes: int | None = None,
    ) -> LanceFileWriter:
        """Begin a data file; see `LanceFileWriter`. `keep_original_array` has no effect."""
        return LanceFileWriter._in(
            self._store,
            path,
            schema,
            data_cache_bytes=data_cache_bytes,
            version=version,
            max_page_bytes=max_page_bytes,
        )

    def contains(self, path: str) -> bool:
        """Return whether a file exists."""
        return self._store.exists(path)

    def list(self, path: str | None = None) -> list[str]:
        """Return all files below a folder, sorted."""
        paths = []
        waiting = [path.strip("/") if path else ""]
        while waiting:
            folder = waiting.pop()
            paths += [_join(folder, name) for name in self._store.list_names(folder)]
            waiting += [_join(folder, name) for name in self._store.list_folders(folder)]
        return sorted(paths)

    def list_with_delimiter(self, path: str | None = None) -> ListResult:
        """Return what is directly in a folder."""
        folder = path.strip("/") if path else ""
        return ListResult(
            sorted(_join(folder, name) for name in self._store.list_folders(folder)),
            sorted(_join(folder, name) for name in self._store.list_names(folder)),
        )

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return some bytes of a file.

        Raises
        ------
        MissingFileError, StorageError
        InvalidInputError
            The range lies outside the file.
        """
        source = self._store.open(path)
        try:
            if offset < 0 or length < 0 or offset + length > source.size:
                raise InvalidInputError(
                    f"{source.name}: bytes {offset} to {offset + length} are out of range; the "
                    f"file has {source.size}"
                )
            (data,) = source.read([ByteRange(offset, length)])
            return data.tobytes()
        finally:
            source.close()

    def delete_file(self, path: str) -> None:
        """Delete a file.

        Raises
        ------
        MissingFileError, StorageError
        """
        if not self._store.exists(path):
            raise MissingFileError(f"{self._store.name(path)}: the file was not found")
        self._store.delete([path])

    def upload_file(self, local_path: str | os.PathLike[str], remote_path: str) -> None:
        """Copy a local file into the folder; an existing file is replaced. Raises StorageError."""
        output = self._store.open_output(remote_path, replace=True)
        try:
            with Path(local_path).open("rb") as file:
                while data := file.read(_CHUNK):
                    output.write(data)
        except BaseException:
            output.abort()
            raise
        output.close()

    def download_file(self, remote_path: str, local_path: str | os.PathLike[str]) -> None:
        """Copy a file to a local disk.

        Raises
        ------
        MissingFileError, StorageError
        """
        source = self._store.open(remote_path)
        try:
            with Path(local_path).open("wb") as file:
                for start in range(0, source.size, _CHUNK):
                    part = ByteRange(start, min(_CHUNK, source.size - start))
                    file.write(source.read([part])[0].data)
        finally:
            source.close()


#: Bytes that a copy holds in memory.
_CHUNK = 8 * 1024 * 1024


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
