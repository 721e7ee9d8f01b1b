"""Packed arrays of numbers: tasks return the bytes of their items.

The optimizer rule of Spark requests them for queries that read such columns, because Spark reads
the items of an Arrow array one by one, but copies a binary value at once. The rule then makes an
array of the bytes (`java/Packing.java`). A packed column is two columns: a binary column with its
name, and a column after all others that has the array itself where an item is null:

| column | no item of the batch is null | otherwise |
| --- | --- | --- |
| its name | bytes of the items, little-endian; null for a null array | null |
| `__lance_items_0`, `__lance_items_1`, ... | null | the array |

The bytes are the buffers of Arrow; only offsets are created.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark

from lance_spark.spark.pushdown.request import refused, replace_fields
from lance_spark.spark.types.arrow_buffers import OffsetsTooLarge, list_window, validity

#: Prefix of the names of the added columns.
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


def pack(schema: spark.StructType, names: Sequence[str]) -> spark.StructType:
    """Replace columns of a schema by packed columns, in place, and return the original schema.

    Raises
    ------
    UnsupportedError
        A column is not an array of numbers.
    """
    fields = list(schema.fields)
    items: list[spark.StructField] = []
    for name in names:
        position = schema.names.index(name) if name in schema.names else -1
        if position < 0 or not _is_packable(fields[position].dataType):
            raise refused("a packed column is not an array of numbers", name)
        items.append(spark.StructField(f"{ITEMS}{len(items)}", fields[position].dataType))
        fields[position] = spark.StructField(
            name, spark.BinaryType(), True, fields[position].metadata
        )
    plain = spark.StructType(list(schema.fields))
    replace_fields(schema, [*fields, *items])
    return plain


def packed(batches: Iterator[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches with packed columns, in pieces if a batch is too large for 32-bit offsets.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
    names : sequence of str
        Names of the columns to pack, which are lists of numbers.
    """
    for batch in batches:
        yield from _pieces(batch, names)


def _pieces(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    arrays, labels = list(batch.columns), list(batch.schema.names)
    try:
        for number, name in enumerate(names):
            position = labels.index(name)
            array = arrays[position]
            arrays[position] = _bytes_of(array)
            arrays.append(
                pa.nulls(len(array), array.type) if arrays[position] is not None else array
            )
            if arrays[position] is None:
                arrays[position] = pa.nulls(len(array), pa.binary())
            labels.append(f"{ITEMS}{number}")
    except OffsetsTooLarge:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half), names)
        yield from _pieces(batch.slice(half), names)
        return
    yield pa.RecordBatch.from_arrays(arrays, names=labels)


def _bytes_of(array: pa.Array) -> pa.Array | None:
    """Return the bytes of each list of an array; None if any item is null."""
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
