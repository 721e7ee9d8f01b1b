"""Commits under a lock of the user, for stores that cannot create a file only if it is absent.

The storage option `commit_lock` is as in pylance: a callable that receives the version to commit,
an int, and returns a context manager. Inside of the context, no other client with the same lock
commits that version. It is given as a callable, or as the text `package.module:function`, which
also reaches other processes, such as the Python workers of Spark.

    @contextmanager
    def lock(version: int):
        with my_database.lock(f"my_table:{version}"):
            yield

- All writers of a table must use the same lock, including other Lance clients.
- A lock that cannot be acquired raises. If the exception is a `CommitConflictError`, as in pylance,
  the commit reads the versions committed meanwhile and starts again. Changes that are not commits
  (tags, branches) fail.
- If the version exists already, the context manager exits with an error, as in pylance.
- Files that are not versions of the history (tags, branches) are locked as version 0.
- Under the lock, the conditional put of the store is used if it has one.
"""

from __future__ import annotations

import posixpath
import re
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any

from lance_spark.errors import CommitConflictError, InvalidOptionError, StorageError
from lance_spark.storage.commit.handlers import CommitHandler
from lance_spark.storage.errors import LockTakenError, scrub, translated
from lance_spark.storage.options.fsspec_options import COMMIT_LOCK, import_object

CommitLock = Callable[[int], AbstractContextManager[Any]]
_MANIFEST = re.compile(r"_versions/(?P<number>[0-9]{1,20})\.manifest")
#: Digits of version numbers that count down from the greatest one (naming scheme V2).
_COUNTS_DOWN = 20
_CONFLICT = "CommitConflictError"


def with_lock(options: Mapping[str, Any] | None, lock: CommitLock | None) -> dict[str, Any]:
    """Return storage options with a lock, if one is given."""
    return {**(options or {}), **({} if lock is None else {COMMIT_LOCK: lock})}


def load(named: object) -> CommitLock:
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
