"""Commit handlers: each creates a file atomically, only if it is absent.

| where | how |
| --- | --- |
| local disks | temporary file, fsync, hard link (or rename without replace), fsync of the folder |
| `memory://` | a lock of the process |
| S3, Google, Azure | conditional put; unknown servers are probed (`storage/connect`) |
| HDFS | temporary file, rename into the folder |
| any other store | a lock of the user (`lock`), else refused: writers could overwrite each other |

A half-written file is never visible under the final name.
"""

from __future__ import annotations

import ctypes
import errno
import inspect
import os
import posixpath
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from lance_spark._forks import ForkLock
from lance_spark.errors import MissingFileError, StorageError
from lance_spark.storage import local
from lance_spark.storage.errors import scrub, translated
from lance_spark.storage.google import is_google
from lance_spark.storage.remote import read_whole
from lance_spark.storage.retry import Retries, seen_whole
from lance_spark.storage.s3 import is_s3

#: A full disk, a full quota, and a file system that cannot be written.
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_NO_HARD_LINKS = {
    errno.EPERM,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.ENOSYS,
    errno.EMLINK,
    errno.EACCES,
}


# Constants of system calls that Python does not offer.
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCL = 4


class CommitHandler(Protocol):
    """Creates a file if it is absent, on one kind of store."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Create `path` with `data`, durable; return False and change nothing if it exists.

        Raises StorageError: the store failed; the file may exist or not.
        """
        ...


