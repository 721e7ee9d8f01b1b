"""Vectors to and from what Spark carries: fixed-size lists become lists and lists become them
again.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

VECTOR = 256


def as_spark(schema: pa.Schema) -> pa.Schema:
    """The schema that Spark expects for a table of the benchmarks."""
    fields = []
    for field in schema:
        kind = field.type
        if pa.types.is_fixed_size_list(kind):
            kind = pa.list_(pa.field("element", kind.value_type, nullable=True))
        fields.append(pa.field(field.name, kind, field.nullable))
    return pa.schema(fields)


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows with lists in place of vectors, without copying them."""
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        if pa.types.is_fixed_size_list(column.type):
            size = column.type.list_size
            offsets = pa.array(np.arange(len(column) + 1, dtype=np.int32) * size)
            columns.append(pa.ListArray.from_arrays(offsets, column.flatten(), type=field.type))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def from_spark(schema: pa.Schema) -> pa.Schema:
    """The schema of the table again: lists of floats are vectors here."""
    fields = []
    for field in schema:
        kind = field.type
        if pa.types.is_list(kind):
            kind = pa.list_(kind.value_type, VECTOR)
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)
