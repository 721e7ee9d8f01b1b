"""Commits of writes: rebased after a conflict, and without leftover data files after a failure.

| a write that conflicts with | is committed on top of it if the newest version |
| --- | --- |
| an append, with an overwrite or a restore | stores the columns as the data files have them |
| an overwrite, with an overwrite | (no further condition) |

In both cases the newest version must still have the base paths of the write.

Both are conflicts in the matrix of the format (table/commit/transaction.md), which does not know
the intent of the user. A user of Spark expects a write to apply to the table as it is at the end of
the write. Writing the rows again would produce the same files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from lance_spark.errors import (
    AlreadyCommittedError,
    CommitConflictError,
    LanceError,
    StorageError,
    UncertainCommitError,
)
from lance_spark.table.commit.idempotency import WriteToken
from lance_spark.table.commit.options import replan_on_conflict
from lance_spark.table.commit.write_job import WriteJob
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import TablePaths


def commit_or_clean_up(
    job: WriteJob,
    fragments: Sequence[Fragment],
    properties: Mapping[str, str] | None = None,
    write_token: WriteToken | None = None,
) -> OpenTable:
    """Commit a write and return the new version.

    After a failure, the files of the write are deleted unless a version may refer to them. Raises
    LanceError: Errors of `WriteJob.commit_manifest`.
    """
    with _clean_up_on_failure(job, fragments):
        manifest = job.commit_manifest(fragments, properties=properties, write_token=write_token)
    return OpenTable(TablePaths(job.store(), manifest.base_paths, job.storage_options), manifest)


def commit_on_newest(
    job: WriteJob,
    fragments: Sequence[Fragment],
    properties: Mapping[str, str] | None = None,
    write_token: WriteToken | None = None,
) -> Manifest:
    """Commit a write, and rebase it onto the newest version after a conflict.

    After a failure, the files of the write are deleted unless a version may refer to them.

    - `job`: Its `commit_retries` limit the retries after conflicts, too.
    - `write_token`: See `WriteJob.commit_manifest`.

    Raises LanceError: errors of `WriteJob.commit_manifest`.
    """

    def attempt(current: WriteJob) -> Manifest:
        return current.commit_manifest(fragments, properties=properties, write_token=write_token)

    def replan(current: WriteJob, _: CommitConflictError) -> WriteJob | None:
        with suppress(LanceError):
            return current.strategy.rebased(current)
        return None

    with _clean_up_on_failure(job, fragments):
        return replan_on_conflict(attempt, job, replan, job.commit_retries)


@contextmanager
def _clean_up_on_failure(job: WriteJob, fragments: Sequence[Fragment]) -> Iterator[None]:
    """Delete the files of fragments if their commit fails, unless it is uncertain."""
    try:
        yield
    except UncertainCommitError:
        raise
    except AlreadyCommittedError as error:
        with suppress(LanceError):
            job.abort(_unused_fragments(job, fragments, error.version))
        raise
    except LanceError:
        # The caller gets the error of the commit, not one of the deletion.
        with suppress(StorageError):
            job.abort(fragments)
        raise


def _unused_fragments(job: WriteJob, fragments: Sequence[Fragment], version: int) -> list[Fragment]:
    """Return the fragments whose files a version does not use."""
    # An earlier commit of the same fragments may have succeeded, although its reply was lost.
    manifest = read_version(job.store(), version)
    used = {file.path for fragment in manifest.fragments for file in fragment.files}
    return [
        fragment for fragment in fragments if used.isdisjoint(file.path for file in fragment.files)
    ]
