"""Atomic creation of manifests: commit handlers, manifest stores, and locks of the user."""

from __future__ import annotations

import ctypes
import errno
import inspect
import os
import posixpath
import re
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from lance_spark._forks import ForkLock
from lance_spark.errors import (
    CommitConflictError,
    InvalidOptionError,
    MissingFileError,
    StorageError,
)
from lance_spark.storage import local
from lance_spark.storage.errors import LockTakenError, scrub, translated
from lance_spark.storage.google import is_google
from lance_spark.storage.options import COMMIT_LOCK, import_object
from lance_spark.storage.remote import read_whole
from lance_spark.storage.retry import Retries, seen_whole
from lance_spark.storage.s3 import is_s3

# --------------------------------------------------------------------------------------------------
# External manifest stores: databases that record the manifest of each version.
#
# They serve stores of files without atomic creation, or users who want a database as the authority.
# A database implements four requests (`ManifestStore`). The commit in four steps and its repair are
# the same for all of them (`table/manifest/versions`). A table uses one if
#
# - its URI names one: `s3+ddb://bucket/path?ddbTableName=name` has files at `s3://bucket/path` and
#   manifests in a table of DynamoDB;
# - the storage option `manifest_store` names one: a `ManifestStore`, or the text
#   `package.module:name` of a callable that receives the other storage options and returns one. The
#   text also reaches other processes, such as the Python workers of Spark.
#
# All writers of a table must use the same one.

#: The storage option that names a manifest store.
OPTION = "manifest_store"


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """The entry of a version in a manifest store.

    Attributes
    ----------
    version : int
        From 1 on.
    path : str
        Path below the root of the table: that of the manifest, or of a staging file, which has the
        same name followed by "-" and a UUID.
    size : int, optional
        Size of the manifest in bytes.
    e_tag : str, optional
        Tag of this content in the store of files.
    """

    version: int
    path: str
    size: int | None = None
    e_tag: str | None = None


class ManifestStore(ABC):
    """A database that records the path of the manifest of each version of each table.

    Reads must be consistent: every later request of any client sees an entry that was put. An
    exception of a method reaches the caller as a StorageError. A StorageError without a cause means
    that certainly nothing was changed.

    In all methods `root` is the URI of the table's folder, without a slash at the end.
    """

    @abstractmethod
    def get(self, root: str, version: int) -> ManifestEntry | None:
        """Return the entry of a version; None if it is absent."""

    @abstractmethod
    def latest(self, root: str) -> ManifestEntry | None:
        """Return the entry of the newest version; None if the table has no entries."""

    @abstractmethod
    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        """Add an entry atomically; return False and change nothing if it exists.

        This call is the commit.
        """

    @abstractmethod
    def put_final(self, root: str, entry: ManifestEntry) -> None:
        """Replace the entry of a version, which exists."""

    def since(self, root: str, version: int) -> list[ManifestEntry]:
        """Return the entries of `version` and of all after it, oldest first."""
        newest = self.latest(root)
        last = newest.version if newest is not None else 0
        entries = (self.get(root, number) for number in range(version, last + 1))
        return [entry for entry in entries if entry is not None]

    def forget(self, root: str) -> None:  # noqa: B027 - stores can do without
        """Remove all entries of a deleted table or branch, so that its place can be used again."""


def load_manifest_store(named: object, options: Mapping[str, Any]) -> ManifestStore:
    """Return the manifest store that the option `manifest_store` names.

    - `options`: The other storage options.

    Raises InvalidOptionError: the object cannot be imported, or is not a manifest store.
    """
    store = import_object(OPTION, named, "opened")(options) if isinstance(named, str) else named
    if not isinstance(store, ManifestStore):
        raise InvalidOptionError(
            f"{OPTION}: {type(store).__name__} is not a ManifestStore; derive it from "
            "lance_spark.storage.commit.ManifestStore"
        )
    return store


def with_store(
    options: Mapping[str, Any] | None, named: ManifestStore | str | None
) -> dict[str, Any]:
    """Return storage options that name a manifest store, if one is given."""
    return {**(options or {}), **({} if named is None else {OPTION: named})}


# --------------------------------------------------------------------------------------------------
# Commit handlers: each creates a file atomically, only if it is absent.
#
# | where | how |
# | --- | --- |
# | local disks | temporary file, fsync, hard link (or rename without replace), fsync of the folder
#     |
# | `memory://` | a lock of the process |
# | S3, Google, Azure | conditional put; unknown servers are probed (`storage/connect`) |
# | HDFS | temporary file, rename into the folder |
# | any other store | a lock of the user (`lock`), else refused: writers could overwrite each other
#     |
#
# A half-written file is never visible under the final name.

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


# --------------------------------------------------------------------------------------------------
# Commits under a lock of the user, for stores that cannot create a file only if it is absent.
#
# The storage option `commit_lock` is as in pylance: a callable that receives the version to commit,
# an int, and returns a context manager. Inside of the context, no other client with the same lock
# commits that version. It is given as a callable, or as the text `package.module:function`, which
# also reaches other processes, such as the Python workers of Spark.
#
#     @contextmanager
#     def lock(version: int):
#         with my_database.lock(f"my_table:{version}"):
#             yield
#
# - All writers of a table must use the same lock, including other Lance clients.
# - A lock that cannot be acquired raises. If the exception is a `CommitConflictError`, as in
#   pylance,
#   the commit reads the versions committed meanwhile and starts again. Changes that are not commits
#   (tags, branches) fail.
# - If the version exists already, the context manager exits with an error, as in pylance.
# - Files that are not versions of the history (tags, branches) are locked as version 0.
# - Under the lock, the conditional put of the store is used if it has one.

