"""Builder of a table without rows: columns and properties, one commit, no Spark job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from lance_spark.dataset.decorators import prefixes_errors_by
from lance_spark.errors import InvalidInputError, TableExistsError, UnsupportedError
from lance_spark.file.schema.field import PRIMARY_KEY
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.table.base import option_text
from lance_spark.spark.types.field_metadata import COMMENT, LARGE_BINARY, LARGE_STRING, VECTOR_SIZE
from lance_spark.spark.types.mapping import to_arrow_schema
from lance_spark.storage.uri import parse_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mode = Literal["create", "createIfNotExists", "replace", "createOrReplace"]
#: Options that the returned table keeps, beside the options of the store.
_TABLE_OPTIONS = ("branch", "base_store_params", "target_bases", "target_all_bases")
#: Properties that are options of the write, and are not stored in the table.
_WRITE_PROPERTIES = ("enable_stable_row_ids", "data_storage_version")


def arrow_field(dtype: str | DataType | pa.DataType, column: str) -> pa.Field:
    """Return a field with the Arrow type of a column, and with the record of its type in Spark.

    - `dtype`: Text in Spark's DDL, Spark's type, or Arrow's type.
    - `column`: Name of the column in errors.

    Raises UnsupportedTypeError. Raises InvalidInputError: the text is not a type.
    """
    if isinstance(dtype, pa.DataType):
        return pa.field("x", dtype)
    return to_arrow_schema(StructType([StructField("x", spark_type(dtype, column))])).field(0)


def spark_type(dtype: str | DataType, column: str) -> DataType:
    """Return the Spark type of a column, from a text in Spark's DDL or from a type.

    Raises InvalidInputError: the text is not a type.
    """
    if isinstance(dtype, DataType):
        return dtype
    from pyspark.errors import PySparkException

    try:
        return DataType.fromDDL(dtype)
    except (PySparkException, ValueError, TypeError, AttributeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise InvalidInputError(f"column {column!r}: {dtype!r} is not a type: {first}") from None


@prefixes_errors_by(
    lambda builder: parse_uri(builder._path).display if builder._path else "new table"
)
class TableBuilder:
    """Builder of a table without rows; returned by `LanceTable.create` and similar methods.

    Parameters
    ----------
    make : callable
        Returns the table that `execute` returns: from the session, the path and the options.
    spark : SparkSession
    mode : str
    """

    def __init__(
        self,
        make: Callable[[SparkSession, str, Mapping[str, str]], Any],
        spark: SparkSession,
        mode: Mode,
    ) -> None:
        self._make = make
        self._spark = spark
        self._mode = mode
        self._path: str | None = None
        self._fields: list[StructField] = []
        self._metadata: dict[str, dict[str, str]] = {}
        self._properties: dict[str, str] = {}
        self._options: dict[str, str] = {}

    def location(self, location: str) -> Self:
        """Set the path of the table: a folder, or a URI."""
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
        vector_dimension: int | None = None,
        blob: bool = False,
        large: bool = False,
        compression: str | None = None,
        compression_level: int | None = None,
        primary_key: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> Self:
        """Add a column.

        Parameters
        ----------
        colName : str
        dataType : str or DataType
        nullable : bool
        comment : str, optional
            Stored in the metadata of the column.
        vector_dimension : int, optional
            Store an array as a vector with this number of items.
        blob : bool
            Store binary values as blobs, apart from the rows.
        large : bool
            Store strings and binary values with 64-bit offsets.
        compression : str, optional
            For example ``zstd``.
        compression_level : int, optional
        primary_key : bool
            Whether the column belongs to the primary key, which needs ``nullable=False``. Writers
            do not check that keys are unique.
        metadata : mapping of str to str, optional
            Other metadata of the column.

        Raises
        ------
        InvalidInputError
            The text is not a type.
        UnsupportedError
            `generatedAlwaysAs` is given.
        """
        if generatedAlwaysAs is not None:
            raise UnsupportedError(
                f"column {colName!r}: Lance has no generated columns; compute its values once, by "
                "add_columns"
            )
        dtype = spark_type(dataType, colName)
        encoding: dict[str, str] = {}
        if vector_dimension is not None:
            encoding[VECTOR_SIZE] = str(vector_dimension)
        if blob:
            encoding["lance-encoding:blob"] = "true"
        if large:
            text = dtype.simpleString().replace("array<", "")
            encoding[LARGE_BINARY if text.startswith("binary") else LARGE_STRING] = "true"
        if compression is not None:
            encoding["lance-encoding:compression"] = compression
        if compression_level is not None:
            encoding["lance-encoding:compression-level"] = str(compression_level)
        stored = dict(metadata or {})
        if comment is not None:
            stored[COMMENT] = comment
        if primary_key:
            stored[PRIMARY_KEY] = "true"
        self._fields.append(StructField(colName, dtype, nullable, encoding))
        self._metadata[colName] = stored
        return self

    def addColumns(self, cols: StructType | list[StructField]) -> Self:  # noqa: N802 - as DeltaTableBuilder has it
        """Add the columns of a Spark schema."""
        self._fields.extend(cols)
        return self

    def property(self, key: str, value: Any) -> Self:
        """Set a property of the table.

        ``enable_stable_row_ids`` and ``data_storage_version`` are options of the write. Properties
        that start with ``lance.`` become the configuration of the table, all others its metadata.
        """
        self._properties[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def comment(self, comment: str) -> Self:
        """Set the property ``comment``."""
        return self.property(COMMENT, comment)

    def execute(self) -> Any:
        """Create or replace the table.

        Returns
        -------
        LanceTable

        Raises
        ------
        InvalidInputError
            The location is missing, or the table has no column.
        TableExistsError
            The table exists already, and the builder is one of `LanceTable.create`.
        TableNotFoundError
            The table is not found, and the builder is one of `LanceTable.replace`.
        InvalidOptionError, SchemaMismatchError, UnsupportedTypeError, StorageError
        """
        from lance_spark.spark.write.new_table import NewTable, begin_new_table
        from lance_spark.spark.write.planning import existing_schema

        if self._path is None:
            raise InvalidInputError("the table has no location; set it by .location(path)")
        write_options: dict[str, str] = {}
        stored: dict[str, str] = {}
        for key, value in self._properties.items():
            if key.lower() in _WRITE_PROPERTIES:
                write_options[key.lower()] = value
            else:
                stored[key] = value
        options = WriteOptions.parse({**self._options, **write_options, "path": self._path})
        replaces = self._mode in ("replace", "createOrReplace")
        exists = existing_schema(options) is not None
        if exists and self._mode == "createIfNotExists":
            return self._table(self._path)
        if self._mode == "replace" and not exists:
            # Raises an error that says what the path holds.
            self._table(self._path).dataset()
        if not self._fields:
            raise InvalidInputError(
                f"{self._path}: a table must have at least one column; add it by .addColumn(...)"
            )
        try:
            new_table = NewTable(not replaces, stored)
            begin_new_table(options, self._schema(options), new_table).commit([])
        except TableExistsError:
            if self._mode != "createIfNotExists":
                raise
        return self._table(self._path)

    def _schema(self, options: WriteOptions) -> pa.Schema:
        schema = to_arrow_schema(
            StructType(self._fields),
            options.column_metadata,
            large_var_types=options.large_var_types,
        )
        return pa.schema(
            [
                field.with_metadata({**(field.metadata or {}), **self._metadata[field.name]})
                if self._metadata.get(field.name)
                else field
                for field in schema
            ],
            schema.metadata,
        )

    def _table(self, path: str) -> Any:
        options = {
            name: value
            for name, value in self._options.items()
            if name.lower().startswith("storage") or name.lower() in _TABLE_OPTIONS
        }
        return self._make(self._spark, path, options)
