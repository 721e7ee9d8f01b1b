"""`LanceFileWriter`: writes one data file without a table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from lance_spark.dataset.files.places import folder_and_name, store_of
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import DEFAULT_PAGE_BYTES, FileWriter
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.write.output import OutputFile
from lance_spark.table.align import align
from lance_spark.table.fragments import file_versions


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
        self._version = file_versions.parse_version(version or "stable")
        if self._version == file_versions.LEGACY:
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
