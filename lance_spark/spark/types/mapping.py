"""Mapping between the Arrow types of Lance tables and Spark types, in both directions.

docs/reference/types.md has the mapping as a table.

A read widens types that Spark lacks (unsigned integers, half floats), and unifies variants (large,
dictionary-encoded and fixed-size types). The conversion of batches (`convert`) refuses changes of
values; this module refuses types without a counterpart, by the name of the column. Metadata of a
field records what the Spark type cannot express (`arrow.fixed-size-list.size` and others, spelt as
in the Java connector), so a DataFrame that is read and written again has the same columns: vectors
stay vectors. `recorded` has the types of Spark that Arrow lacks, `field_metadata` what becomes of
the other metadata of fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType

from lance_spark.errors import InvalidOptionError, SchemaMismatchError, UnsupportedTypeError
from lance_spark.file.blobs.fields import is_description, is_v1, is_v2
from lance_spark.file.schema.types import (
    ARROW_JSON,
    EXTENSION_METADATA,
    EXTENSION_NAME,
    is_json,
    storage_type,
)
from lance_spark.spark.types import field_metadata
from lance_spark.spark.types.field_metadata import (
    BYTE_WIDTH,
    CURRENT_DEFAULT,
    DEFAULT,
    EXISTS_DEFAULT,
    FLOAT16,
    LARGE_BINARY,
    LARGE_STRING,
    MARKERS,
    VECTOR_SIZE,
)
from lance_spark.spark.types.field_metadata import JSON_MARK as JSON
from lance_spark.spark.types.recorded import (
    TIME_TYPE,
    has_extension,
    record,
    recorded_type,
    stored_type,
    with_char_varchar,
    without_char_varchar,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


#: Marks of a column that also hold for its elements, or for the values of its maps.
_OF_ELEMENTS = (FLOAT16, LARGE_STRING, LARGE_BINARY)
_OF_VALUES = (VECTOR_SIZE, FLOAT16)
_BLOB_PREFIX = b"lance-encoding:blob"
#: In the metadata of the fields of a descriptor of a blob, so that it goes wherever the value goes.
_DESCRIPTOR = "lance.blob.descriptor"
#: In the metadata of a column that a job writes: the name of the column of the table.
_WRITTEN = "lance.written"

MAX_PRECISION = 38


class _Options(NamedTuple):
    """Metadata from options of a field, and of the fields below it by their paths."""

    own: Mapping[str, str]
    below: Mapping[str, Mapping[str, str]]


_NO_OPTIONS = _Options({}, {})

_FROM_ARROW: dict[pa.DataType, spark.DataType] = {
    pa.null(): spark.NullType(),
    pa.bool_(): spark.BooleanType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.uint8(): spark.ShortType(),
    pa.uint16(): spark.IntegerType(),
    pa.uint32(): spark.LongType(),
    pa.uint64(): spark.LongType(),
    pa.float16(): spark.FloatType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.string(): spark.StringType(),
    pa.large_string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    pa.large_binary(): spark.BinaryType(),
    pa.date32(): spark.DateType(),
    pa.date64(): spark.DateType(),
}
_TO_ARROW: dict[type[spark.DataType], pa.DataType] = {
    spark.NullType: pa.null(),
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", "UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
    spark.DayTimeIntervalType: pa.duration("us"),
}


def to_spark_schema(schema: pa.Schema) -> spark.StructType:
    """Return the Spark schema of a table, nullability and vector sizes included.

    Raises UnsupportedTypeError: the type of a column has no counterpart in Spark.
    """
    return spark.StructType([without_char_varchar(field) for field in to_declared_schema(schema)])


def spark_type_of(field: pa.Field) -> spark.DataType:
    """Return the type in which Spark reads a column.

    Raises UnsupportedTypeError: Spark has no type for it.
    """
    dtype: spark.DataType = to_spark_schema(pa.schema([field]))[0].dataType
    return dtype


def to_declared_schema(schema: pa.Schema) -> spark.StructType:
    """Return the Spark schema of a table as statements declare it: with char(n) and varchar(n).

    Raises UnsupportedTypeError: as `to_spark_schema`.
    """
    fields = [_spark_field(field, field.name) for field in schema]
    if schema.metadata:
        of_schema = field_metadata.to_spark(schema.metadata)
        for field in fields[: field_metadata.max_copies(of_schema)]:
            field.metadata[field_metadata.SCHEMA] = of_schema
    return spark.StructType(fields)


def to_spark_type(arrow: pa.DataType, column: str) -> spark.DataType:
    """Return the Spark type for an Arrow type.

    - `column`: Name of the column in errors.

    Raises UnsupportedTypeError.
    """
    if isinstance(arrow, pa.BaseExtensionType):
        return to_spark_type(arrow.storage_type, column)
    simple = _FROM_ARROW.get(arrow)
    if simple is not None:
        return simple
    if pa.types.is_fixed_size_binary(arrow):
        return spark.BinaryType()
    if pa.types.is_decimal(arrow):
        if arrow.precision > MAX_PRECISION or not 0 <= arrow.scale <= arrow.precision:
            raise UnsupportedTypeError(
                f"column {column}: {arrow} has no counterpart in Spark, whose decimals have at "
                f"most {MAX_PRECISION} digits and a scale from 0 to the precision; read other "
                "columns by the option columns"
            )
        return spark.DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_timestamp(arrow):
        return spark.TimestampNTZType() if arrow.tz is None else spark.TimestampType()
    if pa.types.is_time(arrow):
        return spark.LongType() if TIME_TYPE is None else TIME_TYPE()
    if pa.types.is_duration(arrow):
        return spark.DayTimeIntervalType()
    if pa.types.is_dictionary(arrow):
        return to_spark_type(arrow.value_type, column)
    if (
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
    ):
        child = arrow.value_field
        return spark.ArrayType(_field_type(child, f"{column}.{child.name}"), child.nullable)
    if pa.types.is_struct(arrow):
        children = [arrow.field(i) for i in range(arrow.num_fields)]
        return spark.StructType([_spark_field(f, f"{column}.{f.name}") for f in children])
    if pa.types.is_map(arrow):
        return spark.MapType(
            _field_type(arrow.key_field, f"{column}.key"),
            _field_type(arrow.item_field, f"{column}.value"),
            arrow.item_field.nullable,
        )
    raise UnsupportedTypeError(
        f"column {column}: {arrow} has no counterpart in Spark; read other columns by the option "
        "columns"
    )


def batch_schema(schema: spark.StructType) -> pa.Schema:
    """Return the exact Arrow schema that Spark requires of the batches of a read.

    Raises UnsupportedTypeError: Spark itself cannot carry a type as Arrow.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    for field in schema:
        _refuse_foreign(field.dataType, field.name)
    schema = spark.StructType([_with_nulls(field) for field in schema])
    # Until Spark 4.1 timestamps are UTC by default; from 4.2 on the zone must be given.
    if "timezone" in (to_arrow_schema.__kwdefaults__ or ()):
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def _with_nulls(field: spark.StructField) -> spark.StructField:
    """Return a field of which each part that only has nulls is nullable, as Arrow requires.

    Spark's type of `array()` has elements that are void and must not be null, and `map()` has such
    keys, in whose place are strings: Arrow has no maps whose keys are null. So are char(n) and
    varchar(n), which plans have if spark.sql.preserveCharVarcharTypeInfo is set.
    """
    dtype = _arrow_like(field.dataType)
    if dtype is field.dataType:
        return field
    return spark.StructField(field.name, dtype, field.nullable, field.metadata)


