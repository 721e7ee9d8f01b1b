"""Operators and functions of computed values: between the operands of the binder and the expressions of `scan.expressions`."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates.common_types import NoCommonTypeError, comparison_type, list_type
from lance_spark.scan.predicates.comparison import Op
from lance_spark.scan.predicates.expressions import arithmetic, dates, strings
from lance_spark.scan.predicates.expressions.casts import casted
from lance_spark.scan.predicates.expressions.conditionals import truth
from lance_spark.scan.predicates.expressions.functions import FUNCTIONS
from lance_spark.scan.predicates.expressions.intervals import Interval
from lance_spark.scan.predicates.expressions.node import (
    Call,
    ColumnValue,
    Expression,
    Literal,
    Truth,
    as_expression,
    folded,
)
from lance_spark.scan.predicates.expressions.value_predicates import CompareValues, ValueIsNull
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.times import tzinfo_of
from lance_spark.scan.predicates.tree import And, Column, Constant, Or, Predicate
from lance_spark.scan.predicates.typed_values import (
    CLOCK,
    INSTANT,
    MOST_DIGITS,
    Typed,
    is_number,
    type_name,
)

#: A part of a predicate. Computed booleans are predicates.
Operand = Column | Typed | Predicate | Expression | Interval

_ORDERED: tuple[Op, ...] = ("<", "<=", ">", ">=")
_INT64 = range(-(1 << 63), 1 << 63)


def value_of(operand: Operand) -> Expression:
    """Return an operand as an expression.

    Raises
    ------
    NoCommonTypeError
        It is an interval of years or months, or a column of a type that Spark does not have.
    """
    if isinstance(operand, Interval):
        operand = operand.typed()
    expression = as_expression(operand)
    dtype = expression.dtype
    if pat.is_decimal(dtype) and dtype.precision > MOST_DIGITS:
        raise NoCommonTypeError(f"there are no expressions of {type_name(dtype)}")
    return expression


def operand_of(expression: Expression) -> Operand:
    """Return an expression as the simplest operand: a literal, a column, or a condition where it is one.

    Raises
    ------
    EvaluationError
        It is one of literals, which has no value.
    """
    result = folded(expression)
    if isinstance(result, Literal):
        return result.typed
    if isinstance(result, ColumnValue):
        return result.column
    if isinstance(result, Truth):
        return result.predicate
    return truth(result) if pat.is_boolean(result.dtype) else result


def operate(op: str, operands: Sequence[Operand], settings: SqlSettings) -> Operand:
    """Return what an operator of `tree.Apply` makes of one or two operands.

    Raises
    ------
    NoCommonTypeError, CastError, EvaluationError
    """
    if len(operands) == 1:
        if isinstance(operands[0], Interval) and op in ("negative", "positive"):
            return operands[0].negated() if op == "negative" else operands[0]
        unary = {
            "negative": arithmetic.negative,
            "positive": arithmetic.positive,
            "~": arithmetic.inverse,
        }
        value = value_of(operands[0])
        return operand_of(value if pat.is_null(value.dtype) else unary[op](value, settings))
    left, right = operands
    if op == "||":
        return operand_of(strings.concat([value_of(left), value_of(right)], settings))
    if isinstance(left, Interval) and op == "+":
        left, right = right, left
    if isinstance(right, Interval) and op in ("+", "-"):
        by = right if op == "+" else right.negated()
        return operand_of(dates.shifted(value_of(left), by, settings))
    one, other = value_of(left), value_of(right)
    if pat.is_date(one.dtype) and op in ("+", "-") and pat.is_integer(other.dtype):
        return operand_of(dates.plus_days(one, other, 1 if op == "+" else -1))
    if pat.is_date(other.dtype) and op == "+" and pat.is_integer(one.dtype):
        return operand_of(dates.plus_days(other, one, 1))
    return operand_of(arithmetic.operation(op, one, other, settings))


def compare(op: Op, left: Operand, right: Operand, settings: SqlSettings) -> Predicate:
    """Return the condition that two operands stand in an order, both computed for each row.

    Raises
    ------
    NoCommonTypeError, CastError
    """
    one, other = value_of(left), value_of(right)
    bound = _integer_bound(one, op, other)
    if bound is not None:
        return bound
    common = comparison_type(_side(one), _side(other), settings)
    if pat.is_null(common):
        return Constant(None)
    one, other = _both(one, other, common, settings)
    return CompareValues(one, op, other)


def _both(
    one: Expression, other: Expression, common: pa.DataType, settings: SqlSettings
) -> tuple[Expression, Expression]:
    """Return both sides of a comparison in their common type.

    Raises
    ------
    NoCommonTypeError
        One is a timestamp without a zone beside a literal with one: Spark compares what clocks show
        then, if the literal survives the cast to it and back, which is not the order of instants
        where clocks are put forward.
    """
    sides = casted(one, common, settings), casted(other, common, settings)
    if common.equals(INSTANT) and any(isinstance(side, Literal) for side in sides):
        cast = [side for side in sides if isinstance(side, Call) and side.name == "cast"]
        clocks = any(side.args[0].dtype.equals(CLOCK) for side in cast)
        if clocks and not _is_fixed(settings.time_zone):
            raise NoCommonTypeError(
                "a timestamp_ntz is not compared with a timestamp of a zone whose clocks change; write TIMESTAMP_NTZ '...'"
            )
    return sides


def _is_fixed(zone: str | None) -> bool:
    """Tell whether clocks of a zone are never changed."""
    try:
        return isinstance(tzinfo_of(zone), datetime.timezone)
    except ValueError:
        return False


def _side(value: Expression) -> pa.DataType | Typed:
    return value.typed if isinstance(value, Literal) else value.dtype


def _integer_bound(one: Expression, op: Op, other: Expression) -> Predicate | None:
    """Return the order of integers to a decimal that is a literal, which Spark rounds to an integer."""
    if isinstance(one, Literal) and not isinstance(other, Literal):
        flipped: dict[str, Op] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
        return _integer_bound(other, flipped[op], one) if op in _ORDERED else None
    if not (isinstance(other, Literal) and other.typed.written and op in _ORDERED):
        return None
    if not pat.is_integer(one.dtype) or not pat.is_decimal(other.dtype):
        return None
    value = other.typed.value
    above = value > _INT64.stop - 1
    if above or value < _INT64.start:
        # Spark answers this before it looks at rows, so that null is no exception.
        return Constant(above == (op in ("<", "<=")))
    whole = math.floor(value) if op in (">", "<=") else math.ceil(value)
    wide = casted(one, pa.int64(), SqlSettings())
    return CompareValues(wide, op, Literal(Typed(whole, pa.int64())))


def null_safe_equal(left: Operand, right: Operand, settings: SqlSettings) -> Predicate:
    """Return the condition that two operands are equal, or both null.

    Raises
    ------
    NoCommonTypeError, CastError
    """
    one, other = value_of(left), value_of(right)
    common = comparison_type(_side(one), _side(other), settings)
    if pat.is_null(common):
        return Constant(True)
    one, other = _both(one, other, common, settings)
    valid = And((ValueIsNull(one, True), ValueIsNull(other, True), CompareValues(one, "==", other)))
    return Or((And((ValueIsNull(one), ValueIsNull(other))), valid))


def is_in(value: Operand, others: Sequence[Operand], settings: SqlSettings) -> Predicate:
    """Return the condition that an operand equals one of some.

    Raises
    ------
    NoCommonTypeError, CastError
    """
    one, *rest = (value_of(operand) for operand in (value, *others))
    common = list_type([one.dtype, *(other.dtype for other in rest)], settings, strings=True)
    if pat.is_null(common):
        return Constant(None)
    pairs = [_both(one, other, common, settings) for other in rest]
    parts = [CompareValues(left, "==", right) for left, right in pairs]
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def is_nan(operand: Operand, settings: SqlSettings) -> Predicate:
    """Return the condition that a number is NaN; false where it is null.

    Raises
    ------
    NoCommonTypeError
        It is not a number.
    """
    value = value_of(operand)
    if not is_number(value.dtype):
        raise NoCommonTypeError(f"isnan is about numbers, not about {type_name(value.dtype)}")
    nan = Literal(Typed(math.nan, pa.float64()))
    wide = casted(value, pa.float64(), settings)
    return And((ValueIsNull(wide, inverted=True), CompareValues(wide, "==", nan)))


def call(name: str, operands: Sequence[Operand], settings: SqlSettings) -> Operand:
    """Return what a function of the table makes of operands.

    Raises
    ------
    NoCommonTypeError, CastError, EvaluationError
        Among others, where it takes another number of arguments.
    """
    counts, builder = FUNCTIONS[name]
    if len(operands) not in counts:
        raise NoCommonTypeError(f"{name} takes another number of arguments")
    return operand_of(builder([value_of(one) for one in operands], settings))
