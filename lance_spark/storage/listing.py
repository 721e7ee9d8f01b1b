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

from lance_spark.storage.objects import objects_of
from lance_spark.storage.retry import Retries

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of a listing.

    - `path`: Path below the root of the store, with "/" between its parts.
    - `size`: Size in bytes; 0 if unknown.
    - `modified`: Time of the last write in seconds since 1970, UTC, by the clock of the store; None
      if unknown.
    """

    path: str
    size: int
    modified: float | None


def local_tree(root: str, folder: str) -> Iterator[FileInfo]:
    """Yield the files below a folder of a local disk at any depth; none if it does not exist.

    Links to folders are not followed, and are not yielded as files.

    - `root`: Absolute path that the paths of the files are relative to.
    - `folder`: Below `root`.
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

    - `root`: URI that the paths of the files are relative to.
    - `folder`: Below `root`.
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
