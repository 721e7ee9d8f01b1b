"""What a handle on a version does to keep a table fast and small: compaction, indexes that there are, cleanup.

The names, arguments and results are those of pylance's `LanceDataset`, where it has them.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from lance_spark.dataset.history import HistoryMethods
from lance_spark.table.commit.options import CommitOptions

if TYPE_CHECKING:
    from lance_spark.mutations.compaction.task import CompactionMetrics
    from lance_spark.mutations.indices import IndexDescription
    from lance_spark.table.cleanup.run import CleanupStats


class MaintenanceMethods(HistoryMethods):
    """One version of a table, and what keeps it fast. Immutable."""

    def compact_files(
        self,
        *,
        target_rows_per_fragment: int = 1024 * 1024,
        max_bytes_per_file: int | None = None,
        materialize_deletions: bool = True,
        materialize_deletions_threshold: float = 0.1,
        num_threads: int | None = None,
        defer_index_remap: bool | None = None,
        max_source_fragments: int | None = None,
        max_source_rows: int | None = None,
        max_source_bytes: int | None = None,
        excluded_fragment_ids: Iterable[int] = (),
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = 0,
        max_retries: int = 20,
    ) -> tuple[Self, CompactionMetrics]:
        """Put few large fragments in the place of many small ones, without the rows that are deleted.

        Parameters
        ----------
        target_rows_per_fragment : int
            Fragments with fewer rows are put together with such ones next to them.
        max_bytes_per_file : int, optional
            A new data file is closed once it has so many bytes; 90 GiB by default.
        materialize_deletions : bool
            Whether deleted rows are a reason to rewrite a fragment.
        materialize_deletions_threshold : float
            Part of a fragment's rows that has to be deleted for that, 0 to 1.
        num_threads : int, optional
            Groups of fragments that are rewritten at the same time; 1 in local stores by default, 4 in others.
        defer_index_remap : bool, optional
            Whether the fragment reuse index tells indexes where rows have gone: by default it does if there are indexes that
            need it. Without it BTREE indexes are written anew, and others do not find the rows any more, which are searched one
            by one then. Tables with stable row ids do without.
        max_source_fragments, max_source_rows, max_source_bytes : int, optional
            Leaves the rest for another time.
        excluded_fragment_ids : iterable of int
            Fragments that stay as they are.
        commit_message : str, optional
        transaction_properties : mapping of str to str, optional
            Kept with the transaction.
        conflict_retries : int
            How often to start again because others changed some of the same fragments. In the second half of these attempts, what they
            change while it is committed is left out.
        max_retries : int
            How often to start a commit again after other writers were faster.

        Returns
        -------
        (Dataset, CompactionMetrics)
            The version that was committed, this one if there was nothing to do; and what was done.

        Raises
        ------
        InvalidOptionError
        CommitConflictError
            Others changed the same fragments.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.compaction.plan import CompactionOptions
        from lance_spark.mutations.compaction.run import compact

        options = CompactionOptions(
            target_rows_per_fragment=target_rows_per_fragment,
            max_bytes_per_file=90 * 1024**3 if max_bytes_per_file is None else max_bytes_per_file,
            materialize_deletions=materialize_deletions,
            materialize_deletions_threshold=materialize_deletions_threshold,
            num_threads=num_threads,
            defer_index_remap=defer_index_remap,
            max_source_fragments=max_source_fragments,
            max_source_rows=max_source_rows,
            max_source_bytes=max_source_bytes,
            excluded_fragment_ids=frozenset(excluded_fragment_ids),
        )
        table, metrics = compact(
            self._table,
            options,
            CommitOptions.of(commit_message, transaction_properties, max_retries, conflict_retries),
        )
        return self._committed(table), metrics

    def move_fragments(
        self,
        base: str,
        fragment_ids: Collection[int] | None = None,
        *,
        num_threads: int | None = None,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = 0,
        max_retries: int = 20,
    ) -> tuple[Self, CompactionMetrics]:
        """Move fragments to a base path, or back to the table itself, by writing their rows there.

        Fragments whose data files are all there already stay as they are. The old files stay for older versions: cleanup removes
        those in the table itself, and none in base paths.

        Parameters
        ----------
        base : str
            Name or path of the base path; the path of the table stands for the table itself.
        fragment_ids : collection of int, optional
            Ids of the fragments that move; all by default.
        num_threads, commit_message, transaction_properties, conflict_retries, max_retries
            As for `compact_files`.

        Returns
        -------
        (Dataset, CompactionMetrics)
            The version that was committed, this one if there was nothing to do; and what was done.

        Raises
        ------
        InvalidInputError
            There is no such fragment.
        InvalidOptionError
            The table has no such base path, or it is the root of another table.
        CommitConflictError
            Others changed the same fragments.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError

        Examples
        --------
        >>> old = [one.id for one in dataset.fragments][:100]
        >>> dataset, metrics = dataset.move_fragments("cold", old)
        """
        from lance_spark.mutations.move_fragments import move_fragments

        table, metrics = move_fragments(
            self._table,
            base,
            fragment_ids,
            num_threads,
            CommitOptions.of(commit_message, transaction_properties, max_retries, conflict_retries),
        )
        return self._committed(table), metrics

    def validate(self) -> None:
        """Check the version: what its manifest says against itself and against the files that it names.

        The ends of all data files are read, the deletion files, and the ids and versions of rows; the values of columns are not.
        Nothing is changed. `lance_spark.scan.validate` lists what is checked.

        Raises
        ------
        CorruptTableError
            Lists the first problems, with the fragments and files that have them.
        UnsupportedFeatureError, UnsupportedEncodingError
            A file is of a newer version, and cannot be checked.
        StorageError

        Examples
        --------
        >>> open_dataset("/data/t.lance").validate()
        Traceback (most recent call last):
        lance_spark.errors.CorruptTableError: /data/t.lance/_versions/18446744073709551612.manifest: fragment id 0 occurs twice, ...
        """
        from lance_spark.scan.validate import validate

        validate(self._table)

    def list_indices(self) -> list[dict[str, Any]]:
        """Return what there is to say of each segment of the indexes, as pylance does.

        Returns
        -------
        list of dict
            name, type, uuid, fields (names), version (that it was built on), fragment_ids (a set of those that
            it covers; None if nobody knows), base_id.

        Raises
        ------
        CorruptTableError, StorageError
        """
        from lance_spark.mutations.indices import list_indices

        return list_indices(self._table)

    def describe_indices(self) -> list[IndexDescription]:
        """Return the indexes with their segments, and how many rows each covers.

        Raises
        ------
        CorruptTableError, StorageError
        """
        from lance_spark.mutations.indices import describe_indices

        return describe_indices(self._table)

    def drop_index(
        self,
        name: str,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        max_retries: int = 20,
    ) -> Self:
        """Take an index away. Its files stay until versions that have it are cleaned up.

        Parameters
        ----------
        name : str
        commit_message : str, optional
        transaction_properties : mapping of str to str, optional
            Kept with the transaction.
        max_retries : int
            How often to start the commit again after other writers were faster.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            There is no such index, or it is one that others rely on.
        CommitConflictError
            Others changed it.
        CorruptTableError, StorageError
        """
        from lance_spark.mutations.indices import drop_index

        options = CommitOptions.of(commit_message, transaction_properties, max_retries)
        return self._committed(drop_index(self._table, name, options))

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
    ) -> CleanupStats:
        """Remove old versions, and the files that only they refer to.

        The newest version, this one and those between them stay, and so do versions with a tag, versions that a branch was
        made from and needs, and whatever files they and all branches refer to. Versions that clones elsewhere need cannot
        be known: give them tags.

        Parameters
        ----------
        older_than : timedelta, optional
            Remove versions that were committed so long ago; two weeks if nothing else is given.
        retain_versions : int, optional
            Keep so many of the newest versions.
        versions : iterable of int, optional
            Remove these versions only.
        before_version : int, optional
            Remove versions of lower number only.
        delete_unverified : bool
            Remove files that no version refers to whatever their age, instead of those older than 7 days only. Nobody may
            be writing to the table.
        error_if_tagged_old_versions : bool
            Whether it is an error if versions with tags could go; else they are kept.
        delete_rate_limit : int, optional
            Files deleted per second at most.
        delete_concurrency : int, optional
            Requests under way at once; 16 by default, on local disks always one.
        dry_run : bool
            Only tell what would be removed.

        Returns
        -------
        CleanupStats
            Numbers and names of what was removed. A version goes only if everything that is given allows it.

        Raises
        ------
        InvalidInputError
            A limit is out of range, or versions with tags could go, and that is an error. Nothing is removed.
        CorruptTableError, UnsupportedFeatureError
            A version cannot be read, so that nobody can tell what it needs. Nothing is removed.
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