def _arrow_like(dtype: spark.DataType) -> spark.DataType:
    text = dtype.simpleString()
    if isinstance(dtype, spark.UserDefinedType) or ("void" not in text and "char(" not in text):
        return dtype
    if isinstance(dtype, (spark.CharType, spark.VarcharType)):
        return spark.StringType()
    if isinstance(dtype, spark.ArrayType):
        element = _arrow_like(dtype.elementType)
        return spark.ArrayType(element, dtype.containsNull or element == spark.NullType())
    if isinstance(dtype, spark.MapType):
        key, value = _arrow_like(dtype.keyType), _arrow_like(dtype.valueType)
        if key == spark.NullType():
            key = spark.StringType()
        return spark.MapType(key, value, dtype.valueContainsNull or value == spark.NullType())
    if isinstance(dtype, spark.StructType):
        return spark.StructType([_with_nulls(field) for field in dtype])
    return dtype


def to_arrow_schema(
    schema: spark.StructType,
    column_metadata: Mapping[str, Mapping[str, str]] | None = None,
    *,
    large_var_types: bool = False,
) -> pa.Schema:
    """Return the schema of a Lance table for a Spark schema.

    - `column_metadata`: Field metadata from options of the write, by column in lower case, or by
      the path of a field with dots; items of arrays are called ``element``.
    - `large_var_types`: Whether strings and binary values have 64-bit offsets.

    Raises UnsupportedTypeError: a type has no counterpart in Arrow or Lance. Raises
    InvalidOptionError: Options or metadata do not fit their column, or the column does not exist.
    Raises SchemaMismatchError: two columns have the same name, or a name is not valid in Lance.
    """
    extra = _by_child(column_metadata or {})
    check_names([field.name for field in schema], "the DataFrame")
    lower = [field.name.lower() for field in schema]
    for name in extra:
        if lower.count(name) != 1:
            known = ", ".join(field.name for field in schema)
            problem = (
                "has it twice, in upper and lower case"
                if name in lower
                else f"has the columns {known}"
            )
            raise InvalidOptionError(
                f"an option sets metadata of the column {name}, but the DataFrame {problem}"
            )
    fields = [
        _arrow_field(field, field.name, large_var_types, extra.get(field.name.lower(), _NO_OPTIONS))
        for field in schema
    ]
    metadata = field_metadata.schema_metadata(field.metadata or {} for field in schema)
    return field_metadata.without_wrong_keys(pa.schema(fields, metadata or None))


