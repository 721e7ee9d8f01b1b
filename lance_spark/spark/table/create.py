"""Builder of a table without rows: columns and properties, one commit, no Spark job.

A table with a name is made by the statement of SQL, so that the catalog of the name makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    UserDefinedType,
)

from lance_spark.dataset.decorators import prefixes_errors_by
from lance_spark.errors import (
    ArgumentTypeError,
    InvalidInputError,
    TableExistsError,
    UnsupportedError,
    UnsupportedTypeError,
)
from lance_spark.file.schema.field import PRIMARY_KEY
from lance_spark.spark.options.declared import COLUMN_KEYS
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.quoting import quoted, string_literal
from lance_spark.spark.table.base import option_text
from lance_spark.spark.types.field_metadata import COMMENT, LARGE_BINARY, LARGE_STRING, VECTOR_SIZE
from lance_spark.spark.types.mapping import to_arrow_schema
from lance_spark.storage.uri import parse_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lance_spark.spark.table.lance_table import LanceTable

Mode = Literal["create", "createIfNotExists", "replace", "createOrReplace"]
#: Options that the returned table keeps, beside the options of the store.
_TABLE_OPTIONS = ("branch", "base_store_params", "target_bases", "target_all_bases")
#: Properties that are options of the write, and are not stored in the table.
_WRITE_PROPERTIES = ("enable_stable_row_ids", "data_storage_version")
#: The property that names the columns of partitions.
_PARTITION_BY = "partitionBy"
#: The statement of each mode.
_STATEMENTS: Mapping[Mode, str] = {
    "create": "CREATE TABLE",
    "createIfNotExists": "CREATE TABLE IF NOT EXISTS",
    "replace": "REPLACE TABLE",
    "createOrReplace": "CREATE OR REPLACE TABLE",
}
_NO_COLUMN = "a table must have at least one column; add it by .addColumn(...)"
#: Options of columns, by the key of the metadata of a column that each sets.
_COLUMN_OPTIONS = {metadata: option for option, metadata in COLUMN_KEYS.items()}


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
    lambda builder: (
        builder._name or (parse_uri(builder._path).display if builder._path else "new table")
    )
)
class TableBuilder:
    """Builder of a table without rows; returned by `LanceTable.create` and similar methods.

    Parameters
    ----------
    table_class : type
        Class of the table that `execute` returns.
    spark : SparkSession
    mode : str
    """

    def __init__(
        self,
        table_class: type[LanceTable],
        spark: SparkSession,
        mode: Mode,
    ) -> None:
        self._table_class = table_class
        self._spark = spark
        self._mode = mode
        self._name: str | None = None
        self._path: str | None = None
        self._fields: list[StructField] = []
        self._metadata: dict[str, dict[str, str]] = {}
        self._properties: dict[str, str] = {}
        self._options: dict[str, str] = {}

    def tableName(self, identifier: str) -> Self:  # noqa: N802 - as DeltaTableBuilder has it
        """Set the name of the table in SQL, such as ``lance.db.t``.

        A session that `enable` has extended has such names. With a location too, the name is that
        of an external table.
        """
        self._name = identifier
        return self

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
        generatedByDefaultAs: Any = None,  # noqa: N803 - as DeltaTableBuilder has it
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
            `generatedAlwaysAs` or `generatedByDefaultAs` is given.
        """
        for generated in (generatedAlwaysAs, generatedByDefaultAs):
            _refuse_generated(colName, generated)
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

    def partitionedBy(self, *cols: str | list[str] | tuple[str, ...]) -> Self:  # noqa: N802 - as DeltaTableBuilder has it
        """Set the property ``partitionBy``: the columns of partitions that overwrites replace.

        Lance tables have no folders of partitions. Scans skip fragments by the values that these
        have, and a dynamic overwrite replaces the rows with the same values in the columns.
        """
        names = _names("partitionedBy", cols)
        return self.property(_PARTITION_BY, ", ".join(quoted(name) for name in names))

    def clusterBy(self, *cols: str | list[str] | tuple[str, ...]) -> Self:  # noqa: N802 - as DeltaTableBuilder has it
        """Refuse columns of clusters.

        Raises
        ------
        UnsupportedError
        """
        names = _names("clusterBy", cols)
        raise UnsupportedError(
            f"clusterBy({', '.join(map(repr, names))}): Lance tables keep no columns of clusters; "
            f"leave it out, and sort the rows after writes by optimize(z_order_by={names})"
        )

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
            Name and location are missing, or the table has no column.
        TableExistsError
            The table exists already, and the builder is one of `LanceTable.create`.
        TableNotFoundError
            The table is not found, and the builder is one of `LanceTable.replace`.
        InvalidOptionError, SchemaMismatchError, UnsupportedTypeError, StorageError
        PySparkException
            The statement for a table with a name failed.
        """
        from lance_spark.spark.catalog.properties import check_partition_columns
        from lance_spark.spark.write.new_table import NewTable, begin_new_table
        from lance_spark.spark.write.planning import existing_schema

        if self._name is not None:
            return self._named_table(self._name)
        if self._path is None:
            raise InvalidInputError(
                "the table has no location and no name; set one by .location(path) or "
                ".tableName(name)"
            )
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
            raise InvalidInputError(_NO_COLUMN)
        schema = self._schema(options)
        check_partition_columns(stored, schema, parse_uri(self._path).display)
        try:
            new_table = NewTable(not replaces, stored)
            begin_new_table(options, schema, new_table).commit([])
        except TableExistsError:
            if self._mode != "createIfNotExists":
                raise
        return self._table(self._path)

    def _named_table(self, name: str) -> Any:
        if not self._fields:
            raise InvalidInputError(_NO_COLUMN)
        if self._options:
            raise InvalidInputError(
                f"option {next(iter(self._options))}: a table with a name takes its options from "
                "the settings of its catalog; leave out the name, or the option"
            )
        self._spark.sql(self._statement(name))
        return self._table_class.forName(self._spark, name)

    def _statement(self, name: str) -> str:
        """Return the statement that makes a table with a name."""
        properties = dict(self._properties)
        comment = properties.pop(COMMENT, None)
        columns = []
        for field in self._fields:
            stored = {**field.metadata, **self._metadata.get(field.name, {})}
            described = stored.pop(COMMENT, None)
            for key, value in stored.items():
                if key not in _COLUMN_OPTIONS:
                    raise UnsupportedError(
                        f"column {field.name!r}: metadata {key!r} cannot be part of the statement "
                        "that makes a table with a name; set it afterwards, or give the table a "
                        "location alone"
                    )
                option = _COLUMN_OPTIONS[key]
                given = "blob" if option == "lance.encoding" else str(value)
                properties[f"{field.name}.{option}"] = given
            columns.append(_ddl_of(field, " ", described, self._literal))
        parts = [f"{_STATEMENTS[self._mode]} {name} ({', '.join(columns)}) USING lance"]
        if self._path is not None:
            parts.append(f"LOCATION {self._literal(self._path)}")
        if comment is not None:
            parts.append(f"COMMENT {self._literal(comment)}")
        if properties:
            pairs = (
                f"{self._literal(key)} = {self._literal(value)}"
                for key, value in properties.items()
            )
            parts.append(f"TBLPROPERTIES ({', '.join(pairs)})")
        return " ".join(parts)

    def _literal(self, text: str) -> str:
        is_raw = self._spark.conf.get("spark.sql.parser.escapedStringLiterals", "false") == "true"
        return string_literal(text, is_raw=is_raw)

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
        return self._table_class(self._spark, path, options)


def _names(method: str, cols: tuple[Any, ...]) -> list[str]:
    """Return names of columns that a call gives one by one, or as one list."""
    names = list(cols[0]) if len(cols) == 1 and isinstance(cols[0], list | tuple) else list(cols)
    for name in names:
        if not isinstance(name, str):
            raise ArgumentTypeError(
                f"{method}: cols must be names of columns, not {type(name).__name__}"
            )
    return names


def _refuse_generated(column: str, generated: Any) -> None:
    if generated is None:
        return
    if not isinstance(generated, str) and not hasattr(generated, "step"):
        raise ArgumentTypeError(
            f"column {column!r}: the expression of a generated column must be a string, not "
            f"{type(generated).__name__}"
        )
    raise UnsupportedError(
        f"column {column!r}: Lance has no generated columns and no identity columns; compute its "
        "values once, by add_columns"
    )


def _ddl_of(
    field: StructField, separator: str, comment: str | None, literal: Callable[[str], str]
) -> str:
    """Return a column, or a field of a struct, as a statement declares it."""
    parts = [f"{quoted(field.name)}{separator}{_ddl_type(field.dataType, field.name, literal)}"]
    if not field.nullable:
        parts.append("NOT NULL")
    if comment is not None:
        parts.append(f"COMMENT {literal(comment)}")
    return " ".join(parts)


def _ddl_type(dtype: DataType, column: str, literal: Callable[[str], str]) -> str:
    if isinstance(dtype, UserDefinedType):
        raise UnsupportedTypeError(
            f"column {column!r}: SQL has no name for the type {dtype.simpleString()}, so a table "
            "with a name cannot be declared with it; give the table a location alone, or create "
            "it by saveAsTable"
        )
    if isinstance(dtype, ArrayType):
        return f"array<{_ddl_type(dtype.elementType, column, literal)}>"
    if isinstance(dtype, MapType):
        key, value = (_ddl_type(part, column, literal) for part in (dtype.keyType, dtype.valueType))
        return f"map<{key}, {value}>"
    if isinstance(dtype, StructType):
        children = (
            _ddl_of(child, ": ", child.metadata.get(COMMENT), literal) for child in dtype.fields
        )
        return f"struct<{', '.join(children)}>"
    return dtype.simpleString()
