"""`LanceTable`: changes of a table through Spark.

Each method is one change: Spark jobs, if rows are involved, and one commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from lance_spark._lazy import lazy_exports
from lance_spark.dataset._decorators import prefixes_errors_by
from lance_spark.errors import InvalidInputError, TableNotFoundError
from lance_spark.spark.table.base import ChangeResult, option_texts
from lance_spark.spark.table.bases import BaseMethods
from lance_spark.spark.table.columns import ColumnMethods
from lance_spark.spark.table.history import HistoryMethods
from lance_spark.spark.table.indexes import IndexMethods
from lance_spark.spark.table.joins import JoinMethods
from lance_spark.spark.table.maintenance import MaintenanceMethods
from lance_spark.spark.table.mem_wal import MemWalMethods
from lance_spark.spark.table.rows import RowMethods
from lance_spark.spark.table.searches import SearchMethods
from lance_spark.storage.uri import parse_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


@prefixes_errors_by(lambda table: parse_uri(table.path).display)
class LanceTable(
    SearchMethods,
    JoinMethods,
    RowMethods,
    ColumnMethods,
    MaintenanceMethods,
    IndexMethods,
    MemWalMethods,
    HistoryMethods,
    BaseMethods,
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
    def forName(cls, spark: SparkSession, tableOrViewName: str, **options: Any) -> Self:  # noqa: N802, N803 - as DeltaTable has it
        """Return the table with a name, in a catalog of a session that `enable` has extended.

        Parameters
        ----------
        spark : SparkSession
        tableOrViewName : str
            Name of a table in SQL, such as ``lance.db.t``. Views are not tables.
        **options
            As of `forPath`, beside the settings of the catalog for its stores.

        Raises
        ------
        TableNotFoundError
            No catalog of Lance tables has the name.
        VersionNotFoundError, InvalidOptionError, StorageError

        Examples
        --------
        >>> LanceTable.forName(spark, "lance.db.flights").history()  # doctest: +SKIP
        """
        from lance_spark.spark.table.named import path_and_settings

        path, settings = path_and_settings(spark, tableOrViewName)
        return cls.forPath(spark, path, **{**settings, **options})

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

    def __repr__(self) -> str:
        from lance_spark.spark.read.reader import display

        return f"LanceTable({display(self.path)})"
