"""Arrays of numbers as the bytes of their items: what the rule of Spark's optimizer asks for where
a query reads such columns.

Spark takes the items of an array out of Arrow's vectors one by one. A binary value it copies at
once, and makes an array of its bytes by a function of its own (`rule/Packing.java`). A packed
column is the binary column of its name and one more, behind all others, that has the array itself
where an item is null:

| column | where no item of a batch is null | elsewhere |
| --- | --- | --- |
| its own name | the items' bytes, little-endian; null where the array is | null |
| `__lance_items_0`, `__lance_items_1`, ... | null | the array |

The bytes are those of Arrow's buffers: only offsets are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark

from lance_spark.spark.pushdown.request import become, refused
from lance_spark.spark.types.arrow_buffers import OffsetsTooLarge, list_window, validity

#: What the columns behind all others are called.
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
    """Give a schema, in place, the columns that a read gives if some of them are packed, and return
    what it was.

    Raises
    ------
    UnsupportedError
        One of the names is of no array of numbers.
    """
    fields = list(schema.fields)
    items: list[spark.StructField] = []
    for name in names:
        position = schema.names.index(name) if name in schema.names else -1
        if position < 0 or not _is_packable(fields[position].dataType):
            raise refused("a packed column is no array of numbers", name)
        items.append(spark.StructField(f"{ITEMS}{len(items)}", fields[position].dataType))
        fields[position] = spark.StructField(
            name, spark.BinaryType(), True, fields[position].metadata
        )
    plain = spark.StructType(list(schema.fields))
    become(schema, [*fields, *items])
    return plain


def packed(batches: Iterator[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches with some of their columns packed: each once, or in pieces where 32-bit offsets
    cannot reach over its bytes.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
    names : sequence of str
        Of columns that are lists of numbers.
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
    """Return the bytes of each list of an array, None if an item of any is null."""
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
