"""Columns of tables as Spark's catalog has them: with default values.

| metadata of a Lance column | metadata of Spark's column |
| --- | --- |
| `spark.sql.default`: SQL of the value of rows that an INSERT gives none | `CURRENT_DEFAULT` |

Spark's `EXISTS_DEFAULT`, the value of rows that are older than the column, is not stored: ADD
COLUMN writes it to all rows. Comments and other metadata are in all schemas of Spark
(`lance_spark.spark.types.field_metadata`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from lance_spark.spark.types.field_metadata import CURRENT_DEFAULT, DEFAULT, EXISTS_DEFAULT
from lance_spark.spark.types.mapping import check_names, to_arrow_schema, to_declared_schema


def catalog_schema(schema: pa.Schema, table: pa.Schema) -> StructType:
    """Return Spark's columns of a read, with defaults.

    Parameters
    ----------
    schema : pyarrow.Schema
        Columns of the read.
    table : pyarrow.Schema
        Columns of the table, whose metadata has the defaults.
    """
    return _described(to_declared_schema(schema), list(table))


def _described(columns: StructType, stored: Iterable[pa.Field]) -> StructType:
    by_name = {field.name: field for field in stored}
    fields = []
    for column in columns:
        of_table = by_name.get(column.name)
        fields.append(column if of_table is None else _with_defaults(column, of_table))
    return StructType(fields)


def _with_defaults(column: StructField, of_table: pa.Field) -> StructField:
    """Return a column with the defaults of the table, its own and those of its fields."""
    dtype = column.dataType
    if isinstance(dtype, StructType) and pa.types.is_struct(of_table.type):
        dtype = _described(dtype, of_table.type)
    described = StructField(column.name, dtype, column.nullable, column.metadata)
    default = (of_table.metadata or {}).get(DEFAULT.encode())
    return (
        described if default is None else with_default(described, default.decode(errors="replace"))
    )


def with_default(column: StructField, default: str) -> StructField:
    """Return a column of Spark with a default, which is a text in SQL."""
    # Spark requires both. It uses the second for rows of files that it reads itself.
    defaults = {CURRENT_DEFAULT: default, EXISTS_DEFAULT: default}
    return StructField(
        column.name, column.dataType, column.nullable, {**column.metadata, **defaults}
    )


def table_schema(
    schema: StructType,
    column_metadata: Mapping[str, Mapping[str, str]] | None = None,
    *,
    defaults: bool = True,
    **options: Any,
) -> pa.Schema:
    """Return the columns of a new table, with the metadata of Spark's columns.

    Parameters
    ----------
    column_metadata, options
        As in `to_arrow_schema`.
    defaults : bool
        Whether defaults are stored. False for columns of a query: they have the defaults of the
        tables that the query reads.
    """
    check_names(schema.names, "the statement")
    arrow = to_arrow_schema(schema, column_metadata, **options)
    if not defaults:
        return arrow
    fields = [_stored(field, column) for field, column in zip(arrow, schema, strict=True)]
    return pa.schema(fields, arrow.metadata)


def _stored(field: pa.Field, column: StructField) -> pa.Field:
    if isinstance(column.dataType, StructType) and pa.types.is_struct(field.type):
        children = zip(field.type, column.dataType, strict=True)
        field = field.with_type(pa.struct([_stored(*pair) for pair in children]))
    default = (column.metadata or {}).get(CURRENT_DEFAULT)
    if default is None:
        return field
    return field.with_metadata({**(field.metadata or {}), DEFAULT: str(default)})
