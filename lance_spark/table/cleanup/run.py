"""Removes old versions of a table, and the files that only they refer to.

Order of deletion: transaction files of versions that go first, as a sign; after another look, data, deletion and index files; then folders
that are empty now; the manifests of the versions last, oldest first. Whoever is stopped in the middle leaves

- every version that stays untouched, so that the table opens as before,
- old versions whose manifest is there and whose files are not: reading them fails with the name of the file that is missing,
- the proof that no job is writing these files: their manifests. The next cleanup needs no grace period to go on.

Manifests first would leave files behind that nobody can tell from those of a running job. A file that cannot be deleted is
counted, and keeps the manifests of this run, for the same reason.

Only files that were listed below the table's own root are deleted (`cleanup_files`): names in manifests are compared with
the list and never lead anywhere. What base paths point to belongs to others. See `cleanup_plan` for what goes.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.cleanup.files import FileKind
from lance_spark.table.cleanup.plan import CleanupPlan, CleanupPolicy, Planner

DEFAULT_AGE = datetime.timedelta(days=14)
DEFAULT_DELETE_CONCURRENCY = 16
_MICROSECOND = datetime.timedelta(microseconds=1)
_BATCH = 256


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file that cleanup removed, or would.

    Attributes
    ----------
    path : str
        Below the root that was cleaned up.
    kind : str
        "manifest", "data" (files of blobs too), "transaction", "index", "deletion" or "temporary".
    size_bytes : int
    unverified : bool
        Whether no version referred to it: it went by its age, or by `delete_unverified`.
    """

    path: str
    kind: str
    size_bytes: int
    unverified: bool


@dataclass(frozen=True, slots=True)
class CleanupStats:
    """What cleanup removed, or would.

    Attributes
    ----------
    bytes_removed : int
    old_versions : int
        Manifests removed.
    data_files_removed, transaction_files_removed, index_files_removed, deletion_files_removed : int
        Files of blobs count as data files.
    failed_deletes : int
        Files that the store did not delete. They are not counted as removed; clean up again.
    first_failure : str, optional
        Why the first of them was not.
    versions : tuple of int
        The versions removed, oldest first.
    files : tuple of RemovedFile
        All files removed, in the order of their deletion.
    """

    bytes_removed: int = 0
    old_versions: int = 0
    data_files_removed: int = 0
    transaction_files_removed: int = 0
    index_files_removed: int = 0
    deletion_files_removed: int = 0
    failed_deletes: int = 0
    first_failure: str | None = None
    versions: tuple[int, ...] = ()
    files: tuple[RemovedFile, ...] = ()


def policy_for(
    older_than: datetime.timedelta | None = None,
    retain_versions: int | None = None,
    *,
    versions: Iterable[int] | None = None,
    before_version: int | None = None,
    delete_unverified: bool = False,
    error_if_tagged_old_versions: bool = True,
) -> CleanupPolicy:
    """Return a policy by age, counted from now. Without any limit versions have to be two weeks old.

    Raises
    ------
    InvalidInputError
        `older_than` is negative, `retain_versions` not positive, or `versions` empty.
    """
    if older_than is None and (retain_versions, versions, before_version) == (None, None, None):
        older_than = DEFAULT_AGE
    if older_than is not None and not isinstance(older_than, datetime.timedelta):
        raise InvalidInputError(f"older_than must be a timedelta, not {type(older_than).__name__}")
    if older_than is not None and older_than < datetime.timedelta():
        raise InvalidInputError(f"older_than={older_than}: an age cannot be negative")
    if retain_versions is not None and retain_versions < 1:
        raise InvalidInputError(f"retain_versions={retain_versions}: give a positive number")
    wanted = None if versions is None else frozenset(versions)
    if wanted is not None and not wanted:
        raise InvalidInputError("versions: name at least one version, or leave the argument out")
    return CleanupPolicy(
        None if older_than is None else time.time_ns() - older_than // _MICROSECOND * 1000,
        retain_versions,
        before_version,
        wanted,
        delete_unverified,
        error_if_tagged_old_versions,
    )


def policy_for_failed_jobs(older_than: datetime.timedelta) -> CleanupPolicy:
    """Return a policy by which no version goes, only files of such an age that no version refers to.

    Raises
    ------
    InvalidInputError
        `older_than` is negative.
    """
    if older_than < datetime.timedelta():
        raise InvalidInputError(f"older_than={older_than}: an age cannot be negative")
    before = time.time_ns() - older_than // _MICROSECOND * 1000
    return CleanupPolicy(unverified_before_ns=before, keep_versions=True)


