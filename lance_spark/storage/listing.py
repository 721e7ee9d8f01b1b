"""Everything below a folder, with sizes and times: what cleanup looks at.

Stores name the time of the last change differently; the first of these keys that a listing has counts:

| key | store |
| --- | --- |
| `mtime` | local disks, Google Cloud Storage |
| `LastModified` | S3 |
| `last_modified` | Azure |
| `updated` | Google Cloud Storage |
| `modified`, `created` | memory and others |

A store that tells none leaves the time unknown, and files of unknown age count as new.
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
    """A file as a listing tells of it.

    Attributes
    ----------
    path : str
        Below the store's root, with "/" between its parts.
    size : int
        Bytes; 0 = unknown.
    modified : float, optional
        Seconds since 1970 in UTC at which it was last written, by the clock of the store; None = unknown.
    """

    path: str
    size: int
    modified: float | None


def local_tree(root: str, folder: str) -> Iterator[FileInfo]:
    """Yield the files below a folder of a local disk, those in its folders too; none if there is no folder.

    Links to other folders are not followed, and are not files either.

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
            # Others may delete a file while we look.
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    yield from local_tree(root, path)
                elif not entry.is_dir():
                    status = entry.stat(follow_symlinks=False)
                    yield FileInfo(path, status.st_size, status.st_mtime)


def remote_tree(fs: Any, root: str, folder: str, retries: Retries) -> Iterator[FileInfo]:
    """Yield the files below a folder of an fsspec file system, those in its folders too; none if there is no folder.

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
        found = _found(fs, full, retries)
    except FileNotFoundError:
        return
    for entry in found:
        name = entry["name"]
        # Some stores list the folder's own marker, or everything that starts with the same letters.
        if name.startswith(below) and not name.endswith("/") and entry.get("type") != "directory":
            yield FileInfo(name[len(start) :], entry.get("size") or 0, modified(entry))


def _found(fs: Any, folder: str, retries: Retries) -> list[dict[str, Any]]:
    if is_s3(fs):
        return list(s3_entries(fs, folder, retries, deep=True))
    fs.invalidate_cache(folder)
    if not _finds(fs):
        return _walked(fs, folder, retries)
    found: dict[str, dict[str, Any]] = retries.call(fs.find, folder, detail=True)
    return [{**entry, "name": name} for name, entry in found.items()]


def entries(fs: Any, folder: str, retries: Retries) -> list[dict[str, Any]]:
    """Return what a listing tells of the files and folders right in a folder; it may have entries that are none of them.

    Raises
    ------
    FileNotFoundError
    """
    if is_s3(fs):
        return list(s3_entries(fs, folder, retries))
    # File systems remember listings; a commit by somebody else has to be seen.
    fs.invalidate_cache(folder)
    found: list[dict[str, Any]] = retries.call(fs.ls, folder, detail=True)
    return found


def _finds(fs: Any) -> bool:
    """Tell whether a file system has a search of its own: that of fsspec passes over folders that it cannot list."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    own = getattr(type(fs), "_find", None)
    if own is not None:
        return own is not AsyncFileSystem._find
    return type(fs).find is not AbstractFileSystem.find


def _walked(fs: Any, folder: str, retries: Retries) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    pending = [fs._strip_protocol(folder)]
    while pending:
        path = pending.pop()
        try:
            listed = retries.call(fs.ls, path, detail=True)
        except FileNotFoundError:
            # There is no such folder, or no more.
            continue
        for entry in listed:
            if entry["type"] != "directory":
                found.append(entry)
            elif entry["name"].rstrip("/").startswith(f"{path}/"):
                pending.append(entry["name"].rstrip("/"))
    return found


def modified(entry: Mapping[str, Any]) -> float | None:
    """Return the time of the last change that an entry of an fsspec listing tells, in seconds since 1970."""
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
    """Return the names of the first objects right below a folder of S3, by one request as a rule.

    Parameters
    ----------
    fs : s3fs file system
    folder : str
        Its URI.
    limit : int
        Names at most, up to 1,000.
    after : str
        Only names after this one, in the order of their bytes.
    retries : Retries
    """
    bucket, key, _ = fs.split_path(folder)
    prefix = f"{key}/" if key else ""
    start = {"StartAfter": prefix + after} if after else {}
    names: list[str] = []
    while True:
        asked = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": limit - len(names), **start}
        answer = retries.call(fs.call_s3, "list_objects_v2", **asked)
        names += [entry["Key"][len(prefix) :] for entry in answer.get("Contents", ())]
        # A page can have fewer names than asked for, even none, though there are more.
        if len(names) >= limit or not answer.get("IsTruncated"):
            return names
        start = {"ContinuationToken": answer["NextContinuationToken"]}