def _by_child(options: Mapping[str, Mapping[str, str]]) -> dict[str, _Options]:
    """Return options by the first names of their paths."""
    below: dict[str, dict[str, Mapping[str, str]]] = {}
    own: dict[str, Mapping[str, str]] = {}
    for path, metadata in options.items():
        name, dot, rest = path.partition(".")
        if dot:
            below.setdefault(name, {})[rest] = metadata
        else:
            own[name] = metadata
    return {name: _Options(own.get(name, {}), below.get(name, {})) for name in (*own, *below)}


def _children_of(options: _Options, names: list[str], column: str) -> dict[str, _Options]:
    """Return the options of the children of a column, of whose children these are the names."""
    children = _by_child(options.below)
    lower = [name.lower() for name in names]
    for name in children:
        if lower.count(name) != 1:
            problem = f"it has {', '.join(names)}" if names else "its type has no fields"
            raise InvalidOptionError(
                f"an option sets metadata of {column}.{name}, which is not a field of {column}: "
                f"{problem}"
            )
    return children


def check_names(names: list[str], owner: str) -> None:
    """Refuse names that are not valid in Lance, and repeated names. Raises SchemaMismatchError."""
    counts = Counter(names)
    for name in names:
        if not name or "." in name:
            raise SchemaMismatchError(
                f"{owner} has a column {name!r}: a column name in Lance must not be empty or "
                "contain a dot; rename the column"
            )
        if counts[name] > 1:
            raise SchemaMismatchError(f"{owner} has several columns {name!r}; rename them")


def _spark_field(field: pa.Field, column: str) -> spark.StructField:
    dtype = _field_type(field, column)
    return spark.StructField(field.name, dtype, field.nullable, _spark_metadata(field, dtype))


def _field_type(field: pa.Field, column: str) -> spark.DataType:
    dtype = recorded_type(field, to_spark_type(field.type, column))
    if _is_blob(field) and isinstance(dtype, spark.StructType):
        return spark.StructType(
            [spark.StructField(f.name, f.dataType, f.nullable, {_DESCRIPTOR: True}) for f in dtype]
        )
    return dtype


def refuse_descriptors(dtype: spark.DataType, column: str) -> None:
    """Refuse to write values of a type that is, or holds, that of descriptors of blobs.

    A cast drops the mark of the type, so this has to be called before. Where Spark drops it in
    expressions of the user, `DescriptorCheck.java` finds the descriptors; see `written_as`.

    - `column`: Name of the column in the error.

    Raises SchemaMismatchError.
    """
    if isinstance(dtype, spark.StructType):
        _refuse_descriptor(dtype, column)
        for field in dtype:
            refuse_descriptors(field.dataType, f"{column}.{field.name}")
    elif isinstance(dtype, spark.ArrayType):
        refuse_descriptors(dtype.elementType, f"{column}.element")
    elif isinstance(dtype, spark.MapType):
        refuse_descriptors(dtype.keyType, f"{column}.key")
        refuse_descriptors(dtype.valueType, f"{column}.value")


