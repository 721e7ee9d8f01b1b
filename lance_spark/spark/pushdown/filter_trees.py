"""Predicates from filter trees, which the optimizer rule of Spark writes as JSON.

`{"col": [path]}`
    A column, or a child of a struct. A boolean column is also a filter.
`{"lit": text or null, "type": Spark's name}`
    A literal: dates in days, timestamps and intervals in microseconds, times of day in nanoseconds,
    bytes in hexadecimal digits, numbers as Java writes them.
`{"op": name, "args": [...]}`
    The names are `and or not = <=> < <= > >= in is_null is_not_null is_nan starts_with ends_with
    contains`.
`{"op": "like", "args": [...], "escape": character}`

Both sides of a comparison have the same Spark type. Dates and timestamps stay numbers, because
their range in Spark is larger than in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.file.schema.schema import Schema
from lance_spark.scan.predicates import coercion
from lance_spark.scan.predicates.comparison import Op, compared
from lance_spark.scan.predicates.tree import And, Column, Constant, In, IsNan, IsNull, Or, Predicate
from lance_spark.scan.predicates.typed_values import DURATION, TIME, Typed
from lance_spark.spark.pushdown.request import column_path, refused

_COMPARED: dict[str, Op] = {"=": "==", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MATCHED = {"starts_with": "starts", "ends_with": "ends", "contains": "contains", "like": "like"}
_INTEGERS = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
}
_TEMPORAL = {
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time(6)": TIME,
}
_INTERVAL = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")
_INT64 = range(-(1 << 63), 1 << 63)
#: Each level needs several nested calls, and pickling a predicate needs more.
_MAX_DEPTH = 100


def to_predicate(tree: dict[str, Any], schema: Schema) -> Predicate:
    """Return the predicate of a tree.

    Parameters
    ----------
    tree : dict
    schema : Schema
        Names and types of the columns.

    Raises
    ------
    InvalidInputError
        A column does not exist, or the filter does not support its type.
    UnsupportedError
        The tree is malformed, or has a part that this release does not support.
    """
    return _Trees(schema).predicate(tree, 0)


def columns_of(tree: object) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the columns in a tree."""
    if isinstance(tree, dict):
        if "col" in tree:
            yield column_path(tree["col"], tree)
        for item in tree.get("args", ()):
            yield from columns_of(item)


def _literal(tree: dict[str, Any]) -> Typed:
    """Return a literal: a Python value, or a number of days or microseconds."""
    text, name = tree.get("lit"), tree.get("type")
    if tree.keys() != {"lit", "type"} or not isinstance(name, str):
        raise refused("a literal is malformed", tree)
    if not (text is None or isinstance(text, str)):
        raise refused("a literal is not a text", tree)
    try:
        dtype = _dtype(name, tree)
        return Typed(None if text is None else _value(text, dtype), dtype)
    except (ValueError, InvalidOperation) as error:
        raise refused(f"a literal is not a valid {name} ({error})", tree) from None


