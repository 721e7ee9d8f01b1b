"""Parsing of filter trees, the form in which the rule of Spark's optimizer sends filters.

| tree | meaning |
| --- | --- |
| `{"col": [path]}` | a column or a struct's child; a boolean column is a filter |
| `{"lit": text or null, "type": name}` | a literal of a Spark type; a boolean literal is a filter |
| `{"op": name, "args": [...]}` | an operation, see below |
| `{"op": "like", "args": [...], "escape": character}` | SQL's LIKE |

Operations are `and`, `or`, `not`, `=`, `<=>`, `<`, `<=`, `>`, `>=`, `in`, `is_null`, `is_not_null`,
`is_nan`, `starts_with`, `ends_with`, `contains`, and, of a column of lists and literals,
`array_contains` and `arrays_overlap`. The texts of literals are dates in days,
timestamps and intervals in microseconds, times of day in nanoseconds, bytes in hexadecimal digits,
and numbers as Java writes them. Thousands of values of an `in` are one argument,
`{"packed": text, "type": name, "count": number}`: Base64 of integers of 64 bits, or of the lengths
of strings, 32 bits each, and then their bytes, all little-endian (`KeyForms.java`). Both sides of a
comparison have the same Spark type. Dates and timestamps stay numbers, because Spark's range is
larger than Python's.
"""

from __future__ import annotations

import base64
import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates import coercion
from lance_spark.predicates.coercion import NoCommonTypeError
from lance_spark.predicates.columns import In, IsNan, IsNull, any_of
from lance_spark.predicates.comparison import FLIPPED, Op, compared
from lance_spark.predicates.sql import binding
from lance_spark.predicates.sql_settings import DEFAULTS
from lance_spark.predicates.tree import And, Column, Constant, Predicate
from lance_spark.predicates.typed_literals import DURATION, TIME, Typed
from lance_spark.spark.pushdown.request import column_path, refused

# --------------------------------------------------------------------------------------------------
# Filters that Spark itself pushes, from 4.1 on and if spark.sql.python.filterPushdown.enabled is
# true.
#
# | setting | pyspark's planning process |
# | --- | --- |
# | true | calls `reader.pushFilters(filters)`; Spark checks the filters that it returns |
# | false (default) | fails if `reader.pushFilters.__func__` is not that of `DataSourceReader` |
#
# A reader does not know the setting. `pushFilters` is therefore not a method of its class but a
# callable object of each reader (`PushFilters`), with the `__func__` that the check looks for.
#
# The reader has one only with the option push_filters, because Spark 4.1 to 4.3 keep the plan of
# the last filters with the loaded DataFrame, and answer other queries over it from that plan: after
# ``df.where("a = 3")``, ``df.count()`` counts the rows of that plan, and ``df.where("a =
# 1").union(df.where("a = 2"))`` has the rows of ``a = 2`` twice. The rule of Spark's optimizer
# (`request`) plans each scan by itself.
#
# A filter is taken if the table has its column, of the type that Spark takes it for, and its value
# is a value that is compared as Spark compares it. All others are returned.

_FILTER_COMPARISONS: dict[str, Op] = {
    "EqualTo": "==",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
}
_FILTER_MATCHES = {
    "StringStartsWith": "starts",
    "StringEndsWith": "ends",
    "StringContains": "contains",
}
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
        predicate = filter_predicate(pushed, schema, known)
        if predicate is None:
            refused.append(pushed)
        else:
            predicates.append(predicate)
    return predicates, refused


def filter_predicate(pushed: Any, schema: spark.StructType, known: Schema) -> Predicate | None:
    """Return the predicate of a filter; None if Spark has to check it."""
    name = type(pushed).__name__
    if name == "Not":
        inner = filter_predicate(pushed.child, schema, known)
        return None if inner is None else inner.negated()
    from lance_spark.predicates import coercion
    from lance_spark.predicates.columns import IsNull

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
    from lance_spark.predicates import coercion

    if name in _FILTER_COMPARISONS:
        return lambda column, value: coercion.compare(
            column, _FILTER_COMPARISONS[name], _plain(value)
        )
    if name in _FILTER_MATCHES:
        return lambda column, value: coercion.match(column, _FILTER_MATCHES[name], _plain(value))
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


# --------------------------------------------------------------------------------------------------
# Parsing of filter trees, the form in which the rule of Spark's optimizer sends filters.

