"""Lists files and folders below the root of a store, on local disks and behind fsspec.

Stores name the time of the last change differently. The first of these keys in a listing is used:

| key | store |
| --- | --- |
| `mtime` | local disks, Google Cloud Storage |
| `LastModified` | S3 |
| `last_modified` | Azure |
| `updated` | Google Cloud Storage |
| `modified`, `created` | memory and others |

Without any of them the time is unknown, and cleanup treats the file as new.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lance_spark.errors import MissingFileError
from lance_spark.storage import local
from lance_spark.storage.entity_tags import Tagged, tag_of
from lance_spark.storage.errors import translated
from lance_spark.storage.objects import Entry, objects_of
from lance_spark.storage.retry import Retries
from lance_spark.storage.uri import Location, check_relative, join

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of a listing.

    Attributes
    ----------
    path : str
        Path below the root of the store, with "/" between its parts.
    size : int
        Size in bytes; 0 if unknown.
    modified : float, optional
        Time of the last write in seconds since 1970, UTC, by the clock of the store; None if
        unknown.
    """

    path: str
    size: int
    modified: float | None


def local_tree(root: str, folder: str) -> Iterator[FileInfo]:
    """Yield the files below a folder of a local disk at any depth; none if it does not exist.

    Links to folders are not followed, and are not yielded as files.

    Parameters
    ----------
    root : str
        Absolute path that the paths of the files are relative to.
    folder : str
        Below `root`.
    """
    try:
        entries = os.scandir(os.path.join(root, *folder.split("/")))
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            path = f"{folder}/{entry.name}"
            # Another process may delete a file meanwhile.
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    yield from local_tree(root, path)
                elif not entry.is_dir():
                    status = entry.stat(follow_symlinks=False)
                    yield FileInfo(path, status.st_size, status.st_mtime)


def remote_tree(fs: Any, root: str, folder: str, retries: Retries) -> Iterator[FileInfo]:
    """Yield the files below a folder of an fsspec file system at any depth.

    None if the folder does not exist.

    Parameters
    ----------
    fs : fsspec file system
    root : str
        URI that the paths of the files are relative to.
    folder : str
        Below `root`.
    """
    full = f"{root}/{folder}"
    start = fs._strip_protocol(root).rstrip("/") + "/"
    below = start + folder + "/"
    try:
        listed = objects_of(fs).entries(full, retries, deep=True)
    except FileNotFoundError:
        return
    for entry in listed:
        name = entry["name"]
        # Some stores list the marker of the folder, or all names with the same prefix.
        if name.startswith(below) and not name.endswith("/") and entry.get("type") != "directory":
            yield FileInfo(name[len(start) :], entry.get("size") or 0, modified(entry))


def modified(entry: Mapping[str, Any]) -> float | None:
    """Return the time of the last change in an fsspec listing entry, in seconds since 1970."""
    for key in _TIMES:
        value = entry.get(key)
        if isinstance(value, str):
            try:
                value = datetime.datetime.fromisoformat(value)
            except ValueError:
                continue
        if isinstance(value, datetime.datetime):
            return (value if value.tzinfo else value.replace(tzinfo=datetime.UTC)).timestamp()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


# Named here because `Folders.list` hides the built-in inside the class.
_Names = list[str]
_Files = list[tuple[str, int]]
_TaggedFiles = list[Tagged]
_Infos = list[FileInfo]
_Entries = list[Entry]


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

        Files in its sub-folders are not listed. "" is the root. Raises StorageError.
        """
        if self._fs is None:
            with translated(self.name(folder)):
                return local.list_files(self._folder(folder))
        return [
            (_base(entry["name"]), entry["size"] or 0) for entry in self._entries(folder, "file")
        ]

    def list_names(self, folder: str) -> _Names:
        """Return the names of the files in `folder`, unordered; empty if it does not exist.

        Raises StorageError.
        """
        return self._names(folder, "file")

    def list_tagged(self, folder: str) -> _TaggedFiles:
        """Return the files in `folder` with their tags, unordered; empty if it does not exist.

        Files of local disks have no tags. Raises StorageError.
        """
        if self._fs is None:
            return [Tagged(name, None) for name in self.list_names(folder)]
        return [
            Tagged(_base(entry["name"]), tag_of(entry)) for entry in self._entries(folder, "file")
        ]

    def list_folders(self, folder: str) -> _Names:
        """Return the names of the folders in `folder`, unordered; empty if it does not exist.

        Raises StorageError.
        """
        return self._names(folder, "directory")

    def _names(self, folder: str, entry_type: str) -> _Names:
        if self._fs is None:
            with translated(self.name(folder)):
                return local.list_names(self._folder(folder), folders=entry_type == "directory")
        return [_base(entry["name"]) for entry in self._entries(folder, entry_type)]

    def list_first(self, folder: str, limit: int, after: str = "") -> _TaggedFiles:
        """Return the first files in `folder`, ordered by the bytes of names, in one request.

        Only for stores that list in this order.

        Parameters
        ----------
        limit : int
            Most files to return; up to 1,000.
        after : str
            Only files whose names are after this one.

        Raises
        ------
        StorageError
        """
        objects = objects_of(self._fs)
        with translated(self.name(folder), self._secrets):
            return objects.first_files(self._folder(folder), limit, after, self._retries)

    def list_tree(self, folder: str) -> _Infos:
        """Return the files below `folder` at any depth, unordered; empty if it does not exist.

        Raises StorageError.
        """
        check_relative(folder)
        with translated(self.name(folder), self._secrets):
            if self._fs is None:
                return list(local_tree(self.uri, folder))
            return list(remote_tree(self._fs, self.object_uri, folder, self._retries))

    def modified(self, path: str) -> float | None:
        """Return when a file was last written, in seconds since 1970 by the clock of the store.

        None if the store does not report it. Raises MissingFileError, StorageError.
        """
        full = self._full(path)
        with translated(self.name(path), self._secrets):
            if self._fs is None:
                return os.stat(full).st_mtime
            return modified(self._retries.call(objects_of(self._fs).head, full))

    def _full(self, path: str) -> str:
        check_relative(path)
        if self._fs is None:
            return os.path.join(self.uri, *path.split("/"))
        return join(self.object_uri, path)

    def _folder(self, folder: str) -> str:
        return self._full(folder) if folder else self.object_uri

    def _entries(self, folder: str, entry_type: str) -> _Entries:
        full = self._folder(folder)
        try:
            with translated(self.name(folder), self._secrets):
                listed = list(objects_of(self._fs).entries(full, self._retries))
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
