"""The forms of a blob column: in a schema, in a data file, and in the batches of a read.

==============  =====================================  =============================================
where           files of versions 2.0 and 2.1          2.2 and later
==============  =====================================  =============================================
Arrow schema    large_binary, with the metadata        the same, or extension ``lance.blob.v2`` of
of the writer   ``lance-encoding:blob``, any value     ``struct<data, uri[, position, size]>``
manifest        the same                               always the extension
data file       the same; pages hold a struct of       packed struct: kind, position, size, blob_id,
                position and size                      blob_uri; its fields have no ids
read            `Handling`
==============  =====================================  =============================================

Specification: format/file, "Blobs".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.meta import BLOB_KEY, BLOB_V2
from lance_spark.errors import InvalidInputError, SchemaMismatchError, UnsupportedTypeError
from lance_spark.file.schema.field import BLOB_DESCRIPTOR, Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import EXTENSION_NAME, is_leaf_type, storage_type

#: The type of a blob in the pages of versions 2.0 and 2.1.
PLACE = pa.struct([pa.field("position", pa.uint64()), pa.field("size", pa.uint64())])
#: The first version that stores blobs in files of their own.
FIRST_V2 = (2, 2)
#: Metadata of a field of a read whose blobs are not loaded: values that are not null are empty.
_WITHOUT_BYTES = "lance_spark:without-bytes"
#: Metadata of a field of a read that returns locators in place of large blobs.
_LOCATORS = "lance_spark:blob-locators"


class Handling(Enum):
    """What a read returns for blob columns; the values are pylance's names, except ``none``."""

    BINARY = "all_binary"
    DESCRIPTIONS = "blobs_descriptions"
    ALL_DESCRIPTIONS = "all_descriptions"
    NONE = "none"

    @classmethod
    def parse(cls, name: str | None) -> Handling:
        """Return the handling of a name; `DESCRIPTIONS` for None.

        Raises InvalidInputError: the name is unknown.
        """
        try:
            return cls.DESCRIPTIONS if name is None else cls(name.strip().lower())
        except ValueError:
            names = ", ".join(handling.value for handling in cls)
            raise InvalidInputError(f"blob_handling must be one of {names}, not {name!r}") from None


def has_blobs(field: Field) -> bool:
    """Return whether the field, or a field below it, is a blob."""
    return field.has_blobs


def handled(schema: Schema, handling: Handling, version: tuple[int, int]) -> Schema:
    """Return the schema of a read.

    - `schema`: Schema of the table, or a part of it.
    - `version`: Version of the table's data files. Version 0.1 stores blobs as binary values,
      without descriptors.
    """
    if not any(node.is_blob for node in schema.walk()):
        return schema
    fields = (_handled(field, handling, version) for field in schema.fields)
    return replace(schema, fields=tuple(field for field in fields if field is not None))


def without_bytes(field: Field, tested: Collection[int] | None = None) -> Field:
    """Return a field of a read that says which blobs are null: the others are empty values.

    - `tested`: Ids of the blobs that are read so; all by default.
    """
    if field.is_blob and (tested is None or field.id in tested):
        stored_v2 = field.metadata.get(EXTENSION_NAME) == BLOB_V2
        if not stored_v2 and field.logical_type not in ("binary", "large_binary"):
            # Descriptors, or a column of version 0.1, whose writers ignored the mark.
            return field
        metadata = {**_as_v1(field), _WITHOUT_BYTES: b"true"}
        return replace(field, logical_type="large_binary", children=(), metadata=metadata)
    if not field.has_blobs:
        return field
    children = tuple(without_bytes(child, tested) for child in field.children)
    return replace(field, children=children)


def has_bytes(field: Field) -> bool:
    """Return whether a read of the field loads the bytes of its blobs; see `without_bytes`."""
    return _WITHOUT_BYTES not in field.metadata


def with_locators(field: Field, mark: bytes) -> Field:
    """Return a field of a read whose large blobs are locators that begin with a mark."""
    return replace(field, metadata={**field.metadata, _LOCATORS: mark})


def locator_mark(field: Field) -> bytes | None:
    """Return the mark of locators in place of large blobs; None if all bytes are read."""
    return field.metadata.get(_LOCATORS)


def is_null(array: pa.Array) -> pa.BooleanArray:
    """Return which blobs are null, of their bytes or of descriptors of any version."""
    nulls = array.is_null()
    if _child_names(array.type) != PLACE.names:
        return nulls
    # Version 2.0 has no other mark of a null.
    position, size = (child.fill_null(0).to_numpy() for child in array.flatten())
    return pa.array(nulls.to_numpy(zero_copy_only=False) | ((position == 1) & (size == 0)))


