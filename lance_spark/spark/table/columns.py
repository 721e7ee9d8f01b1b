"""Methods of `LanceTable` that create tables and change columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pyarrow as pa

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import InvalidInputError
from lance_spark.spark.job import Job
from lance_spark.spark.table.base import ChangeResult, TableBase
from lance_spark.table.commit.options import CommitOptions, RetryKeywords

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from lance_spark.spark.table.create import TableBuilder


class ColumnMethods(TableBase):
    """Methods of `LanceTable` that create tables and add, update, alter and drop columns."""

    @classmethod
    def create(cls, spark: SparkSession) -> TableBuilder:
        """Return a builder of a new table. At its path there must be no table."""
        return cls._builder(spark, "create")

    @classmethod
    def createIfNotExists(cls, spark: SparkSession) -> TableBuilder:  # noqa: N802 - as DeltaTable has it
        """Return a builder of a new table. An existing table stays as it is."""
        return cls._builder(spark, "createIfNotExists")

    @classmethod
    def replace(cls, spark: SparkSession) -> TableBuilder:
        """Return a builder that replaces an existing table. Its older versions stay."""
        return cls._builder(spark, "replace")

    @classmethod
    def createOrReplace(cls, spark: SparkSession) -> TableBuilder:  # noqa: N802 - as DeltaTable has it
        """Return a builder that creates a table, or replaces an existing table."""
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
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Add columns that are computed from existing columns.

        Executors read the columns that the expressions name, and write one new data file for each
        fragment; existing files are not rewritten. If another client changes or appends rows at the
        same time, values of these rows are computed before the commit.

        Parameters
        ----------
        columns : mapping of str to str or Column
            An expression in SQL, or a Column, by the name of the new column. Window functions are
            computed after a shuffle.
        nullable : bool
            Whether the columns are nullable.
        options : mapping, optional
            Types and encodings, as options of a write: ``{"vector.arrow.fixed-size-list.size":
            128}``.

        Raises
        ------
        InvalidInputError
            A column exists already, Spark cannot analyse an expression, a value of a column that is
            not nullable is null, or the options of the table name a version.
        InvalidOptionError, UnsupportedTypeError
            A type is not valid.
        CommitConflictError
            Other clients committed conflicting changes in all attempts.
        UnsupportedFeatureError, UnsupportedError, StorageError
        PySparkException
            An expression raised an error for some row.
        """
        from lance_spark.mutations.columns.fill import Computation
        from lance_spark.spark.table.jobs.add_columns import add_expressions

        commit = CommitOptions.of(**keywords)
        metadata = self._column_metadata(options)

        with Computation() as computation:
            return self._change(
                "add columns",
                lambda job, dataset: add_expressions(
                    self, job, dataset, computation, columns, nullable, metadata, commit
                ),
                commit,
                list(columns.values()),
            )

    def addColumnsFrom(  # noqa: N802 - Spark's habit
        self,
        source: DataFrame,
        key: str | Sequence[str],
        *,
        missing: Literal["null", "error"] = "null",
        options: Mapping[str, Any] | None = None,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Add the columns of a DataFrame, joined by a key.

        Executors read only the key of the table, and write one new data file for each fragment;
        existing files are not rewritten.

        Parameters
        ----------
        source : DataFrame
            The key, and the new columns, with one row per key.
        key : str or sequence of str
            Columns of both; ``_rowid`` and ``_rowaddr`` are columns of every table. Row addresses
            refer to the newest version. If another client moves rows before the commit, the change
            raises `CommitConflictError`.
        missing : str
            ``null``: rows whose key is not in the DataFrame get nulls. ``error``: such a row is an
            error.
        options, commit_message, transaction_properties, conflict_retries
            As in `addColumns`.

        Raises
        ------
        InvalidInputError
            Two rows of the DataFrame have the same key, a row has no value and `missing` is
            ``error``, a new column exists already, or a column of the key is not found.
        InvalidOptionError, UnsupportedTypeError, CommitConflictError, UnsupportedFeatureError,
        UnsupportedError, StorageError
        PySparkException
            The DataFrame raised an error.
        """
        from lance_spark.mutations.columns.fill import Computation
        from lance_spark.spark.table.jobs.add_columns import add_from

        if missing not in ("null", "error"):
            raise InvalidInputError(f'missing must be "null" or "error", not {missing!r}')
        keys = [key] if isinstance(key, str) else list(key)
        commit = CommitOptions.of(**keywords)
        metadata = self._column_metadata(options)

        required = missing == "error"
        with Computation() as computation:
            return self._change(
                "add columns",
                lambda job, dataset: add_from(
                    self,
                    job,
                    dataset,
                    computation,
                    *self._keyed(dataset, source, keys),
                    required,
                    metadata,
                    commit,
                ),
                commit,
                keys,
            )

    def updateColumnsFrom(  # noqa: N802 - Spark's habit
        self,
        source: DataFrame,
        key: str | Sequence[str],
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Update columns by the values that a DataFrame has for the same key.

        Rows stay in their fragments: for each fragment with a row to update, executors write a new
        file with all values of the updated columns. Rows whose key is not in the DataFrame keep
        their values.

        Parameters
        ----------
        source : DataFrame
            The key, and columns of the table, with one row per key. Values are cast to the types of
            the columns.
        key : str or sequence of str
            As in `addColumnsFrom`.

        Raises
        ------
        InvalidInputError
            Two rows of the DataFrame have the same key, or a column of the key is not found.
        SchemaMismatchError
            A column of the DataFrame is not found in the table.
        UnsupportedError
            A column holds blobs.
        CommitConflictError, UnsupportedFeatureError, StorageError
        PySparkException
            The DataFrame raised an error.
        """
        from lance_spark.spark.table.jobs.add_columns import update_from

        keys = [key] if isinstance(key, str) else list(key)
        commit = CommitOptions.of(**keywords)
        return self._change(
            "update columns",
            lambda job, dataset: update_from(
                self, job, dataset, *self._keyed(dataset, source, keys), commit
            ),
            commit,
            keys,
        )

    def dropColumns(  # noqa: N802 - Spark's habit
        self,
        *names: str,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Drop columns, or children of structs by dotted paths. Data files are not rewritten.

        Raises
        ------
        InvalidInputError, CommitConflictError, UnsupportedFeatureError, StorageError
        """
        from lance_spark.mutations.columns.drop import drop_columns

        commit = CommitOptions.of(**keywords)
        table = self._writable("drop columns")
        return ChangeResult(
            drop_columns(table, self._spelled(Dataset(table), *names), commit).version
        )

    def renameColumn(  # noqa: N802 - Spark's habit
        self,
        name: str,
        newName: str,  # noqa: N803 - Spark's habit
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Rename a column, or a child of a struct by its dotted path. Data files do not change.

        Raises
        ------
        InvalidInputError, CommitConflictError, UnsupportedFeatureError, StorageError
        """
        commit = CommitOptions.of(**keywords)
        return self._alter({"path": name, "name": newName}, commit)

    def alterColumn(  # noqa: N802 - Spark's habit
        self,
        name: str,
        *,
        nullable: bool | None = None,
        dataType: str | DataType | pa.DataType | None = None,  # noqa: N803 - Spark's habit
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Change the nullability or the type of a column. Executors cast its values to a new type.

        Parameters
        ----------
        name : str
            Name of the column, or dotted path of a child of a struct.
        nullable : bool, optional
            Whether the column is nullable.
        dataType : str, DataType or pa.DataType, optional
            The new type: text in Spark's DDL, Spark's type, or Arrow's type, which also has
            vectors, large strings, float16 and others. A change to or from a type of Spark that
            Arrow lacks, such as ``char(4)`` or ``string collate UNICODE``, makes a version of its
            own. ``string`` keeps the collation of a column, as in SQL.

        Raises
        ------
        InvalidInputError
            The column is not found, a value does not fit, or no change is given.
        CommitConflictError, UnsupportedTypeError, UnsupportedFeatureError, StorageError
        """
        alteration: dict[str, Any] = {"path": name}
        if nullable is not None:
            alteration["nullable"] = nullable
        record: dict[str, str | None] = {}
        if dataType is not None:
            from lance_spark.spark.table.create import arrow_field
            from lance_spark.spark.types.recorded import changed_record

            field = arrow_field(dataType, name)
            alteration["data_type"] = field.type
            if not isinstance(dataType, pa.DataType):
                table = self._writable("alter column")
                (name,) = self._spelled(Dataset(table), name)
                old = table.schema.field(name).to_arrow()
                record = changed_record(old, field)
                if record and field.type == old.type:
                    del alteration["data_type"]
        commit = CommitOptions.of(**keywords)
        if not record:
            return self._alter(alteration, commit)
        if len(alteration) > 1:
            self._alter(alteration, commit)
        from lance_spark.mutations.metadata_updates import update_config

        table = self._writable("alter column")
        altered = update_config(table, field_metadata={name: record}, options=commit)
        return ChangeResult(altered.version)

    def reorderColumns(  # noqa: N802 - Spark's habit
        self,
        *names: str,
        **keywords: Unpack[RetryKeywords],
    ) -> ChangeResult:
        """Move columns to the front, in the given order; other columns follow in their old order.

        Data files are not rewritten.

        Raises
        ------
        InvalidInputError
            A column is not found, or is named twice.
        CommitConflictError, UnsupportedFeatureError, StorageError
        """
        from lance_spark.mutations.columns.alter import reorder_columns

        commit = CommitOptions.of(**keywords)
        table = self._writable("reorder columns")
        return ChangeResult(
            reorder_columns(table, self._spelled(Dataset(table), *names), commit).version
        )

    def _keyed(
        self, dataset: Dataset, source: DataFrame, keys: Sequence[str]
    ) -> tuple[DataFrame, list[str]]:
        """Return a DataFrame and its key with the names of the table's columns."""
        names = self._spelled(dataset, *keys)
        if self._is_case_sensitive():
            return source, names
        by_lower = {name.lower(): name for name in names}
        columns = [by_lower.get(name.lower(), name) for name in source.columns]
        return (source if columns == source.columns else source.toDF(*columns)), names

    def _alter(self, alteration: Mapping[str, Any], options: CommitOptions) -> ChangeResult:
        from lance_spark.mutations.columns.alter import alter_columns

        table = self._writable("alter column")
        (path,) = self._spelled(Dataset(table), alteration["path"])
        alteration = {**alteration, "path": path}
        with Job(self.spark, table, "alter column") as job:
            runner = job.runner("cast values")
            altered = alter_columns(table, [alteration], options, runner)
            job.committed(altered.manifest)
        return ChangeResult(altered.version)

    def _column_metadata(
        self, options: Mapping[str, Any] | None
    ) -> Mapping[str, Mapping[str, str]]:
        from lance_spark.spark.options.write import WriteOptions

        texts = {name: str(value) for name, value in (options or {}).items()}
        return WriteOptions.parse({**texts, "path": self.path}).column_metadata
