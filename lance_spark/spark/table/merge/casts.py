"""Values of a merge as the columns of a table have them: what `cast_to` does, with children of
structs by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_spark.errors import SchemaMismatchError
from lance_spark.file.blobs.fields import has_blobs
from lance_spark.file.schema.field import Field
from lance_spark.spark.types.mapping import to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def cast_to_field(value: Column, given: DataType, field: Field, by_name: bool) -> Column:
    """Return values as a column of the table has them; a cast that fails is an error, unless ANSI
    mode is off.

    Blobs are given as writes take them: bytes, or where they are.

    Parameters
    ----------
    value : Column
    given : DataType
        Its type.
    field : Field
        The column of the table.
    by_name : bool
        Whether children of structs must have the names of the table's. Otherwise they go by their
        places if they have others.

    Raises
    ------
    SchemaMismatchError
    """
    if has_blobs(field):
        return value
    wanted = to_spark_schema(pa.schema([field.to_arrow()]))[0].dataType
    return _cast(value, given, wanted, field.name, by_name)


def _cast(value: Column, given: DataType, wanted: DataType, path: str, by_name: bool) -> Column:
    """Cast values by the names of children, as far as those are the same: Spark itself goes by
    their order.

    Raises
    ------
    SchemaMismatchError
        They are not, and must be.
    """
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
    from pyspark.sql import types as spark

    if isinstance(given, spark.StructType) and isinstance(wanted, spark.StructType):
        have = [item.lower() for item in given.names]
        need = [item.lower() for item in wanted.names]
        if sorted(have) != sorted(need):
            if by_name:
                raise SchemaMismatchError(
                    f"column {path}: the source has children {', '.join(given.names)}, the table "
                    f"{', '.join(wanted.names)}"
                )
            return value.cast(wanted)
        if _is_alike(given, wanted):
            return value.cast(wanted)
        children = []
        for name, item in zip(need, wanted.fields, strict=True):
            other = given.fields[have.index(name)]
            child = value.getField(other.name)
            cast_to_field = _cast(
                child, other.dataType, item.dataType, f"{path}.{item.name}", by_name
            )
            children.append(cast_to_field.alias(item.name))
        return F.when(value.isNotNull(), F.struct(*children))
    if _is_alike(given, wanted):
        return value.cast(wanted)
    if isinstance(given, spark.ArrayType) and isinstance(wanted, spark.ArrayType):
        old, new = given.elementType, wanted.elementType
        return F.transform(value, lambda item: _cast(item, old, new, f"{path}[]", by_name))
    if isinstance(given, spark.MapType) and isinstance(wanted, spark.MapType):
        old, new = given.valueType, wanted.valueType
        return F.transform_values(
            value, lambda _, item: _cast(item, old, new, f"{path}[]", by_name)
        ).cast(wanted)
    return value.cast(wanted)


def _is_alike(given: DataType, wanted: DataType) -> bool:
    """Tell whether structs, at any depth, have the same names in the same order."""
    from pyspark.sql import types as spark

    if isinstance(given, spark.StructType) and isinstance(wanted, spark.StructType):
        return [item.lower() for item in given.names] == [
            item.lower() for item in wanted.names
        ] and all(
            _is_alike(item.dataType, other.dataType)
            for item, other in zip(given.fields, wanted.fields, strict=True)
        )
    if isinstance(given, spark.ArrayType) and isinstance(wanted, spark.ArrayType):
        return _is_alike(given.elementType, wanted.elementType)
    if isinstance(given, spark.MapType) and isinstance(wanted, spark.MapType):
        return _is_alike(given.valueType, wanted.valueType)
    return True