def with_nulls(array: pa.Array) -> pa.Array:
    """Return descriptors of blobs; that of a null blob is null, see `is_null`."""
    nulls = is_null(array)
    if nulls.true_count == array.null_count:
        return array
    return pa.StructArray.from_arrays(array.flatten(), fields=list(array.type), mask=nulls)


def described(field: Field) -> Field:
    """Return a blob field with the type of its descriptors, as its pages have it."""
    stored_v2 = field.logical_type == "struct" and len(field.children) == BLOB_DESCRIPTOR.num_fields
    if stored_v2 or field.metadata.get(EXTENSION_NAME) == BLOB_V2:
        return field
    return replace(
        field,
        logical_type="struct",
        children=_anonymous(PLACE),
        metadata={**field.metadata, BLOB_KEY: b"true"},
    )


def as_descriptor(array: pa.Array) -> pa.Array:
    """Return the descriptors in pages of any version in the form of version 2.2."""
    if array.type.num_fields != PLACE.num_fields:
        return array
    zeros = pa.array(np.zeros(len(array), np.uint8))
    position, size = (child.fill_null(0) for child in array.flatten())
    blob_ids = zeros.cast(pa.uint32())
    uris = pa.array([""], pa.string()).take(zeros)
    return pa.StructArray.from_arrays(
        [zeros, position, size, blob_ids, uris],
        fields=list(BLOB_DESCRIPTOR),
        mask=array.is_null() if array.null_count else None,
    )


def stored(field: Field, version: tuple[int, int]) -> Field:
    """Return a field for the schema of a data file: blobs of version 2.2 as packed structs."""
    if field.is_blob:
        if version < FIRST_V2:
            return field
        return replace(
            field,
            logical_type="struct",
            children=_anonymous(BLOB_DESCRIPTOR),
            metadata={**_as_v1(field), "lance-encoding:packed": b"true"},
            carried=b"",
        )
    if not field.has_blobs:
        return field
    return replace(field, children=tuple(stored(child, version) for child in field.children))


def paged(field: Field, version: tuple[int, int]) -> Field:
    """Return a field as the pages of a data file have it."""
    if version >= FIRST_V2:
        return stored(field, version)
    if field.is_blob:
        descriptor = described(field)
        return replace(
            descriptor, metadata={**descriptor.metadata, "lance-encoding:packed": b"true"}
        )
    if not field.has_blobs:
        return field
    return replace(field, children=tuple(paged(child, version) for child in field.children))


def input_field(field: Field) -> pa.Field:
    """Return the Arrow field that a writer accepts: bytes for blobs, or bytes and URIs if the
    schema has both.
    """
    if field.metadata.get(EXTENSION_NAME) == BLOB_V2:
        children = [child.arrow_field for child in field.children]
        return pa.field(field.name, pa.struct(children), field.nullable, dict(field.metadata))
    if field.is_blob or not field.has_blobs:
        return field.arrow_field
    children = [input_field(child) for child in field.children]
    return pa.field(
        field.name,
        _with_children(field.arrow_field.type, children),
        field.nullable,
        dict(field.metadata) or None,
    )


def input_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema that a writer accepts; see `input_field`."""
    if not any(field.has_blobs for field in schema.fields):
        return schema.to_arrow()
    return pa.schema([input_field(field) for field in schema.fields], dict(schema.metadata) or None)


def for_version(schema: pa.Schema, version: tuple[int, int]) -> pa.Schema:
    """Return the Arrow schema of a table whose files have a version: from 2.2 on, every blob has
    the extension type.

    In version 0.1 items of lists may be null. Raises UnsupportedTypeError: a blob is not binary, or
    has the type of version 2.2 in an older file, or is inside a map or fixed-size list.
    """
    if version == (0, 1):
        # pylance cannot read lists of version 0.1 whose items must not be null.
        schema = nullable_items(schema)
    old = list(schema)
    fields = [_for_version(field, version, field.name) for field in old]
    if all(new is old_field for new, old_field in zip(fields, old, strict=True)):
        return schema
    return pa.schema(fields, schema.metadata)


def nullable_items(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which the items of lists, at any depth, may be null."""
    fields = [field.with_type(_nullable_items(field.type)) for field in schema]
    return pa.schema(fields, schema.metadata)


