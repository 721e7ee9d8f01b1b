"""Changing columns through Spark, and making tables: what `LanceTable` has of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidInputError
from lance_spark.mutations.retry import DEFAULT_CONFLICT_RETRIES
from lance_spark.spark.jobs.job import Job
from lance_spark.spark.table.base import ChangeResult, TableBase
from lance_spark.table.commit.transaction import with_message
from lance_spark.table.manifest.manifest import Manifest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from lance_spark.spark.table.create import TableBuilder


class ColumnMethods(TableBase):
    """Adds, drops and alters columns, and makes tables."""

    @classmethod
    def create(cls, spark: SparkSession) -> TableBuilder:
        """Return a builder of a table; there must be none."""
        return cls._builder(spark, "create")

    @classmethod
    def createIfNotExists(cls, spark: SparkSession) -> TableBuilder:  # noqa: N802 - as DeltaTable has it
        """Return a builder of a table; one that is there stays as it is."""
        return cls._builder(spark, "createIfNotExists")

    @classmethod
    def replace(cls, spark: SparkSession) -> TableBuilder:
        """Return a builder of a table in the place of one, whose older versions stay."""
        return cls._builder(spark, "replace")

    @classmethod
    def createOrReplace(cls, spark: SparkSession) -> TableBuilder:  # noqa: N802 - as DeltaTable has it
        """Return a builder of a table, in the place of one or not."""
        return cls._builder(spark, "createOrReplace")

    @classmethod
    def _builder(cls, spark: SparkSession, mode: Any) -> TableBuilder:
        from lance_spark.spark.table.create import TableBuilder

        return TableBuilder(cls, spark, mode)

    def addColumns(  # noqa: N802 - Spark's habit
        self,
        columns: Mapping[str, str | Column],
        *,
        nullable: bool = True,
        options: Mapping[str, Any] | None = None,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Add columns that are computed from those that there are.

        Executors read the columns that the expressions name, and write one new data file for each
        fragment; no file that there is is rewritten. Rows that others change or append meanwhile
        are computed before the commit.

        Parameters
        ----------
        columns : mapping of str to str or Column
            By new column, an expression in SQL, or a Column. Window functions are computed after a
            shuffle.
        nullable : bool
            Whether the columns may be null.
        options : mapping, optional
            Types and encodings as a write takes them: ``{"vector.arrow.fixed-size-list.size":
            128}``.
        commit_message : str, optional
            Kept with the transaction.
        transaction_properties : mapping of str to str, optional
            Kept too.
        conflict_retries : int
            How often to begin again on the newest version if others committed what it does not fit.

        Raises
        ------
        InvalidInputError
            There is such a column already, Spark cannot make sense of an expression, a value is
            null that must not be, or the options of the table name a version.
        InvalidOptionError, UnsupportedTypeError
            A column cannot be of such a type.
        CommitConflictError
            Others were faster, again and again.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            What an expression raises for some row.
        """
        from lance_spark.mutations.columns.fill import Computation
        from lance_spark.spark.table.jobs.add_columns import add_expressions

        properties = with_message(transaction_properties, commit_message)
        marks = self._marks(options)

        def plan(job: Job, dataset: Dataset) -> Manifest:
            return add_expressions(
                self, job, dataset, computation, columns, nullable, marks, properties
            )

        with Computation() as computation:
            manifest = self.change(
                "add columns",
                plan,
                conflict_retries=conflict_retries,
                naming=list(columns.values()),
            )
        return ChangeResult(manifest.version)

    def addColumnsFrom(  # noqa: N802 - Spark's habit
        self,
        source: DataFrame,
        key: str | Sequence[str],
        *,
        missing: Literal["null", "error"] = "null",
        options: Mapping[str, Any] | None = None,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Add the columns of a DataFrame, to rows with the same key.

        Of the table only the key is read. New data files are written, and none is rewritten.

        Parameters
        ----------
        source : DataFrame
            The key, and the new columns, with one row for each key.
        key : str or sequence of str
            Columns of both; ``_rowid`` and ``_rowaddr`` are columns of every table. Addresses are
            those of the newest version; once others move rows before the commit, they are refused.
        missing : str
            What becomes of rows whose key the DataFrame does not have: "null", or "error".
        options, commit_message, transaction_properties, conflict_retries
            As in `addColumns`.

        Raises
        ------
        InvalidInputError
            Two rows of the DataFrame have one key, a row has none though it must, there is such a
            column already, or the key is no column of both.
        InvalidOptionError, UnsupportedTypeError, CommitConflictError, UnsupportedFeatureError,
        UnsupportedError, StorageError PySparkException
            What the DataFrame raises.
        """
        from lance_spark.mutations.columns.fill import Computation
        from lance_spark.spark.table.jobs.add_columns import add_from

        if missing not in ("null", "error"):
            raise InvalidInputError(f'missing must be "null" or "error", not {missing!r}')
        keys = [key] if isinstance(key, str) else list(key)
        properties = with_message(transaction_properties, commit_message)
        marks = self._marks(options)

        def plan(job: Job, dataset: Dataset) -> Manifest:
            return add_from(
                self,
                job,
                dataset,
                computation,
                source,
                keys,
                missing == "error",
                marks,
                properties,
            )

        with Computation() as computation:
            manifest = self.change(
                "add columns", plan, conflict_retries=conflict_retries, naming=keys
            )
        return ChangeResult(manifest.version)

    def updateColumnsFrom(  # noqa: N802 - Spark's habit
        self,
        source: DataFrame,
        key: str | Sequence[str],
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Give rows the values that a DataFrame has for the same key.

        New data files have the columns alone, of the fragments with such rows; rows stay where they
        are. Others keep their values.

        Parameters
        ----------
        source : DataFrame
            The key, and columns of the table, cast to their types, with one row for each key.
        key : str or sequence of str
            Columns of both; ``_rowid`` and ``_rowaddr`` are columns of every table. Addresses are
            those of the newest version; once others move rows before the commit, they are refused.
        commit_message, transaction_properties, conflict_retries
            As in `addColumns`.

        Raises
        ------
        InvalidInputError
            Two rows of the DataFrame have one key, or the key is no column of both.
        SchemaMismatchError
            The table has no such column.
        UnsupportedError
            The column is one of blobs.
        CommitConflictError, UnsupportedFeatureError, StorageError
        PySparkException
            What the DataFrame raises.
        """
        from lance_spark.spark.table.jobs.add_columns import update_from

        keys = [key] if isinstance(key, str) else list(key)
        properties = with_message(transaction_properties, commit_message)
        counts = [0]

        def plan(job: Job, dataset: Dataset) -> Manifest:
            manifest, counts[0] = update_from(self, job, dataset, source, keys, properties)
            return manifest

        manifest = self.change(
            "update columns", plan, conflict_retries=conflict_retries, naming=keys
        )
        return ChangeResult(manifest.version, num_updated_rows=counts[0])

    def dropColumns(  # noqa: N802 - Spark's habit
        self,
        *names: str,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Drop columns, or children of structs by names with dots; no data file is rewritten.

        Raises
        ------
        InvalidInputError, CommitConflictError, UnsupportedFeatureError, StorageError
        """
        from lance_spark.mutations.columns.alter import drop_columns

        table = drop_columns(
            self.writable("drop columns"),
            names,
            properties=with_message(transaction_properties, commit_message),
            conflict_retries=conflict_retries,
        )
        return ChangeResult(table.version)

    def renameColumn(  # noqa: N802 - Spark's habit
        self,
        name: str,
        newName: str,  # noqa: N803 - Spark's habit
        *,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Rename a column, or a child of a struct by its name with dots; no data file is rewritten.

        Raises
        ------
        InvalidInputError, CommitConflictError, UnsupportedFeatureError, StorageError
        """
        return self._alter(
            {"path": name, "name": newName},
            with_message(transaction_properties, commit_message),
            conflict_retries,
        )

    def alterColumn(  # noqa: N802 - Spark's habit
        self,
        name: str,
        *,
        nullable: bool | None = None,
        dataType: str | DataType | pa.DataType | None = None,  # noqa: N803 - Spark's habit
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Say whether a column may be null, or give it another type, which executors cast its
        values to.

        Parameters
        ----------
        name : str
            Children of structs by names with dots.
        nullable : bool, optional
        dataType : str, DataType or pa.DataType, optional
            In Spark's DDL, as Spark's type, or as Arrow's, which has vectors, large strings,
            float16 and others besides.
        commit_message, transaction_properties, conflict_retries
            As in `addColumns`.

        Raises
        ------
        InvalidInputError
            There is no such column, a value does not fit, or nothing is asked for.
        CommitConflictError, UnsupportedTypeError, UnsupportedFeatureError, StorageError
        """
        alteration: dict[str, Any] = {"path": name}
        if nullable is not None:
            alteration["nullable"] = nullable
        if dataType is not None:
            from lance_spark.spark.table.create import arrow_type

            alteration["data_type"] = arrow_type(dataType, name)
        return self._alter(
            alteration, with_message(transaction_properties, commit_message), conflict_retries
        )

    def reorderColumns(  # noqa: N802 - Spark's habit
        self,
        *names: str,
        commit_message: str | None = None,
        transaction_properties: Mapping[str, str] | None = None,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
    ) -> ChangeResult:
        """Put columns first, in this order; those that are not named follow in the order they have.
        No data file is rewritten.

        Raises
        ------
        InvalidInputError
            There is no such column, or one is named twice.
        CommitConflictError, UnsupportedFeatureError, StorageError
        """
        from lance_spark.mutations.columns.alter import reorder_columns

        table = reorder_columns(
            self.writable("reorder columns"),
            names,
            properties=with_message(transaction_properties, commit_message),
            conflict_retries=conflict_retries,
        )
        return ChangeResult(table.version)

    def _alter(
        self, alteration: Mapping[str, Any], properties: Mapping[str, str], conflict_retries: int
    ) -> ChangeResult:
        from lance_spark.mutations.columns.alter import alter_columns

        table = self.writable("alter column")
        with Job(self.spark, table, "alter column") as job:
            altered = alter_columns(
                table,
                [alteration],
                properties=properties,
                conflict_retries=conflict_retries,
                runner=job.runner("cast values"),
            )
            job.committed(altered.manifest)
        return ChangeResult(altered.version)

    def _marks(self, options: Mapping[str, Any] | None) -> Mapping[str, Mapping[str, str]]:
        from lance_spark.spark.options.options import WriteOptions

        given = {name: str(value) for name, value in (options or {}).items()}
        return WriteOptions.parse({**given, "path": self.path}).column_metadata