def cleanup(
    store: ObjectStore,
    policy: CleanupPolicy,
    *,
    read_version: int | None = None,
    branch: str | None = None,
    dry_run: bool = False,
    delete_rate_limit: int | None = None,
    delete_concurrency: int | None = None,
) -> CleanupStats:
    """Remove old versions of a table, and the files that only they refer to.

    Parameters
    ----------
    store : ObjectStore
        Root of the table, or of one of its branches.
    policy : CleanupPolicy
    read_version : int, optional
        This version and newer ones stay; the newest does anyway.
    branch : str, optional
        The branch that `store` is the root of; none for the main one.
    dry_run : bool
        Only tell what would be removed.
    delete_rate_limit : int, optional
        Files deleted per second at most.
    delete_concurrency : int, optional
        Requests under way at once, 16 by default; on local disks one file is deleted after the other.

    Raises
    ------
    TableNotFoundError
    InvalidInputError
        A limit is not positive, or versions with tags could go, and that is an error. Nothing is removed.
    CorruptTableError, UnsupportedFeatureError
        A version cannot be read, so that nobody can tell what it needs. Nothing is removed.
    StorageError
    """
    for option, value in (
        ("delete_rate_limit", delete_rate_limit),
        ("delete_concurrency", delete_concurrency),
    ):
        if value is not None and value < 1:
            raise InvalidInputError(f"{option}={value}: give a positive number")
    planner = Planner(store, policy, branch)
    plan = planner.plan(read_version)
    files, manifests = _listed(plan)
    if dry_run:
        return _stats([*files, *manifests], manifests)
    deletion = _Deletion(store, delete_rate_limit, delete_concurrency)
    marks = [file for file in files if _is_mark(file)]
    removed = deletion.delete(marks)
    plan = planner.look_again(
        is_marked=bool(marks),
        unmarked={file.path for file in marks} - {one.path for one in removed},
    )
    files, manifests = _listed(plan)
    removed += deletion.delete([file for file in files if not _is_mark(file)])
    for folder in plan.folders:
        store.remove_folder(folder)
    if not deletion.failures:
        removed += deletion.delete(list(manifests))
    return _stats(removed, manifests, deletion.failures)


def _listed(plan: CleanupPlan) -> tuple[list[RemovedFile], dict[RemovedFile, int]]:
    """Return the files that go, in the order of their deletion, and the manifests with their versions."""
    files = [
        RemovedFile(candidate.info.path, candidate.kind.value, candidate.info.size, unverified)
        for candidate, unverified in plan.files
    ]
    files.sort(key=lambda file: not _is_mark(file))
    manifests = {
        RemovedFile(info.path, FileKind.MANIFEST.value, info.size, False): version
        for version, info in plan.manifests
    }
    return files, manifests


def _is_mark(file: RemovedFile) -> bool:
    """Tell whether a file stands for a version that goes; see `marks`."""
    return file.kind == FileKind.TRANSACTION.value and not file.unverified


def _stats(
    removed: Sequence[RemovedFile],
    manifests: Mapping[RemovedFile, int],
    failures: Sequence[str] = (),
) -> CleanupStats:
    counts = Counter(file.kind for file in removed)
    return CleanupStats(
        bytes_removed=sum(file.size_bytes for file in removed),
        old_versions=counts[FileKind.MANIFEST.value],
        data_files_removed=counts[FileKind.DATA.value],
        transaction_files_removed=counts[FileKind.TRANSACTION.value],
        index_files_removed=counts[FileKind.INDEX.value],
        deletion_files_removed=counts[FileKind.DELETION.value],
        failed_deletes=len(failures),
        first_failure=failures[0] if failures else None,
        versions=tuple(sorted({manifests[file] for file in removed if file in manifests})),
        files=tuple(removed),
    )


class _Deletion:
    """Deletes files, several at once where a request takes its time.

    Attributes
    ----------
    failures : list of str
        Why files could not be deleted.
    """

    def __init__(self, store: ObjectStore, rate: int | None, concurrency: int | None) -> None:
        self._store = store
        self._interval = 1 / rate if rate else 0.0
        self._next = time.monotonic()
        self._lock = threading.Lock()
        self._at_once = 1 if store.is_local else concurrency or DEFAULT_DELETE_CONCURRENCY
        self.failures: list[str] = []

    def delete(self, files: Sequence[RemovedFile]) -> list[RemovedFile]:
        """Delete files, or find them gone; return those."""
        if self._at_once == 1:
            return [file for file in files if self._delete(file)]
        removed: list[RemovedFile] = []
        with ThreadPoolExecutor(self._at_once) as pool:
            # In batches: an error that is not the store's ends the run before all is under way.
            for at in range(0, len(files), _BATCH):
                batch = files[at : at + _BATCH]
                done = pool.map(self._delete, batch)
                removed += [file for file, is_gone in zip(batch, done, strict=True) if is_gone]
        return removed

    def _delete(self, file: RemovedFile) -> bool:
        self._wait()
        try:
            self._store.delete([file.path])
        except StorageError as error:
            self.failures.append(str(error))
            return False
        return True

    def _wait(self) -> None:
        if not self._interval:
            return
        with self._lock:
            now = time.monotonic()
            wait = max(self._next - now, 0.0)
            self._next = now + wait + self._interval
        time.sleep(wait)
