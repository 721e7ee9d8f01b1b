"""Filters as the rule of Spark's optimizer writes them, as predicates.

| tree | |
| --- | --- |
| `{"col": [path]}` | a column, or a struct's child; a boolean one is a filter itself |
| `{"lit": text or null, "type": Spark's name}` | dates in days, timestamps and intervals in microseconds, times of day in nanoseconds, bytes in hex digits, numbers as Java writes them |
| `{"op": name, "args": [...]}` | `and or not = <=> < <= > >= in is_null is_not_null is_nan starts_with ends_with contains` |
| `{"op": "like", "args": [...], "escape": character}` | |

Both sides of a comparison have one type of Spark's. Dates and timestamps stay numbers: Spark's
reach further than Python's.
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
#: Each level is some calls, and more of them where a predicate is pickled.
_DEEPEST = 100


def to_predicate(tree: dict[str, Any], schema: Schema) -> Predicate:
    """Return the predicate that a tree says.

    Parameters
    ----------
    tree : dict
    schema : Schema
        Names and types of the columns.

    Raises
    ------
    InvalidInputError
        The columns are not there, or of types that the filter cannot be answered for.
    UnsupportedError
        The tree is malformed, or has what this release does not know.
    """
    return _Trees(schema).predicate(tree, 0)


def columns_of(tree: object) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the columns that a tree is about."""
    if isinstance(tree, dict):
        if "col" in tree:
            yield column_path(tree["col"], tree)
        for item in tree.get("args", ()):
            yield from columns_of(item)


def _literal(tree: dict[str, Any]) -> Typed:
    """Return a literal: a value of Python, or a number of days or microseconds."""
    text, name = tree.get("lit"), tree.get("type")
    if tree.keys() != {"lit", "type"} or not isinstance(name, str):
        raise refused("a literal is malformed", tree)
    if not (text is None or isinstance(text, str)):
        raise refused("a literal is no text", tree)
    try:
        kind = _kind(name, tree)
        return Typed(None if text is None else _value(text, kind), kind)
    except (ValueError, InvalidOperation) as error:
        raise refused(f"a literal is no {name} ({error})", tree) from None


def _kind(name: str, tree: object) -> pa.DataType:
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
        raise refused(f"literals of type {name} are not known", tree)
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
            "<=>": lambda tree, args: self._null_safe(tree, *_two(tree, args)),
            "in": self._in,
            "is_null": lambda tree, args: IsNull(self._column(_one(tree, args))),
            "is_nan": self._is_nan,
            "is_not_null": lambda tree, args: IsNull(self._column(_one(tree, args)), inverted=True),
        }

    def predicate(self, tree: object, depth: int) -> Predicate:
        if depth > _DEEPEST:
            raise refused(f"a filter is nested more than {_DEEPEST} deep", "the filters")
        if not isinstance(tree, dict):
            raise refused("a filter is no object", tree)
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
            return self.predicate(_one(tree, args), depth + 1).negated()
        if op in _COMPARED:
            return self._compare(_COMPARED[op], *_two(tree, args))
        if op in _MATCHED:
            return self._match(_MATCHED[op], tree, *_two(tree, args))
        if op in self._nodes:
            return self._nodes[op](tree, args)
        raise refused(f"the filter {op!r} is not known", tree)

    def _truth(self, tree: dict[str, Any]) -> Predicate:
        if _is_column(tree):
            return coercion.compare(self._column(tree), "==", True)
        literal = _literal(tree)
        if not pat.is_boolean(literal.dtype):
            raise refused("a literal is no filter", tree)
        return Constant(literal.value)

    def _compare(self, op: Op, left: Any, right: Any) -> Predicate:
        if _is_column(left) and _is_column(right):
            return coercion.compare_columns(self._column(left), op, self._column(right))
        if _is_column(left):
            return coercion.compare(self._column(left), op, _literal(right))
        if _is_column(right):
            return coercion.compare(self._column(right), coercion.FLIPPED[op], _literal(left))
        one, other = _literal(left), _literal(right)
        if not one.dtype.equals(other.dtype):
            raise refused("two literals are of two types", (left, right))
        arrays = [pa.array([side.value], side.dtype) for side in (one, other)]
        return Constant(compared(arrays[0], op, arrays[1])[0].as_py())

    def _null_safe(self, tree: dict[str, Any], left: Any, right: Any) -> Predicate:
        if not _is_column(left):
            left, right = right, left
        if not _is_column(left):
            raise refused("no side is a column", tree)
        one = self._column(left)
        if not _is_column(right):
            return coercion.null_safe_equal(one, _literal(right))
        return coercion.null_safe_equal_columns(one, self._column(right))

    def _in(self, tree: dict[str, Any], args: list[Any]) -> Predicate:
        if len(args) < 2 or not _is_column(args[0]):
            raise refused("a filter is malformed", tree)
        where = self._column(args[0])
        values = [self._column(item) if _is_column(item) else _literal(item) for item in args[1:]]
        kind = coercion.kind_of(where.field)
        if all(isinstance(item, Typed) and item.dtype.equals(kind) for item in values):
            # Of lists of thousands of values, none needs to be looked at.
            valid = [
                item.value for item in values if isinstance(item, Typed) and item.value is not None
            ]
            return In(where, pa.array(valid, kind), len(valid) < len(values))
        return coercion.is_in(where, values)

    def _is_nan(self, tree: dict[str, Any], args: list[Any]) -> Predicate:
        where = self._column(_one(tree, args))
        if not pat.is_floating(coercion.kind_of(where.field)):
            raise refused("only a floating-point number can be NaN", tree)
        return IsNan(where)

    def _match(self, how: str, tree: dict[str, Any], left: Any, right: Any) -> Predicate:
        if not _is_column(left) or _is_column(right):
            raise refused("only a column is matched, and with a literal", tree)
        where, text = self._column(left), _literal(right).value
        if how == "like":
            escape = tree["escape"]
            if not isinstance(escape, str) or len(escape) != 1:
                raise refused("there is no one escape character", tree)
            if text is not None:
                # Checks the column's type.
                coercion.match(where, "contains", text)
                return coercion.like(where, text, escape)
        return coercion.match(where, how, text)

    def _column(self, tree: Any) -> Column:
        if not _is_column(tree) or len(tree) != 1:
            raise refused("something else than a column is asked about", tree)
        return coercion.column(self._schema, column_path(tree["col"], tree))


def _chain(op: str, args: list[Any]) -> Iterator[Any]:
    """Yield what a chain of conditions is made of: Spark nests one of a thousand conditions a
    thousand levels deep.
    """
    left = args[::-1]
    while left:
        one = left.pop()
        inner = one.get("args") if isinstance(one, dict) and one.get("op") == op else None
        if isinstance(inner, list) and inner and one.keys() == {"op", "args"}:
            left += inner[::-1]
        else:
            yield one


def _is_column(tree: object) -> bool:
    return isinstance(tree, dict) and "col" in tree


def _one(tree: object, args: list[Any]) -> Any:
    if len(args) != 1:
        raise refused("a filter has not one argument", tree)
    return args[0]


def _two(tree: object, args: list[Any]) -> tuple[Any, Any]:
    if len(args) != 2:
        raise refused("a filter has not two arguments", tree)
    left, right = args
    if not (isinstance(left, dict) and isinstance(right, dict)):
        raise refused("an argument is no object", tree)
    return left, right
