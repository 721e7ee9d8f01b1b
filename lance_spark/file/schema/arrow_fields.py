"""The parts of an Arrow field that a Lance schema stores: its type string, its children, and its
metadata.

Extension types are stored as their storage types; name and serialised parameters become field
metadata, as in Arrow's own exchange formats. pyarrow does not show the parameters of built-in
extension types, so they are read from the C data interface, where the metadata of a field is::

    int32 pairs | per pair: int32 length, key, int32 length, value

Specification: format/table/schema; Arrow C data interface.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.field_metadata import FIELD_ID
from lance_spark.encoding.v2_1.leaf_columns import child_fields
from lance_spark.errors import UnsupportedTypeError
from lance_spark.file.schema.extension_types import check_storage
from lance_spark.file.schema.logical_types import (
    ARROW_JSON,
    EXTENSION_METADATA,
    EXTENSION_NAME,
    JSON,
    is_leaf_type,
    logical_type,
    storage_type,
)


class FieldParts(NamedTuple):
    """The parts of an Arrow field.

    - `children`: The fields that a Lance schema lists below it.
    """

    logical_type: str
    children: list[pa.Field]
    metadata: dict[str, bytes]


def field_parts(field: pa.Field) -> FieldParts:
    """Return the parts of an Arrow field.

    Raises UnsupportedTypeError: Lance cannot store the type.
    """
    tags = field.metadata
    if tags is None and is_leaf_type(field.type):
        return FieldParts(_leaf_name(field.type) or logical_type(field.type, field.name), [], {})
    dtype = storage_type(field.type)
    metadata = {key.decode(errors="replace"): value for key, value in (tags or {}).items()}
    metadata.pop(FIELD_ID, None)
    if isinstance(field.type, pa.BaseExtensionType):
        metadata[EXTENSION_NAME] = str(field.type.extension_name).encode()
        metadata[EXTENSION_METADATA] = _extension_parameters(field.type)
    tag = metadata.get(EXTENSION_NAME)
    name = logical_type(dtype, field.name)
    if tag == JSON.encode() and name == "large_binary":
        name = "json"
    elif tag == ARROW_JSON.encode():
        if name not in ("string", "large_string"):
            raise UnsupportedTypeError(
                f"field {field.name!r}: arrow.json is an extension of strings, not of {dtype}"
            )
        name = "json"
        metadata[EXTENSION_NAME] = JSON.encode()
    elif tag is not None:
        check_storage(field)
    return FieldParts(name, _children(field.with_type(dtype)), metadata)


@lru_cache(maxsize=256)
def _leaf_name(dtype: pa.DataType) -> str | None:
    """Return the logical type of a type without children; None if Lance cannot store it."""
    try:
        return logical_type(dtype, "")
    except UnsupportedTypeError:
        return None


def _children(field: pa.Field) -> list[pa.Field]:
    dtype = field.type
    if pat.is_fixed_size_list(dtype) and not pat.is_struct(storage_type(dtype.value_type)):
        return []
    return child_fields(field) if dtype.num_fields else []


class ArrowSchema(ctypes.Structure):
    """The struct of that name of Arrow's C data interface."""


ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowSchema))),
    ("private_data", ctypes.c_void_p),
]


def _extension_parameters(dtype: pa.BaseExtensionType) -> bytes:
    if isinstance(dtype, pa.ExtensionType):
        return bytes(dtype.__arrow_ext_serialize__())
    exported = ArrowSchema()
    dtype._export_to_c(ctypes.addressof(exported))
    try:
        return dict(metadata_items(exported.metadata)).get(EXTENSION_METADATA.encode(), b"")
    finally:
        exported.release(ctypes.byref(exported))


def metadata_items(address: int | None) -> list[tuple[bytes, bytes]]:
    """Return all keys and values of metadata of the C data interface, in their order.

    - `address`: Of the number of pairs, which the length and the bytes of each key and value
      follow. The numbers have 32 bits.
    """
    if not address:
        return []
    position = address

    def number() -> int:
        nonlocal position
        position += 4
        return ctypes.c_int32.from_address(position - 4).value

    def data() -> bytes:
        nonlocal position
        size = number()
        position += size
        return ctypes.string_at(position - size, size)

    return [(data(), data()) for _ in range(number())]
