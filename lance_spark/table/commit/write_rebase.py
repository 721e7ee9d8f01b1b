"""Commits of writes whose rows hold on top of whatever became of the table, if their data files fit
it.

| a write, overtaken by | is committed on top of it if |
| --- | --- |
| an append, by an overwrite or a restored version | the columns are stored as its data files have them: ids, names, types, metadata; and the version of the files, and the base paths that there were |
| an overwrite, by an overwrite | the base paths that there were are the same |

A commit alone refuses both, as the format's table of conflicts has it
(table/commit/transaction.md): it cannot know what was meant. Who writes by Spark means the table
that there is when the write is done; the rows are written, and writing them again would make the
same files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest

from lance_spark.errors import (
    CommitConflictError,
    LanceError,
    SchemaMismatchError,
)
from lance_spark.file.schema.schema import Field
from lance_spark.storage.store import ObjectStore
from lance_spark.table.append_schema import filled_by
from lance_spark.table.commit.idempotency import WriteToken
from lance_spark.table.commit.write_cleanup import cleaned_up
from lance_spark.table.commit.write_job import WriteJob
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import read_latest


def commit_again(
    job: WriteJob,
    fragments: Sequence[Fragment],
    properties: Mapping[str, str] | None = None,
    once: WriteToken | None = None,
) -> Manifest:
    """Commit a write, and once more on top of what it conflicts with; delete its files if no
    version refers to them.

    Parameters
    ----------
    job : WriteJob
        Its commit starts again so often for conflicts too as for other writers that are faster.
    fragments : sequence of Fragment
    properties : mapping of str to str, optional
    once : Once, optional
        See `WriteJob.commit_manifest`.

    Returns
    -------
    Manifest
        The new version.

    Raises
    ------
    LanceError
        What `WriteJob.commit_manifest` raises.
    """
    left = job.commit_retries
    with cleaned_up(job, fragments):
        while True:
            try:
                return job.commit_manifest(fragments, properties=properties, once=once)
            except CommitConflictError:
                newer = None
                if left:
                    with suppress(LanceError):
                        newer = on_newest(job)
                if newer is None:
                    raise
            job = newer
            left -= 1


def on_newest(job: WriteJob) -> WriteJob | None:
    """Return a write as if it had been planned on the newest version.

    None if it was, if that version does not fit the data files, or if it is of a kind that looks
    for itself.

    Raises
    ------
    StorageError, CorruptTableError
    """
    if type(job) is not WriteJob:
        return None
    newest = read_latest(ObjectStore.from_uri(job.uri, job.storage_options))
    if not 0 < job.read_version < newest.version:
        return None
    # Base paths that were added meanwhile do not matter.
    if any(newest.base_paths.get(number) != base for number, base in job.base_paths.items()):
        return None
    if job.mode == "append" and not fits(job, newest):
        return None
    return replace(job, read_version=newest.version, read_identity=newest.identity)


def fits(job: WriteJob, manifest: Manifest) -> bool:
    """Tell whether the columns of a version are stored as an append's data files, written for
    another one, have them.
    """
    if manifest.data_storage_version != job.file_version:
        return False
    try:
        wanted = filled_by(manifest.schema, job.schema, job.uri)
    except SchemaMismatchError:
        return False
    return all(
        item is not None
        and other is not None
        and _stored(item) == _stored(other)
        and (item.nullable or not other.nullable)
        for item, other in zip_longest(wanted.walk(), job.schema.walk())
    )


def _stored(field: Field) -> tuple[object, ...]:
    return field.id, field.parent_id, field.name, field.logical_type, dict(field.metadata)
