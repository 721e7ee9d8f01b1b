"""Predicates from text: what ``WHERE`` takes in Spark's SQL, as far as it is about columns and literals.

| | |
| --- | --- |
| order | ``= == != <> < <= > >= <=>``, ``IS [NOT] DISTINCT FROM``, ``BETWEEN``, ``IN``; a column with a literal, or with another column |
| text | ``LIKE [ESCAPE]``, ``startswith``, ``endswith``, ``contains`` |
| null, NaN | ``IS [NOT] NULL``, ``IS [NOT] TRUE``, ``IS [NOT] FALSE``, ``isnull``, ``isnotnull``, ``isnan`` |
| logic | ``AND``, ``OR``, ``NOT``, columns of booleans, ``TRUE``, ``FALSE``, ``NULL`` |
| literals | numbers with Spark's suffixes, strings, ``X'1F'``, ``DATE '2024-01-31'``, ``TIMESTAMP '2024-01-31 12:00:00+01:00'``, ``TIMESTAMP_NTZ``, casts of them |

Names have dots between a struct and its child, and backticks around names with other characters; they are looked up as Spark does,
whatever their case. A number with a point is a decimal, one with an exponent a double. A string is of the type of the column it is
compared with. Everything else is refused by name: Spark's own ``where`` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow.types as pat

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema import Schema
from lance_spark.scan import coercion
from lance_spark.scan.comparing import Op
from lance_spark.scan.predicates import And, Column, Constant, IsNan, IsNull, Or, Predicate
from lance_spark.scan.sql.settings import DEFAULTS, SqlSettings
from lance_spark.scan.times import parse_date, parse_timestamp

if TYPE_CHECKING:
    from sqlglot import expressions as sql

_FLIPPED: dict[Op, Op] = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
#: Expressions may be nested so deep: each level is a call.
_DEEPEST = 200
#: What the parser may say of an expression besides its operands. Its releases say new things, such as that a LIKE is negated: what is not known
#: here is refused, for passing over it would choose other rows.
_SAID = {
    "between": frozenset({"low", "high"}),
    "cast": frozenset({"to"}),
    "column": frozenset({"table", "db", "catalog"}),
    "concat": frozenset({"safe"}),
    "identifier": frozenset({"quoted"}),
    "like": frozenset({"negate"}),
    "literal": frozenset({"is_string"}),
    "trycast": frozenset({"to", "safe"}),
}
_OPERANDS = frozenset({"this", "expression", "expressions"})


def parse_predicate(text: str, schema: Schema, settings: SqlSettings = DEFAULTS) -> Predicate:
    """Return the predicate that a text says.

    Parameters
    ----------
    text : str
    schema : Schema
        Of the table.
    settings : SqlSettings, optional
        Of the session whose text it is. Without, Spark's defaults.

    Raises
    ------
    InvalidInputError
        It is no predicate, or says more than this release understands.
    """
    others = replace(settings, time_zone=None).changed()
    if others:
        given = ", ".join(f"{name}={value}" for name, value in others.items())
        raise InvalidInputError(f"filter {_shown(text)} cannot be read with {given}")
    trees = _parsed(text)
    if len(trees) != 1 or trees[0] is None:
        raise InvalidInputError(
            f"filter {_shown(text)} is {len(trees)} statements, and no predicate"
        )
    parser = _Parser(text, schema, settings.time_zone)
    parser.check(trees[0])
    return parser.predicate(trees[0])


def _parsed(text: str) -> list[sql.Expr | None]:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        return list(sqlglot.parse(text, read="spark"))
    except MemoryError:
        raise
    except (SqlglotError, RecursionError) as error:
        why = str(error).partition("\n")[0]
    except Exception as error:
        # Some texts that are no SQL, 1EBD for one, break the parser instead of being refused by it.
        why = f"it cannot be parsed ({type(error).__name__})"
    raise InvalidInputError(f"filter {_shown(text)} is no predicate: {why}")


class _Parser:
    def __init__(self, text: str, schema: Schema, timezone: str | None) -> None:
        from sqlglot import expressions as sql

        self._text = text
        self._schema = schema
        self._timezone = timezone
        self._sql = sql
        self._depth = 0
        self._compared: dict[type[sql.Expr], Op] = {
            sql.EQ: "==",
            sql.NEQ: "!=",
            sql.LT: "<",
            sql.LTE: "<=",
            sql.GT: ">",
            sql.GTE: ">=",
        }
        types = sql.DataType.Type
        self._bits = {types.TINYINT: 8, types.SMALLINT: 16, types.INT: 32, types.BIGINT: 64}
        self._nodes: dict[type[sql.Expr], Callable[[Any], Predicate]] = {
            sql.Paren: lambda node: self.predicate(node.this),
            sql.And: lambda node: And((self.predicate(node.left), self.predicate(node.right))),
            sql.Or: lambda node: Or((self.predicate(node.left), self.predicate(node.right))),
            sql.Not: lambda node: self.predicate(node.this).negated(),
            sql.Boolean: lambda node: Constant(bool(node.this)),
            sql.Null: lambda node: Constant(None),
            sql.Column: lambda node: coercion.compare(self._column(node), "==", True),
            sql.Dot: lambda node: coercion.compare(self._column(node), "==", True),
            sql.Is: self._is,
            sql.In: self._in,
            sql.Between: self._between,
            sql.NullSafeEQ: self._null_safe,
            sql.NullSafeNEQ: lambda node: self._null_safe(node).negated(),
            sql.Like: lambda node: self._like(node, "\\"),
            sql.Escape: self._escape,
            sql.StartsWith: lambda node: self._match(node, "starts"),
            sql.EndsWith: lambda node: self._match(node, "ends"),
            sql.Contains: lambda node: self._match(node, "contains"),
            sql.IsNan: self._is_nan,
            sql.Anonymous: self._function,
        }

    def check(self, tree: sql.Expr) -> None:
        """Refuse an expression of which the parser says what is not known here."""
        for node in tree.walk():
            said = {name for name, value in node.args.items() if value}
            if not said <= _OPERANDS | _SAID.get(node.key, frozenset()):
                raise self._refused(node)

    def predicate(self, node: sql.Expr) -> Predicate:
        """Return the predicate of an expression."""
        self._descend()
        op = self._compared.get(type(node))
        if op is not None:
            found = self._compare(node.this, op, node.expression)
        else:
            make = self._nodes.get(type(node))
            if make is None:
                raise self._refused(node)
            found = make(node)
        self._depth -= 1
        return found

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise InvalidInputError(
                f"filter {_shown(self._text)}: it is nested more than {_DEEPEST} deep"
            )

    def _refused(self, node: sql.Expr) -> InvalidInputError:
        return InvalidInputError(
            f"filter {_shown(self._text)}: {_written(node)} is none of the conditions that the option takes; "
            "leave it to DataFrame.where"
        )

    def _compare(self, left: sql.Expr, op: Op, right: sql.Expr) -> Predicate:
        left, right = left.unnest(), right.unnest()
        one, other = self._is_column(left), self._is_column(right)
        if one and other:
            return coercion.compare_columns(self._column(left), op, self._column(right))
        if other:
            left, right, op = right, left, _FLIPPED[op]
        elif not one:
            raise self._refused(left if not self._is_literal(left) else right)
        column = self._column(left)
        return coercion.compare(column, op, self._literal(right, column))

    def _between(self, node: sql.Between) -> Predicate:
        low, high = node.args["low"], node.args["high"]
        return And((self._compare(node.this, ">=", low), self._compare(node.this, "<=", high)))

    def _is(self, node: sql.Is) -> Predicate:
        column, what = node.this.unnest(), node.expression
        if isinstance(what, self._sql.Null):
            return IsNull(self._column(column))
        if isinstance(what, self._sql.Boolean):
            truth = self.predicate(column)
            # Null is neither.
            return coercion.known(truth if what.this else truth.negated())
        raise self._refused(node)

    def _null_safe(self, node: sql.NullSafeEQ | sql.NullSafeNEQ) -> Predicate:
        left, right = node.this.unnest(), node.expression.unnest()
        if not self._is_column(left):
            left, right = right, left
        if not self._is_column(left) or self._is_column(right):
            raise self._refused(node)
        column = self._column(left)
        return coercion.null_safe_equal(column, self._literal(right, column))

    def _in(self, node: sql.In) -> Predicate:
        column = self._column(node.this.unnest())
        values = [self._literal(one.unnest(), column) for one in node.expressions]
        return coercion.is_in(column, values)

    def _escape(self, node: sql.Escape) -> Predicate:
        if not isinstance(node.this, self._sql.Like) or not node.expression.is_string:
            raise self._refused(node)
        return self._like(node.this, node.expression.this)

    def _like(self, node: sql.Like, escape: str) -> Predicate:
        pattern = node.expression
        if isinstance(pattern, self._sql.Null):
            return Constant(None)
        column = self._column(node.this.unnest())
        text = self._string(pattern)
        if text is None or len(escape) != 1:
            raise self._refused(node)
        if not coercion.is_text(column):
            raise self._refused(node)
        found = coercion.like(column, text, escape)
        # Since release 30.10 of sqlglot; before, a `Not` was around it.
        return found.negated() if node.args.get("negate") else found

    def _match(self, node: sql.Func, how: str) -> Predicate:
        column = self._column(node.this.unnest())
        return coercion.match(column, how, self._literal(node.expression.unnest(), column))

    def _is_nan(self, node: sql.IsNan) -> Predicate:
        column = self._column(node.this.unnest())
        if not pat.is_floating(coercion.kind_of(column.field)):
            raise self._refused(node)
        return IsNan(column)

    def _function(self, node: sql.Anonymous) -> Predicate:
        name, arguments = str(node.this).lower(), node.expressions
        if name in ("isnull", "isnotnull") and len(arguments) == 1:
            return IsNull(self._column(arguments[0]), inverted=name == "isnotnull")
        raise self._refused(node)

    def _is_column(self, node: sql.Expr) -> bool:
        return isinstance(node, self._sql.Column | self._sql.Dot)

    def _is_literal(self, node: sql.Expr) -> bool:
        return not any(self._is_column(one) for one in node.walk())

    def _column(self, node: sql.Expr) -> Column:
        if not self._is_column(node):
            raise self._refused(node)
        parts: list[Any] = getattr(node, "parts", [])
        if not all(isinstance(part, self._sql.Identifier) for part in parts):
            raise self._refused(node)
        return coercion.column(self._schema, [part.name for part in parts])

    def _string(self, node: sql.Expr) -> str | None:
        if isinstance(node, self._sql.RawString) or node.is_string:
            return str(node.this)
        if isinstance(node, self._sql.Concat):
            # Neighbouring strings are one: how the parser gives a quote that is doubled.
            parts = [self._string(part) for part in node.expressions]
            return None if None in parts else "".join(part for part in parts if part)
        return None

    def _literal(self, node: sql.Expr, column: Column) -> Any:
        """Return a literal as a Python value; strings become what the column has."""
        self._descend()
        value = self._value(node, column)
        self._depth -= 1
        return value

    def _value(self, node: sql.Expr, column: Column) -> Any:
        sql = self._sql
        if isinstance(node, sql.Null):
            return None
        if isinstance(node, sql.Boolean):
            return bool(node.this)
        if isinstance(node, sql.Neg):
            value = self._literal(node.this.unnest(), column)
            if not _is_number(value):
                raise self._refused(node)
            # The minus of decimals rounds to the digits of Python's context.
            return value.copy_negate() if isinstance(value, Decimal) else -value
        if isinstance(node, sql.HexString):
            return self._bytes(str(node.this), node)
        if isinstance(node, sql.Cast):
            return self._cast(node, column)
        text = self._string(node)
        if text is not None:
            return self._of_string(text, column, node)
        if isinstance(node, sql.Literal):
            return self._number(str(node.this), node)
        raise self._refused(node)

    def _number(self, text: str, node: sql.Expr) -> int | float | Decimal:
        try:
            if "e" in text.lower():
                return float(text)
            return Decimal(text) if "." in text else int(text)
        except (ValueError, InvalidOperation):
            raise self._refused(node) from None

    def _bytes(self, digits: str, node: sql.Expr) -> bytes:
        try:
            return bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}")
        except ValueError:
            raise self._refused(node) from None

    def _of_string(self, text: str, column: Column, node: sql.Expr) -> Any:
        kind = coercion.kind_of(column.field)
        try:
            if pat.is_date(kind):
                return parse_date(text)
            if pat.is_timestamp(kind):
                return parse_timestamp(text, kind.tz is not None, self._timezone)
            if pat.is_floating(kind):
                return float(_numeral(text))
            if pat.is_integer(kind):
                return int(_numeral(text))
            if pat.is_decimal(kind):
                return Decimal(_numeral(text))
        except (ValueError, InvalidOperation) as error:
            raise InvalidInputError(
                f"filter {_shown(self._text)}: {text!r} is no {kind} for column {column}: {error}"
            ) from None
        if coercion.is_text(column):
            return text
        raise self._refused(node)

    def _cast(self, node: sql.Cast, column: Column) -> Any:
        inner, target = node.this.unnest(), node.to.this
        if isinstance(inner, self._sql.Null):
            return None
        text = self._string(inner)
        try:
            found = (
                self._cast_number(node, inner, column)
                if text is None
                else self._cast_text(node, text, column)
            )
        except InvalidInputError:
            raise
        except (ValueError, InvalidOperation, OverflowError) as error:
            raise InvalidInputError(f"filter {_shown(self._text)}: {error}") from None
        if found is None:
            raise self._refused(node)
        return _single(found) if target == self._sql.DataType.Type.FLOAT else found

    def _cast_text(self, node: sql.Cast, text: str, column: Column) -> Any:
        """Return a string as a value of the type that a cast names; None if that is none of those which are known."""
        types, target = self._sql.DataType.Type, node.to.this
        if target == types.DATE:
            return parse_date(text)
        if target in (
            types.TIMESTAMPTZ,
            types.TIMESTAMPLTZ,
            types.TIMESTAMPNTZ,
            types.TIMESTAMP,
        ):
            kind = coercion.kind_of(column.field)
            zoned = pat.is_timestamp(kind) and kind.tz is not None
            return parse_timestamp(text, zoned, self._timezone)
        if target in (types.TEXT, types.VARCHAR):
            return text
        if target in (types.DOUBLE, types.FLOAT):
            return float(_numeral(text))
        if target == types.DECIMAL:
            return _fitting(Decimal(_numeral(text)), node.to)
        return self._integer(int(_numeral(text)), node.to) if target in self._bits else None

    def _cast_number(self, node: sql.Cast, inner: sql.Expr, column: Column) -> Any:
        """Return a number as one of the type that a cast names; None if it is none, or has no such value."""
        types, target = self._sql.DataType.Type, node.to.this
        if target == types.DECIMAL and isinstance(inner, self._sql.Literal):
            return _fitting(Decimal(str(inner.this)), node.to)
        value = self._literal(inner, column)
        if not _is_number(value):
            return None
        if target in (types.DOUBLE, types.FLOAT):
            return float(value)
        if isinstance(value, float):
            return None
        if target == types.DECIMAL:
            return _fitting(Decimal(value), node.to)
        return self._integer(value, node.to) if target in self._bits else None

    def _integer(self, value: int | Decimal, kind: sql.DataType) -> int | None:
        """Return an integer; None if a type has too few bits for it."""
        limit = 1 << self._bits[kind.this] - 1
        return value if isinstance(value, int) and -limit <= value < limit else None


def _single(value: float) -> float:
    import numpy as np

    return float(np.float32(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _numeral(text: str) -> str:
    """Return a text that may be a number for Spark, too: Python takes other digits than those of ASCII, and `1_000`.

    Raises
    ------
    ValueError
    """
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} is no number")
    return text


def _fitting(number: Decimal, kind: sql.DataType) -> Decimal | None:
    """Return a number; None if the precision and the scale of a type would round it."""
    # Newer releases of sqlglot give numbers that end in BD with their precision and scale.
    return number if _fits(number, [int(one.name) for one in kind.expressions]) else None


def _fits(number: Decimal, limits: list[int]) -> bool:
    """Tell whether a number needs no rounding for a precision and a scale, if there are any."""
    if not limits:
        return True
    precision, scale = limits[0], sum(limits[1:2])
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return False
    return -exponent <= scale and len(digits) + exponent <= precision - scale


def _written(node: sql.Expr) -> str:
    """Return an expression as Spark writes it, if it is not nested too deep for that."""
    try:
        return _shown(node.sql("spark"))
    except MemoryError:
        raise
    except Exception:
        return f"the {node.key}"


def _shown(text: str) -> str:
    return repr(text if len(text) < 200 else f"{text[:200]}...")
