"""Filters that Spark itself pushes, from 4.1 on and if spark.sql.python.filterPushdown.enabled is
true.

| setting | pyspark's planning process |
| --- | --- |
| true | calls `reader.pushFilters(filters)`; Spark checks the filters that it returns |
| false (default) | fails if `reader.pushFilters.__func__` is not that of `DataSourceReader` |

A reader does not know the setting. `pushFilters` is therefore not a method of its class but a
callable object of each reader (`PushFilters`), with the `__func__` that the check looks for.

The reader has one only with the option push_filters, because Spark 4.1 to 4.3 keep the plan of the
last filters with the loaded DataFrame, and answer other queries over it from that plan: after
``df.where("a = 3")``, ``df.count()`` counts the rows of that plan, and ``df.where("a =
1").union(df.where("a = 2"))`` has the rows of ``a = 2`` twice. The rule of Spark's optimizer
(`request`) plans each scan by itself.

A filter is taken if the table has its column, of the type that Spark takes it for, and its value is
a value that is compared as Spark compares it. All others are returned.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader

from lance_spark.errors import InvalidInputError
from lance_spark.scan.predicates.comparison import Op

if TYPE_CHECKING:
    from lance_spark.file.schema.schema import Schema
    from lance_spark.scan.predicates.tree import Column, Predicate

_COMPARISONS: dict[str, Op] = {
    "EqualTo": "==",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_MATCHES = {"StringStartsWith": "starts", "StringEndsWith": "ends", "StringContains": "contains"}
#: Digits from which on a decimal may have been rounded by pyspark.
_ROUNDED_DIGITS = 28
#: Python types of the values of a Spark type.
_PYTHON_TYPES: dict[type[spark.DataType], tuple[type, ...]] = {
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


class PushFilters:
    """The `pushFilters` of a reader.

    - `push`: Takes filters, and returns those that Spark has to check.
    """

    def __init__(self, push: Callable[[Sequence[Any]], list[Any]]) -> None:
        self._push = push
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: Sequence[Any]) -> list[Any]:
        """Take filters, and return those that Spark has to check."""
        return self._push(filters)


def push(
    filters: Iterable[Any], schema: spark.StructType, known: Schema
) -> tuple[list[Predicate], list[Any]]:
    """Return the predicates of filters, and the filters that have none.

    - `schema`: Types that Spark takes the columns for.
    """
    predicates: list[Predicate] = []
    refused: list[Any] = []
    for pushed in filters:
        predicate = to_predicate(pushed, schema, known)
        if predicate is None:
            refused.append(pushed)
        else:
            predicates.append(predicate)
    return predicates, refused


def to_predicate(pushed: Any, schema: spark.StructType, known: Schema) -> Predicate | None:
    """Return the predicate of a filter; None if Spark has to check it."""
    name = type(pushed).__name__
    if name == "Not":
        inner = to_predicate(pushed.child, schema, known)
        return None if inner is None else inner.negated()
    from lance_spark.scan.predicates import coercion
    from lance_spark.scan.predicates.column_predicates import IsNull

    data_type = _type_of(schema, getattr(pushed, "attribute", ()))
    if data_type is None:
        return None
    try:
        column = coercion.column(known, pushed.attribute, takes_blobs=name.startswith("Is"))
        if name == "IsNull":
            return IsNull(column)
        if name == "IsNotNull":
            return IsNull(column, inverted=True)
        make = _maker(name)
        if make is None or not _fits(pushed.value, data_type, name == "In"):
            return None
        return make(column, pushed.value)
    except InvalidInputError:
        return None


def _maker(name: str) -> Callable[[Column, Any], Predicate] | None:
    """Return the function that makes the predicate of a class of filters from column and value."""
    from lance_spark.scan.predicates import coercion

    if name in _COMPARISONS:
        return lambda column, value: coercion.compare(column, _COMPARISONS[name], _plain(value))
    if name in _MATCHES:
        return lambda column, value: coercion.match(column, _MATCHES[name], _plain(value))
    if name == "EqualNullSafe":
        return lambda column, value: coercion.null_safe_equal(column, _plain(value))
    if name == "In":
        return lambda column, values: coercion.is_in(column, [_plain(value) for value in values])
    return None


def _type_of(schema: spark.StructType, path: Sequence[str]) -> spark.DataType | None:
    """Return the type of a column or of a struct's child.

    None if it is not found, or if it has a collation, by which other strings are equal.
    """
    data_type: spark.DataType | None = schema
    for name in path:
        if not isinstance(data_type, spark.StructType):
            return None
        data_type = next((field.dataType for field in data_type if field.name == name), None)
    if isinstance(data_type, spark.StringType) and data_type.simpleString() != "string":
        return None
    return data_type if path else None


def _fits(value: Any, data_type: spark.DataType, is_list: bool) -> bool:
    """Return whether a value is exactly one of a Spark type."""
    if is_list:
        return bool(value) and all(_fits(item, data_type, False) for item in value)
    if value is None:
        return True
    types = _PYTHON_TYPES.get(type(data_type), ())
    if isinstance(value, bool) != (types == (bool,)):
        return False
    if isinstance(value, datetime.datetime):
        return (value.tzinfo is not None) == isinstance(data_type, spark.TimestampType) and (
            datetime.datetime in types
        )
    if isinstance(value, Decimal) and len(value.as_tuple().digits) >= _ROUNDED_DIGITS:
        return False
    return isinstance(value, types)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value
