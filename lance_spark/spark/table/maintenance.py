"""Keeping a table fast and small, through Spark.

| method | runs where | what it does |
| --- | --- | --- |
| `optimize` | executors rewrite groups of fragments, the driver commits | few large fragments in the place of many small ones |
| `vacuum` | driver | removes old versions, and the files that only they refer to |
| `validate` | driver | checks the manifest against the files |
| `cleanup` | driver | removes files that no version refers to, which jobs left that came to nothing |

A compaction that others got in the way of rewrites only what they changed
(`lance_spark.mutations.compaction.run`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lance_spark.errors import InvalidInputError, InvalidOptionError, StorageError
from lance_spark.mutations.compaction.plan import CompactionOptions
from lance_spark.mutations.compaction.run import Compaction, check_excluded
from lance_spark.mutations.compaction.task import CompactionMetrics
from lance_spark.mutations.retry import DEFAULT_CONFLICT_RETRIES
from lance_spark.spark.table.base import TableBase
from lance_spark.spark.table.jobs.find_rows import find_rows
from lance_spark.table.commit.transaction import with_message

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.jobs.job import Job
    from lance_spark.table.cleanup.plan import CleanupPolicy
    from lance_spark.table.cleanup.run import CleanupStats
    from lance_spark.table.manifest.manifest import Manifest

_METRICS = ("fragments_removed", "fragments_added", "files_removed", "files_added")
#: Options of the Java connector that say nothing here.
_IGNORED = frozenset({"max_rows_per_group", "batch_size", "num_threads"})
#: What `moveFragments` sets.
_INTERNAL = frozenset({"moved_fragment_ids"})


class MaintenanceMethods(TableBase):
    """Keeping a table fast and small."""

    def optimize(
        self,
        where: str | Column | None = None,
        sortBy: str | Column | Sequence[str | Column] | None = None,  # noqa: N803 - as its siblings
        zOrderBy: str | Column | Sequence[str | Column] | None = None,  # noqa: N803
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
        **options: Any,
    ) -> DataFrame:
        """Put few large fragments in the place of many small ones, without the rows that are
        deleted.

        Others can append and delete meanwhile: a row that they delete does not come back.

        Parameters
        ----------
        where : str or Column, optional
            Only fragments with a row that meets this condition.
        sortBy : str, Column, or sequence of them, optional
            Write all of these fragments anew, their rows in the order of these columns, nulls
            first: filters on them skip most of the table then. Fragments that an index covers and
            others are not mixed; indexes that hold addresses (all of them without stable row ids,
            and BTREE) do not know these rows afterwards. A row that others change meanwhile makes
            all of it begin again.
        zOrderBy : str, Column, or sequence of them, optional
            The same, with rows together that are near one another in all of these columns, six at
            most: for filters on any of them.
        commit_message : str, optional
        transaction_properties : mapping of str to str, optional
        conflict_retries : int
            How often to rewrite again what others changed meanwhile. After half of it, what they
            change while it is committed is left out.
        **options
            Those of `CompactionOptions`: ``target_rows_per_fragment``,
            ``target_bytes_per_fragment``, ``max_bytes_per_file``, ``materialize_deletions``,
            ``materialize_deletions_threshold``, ``defer_index_remap``, ``max_source_fragments``,
            ``max_source_rows``, ``max_source_bytes``, ``excluded_fragment_ids``. The Java
            connector's ``max_rows_per_group``, ``batch_size`` and ``num_threads`` have no meaning
            here, and no effect.

        Returns
        -------
        DataFrame
            A row: fragments_removed, fragments_added, files_removed, files_added.

        Raises
        ------
        InvalidOptionError
            There is no such option, its value is out of range, or ``excluded_fragment_ids`` names a
            fragment that the table does not have.
        InvalidInputError
            The condition cannot be analysed, or the table is open at a version.
        CommitConflictError
            Others changed the same fragments, again and again.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        properties = with_message(transaction_properties, commit_message)
        chosen = compaction_options(options)
        if chosen.excluded_fragment_ids:
            check_excluded(self.writable("optimize"), chosen)
        if sortBy is not None and zOrderBy is not None:
            raise InvalidInputError("optimize: give sortBy or zOrderBy, not both")
        if sortBy is not None:
            metrics = self._sort(where, sortBy, False, chosen, properties, conflict_retries)
        elif zOrderBy is not None:
            metrics = self._sort(where, zOrderBy, True, chosen, properties, conflict_retries)
        else:
            metrics = self._compact(where, chosen, properties, conflict_retries)
        row = tuple(getattr(metrics, name) for name in _METRICS)
        return self.spark.createDataFrame([row], ", ".join(f"{name} long" for name in _METRICS))

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

        The newest version, versions with a tag, and what branches need stay. Versions that clones
        elsewhere need cannot be known: give them tags. A version goes only if everything that is
        given allows it; two weeks of age, if nothing is.

        Parameters
        ----------
        retentionHours : float, optional
            Versions of a lesser age stay.
        before_version : int, optional
            This version and newer ones stay.
        before_timestamp_millis : int, optional
            Versions committed at that time or later stay; in milliseconds since 1970.
        retain_versions : int, optional
            So many of the newest stay.
        delete_unverified : bool
            Remove files that no version refers to whatever their age, instead of those older than 7
            days only. Nobody may be writing to the table.
        error_if_tagged_old_versions : bool
            Whether it is an error if versions with tags could go.
        dryRun : bool
            Only tell what would be removed.

        Returns
        -------
        DataFrame
            A row: bytes_removed, old_versions (how many versions were removed).

        Raises
        ------
        InvalidInputError
            A number is out of range, or versions with tags could go, and that is an error. Nothing
            is removed.
        StorageError
            Some files could not be deleted; those that could are.
        CorruptTableError, UnsupportedFeatureError
            A version cannot be read, so that nobody can tell what it needs. Nothing is removed.
        """
        from lance_spark.table.cleanup.run import policy_for

        limits = []
        if retentionHours is not None:
            if retentionHours < 0:
                raise InvalidInputError(
                    f"retentionHours={retentionHours}: an age cannot be negative"
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
        return self.spark.createDataFrame([row], "bytes_removed long, old_versions long")

    def cleanup(
        self,
        olderThan: timedelta = timedelta(days=7),  # noqa: N803 - as its siblings
        dryRun: bool = False,  # noqa: N803
    ) -> DataFrame:
        """Remove files that no version refers to: what jobs have left that came to nothing. No
        version goes.

        Parameters
        ----------
        olderThan : timedelta
            Files of a lesser age stay: a job may be about to commit them.
        dryRun : bool
            Only tell what would be removed.

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
        return self.spark.createDataFrame([row], "bytes_removed long, files_removed long")

    def validate(self) -> None:
        """Check the newest version, or the one that the options name, on the driver; see
        `Dataset.validate`.

        Raises
        ------
        CorruptTableError
            Lists the first problems, with the fragments and files that have them.
        TableNotFoundError, UnsupportedFeatureError, UnsupportedEncodingError, StorageError
        """
        self.dataset().validate()

    def _compact(
        self,
        where: str | Column | None,
        options: CompactionOptions,
        properties: Mapping[str, str],
        conflict_retries: int,
    ) -> CompactionMetrics:
        with Compaction(options, conflict_retries) as compaction:

            def plan(job: Job, dataset: Dataset) -> Manifest:
                return compaction.commit(
                    dataset._table,
                    runner=job.runner("rewrite fragments"),
                    excluded=self._fragments_without(job, dataset, where),
                    properties=properties,
                )

            self.change("optimize", plan, conflict_retries=conflict_retries)
            return compaction.metrics

    def _sort(
        self,
        where: str | Column | None,
        by: str | Column | Sequence[str | Column],
        curve: bool,
        options: CompactionOptions,
        properties: Mapping[str, str],
        conflict_retries: int,
    ) -> CompactionMetrics:
        from lance_spark.spark.table.jobs.sort import sort_columns, sort_rows

        columns = sort_columns(by, "zOrderBy" if curve else "sortBy")
        done: list[CompactionMetrics] = []

        def plan(job: Job, dataset: Dataset) -> Manifest:
            excluded = self._fragments_without(job, dataset, where)
            manifest, metrics = sort_rows(
                self, job, dataset, columns, options, excluded, properties, curve=curve
            )
            done.append(metrics or CompactionMetrics())
            return manifest

        self.change("optimize", plan, conflict_retries=conflict_retries)
        return done[-1]

    def _clean(self, what: str, policy: CleanupPolicy, dry_run: bool) -> CleanupStats:
        from lance_spark.table.cleanup.run import cleanup

        table = self.writable(what)
        stats = cleanup(
            table.store,
            policy,
            read_version=table.version,
            branch=table.manifest.branch,
            dry_run=dry_run,
        )
        if stats.failed_deletes:
            raise StorageError(
                f"{table.store.display}: {what} removed {len(stats.files)} files, and could not "
                f"remove {stats.failed_deletes}; run "
                f"it again. The first error was: {stats.first_failure}"
            )
        return stats

    def _fragments_without(
        self, job: Job, dataset: Dataset, where: str | Column | None
    ) -> frozenset[int]:
        """Return the fragments that have no row that meets a condition; none if there is no
        condition.
        """
        if where is None:
            return frozenset()
        result = find_rows(self, job, dataset, where)
        return frozenset(fragment.id for fragment in dataset.fragments if fragment.id not in result)


def compaction_options(given: Mapping[str, Any]) -> CompactionOptions:
    """Return the options of a compaction by their names.

    Raises
    ------
    InvalidOptionError
        There is no such option, or its value is out of range.
    """
    known = {item.name for item in fields(CompactionOptions)} - _IGNORED - _INTERNAL
    for name in given:
        if name not in known | _IGNORED:
            raise InvalidOptionError(
                f"optimize has no option {name!r}; there are {', '.join(sorted(known))}"
            )
    return CompactionOptions(**{name: value for name, value in given.items() if name in known})
