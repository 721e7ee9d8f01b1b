"""Commits of writes: rebased onto newer versions, and no data files left behind after a failure.

| a write, after a conflict with | is committed on top of it if the newest version |
| --- | --- |
| an append, with an overwrite or a restore | stores the columns as the data files have them |
| an overwrite, with an overwrite | (no further condition) |

In both cases the newest version must still have the base paths of the write.

A commit alone refuses both, as the format's conflict matrix says (table/commit/transaction.md): it
does not know what the user meant. A user of Spark means the table as it is when the write is done.
The rows are written by then; to write them again would make the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from lance_spark.errors import (
    AlreadyCommittedError,
    CommitConflictError,
    LanceError,
    StorageError,
    UncertainCommitError,
)
from lance_spark.table.commit.idempotency import WriteToken
from lance_spark.table.commit.retry import replan_on_conflict
from lance_spark.table.commit.write_job import WriteJob
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable, read_latest
from lance_spark.table.paths import TablePaths


def commit_or_clean_up(
    job: WriteJob,
    fragments: Sequence[Fragment],
    properties: Mapping[str, str] | None = None,
    once: WriteToken | None = None,
) -> OpenTable:
    """Commit a write; delete its files if certainly no version refers to them.

    Returns
    -------
    OpenTable
        The new version.

    Raises
    ------
    LanceError
        Errors of `WriteJob.commit_manifest`.
    """
    with _cleaned_up(job, fragments):
        manifest = job.commit_manifest(fragments, properties=properties, once=once)
    return OpenTable(TablePaths(job.store(), manifest.base_paths, job.storage_options), manifest)


def commit_again(
    job: WriteJob,
    fragments: Sequence[Fragment],
    properties: Mapping[str, str] | None = None,
    once: WriteToken | None = None,
) -> Manifest:
    """Commit a write, after a conflict on top of the newest version; else delete its files.

    Parameters
    ----------
    job : WriteJob
        Its `commit_retries` count for conflicts as well.
    fragments : sequence of Fragment
    properties : mapping of str to str, optional
    once : WriteToken, optional
        See `WriteJob.commit_manifest`.

    Raises
    ------
    LanceError
        Errors of `WriteJob.commit_manifest`.
    """

    def attempt(current: WriteJob) -> Manifest:
        return current.commit_manifest(fragments, properties=properties, once=once)

    def replan(current: WriteJob, _: CommitConflictError) -> WriteJob | None:
        with suppress(LanceError):
            return on_newest(current)
        return None

    with _cleaned_up(job, fragments):
        return replan_on_conflict(attempt, job, replan, job.commit_retries)


def on_newest(job: WriteJob) -> WriteJob | None:
    """Return a write as if it had been planned on the newest version; None if it does not hold.

    Raises
    ------
    StorageError, CorruptTableError
    """
    newest = read_latest(job.store())
    if not job.strategy.can_rebase_onto(job, newest):
        return None
    return replace(job, read_version=newest.version, read_identity=newest.identity)


@contextmanager
def _cleaned_up(job: WriteJob, fragments: Sequence[Fragment]) -> Iterator[None]:
    """Delete the files of fragments if their commit fails, unless it is uncertain."""
    try:
        yield
    except UncertainCommitError:
        raise
    except AlreadyCommittedError as done:
        with suppress(LanceError):
            job.abort(_not_in(job, fragments, done.version))
        raise
    except LanceError:
        # A conflict must not look like a store that failed.
        with suppress(StorageError):
            job.abort(fragments)
        raise


def _not_in(job: WriteJob, fragments: Sequence[Fragment], version: int) -> list[Fragment]:
    """Return the fragments that a version has no file of.

    An earlier commit of the same fragments may have succeeded without an answer.
    """
    manifest = read_version(job.store(), version)
    used = {file.path for fragment in manifest.fragments for file in fragment.files}
    return [item for item in fragments if used.isdisjoint(file.path for file in item.files)]
