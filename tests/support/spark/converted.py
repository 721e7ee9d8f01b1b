"""Arrow tables as Spark gets them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from lance_spark.errors import LanceError
from lance_spark.spark.types.convert import BatchConverter
from lance_spark.spark.types.mapping import batch_schema, to_spark_schema


def converted(table: pa.Table) -> tuple[StructType, pa.RecordBatch] | None:
    """Return a table as Spark gets it; None if Spark has no type for a column."""
    try:
        schema = to_spark_schema(table.schema)
        convert = BatchConverter(table.schema, batch_schema(schema), reading=True)
        batches = [part for batch in table.combine_chunks().to_batches() for part in convert(batch)]
    except LanceError:
        return None
    if not batches:
        return schema, pa.RecordBatch.from_pylist([], schema=batch_schema(schema))
    (batch,) = batches
    return schema, batch
