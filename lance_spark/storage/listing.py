"""Lists all files below a folder with sizes and times, for cleanup.

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

from lance_spark.storage.retry import Retries
from lance_spark.storage.s3 import entries as s3_entries
from lance_spark.storage.s3 import is_s3

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
    retries : Retries
    """
    full = f"{root}/{folder}"
    start = fs._strip_protocol(root).rstrip("/") + "/"
    below = start + folder + "/"
    try:
        listed = _list_deep(fs, full, retries)
    except FileNotFoundError:
        return
    for entry in listed:
        name = entry["name"]
        # Some stores list the marker of the folder, or all names with the same prefix.
        if name.startswith(below) and not name.endswith("/") and entry.get("type") != "directory":
            yield FileInfo(name[len(start) :], entry.get("size") or 0, modified(entry))


def _list_deep(fs: Any, folder: str, retries: Retries) -> list[dict[str, Any]]:
    if is_s3(fs):
        return list(s3_entries(fs, folder, retries, deep=True))
    fs.invalidate_cache(folder)
    if not _has_own_find(fs):
        return _walk(fs, folder, retries)
    listed: dict[str, dict[str, Any]] = retries.call(fs.find, folder, detail=True)
    return [{**entry, "name": name} for name, entry in listed.items()]


def entries(fs: Any, folder: str, retries: Retries) -> list[dict[str, Any]]:
    """Return the listing of a folder. It can contain entries that are not in the folder.

    Raises
    ------
    FileNotFoundError
    """
    if is_s3(fs):
        return list(s3_entries(fs, folder, retries))
    # File systems cache listings, but commits of other clients must be visible.
    fs.invalidate_cache(folder)
    listed: list[dict[str, Any]] = retries.call(fs.ls, folder, detail=True)
    return listed


def _has_own_find(fs: Any) -> bool:
    """Tell whether a file system overrides `find`.

    The `find` of fsspec silently skips folders that it cannot list.
    """
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    find = getattr(type(fs), "_find", None)
    if find is not None:
        return find is not AsyncFileSystem._find
    return type(fs).find is not AbstractFileSystem.find


def _walk(fs: Any, folder: str, retries: Retries) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = []
    pending = [fs._strip_protocol(folder)]
    while pending:
        path = pending.pop()
        try:
            listed = retries.call(fs.ls, path, detail=True)
        except FileNotFoundError:
            # Another client deleted the folder.
            continue
        for entry in listed:
            if entry["type"] != "directory":
                files.append(entry)
            elif entry["name"].rstrip("/").startswith(f"{path}/"):
                pending.append(entry["name"].rstrip("/"))
    return files


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


def names_in_order(fs: Any, folder: str, limit: int, after: str, retries: Retries) -> list[str]:
    """Return the names of the first objects in a folder of S3, usually by one request.

    Parameters
    ----------
    fs : s3fs file system
    folder : str
        URI of the folder.
    limit : int
        Most names to return, up to 1,000.
    after : str
        Only names after this one, in the order of their bytes.
    retries : Retries
    """
    bucket, key, _ = fs.split_path(folder)
    prefix = f"{key}/" if key else ""
    start = {"StartAfter": prefix + after} if after else {}
    names: list[str] = []
    while True:
        parameters = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": limit - len(names), **start}
        answer = retries.call(fs.call_s3, "list_objects_v2", **parameters)
        names += [entry["Key"][len(prefix) :] for entry in answer.get("Contents", ())]
        # A page can have fewer names than the limit, even none, although more names follow.
        if len(names) >= limit or not answer.get("IsTruncated"):
            return names
        start = {"ContinuationToken": answer["NextContinuationToken"]}