def new_schema(schema: pa.Schema, version: tuple[int, int], first_id: int = 0) -> Schema:
    """Return the schema of a new table, or of new columns, whose files have a version.

    A list of blobs that are marked by metadata has the logical type ``list``; a list of blobs of
    the extension type has ``list.struct``. This is as in tables of pylance, which appends only data
    that is declared in the same way.

    - `schema`: Schema of the data.
    - `first_id`: Id of the first field.

    Raises UnsupportedTypeError: the version cannot store a blob; see `for_version`. Raises
    InvalidInputError: two sibling fields have the same name, or a top-level name has a dot.
    """
    stored_as = for_version(schema, version)
    result = Schema.from_arrow(stored_as, first_id)
    if stored_as is schema:
        return result
    fields = map(_with_marked_lists, result.fields, schema)
    return replace(result, fields=tuple(fields))


def with_blobs_as_in(schema: pa.Schema, data_schema: pa.Schema) -> pa.Schema:
    """Return the schema of a writer with blobs as the data has them: as bytes, or with the children
    of the data.

    - `schema`: Result of `input_schema`.
    - `data_schema`: Fields are matched by their names.

    Raises SchemaMismatchError: the data has descriptors of blobs, not their bytes.
    """
    fields = []
    for field in schema:
        index = data_schema.get_field_index(field.name)
        fields.append(
            field if index < 0 else _with_blob_as_in(field, data_schema.field(index).type)
        )
    return pa.schema(fields, schema.metadata)


def advice(dtype: pa.DataType) -> str:
    """Return advice for data of this type in a blob column; empty unless the data are descriptors
    of a read.
    """
    if not is_description(_child_names(dtype)):
        return ""
    return ". These are descriptors of blobs without their bytes: use blob_handling=all_binary"


def is_v2(field: pa.Field) -> bool:
    """Return whether an Arrow field is a blob of the extension type ``lance.blob.v2``."""
    dtype = field.type
    if isinstance(dtype, pa.BaseExtensionType):
        return str(dtype.extension_name).encode() == BLOB_V2
    return (field.metadata or {}).get(EXTENSION_NAME.encode()) == BLOB_V2


def is_v1(field: pa.Field) -> bool:
    """Return whether the metadata of an Arrow field has the key that marks a blob."""
    return bool(BLOB_KEY.encode() in (field.metadata or {}))


def _handled(field: Field, handling: Handling, version: tuple[int, int]) -> Field | None:
    if field.is_blob:
        if handling is Handling.NONE:
            return None
        if version < (2, 0) and field.logical_type not in ("binary", "large_binary"):
            # Writers of 0.1 ignore the mark, so columns of other types can have it.
            metadata = {key: value for key, value in field.metadata.items() if key != BLOB_KEY}
            return replace(field, metadata=metadata)
        if handling is Handling.BINARY or version < (2, 0):
            return replace(field, logical_type="large_binary", children=(), metadata=_as_v1(field))
        return described(field)
    if not field.has_blobs:
        return field
    result = (_handled(child, handling, version) for child in field.children)
    children = tuple(child for child in result if child is not None)
    # A list of blobs, or a struct with no other fields, is left out too.
    return replace(field, children=children) if children else None


def _as_v1(field: Field) -> dict[str, bytes]:
    """Return the metadata of a blob field with the key that marks blobs before version 2.2."""
    metadata = {k: v for k, v in field.metadata.items() if not k.startswith("ARROW:extension:")}
    return {**metadata, BLOB_KEY: b"true"}


def _anonymous(dtype: pa.StructType) -> tuple[Field, ...]:
    return tuple(replace(Field.from_arrow(child, -1), id=-1) for child in dtype)


def _for_version(field: pa.Field, version: tuple[int, int], path: str) -> pa.Field:
    if field.metadata is None and is_leaf_type(field.type):
        return field
    if is_v2(field):
        if version < FIRST_V2:
            raise UnsupportedTypeError(
                f"field {path!r}: blobs of the kind lance.blob.v2 need data storage version 2.2; "
                "with an older one, give large_binary with the metadata lance-encoding:blob = true"
            )
        _check_v2(field, path)
        return field
    if is_v1(field):
        dtype = storage_type(field.type)
        if not (pat.is_large_binary(dtype) or pat.is_binary(dtype)):
            raise UnsupportedTypeError(
                f"field {path!r}: blobs must be binary, not {dtype}{advice(dtype)}"
            )
        if version < FIRST_V2:
            return field.with_type(pa.large_binary())
        metadata = {k: v for k, v in field.metadata.items() if k != BLOB_KEY.encode()}
        parts = [pa.field("data", pa.large_binary()), pa.field("uri", pa.string())]
        tags = {**metadata, EXTENSION_NAME.encode(): BLOB_V2}
        return pa.field(field.name, pa.struct(parts), field.nullable, tags)
    dtype = field.type
    if pat.is_struct(dtype) or pat.is_list(dtype) or pat.is_large_list(dtype):
        old = [dtype.field(index) for index in range(dtype.num_fields)]
        new = [_for_version(child, version, f"{path}.{child.name}") for child in old]
        if all(new_child is old_child for new_child, old_child in zip(new, old, strict=True)):
            return field
        if not pat.is_struct(dtype) and version == (2, 1):
            raise UnsupportedTypeError(
                f"field {path!r}: lists of blobs cannot be stored in data storage version 2.1; use "
                "2.2"
            )
        return field.with_type(_with_children(dtype, new))
    if _blob_inside(dtype):
        raise UnsupportedTypeError(
            f"field {path!r}: blobs cannot be stored inside {dtype}; put them into a struct or list"
        )
    return field


