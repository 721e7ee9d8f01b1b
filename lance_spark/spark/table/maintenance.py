"""Methods of `LanceTable` for maintenance.

| method | runs on | effect |
| --- | --- | --- |
| `optimize` | executors rewrite, the driver commits | rewrites small fragments to large ones |
| `vacuum` | driver | removes old versions, and the files that only they refer to |
| `validate` | driver | checks the manifest and the files |
| `cleanup` | driver | removes files of failed jobs, to which no version refers |

After a conflict, a compaction rewrites only the fragments that another client changed
(`lance_spark.mutations.compaction.run`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from lance_spark.arguments import takes_keywords
from lance_spark.errors import InvalidInputError, StorageError
from lance_spark.keywords import of_group
from lance_spark.mutations.compaction.options import CompactionKeywords, CompactionOptions
from lance_spark.mutations.compaction.run import Compaction, check_excluded
from lance_spark.mutations.compaction.task import CompactionMetrics
from lance_spark.spark.table.base import TableBase
from lance_spark.spark.table.jobs.find_rows import find_rows
from lance_spark.table.commit.options import CommitOptions, RetryKeywords

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.job import Job
    from lance_spark.table.cleanup.plan import CleanupPolicy
    from lance_spark.table.cleanup.run import CleanupStats
    from lance_spark.table.manifest.manifest import Manifest

VACUUM_COLUMNS = "bytes_removed long, old_versions long"
CLEANUP_COLUMNS = "bytes_removed long, files_removed long"
#: Options of the Java connector that have no effect here.
_IGNORED = ("max_rows_per_group", "batch_size")


class OptimizeKeywords(CompactionKeywords, RetryKeywords, total=False):
    """Keywords of `LanceTable.optimize`."""


class MaintenanceMethods(TableBase):
    """Methods of `LanceTable` for maintenance."""

    @takes_keywords(unused=_IGNORED)
    def optimize(
        self,
        where: str | Column | None = None,
        sortBy: str | Column | Sequence[str | Column] | None = None,  # noqa: N803 - as its siblings
        zOrderBy: str | Column | Sequence[str | Column] | None = None,  # noqa: N803
        **keywords: Unpack[OptimizeKeywords],
    ) -> DataFrame:
        """Rewrite small fragments to large fragments, without their deleted rows.

        Other clients can append and delete rows at the same time: their deletions are kept. In the
        second half of the `conflict_retries`, fragments that change during the commit are left out.

        Parameters
        ----------
        where : str or Column, optional
            Rewrite only fragments with a row that meets this condition.
        sortBy : str, Column, or sequence of them, optional
            Rewrite all of these fragments, with their rows sorted by these columns, nulls first:
            filters on the columns then skip most of the table. If they are all fragments, and the
            columns are names, the order is recorded, and queries do not sort again. Fragments that
            an index covers are not mixed with others. Indexes that hold row addresses (BTREE, and
            all indexes of a table without stable row ids) do not cover these rows afterwards. After
            another client changed a row, all fragments are sorted again.
        zOrderBy : str, Column, or sequence of them, optional
            As `sortBy`, but rows that are similar in all of these columns, at most six, are stored
            together: for filters on any of them.

        Returns
        -------
        DataFrame
            A row: fragments_removed, fragments_added, files_removed, files_added.

        Raises
        ------
        InvalidOptionError
            An option is not known, its value is out of range, or ``excluded_fragment_ids`` names a
            fragment that the table does not have.
        InvalidInputError
            Spark cannot analyse the condition, or the options of the table name a version.
        CommitConflictError
            Other clients changed the same fragments in all attempts.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        commit = CommitOptions.of(**of_group(RetryKeywords, keywords))
        chosen = CompactionOptions(**of_group(CompactionKeywords, keywords))
        if chosen.excluded_fragment_ids:
            check_excluded(self._writable("optimize"), chosen)
        if sortBy is not None and zOrderBy is not None:
            raise InvalidInputError("optimize: set sortBy or zOrderBy, not both")
        if sortBy is not None:
            metrics = self._sort(where, sortBy, False, chosen, commit)
        elif zOrderBy is not None:
            metrics = self._sort(where, zOrderBy, True, chosen, commit)
        else:
            metrics = self._compact(where, chosen, commit)
        return self._compaction_frame(metrics)

    def vacuum(
        self,
        retentionHours: float | None = None,  # noqa: N803 - as DeltaTable has it
        *,
        before_version: int | None = None,
        before_timestamp_millis: int | None = None,
        retain_versions: int | None = None,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = False,
        dryRun: bool = False,  # noqa: N803
    ) -> DataFrame:
        """Remove old versions of the branch, and the files that only they refer to.

        A version is removed only if it meets all conditions that are given. The newest version is
        never removed, nor are versions with a tag, and versions and files that branches need.
        Clones in other folders are unknown: tag the versions that they need.

        Parameters
        ----------
        retentionHours : float, optional
            Remove only versions of at least this age in hours; two weeks if no other condition is
            given.
        before_version : int, optional
            Remove only versions with a lower number.
        before_timestamp_millis : int, optional
            Remove only versions that were committed before this time, in milliseconds since 1970.
        retain_versions : int, optional
            Keep this number of newest versions.
        delete_unverified : bool
            Whether to remove files that no version refers to regardless of their age, instead of
            only those older than 7 days. No client may be writing to the table.
        error_if_tagged_old_versions : bool
            Whether it is an error if a version that meets the conditions has a tag; otherwise it is
            kept.
        dryRun : bool
            Remove nothing; only return what would be removed.

        Returns
        -------
        DataFrame
            A row: bytes_removed, old_versions (number of removed versions).

        Raises
        ------
        InvalidInputError
            A limit is out of range, or a version that meets the conditions has a tag, and that is
            an error. Nothing is removed.
        StorageError
            Some files could not be deleted. All others are deleted.
        CorruptTableError, UnsupportedFeatureError
            A version cannot be read, so its references are unknown. Nothing is removed.
        """
        from lance_spark.table.cleanup.run import policy_for

        limits = []
        if retentionHours is not None:
            if retentionHours < 0:
                raise InvalidInputError(
                    f"retentionHours={retentionHours}: an age must not be negative"
                )
            limits.append(time.time_ns() - int(retentionHours * 3600 * 10**9))
        if before_timestamp_millis is not None:
            limits.append(before_timestamp_millis * 10**6)
        policy = policy_for(
            timedelta() if limits else None,
            retain_versions,
            before_version=before_version,
            delete_unverified=delete_unverified,
            error_if_tagged_old_versions=error_if_tagged_old_versions,
        )
        if limits:
            policy = replace(policy, before_ns=min(limits))
        stats = self._clean("vacuum", policy, dryRun)
        row = (stats.bytes_removed, stats.old_versions)
        return self._data_frame([row], VACUUM_COLUMNS)

    def cleanup(
        self,
        olderThan: timedelta = timedelta(days=7),  # noqa: N803 - as its siblings
        dryRun: bool = False,  # noqa: N803
    ) -> DataFrame:
        """Remove files of failed jobs, to which no version refers. Versions are not removed.

        Parameters
        ----------
        olderThan : timedelta
            Keep younger files: a job may be about to commit them.
        dryRun : bool
            Remove nothing; only return what would be removed.

        Returns
        -------
        DataFrame
            A row: bytes_removed, files_removed.

        Raises
        ------
        InvalidInputError, StorageError, CorruptTableError, UnsupportedFeatureError
            As in `vacuum`.
        """
        from lance_spark.table.cleanup.run import policy_for_failed_jobs

        stats = self._clean("cleanup", policy_for_failed_jobs(olderThan), dryRun)
        row = (stats.bytes_removed, len(stats.files))
        return self._data_frame([row], CLEANUP_COLUMNS)

    def validate(self) -> None:
        """Check the newest version, or the version that the options name; see `Dataset.validate`.

        Raises
        ------
        CorruptTableError
            The version is damaged; the message lists the first problems with their fragments and
            files.
        TableNotFoundError, UnsupportedFeatureError, UnsupportedEncodingError, StorageError
        """
        self.dataset().validate()

    def _compact(
        self, condition: str | Column | None, options: CompactionOptions, commit: CommitOptions
    ) -> CompactionMetrics:
        with Compaction(options, commit) as compaction:

            def plan(job: Job, dataset: Dataset) -> tuple[Manifest, CompactionMetrics]:
                manifest = compaction.commit(
                    dataset._table,
                    runner=job.runner("rewrite fragments"),
                    excluded=self._fragments_without(job, dataset, condition),
                )
                return manifest, compaction.metrics

            return self._change("optimize", plan, commit)

    def _sort(
        self,
        condition: str | Column | None,
        keys: str | Column | Sequence[str | Column],
        z_order: bool,
        options: CompactionOptions,
        commit: CommitOptions,
    ) -> CompactionMetrics:
        from lance_spark.spark.table.jobs.sort import column_names, sort_columns, sort_rows

        columns = sort_columns(keys, "zOrderBy" if z_order else "sortBy")
        names = column_names(keys)

        def plan(job: Job, dataset: Dataset) -> tuple[Manifest, CompactionMetrics]:
            excluded = self._fragments_without(job, dataset, condition)
            return sort_rows(
                self,
                job,
                dataset,
                columns,
                options,
                excluded,
                commit,
                z_order=z_order,
                names=names,
            )

        return self._change("optimize", plan, commit)

    def _clean(self, operation: str, policy: CleanupPolicy, dry_run: bool) -> CleanupStats:
        from lance_spark.table.cleanup.run import cleanup

        table = self._writable(operation)
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
        self, job: Job, dataset: Dataset, condition: str | Column | None
    ) -> frozenset[int]:
        """Return the fragments in which no row meets a condition; an empty set if it is None."""
        if condition is None:
            return frozenset()
        matches = find_rows(self, job, dataset, condition)
        return frozenset(
            fragment.id for fragment in dataset.fragments if fragment.id not in matches
        )
