"""Differences between the versions of Spark that the tests run on."""

from __future__ import annotations

import pyarrow as pa
import pyspark
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
HAS_TIME = SPARK >= (4, 1)


def demanded_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that pyspark itself gives batches of a read."""
    if SPARK >= (4, 2):
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema, timestamp_utc=True)
