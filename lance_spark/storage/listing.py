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


def remote_tree(fs: Any, root: str, folder: str) -> Iterator[FileInfo]:
    """Yield the files below a folder of an fsspec file system, those in its folders too; none if there is no folder.

    Parameters
    ----------
    fs : fsspec file system
    root : str
        URI that the paths of the files are relative to.
    folder : str
        Below `root`.
    """
    full = f"{root}/{folder}"
    fs.invalidate_cache(full)
    start = fs._strip_protocol(root).rstrip("/") + "/"
    below = start + folder + "/"
    try:
        found: dict[str, dict[str, Any]] = (
            fs.find(full, detail=True) if _finds(fs) else _walked(fs, full)
        )
    except FileNotFoundError:
        return
    for name, entry in found.items():
        # Some stores list the folder's own marker, or everything that starts with the same letters.
        if name.startswith(below) and not name.endswith("/") and entry.get("type") != "directory":
            yield FileInfo(name[len(start) :], entry.get("size") or 0, modified(entry))


def _finds(fs: Any) -> bool:
    """Tell whether a file system has a search of its own: that of fsspec passes over folders that it cannot list."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    own = getattr(type(fs), "_find", None)
    if own is not None:
        return own is not AsyncFileSystem._find
    return type(fs).find is not AbstractFileSystem.find


def _walked(fs: Any, folder: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    pending = [fs._strip_protocol(folder)]
    while pending:
        path = pending.pop()
        try:
            entries = fs.ls(path, detail=True)
        except FileNotFoundError:
            # There is no such folder, or no more.
            continue
        for entry in entries:
            if entry["type"] != "directory":
                found[entry["name"]] = entry
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


def names_in_order(fs: Any, folder: str, limit: int, after: str) -> list[str]:
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
    """
    bucket, key, _ = fs.split_path(folder)
    prefix = f"{key}/" if key else ""
    start = {"StartAfter": prefix + after} if after else {}
    names: list[str] = []
    while True:
        answer = fs.call_s3(
            "list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=limit - len(names), **start
        )
        names += [entry["Key"][len(prefix) :] for entry in answer.get("Contents", ())]
        # A page can have fewer names than asked for, even none, though there are more.
        if len(names) >= limit or not answer.get("IsTruncated"):
            return names
        start = {"ContinuationToken": answer["NextContinuationToken"]}
