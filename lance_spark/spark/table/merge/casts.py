"""Casts of the values of a merge to the types of columns, with children of structs by name."""

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


def cast_to_field(value: Column, source: DataType, field: Field, by_name: bool) -> Column:
    """Return a value cast to the type of a column of the table.

    A cast that fails is an error, unless ANSI mode is off. Blobs are not cast: writes accept them
    as bytes or as references.

    Parameters
    ----------
    value : Column
    source : DataType
        Type of the value.
    field : Field
        The column of the table.
    by_name : bool
        Whether children of structs must have the same names as in the table. Otherwise, children
        with other names are matched by their order.

    Raises
    ------
    SchemaMismatchError
        Children of a struct have other names, and must not.
    """
    if has_blobs(field):
        return value
    target = to_spark_schema(pa.schema([field.to_arrow()]))[0].dataType
    return _cast(value, source, target, field.name, by_name)


def _cast(value: Column, source: DataType, target: DataType, path: str, by_name: bool) -> Column:
    """Cast a value; match children of structs by name, where Spark matches them by order.

    Raises
    ------
    SchemaMismatchError
    """
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
    from pyspark.sql import types as spark

    if _has_same_names(source, target):
        return value.cast(target)
    if isinstance(source, spark.StructType) and isinstance(target, spark.StructType):
        source_names = [name.lower() for name in source.names]
        target_names = [name.lower() for name in target.names]
        if sorted(source_names) != sorted(target_names):
            if by_name:
                raise SchemaMismatchError(
                    f"column {path}: the source has children {', '.join(source.names)}, the table "
                    f"{', '.join(target.names)}"
                )
            return value.cast(target)
        children = []
        for name, new in zip(target_names, target.fields, strict=True):
            old = source.fields[source_names.index(name)]
            child = _cast(
                value.getField(old.name), old.dataType, new.dataType, f"{path}.{new.name}", by_name
            )
            children.append(child.alias(new.name))
        return F.when(value.isNotNull(), F.struct(*children))
    if isinstance(source, spark.ArrayType) and isinstance(target, spark.ArrayType):
        old_type, new_type = source.elementType, target.elementType
        return F.transform(
            value, lambda item: _cast(item, old_type, new_type, f"{path}[]", by_name)
        )
    if isinstance(source, spark.MapType) and isinstance(target, spark.MapType):
        old_type, new_type = source.valueType, target.valueType
        return F.transform_values(
            value, lambda _, item: _cast(item, old_type, new_type, f"{path}[]", by_name)
        ).cast(target)
    return value.cast(target)


def _has_same_names(source: DataType, target: DataType) -> bool:
    """Return whether structs, at any depth, have the same names in the same order."""
    from pyspark.sql import types as spark

    if isinstance(source, spark.StructType) and isinstance(target, spark.StructType):
        return [name.lower() for name in source.names] == [
            name.lower() for name in target.names
        ] and all(
            _has_same_names(old.dataType, new.dataType)
            for old, new in zip(source.fields, target.fields, strict=True)
        )
    if isinstance(source, spark.ArrayType) and isinstance(target, spark.ArrayType):
        return _has_same_names(source.elementType, target.elementType)
    if isinstance(source, spark.MapType) and isinstance(target, spark.MapType):
        return _has_same_names(source.valueType, target.valueType)
    return True
