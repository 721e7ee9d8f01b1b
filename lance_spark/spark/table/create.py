"""Making a table without rows: columns and properties, one commit, no Spark job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from lance_spark.errors import (
    InvalidInputError,
    TableExistsError,
    UnsupportedError,
)
from lance_spark.spark.options.options import WriteOptions
from lance_spark.spark.table.base import option_text
from lance_spark.spark.types.mapping import LARGE_BINARY, LARGE_STRING, VECTOR_SIZE, to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lance_spark.spark.table.base import TableBase

Mode = Literal["create", "createIfNotExists", "replace", "createOrReplace"]
_COMMENT = "comment"
_PRIMARY_KEY = "lance-schema:unenforced-primary-key"
#: Properties that say how the table is made, and are not kept with it.
_OF_BASES = ("base_store_params", "target_bases", "target_all_bases")
_OF_WRITES = ("enable_stable_row_ids", "data_storage_version")


def arrow_type(given: str | DataType | pa.DataType, column: str) -> pa.DataType:
    """Return a type as a table has it.

    Parameters
    ----------
    given : str, DataType or pa.DataType
        In Spark's DDL, as Spark's, or as Arrow's type.
    column : str
        What errors call the column.

    Raises
    ------
    InvalidInputError
        It is no type.
    UnsupportedTypeError
    """
    if isinstance(given, pa.DataType):
        return given
    return to_arrow_schema(StructType([StructField("x", spark_type(given, column))])).field(0).type


def spark_type(given: str | DataType, column: str) -> DataType:
    """Return Spark's type, of a text in its DDL, or as it is given.

    Raises
    ------
    InvalidInputError
    """
    if isinstance(given, DataType):
        return given
    from pyspark.errors import PySparkException

    try:
        return DataType.fromDDL(given)
    except (PySparkException, ValueError, TypeError, AttributeError) as error:
        first = str(error).partition("\n")[0]
        raise InvalidInputError(f"column {column!r}: {given!r} is no type: {first}") from None


class TableBuilder:
    """Makes a table without rows; by `LanceTable.create` and its kin.

    Parameters
    ----------
    cls : type
        Class of the table that `execute` returns.
    spark : SparkSession
    mode : str
    """

    def __init__(self, cls: type[TableBase], spark: SparkSession, mode: Mode) -> None:
        self._cls = cls
        self._spark = spark
        self._mode = mode
        self._path: str | None = None
        self._fields: list[StructField] = []
        self._marks: dict[str, dict[str, str]] = {}
        self._properties: dict[str, str] = {}
        self._options: dict[str, str] = {}

    def location(self, location: str) -> Self:
        """Say where the table stands: a folder, or a URI."""
        self._path = location
        return self

    def option(self, key: str, value: Any) -> Self:
        """Set an option of the write, such as a setting of the store."""
        self._options[key] = option_text(value)
        return self

    def addColumn(  # noqa: N802 - as DeltaTableBuilder has it
        self,
        colName: str,  # noqa: N803 - as DeltaTableBuilder has it
        dataType: str | DataType,  # noqa: N803 - as DeltaTableBuilder has it
        nullable: bool = True,
        generatedAlwaysAs: Any = None,  # noqa: N803 - as DeltaTableBuilder has it
        comment: str | None = None,
        *,
        vectorDimension: int | None = None,  # noqa: N803 - Spark's habit
        blob: bool = False,
        large: bool = False,
        compression: str | None = None,
        compressionLevel: int | None = None,  # noqa: N803 - Spark's habit
        primaryKey: bool = False,  # noqa: N803 - Spark's habit
        metadata: Mapping[str, str] | None = None,
    ) -> Self:
        """Add a column.

        Parameters
        ----------
        colName : str
        dataType : str or DataType
        nullable : bool
        comment : str, optional
            Kept with the column.
        vectorDimension : int, optional
            An array is a vector of so many items.
        blob : bool
            Binary values lie apart from the rows.
        large : bool
            Strings and binary values have 64-bit offsets.
        compression : str, optional
            For example "zstd".
        compressionLevel : int, optional
        primaryKey : bool
            The column is one of the primary key, which nobody enforces.
        metadata : mapping of str to str, optional
            More that is kept with the column.

        Raises
        ------
        InvalidInputError
            The type is none.
        UnsupportedError
            Columns cannot be generated.
        """
        if generatedAlwaysAs is not None:
            raise UnsupportedError(
                f"column {colName!r}: Lance has no generated columns; add it by addColumns, "
                "computed once"
            )
        kind = spark_type(dataType, colName)
        extra: dict[str, str] = {}
        if vectorDimension is not None:
            extra[VECTOR_SIZE] = str(vectorDimension)
        if blob:
            extra["lance-encoding:blob"] = "true"
        if large:
            text = kind.simpleString().replace("array<", "")
            extra[LARGE_BINARY if text.startswith("binary") else LARGE_STRING] = "true"
        if compression is not None:
            extra["lance-encoding:compression"] = compression
        if compressionLevel is not None:
            extra["lance-encoding:compression-level"] = str(compressionLevel)
        kept = dict(metadata or {})
        if comment is not None:
            kept[_COMMENT] = comment
        if primaryKey:
            kept[_PRIMARY_KEY] = "true"
        self._fields.append(StructField(colName, kind, nullable, extra))
        self._marks[colName] = kept
        return self

    def addColumns(self, cols: StructType | list[StructField]) -> Self:  # noqa: N802 - as DeltaTableBuilder has it
        """Add the columns of a Spark schema."""
        self._fields.extend(cols)
        return self

    def property(self, key: str, value: Any) -> Self:
        """Set a property of the table.

        ``enable_stable_row_ids`` and ``data_storage_version`` say how it is made; ``lance.`` begins
        the names of settings; all others are metadata of the table.
        """
        self._properties[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def comment(self, comment: str) -> Self:
        """Describe the table."""
        return self.property(_COMMENT, comment)

    def execute(self) -> Any:
        """Make the table.

        Returns
        -------
        LanceTable

        Raises
        ------
        InvalidInputError
            There is no location, or no column.
        TableExistsError, TableNotFoundError
            There is a table, and there must not be; or there is none to replace.
        InvalidOptionError, SchemaMismatchError, UnsupportedTypeError, StorageError
        """
        from lance_spark.spark.write.planning import existing_schema
        from lance_spark.table.commit.write_job import begin_write

        if self._path is None:
            raise InvalidInputError("say where the table stands: .location(path)")
        options = WriteOptions.parse({**self._options, **self._of_writes(), "path": self._path})
        replaces = self._mode in ("replace", "createOrReplace")
        there = existing_schema(options) is not None
        if there and self._mode == "createIfNotExists":
            return self._table(self._path)
        if self._mode == "replace" and not there:
            # Says what is there instead.
            self._table(self._path).dataset()
        if not self._fields:
            raise InvalidInputError(
                f"{self._path}: a table has at least one column: .addColumn(...)"
            )
        kept = self._kept()
        try:
            begin_write(
                self._path,
                self._schema(options),
                mode="overwrite" if replaces else "create",
                branch=options.branch,
                data_storage_version=options.data_storage_version,
                enable_stable_row_ids=bool(options.enable_stable_row_ids),
                storage_options=options.storage_options or None,
                initial_bases=options.initial_bases,
                config={k: v for k, v in kept.items() if k.startswith("lance.")},
                table_metadata={k: v for k, v in kept.items() if not k.startswith("lance.")},
            ).commit([])
        except TableExistsError:
            if self._mode != "createIfNotExists":
                raise
        return self._table(self._path)

    def _schema(self, options: WriteOptions) -> pa.Schema:
        made = to_arrow_schema(
            StructType(self._fields),
            options.column_metadata,
            large_var_types=options.large_var_types,
        )
        return pa.schema(
            [
                field.with_metadata({**(field.metadata or {}), **self._marks[field.name]})
                if self._marks.get(field.name)
                else field
                for field in made
            ]
        )

    def _of_writes(self) -> dict[str, str]:
        return {k.lower(): v for k, v in self._properties.items() if k.lower() in _OF_WRITES}

    def _kept(self) -> dict[str, str]:
        return {k: v for k, v in self._properties.items() if k.lower() not in _OF_WRITES}

    def _table(self, path: str) -> Any:
        options = {
            name: value
            for name, value in self._options.items()
            if name.lower().startswith("storage") or name.lower() in ("branch", *_OF_BASES)
        }
        return self._cls(self._spark, path, options)
