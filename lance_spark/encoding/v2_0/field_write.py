"""Writing a field of file version 2.0: one page for each of its columns, depth first.

=======================================  =========================================================
type                                     encoding
=======================================  =========================================================
numbers, dates, times, decimals, bool,   `Nullable` around `Flat`
fixed-size binary, null
fixed-size list                          `Nullable` around `FixedSizeList`, its items likewise
string                                   `Dictionary` if few are different, else `Binary`
binary, large types                      `Binary`
dictionary                               `Dictionary` over its items
list, large list                         `List`, and the items in the columns that follow
struct                                   `SimpleStruct`, and the children in the columns that follow
packed struct                            `PackedStruct`
=======================================  =========================================================

These are the choices of pylance. A page of items has as many rows as its lists have items, perhaps
none.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import is_packed, is_variable, storable
from lance_spark.encoding.meta import EncodedPage
from lance_spark.encoding.v2_0 import field as lists
from lance_spark.encoding.v2_0 import fixed_width, strings
from lance_spark.encoding.v2_0.field import storage_type
from lance_spark.encoding.v2_0.page import NewBuffers
from lance_spark.encoding.v2_1.hints import Hints, check_packed
from lance_spark.encoding.v2_1.leaf_columns import child_fields, is_blob, storage_field
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.proto import encodings_v2_0_pb2 as pb

_KNOWN_HINTS = (b"lance-encoding:compression", b"lance-encoding:compression-level")


def encode_field(array: pa.Array, field: pa.Field) -> list[EncodedPage]:
    """Return one page for each column of `field`, holding all rows of `array`.

    - `array`: Of the field's type.
    - `field`: With the metadata keys ``lance-encoding:*`` that steer the choice of encodings;
      unknown values are ignored.

    Raises UnsupportedTypeError: file version 2.0 cannot store the type. Raises InvalidInputError: a
    struct is null, a child of a packed struct is, or ``lance-encoding:packed`` is neither true nor
    false.
    """
    pages: list[EncodedPage] = []
    _encode(array, field, "", pages)
    return pages


def check_field(field: pa.Field) -> None:
    """Raise UnsupportedTypeError if file version 2.0 cannot store the field."""
    _check(field, "")


def _encode(array: pa.Array, field: pa.Field, prefix: str, pages: list[EncodedPage]) -> None:
    field, path = storage_field(field), _path(field, prefix)
    array = _storage(array)
    dtype, buffers = array.type, NewBuffers()
    if pat.is_struct(dtype):
        _refuse_nulls(array, path)
        if is_packed(field):
            _check(field, prefix)
            pages.append(
                buffers.page(len(array), fixed_width.encode_packed_struct(array, path, buffers))
            )
            return
        pages.append(buffers.page(len(array), pb.ArrayEncoding(struct=pb.SimpleStruct())))
        for index, child in enumerate(child_fields(field)):
            _encode(array.field(index), child, path, pages)
        return
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        message, items = lists.encode(array, buffers)
        pages.append(buffers.page(len(array), message))
        _encode(items, child_fields(field)[0], path, pages)
        return
    _check(field, prefix)
    message = _values(storable(array), _hints(field), buffers)
    pages.append(buffers.page(len(array), message))


def _hints(field: pa.Field) -> Hints:
    """Return the hints of a field that version 2.0 has: it has two, and ignores invalid values.

    So does pylance, so tables can have such values. Later versions refuse them.
    """
    metadata: dict[bytes, bytes] = {}
    for key, value in (field.metadata or {}).items():
        if key in _KNOWN_HINTS:
            with suppress(InvalidInputError):
                Hints.of(field.with_metadata({key: value}), field.name)
                metadata[key] = value
    return Hints.of(field.with_metadata(metadata), field.name)


def _values(array: pa.Array, hints: Hints, buffers: NewBuffers) -> pb.ArrayEncoding:
    dtype = array.type
    items = partial(_distinct, hints=Hints(), buffers=buffers)
    if pat.is_dictionary(dtype):
        return strings.encode_dictionary(array, buffers, items)
    repeated = strings.encode_repeated(array, buffers, items)
    return _distinct(array, hints, buffers) if repeated is None else repeated


def _distinct(array: pa.Array, hints: Hints, buffers: NewBuffers) -> pb.ArrayEncoding:
    dtype = array.type
    if is_variable(dtype):
        scheme = hints.compression if hints.compression in ("lz4", "zstd") else None
        return strings.encode_binary(array, buffers, scheme, hints.compression_level)
    if pat.is_fixed_size_list(dtype):
        items = partial(_distinct, hints=hints, buffers=buffers)
        return fixed_width.encode_nullable(
            array, buffers, partial(fixed_width.encode_fixed_size_list, items=items)
        )
    return fixed_width.encode_nullable(
        array, buffers, partial(fixed_width.encode_values, buffers=buffers)
    )


def _check(field: pa.Field, prefix: str) -> None:
    field, path = storage_field(field), _path(field, prefix)
    dtype = field.type
    if is_blob(field):
        return
    if pat.is_map(dtype):
        _refuse(path, "maps")
    if pat.is_fixed_size_list(dtype):
        _check_items(storage_type(dtype), path)
    elif pat.is_struct(dtype):
        check_packed(field)
        for child in child_fields(field):
            if is_packed(field) and not fixed_width.can_pack(storage_type(child.type)):
                _refuse(path, f"child {child.name!r} of type {child.type} in a packed struct")
            _check(child, path)
        if is_packed(field) and not dtype.num_fields:
            _refuse(path, "packed structs without children")
    elif pat.is_list(dtype) or pat.is_large_list(dtype):
        _check(child_fields(field)[0], path)


def _check_items(dtype: pa.DataType, path: str) -> None:
    while pat.is_fixed_size_list(dtype):
        dtype = dtype.value_type
    if pat.is_struct(dtype):
        _refuse(path, f"fixed-size lists of {dtype}")
    if pat.is_nested(dtype) or pat.is_dictionary(dtype) or is_variable(dtype):
        _refuse(path, f"fixed-size lists of {dtype}", "use a list that is not of fixed size")


def _refuse(path: str, content: str, way_out: str = "write data storage version 2.2") -> None:
    raise UnsupportedTypeError(
        f"column {path!r}: file version 2.0 cannot store {content}; {way_out}"
    )


def _refuse_nulls(array: pa.Array, path: str) -> None:
    if array.null_count:
        raise InvalidInputError(
            f"column {path!r}: {array.null_count} structs are null, which file version 2.0 cannot "
            "store; write data storage version 2.2"
        )


def _storage(array: pa.Array) -> pa.Array:
    while isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return array


def _path(field: pa.Field, prefix: str) -> str:
    return f"{prefix}.{field.name}" if prefix else field.name