class LocalCommit:
    """Hard link, or rename without replace, of a complete and durable temporary file."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with translated(path):
            folder = os.path.dirname(path)
            temporary = _write_temporary(folder, path, data)
            try:
                created = _link(temporary, path)
                if created:
                    _set_commit_time(path)
            finally:
                # A failure here does not affect the link. Cleanup removes the file.
                with suppress(OSError):
                    local.remove(temporary)
            try:
                if created:
                    local.sync_folder(folder)
            except PermissionError as error:
                # Not a refusal: the file exists.
                raise StorageError(f"{path}: {error.strerror}") from OSError(str(error))
            return created


def _write_temporary(folder: str, path: str, data: bytes) -> str:
    try:
        local.make_folder(folder)
        return local.write_temporary(path, data, durable=True)
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        # The store certainly did nothing: no file has the name yet.
        raise StorageError(f"{path}: {error.strerror}") from None


def _set_commit_time(path: str) -> None:
    """Set the time of a file to the time of its link: it shows which of two commits came first."""
    # The link sets ctime, so another process between these calls does not disturb it.
    with suppress(OSError):
        if os.name != "nt":
            named = os.stat(path).st_ctime_ns
            os.utime(path, ns=(named, named))


def _link(source: str, target: str) -> bool:
    try:
        os.link(source, target)
    except FileExistsError:
        # A network file system that repeats a request after a lost answer reports its own success
        # as a collision.
        return os.stat(source).st_nlink == 2
    except OSError as error:
        if error.errno in _NO_SPACE:
            if os.stat(source).st_nlink == 2:
                return True
            # Without a cause: the link was certainly not made.
            raise StorageError(f"{target}: {error.strerror}") from None
        if error.errno not in _NO_HARD_LINKS:
            raise
        try:
            return rename_without_replace(source, target)
        except OSError as second:
            has_call = second.errno not in _NO_HARD_LINKS | {errno.EINVAL}
            raise StorageError(
                f"{target}: the file system has neither hard links ({error.strerror}) nor a rename "
                "that does not "
                f"replace ({second.strerror}), so commits on it are not safe; keep the table on "
                "another store"
            ) from (second if has_call else None)
    return True


class MemoryCommit:
    """A lock of the process: it alone has the files of `memory://`."""

    _lock = ForkLock()

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._lock:
            if self._fs.exists(path):
                return False
            self._fs.pipe_file(path, data)
            return True


class ConditionalPut:
    """A put that the object store refuses if the object exists.

    - `condition`: Arguments of `pipe_file` that request the refusal.
    - `secrets`: Options whose values no error shows.
    - `retries`: Retries of reads of an existing object. A put is not repeated.
    """

    def __init__(
        self,
        fs: Any,
        condition: dict[str, object],
        secrets: Mapping[str, object] | None = None,
        retries: Retries | None = None,
    ) -> None:
        self._fs = fs
        self._condition = condition
        self._secrets = secrets
        self._retries = Retries.of({}, fs) if retries is None else retries

    def put_if_absent(self, path: str, data: bytes) -> bool:
        # s3fs and gcsfs would send longer data in parts. Some servers honour the condition of a
        # put, but not that of such an upload, and only the put is probed.
        in_parts = is_s3(self._fs) or is_google(self._fs)
        whole = {"chunksize": len(data) + 1} if in_parts else {}
        try:
            with translated(path, self._secrets):
                self._fs.pipe_file(path, data, **self._condition, **whole)
        except StorageError as error:
            if isinstance(error.__cause__, FileExistsError):
                return False
            if not isinstance(error.__cause__, PermissionError):
                raise
            if not self._has_written(path, data, error):
                raise
        return True

    def _has_written(self, path: str, data: bytes, refusal: StorageError) -> bool:
        """Return whether the object has the data although the last request was refused.

        The package of the store may have repeated the request, and the credentials may have expired
        between the two.
        """
        try:
            with translated(path, self._secrets):
                look = partial(self._retries.call, read_whole, self._fs, path, len(data))
                return seen_whole(look, data) == data
        except MissingFileError:
            return False
        except StorageError as error:
            # The error does not say whether the file was created.
            raise StorageError(str(refusal)) from error


class FolderRename:
    """A rename on HDFS, which refuses to replace a file.

    After the refusal, pyarrow would delete the existing target, and rename again. So the target is
    the folder, and the file already has its final name: HDFS moves it into the folder in one step,
    unless the folder has a file of that name.
    """

    def __init__(self, fs: Any, secrets: Mapping[str, object] | None = None) -> None:
        self._fs = fs
        self._secrets = secrets

    def put_if_absent(self, path: str, data: bytes) -> bool:
        fs = self._fs
        folder, name = posixpath.split(fs._strip_protocol(path))
        target = f"{folder}/{name}"
        with translated(f"{posixpath.basename(folder)}/{name}", self._secrets):
            if self._exists(target):
                return False
            staging = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
            try:
                fs.makedirs(staging, exist_ok=True)
                fs.pipe_file(f"{staging}/{name}", data)
                try:
                    fs.mv(f"{staging}/{name}", folder)
                except OSError as error:
                    # An earlier, repeated request may have created the file.
                    return self._is_own(target, data, error)
            finally:
                with suppress(Exception):
                    fs.rm(staging, recursive=True)
        return True

    def _is_own(self, path: str, data: bytes, failure: OSError) -> bool:
        """Return whether the existing file has the data, so that the failed rename moved it.

        Without a file, raise the failure of the rename.
        """
        try:
            if self._exists(path):
                return bool(self._fs.cat_file(path) == data)
        except OSError as error:
            # Without the check, it is unknown whether the rename moved the file.
            message = scrub(f"{failure}; {error}", self._secrets)
            raise StorageError(f"{posixpath.basename(path)}: {message}") from OSError(message)
        raise failure

    def _exists(self, path: str) -> bool:
        try:
            self._fs.info(path)
        except FileNotFoundError:
            return False
        return True


def handler_for(
    scheme: str,
    fs: Any,
    secrets: Mapping[str, object] | None = None,
    retries: Retries | None = None,
) -> CommitHandler:
    """Return the commit handler of a file system.

    - `secrets`: Options whose values no error shows.

    Raises StorageError: the file system cannot create a file only if it is absent.
    """
    if scheme == "file":
        return LocalCommit()
    if scheme == "memory":
        return MemoryCommit(fs)
    if scheme in ("s3", "s3a", "gs", "gcs"):
        if "mode" in inspect.signature(getattr(fs, "_pipe_file", fs.pipe_file)).parameters:
            return ConditionalPut(fs, {"mode": "create"}, secrets, retries)
        package = "s3fs" if scheme.startswith("s3") else "gcsfs"
        raise StorageError(
            f"{scheme}://: the installed {package} cannot create an object only if it is absent, "
            f"which commits need: pip install --upgrade {package}"
        )
    if scheme in ("abfs", "abfss", "az", "azure"):
        return ConditionalPut(fs, {"overwrite": False}, secrets, retries)
    if scheme in ("hdfs", "viewfs"):
        return FolderRename(fs, secrets)
    raise StorageError(
        f"{scheme}:// cannot create a file only if it is absent, so commits on it would not be "
        "safe; tables there can only be read, unless the storage option commit_lock names a lock "
        "that all writers use"
    )


def rename_without_replace(source: str, target: str) -> bool:
    """Move `source` to `target` atomically; return False and change nothing if `target` exists.

    Raises OSError: errno ENOSYS, EINVAL or ENOTSUP: the kernel or file system does not have this
    call.
    """
    if os.name == "nt":
        try:
            os.rename(source, target)
        except FileExistsError:
            return False
        return True
    old, new = os.fsencode(source), os.fsencode(target)
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin" and hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(old, new, _RENAME_EXCL)
    elif hasattr(libc, "renameat2"):
        failed = libc.renameat2(_AT_FDCWD, old, _AT_FDCWD, new, _RENAME_NOREPLACE)
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), target)
    if not failed:
        return True
    code = ctypes.get_errno()
    if code == errno.EEXIST:
        return False
    raise OSError(code, os.strerror(code), target)
