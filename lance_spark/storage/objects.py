"""What this package asks of a store of objects, beyond the calls that all file systems of fsspec
have: one interface, with one class for each package of stores.

| request | why the call of fsspec does not do |
| --- | --- |
| `head` | `info` of some packages lists a folder if the object is missing, or uses a cache |
| `read_start` | `cat_file` of s3fs asks for the size first |
| `entries` | `ls` and `find` cache, and hide errors of single folders |
| `first_files` | no call begins a listing after a name |
| `output` | files of fsspec block their writer, and repeat parts by their own rules |
| `delete_many` | `rm` hides errors of single objects, or has no such request |

Each request is sent once; `retry` repeats it, or the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from lance_spark.storage import azure, google, s3
from lance_spark.storage.kept_ranges import Tagged
from lance_spark.storage.multipart import PartSizes
from lance_spark.storage.retry import Retries, is_transient

#: Ends of the names of S3's directory buckets, which list in no order.
DIRECTORY_BUCKETS = ("--x-s3", "--xa-s3")
#: A file of a listing: `name` with the bucket, `size`, `type` ("file" or "directory"), and a time
#: of the last change, as `listing` names it.
Entry = Mapping[str, Any]
#: The class of a new object, which is called as `PartsOutput` is, and the sizes of its parts.
OwnOutput = tuple[Callable[..., Any], PartSizes]


class Objects(Protocol):
    """The requests to one store.

    Paths are those of the file system. All raise FileNotFoundError if the object or the bucket is
    missing, and the errors of the package, which `errors.translated` and `retry` understand.
    """

    def head(self, path: str) -> Entry:
        """Return the entry of an object."""
        ...

    def read_start(self, path: str, limit: int | None) -> bytes:
        """Return the content of an object; of a longer one at least the first `limit` bytes."""
        ...

    def entries(self, folder: str, retries: Retries, *, deep: bool = False) -> Iterable[Entry]:
        """List a folder, or with `deep` all files below it. Nothing comes from a cache.

        The listing can contain entries that are not in the folder.
        """
        ...

    def lists_in_order(self, path: str) -> bool:
        """Return whether the bucket of a path lists in the order of the bytes of names."""
        ...

    def first_files(self, folder: str, limit: int, after: str, retries: Retries) -> list[Tagged]:
        """Return the first files in a folder; see `google.first_files`."""
        ...

    def output(self, path: str, options: Mapping[str, Any]) -> OwnOutput | None:
        """Return what writes a new object, and the sizes of its parts; see `write.output.start`.

        None: by the calls of fsspec.
        """
        ...

    def most_deleted(self) -> int:
        """Return how many objects `delete_many` takes; 1 if the store has no such request."""
        ...

    def delete_many(self, paths: Sequence[str], retries: Retries) -> Collection[str]:
        """Delete objects of one bucket by one request.

        Return the paths of which the store says that they do not exist any more. The others may
        exist or not. Raises what may not happen again.
        """
        ...


class FsspecObjects:
    """Any file system, by the calls of fsspec."""

    def __init__(self, fs: Any) -> None:
        self.fs = fs

    def head(self, path: str) -> Entry:
        self.fs.invalidate_cache(path)
        entry: Entry = self.fs.info(path)
        return entry

    def read_start(self, path: str, limit: int | None) -> bytes:
        data: bytes = self.fs.cat_file(path)
        return data

    def entries(self, folder: str, retries: Retries, *, deep: bool = False) -> Iterable[Entry]:
        # File systems cache listings, but commits of other clients must be visible.
        self.fs.invalidate_cache(folder)
        if not deep:
            listed: list[Entry] = retries.call(self.fs.ls, folder, detail=True)
            return listed
        if not _has_own_find(self.fs):
            return _walk(self.fs, folder, retries)
        found: dict[str, Entry] = retries.call(self.fs.find, folder, detail=True)
        return [{**entry, "name": name} for name, entry in found.items()]

    def lists_in_order(self, path: str) -> bool:
        return False

    def first_files(self, folder: str, limit: int, after: str, retries: Retries) -> list[Tagged]:
        raise NotImplementedError

    def output(self, path: str, options: Mapping[str, Any]) -> OwnOutput | None:
        return None

    def most_deleted(self) -> int:
        return 1

    def delete_many(self, paths: Sequence[str], retries: Retries) -> Collection[str]:
        return ()


class GoogleObjects(FsspecObjects):
    """Google Cloud Storage by gcsfs."""

    def lists_in_order(self, path: str) -> bool:
        return not google.is_zonal(self.fs, path)

    def first_files(self, folder: str, limit: int, after: str, retries: Retries) -> list[Tagged]:
        return google.first_files(self.fs, folder, limit, after, retries)

    def output(self, path: str, options: Mapping[str, Any]) -> OwnOutput | None:
        if google.is_zonal(self.fs, path):
            return None
        return google.GoogleOutput, google.sizes_of(options)


class AzureObjects(FsspecObjects):
    """Azure Blob Storage by adlfs."""

    def output(self, path: str, options: Mapping[str, Any]) -> OwnOutput | None:
        return azure.AzureOutput, azure.sizes_of(options)


class S3Objects:
    """S3 by s3fs."""

    def __init__(self, fs: Any) -> None:
        self.fs = fs

    def head(self, path: str) -> Entry:
        metadata = s3.head(self.fs, path)
        return {**metadata, "name": path, "size": int(metadata["ContentLength"]), "type": "file"}

    def read_start(self, path: str, limit: int | None) -> bytes:
        try:
            # Without a start, s3fs requests the size first.
            data: bytes = self.fs.cat_file(path, start=0, end=limit)
        except OSError as error:
            lasting = isinstance(error, FileNotFoundError | PermissionError)
            if lasting or is_transient(error) or s3.size_of(self.fs, path) != 0:
                raise
            # S3 refuses every range of an empty object.
            return b""
        return data

    def entries(self, folder: str, retries: Retries, *, deep: bool = False) -> Iterable[Entry]:
        return s3.entries(self.fs, folder, retries, deep=deep)

    def lists_in_order(self, path: str) -> bool:
        bucket = path.partition("://")[2].partition("/")[0]
        return not bucket.endswith(DIRECTORY_BUCKETS)

    def first_files(self, folder: str, limit: int, after: str, retries: Retries) -> list[Tagged]:
        return s3.first_files(self.fs, folder, limit, after, retries)

    def output(self, path: str, options: Mapping[str, Any]) -> OwnOutput | None:
        return s3.S3Output, s3.sizes_of(options, self.fs)

    def most_deleted(self) -> int:
        return s3.most_deleted(self.fs)

    def delete_many(self, paths: Sequence[str], retries: Retries) -> Collection[str]:
        return s3.delete_many(self.fs, paths, retries)


def objects_of(fs: Any) -> Objects:
    """Return the requests of a file system."""
    own: Objects | None = getattr(fs, "lance_objects", None)
    if own is not None:
        return own
    if s3.is_s3(fs):
        return S3Objects(fs)
    if google.is_google(fs):
        return GoogleObjects(fs)
    return AzureObjects(fs) if hasattr(fs, "service_client") else FsspecObjects(fs)


def _has_own_find(fs: Any) -> bool:
    """Return whether a file system overrides `find`.

    The `find` of fsspec silently skips folders that it cannot list.
    """
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    find = getattr(type(fs), "_find", None)
    if find is not None:
        return find is not AsyncFileSystem._find
    return type(fs).find is not AbstractFileSystem.find


def _walk(fs: Any, folder: str, retries: Retries) -> list[Entry]:
    files: list[Entry] = []
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
