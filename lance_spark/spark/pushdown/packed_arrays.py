"""Packed arrays: arrays of numbers that travel to Spark as the bytes of their items.

Spark reads the items of an array from Arrow's vectors one by one, but copies a binary value at
once. The rule of Spark's optimizer asks for bytes and makes arrays of them (`Packing.java`). A
packed column becomes two columns, of which the second follows after all others:

| column | in batches without null items | in other batches |
| --- | --- | --- |
| the column's name | the items' bytes, little-endian; null for a null array | null |
| `__lance_items_0`, `__lance_items_1`, ... | null | the array |

The bytes are the bytes of Arrow's buffers. Only offsets are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark

from lance_spark.spark.pushdown.request import refused, set_fields
from lance_spark.spark.types.arrow_buffers import OffsetsTooLarge, list_window, validity

#: Prefix of the names of the columns that follow after all others.
ITEMS = "__lance_items_"

_INT32_MAX = 2**31 - 1
_NUMBERS = (
    spark.ByteType,
    spark.ShortType,
    spark.IntegerType,
    spark.LongType,
    spark.FloatType,
    spark.DoubleType,
)


def pack(schema: spark.StructType, names: Sequence[str]) -> None:
    """Pack columns of a schema in place.

    Raises UnsupportedError: a named column is not an array of numbers.
    """
    fields = list(schema.fields)
    items: list[spark.StructField] = []
    for name in names:
        index = schema.names.index(name) if name in schema.names else -1
        if index < 0 or not _is_packable(fields[index].dataType):
            raise refused("a packed column is not an array of numbers", name)
        items.append(spark.StructField(f"{ITEMS}{len(items)}", fields[index].dataType))
        fields[index] = spark.StructField(name, spark.BinaryType(), True, fields[index].metadata)
    set_fields(schema, [*fields, *items])


def packed(batches: Iterator[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches with some of their columns packed.

    A batch whose bytes are more than 32-bit offsets can address is split.

    - `names`: Names of columns that are lists of numbers.
    """
    for batch in batches:
        yield from _packed(batch, names)


def _packed(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    columns, fields = list(batch.columns), list(batch.schema)
    try:
        for number, name in enumerate(names):
            index = batch.schema.get_field_index(name)
            array = columns[index]
            packed_array = _bytes_of(array)
            if packed_array is None:
                columns[index] = pa.nulls(len(array), pa.binary())
                columns.append(array)
            else:
                columns[index] = packed_array
                columns.append(pa.nulls(len(array), array.type))
            fields[index] = pa.field(name, pa.binary())
            fields.append(pa.field(f"{ITEMS}{number}", array.type))
    except OffsetsTooLarge:
        half = batch.num_rows // 2
        yield from _packed(batch.slice(0, half), names)
        yield from _packed(batch.slice(half), names)
        return
    # Spark refuses columns that may be null where the schema says that they are not.
    yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _bytes_of(array: pa.Array) -> pa.Array | None:
    """Return the bytes of each list; None if an item of any list is null."""
    offsets, first, last = list_window(array)
    items = array.values.slice(first, last - first)
    if items.null_count:
        return None
    width = items.type.bit_width // 8
    if (last - first) * width > _INT32_MAX:
        if len(array) > 1:
            raise OffsetsTooLarge
        return None
    data = items.buffers()[1]
    if data is not None:
        data = data.slice(items.offset * width, len(items) * width)
    ends = pa.py_buffer(np.frombuffer(offsets, np.int32, len(array) + 1) * np.int32(width))
    return pa.Array.from_buffers(
        pa.binary(), len(array), [validity(array), ends, data], array.null_count
    )


def _is_packable(data_type: spark.DataType) -> bool:
    return isinstance(data_type, spark.ArrayType) and isinstance(data_type.elementType, _NUMBERS)
