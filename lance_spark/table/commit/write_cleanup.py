"""Commits of writes that leave no data files behind: what is not part of a version is deleted,
unless nobody knows whether it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from lance_spark.errors import (
    AlreadyCommittedError,
    LanceError,
    StorageError,
    UncertainCommitError,
)
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.idempotency import WriteToken
from lance_spark.table.commit.write_job import WriteJob
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import TablePaths


@contextmanager
def cleaned_up(job: WriteJob, fragments: Sequence[Fragment]) -> Iterator[None]:
    """Delete the files of fragments if their commit fails, unless it is not certain that it did."""
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
    """Return the fragments that a version has no file of: an earlier commit of the same ones may
    have had no answer.
    """
    store = ObjectStore.from_uri(job.uri, job.storage_options)
    manifest = read_version(store, version)
    used = {file.path for fragment in manifest.fragments for file in fragment.files}
    return [item for item in fragments if used.isdisjoint(file.path for file in item.files)]


def commit_or_clean_up(
    job: WriteJob,
    fragments: Sequence[Fragment],
    properties: Mapping[str, str] | None = None,
    once: WriteToken | None = None,
) -> OpenTable:
    """Commit the fragments, and delete their files if it is sure that no version refers to them;
    return the new version.

    Raises
    ------
    LanceError
        What `WriteJob.commit` raises.
    """
    with cleaned_up(job, fragments):
        manifest = job.commit_manifest(fragments, properties=properties, once=once)
    store = ObjectStore.from_uri(job.uri, job.storage_options)
    return OpenTable(TablePaths(store, manifest.base_paths, job.storage_options), manifest)
