"""Casts of values to the types of columns.

Spark casts a struct by the order of its children. Here children are matched by name, as in writes
and in SQL statements that change rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lance_spark.errors import SchemaMismatchError
from lance_spark.file.blobs.fields import has_blobs
from lance_spark.file.schema.field import Field
from lance_spark.spark.read.projection import find
from lance_spark.spark.types.mapping import refuse_descriptors, spark_type_of

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def cast_to_field(value: Column, source: DataType, field: Field, by_name: bool) -> Column:
    """Return a value cast to the type of a column of the table.

    A cast that fails is an error, unless ANSI mode is off. Blobs are not cast: writes accept them
    as bytes or as references.

    Parameters
    ----------
    source : DataType
        Type of the value.
    field : Field
        The column of the table.
    by_name : bool
        Whether children of structs must have the same names as in the table. Otherwise, children
        with other names are matched by their order, if those that the table has, too, are in their
        places.

    Raises
    ------
    SchemaMismatchError
        Children of a struct have other names, and must not. Or the values are descriptors of blobs.
    """
    refuse_descriptors(source, field.name)
    if has_blobs(field):
        return value
    target = spark_type_of(field.to_arrow())
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
        positions = _positions(source.names, target.names)
        if positions is None:
            if by_name or _is_reordered(source.names, target.names):
                raise SchemaMismatchError(
                    f"column {path}: the source has children {', '.join(source.names)}, the table "
                    f"{', '.join(target.names)}"
                )
            return value.cast(target)
        children = []
        for position, new in zip(positions, target.fields, strict=True):
            old = source.fields[position]
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
        return _positions(source.names, target.names) == list(range(len(source))) and all(
            _has_same_names(old.dataType, new.dataType)
            for old, new in zip(source.fields, target.fields, strict=True)
        )
    if isinstance(source, spark.ArrayType) and isinstance(target, spark.ArrayType):
        return _has_same_names(source.elementType, target.elementType)
    if isinstance(source, spark.MapType) and isinstance(target, spark.MapType):
        return _has_same_names(source.valueType, target.valueType)
    return True


def _positions(source: Sequence[str], target: Sequence[str]) -> list[int] | None:
    """Return the place of each name of the target in the source; None if the names differ."""
    positions = [find(source, name) for name in target]
    is_complete = sorted(positions) == list(range(len(source)))
    return positions if is_complete else None


def _is_reordered(source: Sequence[str], target: Sequence[str]) -> bool:
    """Return whether the source has a name of the target in another place."""
    return any(find(source, name) not in (-1, index) for index, name in enumerate(target))
