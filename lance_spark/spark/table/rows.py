"""Changing rows through Spark: what `LanceTable` deletes and updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lance_spark.dataset.dataset import Dataset
from lance_spark.mutations.retry import DEFAULT_CONFLICT_RETRIES
from lance_spark.spark.jobs.job import Job
from lance_spark.spark.table.base import ChangeResult, TableBase
from lance_spark.table.commit.transaction import with_message
from lance_spark.table.manifest.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.spark.table.jobs.update import UpdateMode
    from lance_spark.spark.table.merge.builder import MergeBuilder


class RowMethods(TableBase):
    """Deletes, updates and merges rows."""

    def delete(
        self,
        condition: str | Column | None = None,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Delete the rows for which a condition is true; all rows, if none is given.

        Executors find the rows and write deletion files; no data file is written or rewritten.
        Fragments that have no rows left are dropped. Rows that others delete meanwhile are no
        obstacle, unless they are the same.

        Parameters
        ----------
        condition : str or Column, optional
            In Spark's SQL, with subqueries, or as a Column. Once others move rows before the
            commit, what it says by ``_rowaddr`` is not looked for again.
        commit_message : str, optional
            Kept with the transaction.
        transaction_properties : mapping of str to str, optional
            Kept too.
        conflict_retries : int
            How often to begin again on the newest version if others committed what it does not fit.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            Spark cannot make sense of the condition, or the options name a version.
        CommitConflictError
            Others were faster, again and again; or moved rows, and the condition is about where
            they are.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            What the condition raises for some row.
        """
        from lance_spark.spark.table.jobs.delete import delete

        properties = with_message(transaction_properties, commit_message)
        counts = [0]

        def plan(job: Job, dataset: Dataset) -> Manifest:
            manifest, counts[0] = delete(self, job, dataset, condition, properties)
            return manifest

        manifest = self.change(
            "delete", plan, conflict_retries=conflict_retries, naming=[condition]
        )
        return ChangeResult(manifest.version, num_deleted_rows=counts[0])

    def update(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 - as DeltaTable has it
        *,
        mode: UpdateMode = "auto",
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Give rows for which a condition is true new values; all rows, if none is given.

        Spark computes the new values, of the columns that they are made of; all others go from file
        to file, or stay where they are. In tables with stable row ids rows keep their ids.

        Parameters
        ----------
        condition : str or Column, optional
            As in `delete`.
        set : mapping of str to str or Column
            By column, or by child of a struct (``address.city``), an expression in SQL or a Column
            on the values of before, which is cast to the column's type. A struct that was null is
            not null once a child is set; its other children are null.
        mode : str
            "rows": rows that change move to new fragments, and are deleted where they were.
            "columns": rows stay, and new data files have all rows of a fragment, but only the
            columns that get values. "auto" finds the rows first, and chooses what writes less.
        commit_message, transaction_properties, conflict_retries
            As in `delete`.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            Spark cannot make sense of the condition or an expression, a column that must not be
            null gets nulls, or the options name a version.
        SchemaMismatchError
            There is no such column.
        CommitConflictError
            Others were faster, again and again.
        UnsupportedError
            Blobs get new values, and the mode is "columns"; a child of a struct with blobs is set;
            or the table needs what this release does not do.
        UnsupportedFeatureError, StorageError
        PySparkException
            What an expression raises for some row.
        """
        from lance_spark.spark.table.jobs.update import update

        properties = with_message(transaction_properties, commit_message)
        counts = [0]

        def plan(job: Job, dataset: Dataset) -> Manifest:
            manifest, counts[0] = update(self, job, dataset, condition, set, mode, properties)
            return manifest

        # A value can choose rows too, by CASE.
        naming = [condition, *(set.values() if isinstance(set, Mapping) else ())]
        manifest = self.change("update", plan, conflict_retries=conflict_retries, naming=naming)
        return ChangeResult(manifest.version, num_updated_rows=counts[0])

    def updateColumns(  # noqa: N802 - Spark's habit
        self,
        columns: Mapping[str, str | Column],
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Give all rows new values of some columns, in new data files of these columns alone.

        Rows stay where they are. The same as `update` without a condition, in the mode "columns".

        Parameters
        ----------
        columns : mapping of str to str or Column
            By column, an expression in SQL or a Column on the values of before, which is cast to
            the column's type.
        commit_message, transaction_properties, conflict_retries
            As in `delete`.

        Returns
        -------
        ChangeResult

        Raises
        ------
        LanceError, PySparkException
            As in `update`.
        """
        return self.update(
            None,
            columns,
            mode="columns",
            commit_message=commit_message,
            transaction_properties=transaction_properties,
            conflict_retries=conflict_retries,
        )

    def replaceWhere(  # noqa: N802 - Spark's habit
        self,
        source: DataFrame,
        condition: str | Column,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Put the rows of a DataFrame in the place of those for which a condition is true, in one
        version.

        Parameters
        ----------
        source : DataFrame
            Columns go by name; those that can be null may be missing. All rows must meet the
            condition. If others commit what it does not fit, it is read again.
        condition : str or Column
            On columns of the table, as in `delete`.
        commit_message, transaction_properties, conflict_retries
            As in `delete`.

        Returns
        -------
        ChangeResult
            With the rows that came, and those that went.

        Raises
        ------
        InvalidInputError
            A row of the DataFrame does not meet the condition, a value does not fit, Spark cannot
            make sense of the condition, or the options name a version.
        SchemaMismatchError
            The columns do not fit.
        CommitConflictError
            Others were faster, again and again.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            What the DataFrame or the condition raises for some row.
        """
        from lance_spark.spark.table.jobs.partial_overwrite import replace_where

        properties = with_message(transaction_properties, commit_message)
        counts = (0, 0)

        def plan(job: Job, dataset: Dataset) -> Manifest:
            nonlocal counts
            manifest, *found = replace_where(self, job, dataset, source, condition, properties)
            counts = (found[0], found[1])
            return manifest

        manifest = self.change("replace where", plan, conflict_retries=conflict_retries)
        return ChangeResult(
            manifest.version, num_inserted_rows=counts[0], num_deleted_rows=counts[1]
        )

    def merge(
        self,
        source: DataFrame,
        condition: str | Column,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> MergeBuilder:
        """Change rows by those of a DataFrame: what becomes of which the clauses say that follow;
        `execute` makes one version of it.

        Names are qualified by the aliases of both, ``target`` and ``source`` if they have none. In
        tables with stable row ids rows that are updated keep their ids. In a table with a primary
        key two merges that insert one key at the same time do not both: the later one is planned
        anew, and finds it.

        Parameters
        ----------
        source : DataFrame
            Of any kind, of this table too. It is read once for each attempt.
        condition : str or Column
            Which rows of both match, as in ``target.id = source.id``. Rows for which it is null do
            not.
        commit_message, transaction_properties, conflict_retries
            As in `delete`.

        Returns
        -------
        MergeBuilder
        """
        from lance_spark.spark.table.merge.builder import MergeBuilder

        properties = with_message(transaction_properties, commit_message)
        return MergeBuilder(
            self, source, condition, properties=properties, conflict_retries=conflict_retries
        )

    def upsert(
        self,
        source: DataFrame,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Update the rows whose primary key is one of a DataFrame's, and insert the others.

        Parameters
        ----------
        source : DataFrame
            Columns go by name. Rows that are there keep what the source has no column for; new ones
            have nulls.
        commit_message, transaction_properties, conflict_retries
            As in `delete`.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            The table has no primary key (metadata ``lance-schema:unenforced-primary-key`` of its
            columns), a column that must not be null gets nulls, or the options name a version.
        SchemaMismatchError
            A column of the key is missing, or one that must not be null; or the table does not have
            one of the source.
        AmbiguousMergeError
            Several rows of the source have one key.
        CommitConflictError
            Others were faster, again and again.
        UnsupportedFeatureError, UnsupportedError, StorageError, PySparkException
        """
        from lance_spark.spark.table.merge.builder import upsert

        properties = with_message(transaction_properties, commit_message)
        return upsert(self, source, properties, conflict_retries)