CommitLock = Callable[[int], AbstractContextManager[Any]]
_MANIFEST = re.compile(r"_versions/(?P<number>[0-9]{1,20})\.manifest")
#: Digits of version numbers that count down from the greatest one (naming scheme V2).
_COUNTS_DOWN = 20
_CONFLICT = "CommitConflictError"


def with_lock(options: Mapping[str, Any] | None, lock: CommitLock | None) -> dict[str, Any]:
    """Return storage options with a lock, if one is given."""
    return {**(options or {}), **({} if lock is None else {COMMIT_LOCK: lock})}


def load_lock(named: object) -> CommitLock:
    """Return the lock that the option `commit_lock` names.

    Raises InvalidOptionError: the lock cannot be imported, or is not callable.
    """
    lock_object = import_object(COMMIT_LOCK, named, "written") if isinstance(named, str) else named
    if not callable(lock_object):
        raise InvalidOptionError(
            f"{COMMIT_LOCK}: {type(lock_object).__name__} is not callable; give a function that "
            "takes the version and returns a context manager"
        )
    lock: CommitLock = lock_object
    return lock


class LockedPut:
    """A check and a put under a lock.

    - `inner`: The commit handler of the store, even if it is not reliable.
    - `secrets`: Options whose values no error shows.
    """

    def __init__(
        self,
        fs: Any,
        lock: CommitLock,
        inner: CommitHandler | None = None,
        secrets: Mapping[str, object] | None = None,
    ) -> None:
        self._fs = fs
        self._lock = lock
        self._inner = inner
        self._secrets = secrets

    def put_if_absent(self, path: str, data: bytes) -> bool:
        name = "/".join(path.split("/")[-2:])
        try:
            lease = self._lock(version_of(path))
            lease.__enter__()
        except Exception as error:
            # Without a cause: nothing was done.
            if _is_conflict(error):
                raise LockTakenError(
                    f"{name}: another client has the {COMMIT_LOCK}: {self._text_of(error)}; try "
                    "again later"
                ) from None
            raise StorageError(
                f"{name}: the {COMMIT_LOCK} was not granted: {self._text_of(error)}; commit again "
                "later, or check the lock"
            ) from None
        try:
            created = self._create(path, data)
        except BaseException as error:
            # The lock must be released. The first error matters more than that of the release.
            with suppress(Exception):
                lease.__exit__(type(error), error, error.__traceback__)
            raise
        if not created:
            conflict = CommitConflictError(f"{name} exists already", retryable=True)
            with suppress(Exception):
                lease.__exit__(type(conflict), conflict, None)
            return False
        try:
            lease.__exit__(None, None, None)
        except Exception as error:
            # The lock may have been lost meanwhile, so the caller must check whose file it is. The
            # error has a cause, so it does not count as a refusal.
            reason = f"the {COMMIT_LOCK} was not released: {self._text_of(error)}"
            raise StorageError(f"{name}: {reason}") from OSError(reason)
        return True

    def _create(self, path: str, data: bytes) -> bool:
        fs = self._fs
        if fs is None:
            assert self._inner is not None
            return self._inner.put_if_absent(path, data)
        with translated("/".join(path.split("/")[-2:]), self._secrets):
            fs.invalidate_cache(path)
            with suppress(FileNotFoundError):
                fs.info(path)
                return False
            if self._inner is not None:
                return self._inner.put_if_absent(path, data)
            self._write(path, data)
        return True

    def _write(self, path: str, data: bytes) -> None:
        fs = self._fs
        folder, name = posixpath.split(path)
        if not _renames(fs):
            fs.pipe_file(path, data)
            return
        # On such stores a file is visible while it is written.
        fs.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
        try:
            fs.pipe_file(temporary, data)
        except BaseException:
            with suppress(Exception):
                fs.rm_file(temporary)
            raise
        try:
            fs.mv(temporary, path)
        except Exception as error:
            # Not a refusal: the rename may have been carried out.
            reason = self._text_of(error)
            raise StorageError(f"{name}: {reason}") from OSError(reason)
        finally:
            with suppress(Exception):
                fs.rm_file(temporary)

    def _text_of(self, error: Exception) -> str:
        return f"{type(error).__name__}: {scrub(str(error), self._secrets)}"


def version_of(path: str) -> int:
    """Return the version of a manifest file; 0 for any other file."""
    match = _MANIFEST.search(path)
    if match is None or not path.endswith(match[0]):
        return 0
    text = match["number"]
    return 2**64 - 1 - int(text) if len(text) == _COUNTS_DOWN else int(text)


def _renames(fs: Any) -> bool:
    """Return whether a file system can rename: the default of fsspec copies files."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    rename = getattr(type(fs), "mv", None)
    return rename is not None and rename not in (AbstractFileSystem.mv, AsyncFileSystem.mv)


def _is_conflict(error: Exception) -> bool:
    # Compared by name, as pylance is not imported.
    return any(cls.__name__ == _CONFLICT for cls in type(error).__mro__)