def _with_marked_lists(field: Field, arrow_field: pa.Field) -> Field:
    """Return a field with the logical type ``list`` for lists of blobs marked by metadata."""
    if field.is_blob or not field.has_blobs:
        return field
    dtype = arrow_field.type
    given_children = [dtype.field(index) for index in range(dtype.num_fields)]
    children = tuple(map(_with_marked_lists, field.children, given_children))
    name = field.logical_type
    if not pat.is_struct(dtype) and is_v1(dtype.value_field):
        name = name.removesuffix(".struct")
    return replace(field, children=children, logical_type=name)


def _with_blob_as_in(field: pa.Field, data_type: pa.DataType) -> pa.Field:
    dtype = field.type
    if is_v2(field):
        if pat.is_binary(data_type) or pat.is_large_binary(data_type):
            return pa.field(field.name, pa.large_binary(), field.nullable)
        if pat.is_struct(data_type):
            _check_bytes(field, data_type)
            names = {data_type.field(position).name for position in range(data_type.num_fields)}
            present = [child for child in dtype if child.name in names]
            return field.with_type(pa.struct(present))
        return field
    if is_v1(field):
        _check_bytes(field, data_type)
    if pat.is_struct(dtype) and pat.is_struct(data_type):
        children = []
        for child in dtype:
            index = data_type.get_field_index(child.name)
            children.append(
                child if index < 0 else _with_blob_as_in(child, data_type.field(index).type)
            )
        return field.with_type(pa.struct(children))
    lists = (pat.is_list, pat.is_large_list)
    if any(is_list(dtype) for is_list in lists) and any(is_list(data_type) for is_list in lists):
        return field.with_type(
            _with_children(dtype, [_with_blob_as_in(dtype.value_field, data_type.value_type)])
        )
    return field


def _check_bytes(field: pa.Field, data_type: pa.DataType) -> None:
    if advised := advice(data_type):
        raise SchemaMismatchError(
            f"column {field.name!r} is a blob, but the data has {data_type}{advised}"
        )


def _check_v2(field: pa.Field, path: str) -> None:
    dtype = storage_type(field.type)
    if _child_names(dtype) not in (["data", "uri"], ["data", "uri", "position", "size"]):
        raise UnsupportedTypeError(
            f"field {path!r}: lance.blob.v2 is an extension of struct<data, uri> or "
            f"struct<data, uri, position, size>, not of {dtype}"
        )


def is_description(names: Sequence[str]) -> bool:
    """Return whether names are those of the children of descriptors, of any version."""
    return list(names) in (PLACE.names, BLOB_DESCRIPTOR.names)


def _child_names(dtype: pa.DataType) -> list[str]:
    return [field.name for field in dtype] if pat.is_struct(dtype) else []


def _blob_inside(dtype: pa.DataType) -> bool:
    dtype = storage_type(dtype)
    return any(
        is_v1(dtype.field(index))
        or is_v2(dtype.field(index))
        or _blob_inside(dtype.field(index).type)
        for index in range(dtype.num_fields)
    )


def _nullable_items(dtype: pa.DataType) -> pa.DataType:
    if pat.is_struct(dtype):
        fields = [dtype.field(index) for index in range(dtype.num_fields)]
        return pa.struct([field.with_type(_nullable_items(field.type)) for field in fields])
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        item = dtype.value_field.with_type(_nullable_items(dtype.value_type)).with_nullable(True)
        return _with_children(dtype, [item])
    return dtype


def _with_children(dtype: pa.DataType, children: Iterable[pa.Field]) -> pa.DataType:
    children = list(children)
    if pat.is_struct(dtype):
        return pa.struct(children)
    if pat.is_large_list(dtype):
        return pa.large_list(children[0])
    return pa.list_(children[0])
