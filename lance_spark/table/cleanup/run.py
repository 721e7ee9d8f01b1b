"""Cleanup: removes old versions of a table, and the files that only they refer to.

`lance_spark.table.cleanup.plan` determines the files. They are deleted in this order: transaction
files of the versions to remove, which marks these versions; after a second look at tags and
branches, data, deletion and index files; folders that are empty now; manifests, oldest first. An
interrupted cleanup leaves

- all remaining versions untouched,
- old versions with a manifest but without some files: reading them fails with the name of a missing
  file,
- the manifests of these versions, which prove that no job is writing their files. The next cleanup
  needs no grace period to continue.

If the manifests went first, cleanup could not distinguish the other files from the files of a
running job. For the same reason, a failed deletion of a file keeps all manifests of the run.
Manifests are kept, too, if the newest version is gone or is another one: another client may have
deleted the table and created it again, and the manifests of these names are those of the new table.

Only files listed below the table's own root are deleted (`lance_spark.table.cleanup.plan`). Paths
in manifests are compared with the list; they are never deleted directly. Files below base paths are
never removed.
"""

from __future__ import annotations

import datetime
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lance_spark import progress
from lance_spark.arguments import check_least
from lance_spark.errors import InvalidInputError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.cleanup.plan import CleanupPlan, CleanupPlanner, CleanupPolicy, FilePurpose

DEFAULT_AGE = datetime.timedelta(days=14)
DEFAULT_DELETE_CONCURRENCY = 16
_MICROSECOND = datetime.timedelta(microseconds=1)
#: Files, and requests that delete many files.
_LEAST_FILES, _REQUESTS = 256, 4
_STEPS_OF_A_SECOND = 10


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file that a cleanup removed, or would remove in a dry run.

    Attributes
    ----------
    path : str
        Path relative to the root that was cleaned up.
    kind : str
        "manifest", "data" (blob files as well), "transaction", "index", "deletion" or "temporary".
    size_bytes : int
    unverified : bool
        Whether no version referred to the file: it was removed because of its age or of
        `delete_unverified`.
    """

    path: str
    kind: str
    size_bytes: int
    unverified: bool


@dataclass(frozen=True, slots=True)
class CleanupStats:
    """The versions and files that a cleanup removed, or would remove in a dry run.

    Attributes
    ----------
    bytes_removed : int
        Size of all removed files.
    old_versions : int
        Number of removed manifests.
    data_files_removed, transaction_files_removed, index_files_removed, deletion_files_removed : int
        Numbers of removed files. Blob files count as data files.
    failed_deletes : int
        Number of files that the store did not delete. They are not counted as removed; clean up
        again.
    first_failure : str, optional
        The error of the first failed deletion.
    versions : tuple of int
        The removed versions, oldest first.
    files : tuple of RemovedFile
        All removed files, in the order of deletion.
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
    """Return the policy for arguments of `Dataset.cleanup_old_versions`; default age: two weeks.

    Raises InvalidInputError: `older_than` is negative, `retain_versions` is not positive, or
    `versions` is empty.
    """
    if older_than is None and (retain_versions, versions, before_version) == (None, None, None):
        older_than = DEFAULT_AGE
    if older_than is not None and not isinstance(older_than, datetime.timedelta):
        raise InvalidInputError(f"older_than must be a timedelta, not {type(older_than).__name__}")
    if retain_versions is not None:
        check_least("retain_versions", retain_versions, 1)
    chosen = None if versions is None else frozenset(versions)
    if chosen is not None and not chosen:
        raise InvalidInputError("versions must have at least one version, or be left out")
    return CleanupPolicy(
        None if older_than is None else _time_before(older_than),
        retain_versions,
        before_version,
        chosen,
        delete_unverified,
        error_if_tagged_old_versions,
    )


def policy_for_failed_jobs(older_than: datetime.timedelta) -> CleanupPolicy:
    """Return the policy that removes no version, only unreferenced files of at least this age.

    Raises InvalidInputError: `older_than` is negative.
    """
    return CleanupPolicy(unverified_before_ns=_time_before(older_than), keep_versions=True)