_COMPARISONS: dict[str, Op] = {"=": "==", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MATCHES = {"starts_with": "starts", "ends_with": "ends", "contains": "contains", "like": "like"}
_DTYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time(6)": TIME,
}
#: Types of lists of literals that are parsed together.
_PARSED = {
    dtype: name
    for name, dtype in _DTYPES.items()
    if name in ("tinyint", "smallint", "int", "bigint", "string")
}
_INTERVAL = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")
_INT64 = range(-(1 << 63), 1 << 63)
#: Each level takes several frames of Python's stack, and more when a predicate is pickled.
_MAX_DEPTH = 100


def to_predicate(tree: dict[str, Any], schema: Schema) -> Predicate:
    """Return the predicate of a tree.

    - `schema`: Names and types of the columns.

    Raises InvalidInputError: a column is not found, or its type has no such filter. Raises
    UnsupportedError: the tree is malformed, or this release does not know a part of it.
    """
    return _TreeParser(schema).predicate(tree, 0)


def columns_of(tree: object) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the columns of a tree."""
    if isinstance(tree, dict):
        if "col" in tree:
            yield column_path(tree["col"], tree)
        for argument in tree.get("args", ()):
            yield from columns_of(argument)


def literal(tree: dict[str, Any]) -> Typed:
    """Return a literal: a value of Python, or a number of days or microseconds.

    Raises UnsupportedError: the tree is not one of a literal, or its type is not known.
    """
    text, name = tree.get("lit"), tree.get("type")
    if tree.keys() != {"lit", "type"} or not isinstance(name, str):
        raise refused("a literal is malformed", tree)
    if not (text is None or isinstance(text, str)):
        raise refused("a literal is not a text", tree)
    try:
        dtype = _dtype(name, tree)
        return Typed(None if text is None else _value(text, dtype), dtype)
    except (ValueError, InvalidOperation) as error:
        raise refused(f"a literal is not of type {name} ({error})", tree) from None


def type_of(tree: dict[str, Any]) -> pa.DataType:
    """Return the type that a tree names.

    Raises UnsupportedError: it names none, or one that is not known.
    """
    name = tree.get("type")
    if not isinstance(name, str):
        raise refused("a type is not a text", tree)
    return _dtype(name, tree)


def _dtype(name: str, tree: object) -> pa.DataType:
    if name.startswith("decimal(") and name.endswith(")"):
        precision, _, scale = name[8:-1].partition(",")
        return pa.decimal128(int(precision), int(scale or 0))
    if _INTERVAL.fullmatch(name):
        return DURATION
    if name not in _DTYPES:
        raise refused(f"literals of type {name} are not known", tree)
    return _DTYPES[name]


def _value(text: str, dtype: pa.DataType) -> Any:
    if pat.is_string(dtype):
        return text
    if pat.is_boolean(dtype):
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    if pat.is_binary(dtype):
        return bytes.fromhex(text)
    if pat.is_decimal(dtype):
        return Decimal(text)
    if pat.is_floating(dtype):
        if pat.is_float32(dtype):
            import numpy as np

            return float(np.float32(text))
        return float(text)
    number = int(text)
    if number not in _INT64:
        raise ValueError(text)
    if not dtype.equals(TIME):
        return number
    microseconds, remainder = divmod(number, 1000)
    if remainder:
        raise ValueError(text)
    return microseconds


def packed_count(tree: dict[str, Any]) -> int:
    """Return the number of packed values of an `in`; 0 for other trees."""
    args = tree.get("args")
    last = args[-1] if isinstance(args, list) and args else None
    count = last.get("count") if isinstance(last, dict) and "packed" in last else 0
    return count if isinstance(count, int) else 0


def _unpacked(tree: dict[str, Any]) -> tuple[pa.Array, str]:
    """Return the packed values of an `in`, and the name of their type."""
    text, name, count = (tree.get(key) for key in ("packed", "type", "count"))
    if not (isinstance(text, str) and isinstance(name, str) and isinstance(count, int)):
        raise refused("a list of values is malformed", tree)
    if name not in _PARSED.values():
        raise refused("a list of values is malformed", tree)
    try:
        data = base64.b64decode(text, validate=True)
        if name == "string":
            return _strings(data, count), name
        return pa.array(np.frombuffer(data, "<i8", count)).cast(_DTYPES[name]), name
    except (ValueError, pa.ArrowException) as error:
        raise refused(f"a list of values is malformed ({error})", tree) from None


def _strings(data: bytes, count: int) -> pa.Array:
    lengths = np.frombuffer(data, "<i4", count)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    texts = pa.py_buffer(data[4 * count :])
    if lengths.min(initial=0) < 0 or offsets[-1] != texts.size:
        raise ValueError("the lengths of strings do not match their bytes")
    strings = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), texts)
    strings.validate(full=True)
    return strings


def _texts_of(items: list[Any], dtype: pa.DataType) -> list[str | None] | None:
    """Return the texts of literals of a type whose texts Arrow parses; None for other items."""
    name = _PARSED.get(dtype)
    if name is None or not all(
        isinstance(item, dict) and item.get("type") == name and len(item) == 2 and "lit" in item
        for item in items
    ):
        return None
    texts = [item["lit"] for item in items]
    return texts if all(text is None or isinstance(text, str) for text in texts) else None


def _array(texts: list[str], dtype: pa.DataType, tree: object) -> pa.Array:
    """Return literals of a type of `_PARSED`."""
    try:
        values = pa.array(texts, pa.string())
        return values if pat.is_string(dtype) else values.cast(dtype)
    except pa.ArrowException as error:
        raise refused(f"a literal is not of type {_PARSED[dtype]} ({error})", tree) from None


class _TreeParser:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._operations: dict[str, Callable[[dict[str, Any], list[Any]], Predicate]] = {
            "<=>": lambda tree, args: self._null_safe(tree, *_two_arguments(tree, args)),
            "in": self._in,
            "array_contains": self._array_contains,
            "arrays_overlap": self._arrays_overlap,
            "is_null": self._is_null,
            "is_nan": self._is_nan,
            "is_not_null": lambda tree, args: self._is_null(tree, args).negated(),
        }

    def predicate(self, tree: object, depth: int) -> Predicate:
        if depth > _MAX_DEPTH:
            raise refused(f"a filter is nested more than {_MAX_DEPTH} deep", "the filters")
        if not isinstance(tree, dict):
            raise refused("a filter is not an object", tree)
        if "op" not in tree:
            return self._boolean(tree)
        op, args = tree["op"], tree.get("args")
        keys = {"op", "args", "escape"} if op == "like" else {"op", "args"}
        if not isinstance(args, list) or tree.keys() != keys:
            raise refused("a filter is malformed", tree)
        if op in ("and", "or"):
            if not args:
                raise refused("a filter is malformed", tree)
            parts = tuple(self.predicate(part, depth + 1) for part in _flattened(op, args))
            return And(parts) if op == "and" else any_of(parts)
        if op == "not":
            return self.predicate(_one_argument(tree, args), depth + 1).negated()
        if op in _COMPARISONS:
            return self._compare(_COMPARISONS[op], *_two_arguments(tree, args))
        if op in _MATCHES:
            return self._match(_MATCHES[op], tree, *_two_arguments(tree, args))
        if op in self._operations:
            return self._operations[op](tree, args)
        raise refused(f"the filter {op!r} is not known", tree)

    def _boolean(self, tree: dict[str, Any]) -> Predicate:
        if _is_column(tree):
            return coercion.compare(self._column(tree), "==", True)
        value = literal(tree)
        if not pat.is_boolean(value.dtype):
            raise refused("a literal of this type is not a filter", tree)
        return Constant(value.value)

    def _compare(self, op: Op, left: Any, right: Any) -> Predicate:
        if _is_column(left) and _is_column(right):
            return coercion.compare_columns(self._column(left), op, self._column(right))
        if _is_column(left):
            return coercion.compare(self._column(left), op, literal(right))
        if _is_column(right):
            return coercion.compare(self._column(right), FLIPPED[op], literal(left))
        literals = (literal(left), literal(right))
        if not literals[0].dtype.equals(literals[1].dtype):
            raise refused("two literals have different types", (left, right))
        values, other_values = (pa.array([side.value], side.dtype) for side in literals)
        return Constant(compared(values, op, other_values)[0].as_py())

    def _null_safe(self, tree: dict[str, Any], left: Any, right: Any) -> Predicate:
        if not _is_column(left):
            left, right = right, left
        if not _is_column(left):
            raise refused("neither side is a column", tree)
        column = self._column(left)
        if not _is_column(right):
            return coercion.null_safe_equal(column, literal(right))
        return coercion.null_safe_equal_columns(column, self._column(right))

    def _in(self, tree: dict[str, Any], args: list[Any]) -> Predicate:
        if len(args) < 2 or not _is_column(args[0]):
            raise refused("a filter is malformed", tree)
        column = self._column(args[0])
        dtype = coercion.dtype_of(column.field)
        if isinstance(args[1], dict) and "packed" in args[1]:
            if len(args) > 2:
                raise refused("a filter is malformed", tree)
            packed, name = _unpacked(args[1])
            if packed.type.equals(dtype):
                return In(column, packed)
            others = [{"lit": str(value), "type": name} for value in packed.to_pylist()]
            return self._in(tree, [args[0], *others]) if others else Constant(False)
        texts = _texts_of(args[1:], dtype)
        if texts is not None:
            # Lists of thousands of values are common.
            values = [text for text in texts if text is not None]
            return In(column, _array(values, dtype, tree), len(values) < len(texts))
        items = [self._column(item) if _is_column(item) else literal(item) for item in args[1:]]
        literals = [item for item in items if isinstance(item, Typed) and item.dtype.equals(dtype)]
        if len(literals) == len(items):
            # Without coercion of each item.
            values = [literal.value for literal in literals if literal.value is not None]
            return In(column, pa.array(values, dtype), len(values) < len(items))
        return coercion.is_in(column, items)

    def _is_null(self, tree: dict[str, Any], args: list[Any]) -> IsNull:
        return IsNull(self._column(_one_argument(tree, args), takes_blobs=True))

    def _is_nan(self, tree: dict[str, Any], args: list[Any]) -> Predicate:
        column = self._column(_one_argument(tree, args))
        if not pat.is_floating(coercion.dtype_of(column.field)):
            raise refused("is_nan is only for floating-point numbers", tree)
        return IsNan(column)

    def _array_contains(self, tree: dict[str, Any], args: list[Any]) -> Predicate:
        left, right = _two_arguments(tree, args)
        return self._search(tree, binding.array_contains, left, [right])

    def _arrays_overlap(self, tree: dict[str, Any], args: list[Any]) -> Predicate:
        if not all(isinstance(argument, dict) for argument in args) or not args:
            raise refused("a filter is malformed", tree)
        return self._search(tree, binding.arrays_overlap, args[0], args[1:])

    def _search(
        self, tree: dict[str, Any], build: binding.Build, array: Any, items: list[Any]
    ) -> Predicate:
        try:
            return build(self._column(array), [literal(item) for item in items], DEFAULTS)
        except NoCommonTypeError as error:
            raise refused(str(error), tree) from None

    def _match(self, match_kind: str, tree: dict[str, Any], left: Any, right: Any) -> Predicate:
        if not _is_column(left) or _is_column(right):
            raise refused("only a column can be matched, and only with a literal", tree)
        column, text = self._column(left), literal(right).value
        if match_kind == "like":
            escape = tree["escape"]
            if not isinstance(escape, str) or len(escape) != 1:
                raise refused("the escape is not one character", tree)
            if text is not None:
                # Checks the column's type.
                coercion.match(column, "contains", text)
                return coercion.like(column, text, escape)
        return coercion.match(column, match_kind, text)

    def _column(self, tree: Any, *, takes_blobs: bool = False) -> Column:
        if not _is_column(tree) or len(tree) != 1:
            raise refused("an argument is not a column", tree)
        path = column_path(tree["col"], tree)
        return coercion.column(self._schema, path, takes_blobs=takes_blobs)


def _flattened(op: str, args: list[Any]) -> Iterator[Any]:
    """Yield the arguments of a chain of one operation, which Spark nests one in the other."""
    remaining = args[::-1]
    while remaining:
        part = remaining.pop()
        inner = part.get("args") if isinstance(part, dict) and part.get("op") == op else None
        if isinstance(inner, list) and inner and part.keys() == {"op", "args"}:
            remaining += inner[::-1]
        else:
            yield part


def _is_column(tree: object) -> bool:
    return isinstance(tree, dict) and "col" in tree


def _one_argument(tree: object, args: list[Any]) -> Any:
    if len(args) != 1:
        raise refused("a filter must have one argument", tree)
    return args[0]


def _two_arguments(tree: object, args: list[Any]) -> tuple[Any, Any]:
    if len(args) != 2:
        raise refused("a filter must have two arguments", tree)
    left, right = args
    if not (isinstance(left, dict) and isinstance(right, dict)):
        raise refused("an argument is not an object", tree)
    return left, right
