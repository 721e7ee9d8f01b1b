"""Filters as the rule of Spark's optimizer writes them, as predicates.

| tree | |
| --- | --- |
| `{"col": [path]}` | a column, or a struct's child; a boolean one is a filter itself |
| `{"lit": text or null, "type": Spark's name}` | dates in days, timestamps in microseconds, bytes in hex digits, numbers as Java writes them |
| `{"op": name, "args": [...]}` | `and or not = <=> < <= > >= in is_null is_not_null starts_with ends_with contains` |
| `{"op": "like", "args": [...], "escape": character}` | |

Both sides of a comparison have one type of Spark's. Dates and timestamps stay numbers: Spark's reach further than Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema import Schema
from lance_spark.scan import coercion
from lance_spark.scan.comparing import Op, compared
from lance_spark.scan.predicates import And, Column, Compare, Constant, In, IsNull, Or, Predicate
from lance_spark.spark.request import column_path, refused

_COMPARED: dict[str, Op] = {"=": "==", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_FLIPPED: dict[Op, Op] = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
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
}
#: Ticks of a timestamp in a second.
_TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_MILLISECONDS = 86_400_000
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
        for one in tree.get("args", ()):
            yield from columns_of(one)


class _Literal:
    """A literal: a Python value, or a number of Arrow's days or microseconds.

    Attributes
    ----------
    value : object
    kind : pa.DataType
        The type of Arrow that Spark's is.
    """

    __slots__ = ("kind", "value")

    def __init__(self, tree: dict[str, Any]) -> None:
        text, name = tree.get("lit"), tree.get("type")
        if tree.keys() != {"lit", "type"} or not isinstance(name, str):
            raise refused("a literal is malformed", tree)
        if not (text is None or isinstance(text, str)):
            raise refused("a literal is no text", tree)
        try:
            self.kind = _kind(name, tree)
            self.value: Any = None if text is None else _value(text, self.kind)
        except (ValueError, InvalidOperation) as error:
            raise refused(f"a literal is no {name} ({error})", tree) from None

    @property
    def array(self) -> pa.Array:
        """The value as an array of one."""
        return pa.array([self.value], self.kind)


def _kind(name: str, tree: object) -> pa.DataType:
    if name in _INTEGERS:
        return _INTEGERS[name]
    if name in _TEMPORAL:
        return _TEMPORAL[name]
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


def _value(text: str, kind: pa.DataType) -> Any:
    if pat.is_string(kind):
        return text
    if pat.is_boolean(kind):
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    if pat.is_binary(kind):
        return bytes.fromhex(text)
    if pat.is_decimal(kind):
        return Decimal(text)
    if pat.is_floating(kind):
        if pat.is_float32(kind):
            import numpy as np

            return float(np.float32(text))
        return float(text)
    number = int(text)
    if number not in _INT64:
        raise ValueError(text)
    return number


class _Trees:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._nodes: dict[str, Callable[[dict[str, Any], list[Any]], Predicate]] = {
            "<=>": lambda tree, args: self._null_safe(tree, *_two(tree, args)),
            "in": self._in,
            "is_null": lambda tree, args: IsNull(self._column(_one(tree, args))),
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
            parts = tuple(self.predicate(one, depth + 1) for one in _chain(op, args))
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
        literal = _Literal(tree)
        if not pat.is_boolean(literal.kind):
            raise refused("a literal is no filter", tree)
        return Constant(literal.value)

    def _compare(self, op: Op, left: Any, right: Any) -> Predicate:
        if _is_column(left) and _is_column(right):
            return coercion.compare_columns(self._column(left), op, self._column(right))
        if _is_column(left):
            return _compare(self._column(left), op, _Literal(right))
        if _is_column(right):
            return _compare(self._column(right), _FLIPPED[op], _Literal(left))
        one, other = _Literal(left), _Literal(right)
        if not one.kind.equals(other.kind):
            raise refused("two literals are of two types", (left, right))
        return Constant(compared(one.array, op, other.array)[0].as_py())

    def _null_safe(self, tree: dict[str, Any], left: Any, right: Any) -> Predicate:
        if not _is_column(left):
            left, right = right, left
        if not _is_column(left):
            raise refused("no side is a column", tree)
        one = self._column(left)
        if not _is_column(right):
            literal = _Literal(right)
            if literal.value is None:
                return IsNull(one)
            return And((IsNull(one, inverted=True), _compare(one, "==", literal)))
        other = self._column(right)
        equal = coercion.compare_columns(one, "==", other)
        there = And((IsNull(one, inverted=True), IsNull(other, inverted=True), equal))
        return Or((And((IsNull(one), IsNull(other))), there))

    def _in(self, tree: dict[str, Any], args: list[Any]) -> Predicate:
        if len(args) < 2 or not _is_column(args[0]):
            raise refused("a filter is malformed", tree)
        where = self._column(args[0])
        parts: list[Predicate] = [
            coercion.compare_columns(where, "==", self._column(one))
            for one in args[1:]
            if _is_column(one)
        ]
        literals = [_Literal(one) for one in args[1:] if not _is_column(one)]
        if literals:
            parts.append(_is_in(where, literals))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _match(self, how: str, tree: dict[str, Any], left: Any, right: Any) -> Predicate:
        if not _is_column(left) or _is_column(right):
            raise refused("only a column is matched, and with a literal", tree)
        where, text = self._column(left), _Literal(right).value
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


def _compare(where: Column, op: Op, literal: _Literal) -> Predicate:
    if literal.value is None:
        return Constant(None)
    if not pat.is_temporal(literal.kind):
        return coercion.compare(where, op, literal.value)
    kind = coercion.kind_of(where.field)
    return Compare(where, op, pa.scalar(_ticks(where, kind, literal), kind))


def _is_in(where: Column, literals: Sequence[_Literal]) -> Predicate:
    kind = coercion.kind_of(where.field)
    values = [one.value for one in literals if one.value is not None]
    if all(one.kind.equals(kind) for one in literals):
        # Of lists of thousands of values, none needs to be looked at.
        return In(where, pa.array(values, kind), len(values) < len(literals))
    if not any(pat.is_temporal(one.kind) for one in literals):
        return coercion.is_in(where, [one.value for one in literals])
    ticks = [_ticks(where, kind, one) for one in literals if one.value is not None]
    return In(where, pa.array(ticks, kind), len(ticks) < len(literals))


def _ticks(where: Column, kind: pa.DataType, literal: _Literal) -> int:
    """Return a date or timestamp as the number that stands for it in a column's type.

    Raises
    ------
    InvalidInputError
        The type has not exactly this value, or is another one.
    """
    value: int = literal.value
    if pat.is_date(literal.kind) and pat.is_date(kind):
        return value if pat.is_date32(kind) else value * _DAY_MILLISECONDS
    clock = pat.is_timestamp(literal.kind) and pat.is_timestamp(kind)
    if clock and (kind.tz is None) == (literal.kind.tz is None):
        found, rest = divmod(value * _TICKS[kind.unit], _TICKS["us"])
        if not rest and found in _INT64:
            return found
    raise InvalidInputError(
        f"filter on {str(where)!r}: {kind} is not compared with {value} of {literal.kind}"
    )


def _chain(op: str, args: list[Any]) -> Iterator[Any]:
    """Yield what a chain of conditions is made of: Spark nests one of a thousand conditions a thousand levels deep."""
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