def written_as(value: Column, name: str, column: str) -> Column:
    """Return a value under a name, for a job that writes it to a column of the table."""
    return value.alias(name, metadata={_WRITTEN: column})


def check_descriptors(schema: pa.Schema, given: spark.StructType, table: str) -> None:
    """Refuse descriptors of blobs in the schema that a user gave for a read: they lack their mark.

    - `schema`: Columns of the read. Those of `given` may be some of them.

    Raises SchemaMismatchError.
    """
    wanted = {field.name.lower() for field in given}
    places = [place for place, name in enumerate(schema.names) if name.lower() in wanted]
    columns = pa.struct([schema.field(place) for place in places])
    if any(is_v1(node) or is_v2(node) for node in _nodes(columns)):
        _check_descriptors(columns, given, "", table)


def _check_descriptors(dtype: pa.DataType, given: spark.DataType, column: str, table: str) -> None:
    if isinstance(given, spark.ArrayType) and (
        pa.types.is_list(dtype) or pa.types.is_large_list(dtype)
    ):
        pairs = [(dtype.value_field, given.elementType)]
    elif isinstance(given, spark.StructType) and pa.types.is_struct(dtype):
        fields = {field.name.lower(): field for field in dtype}
        pairs = [(fields[f.name.lower()], f.dataType) for f in given if f.name.lower() in fields]
    else:
        return
    for field, child in pairs:
        path = f"{column}.{field.name}" if column else field.name
        if not (is_v1(field) or is_v2(field)):
            _check_descriptors(field.type, child, path, table)
        elif isinstance(child, spark.StructType) and any(
            _DESCRIPTOR not in f.metadata for f in child
        ):
            raise SchemaMismatchError(
                f"table {table}: the schema of the read gives the type of column {path}, which "
                "has descriptors of blobs: leave the schema out, or read bytes with "
                "blob_handling=all_binary"
            )


def _nodes(dtype: pa.DataType) -> Iterator[pa.Field]:
    """Yield the fields of a type, at any depth."""
    for index in range(dtype.num_fields):
        yield dtype.field(index)
        yield from _nodes(dtype.field(index).type)


def _is_descriptor(dtype: spark.StructType) -> bool:
    """Return whether a type is that of the descriptors of blobs, which have no bytes."""
    return is_description(dtype.names) and all(_DESCRIPTOR in field.metadata for field in dtype)


def _refuse_descriptor(dtype: spark.StructType, column: str) -> None:
    if _is_descriptor(dtype):
        raise SchemaMismatchError(
            f"column {column} has descriptors of blobs without their bytes, which cannot be "
            "written: read it with blob_handling=all_binary, the default"
        )


def _spark_metadata(field: pa.Field, dtype: spark.DataType) -> dict[str, Any]:
    """Return the metadata of a field of Spark, whose type is known."""
    metadata = field_metadata.of_field(field)
    if pa.types.is_struct(field.type) and _is_blob(field):
        # Descriptions are not blobs, so the mark would be wrong in the next write.
        metadata = {k: v for k, v in metadata.items() if not k.endswith((b":blob", b":packed"))}
    results = field_metadata.to_spark(metadata)
    if has_extension(dtype):
        # The type of Spark says it.
        results.pop(EXTENSION_NAME, None)
        results.pop(EXTENSION_METADATA, None)
    elif is_json(field):
        results[EXTENSION_NAME] = ARROW_JSON
        results.pop(EXTENSION_METADATA, None)
    item = _item_of(field)
    if item is not field and _is_blob(item) and not pa.types.is_struct(item.type):
        # Array types of Spark cannot store metadata of their elements.
        results |= _blob_marks(item.metadata)
    arrow = storage_type(field.type)
    if pa.types.is_map(arrow) and pa.types.is_fixed_size_list(arrow.item_type):
        arrow = arrow.item_type
    if pa.types.is_fixed_size_list(arrow):
        results[VECTOR_SIZE] = arrow.list_size
        arrow = arrow.value_type
    if pa.types.is_float16(arrow):
        results[FLOAT16] = "true"
    elif pa.types.is_large_string(arrow):
        results[LARGE_STRING] = "true"
    elif pa.types.is_large_binary(arrow):
        results[LARGE_BINARY] = "true"
    elif pa.types.is_fixed_size_binary(arrow) and not pa.types.is_decimal(arrow):
        results[BYTE_WIDTH] = arrow.byte_width
    of_children = _children_metadata(storage_type(field.type), dtype, results)
    if of_children:
        results[field_metadata.CHILDREN] = of_children
    return results


