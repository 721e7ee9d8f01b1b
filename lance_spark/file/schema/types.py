"""Arrow types as the logical types of a Lance schema, and extension types of Arrow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import UnsupportedTypeError

# --------------------------------------------------------------------------------------------------
# Arrow types as the logical type strings of a Lance schema, and back.
#
# ==========================================  ==================================================
# string                                      Arrow type
# ==========================================  ==================================================
# null bool int8 .. int64 uint8 .. uint64     the same; halffloat, float, double are the 16, 32 and
# halffloat float double                      64-bit floats
# string binary large_string large_binary     the same; views are stored as string and binary
# fixed_size_binary:N                         N bytes
# date32:day date64:ms                        dates
# time32:{s|ms} time64:{us|ns}                times of day
# timestamp:{unit}:{zone}                     zone ``-`` for none; it may contain colons
# duration:{unit}                             durations
# decimal:{128|256}:P:S                       precision P, scale S
# fixed_size_list:{item}:N                    item spelled out; only ``struct`` has child fields
# fixed_size_list:lance.bfloat16:N            two bytes per item, tagged with the extension name
# list large_list                             one child field
# list.struct large_list.struct               the same, when the child is a struct
# struct                                      one child field per field
# map                                         one child field ``entries``: a struct of key and value
# dict:{value}:{index}:{ordered}              dictionary; pylance writes ``false`` and ignores it
# blob                                        large_binary, as old writers called blob columns
# json                                        string with JSON; see `json_fields`
# ==========================================  ==================================================
#
# Specification: format/table/schema. An item of a fixed-size list keeps neither name nor
# nullability: it is read as a nullable ``item``.

EXTENSION_NAME = "ARROW:extension:name"
EXTENSION_METADATA = "ARROW:extension:metadata"
BFLOAT16 = "lance.bfloat16"
JSON = "lance.json"
ARROW_JSON = "arrow.json"
#: Key of the metadata of a field whose type in Spark differs from its Arrow type.
SPARK_TYPE = "spark.sql.type"

_MAX_NESTING = 32
_COUNT = re.compile(r"[0-9]{1,10}")
_SIGNED = re.compile(r"-?[0-9]{1,3}")
_UNITS = ("s", "ms", "us", "ns")

_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "uint8": pa.uint8(),
    "int16": pa.int16(),
    "uint16": pa.uint16(),
    "int32": pa.int32(),
    "uint32": pa.uint32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "large_string": pa.large_string(),
    "large_binary": pa.large_binary(),
    "date32:day": pa.date32(),
    "date64:ms": pa.date64(),
    "time32:s": pa.time32("s"),
    "time32:ms": pa.time32("ms"),
    "time64:us": pa.time64("us"),
    "time64:ns": pa.time64("ns"),
    **{f"duration:{unit}": pa.duration(unit) for unit in _UNITS},
}
_NAMES: dict[pa.DataType, str] = {dtype: name for name, dtype in _PLAIN.items()}
#: Strings with no Arrow type of their own.
_ALIASES: dict[str, pa.DataType] = {
    "blob": pa.large_binary(),
    "json": pa.string(),
    # As the specification has them; no client writes them.
    **{f"timestamp:{unit}": pa.timestamp(unit) for unit in _UNITS},
    **{f"time:{unit}": pa.time32(unit) for unit in ("s", "ms")},
    **{f"time:{unit}": pa.time64(unit) for unit in ("us", "ns")},
}


def logical_type(dtype: pa.DataType, name: str) -> str:
    """Return the logical type string of an Arrow type in a Lance schema.

    - `dtype`: Extension types count as their storage types.
    - `name`: The field, for error messages.

    Raises UnsupportedTypeError: Lance cannot store the type.
    """
    dtype = storage_type(dtype)
    plain = _NAMES.get(dtype)
    if plain is not None:
        return plain
    if pat.is_timestamp(dtype):
        return f"timestamp:{dtype.unit}:{dtype.tz or '-'}"
    if pat.is_decimal128(dtype) or pat.is_decimal256(dtype):
        return f"decimal:{dtype.bit_width}:{dtype.precision}:{dtype.scale}"
    if pat.is_fixed_size_binary(dtype):
        return f"fixed_size_binary:{dtype.byte_width}"
    if pat.is_struct(dtype):
        return "struct"
    if pat.is_list(dtype) or pat.is_large_list(dtype):
        base = "list" if pat.is_list(dtype) else "large_list"
        return f"{base}.struct" if pat.is_struct(storage_type(dtype.value_type)) else base
    if pat.is_fixed_size_list(dtype):
        return _fixed_size_list_name(dtype, name)
    if pat.is_map(dtype):
        if dtype.keys_sorted:
            raise _unsupported(name, dtype, "maps with sorted keys cannot be stored")
        return "map"
    if pat.is_dictionary(dtype):
        value = logical_type(dtype.value_type, name)
        if ":" in value or pat.is_nested(dtype.value_type):
            raise _unsupported(name, dtype, "store the values themselves: cast the column")
        return f"dict:{value}:{logical_type(dtype.index_type, name)}:false"
    # Views are stored as the types without views.
    text = str(dtype)
    if text in ("string_view", "binary_view"):
        return text.removesuffix("_view")
    raise _unsupported(name, dtype, "cast the column to a type that Lance has")


def arrow_type(logical: str, children: Sequence[pa.Field], name: str) -> pa.DataType:
    """Return the Arrow type of a logical type string.

    - `children`: Child fields, as many as the type has in a Lance schema.
    - `name`: The field, for error messages.

    Raises UnsupportedTypeError: the string is unknown, or the children do not fit it.
    """
    return _arrow_type(logical, children, name, 0)


def storage_type(dtype: pa.DataType) -> pa.DataType:
    """Return the storage type of an extension type; other types unchanged."""
    while isinstance(dtype, pa.BaseExtensionType):
        dtype = dtype.storage_type
    return dtype


def is_leaf_type(dtype: pa.DataType) -> bool:
    """Return whether a type has no child fields and is not an extension type."""
    # Equal leaf types are the same type. Nested types compare equal even if the metadata of their
    # fields differs.
    return not dtype.num_fields and not isinstance(dtype, pa.BaseExtensionType)


def takes_children(logical: str) -> bool:
    """Return whether the Arrow type of a logical type is built from the children of the field."""
    return logical in _NESTED or logical.startswith("fixed_size_list:struct:")


def is_json(field: pa.Field) -> bool:
    """Return whether an Arrow field is text with JSON."""
    return _extension_of(field) == ARROW_JSON


def _arrow_type(logical: str, children: Sequence[pa.Field], name: str, depth: int) -> pa.DataType:
    plain = _PLAIN.get(logical) or _ALIASES.get(logical)
    if plain is not None:
        return plain
    nested = _NESTED.get(logical)
    try:
        if nested is not None:
            return nested(children)
        if depth < _MAX_NESTING:
            dtype = _parameterised(logical, children, name, depth)
            if dtype is not None:
                return dtype
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UnsupportedTypeError(
            f"field {name!r}: logical type {logical!r} cannot be read: {error}"
        ) from None
    raise UnsupportedTypeError(f"field {name!r}: logical type {logical!r} is unknown")


def _parameterised(
    logical: str, children: Sequence[pa.Field], name: str, depth: int
) -> pa.DataType | None:
    base, _, parameters = logical.partition(":")
    if base == "timestamp":
        unit, _, zone = parameters.partition(":")
        if unit in _UNITS and zone:
            return pa.timestamp(unit, None if zone == "-" else zone)
    elif base == "decimal":
        parts = parameters.split(":")
        if len(parts) == 3 and _COUNT.fullmatch(parts[1]) and _SIGNED.fullmatch(parts[2]):
            make = {"128": pa.decimal128, "256": pa.decimal256}.get(parts[0])
            return make(int(parts[1]), int(parts[2])) if make else None
    elif base == "fixed_size_binary":
        # pa.binary(-1) would be the variable-width type.
        if _COUNT.fullmatch(parameters):
            return pa.binary(int(parameters))
    elif base == "fixed_size_list":
        item, _, size = parameters.rpartition(":")
        if item and _COUNT.fullmatch(size) and int(size) > 0:
            return pa.list_(_item(item, children, name, depth), int(size))
    elif base == "dict":
        value_index, _, ordered = parameters.rpartition(":")
        value, _, index = value_index.rpartition(":")
        if value and index and ordered in ("true", "false"):
            return pa.dictionary(
                _arrow_type(index, (), name, depth + 1),
                _arrow_type(value, (), name, depth + 1),
                ordered == "true",
            )
    return None


def _item(logical: str, children: Sequence[pa.Field], name: str, depth: int) -> pa.Field:
    if logical == BFLOAT16:
        tags = {EXTENSION_NAME: BFLOAT16, EXTENSION_METADATA: ""}
        return pa.field("item", pa.binary(2), metadata=tags)
    if logical == "struct":
        return _only(children)
    return pa.field("item", _arrow_type(logical, (), name, depth + 1))


def _only(children: Sequence[pa.Field]) -> pa.Field:
    if len(children) != 1:
        raise ValueError(f"it has {len(children)} child fields instead of 1")
    return children[0]


def _map(children: Sequence[pa.Field]) -> pa.DataType:
    entries = _only(children).type
    if not pat.is_struct(entries) or entries.num_fields != 2:
        raise ValueError(f"its entries are {entries} instead of a struct of key and value")
    return pa.map_(entries.field(0).with_nullable(False), entries.field(1))


_NESTED: dict[str, Callable[[Sequence[pa.Field]], pa.DataType]] = {
    "struct": lambda children: pa.struct(list(children)),
    "list": lambda children: pa.list_(_only(children)),
    "list.struct": lambda children: pa.list_(_only(children)),
    "large_list": lambda children: pa.large_list(_only(children)),
    "large_list.struct": lambda children: pa.large_list(_only(children)),
    "map": _map,
}


def _fixed_size_list_name(dtype: pa.FixedSizeListType, name: str) -> str:
    item = dtype.value_field
    if _extension_of(item) == BFLOAT16:
        return f"fixed_size_list:{BFLOAT16}:{dtype.list_size}"
    inner = storage_type(item.type)
    if dtype.list_size < 1:
        raise _unsupported(name, dtype, "fixed-size lists need at least one item")
    if pat.is_list(inner) or pat.is_large_list(inner) or pat.is_map(inner):
        raise _unsupported(name, dtype, "use a list around lists or maps, not a fixed-size list")
    if pat.is_fixed_size_list(inner) and pat.is_struct(_innermost(inner)):
        raise _unsupported(name, dtype, "structs can be in one fixed-size list, not in two")
    return f"fixed_size_list:{logical_type(inner, name)}:{dtype.list_size}"


def _innermost(dtype: pa.DataType) -> pa.DataType:
    while pat.is_fixed_size_list(dtype):
        dtype = storage_type(dtype.value_type)
    return dtype


def _extension_of(field: pa.Field) -> str | None:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    tag = (field.metadata or {}).get(EXTENSION_NAME.encode())
    return None if tag is None else tag.decode(errors="replace")


def _unsupported(name: str, dtype: pa.DataType, way_out: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(f"field {name!r}: type {dtype} cannot be stored; {way_out}")


# --------------------------------------------------------------------------------------------------
# Extension types of Arrow, such as UUIDs, JSON and tensors, for the rows that a `Dataset` returns.
#
# Files have the stored type of a column, and the metadata of its field names the extension type.
# This package works with stored types. A column that leaves it has the extension type, if Arrow
# knows one of this name: pyarrow's own types, and those that other packages have registered, such
# as `lance.bfloat16` of pylance. Otherwise the column keeps its stored type and the metadata; also
# if its stored type is not one of the extension type.

_NAME = EXTENSION_NAME.encode()


def extended_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with extension types in place of the stored types that name them."""
    if not _names_any(schema):
        return schema
    return pa.schema([_extended_field(field) for field in schema], schema.metadata)


