"""What a handle on a version does to its rows: deletes and updates.

The names are those of pylance's `LanceDataset`; rows are chosen by filters, ids, addresses or positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

from lance_spark.dataset.history import HistoryMethods
from lance_spark.table.commit.options import CommitOptions


class RowMethods(HistoryMethods):
    """One version of a table, and changes of its rows. Immutable: each returns the version that was committed."""

    def delete(
        self,
        filters: str | Iterable[Sequence[Any]] | None = None,
        *,
        ids: Sequence[int] | None = None,
        addresses: Sequence[int] | None = None,
        indices: Sequence[int] | None = None,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = 10,
        max_retries: int = 20,
    ) -> Self:
        """Delete rows in one commit. Files stay as they are: deletion files say which of their rows are gone.

        Parameters
        ----------
        filters : str, or iterable of (column, operator, value), optional
            A condition as in ``WHERE``, read by Spark's defaults (docs/options.md), or conditions as in `to_batches`; an empty
            list stands for all rows.
        ids, addresses, indices : sequence of int, optional
            Delete only some of these rows: row ids, row addresses (fragment id << 32 | offset), or positions in the table's
            order; one of the three. Rows that are deleted already are passed over. An address and a position are those of this version: they
            do not follow a row that others move.
        commit_message, transaction_properties
            Kept with the transaction.
        conflict_retries : int
            How often the rows are looked for again, in the newest version, because others changed some of the same.
        max_retries : int
            How often to start a commit again after other writers were faster.

        Returns
        -------
        Self
            The version that was committed, even if no row was found.

        Raises
        ------
        InvalidInputError
            Nothing says which rows, a filter makes no sense, or there is no such row.
        CommitConflictError
            Others committed what this change cannot follow: they moved rows that it names by where they are, for example.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.rows.delete import delete_rows
        from lance_spark.mutations.rows.row_selector import RowSelector

        rows = None
        if not (ids is addresses is indices is None):
            rows = RowSelector(self._table, ids=ids, addresses=addresses, indices=indices)
        table = delete_rows(
            self._table,
            filters,
            rows,
            CommitOptions.of(commit_message, transaction_properties, max_retries, conflict_retries),
        )
        return self._committed(table)

    def update(
        self,
        updates: Mapping[str, Any],
        filters: str | Iterable[Sequence[Any]] | None = None,
        *,
        mode: Literal["rows", "columns"] = "rows",
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = 10,
        max_retries: int = 20,
    ) -> Self:
        """Give rows new values in one commit.

        Parameters
        ----------
        updates : mapping of str to value, pa.Scalar or callable
            New values by column, or by child of a struct, ``s.child``, with backticks around names with other characters. A
            callable gets the rows that change, as a record batch with all columns, and returns as many values. A struct that was
            null is not null once a child is set; its other children are null.
        filters : str, or iterable of (column, operator, value), optional
            As in `delete`; all rows are updated if there are none.
        mode : str
            ``rows`` writes the rows to new fragments, and deletes them in the old ones. ``columns`` writes new files for these
            columns only, with all rows of each fragment that has some to change, which stay where they are.
        commit_message, transaction_properties
            Kept with the transaction.
        conflict_retries : int
            How often the update is planned again, on the newest version, because others changed some of the same rows.
        max_retries : int
            How often to start a commit again after other writers were faster.

        Returns
        -------
        Self
            The version that was committed, even if no row was found.

        Raises
        ------
        InvalidInputError, SchemaMismatchError
            A filter makes no sense, there is no such column, or a value is none of its type.
        CommitConflictError
            Others committed what this change cannot follow: they moved rows that it names by where they are, for example.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.rows.update import update_rows

        table = update_rows(
            self._table,
            updates,
            filters,
            mode,
            CommitOptions.of(commit_message, transaction_properties, max_retries, conflict_retries),
        )
        return self._committed(table)