def _dtype(name: str, tree: object) -> pa.DataType:
    if name in _INTEGERS:
        return _INTEGERS[name]
    if name in _TEMPORAL:
        return _TEMPORAL[name]
    if _INTERVAL.fullmatch(name):
        return DURATION
    if name.startswith("decimal(") and name.endswith(")"):
        precision, _, scale = name[8:-1].partition(",")
        return pa.decimal128(int(precision), int(scale or 0))
    plain: dict[str, pa.DataType] = {
        "boolean": pa.bool_(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    if name not in plain:
        raise refused(f"the literal type {name} is unknown", tree)
    return plain[name]


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
    micros, rest = divmod(number, 1000)
    if rest:
        raise ValueError(text)
    return micros


class _Trees:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._nodes: dict[str, Callable[[dict[str, Any], list[Any]], Predicate]] = {
            "<=>": lambda tree, args: self._null_safe(tree, *_pair(tree, args)),
            "in": self._in,
            "is_null": lambda tree, args: IsNull(self._column(_single(tree, args))),
            "is_nan": self._is_nan,
            "is_not_null": lambda tree, args: IsNull(
                self._column(_single(tree, args)), inverted=True
            ),
        }

    def predicate(self, tree: object, depth: int) -> Predicate:
        if depth > _MAX_DEPTH:
            raise refused(f"a filter is nested more than {_MAX_DEPTH} levels deep", "the filters")
        if not isinstance(tree, dict):
            raise refused("a filter is not an object", tree)
        if "op" not in tree:
            return self._truth(tree)
        op, args = tree["op"], tree.get("args")
        known = {"op", "args", "escape"} if op == "like" else {"op", "args"}
        if not isinstance(args, list) or tree.keys() != known:
            raise refused("a filter is malformed", tree)
        if op in ("and", "or"):
            if not args:
                raise refused("a filter is malformed", tree)
            parts = tuple(self.predicate(item, depth + 1) for item in _chain(op, args))
            return And(parts) if op == "and" else Or(parts)
        if op == "not":
            return self.predicate(_single(tree, args), depth + 1).negated()
        if op in _COMPARED:
            return self._compare(_COMPARED[op], *_pair(tree, args))
        if op in _MATCHED:
            return self._match(_MATCHED[op], tree, *_pair(tree, args))
        if op in self._nodes:
            return self._nodes[op](tree, args)
        raise refused(f"the filter {op!r} is unknown", tree)

    def _truth(self, tree: dict[str, Any]) -> Predicate:
        if _is_column(tree):
            return coercion.compare(self._column(tree), "==", True)
        literal = _literal(tree)
        if not pat.is_boolean(literal.dtype):
            raise refused("a literal that is not boolean is not a filter", tree)
        return Constant(literal.value)

    def _compare(self, op: Op, left: Any, right: Any) -> Predicate:
        if _is_column(left) and _is_column(right):
            return coercion.compare_columns(self._column(left), op, self._column(right))
        if _is_column(left):
            return coercion.compare(self._column(left), op, _literal(right))
        if _is_column(right):
            return coercion.compare(self._column(right), coercion.FLIPPED[op], _literal(left))
        literals = [_literal(left), _literal(right)]
        if not literals[0].dtype.equals(literals[1].dtype):
            raise refused("two compared literals differ in type", (left, right))
        arrays = [pa.array([literal.value], literal.dtype) for literal in literals]
        return Constant(compared(arrays[0], op, arrays[1])[0].as_py())

    def _null_safe(self, tree: dict[str, Any], left: Any, right: Any) -> Predicate:
        if not _is_column(left):
            left, right = right, left
        if not _is_column(left):
            raise refused("neither side is a column", tree)
        column = self._column(left)
        if not _is_column(right):
            return coercion.null_safe_equal(column, _literal(right))
        return coercion.null_safe_equal_columns(column, self._column(right))

    def _in(self, tree: dict[str, Any], args: list[Any]) -> Predicate:
        if len(args) < 2 or not _is_column(args[0]):
            raise refused("a filter is malformed", tree)
        column = self._column(args[0])
        values = [self._column(item) if _is_column(item) else _literal(item) for item in args[1:]]
        dtype = coercion.kind_of(column.field)
        if all(isinstance(item, Typed) and item.dtype.equals(dtype) for item in values):
            # Fast for lists of thousands of values: no value needs coercion.
            valid = [
                item.value for item in values if isinstance(item, Typed) and item.value is not None
            ]
            return In(column, pa.array(valid, dtype), len(valid) < len(values))
        return coercion.is_in(column, values)

    def _is_nan(self, tree: dict[str, Any], args: list[Any]) -> Predicate:
        column = self._column(_single(tree, args))
        if not pat.is_floating(coercion.kind_of(column.field)):
            raise refused("only a floating-point number can be NaN", tree)
        return IsNan(column)

    def _match(self, how: str, tree: dict[str, Any], left: Any, right: Any) -> Predicate:
        if not _is_column(left) or _is_column(right):
            raise refused("a match needs a column and a literal", tree)
        column, text = self._column(left), _literal(right).value
        if how == "like":
            escape = tree["escape"]
            if not isinstance(escape, str) or len(escape) != 1:
                raise refused("the escape is not one character", tree)
            if text is not None:
                # Only for its check of the type of the column.
                coercion.match(column, "contains", text)
                return coercion.like(column, text, escape)
        return coercion.match(column, how, text)

    def _column(self, tree: Any) -> Column:
        if not _is_column(tree) or len(tree) != 1:
            raise refused("an argument is not a column", tree)
        return coercion.column(self._schema, column_path(tree["col"], tree))


def _chain(op: str, args: list[Any]) -> Iterator[Any]:
    """Yield the conditions of a chain.

    Spark nests a chain of a thousand conditions a thousand levels deep.
    """
    stack = args[::-1]
    while stack:
        item = stack.pop()
        inner = item.get("args") if isinstance(item, dict) and item.get("op") == op else None
        if isinstance(inner, list) and inner and item.keys() == {"op", "args"}:
            stack += inner[::-1]
        else:
            yield item


def _is_column(tree: object) -> bool:
    return isinstance(tree, dict) and "col" in tree


def _single(tree: object, args: list[Any]) -> Any:
    if len(args) != 1:
        raise refused("a filter needs one argument", tree)
    return args[0]


def _pair(tree: object, args: list[Any]) -> tuple[Any, Any]:
    if len(args) != 2:
        raise refused("a filter needs two arguments", tree)
    left, right = args
    if not (isinstance(left, dict) and isinstance(right, dict)):
        raise refused("an argument is not an object", tree)
    return left, right
