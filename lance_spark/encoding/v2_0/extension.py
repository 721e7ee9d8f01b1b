"""Extension types around what is stored: decoders know storage types only."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.meta import FieldReader
from lance_spark.encoding.rows import Rows
from lance_spark.storage.source import ReadPlan


class Wrapped:
    """Gives what another reader reads its extension types back."""

    def __init__(self, reader: FieldReader, dtype: pa.DataType) -> None:
        self._reader = reader
        self._dtype = dtype

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        array = yield from self._reader.read(rows)
        return wrap(array, self._dtype)


def storage_type(dtype: pa.DataType) -> pa.DataType:
    """Return a leaf's type without extension types, at any depth."""
    while isinstance(dtype, pa.BaseExtensionType):
        dtype = dtype.storage_type
    if pat.is_fixed_size_list(dtype):
        item = dtype.value_field
        inner = storage_type(item.type)
        return dtype if inner == item.type else pa.list_(item.with_type(inner), dtype.list_size)
    if pat.is_struct(dtype):
        fields = [dtype.field(i) for i in range(dtype.num_fields)]
        return pa.struct([field.with_type(storage_type(field.type)) for field in fields])
    return dtype


def wrap(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return an array of a storage type as one of the type it is the storage of."""
    if array.type == dtype:
        return array
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, wrap(array, dtype.storage_type))
    if pat.is_fixed_size_list(dtype):
        children = [wrap(array.values, dtype.value_type)]
    elif pat.is_struct(dtype):
        children = [wrap(array.field(i), dtype.field(i).type) for i in range(dtype.num_fields)]
    else:
        return array
    return pa.Array.from_buffers(
        dtype, len(array), array.buffers()[:1], offset=array.offset, children=children
    )
