"""Methods of `Dataset` for maintenance: compaction, validation, cleanup."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Self, Unpack

from lance_spark.arguments import takes_keywords
from lance_spark.dataset.history import HistoryMethods
from lance_spark.keywords import of_group
from lance_spark.mutations.compaction.options import (
    CompactionKeywords,
    CompactionOptions,
    CompactKeywords,
)
from lance_spark.progress import ProgressCallback, reports_progress
from lance_spark.table.commit.options import CommitOptions, RetryProgressKeywords

if TYPE_CHECKING:
    from lance_spark.mutations.compaction.task import CompactionMetrics
    from lance_spark.table.cleanup.run import CleanupStats

#: Options of a compaction of pylance that choose how it copies. They have no effect.
WITHOUT_EFFECT = (
    "batch_size",
    "binary_copy_read_batch_bytes",
    "compaction_mode",
    "io_buffer_size",
    "max_rows_per_group",
)


class MaintenanceMethods(HistoryMethods):
    """Methods of `Dataset` for maintenance."""

    @takes_keywords(
        unused=WITHOUT_EFFECT,
        refused={"data_storage_version": ((), "new files have the file version of the table")},
    )
    @reports_progress
    def compact_files(
        self,
        **keywords: Unpack[CompactKeywords],
    ) -> tuple[Self, CompactionMetrics]:
        """Rewrite small fragments to large fragments, without their deleted rows.

        Returns
        -------
        (Dataset, CompactionMetrics)
            The version that was committed, or this version if nothing had to be rewritten; and
            numbers of fragments and files.

        Raises
        ------
        InvalidOptionError
            A number is out of range.
        CommitConflictError
            Another client changed the same fragments.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.compaction.run import compact

        table, metrics = compact(
            self._table,
            CompactionOptions(**of_group(CompactionKeywords, keywords)),
            CommitOptions.of(**of_group(RetryProgressKeywords, keywords)),
        )
        return self._committed(table), metrics

    @reports_progress
    def move_fragments(
        self,
        base: str,
        fragment_ids: Collection[int] | None = None,
        *,
        num_threads: int | None = None,
        **keywords: Unpack[RetryProgressKeywords],
    ) -> tuple[Self, CompactionMetrics]:
        """Move fragments to a base path, or to the table's root, by rewriting their rows there.

        Fragments whose data files are all there already are not rewritten. The old files stay for
        older versions: cleanup removes them from the table's root, but not from base paths.

        Parameters
        ----------
        base : str
            Name or path of the base path; the path of the table stands for its own root.
        fragment_ids : collection of int, optional
            Ids of the fragments to move; all by default.
        num_threads : int, optional
            As in `compact_files`.

        Returns
        -------
        (Dataset, CompactionMetrics)
            The version that was committed, or this version if nothing had to be moved; and numbers
            of fragments and files.

        Raises
        ------
        InvalidInputError
            A fragment does not exist.
        InvalidOptionError
            The base path does not exist, or is the root of another table.
        CommitConflictError
            Another client changed the same fragments.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError

        Examples
        --------
        >>> old = [fragment.id for fragment in dataset.fragments][:100]
        >>> dataset, metrics = dataset.move_fragments("cold", old)
        """
        from lance_spark.mutations.compaction.run import move_fragments

        table, metrics = move_fragments(
            self._table,
            base,
            fragment_ids,
            num_threads,
            CommitOptions.of(**keywords),
        )
        return self._committed(table), metrics

    @reports_progress
    def validate(self, *, progress_callback: ProgressCallback | None = None) -> None:
        """Check that the manifest of the version is consistent, and that its files fit it.

        Reads the ends of all data files, the deletion files, and row ids and row versions, but no
        values of columns. Changes nothing. `lance_spark.scan.validate` lists the checks.

        Parameters
        ----------
        progress_callback : callable, optional
            Receives a `lance_spark.Progress` from time to time.

        Raises
        ------
        CorruptTableError
            The version is damaged; the message lists the first problems with their fragments and
            files.
        UnsupportedFeatureError, UnsupportedEncodingError
            A file has a version that this release does not know, so it cannot be checked.
        StorageError

        Examples
        --------
        >>> open_dataset("/data/t.lance").validate()
        Traceback (most recent call last): lance_spark.errors.CorruptTableError:
        /data/t.lance/_versions/18446744073709551612.manifest: fragment id 0 occurs twice, ...
        """
        from lance_spark.scan.validate import validate

        validate(self._table)

    @reports_progress
    def cleanup_old_versions(
        self,
        older_than: datetime.timedelta | None = None,
        retain_versions: int | None = None,
        *,
        versions: Iterable[int] | None = None,
        before_version: int | None = None,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        delete_rate_limit: int | None = None,
        delete_concurrency: int | None = None,
        dry_run: bool = False,
        progress_callback: ProgressCallback | None = None,
    ) -> CleanupStats:
        """Remove old versions, and the files that only they refer to.

        A version is removed only if it meets all conditions that are given. The newest version,
        this version and versions between them are never removed, nor are versions with a tag,
        versions that a branch was made from and needs, and files that remaining versions or
        branches refer to. Clones in other folders are unknown: tag the versions that they need.

        Parameters
        ----------
        older_than : timedelta, optional
            Remove only versions that were committed at least this long ago; two weeks if no other
            condition is given.
        retain_versions : int, optional
            Keep this number of newest versions.
        versions : iterable of int, optional
            Remove only these versions. Numbers that are not versions of the table are ignored, as
            in pylance: an earlier cleanup may have removed them.
        before_version : int, optional
            Remove only versions with a lower number.
        delete_unverified : bool
            Whether to remove files that no version refers to regardless of their age, instead of
            only those older than 7 days. No client may be writing to the table.
        error_if_tagged_old_versions : bool
            Whether it is an error if a version that meets the conditions has a tag; otherwise it is
            kept.
        delete_rate_limit : int, optional
            Maximum number of files deleted per second.
        delete_concurrency : int, optional
            Maximum number of concurrent requests; 16 by default. Local files are deleted one by
            one.
        dry_run : bool
            Remove nothing; only return what would be removed.
        progress_callback : callable, optional
            Receives a `lance_spark.Progress` from time to time.

        Returns
        -------
        CleanupStats
            Numbers and names of the removed versions and files.

        Raises
        ------
        InvalidInputError
            A limit is out of range, or a version that meets the conditions has a tag, and that is
            an error. Nothing is removed.
        CorruptTableError, UnsupportedFeatureError
            A version cannot be read, so its references are unknown. Nothing is removed.
        StorageError
        """
        from lance_spark.table.cleanup.run import cleanup, policy_for

        policy = policy_for(
            older_than,
            retain_versions,
            versions=versions,
            before_version=before_version,
            delete_unverified=delete_unverified,
            error_if_tagged_old_versions=error_if_tagged_old_versions,
        )
        return cleanup(
            self._table.store,
            policy,
            read_version=self.version,
            branch=self._table.manifest.branch,
            dry_run=dry_run,
            delete_rate_limit=delete_rate_limit,
            delete_concurrency=delete_concurrency,
        )
