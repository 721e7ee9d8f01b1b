"""Maintenance of a table: compaction, sorting, and removal of files.

| operation | runs on | effect |
| --- | --- | --- |
| compaction | executors rewrite, the driver commits | rewrites small fragments to large ones |
| vacuum | driver | removes old versions, and the files that only they refer to |
| cleanup | driver | removes files of failed jobs, to which no version refers |

After a conflict, a compaction rewrites only the fragments that another client changed
(`lance_spark.mutations.compaction.run`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.mutations.compaction.options import CompactionKeywords, CompactionOptions
from lance_spark.mutations.compaction.run import CompactionRun, check_excluded
from lance_spark.mutations.compaction.task import CompactionMetrics
from lance_spark.spark.table.jobs.find_rows import find_rows
from lance_spark.table.commit.options import CommitOptions, RetryKeywords

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.job import Job
    from lance_spark.spark.table.base import TableHandle
    from lance_spark.table.cleanup.plan import CleanupPolicy
    from lance_spark.table.cleanup.run import CleanupStats
    from lance_spark.table.manifest.manifest import Manifest

_COMPACTION_VALUES = ("fragments_removed", "fragments_added", "files_removed", "files_added")
COMPACTION_COLUMNS = ", ".join(f"{name} long" for name in _COMPACTION_VALUES)
VACUUM_COLUMNS = "bytes_removed long, old_versions long"
CLEANUP_COLUMNS = "bytes_removed long, files_removed long"
#: Options of the Java connector that have no effect here.
IGNORED = ("max_rows_per_group", "batch_size")


class OptimizeKeywords(CompactionKeywords, RetryKeywords, total=False):
    """Keywords of `LanceTable.optimize`."""


def optimize(
    handle: TableHandle,
    where: str | Column | None,
    sort_by: str | Column | Sequence[str | Column] | None,
    z_order_by: str | Column | Sequence[str | Column] | None,
    options: CompactionOptions,
    commit: CommitOptions,
) -> DataFrame:
    """Compact fragments, or sort their rows; see `LanceTable.optimize`."""
    if options.excluded_fragment_ids:
        check_excluded(handle.writable("optimize"), options)
    if sort_by is not None and z_order_by is not None:
        raise InvalidInputError("optimize: set sort_by or z_order_by, not both")
    if sort_by is not None:
        metrics = _sort(handle, where, sort_by, False, options, commit)
    elif z_order_by is not None:
        metrics = _sort(handle, where, z_order_by, True, options, commit)
    else:
        metrics = _compact(handle, where, options, commit)
    return compaction_frame(handle, metrics)


def compaction_frame(handle: TableHandle, metrics: CompactionMetrics) -> DataFrame:
    """Return the numbers of a compaction as a row."""
    row = tuple(getattr(metrics, name) for name in _COMPACTION_VALUES)
    return handle.data_frame([row], COMPACTION_COLUMNS)


def vacuum_policy(
    retention_hours: float | None,
    before_version: int | None,
    before_timestamp_millis: int | None,
    retain_versions: int | None,
    delete_unverified: bool,
    error_if_tagged_old_versions: bool,
) -> CleanupPolicy:
    """Return which versions a vacuum removes; see `LanceTable.vacuum`."""
    from lance_spark.table.cleanup.run import policy_for

    limits = []
    if retention_hours is not None:
        if retention_hours < 0:
            raise InvalidInputError(
                f"retentionHours={retention_hours}: an age must not be negative"
            )
        limits.append(time.time_ns() - int(retention_hours * 3600 * 10**9))
    if before_timestamp_millis is not None:
        limits.append(before_timestamp_millis * 10**6)
    policy = policy_for(
        timedelta() if limits else None,
        retain_versions,
        before_version=before_version,
        delete_unverified=delete_unverified,
        error_if_tagged_old_versions=error_if_tagged_old_versions,
    )
    return replace(policy, before_ns=min(limits)) if limits else policy


def vacuum(handle: TableHandle, policy: CleanupPolicy, dry_run: bool) -> DataFrame:
    """Remove old versions, and return what was removed; see `LanceTable.vacuum`."""
    stats = _clean(handle, "vacuum", policy, dry_run)
    return handle.data_frame([(stats.bytes_removed, stats.old_versions)], VACUUM_COLUMNS)


def cleanup_failed_jobs(handle: TableHandle, older_than: timedelta, dry_run: bool) -> DataFrame:
    """Remove files of failed jobs, and return what was removed; see `LanceTable.cleanup`."""
    from lance_spark.table.cleanup.run import policy_for_failed_jobs

    stats = _clean(handle, "cleanup", policy_for_failed_jobs(older_than), dry_run)
    return handle.data_frame([(stats.bytes_removed, len(stats.files))], CLEANUP_COLUMNS)


def _compact(
    handle: TableHandle,
    condition: str | Column | None,
    options: CompactionOptions,
    commit: CommitOptions,
) -> CompactionMetrics:
    with CompactionRun(options, commit) as compaction:

        def plan(job: Job, dataset: Dataset) -> tuple[Manifest, CompactionMetrics]:
            manifest = compaction.commit(
                dataset._table,
                runner=job.runner("rewrite fragments"),
                excluded=_fragments_without(handle, job, dataset, condition),
            )
            return manifest, compaction.metrics

        return handle.change("optimize", plan, commit)


def _sort(
    handle: TableHandle,
    condition: str | Column | None,
    keys: str | Column | Sequence[str | Column],
    z_order: bool,
    options: CompactionOptions,
    commit: CommitOptions,
) -> CompactionMetrics:
    from lance_spark.spark.table.jobs.sort import column_names, sort_columns, sort_rows

    columns = sort_columns(keys, "z_order_by" if z_order else "sort_by")
    names = column_names(keys)

    def plan(job: Job, dataset: Dataset) -> tuple[Manifest, CompactionMetrics]:
        excluded = _fragments_without(handle, job, dataset, condition)
        return sort_rows(
            handle,
            job,
            dataset,
            columns,
            options,
            excluded,
            commit,
            z_order=z_order,
            names=names,
        )

    return handle.change("optimize", plan, commit)


def _clean(
    handle: TableHandle, operation: str, policy: CleanupPolicy, dry_run: bool
) -> CleanupStats:
    from lance_spark.table.cleanup.run import cleanup

    table = handle.writable(operation)
    stats = cleanup(
        table.store,
        policy,
        read_version=table.version,
        branch=table.manifest.branch,
        dry_run=dry_run,
    )
    if stats.failed_deletes:
        raise StorageError(
            f"{table.store.display}: {operation} removed {len(stats.files)} files, and could "
            f"not remove {stats.failed_deletes}; run it again. The first error was: "
            f"{stats.first_failure}"
        )
    return stats


def _fragments_without(
    handle: TableHandle, job: Job, dataset: Dataset, condition: str | Column | None
) -> frozenset[int]:
    """Return the fragments in which no row meets a condition; an empty set if it is None."""
    if condition is None:
        return frozenset()
    matches = find_rows(handle, job, dataset, condition)
    return frozenset(fragment.id for fragment in dataset.fragments if fragment.id not in matches)
