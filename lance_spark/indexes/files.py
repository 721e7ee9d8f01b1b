"""The files of one segment of an index.

They are data files of version 2 below _indices/ in a folder with the segment's uuid as name. Their
parameters are metadata of the schema, or global buffers whose numbers are such metadata.

Specification: table/index, "Index files".
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import (
    CorruptError,
    CorruptFileError,
    MissingFileError,
    StorageError,
    UnsupportedError,
)
from lance_spark.file.footer import expect_tail
from lance_spark.file.open import DataFileReader, open_file
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import FileWriter
from lance_spark.indexes.cache import CACHE, all_rows
from lance_spark.proto import table_pb2
from lance_spark.storage.copies import Copy, copy_file
from lance_spark.storage.output import OutputFile
from lance_spark.storage.parallel import call_all
from lance_spark.storage.source import ByteSource
from lance_spark.storage.store import ObjectStore
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import INDICES, TablePaths

_LOG = logging.getLogger(__name__)

#: Errors of an index without which a scan gives the same rows.
INDEX_ERRORS = (CorruptError, MissingFileError, UnsupportedError)
#: File versions of tables that index files can have, too; others have `_DEFAULT_VERSION`.
_VERSIONS = ((2, 0), (2, 1), (2, 2))
_DEFAULT_VERSION = (2, 2)
_MAX_DIGITS = 20
#: The ends of the files of a segment are read together if it has at most so many.
_MOST_EXPECTED = 32

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class IndexFiles:
    """Opens the files of a segment.

    - `keeps`: Whether contents and open files are kept for the next search. A check must see the
      files as they are now.
    """

    paths: TablePaths
    segment: table_pb2.IndexMetadata
    keeps: bool = True

    @property
    def folder(self) -> str:
        """The folder of the segment."""
        return indexes.uuid_of(self.segment)

    @property
    def base_id(self) -> int | None:
        """The base path that has the folder; None for the table itself."""
        return self.segment.base_id if self.segment.HasField("base_id") else None

    def open(self, name: str) -> DataFileReader:
        """Open a file; the caller closes it.

        Raises CorruptFileError, MissingFileError, StorageError.
        """
        return open_file(self.source(name))

    def source(self, name: str) -> ByteSource:
        """Open the bytes of a file; the caller closes it.

        Raises MissingFileError, StorageError.
        """
        if self.keeps:
            self._expect_files()
        return self._source(name, self._sizes.get(name))

    @property
    def _sizes(self) -> dict[str, int]:
        # Other clients may leave the sizes out.
        return {file.path: file.size_bytes for file in self.segment.files if file.size_bytes}

    def _source(self, name: str, size: int | None) -> ByteSource:
        path = f"{self.folder}/{name}"
        return self.paths.open_index_file(path, self.base_id, size, keep=self.keeps)

    def _expect_files(self) -> None:
        """Begin to read the ends of all remote files: a search mostly opens one after the other."""
        if not self.locate("")[0].is_local and len(self.segment.files) <= _MOST_EXPECTED:
            for name, size in self._sizes.items():
                expect_tail(self._source(name, size))

    @contextmanager
    def opened(self, name: str) -> Iterator[DataFileReader]:
        """Lend an open file, which can stay open for the next search.

        Raises CorruptFileError, MissingFileError, StorageError.
        """
        key = self._key(name)
        if not self.keeps:
            with closing(self.open(name)) as file:
                yield file
            return
        file = CACHE.open_files.take_out(key) or self.open(name)
        try:
            yield file
        except BaseException:
            file.close()
            raise
        CACHE.open_files.give_back(key, file)

    def locate(self, name: str) -> tuple[ObjectStore, str]:
        """Return the store of a file, and its path there."""
        return self.paths.locate(self.base_id, INDICES, f"{self.folder}/{name}")

    def cached(
        self,
        name: str,
        read: Callable[[IndexFiles], _T],
        size: Callable[[_T], int],
        part: int | None = None,
    ) -> _T | None:
        """Return the parsed content of a file, from the cache if possible; None if it is missing.

        - `read`: Reads the file.
        - `size`: Returns the bytes of a content.
        - `part`: Number of the part of the file that is read. A file has one content without a
          number.
        """
        try:
            if not self.keeps:
                return read(self)
            return CACHE.get((*self._key(name), part), partial(read, self), size)
        except MissingFileError as error:
            # Without the index, the scan reads the values instead.
            _LOG.warning("index %r is ignored: %s", self.segment.name, error)
            return None

    def cached_parts(
        self,
        name: str,
        parts: Sequence[int],
        read: Callable[[Sequence[int]], Sequence[_T]],
        size: Callable[[_T], int],
    ) -> list[_T]:
        """Return the parsed contents of parts of a file; missing ones are read in one call.

        - `parts`: Distinct numbers.
        - `read`: Returns the contents of some of the parts. Its errors are passed on.
        - `size`: Returns the bytes of a content.
        """
        if not self.keeps:
            return list(read(parts))
        uri, path = self._key(name)
        keys: dict[tuple[str, str, int | None], int] = {(uri, path, part): part for part in parts}
        return CACHE.get_all(list(keys), lambda some: read([keys[key] for key in some]), size)

    def has_parts(self, name: str, parts: Sequence[int]) -> bool:
        """Return whether the cache has the parsed contents of parts of a file."""
        return self.keeps and CACHE.has_all([(*self._key(name), part) for part in parts])

    def _key(self, name: str) -> tuple[str, str]:
        store, path = self.paths.locate(self.base_id, INDICES, f"{self.folder}/{name}")
        return store.uri, path


def read_columns(file: DataFileReader, types: Mapping[str, pa.DataType | None]) -> pa.RecordBatch:
    """Return columns of an index file with all its rows.

    - `types`: Names of the columns, and their types; None for any type.

    Raises CorruptFileError: a column is missing, or has another type.
    """
    fields = [named(file, name, dtype) for name, dtype in types.items()]
    return pa.RecordBatch.from_arrays(file.read(fields, all_rows(file)), list(types))


def binary_values(
    files: IndexFiles, name: str, column: str, rows: RowNumbers
) -> Iterator[tuple[bytes, str]]:
    """Yield values of a binary column, each with the name of the file for errors.

    They are kept as parts of the file: a value can be longer than the ranges that a process keeps.

    - `column`: The only column of the file that is read in this way.
    - `rows` (int64 array): Distinct, increasing.

    Raises CorruptFileError: the column is missing, has another type, or a value is null.
    """

    def read(wanted: Sequence[int]) -> list[bytes]:
        with files.opened(name) as file:
            (data,) = file.read([named(file, column, pa.binary())], np.array(wanted, np.int64))
            full_name = file.source.name
        if data.null_count:
            raise CorruptFileError(f"{full_name}: {column} must not be null; rebuild the index")
        values: list[bytes] = data.to_pylist()
        return values

    store, path = files.locate(name)
    if len(rows):
        for data in files.cached_parts(name, rows.tolist(), read, len):
            yield data, store.name(path)


class ColumnsOfFile(Protocol):
    """What `named` needs of a reader."""

    @property
    def schema(self) -> Schema:
        """The columns."""
        ...

    @property
    def source(self) -> ByteSource:
        """The bytes of the file."""
        ...


def named(file: ColumnsOfFile, name: str, dtype: pa.DataType | None = None) -> Field:
    """Return the field of a column of an index file.

    Raises CorruptFileError: the column is missing, or has another type.
    """
    existing = next((field for field in file.schema.fields if field.name == name), None)
    if existing is None or (dtype is not None and existing.arrow_field.type != dtype):
        raise CorruptFileError(
            f"{file.source.name}: column {name!r} is missing or not {dtype}; rebuild the index"
        )
    return existing


def number_in(file: DataFileReader, key: str, default: int | None = None) -> int:
    """Return a number in the metadata of an index file.

    Raises CorruptFileError: the entry is not a number, or is missing without a default.
    """
    text = file.schema.metadata.get(key)
    if text is None and default is not None:
        return default
    if text is None or len(text) > _MAX_DIGITS or not text.isdigit():
        shown = None if text is None else text[:40]
        raise CorruptFileError(
            f"{file.source.name}: {key}={shown!r} must be a number; rebuild the index"
        )
    return int(text)


def buffer_in(file: DataFileReader, key: str) -> bytes:
    """Return the global buffer whose number is in the metadata of an index file.

    Raises CorruptFileError: the entry is not the number of a buffer.
    """
    return buffer_of(file, number_in(file, key))


def buffer_of(file: DataFileReader, number: int) -> bytes:
    """Return a global buffer of an index file.

    Raises CorruptFileError: the file has no such buffer.
    """
    if not isinstance(file, FileReader):
        raise CorruptFileError(f"{file.source.name}: it has no buffer {number}; rebuild the index")
    return file.global_buffer(number)


class SegmentWriter:
    """Writes the files of a new segment; deletes them if the block raises an error.

    - `paths`: Opens the table's files.
    - `version`: File version of the table.
    - `folder`: Path of the files below the root; by default the folder of a segment.
    - `id`: The segment's uuid.
    - `version`: File version of the files.
    """

    def __init__(
        self, paths: TablePaths, version: tuple[int, int], folder: str | None = None
    ) -> None:
        self.id = uuid.uuid4()
        self._paths = paths
        self._folder = folder or f"{INDICES}/{self.id}"
        self.version = version if version in _VERSIONS else _DEFAULT_VERSION
        self._outputs: dict[str, tuple[OutputFile, FileWriter]] = {}
        self._files: list[table_pb2.IndexFile] = []

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(
        self,
        error: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            return
        for output, _ in self._outputs.values():
            output.abort()
        names = [*self._outputs, *(file.path for file in self._files)]
        with suppress(StorageError):
            self._paths.store.delete([f"{self._folder}/{name}" for name in names])

    def create(self, name: str, schema: pa.Schema | Schema) -> FileWriter:
        """Return the writer of a new file. `finish` completes it.

        Raises StorageError. Raises UnsupportedTypeError: the file cannot store a column.
        """
        lance_schema = schema if isinstance(schema, Schema) else Schema.from_arrow(schema)
        output = self._paths.store.open_output(f"{self._folder}/{name}")
        try:
            writer = FileWriter(output, lance_schema, self.version)
        except BaseException:
            output.abort()
            raise
        self._outputs[name] = output, writer
        return writer

    def finish(self) -> list[table_pb2.IndexFile]:
        """Complete all files, and return their names and sizes."""
        names = list(self._outputs)
        sizes = [self._outputs[name][1].finish().size_bytes for name in names]
        # A store has a file when it is closed: no file waits for another one.
        call_all([self._outputs[name][0].close for name in names], local=self._paths.store.is_local)
        for name, size in zip(names, sizes, strict=True):
            del self._outputs[name]
            self._files.append(table_pb2.IndexFile(path=name, size_bytes=size))
        return self._files

    def complete(self, name: str) -> None:
        """Complete one file: it takes no more memory."""
        output, writer = self._outputs[name]
        written = writer.finish()
        output.close()
        del self._outputs[name]
        self._files.append(table_pb2.IndexFile(path=name, size_bytes=written.size_bytes))

    def copy(self, files: IndexFiles, name: str, new_name: str) -> None:
        """Copy a file of another segment.

        Raises MissingFileError, StorageError.
        """
        store, path = files.locate(name)
        with closing(store.open(path)) as source:
            size = source.size
        self._files.append(table_pb2.IndexFile(path=new_name, size_bytes=size))
        copy_file(Copy(store, path, self._paths.store, f"{self._folder}/{new_name}"))


def delete_segment_files(paths: TablePaths, segment: table_pb2.IndexMetadata) -> None:
    """Delete the files of a segment that no version refers to; cleanup deletes what stays."""
    folder = indexes.uuid_of(segment)
    with suppress(StorageError):
        paths.store.delete([f"{INDICES}/{folder}/{file.path}" for file in segment.files])
