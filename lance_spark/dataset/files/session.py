"""`LanceFileSession`: data files and other files below one folder, with one connection."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lance_spark.arguments import pylance_keywords
from lance_spark.dataset.files.places import store_of
from lance_spark.dataset.files.reader import LanceFileReader
from lance_spark.dataset.files.writer import LanceFileWriter
from lance_spark.errors import InvalidInputError, MissingFileError
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore


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
