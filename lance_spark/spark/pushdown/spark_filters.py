"""Predicates from filters that Spark itself pushes, since Spark 4.1.

A filter is accepted if its column has the same type in the table as in Spark, and if its value is
compared as Spark compares it. All other filters go back to Spark.

Spark pushes filters if `spark.sql.python.filterPushdown.enabled` is true:

| setting | planning process of pyspark |
| --- | --- |
| true | calls `reader.pushFilters(filters)`; Spark evaluates the returned filters |
| false (default) | fails if `reader.pushFilters.__func__` is not `DataSourceReader.pushFilters` |

A reader does not know the setting. So `pushFilters` is not a method of the class but an attribute
of each reader: a callable whose `__func__` passes the check.

Filters are accepted only with the option push_filters, because Spark 4.1 to 4.3 keep the plan of
the last filters with the loaded DataFrame, and use it for other queries on the DataFrame: after
``df.where("a = 3")``, ``df.count()`` counts the rows of that filter, and
``df.where("a = 1").union(df.where("a = 2"))`` has the rows of ``a = 2`` twice. The optimizer rule
(`request`) plans each scan alone, and does not have this problem.
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

_COMPARED: dict[str, Op] = {
    "EqualTo": "==",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_MATCHED = {"StringStartsWith": "starts", "StringEndsWith": "ends", "StringContains": "contains"}
#: Number of digits to which pyspark rounds decimals in filters.
_ROUNDED = 28
#: Python types of the values of each Spark type.
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


class PushFilters:
    """The attribute `pushFilters` of a reader.

    Parameters
    ----------
    push : callable
        Takes the filters of Spark, and returns the filters that Spark must still evaluate.
    """

    def __init__(self, push: Callable[[Sequence[Any]], list[Any]]) -> None:
        self._push = push
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: Sequence[Any]) -> list[Any]:
        """Take filters, and return the filters that Spark must still evaluate."""
        return self._push(filters)


def push(
    filters: Iterable[Any], wanted: spark.StructType, schema: Schema
) -> tuple[list[Predicate], list[Any]]:
    """Return the predicates of filters, and the filters that are not accepted.

    Parameters
    ----------
    filters : iterable of pyspark.sql.datasource.Filter
    wanted : StructType
        Schema of the columns in Spark.
    schema : Schema
        Schema of the table.
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


def to_predicate(item: Any, wanted: spark.StructType, schema: Schema) -> Predicate | None:
    """Return the predicate of a filter; None if Spark must evaluate it."""
    name = type(item).__name__
    if name == "Not":
        inner = to_predicate(item.child, wanted, schema)
        return None if inner is None else inner.negated()
    from lance_spark.scan.predicates import coercion
    from lance_spark.scan.predicates.tree import IsNull

    data_type = _type_at(wanted, getattr(item, "attribute", ()))
    if data_type is None:
        return None
    try:
        column = coercion.column(schema, item.attribute)
        if name == "IsNull":
            return IsNull(column)
        if name == "IsNotNull":
            return IsNull(column, inverted=True)
        make = _maker(name)
        if make is None or not _fits(item.value, data_type, name == "In"):
            return None
        return make(column, item.value)
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
    """Return the type of a column, or of a child of a struct.

    None if the path does not exist, or if the values alone do not define the comparison.
    """
    dtype: spark.DataType | None = schema
    for name in path:
        if not isinstance(dtype, spark.StructType):
            return None
        dtype = next((field.dataType for field in dtype if field.name == name), None)
    # Collations compare strings by other rules.
    if isinstance(dtype, spark.StringType) and dtype.simpleString() != "string":
        return None
    return dtype if path else None


def _fits(value: Any, data_type: spark.DataType, several: bool) -> bool:
    if several:
        return bool(value) and all(_fits(item, data_type, False) for item in value)
    if value is None:
        return True
    types = _VALUES.get(type(data_type), ())
    if isinstance(value, bool) != (types == (bool,)):
        return False
    if isinstance(value, datetime.datetime):
        return (value.tzinfo is not None) == isinstance(data_type, spark.TimestampType) and (
            datetime.datetime in types
        )
    if isinstance(value, Decimal) and len(value.as_tuple().digits) >= _ROUNDED:
        return False
    return isinstance(value, types)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value
