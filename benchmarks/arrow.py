"""Conversions between the vectors of Lance tables and the lists of Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

DIMENSIONS = 256


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a Lance table as Spark needs it: vectors become lists."""
    fields = []
    for field in schema:
        dtype = field.type
        if pa.types.is_fixed_size_list(dtype):
            dtype = pa.list_(pa.field("element", dtype.value_type, nullable=True))
        fields.append(pa.field(field.name, dtype, field.nullable))
    return pa.schema(fields)


def spark_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with lists in place of vectors. The values are not copied."""
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if pa.types.is_fixed_size_list(column.type):
            size = column.type.list_size
            offsets = pa.array(np.arange(len(column) + 1, dtype=np.int32) * size)
            columns.append(pa.ListArray.from_arrays(offsets, column.flatten(), type=field.type))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def lance_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a Lance table for the rows of Spark: lists become vectors."""
    fields = []
    for field in schema:
        dtype = field.type
        if pa.types.is_list(dtype):
            dtype = pa.list_(dtype.value_type, DIMENSIONS)
        fields.append(pa.field(field.name, dtype))
    return pa.schema(fields)
