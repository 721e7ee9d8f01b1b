"""Extension types around what is stored: decoders know storage types only."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.meta import FieldReader
from lance_spark.encoding.rows import Rows
from lance_spark.storage.source import ReadPlan


class Wrapped:
    """Gives what another reader reads its extension types back."""

    def __init__(self, reader: FieldReader, kind: pa.DataType) -> None:
        self._reader = reader
        self._kind = kind

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        array = yield from self._reader.read(rows)
        return wrap(array, self._kind)


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return a leaf's type without extension types, at any depth."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pat.is_fixed_size_list(kind):
        item = kind.value_field
        inner = storage_type(item.type)
        return kind if inner == item.type else pa.list_(item.with_type(inner), kind.list_size)
    if pat.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([field.with_type(storage_type(field.type)) for field in fields])
    return kind


def wrap(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array of a storage type as one of the type it is the storage of."""
    if array.type == kind:
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, wrap(array, kind.storage_type))
    if pat.is_fixed_size_list(kind):
        children = [wrap(array.values, kind.value_type)]
    elif pat.is_struct(kind):
        children = [wrap(array.field(i), kind.field(i).type) for i in range(kind.num_fields)]
    else:
        return array
    return pa.Array.from_buffers(
        kind, len(array), array.buffers()[:1], offset=array.offset, children=children
    )
