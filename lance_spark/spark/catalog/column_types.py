"""Types of columns that ALTER TABLE changes, and the paths by which Spark names columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from lance_spark.errors import InvalidInputError, InvalidOptionError, UnsupportedError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.spark.options.names import COLUMN_KEYS
from lance_spark.spark.read.projection import find
from lance_spark.spark.types.mapping import to_arrow_schema, to_spark_schema
from lance_spark.spark.types.recorded import CHAR_VARCHAR, with_char_varchar

#: Column options whose change gives the column another type.
_TYPE_OPTION = "arrow."


def vector_type(schema: Schema, names: Sequence[str], text: str, table: str) -> pa.DataType | None:
    """Return the new type of a column of vectors whose elements get another type.

    None if the names are not the path of the elements of such a column. Raises UnsupportedError:
    the new type holds fewer values.
    """
    if names[-1] != "element":
        return None
    old = schema.field(path_of(schema, names[:-1])).to_arrow().type
    if not pa.types.is_fixed_size_list(old):
        return None
    element = StructField("item", spark_type(text))
    item = to_arrow_schema(StructType([element])).field(0).type
    _check_wider(table, ".".join(names), old.value_type, item)
    return pa.list_(old.value_field.with_type(item), old.list_size)


def changed_field(schema: Schema, path: str, text: str, table: str) -> pa.Field:
    """Return a column or field with another type.

    Raises UnsupportedError: the field is inside a map, or its values cannot be cast without a loss.
    """
    nodes = schema.path(path)
    if any(node.logical_type == "map" for node in nodes[:-1]):
        raise UnsupportedError(
            f"table {table}: the type of {path} cannot be changed, because it is inside a map"
        )
    old = nodes[-1].to_arrow()
    (known,) = to_spark_schema(pa.schema([old]))
    # The metadata has char(n) and varchar(n) of the old type.
    metadata = {key: value for key, value in known.metadata.items() if key != CHAR_VARCHAR}
    field = StructField(old.name, spark_type(text), old.nullable, metadata)
    new: pa.Field = to_arrow_schema(StructType([field])).field(0)
    if _depends_on_zone(old.type) != _depends_on_zone(new.type):
        raise UnsupportedError(
            f"table {table}: {path} cannot be changed from {known.dataType.simpleString()}"
            f" to {field.dataType.simpleString()}, because the new values depend on a time "
            "zone; add a column, and set its values by UPDATE"
        )
    _check_wider(table, path, old.type, new.type)
    return new


def _check_wider(table: str, path: str, old: pa.DataType, new: pa.DataType) -> None:
    """Refuse a type that holds fewer values: Spark 4.1 asks for it if a MERGE has such values."""
    if 0 < _digits(new) < _digits(old):
        raise UnsupportedError(
            f"table {table}: {path} cannot be changed from {old} to {new}, which holds "
            f"fewer values; cast the values of the statement to {old}"
        )


def type_with(schema: Schema, column: str, options: Mapping[str, str]) -> pa.DataType | None:
    """Return the type of a column with other options; None if its type stays.

    Raises InvalidOptionError: the options change more than the type in Arrow.
    """
    field = schema.field(column)
    if any(node.is_blob for node in field.walk()):
        if options == {COLUMN_KEYS["lance.encoding"]: "true"}:
            return None
        raise InvalidOptionError(
            f"options of the column {column} cannot be changed: it holds blobs; set them when the "
            "table is created"
        )
    old = field.to_arrow()
    read = to_spark_schema(pa.schema([old]))
    (same,) = to_arrow_schema(read)
    (new,) = to_arrow_schema(read, {old.name.lower(): options})
    if (new.metadata or {}).keys() != (same.metadata or {}).keys():
        # Other options make a blob or a JSON column, or set hints of encodings for new files.
        raise InvalidOptionError(
            f"options of the column {column} cannot be changed, except "
            f"those that start with {_TYPE_OPTION}; set them when the table is created, or by "
            "LanceTable.add_columns"
        )
    return None if new.type == old.type else new.type


def path_of(schema: Schema, names: Sequence[str]) -> str:
    """Return the path of a column or of a field inside it.

    - `names`: Names from the column down. Spark names the items of arrays ``element``, and the
      entries of maps ``key`` and ``value``.

    Raises InvalidInputError: the column is not found.
    """
    nodes: Sequence[Field] = schema.fields
    parts: list[str] = []
    parent = ""
    for name in names:
        if parent == "map":
            parts.append(nodes[0].name)
            nodes = nodes[0].children
        if "list" in parent and len(nodes) == 1:
            index = 0
        else:
            index = find([node.name for node in nodes], name)
        if index < 0:
            raise InvalidInputError(
                f"column {'.'.join(names)} was not found; the table has "
                f"{', '.join(schema.names[:50])}"
            )
        parts.append(nodes[index].name)
        nodes, parent = nodes[index].children, nodes[index].logical_type
    return ".".join(parts)


def spark_type(text: str) -> Any:
    """Return the type of Spark of the only column that a JSON text describes."""
    return with_char_varchar(StructType.fromJson(json.loads(text))[0])


def _depends_on_zone(dtype: pa.DataType) -> bool:
    """Return whether values are points in time, which are local times only in a time zone."""
    return bool(pa.types.is_timestamp(dtype) and dtype.tz is not None)


def _digits(dtype: pa.DataType) -> int:
    """Return a measure of the values that a number type holds; 0 for other types.

    Among decimals, and among the other numbers, a type with a lower measure holds fewer values.
    """
    if pa.types.is_decimal(dtype):
        return int(dtype.precision)
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype):
        return int(dtype.bit_width)
    return 0
