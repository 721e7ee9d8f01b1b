"""Commits under a lock of the user's own, for stores that cannot create a file only if it is
absent.

The storage option `commit_lock` names what pylance calls by the same name: something that is called
with the version that is to be committed, an int, and returns a context manager. Inside of it nobody
else who uses the same lock commits that version. It is given as a callable, or as the text
`package.module:function`, which also works where programs are not shared, as between Spark's driver
and its Python workers.

    @contextmanager
    def lock(version: int):
        with my_database.lock(f"my_table:{version}"):
            yield

- All writers of a table have to use the same lock, those of other Lance clients too.
- A lock that is not to be had raises; if it raises something called `CommitConflictError`, as
  pylance has it, the commit looks what was committed meanwhile, and starts again.
- If the version is there already, the context manager leaves with an error, as in pylance.
- What is no version of the history (the creation of a tag, of a branch) is locked as version 0.
- Under the lock the store's own conditional put is used where there is one.
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
from lance_spark.storage.errors import scrub, translated
from lance_spark.storage.options.fsspec_options import COMMIT_LOCK
from lance_spark.storage.options.user_objects import import_object

CommitLock = Callable[[int], AbstractContextManager[Any]]
_MANIFEST = re.compile(r"_versions/(?P<number>[0-9]{1,20})\.manifest")
#: Numbers as long as this count down from the greatest one.
_COUNTS_DOWN = 20
_CONFLICT = "CommitConflictError"


def load(named: object) -> CommitLock:
    """Return the lock that the option `commit_lock` names.

    Parameters
    ----------
    named : callable or str

    Raises
    ------
    InvalidOptionError
        There is no such thing, or it cannot be called.
    """
    made = import_object(COMMIT_LOCK, named, "written") if isinstance(named, str) else named
    if not callable(made):
        raise InvalidOptionError(
            f"{COMMIT_LOCK}: {type(made).__name__} cannot be called; give a function of the "
            "version that returns a context manager"
        )
    lock: CommitLock = made
    return lock


class LockedPut:
    """A look, and a put, under a lock.

    Parameters
    ----------
    fs : fsspec file system, or None for local disks
    lock : callable
    inner : CommitHandler, optional
        The store's own way of put-if-absent. It may be one that does not work.
    secrets : mapping, optional
        Options whose values no error shows.
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
        """Create a file."""
        name = "/".join(path.split("/")[-2:])
        try:
            lease = self._lock(version_of(path))
            lease.__enter__()
        except Exception as error:
            if _is_conflict(error):
                return False
            # From nothing: nothing was done.
            raise StorageError(
                f"{name}: the {COMMIT_LOCK} was not granted: {self._told(error)}; commit again "
                "later, or look at the lock"
            ) from None
        try:
            created = self._create(path, data)
        except BaseException as error:
            # It must not stay locked; what the release has to say is less than why.
            with suppress(Exception):
                lease.__exit__(type(error), error, error.__traceback__)
            raise
        if not created:
            taken = CommitConflictError(f"{name} is there already", retryable=True)
            with suppress(Exception):
                lease.__exit__(type(taken), taken, None)
            return False
        try:
            lease.__exit__(None, None, None)
        except Exception as error:
            # Whose file it is, somebody has to look: the lock may have been lost on the way. No
            # refusal, whatever it came from.
            told = f"the {COMMIT_LOCK} was not released: {self._told(error)}"
            raise StorageError(f"{name}: {told}") from OSError(told)
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
        # Where a file grows while it is written, a reader would see half of it.
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
            # No refusal: it may have been done.
            told = self._told(error)
            raise StorageError(f"{name}: {told}") from OSError(told)
        finally:
            with suppress(Exception):
                fs.rm_file(temporary)

    def _told(self, error: Exception) -> str:
        return f"{type(error).__name__}: {scrub(str(error), self._secrets)}"


def version_of(path: str) -> int:
    """Return the version that a file is the manifest of; 0 for any other file."""
    match = _MANIFEST.search(path)
    if match is None or not path.endswith(match[0]):
        return 0
    text = match["number"]
    return 2**64 - 1 - int(text) if len(text) == _COUNTS_DOWN else int(text)


def _renames(fs: Any) -> bool:
    """Tell whether a file system moves files by itself: that of fsspec copies them."""
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    own = getattr(type(fs), "mv", None)
    return own is not None and own not in (AbstractFileSystem.mv, AsyncFileSystem.mv)


def _is_conflict(error: Exception) -> bool:
    # By its name: pylance is not imported.
    return any(kind.__name__ == _CONFLICT for kind in type(error).__mro__)
