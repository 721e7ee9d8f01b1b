"""Methods of `Dataset` that delete and update rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

from lance_spark.dataset.history import HistoryMethods
from lance_spark.table.commit.options import CommitOptions


class RowMethods(HistoryMethods):
    """Methods of `Dataset` that change rows. Each returns the version that it committed."""

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
        """Delete rows in one commit, by writing deletion files. Data files do not change.

        Parameters
        ----------
        filters : str, or iterable of (column, operator, value), optional
            The text of a ``WHERE`` clause with Spark's default settings
            (docs/reference/predicates.md), or conditions as in `to_batches`; an empty list selects
            all rows.
        ids, addresses, indices : sequence of int, optional
            Delete only rows among these: at most one of row ids, row addresses (fragment id << 32 |
            offset) and positions in the table's order. Deleted rows are ignored. Addresses and
            positions refer to this version: they do not follow a row that another client moved.
        commit_message, transaction_properties
            Stored in the transaction.
        conflict_retries : int
            Maximum number of times to search the rows again in the newest version after another
            client changed some of them.
        max_retries : int
            Maximum number of times to retry a commit after other clients committed first.

        Returns
        -------
        Dataset
            The version that was committed, even if no row matched.

        Raises
        ------
        InvalidInputError
            No rows are given, a filter is not valid, or a row does not exist.
        CommitConflictError
            Another client committed an incompatible change; for example, it moved rows that are
            given by address.
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
            CommitOptions.of(
                commit_message, transaction_properties, conflict_retries, max_retries=max_retries
            ),
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
        """Update the values of rows in one commit.

        Parameters
        ----------
        updates : mapping of str to value, pa.Scalar or callable
            New values by the name of a column, or of a child of a struct (``s.child``). Put
            backticks around names with special characters. A callable receives the rows to update
            as a record batch with all columns, and returns one value per row. If a child of a null
            struct is set, the struct becomes non-null and its other children are null.
        filters : str, or iterable of (column, operator, value), optional
            As in `delete`; all rows by default.
        mode : str
            ``rows`` writes the updated rows to new fragments and deletes them in the old ones.
            ``columns`` keeps the rows in place: for each fragment with a row to update, it writes a
            new file with all values of the updated columns.
        commit_message, transaction_properties
            Stored in the transaction.
        conflict_retries : int
            Maximum number of times to replan the update on the newest version after another client
            changed some of the rows.
        max_retries : int
            Maximum number of times to retry a commit after other clients committed first.

        Returns
        -------
        Dataset
            The version that was committed, even if no row matched.

        Raises
        ------
        InvalidInputError, SchemaMismatchError
            A filter is not valid, a column does not exist, or a value does not fit the type of its
            column.
        CommitConflictError
            Another client committed an incompatible change.
        UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
        """
        from lance_spark.mutations.rows.update import update_rows

        table = update_rows(
            self._table,
            updates,
            filters,
            mode,
            CommitOptions.of(
                commit_message, transaction_properties, conflict_retries, max_retries=max_retries
            ),
        )
        return self._committed(table)
