"""Lists files and folders below the root of a store, on local disks and behind fsspec."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lance_spark.errors import MissingFileError
from lance_spark.storage import google, local
from lance_spark.storage.errors import translated
from lance_spark.storage.listing import (
    FileInfo,
    entries,
    local_tree,
    modified,
    names_in_order,
    remote_tree,
)
from lance_spark.storage.retry import Retries
from lance_spark.storage.s3 import head, is_s3
from lance_spark.storage.uri import Location, check_relative, join

# Named here because `Folders.list` hides the built-in inside the class.
_Names = list[str]
_Files = list[tuple[str, int]]
_Infos = list[FileInfo]
_Entries = list[dict[str, Any]]


class Folders:
    """The listing methods of `ObjectStore`."""

    _location: Location
    _objects: Location
    _fs: Any
    _secrets: Mapping[str, Any]
    _retries: Retries

    @property
    def uri(self) -> str:
        """The root: an absolute path on local disks, else a URI."""
        return self._location.uri

    @property
    def object_uri(self) -> str:
        """The root of the files: `uri` without escapes, and without the manifest store."""
        return self._objects.uri

    @property
    def display(self) -> str:
        """The root as errors show it."""
        return self._location.display

    def name(self, path: str) -> str:
        """Return the name that errors give the file at `path`."""
        return f"{self.display}/{path}"

    def list(self, folder: str) -> _Files:
        """Return name and size of the files in `folder`, unordered; empty if it does not exist.

        Files in its sub-folders are not listed. "" is the root.

        Raises
        ------
        StorageError
        """
        if self._fs is None:
            with translated(self.name(folder)):
                return local.list_files(self._folder(folder))
        return [(_base(entry["name"]), entry["size"] or 0) for entry in self._entries(folder)]

    def list_names(self, folder: str) -> _Names:
        """Return the names of the files in `folder`, unordered; empty if it does not exist.

        Raises
        ------
        StorageError
        """
        if self._fs is None:
            with translated(self.name(folder)):
                return local.list_names(self._folder(folder))
        return [_base(entry["name"]) for entry in self._entries(folder)]

    def list_first(self, folder: str, limit: int, after: str = "") -> _Names:
        """Return the names of the first files in `folder`, ordered by their bytes, in one request.

        Only for stores that list in this order.

        Parameters
        ----------
        folder : str
        limit : int
            Most names to return; up to 1,000.
        after : str
            Only names after this one.

        Raises
        ------
        StorageError
        """
        names = google.names_in_order if google.is_google(self._fs) else names_in_order
        with translated(self.name(folder), self._secrets):
            return names(self._fs, self._folder(folder), limit, after, self._retries)

    def list_folders(self, folder: str) -> _Names:
        """Return the names of the folders in `folder`, unordered; empty if it does not exist.

        Raises
        ------
        StorageError
        """
        if self._fs is None:
            with translated(self.name(folder)):
                return local.list_folders(self._folder(folder))
        return [_base(entry["name"]) for entry in self._entries(folder, "directory")]

    def list_tree(self, folder: str) -> _Infos:
        """Return the files below `folder` at any depth, unordered; empty if it does not exist.

        Raises
        ------
        StorageError
        """
        check_relative(folder)
        with translated(self.name(folder), self._secrets):
            if self._fs is None:
                return list(local_tree(self.uri, folder))
            return list(remote_tree(self._fs, self.object_uri, folder, self._retries))

    def modified(self, path: str) -> float | None:
        """Return when a file was last written, in seconds since 1970 by the clock of the store.

        None if the store does not report it.

        Raises
        ------
        MissingFileError, StorageError
        """
        full = self._full(path)
        with translated(self.name(path), self._secrets):
            if self._fs is None:
                return os.stat(full).st_mtime
            if is_s3(self._fs):
                return modified(self._retries.call(head, self._fs, full))
            self._fs.invalidate_cache(full)
            return modified(self._retries.call(self._fs.info, full))

    def _full(self, path: str) -> str:
        check_relative(path)
        if self._fs is None:
            return os.path.join(self.uri, *path.split("/"))
        return join(self.object_uri, path)

    def _folder(self, folder: str) -> str:
        return self._full(folder) if folder else self.object_uri

    def _entries(self, folder: str, entry_type: str = "file") -> _Entries:
        full = self._folder(folder)
        fs: Any = self._fs
        try:
            with translated(self.name(folder), self._secrets):
                listed = entries(fs, full, self._retries)
        except MissingFileError:
            return []
        # Some object stores list the marker of the folder itself, or a file of the same name.
        prefix = _base(full)
        return [
            entry
            for entry in listed
            if entry["type"] == entry_type
            and _base(entry["name"])
            and entry["name"].rstrip("/").split("/")[-2:-1] == [prefix]
        ]


def _base(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]
