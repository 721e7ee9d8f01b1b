"""Methods of `LanceTable` that change rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from lance_spark.spark.table.base import ChangeResult, TableBase
from lance_spark.table.commit.options import CommitOptions, RetryKeywords

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.spark.table.jobs.update import UpdateMode
    from lance_spark.spark.table.merge.builder import MergeBuilder


class RowMethods(TableBase):
    """Methods of `LanceTable` that delete, update, replace and merge rows."""

    def delete(
        self,
        condition: str | Column | None = None,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Delete the rows for which a condition is true, or all rows.

        Executors find the rows and write deletion files; data files do not change. Fragments
        without remaining rows are dropped. Another client can delete other rows at the same time.

        Parameters
        ----------
        condition : str or Column, optional
            Expression in Spark's SQL, which can have subqueries, or a Column. If it names
            ``_rowaddr``, it is not evaluated again after another client moved rows.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            Spark cannot analyse the condition, or the options name a version.
        CommitConflictError
            Other clients committed conflicting changes in all attempts, or moved rows that the
            condition selects by their addresses.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            The condition raised an error for some row.
        """
        from lance_spark.spark.table.jobs.find_rows import delete

        options = CommitOptions.of(**keywords)
        return self._change(
            "delete",
            lambda job, dataset: delete(self, job, dataset, condition, options),
            options,
            [condition],
        )

    def update(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, str | Column] | None = None,  # noqa: A002 - as DeltaTable has it
        *,
        mode: UpdateMode = "auto",
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Update values of the rows for which a condition is true, or of all rows.

        Spark reads only the columns that it needs to compute the new values. Other columns are
        copied from file to file, or their files stay as they are. Rows keep their stable row ids,
        if the table has these.

        Parameters
        ----------
        condition : str or Column, optional
            As in `delete`.
        set : mapping of str to str or Column
            New values by the name of a column, or of a child of a struct (``address.city``):
            expressions in SQL or Columns over the old values, cast to the type of the column. If a
            child of a null struct is set, the struct becomes non-null and its other children are
            null.
        mode : str
            ``rows``: the update writes the new rows to new fragments, and deletes the old rows.
            ``columns``: the rows stay in their fragments. For each fragment with a row to update,
            the update writes a new file with all values of the updated columns. ``overlay``: the
            rows stay, and the update writes their new values alone, to overlay files. Other
            clients do not open the table then, unless they allow overlays, until a compaction has
            removed the overlays. ``auto``: the update finds the rows first, and then chooses
            ``rows`` or ``columns``, whichever writes less.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            Spark cannot analyse the condition or an expression, a column that is not nullable gets
            a null, or the options name a version.
        SchemaMismatchError
            A column is not found.
        CommitConflictError
            As in `delete`.
        UnsupportedError
            The mode is ``columns`` or ``overlay`` and a column holds blobs, the mode is ``overlay``
            and files are of version 0.1, a child of a struct with blobs is set, or the table uses a
            feature that this release cannot change.
        UnsupportedFeatureError, StorageError
        PySparkException
            An expression raised an error for some row.
        """
        from lance_spark.spark.table.jobs.update import update

        options = CommitOptions.of(**keywords)
        # A value can select rows too, by CASE.
        selectors = [condition, *(set.values() if isinstance(set, Mapping) else ())]
        return self._change(
            "update",
            lambda job, dataset: update(self, job, dataset, condition, set, mode, options),
            options,
            selectors,
        )

    def updateColumns(  # noqa: N802 - Spark's habit
        self,
        columns: Mapping[str, str | Column],
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Replace all values of columns, in new data files of these columns.

        Rows stay in their fragments. Equal to `update` without a condition, in the mode
        ``columns``.

        Parameters
        ----------
        columns : mapping of str to str or Column
            As `set` in `update`.

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
            **keywords,
        )

    def replaceWhere(  # noqa: N802 - Spark's habit
        self,
        source: DataFrame,
        condition: str | Column,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Replace the rows for which a condition is true by the rows of a DataFrame, in one commit.

        Parameters
        ----------
        source : DataFrame
            Columns are matched by name; nullable columns may be missing. All rows must meet the
            condition. Each attempt reads it once, and
            may read its first 10,000 rows before.
        condition : str or Column
            Condition on columns of the table, as in `delete`.

        Returns
        -------
        ChangeResult
            With the numbers of inserted and of deleted rows.

        Raises
        ------
        InvalidInputError
            A row of the DataFrame does not meet the condition, a value does not fit its column,
            Spark cannot analyse the condition, or the options name a version.
        SchemaMismatchError
            The columns do not fit the table.
        CommitConflictError
            Other clients committed conflicting changes in all attempts.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            The DataFrame or the condition raised an error for some row.
        """
        from lance_spark.spark.table.jobs.partial_overwrite import replace_where

        options = CommitOptions.of(**keywords)
        return self._change(
            "replace where",
            lambda job, dataset: replace_where(self, job, dataset, source, condition, options),
            options,
        )

    def merge(
        self,
        source: DataFrame,
        condition: str | Column,
        **keywords: Unpack[RetryKeywords],
    ) -> MergeBuilder:
        """Return a builder of a merge, which changes rows by the rows of a DataFrame.

        Clauses of the builder say which rows are updated, deleted and inserted; `execute` makes the
        change in one commit. The names ``target`` and ``source`` qualify columns, unless the table
        and the DataFrame have aliases. Updated rows keep their stable row ids, if the table has
        these. If two merges insert the same primary key at the same time, the later one is planned
        again, and then finds the row.

        Parameters
        ----------
        source : DataFrame
            Any DataFrame; it may read this table too. Each attempt reads it once, and
            may read its first 10,000 rows before.
        condition : str or Column
            Selects the pairs of rows that match, as in ``target.id = source.id``. A pair for which
            it is null does not match.

        Returns
        -------
        MergeBuilder
        """
        from lance_spark.spark.table.merge.builder import MergeBuilder

        options = CommitOptions.of(**keywords)
        return MergeBuilder(self, source, condition, options)

    def upsert(
        self,
        source: DataFrame,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Update the rows whose primary key is in a DataFrame, and insert its other rows.

        Parameters
        ----------
        source : DataFrame
            Columns are matched by name. In columns that it does not have, updated rows keep their
            values, and inserted rows are null.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            The table has no primary key (metadata ``lance-schema:unenforced-primary-key`` of its
            columns), a column that is not nullable gets a null, or the options name a version.
        SchemaMismatchError
            The DataFrame lacks a column of the key or a column that is not nullable, or has a
            column that the table does not have.
        AmbiguousMergeError
            Several rows of the DataFrame have the same key.
        CommitConflictError
            Other clients committed conflicting changes in all attempts.
        UnsupportedFeatureError, UnsupportedError, StorageError, PySparkException
        """
        from lance_spark.spark.table.merge.builder import upsert

        options = CommitOptions.of(**keywords)
        return upsert(self, source, options)
