"""Columns of tables as Spark's catalog has them: with default values.

| metadata of a Lance column | metadata of Spark's column |
| --- | --- |
| `spark.sql.default`: SQL of the value of rows that an INSERT gives none | `CURRENT_DEFAULT` |

Spark's `EXISTS_DEFAULT`, the value of rows that are older than the column, is not stored: ADD
COLUMN writes it to all rows. A read by path has the metadata of the Lance column, which Spark does
not take for a default. All other metadata is the same in all schemas of Spark
(`lance_spark.spark.types.field_metadata`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from lance_spark.spark.types.field_metadata import CURRENT_DEFAULT, DEFAULT, EXISTS_DEFAULT
from lance_spark.spark.types.mapping import check_names, to_arrow_schema, to_spark_schema


def catalog_schema(schema: pa.Schema) -> StructType:
    """Return Spark's columns of a read by name, with defaults."""
    return _with_defaults(to_spark_schema(schema))


def _with_defaults(columns: StructType) -> StructType:
    fields = []
    for column in columns:
        metadata = dict(column.metadata)
        default = metadata.pop(DEFAULT, None)
        dtype = column.dataType
        if isinstance(dtype, StructType):
            dtype = _with_defaults(dtype)
        described = StructField(column.name, dtype, column.nullable, metadata)
        fields.append(described if default is None else with_default(described, default))
    return StructType(fields)


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
    **options: Any,
) -> pa.Schema:
    """Return the columns of a new table that a statement creates.

    - `column_metadata`, `options`: As in `to_arrow_schema`.
    """
    check_names(schema.names, "the statement")
    return to_arrow_schema(schema, column_metadata, **options)
