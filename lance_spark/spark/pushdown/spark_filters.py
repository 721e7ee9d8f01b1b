"""Filters that Spark itself pushes (`pushing`), as predicates.

A filter is taken if its column is in the table, as the type that Spark thinks it is, and its value
is of a kind that is compared as Spark compares it. All others go back.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as spark

from lance_spark.errors import InvalidInputError
from lance_spark.scan.predicates.comparison import Op

if TYPE_CHECKING:
    from lance_spark.file.schema.schema import Schema
    from lance_spark.scan.predicates.tree import Column, Predicate

_COMPARED: dict[str, Op] = {
    "EqualTo": "==",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_MATCHED = {"StringStartsWith": "starts", "StringEndsWith": "ends", "StringContains": "contains"}
#: pyspark rounds the decimals that it hands over to so many digits.
_ROUNDED = 28
#: Python's types of the values of a type of Spark.
_VALUES: dict[type[spark.DataType], tuple[type, ...]] = {
    spark.BooleanType: (bool,),
    spark.ByteType: (int,),
    spark.ShortType: (int,),
    spark.IntegerType: (int,),
    spark.LongType: (int,),
    spark.FloatType: (float,),
    spark.DoubleType: (float,),
    spark.DecimalType: (Decimal,),
    spark.StringType: (str,),
    spark.BinaryType: (bytes, bytearray),
    spark.DateType: (datetime.date,),
    spark.TimestampType: (datetime.datetime,),
    spark.TimestampNTZType: (datetime.datetime,),
}


def push(
    filters: Iterable[Any], wanted: spark.StructType, schema: Schema
) -> tuple[list[Predicate], list[Any]]:
    """Return the predicates of filters, and the filters that have none.

    Parameters
    ----------
    filters : iterable of pyspark.sql.datasource.Filter
    wanted : StructType
        What Spark takes the columns for.
    schema : Schema
        What they are in the table.
    """
    results: list[Predicate] = []
    left: list[Any] = []
    for item in filters:
        predicate = to_predicate(item, wanted, schema)
        if predicate is None:
            left.append(item)
        else:
            results.append(predicate)
    return results, left


def to_predicate(one: Any, wanted: spark.StructType, schema: Schema) -> Predicate | None:
    """Return the predicate of a filter; None if Spark has to check it."""
    name = type(one).__name__
    if name == "Not":
        inner = to_predicate(one.child, wanted, schema)
        return None if inner is None else inner.negated()
    from lance_spark.scan.predicates import coercion
    from lance_spark.scan.predicates.tree import IsNull

    data_type = _type_at(wanted, getattr(one, "attribute", ()))
    if data_type is None:
        return None
    try:
        column = coercion.column(schema, one.attribute)
        if name == "IsNull":
            return IsNull(column)
        if name == "IsNotNull":
            return IsNull(column, inverted=True)
        make = _maker(name)
        if make is None or not _fits(one.value, data_type, name == "In"):
            return None
        return make(column, one.value)
    except InvalidInputError:
        return None


def _maker(name: str) -> Callable[[Column, Any], Predicate] | None:
    from lance_spark.scan.predicates import coercion

    if name in _COMPARED:
        return lambda column, value: coercion.compare(column, _COMPARED[name], _plain(value))
    if name in _MATCHED:
        return lambda column, value: coercion.match(column, _MATCHED[name], _plain(value))
    if name == "EqualNullSafe":
        return lambda column, value: coercion.null_safe_equal(column, _plain(value))
    if name == "In":
        return lambda column, values: coercion.is_in(column, [_plain(item) for item in values])
    return None


def _type_at(schema: spark.StructType, path: Sequence[str]) -> spark.DataType | None:
    """Return the type of a column, or of a struct's child; None if there is none, or none that is
    compared by its values alone.
    """
    position: spark.DataType | None = schema
    for name in path:
        if not isinstance(position, spark.StructType):
            return None
        position = next((field.dataType for field in position if field.name == name), None)
    # Collations have ways of their own to compare.
    if isinstance(position, spark.StringType) and position.simpleString() != "string":
        return None
    return position if path else None


def _fits(value: Any, data_type: spark.DataType, several: bool) -> bool:
    if several:
        return bool(value) and all(_fits(item, data_type, False) for item in value)
    if value is None:
        return True
    kinds = _VALUES.get(type(data_type), ())
    if isinstance(value, bool) != (kinds == (bool,)):
        return False
    if isinstance(value, datetime.datetime):
        return (value.tzinfo is not None) == isinstance(data_type, spark.TimestampType) and (
            datetime.datetime in kinds
        )
    if isinstance(value, Decimal) and len(value.as_tuple().digits) >= _ROUNDED:
        return False
    return isinstance(value, kinds)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value
