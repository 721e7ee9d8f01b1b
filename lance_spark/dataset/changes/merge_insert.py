"""`MergeInsertBuilder`: changes rows by the rows of a source, without Spark."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lance_spark.arguments import check_least
from lance_spark.dataset.changes.merge_rows import (
    MergeClauses,
    MergeCounts,
    MergeResult,
    execute,
    execute_uncommitted,
)
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.progress import ProgressCallback, reporting
from lance_spark.table.commit.options import CommitOptions, check_timeout
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.primary_key import primary_key
from lance_spark.table.sources import table_of

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.file.schema.schema import Schema

_WRITE_MODES = ("auto", "rewrite_rows", "rewrite_columns")


class MergeInsertBuilder:
    """Builder of a merge; `Dataset.merge_insert` returns it. Each method changes it and returns it.

    Parameters
    ----------
    dataset : Dataset
    on : sequence of str
        Columns by which rows match.
    """

    def __init__(self, dataset: Dataset, on: Sequence[str]) -> None:
        self._dataset = dataset
        self._on = tuple(on)
        self._clauses = MergeClauses()
        self._retries = 10
        self._timeout = datetime.timedelta(seconds=30)
        self._message: str | None = None
        self._properties: Mapping[str, str] | None = None

    def when_matched_update_all(self, condition: str | None = None) -> Self:
        """Update matching rows with the values of all columns of the source.

        Parameters
        ----------
        condition : str, optional
            Update only rows for which this is true. Columns are named ``source.x`` and
            ``target.x``. Rows for which it is false are not inserted.
        """
        self._clauses = replace(self._clauses, matched="update", condition=condition)
        return self

    def when_matched_delete(self) -> Self:
        """Delete matching rows of the table."""
        self._clauses = replace(self._clauses, matched="delete", condition=None)
        return self

    def when_matched_fail(self) -> Self:
        """Make it an error that a row of the source matches a row of the table."""
        self._clauses = replace(self._clauses, matched="fail", condition=None)
        return self

    def when_not_matched_insert_all(self) -> Self:
        """Insert rows of the source that match no row. Columns that the source lacks are null."""
        self._clauses = replace(self._clauses, inserts=True)
        return self

    def when_not_matched_by_source_delete(self, expr: str | None = None) -> Self:
        """Delete rows of the table that match no row of the source.

        Parameters
        ----------
        expr : str, optional
            Delete only rows for which this is true, as in `Dataset.to_table`.
        """
        self._clauses = replace(self._clauses, deletes_others=True, others=expr)
        return self

    def conflict_retries(self, max_retries: int) -> Self:
        """Set how often the merge is planned again after a conflict; 10 by default."""
        check_least("max_retries", max_retries, 0)
        self._retries = max_retries
        return self

    def retry_timeout(self, timeout: datetime.timedelta) -> Self:
        """Set the time after which the merge is not planned again; 30 seconds by default."""
        check_timeout("timeout", timeout)
        self._timeout = timeout
        return self

    def use_index(self, use_index: bool) -> Self:
        """Set whether an index of the first key column may find matching rows; true by default."""
        self._clauses = replace(self._clauses, use_index=use_index)
        return self

    def data_storage_version(self, version: str) -> Self:
        """Set the file version of new data files, which must be that of the table.

        Raises
        ------
        UnsupportedFeatureError
            It is another version.
        """
        if version != self._dataset.data_storage_version:
            raise UnsupportedFeatureError(
                f"a merge writes files of version {self._dataset.data_storage_version}, the version"
                f" of the table, not {version!r}"
            )
        return self

    def write_mode(self, mode: str) -> Self:
        """Set how updated rows are written: ``auto`` or ``rewrite_rows``, which are the same.

        Raises
        ------
        UnsupportedFeatureError
            The mode is ``rewrite_columns``; `LanceTable.update_columns_from` does that.
        """
        if mode not in _WRITE_MODES:
            raise InvalidInputError(f"mode must be one of {', '.join(_WRITE_MODES)}, not {mode!r}")
        if mode == "rewrite_columns":
            raise UnsupportedFeatureError(
                "a merge rewrites rows; use update_columns_from of LanceTable to rewrite columns"
            )
        return self

    def target_bases(self, bases: Sequence[str]) -> Self:
        """Write new data files to these base paths; see `Dataset.with_target_bases`."""
        self._dataset = self._dataset.with_target_bases(bases)
        return self

    def target_all_bases(self, include_primary: bool = True) -> Self:
        """Write new data files to all base paths of the table.

        Parameters
        ----------
        include_primary : bool
            Whether the root of the table is one of them.
        """
        self._dataset = self._dataset.with_target_bases(target_all_bases=include_primary)
        return self

    def commit_message(self, message: str) -> Self:
        """Set the commit message."""
        self._message = message
        return self

    def transaction_properties(self, properties: Mapping[str, str]) -> Self:
        """Set the properties of the transaction."""
        self._properties = properties
        return self

    def execute(
        self,
        data_obj: Any,
        *,
        schema: pa.Schema | None = None,
        progress_callback: ProgressCallback | None = None,
    ) -> MergeResult:
        """Merge rows in one commit, also if nothing changes.

        Parameters
        ----------
        data_obj : Table, RecordBatch, RecordBatchReader, DataFrame of pandas, ...
            The source, as `write_dataset` takes it. It is held in memory. It has the columns of the
            key and other columns of the table, in any order.
        schema : pa.Schema, optional
            As in `write_dataset`.
        progress_callback : callable, optional
            Receives a `lance_spark.Progress` from time to time.

        Returns
        -------
        dict
            ``dataset``: the version that was committed; ``num_inserted_rows``,
            ``num_updated_rows`` and ``num_deleted_rows``.

        Raises
        ------
        InvalidInputError
            The builder has no clause that changes rows, a condition is not valid, a value does not
            fit its column, or a row matches and `when_matched_fail` is set.
        SchemaMismatchError
            The source lacks a column of the key, or has a column that the table does not have.
        AmbiguousMergeError
            Several rows of the source match one row that is updated or deleted.
        CommitConflictError
            Other clients committed conflicting changes in all attempts.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        source, options = self._prepared(data_obj, schema)
        with reporting("merge_insert", progress_callback):
            return execute(self._dataset, self._on, self._clauses, source, options)

    def execute_uncommitted(
        self,
        data_obj: Any,
        *,
        schema: pa.Schema | None = None,
        progress_callback: ProgressCallback | None = None,
    ) -> tuple[Transaction, MergeCounts]:
        """Write the files of a merge without a commit.

        Parameters
        ----------
        data_obj, schema, progress_callback
            As in `execute`.

        Returns
        -------
        (Transaction, dict)
            The transaction, for `Dataset.commit`, and the counts of `execute`. Another client that
            changes one of the rows first makes the commit fail.

        Raises
        ------
        InvalidInputError, SchemaMismatchError, AmbiguousMergeError, UnsupportedFeatureError,
        CorruptFileError, CorruptTableError, StorageError
            As in `execute`.
        """
        source, options = self._prepared(data_obj, schema)
        with reporting("merge_insert", progress_callback):
            return execute_uncommitted(self._dataset, self._on, self._clauses, source, options)

    def _prepared(self, data_obj: Any, schema: pa.Schema | None) -> tuple[pa.Table, CommitOptions]:
        if not self._clauses.changes_rows:
            raise InvalidInputError(
                "merge_insert: add a clause that changes rows, such as when_matched_update_all"
            )
        options = CommitOptions.of(
            commit_message=self._message,
            transaction_properties=self._properties,
            conflict_retries=self._retries,
            retry_timeout=self._timeout,
        )
        return table_of(data_obj, schema), options


def key_names(schema: Schema, on: str | Iterable[str] | None) -> list[str]:
    """Return the columns by which the rows of a merge match; see `Dataset.merge_insert`.

    Raises
    ------
    InvalidInputError
        A column does not exist, or no column is given and the table has no primary key.
    """
    if on is None:
        paths = primary_key(schema)
        if not paths or any(len(path) > 1 for path in paths):
            raise InvalidInputError(
                "merge_insert: give the columns `on`; the table has no primary key of "
                "top-level columns"
            )
        return [path[0].name for path in paths]
    names = [on] if isinstance(on, str) else list(on)
    if not names:
        raise InvalidInputError("merge_insert: `on` must have at least one column")
    for name in names:
        if name not in schema.names:
            schema.field(name)
            raise InvalidInputError(
                f"merge_insert: {name!r} must be a top-level column, not a child of a struct"
            )
    return names