def _time_before(age: datetime.timedelta) -> int:
    """Return the time that long ago, in nanoseconds since 1970."""
    if age < datetime.timedelta():
        raise InvalidInputError(f"older_than must not be negative, not {age}")
    return time.time_ns() - age // _MICROSECOND * 1000


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

    - `store`: Root of the table, or of one of its branches.
    - `read_version`: This version and newer versions stay. The newest version always stays.
    - `branch`: The branch that `store` is the root of; None for the main branch.
    - `dry_run`: Remove nothing; only return what would be removed.
    - `delete_rate_limit`: Maximum number of files deleted per second.
    - `delete_concurrency`: Maximum number of concurrent requests, 16 by default; 4 if each deletes
      many files. Local files are deleted one by one.

    Raises TableNotFoundError, StorageError. Raises InvalidInputError: a limit is not positive, or a
    tag is on a removable version, and that is an error. Nothing is removed. Raises
    CorruptTableError, UnsupportedFeatureError: a version cannot be read, so its references are
    unknown. Nothing is removed.
    """
    for option, value in (
        ("delete_rate_limit", delete_rate_limit),
        ("delete_concurrency", delete_concurrency),
    ):
        if value is not None:
            check_least(option, value, 1)
    planner = CleanupPlanner(store, policy, branch)
    plan = planner.plan(read_version)
    files, manifests = _files_of(plan)
    if dry_run:
        return _stats([*files, *manifests], manifests)
    deletion = _Deletion(store, delete_rate_limit, delete_concurrency)
    transactions = [file for file in files if _is_transaction_of_version(file)]
    removed = deletion.delete(transactions, "remove_transactions")
    plan = planner.look_again(
        is_marked=bool(transactions),
        unmarked={file.path for file in transactions} - {file.path for file in removed},
    )
    files, manifests = _files_of(plan)
    others = [file for file in files if not _is_transaction_of_version(file)]
    removed += deletion.delete(others, "remove_files")
    for folder in plan.folders:
        store.remove_folder(folder)
    if manifests and not deletion.failures and planner.is_same_table():
        removed += deletion.delete(list(manifests), "remove_manifests")
    return _stats(removed, manifests, deletion.failures)


def _files_of(plan: CleanupPlan) -> tuple[list[RemovedFile], dict[RemovedFile, int]]:
    """Return the files of a plan in the order of deletion, and the versions by manifest file."""
    files = [
        RemovedFile(candidate.info.path, candidate.purpose.value, candidate.info.size, unverified)
        for candidate, unverified in plan.files
    ]
    files.sort(key=lambda file: not _is_transaction_of_version(file))
    manifests = {
        RemovedFile(info.path, FilePurpose.MANIFEST.value, info.size, False): version
        for version, info in plan.manifests
    }
    return files, manifests


def _is_transaction_of_version(file: RemovedFile) -> bool:
    """Return whether a file is the transaction file of a version to remove; see `removal_guard`."""
    return file.kind == FilePurpose.TRANSACTION.value and not file.unverified


def _stats(
    removed: Sequence[RemovedFile],
    manifests: Mapping[RemovedFile, int],
    failures: Sequence[str] = (),
) -> CleanupStats:
    counts = Counter(file.kind for file in removed)
    return CleanupStats(
        bytes_removed=sum(file.size_bytes for file in removed),
        old_versions=counts[FilePurpose.MANIFEST.value],
        data_files_removed=counts[FilePurpose.DATA.value],
        transaction_files_removed=counts[FilePurpose.TRANSACTION.value],
        index_files_removed=counts[FilePurpose.INDEX.value],
        deletion_files_removed=counts[FilePurpose.DELETION.value],
        failed_deletes=len(failures),
        first_failure=failures[0] if failures else None,
        versions=tuple(sorted({manifests[file] for file in removed if file in manifests})),
        files=tuple(removed),
    )


class _Deletion:
    """Deletes files within limits of rate and concurrency.

    - `failures`: Errors of failed deletions.
    """

    def __init__(self, store: ObjectStore, rate: int | None, concurrency: int | None) -> None:
        self._store = store
        self._interval = 1 / rate if rate else 0.0
        self._next = time.monotonic()
        self._concurrency = concurrency or DEFAULT_DELETE_CONCURRENCY
        #: Files between two looks at the rate; so few that an unexpected error ends the run before
        #: all requests are under way.
        self._step = max(_LEAST_FILES, _REQUESTS * store.deleted_at_once)
        if rate:
            self._step = min(self._step, max(1, rate // _STEPS_OF_A_SECOND))
        self.failures: list[str] = []

    def delete(self, files: Sequence[RemovedFile], stage: str) -> list[RemovedFile]:
        """Delete files; return those that no longer exist.

        - `stage`: Name of the stage of progress.
        """
        if not files:
            return []
        removed = []
        with progress.stage(stage, len(files), "files") as counter:
            for start in range(0, len(files), self._step):
                step = files[start : start + self._step]
                self._wait(len(step))
                errors = self._store.delete_each([file.path for file in step], self._concurrency)
                for file, error in zip(step, errors, strict=True):
                    if error is None:
                        removed.append(file)
                    else:
                        self.failures.append(str(error))
                counter.advance(len(step))
        return removed

    def _wait(self, count: int) -> None:
        """Wait until that number of files may be deleted at once."""
        if not self._interval:
            return
        now = time.monotonic()
        last = max(self._next, now) + (count - 1) * self._interval
        self._next = last + self._interval
        time.sleep(last - now)
