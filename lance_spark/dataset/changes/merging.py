"""Methods of `Dataset` that merge other rows into a table, or their columns into its rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self, Unpack

import pyarrow as pa

from lance_spark.dataset.scanning.methods import ScannerMethods
from lance_spark.errors import InvalidInputError
from lance_spark.progress import reports_progress
from lance_spark.table.commit.options import CommitOptions, RetryProgressKeywords

if TYPE_CHECKING:
    from lance_spark.dataset.changes.merge_insert import MergeInsertBuilder


class MergeMethods(ScannerMethods):
    """Methods of `Dataset` that merge rows and columns."""

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
        """Return a builder of a merge: updates, inserts and deletes in one commit.

        A null key matches no row; within structs and lists, a null equals a null. The source is
        held in memory; `LanceTable.merge` merges by Spark, with expressions for single columns.

        Parameters
        ----------
        on : str or iterable of str, optional
            Columns by which rows of the source match rows of the table; the primary key of the
            table by default.

        Returns
        -------
        MergeInsertBuilder

        Raises
        ------
        InvalidInputError
            A column does not exist, or no column is given and the table has no primary key.

        Examples
        --------
        >>> merge = dataset.merge_insert("id").when_matched_update_all()
        >>> result = merge.when_not_matched_insert_all().execute(new_rows)
        >>> dataset = result["dataset"]
        """
        from lance_spark.dataset.changes.merge_insert import MergeInsertBuilder
        from lance_spark.table.primary_key import primary_key

        schema = self._table.schema
        if on is None:
            paths = primary_key(schema)
            if not paths or any(len(path) > 1 for path in paths):
                raise InvalidInputError(
                    "merge_insert: give the columns `on`; the table has no primary key of "
                    "top-level columns"
                )
            names = [path[0].name for path in paths]
        else:
            names = [on] if isinstance(on, str) else list(on)
        if not names:
            raise InvalidInputError("merge_insert: `on` must have at least one column")
        for name in names:
            if name not in schema.names:
                schema.field(name)
                raise InvalidInputError(
                    f"merge_insert: {name!r} must be a top-level column, not a child of a struct"
                )
        return MergeInsertBuilder(self, names)

    @reports_progress
    def merge(
        self,
        data_obj: Any,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        **keywords: Unpack[RetryProgressKeywords],
    ) -> Self:
        """Add the columns of other rows to the rows with the same key, in one commit.

        Rows without a match get nulls. Of several other rows with one key, the last one counts. A
        null matches a null. The other rows are held in memory; `LanceTable.add_columns_from` joins
        by Spark.

        Parameters
        ----------
        data_obj : Table, RecordBatch, RecordBatchReader, DataFrame of pandas, ...
            The other rows, as `write_dataset` takes them.
        left_on : str
            A top-level column of this table.
        right_on : str, optional
            A column of the other rows, by default of the same name. It is not added.
        schema : pa.Schema, optional
            As in `write_dataset`.

        Returns
        -------
        Dataset
            The version that was committed.

        Raises
        ------
        InvalidInputError
            A column is not found or exists already, the keys have different types, or a column that
            must not be null has no value for some row.
        UnsupportedFeatureError, UnsupportedTypeError, CommitConflictError, CorruptFileError,
        CorruptTableError, StorageError

        Examples
        --------
        >>> dataset = dataset.merge(pa.table({"id": [1, 2], "score": [0.5, 0.25]}), "id")
        """
        from lance_spark.mutations.columns.add import add_columns
        from lance_spark.mutations.columns.joined import JoinedColumns
        from lance_spark.table.sources import table_of

        key = self._table.schema.field(left_on)
        rows = table_of(data_obj, schema)
        joined = JoinedColumns.of(rows, right_on or left_on, key.to_arrow().type)
        options = CommitOptions.of(**keywords)
        table = add_columns(self._table, joined, [left_on], joined.columns.schema, options=options)
        return self._committed(table)