def extended_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield record batches of one schema with extension types. No values are copied."""
    extended: pa.Schema | None = None
    for batch in batches:
        # All batches have the schema of the first one.
        if extended is None:
            extended = extended_schema(batch.schema)
        yield batch if extended == batch.schema else _extended_batch(batch, extended)


def extended_table(table: pa.Table) -> pa.Table:
    """Return a table with extension types. No values are copied."""
    schema = extended_schema(table.schema)
    if schema == table.schema:
        return table
    columns = [
        column if new.type == old.type else _extended_column(column, old)
        for column, old, new in zip(table.columns, table.schema, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _extended_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column if new.type == old.type else _extended_array(column, old)
        for column, old, new in zip(batch.columns, batch.schema, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# Arrow makes extension types from metadata where data comes in by its C interface. It refuses all
# columns if the stored type of one of them is not a stored type of the extension type.


def _extended_field(field: pa.Field) -> pa.Field:
    if not _names_any([field]):
        return field
    try:
        return _imported(field)
    except Exception:
        # A type that another package has registered may raise any error.
        return field


def _imported(field: pa.Field) -> pa.Field:
    schema = pa.schema([field])
    return pa.Schema._import_from_c_capsule(schema.__arrow_c_schema__()).field(0)


def check_storage(field: pa.Field) -> None:
    """Raise an error for a field whose metadata names another extension type than its values have.

    Only extension types of Arrow itself are checked. Clients that read by Arrow's C interface could
    not read any column. Raises UnsupportedTypeError.
    """
    name = (field.metadata or {}).get(_NAME, b"").decode(errors="replace")
    if not name.startswith("arrow.") or isinstance(field.type, pa.BaseExtensionType):
        return
    try:
        _imported(field)
    except pa.ArrowException as error:
        raise UnsupportedTypeError(
            f"field {field.name!r}: its metadata names the extension type {name}, which its values "
            f"of type {field.type} do not have ({error}); remove the metadata, or cast the values"
        ) from error


def _extended_array(array: pa.Array, field: pa.Field) -> pa.Array:
    batch = pa.RecordBatch.from_arrays([array], schema=pa.schema([field]))
    return pa.RecordBatch._import_from_c_capsule(*batch.__arrow_c_array__()).column(0)


def _extended_column(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    stream = pa.Table.from_arrays([column], schema=pa.schema([field])).__arrow_c_stream__()
    return pa.RecordBatchReader._import_from_c_capsule(stream).read_all().column(0)


def _names_any(fields: Iterable[pa.Field]) -> bool:
    for field in fields:
        if field.metadata is not None and _NAME in field.metadata:
            return True
        dtype = field.type
        if dtype.num_fields and _names_any(dtype.field(n) for n in range(dtype.num_fields)):
            return True
    return False
