"""Changing rows through Spark: what `LanceTable` deletes and updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lance_spark.changes.optimistic import DEFAULT_CONFLICT_RETRIES
from lance_spark.dataset import Dataset
from lance_spark.spark.jobs import Job
from lance_spark.spark.table.base import ChangeResult, TableBase
from lance_spark.table.manifest import Manifest
from lance_spark.table.transaction import with_message

if TYPE_CHECKING:
    from pyspark.sql import Column

    from lance_spark.spark.table.update_job import UpdateMode


class RowMethods(TableBase):
    """Deletes and updates rows."""

    def delete(
        self,
        condition: str | Column | None = None,
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Delete the rows for which a condition is true; all rows, if none is given.

        Executors find the rows and write deletion files; no data file is written or rewritten. Fragments that have no rows left are
        dropped. Rows that others delete meanwhile are no obstacle, unless they are the same.

        Parameters
        ----------
        condition : str or Column, optional
            In Spark's SQL, with subqueries, or as a Column.
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
            Others were faster, again and again.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            What the condition raises for some row.
        """
        from lance_spark.spark.table.delete_job import delete

        properties = with_message(transaction_properties, commit_message)
        counts = [0]

        def plan(job: Job, dataset: Dataset) -> Manifest:
            manifest, counts[0] = delete(self, job, dataset, condition, properties)
            return manifest

        manifest = self.change("delete", plan, conflict_retries=conflict_retries)
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

        Spark computes the new values, of the columns that they are made of; all others go from file to file. In tables with stable
        row ids rows keep their ids.

        Parameters
        ----------
        condition : str or Column, optional
            As in `delete`.
        set : mapping of str to str or Column
            By column, an expression in SQL or a Column on the values of before, which is cast to the column's type.
        mode : str
            "rows": rows that change move to new fragments, and are deleted where they were. "auto" chooses.
        commit_message, transaction_properties, conflict_retries
            As in `delete`.

        Returns
        -------
        ChangeResult

        Raises
        ------
        InvalidInputError
            Spark cannot make sense of the condition or an expression, a column that must not be null gets nulls, or the options name
            a version.
        SchemaMismatchError
            There is no such column.
        CommitConflictError
            Others were faster, again and again.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            What an expression raises for some row.
        """
        from lance_spark.spark.table.update_job import update

        properties = with_message(transaction_properties, commit_message)
        counts = [0]

        def plan(job: Job, dataset: Dataset) -> Manifest:
            manifest, counts[0] = update(self, job, dataset, condition, set, mode, properties)
            return manifest

        manifest = self.change("update", plan, conflict_retries=conflict_retries)
        return ChangeResult(manifest.version, num_updated_rows=counts[0])
