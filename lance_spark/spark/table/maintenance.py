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

import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

from lance_spark.dataset.decorators import prefixes_errors_by
from lance_spark.errors import ArgumentTypeError, InvalidInputError, StorageError
from lance_spark.mutations.compaction.options import CompactionKeywords, CompactionOptions
from lance_spark.mutations.compaction.run import CompactionRun, check_excluded
from lance_spark.mutations.compaction.task import CompactionMetrics
from lance_spark.spark.table.jobs.find_rows import find_rows, predicate_list
from lance_spark.storage.uri import parse_uri
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
#: What `OptimizeBuilder` returns, before `COMPACTION_COLUMNS`: the names of Delta.
_BUILDER_COLUMNS = (
    "path string, metrics struct<numFilesAdded long, numFilesRemoved long, "
    "totalConsideredFiles long, totalFilesSkipped long>"
)
VACUUM_COLUMNS = "bytes_removed long, old_versions long"
CLEANUP_COLUMNS = "bytes_removed long, files_removed long"
#: Options of the Java connector that have no effect here.
IGNORED = ("max_rows_per_group", "batch_size")


class OptimizeKeywords(CompactionKeywords, RetryKeywords, total=False):
    """Keywords of `LanceTable.optimize`."""


@prefixes_errors_by(lambda builder: parse_uri(builder._handle.path).display)
class OptimizeBuilder:
    """Builder of a compaction; returned by `LanceTable.optimize` without arguments.

    It compacts nothing before `executeCompaction` or `executeZOrderBy` is called. A warning tells
    if neither is.

    Parameters
    ----------
    handle : TableHandle
    condition : str or Column, optional
    """

    def __init__(self, handle: TableHandle, condition: str | Column | None = None) -> None:
        self._handle = handle
        self._condition = condition
        self._is_used = False

    def __del__(self) -> None:
        if not getattr(self, "_is_used", True):
            warnings.warn(
                "LanceTable.optimize() without arguments has compacted nothing: call "
                "executeCompaction() or executeZOrderBy(...) of the builder that it returns",
                RuntimeWarning,
                stacklevel=2,
            )

    def where(self, partitionFilter: str | Column) -> OptimizeBuilder:  # noqa: N803 - as DeltaOptimizeBuilder has it
        """Return a builder that rewrites only fragments with a row that meets a condition.

        Parameters
        ----------
        partitionFilter : str or Column
            Condition on any columns: Lance tables have no partitions.
        """
        self._is_used = True
        return OptimizeBuilder(self._handle, partitionFilter)

    def executeCompaction(self) -> DataFrame:  # noqa: N802 - as DeltaOptimizeBuilder has it
        """Rewrite small fragments to large fragments, without their deleted rows.

        Returns
        -------
        DataFrame
            A row: path, metrics (a struct: numFilesAdded, numFilesRemoved, totalConsideredFiles,
            totalFilesSkipped), and the columns that `LanceTable.optimize` returns.

        Raises
        ------
        LanceError
            As in `LanceTable.optimize`.
        """
        return self._frame(None)

    def executeZOrderBy(self, *cols: str | list[str] | tuple[str, ...]) -> DataFrame:  # noqa: N802 - as DeltaOptimizeBuilder has it
        """Rewrite fragments with rows together that are similar in some columns, at most six.

        Parameters
        ----------
        *cols : str, or a list of them

        Returns
        -------
        DataFrame
            As `executeCompaction`.

        Raises
        ------
        LanceError
            As in `LanceTable.optimize`.
        """
        given = cols[0] if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols
        names = []
        for name in given:
            if not isinstance(name, str):
                raise ArgumentTypeError(
                    f"executeZOrderBy: cols must be names of columns, not {type(name).__name__}"
                )
            names.append(name)
        if not names:
            raise InvalidInputError("executeZOrderBy: name at least one column")
        return self._frame(names)

    def compacted(self, z_order_by: Sequence[str] | None = None) -> CompactionMetrics:
        """Compact, and return the numbers."""
        self._is_used = True
        options, commit = CompactionOptions(), CommitOptions()
        return optimize(self._handle, self._condition, None, z_order_by, options, commit)

    def _frame(self, z_order_by: Sequence[str] | None) -> DataFrame:
        num_files = sum(len(fragment.files) for fragment in self._handle.dataset().fragments)
        metrics = self.compacted(z_order_by)
        removed = metrics.files_removed
        row = (
            parse_uri(self._handle.path).display,
            (metrics.files_added, removed, num_files, max(num_files - removed, 0)),
            *_compaction_values(metrics),
        )
        return self._handle.data_frame([row], f"{_BUILDER_COLUMNS}, {COMPACTION_COLUMNS}")


def builder_without_arguments(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate `LanceTable.optimize` so that a call without arguments returns a builder."""

    @wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, **kwargs) if args or kwargs else OptimizeBuilder(self._handle)

    return call


def optimize(
    handle: TableHandle,
    where: str | Column | None,
    sort_by: str | Column | Sequence[str | Column] | None,
    z_order_by: str | Column | Sequence[str | Column] | None,
    options: CompactionOptions,
    commit: CommitOptions,
) -> CompactionMetrics:
    """Compact fragments, or sort their rows; see `LanceTable.optimize`."""
    order = {
        label: json.dumps([str(key) for key in _listed(keys)], ensure_ascii=False)
        for label, keys in (("sortBy", sort_by), ("zOrderBy", z_order_by))
        if keys is not None
    }
    commit = commit.with_operation("OPTIMIZE", predicate=predicate_list(where), **order)
    if options.excluded_fragment_ids:
        check_excluded(handle.writable("optimize"), options)
    if sort_by is not None and z_order_by is not None:
        raise InvalidInputError("optimize: set sort_by or z_order_by, not both")
    if sort_by is not None:
        return _sort(handle, where, sort_by, False, options, commit)
    if z_order_by is not None:
        return _sort(handle, where, z_order_by, True, options, commit)
    return _compact(handle, where, options, commit)


def _listed(keys: str | Column | Sequence[str | Column]) -> list[str | Column]:
    return list(keys) if isinstance(keys, list | tuple) else [keys]  # type: ignore[list-item]


def compaction_frame(handle: TableHandle, metrics: CompactionMetrics) -> DataFrame:
    """Return the numbers of a compaction as a row."""
    return handle.data_frame([_compaction_values(metrics)], COMPACTION_COLUMNS)


def _compaction_values(metrics: CompactionMetrics) -> tuple[int, ...]:
    return tuple(getattr(metrics, name) for name in _COMPACTION_VALUES)


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
