"""Columns of tables as Spark's catalog has them: with comments and default values.

| metadata of a Lance column | metadata of Spark's column |
| --- | --- |
| `comment` | `comment` |
| `spark.sql.default`: SQL of the value of rows that an INSERT gives none | `CURRENT_DEFAULT` |

Spark's `EXISTS_DEFAULT`, the value of rows that are older than the column, is not stored: ADD
COLUMN writes it to all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from lance_spark.spark.types.mapping import check_names, to_arrow_schema, to_spark_schema

COMMENT = b"comment"
DEFAULT = b"spark.sql.default"
_CURRENT_DEFAULT, _EXISTS_DEFAULT = "CURRENT_DEFAULT", "EXISTS_DEFAULT"


def catalog_schema(schema: pa.Schema, table: pa.Schema) -> StructType:
    """Return Spark's columns of a read, with comments and defaults.

    Parameters
    ----------
    schema : pyarrow.Schema
        Columns of the read.
    table : pyarrow.Schema
        Columns of the table, whose metadata has the comments and defaults.
    """
    return _described(to_spark_schema(schema), list(table))


def _described(columns: StructType, stored: Iterable[pa.Field]) -> StructType:
    by_name = {field.name: field for field in stored}
    fields = []
    for column in columns:
        of_table = by_name.get(column.name)
        if of_table is None:
            fields.append(column)
            continue
        metadata = of_table.metadata or {}
        described = StructField(
            column.name, column.dataType, column.nullable, dict(column.metadata)
        )
        if isinstance(column.dataType, StructType) and pa.types.is_struct(of_table.type):
            described.dataType = _described(column.dataType, of_table.type)
        if COMMENT in metadata:
            described.metadata["comment"] = metadata[COMMENT].decode(errors="replace")
        if DEFAULT in metadata:
            described = with_default(described, metadata[DEFAULT].decode(errors="replace"))
        fields.append(described)
    return StructType(fields)


def with_default(column: StructField, default: str) -> StructField:
    """Return a column of Spark with a default, which is a text in SQL."""
    # Spark requires both. It uses the second for rows of files that it reads itself.
    defaults = {_CURRENT_DEFAULT: default, _EXISTS_DEFAULT: default}
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
    """Return the columns of a new table, with the comments and defaults of Spark's columns.

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
    return pa.schema(
        _stored(field, column, defaults) for field, column in zip(arrow, schema, strict=True)
    )


def _stored(field: pa.Field, column: StructField, defaults: bool) -> pa.Field:
    if isinstance(column.dataType, StructType) and pa.types.is_struct(field.type):
        children = zip(field.type, column.dataType, strict=True)
        field = field.with_type(pa.struct([_stored(*pair, defaults) for pair in children]))
    metadata: dict[bytes, bytes] = dict(field.metadata or {})
    comment, default = column.metadata.get("comment"), column.metadata.get(_CURRENT_DEFAULT)
    if comment is not None:
        metadata[COMMENT] = str(comment).encode()
    if default is not None and defaults:
        metadata[DEFAULT] = str(default).encode()
    return field.with_metadata(metadata) if metadata else field
