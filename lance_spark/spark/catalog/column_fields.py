"""Columns of tables as Spark's catalog has them: with comments and default values.

| metadata of a Lance column | metadata of Spark's column |
| --- | --- |
| `comment` | `comment` |
| `spark.sql.default`: SQL of the value of rows that an INSERT gives none | `CURRENT_DEFAULT` |

Spark's `EXISTS_DEFAULT`, the value of rows that are older than the column, is not stored: ADD
COLUMN writes it to all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from lance_spark.spark.types.mapping import to_arrow_schema, to_spark_schema

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
    stored = {field.name: field.metadata or {} for field in table}
    fields = []
    for field in to_spark_schema(schema):
        metadata = dict(field.metadata)
        of_table = stored.get(field.name, {})
        if COMMENT in of_table:
            metadata["comment"] = of_table[COMMENT].decode(errors="replace")
        if DEFAULT in of_table:
            default = of_table[DEFAULT].decode(errors="replace")
            # Spark asks for both; it uses the second for files, which Lance's scans never are.
            metadata[_CURRENT_DEFAULT] = metadata[_EXISTS_DEFAULT] = default
        fields.append(StructField(field.name, field.dataType, field.nullable, metadata))
    return StructType(fields)


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
        Whether defaults are stored. They are not if a query made the columns: its columns have the
        defaults of the tables that it reads.
    """
    arrow = to_arrow_schema(schema, column_metadata, **options)
    return pa.schema(
        field.with_metadata(metadata) if (metadata := _metadata(field, column, defaults)) else field
        for field, column in zip(arrow, schema, strict=True)
    )


def _metadata(field: pa.Field, column: StructField, defaults: bool) -> dict[bytes, bytes]:
    metadata: dict[bytes, bytes] = dict(field.metadata or {})
    comment, default = column.metadata.get("comment"), column.metadata.get(_CURRENT_DEFAULT)
    if comment is not None:
        metadata[COMMENT] = str(comment).encode()
    if default is not None and defaults:
        metadata[DEFAULT] = str(default).encode()
    return metadata
