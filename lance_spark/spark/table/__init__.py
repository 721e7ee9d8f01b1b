"""`LanceTable`: changes of a table through Spark.

Each method is one change: Spark jobs, if rows are involved, and one commit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from lance_spark._lazy import lazy_exports
from lance_spark.arguments import check_least
from lance_spark.dataset.error_paths import names_table_by
from lance_spark.errors import InvalidInputError, TableNotFoundError
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS, SCORE
from lance_spark.spark.options.names import FULL_TEXT_LIMIT
from lance_spark.spark.table.base import ChangeResult, option_texts
from lance_spark.spark.table.bases import BaseMethods
from lance_spark.spark.table.columns import ColumnMethods
from lance_spark.spark.table.history import HistoryMethods
from lance_spark.spark.table.indexes import IndexMethods
from lance_spark.spark.table.maintenance import MaintenanceMethods
from lance_spark.spark.table.rows import RowMethods
from lance_spark.storage.uri import parse_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lance_spark.scan.text.queries import QueryLike
    from lance_spark.spark.table.create import TableBuilder
    from lance_spark.spark.table.merge.builder import MergeBuilder

__all__ = ["ChangeResult", "LanceTable", "MergeBuilder", "TableBuilder"]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(
        globals(),
        {
            "MergeBuilder": "lance_spark.spark.table.merge.builder",
            "TableBuilder": "lance_spark.spark.table.create",
        },
    )


@names_table_by(lambda table: parse_uri(table.path).display)
class LanceTable(
    RowMethods, ColumnMethods, MaintenanceMethods, IndexMethods, HistoryMethods, BaseMethods
):
    """A Lance table that a Spark session reads and changes; returned by `forPath`.

    Each call opens the newest version, unless the options name a version.
    """

    @classmethod
    def forPath(cls, spark: SparkSession, path: str, **options: Any) -> Self:  # noqa: N802 - as DeltaTable has it
        """Return the table at a path.

        Parameters
        ----------
        spark : SparkSession
        path : str
            Folder or URI.
        **options
            Options of a read: settings of the store, and ``branch``. ``target_bases`` and
            ``target_all_bases`` choose the base paths of the data files that changes write. With
            ``version``, ``tag`` or ``timestamp`` the table is read-only.

        Raises
        ------
        TableNotFoundError, VersionNotFoundError, InvalidOptionError, StorageError
        """
        table = cls(spark, path, option_texts(options))
        table.dataset()
        return table

    @classmethod
    def isLanceTable(cls, spark: SparkSession, path: str, **options: Any) -> bool:  # noqa: N802 - as DeltaTable has it
        """Return whether a path holds a Lance table; see `forPath`.

        Raises
        ------
        InvalidOptionError
        StorageError
            The store refused the request, so the answer is unknown.
        """
        try:
            cls.forPath(spark, path, **options)
        except TableNotFoundError:
            return False
        return True

    def alias(self, name: str) -> Self:
        """Return the same table under a name for conditions and expressions: ``name.column``."""
        if not name:
            raise InvalidInputError("an alias must not be empty")
        return type(self)(self.spark, self.path, self.options, name)

    def toDF(  # noqa: N802 - as DeltaTable has it
        self,
        columns: Sequence[str] | None = None,
        *,
        with_row_id: bool = False,
        with_row_address: bool = False,
        filter: str | None = None,
        **options: Any,
    ) -> DataFrame:
        """Return the table as a DataFrame.

        Each query reads the version that is the newest when Spark plans it, unless the options
        name a version.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns to read, or dotted paths of children of structs; all columns by default.
        with_row_id, with_row_address : bool
            Whether to add the columns ``_rowid`` and ``_rowaddr``.
        filter : str, optional
            Predicate in Spark's SQL; only rows for which it is true are read.
        **options
            Other options of a read.
        """
        if isinstance(columns, str):
            raise InvalidInputError(f"columns must be a list of names, not the string {columns!r}")
        read_options: dict[str, Any] = {**self.options, **options}
        if columns is not None:
            read_options["columns"] = json.dumps(list(columns))
        if with_row_id:
            read_options["with_row_id"] = True
        if with_row_address:
            read_options["with_row_address"] = True
        if filter is not None:
            read_options["filter"] = filter
        texts = option_texts(read_options)
        frame = self.spark.read.format("lance").options(**texts).load(self.path)
        return frame if self.alias_name is None else frame.alias(self.alias_name)

    def search(
        self,
        query: QueryLike,
        columns: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        k: int | None = None,
        filter: str | None = None,
        prefilter: bool = True,
        fast_search: bool = False,
        with_row_id: bool = False,
        with_row_address: bool = False,
        **options: Any,
    ) -> DataFrame:
        """Return the rows whose text matches a query, those with the greatest scores first.

        The DataFrame has the columns and ``_score``. As for `toDF`, a query over it reads the
        newest version. Tasks search parts of the index, and each returns its best rows. Conditions
        on the DataFrame, such as ``where``, choose among its rows.

        Parameters
        ----------
        query : str, mapping or FullTextQuery
            Words, ``"a phrase"`` in quotation marks, a mapping with the keys ``query`` and
            ``columns``, or a query of `lance_spark.query`. Without columns, all columns with an
            INVERTED index are searched.
        columns : sequence of str, optional
            Columns to return, as in `toDF`. ``_score`` is added if it is not named.
        limit : int, optional
            Maximum number of rows; all that match by default. Of rows with equal scores, those with
            the least addresses are first.
        k : int, optional
            Another name of `limit`.
        filter : str, optional
            Predicate in Spark's SQL; only rows for which it is true are returned.
        prefilter : bool
            Whether the filter chooses rows before the first `limit` rows are chosen, or among
            these.
        fast_search : bool
            Whether rows that no index covers are left out.
        with_row_id, with_row_address : bool
            Whether to add the columns ``_rowid`` and ``_rowaddr``.
        **options
            Other options of a read.

        Raises
        ------
        InvalidInputError
            The query is malformed, the limit is negative, or the table has a column ``_score``.
            A column that does not exist, and an index that this release cannot search, are errors
            of queries over the DataFrame.

        Examples
        --------
        >>> table.search("quick fox", ["id", "text"], limit=10).show()  # doctest: +SKIP
        """
        from pyspark.sql import functions

        from lance_spark.scan.text.query_json import query_to_json

        if k is not None:
            if limit is not None:
                raise InvalidInputError("give limit, and not k, which means the same, too")
            limit = k
        if limit is not None:
            check_least("limit", limit, 0)
        read: dict[str, Any] = {**options, "full_text_query": query_to_json(query)}
        if limit is not None:
            read[FULL_TEXT_LIMIT] = limit
        address = ROW_ADDRESS.name
        frame = self.toDF(
            columns,
            with_row_id=with_row_id,
            with_row_address=True,
            filter=filter if prefilter else None,
            fast_search=fast_search or None,
            **read,
        )
        frame = frame.orderBy(functions.desc(SCORE.name), functions.asc(address))
        if limit is not None:
            frame = frame.limit(limit)
        if filter is not None and not prefilter:
            frame = frame.where(filter)
        is_wanted = with_row_address or address in (columns or ())
        return frame if is_wanted else frame.drop(address)

    def __repr__(self) -> str:
        from lance_spark.spark.read.reader import display

        return f"LanceTable({display(self.path)})"