def _children_metadata(
    arrow: pa.DataType, dtype: spark.DataType, parent: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the metadata of the elements of a list, or of keys and values of a map.

    - `parent`: Metadata of the field of the list or map: what it says of its elements is left out.
    """
    children: list[tuple[str, pa.Field, spark.DataType, tuple[str, ...]]] = []
    if isinstance(dtype, spark.ArrayType):
        children.append(("element", arrow.value_field, dtype.elementType, _OF_ELEMENTS))
    elif isinstance(dtype, spark.MapType):
        children.append(("key", arrow.key_field, dtype.keyType, ()))
        children.append(("value", arrow.item_field, dtype.valueType, _OF_VALUES))
    results = {}
    for name, field, child_type, inherited in children:
        metadata = {
            key: value
            for key, value in _spark_metadata(field, child_type).items()
            if not (
                (key in inherited or key.encode().startswith(_BLOB_PREFIX))
                and parent.get(key) == value
            )
            and not (key == LARGE_BINARY and _is_blob(field))
        }
        if metadata:
            results[name] = metadata
    return results


def _is_blob(field: pa.Field) -> bool:
    return bool(_BLOB_PREFIX in (field.metadata or {}))


def _item_of(field: pa.Field) -> pa.Field:
    """Return the innermost item field of nested lists; other fields unchanged."""
    while pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
        field = field.type.value_field
    return field


def _blob_marks(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the blob keys in the metadata of a field."""
    return {
        key.decode(): value.decode(errors="replace")
        for key, value in metadata.items()
        if key.startswith(_BLOB_PREFIX)
    }


def _with_marked_items(arrow: pa.DataType, marks: Mapping[str, bytes]) -> pa.DataType:
    """Return a list type with metadata on its innermost items."""
    item = arrow.value_field
    if pa.types.is_list(item.type):
        return pa.list_(item.with_type(_with_marked_items(item.type, marks)))
    return pa.list_(item.with_metadata(dict(marks)))


def _arrow_field(
    field: spark.StructField, column: str, large: bool, options: _Options = _NO_OPTIONS
) -> pa.Field:
    extra = options.own
    marks = {**(field.metadata or {}), **extra}
    if large:
        marks = {LARGE_STRING: "true", LARGE_BINARY: "true", **marks}
    dtype = with_char_varchar(field)
    arrow = _arrow_type(dtype, column, marks, large, options)
    # Metadata of a field can be outdated after a change of its type; options are deliberate.
    for key in MARKERS & set(extra):
        if str(marks[key]).lower() != "false" and arrow.equals(
            _arrow_type(dtype, column, {**marks, key: None}, large, options)
        ):
            raise InvalidOptionError(
                f"option {column}.{key} does not apply to the column, whose type is "
                f"{field.dataType.simpleString()}"
            )
    if _is_set(extra, JSON) and not isinstance(field.dataType, spark.StringType):
        raise InvalidOptionError(
            f"option {column}.{JSON} does not apply to the column, whose type is "
            f"{field.dataType.simpleString()}"
        )
    return _with_metadata(pa.field(field.name, arrow, field.nullable), dtype, marks)


def _child(
    name: str,
    dtype: spark.DataType,
    column: str,
    nullable: bool,
    marks: Mapping[str, Any],
    large: bool,
    options: _Options = _NO_OPTIONS,
) -> pa.Field:
    """Return the field of the elements of a list, or of the keys or values of a map."""
    arrow = _arrow_type(dtype, column, marks, large, options)
    if pa.types.is_null(arrow):
        # The elements of `array()` and the entries of `map()`, of which there are none. Arrow has
        # neither fields of nulls that must not be null nor maps whose keys are nulls.
        arrow, nullable = (pa.string(), False) if name == "key" else (arrow, True)
    return _with_metadata(pa.field(name, arrow, nullable), dtype, marks)


def _with_metadata(field: pa.Field, dtype: spark.DataType, marks: Mapping[str, Any]) -> pa.Field:
    """Return a field with the metadata that Spark's metadata and type give it."""
    metadata = field_metadata.to_lance(marks)
    blob_metadata = {
        key: metadata[key] for key in metadata if key.encode().startswith(_BLOB_PREFIX)
    }
    if blob_metadata and pa.types.is_list(field.type):
        # The elements of the array are blobs.
        field = field.with_type(_with_marked_items(field.type, blob_metadata))
        metadata = {key: value for key, value in metadata.items() if key not in blob_metadata}
    if (_is_set(marks, JSON) or marks.get(EXTENSION_NAME) == ARROW_JSON) and isinstance(
        dtype, spark.StringType
    ):
        metadata[EXTENSION_NAME] = ARROW_JSON.encode()
    recorded = {key: value.encode() for key, value in record(dtype).items()}
    metadata = {**metadata, **recorded}
    field = pa.field(field.name, field.type, field.nullable, metadata or None)
    return field_metadata.with_extension(field, marks)


def _arrow_type(
    data_type: spark.DataType,
    column: str,
    marks: Mapping[str, Any],
    large: bool,
    options: _Options = _NO_OPTIONS,
) -> pa.DataType:
    if isinstance(data_type, spark.UserDefinedType):
        return _arrow_type(data_type.sqlType(), column, marks, large, options)
    if not isinstance(data_type, (spark.ArrayType, spark.StructType)):
        _children_of(options, [], column)
    if isinstance(data_type, spark.FloatType) and _is_set(marks, FLOAT16):
        return pa.float16()
    if isinstance(data_type, (spark.StringType, spark.CharType, spark.VarcharType)):
        return pa.large_string() if _is_set(marks, LARGE_STRING) else pa.string()
    if isinstance(data_type, spark.BinaryType):
        width = _size(marks, BYTE_WIDTH, column)
        if width is not None:
            return pa.binary(width)
        return pa.large_binary() if _is_set(marks, LARGE_BINARY) else pa.binary()
    if isinstance(data_type, spark.DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, spark.ArrayType):
        inner = {key: marks[key] for key in _OF_ELEMENTS if key in marks}
        of_items = {**inner, **field_metadata.children(marks, "element")}
        child = _children_of(options, ["element"], column).get("element", _NO_OPTIONS)
        item = _item(data_type, f"{column}.element", of_items, large, child)
        size = _size(marks, VECTOR_SIZE, column)
        return pa.list_(item) if size is None else pa.list_(item, size)
    if isinstance(data_type, spark.StructType):
        _refuse_descriptor(data_type, column)
        names = data_type.names
        if len(set(names)) != len(names):
            raise SchemaMismatchError(
                f"column {column} has two fields with the same name; rename one"
            )
        children = _children_of(options, names, column)
        return pa.struct(
            [
                _arrow_field(
                    f, f"{column}.{f.name}", large, children.get(f.name.lower(), _NO_OPTIONS)
                )
                for f in data_type
            ]
        )
    if isinstance(data_type, spark.MapType):
        inner = {LARGE_STRING: "true", LARGE_BINARY: "true"} if large else {}
        of_keys = {**inner, **field_metadata.children(marks, "key")}
        if isinstance(data_type.valueType, spark.ArrayType):
            inner = {**inner, **{key: marks[key] for key in _OF_VALUES if key in marks}}
        of_values = {**inner, **field_metadata.children(marks, "value")}
        nullable = data_type.valueContainsNull
        return pa.map_(
            _child("key", data_type.keyType, f"{column}.key", False, of_keys, large),
            _child("value", data_type.valueType, f"{column}.value", nullable, of_values, large),
        )
    if TIME_TYPE is not None and isinstance(data_type, TIME_TYPE):
        return pa.time64("ns")
    arrow = _TO_ARROW.get(type(data_type)) or stored_type(data_type, column)
    if arrow is not None:
        return arrow
    if isinstance(data_type, spark.YearMonthIntervalType):
        raise UnsupportedTypeError(
            f"column {column}: {data_type.simpleString()} cannot be stored, because Spark "
            "passes no intervals of months to Python data sources; store the number of "
            "months: EXTRACT(YEARS FROM i) * 12 + EXTRACT(MONTHS FROM i)"
        )
    raise UnsupportedTypeError(
        f"column {column}: {data_type.simpleString()} has no counterpart in a Lance table; "
        "cast or drop the column"
    )


def _item(
    array: spark.ArrayType, column: str, marks: Mapping[str, Any], large: bool, options: _Options
) -> pa.Field:
    """Return the field of the items of an array."""
    if not options.own:
        return _child("item", array.elementType, column, array.containsNull, marks, large, options)
    element = spark.StructField("item", array.elementType, array.containsNull, dict(marks))
    return _arrow_field(element, column, large, options)


def _refuse_foreign(data_type: spark.DataType, column: str) -> None:
    """Refuse types of a user schema that no column can be read as."""
    if isinstance(data_type, spark.ArrayType):
        _refuse_foreign(data_type.elementType, column)
    elif isinstance(data_type, spark.MapType):
        _refuse_foreign(data_type.keyType, column)
        _refuse_foreign(data_type.valueType, column)
    elif isinstance(data_type, spark.StructType):
        for field in data_type:
            _refuse_foreign(field.dataType, f"{column}.{field.name}")
    elif isinstance(data_type, spark.UserDefinedType):
        _refuse_foreign(data_type.sqlType(), column)
    else:
        _arrow_type(data_type, column, {}, False)


def _is_set(marks: Mapping[str, Any], key: str) -> bool:
    return str(marks.get(key, "")).lower() == "true"


def _size(marks: Mapping[str, Any], key: str, column: str) -> int | None:
    value = marks.get(key)
    if value is None:
        return None
    text = str(value).strip()
    if text.isdecimal() and 1 <= int(text) < 2**31:
        return int(text)
    raise InvalidOptionError(
        f"{column}.{key} must be a whole number from 1 to {2**31 - 1}, not {text[:40]!r}"
    )


# --------------------------------------------------------------------------------------------------
# Columns of tables as Spark's catalog has them: with default values.
#
# | metadata of a Lance column | metadata of Spark's column |
# | --- | --- |
# | `spark.sql.default`: SQL of the value of rows that an INSERT gives none | `CURRENT_DEFAULT` |
#
# Spark's `EXISTS_DEFAULT`, the value of rows that are older than the column, is not stored: ADD
# COLUMN writes it to all rows. A read by path has the metadata of the Lance column, which Spark
# does not take for a default. All other metadata is the same in all schemas of Spark
# (`lance_spark.spark.types.field_metadata`).


def catalog_schema(schema: pa.Schema) -> StructType:
    """Return Spark's columns of a read by name, with defaults."""
    return _with_defaults(to_spark_schema(schema))


def _with_defaults(columns: StructType) -> StructType:
    fields = []
    for column in columns:
        metadata = dict(column.metadata)
        default = metadata.pop(DEFAULT, None)
        dtype = column.dataType
        if isinstance(dtype, StructType):
            dtype = _with_defaults(dtype)
        described = StructField(column.name, dtype, column.nullable, metadata)
        fields.append(described if default is None else with_default(described, default))
    return StructType(fields)


def with_default(column: StructField, default: str) -> StructField:
    """Return a column of Spark with a default, which is a text in SQL."""
    # Spark requires both. It uses the second for rows of files that it reads itself.
    defaults = {CURRENT_DEFAULT: default, EXISTS_DEFAULT: default}
    return StructField(
        column.name, column.dataType, column.nullable, {**column.metadata, **defaults}
    )


def table_schema(
    schema: StructType,
    column_metadata: Mapping[str, Mapping[str, str]] | None = None,
    **options: Any,
) -> pa.Schema:
    """Return the columns of a new table that a statement creates.

    - `column_metadata`, `options`: As in `to_arrow_schema`.
    """
    check_names(schema.names, "the statement")
    return to_arrow_schema(schema, column_metadata, **options)
