"""Operators and functions of computed values: from operands of the binder to expressions."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.predicates import coercion
from lance_spark.predicates.coercion import NoCommonTypeError, comparison_type, list_type
from lance_spark.predicates.comparison import FLIPPED, Op
from lance_spark.predicates.expressions import functions
from lance_spark.predicates.expressions.functions import (
    CompareValues,
    Interval,
    InValues,
    ValueIsNull,
    documents_of,
)
from lance_spark.predicates.expressions.node import (
    Call,
    ColumnValue,
    Expression,
    Literal,
    Truth,
    as_expression,
    casted,
    folded,
)
from lance_spark.predicates.sql_settings import SqlSettings
from lance_spark.predicates.times import tzinfo_of
from lance_spark.predicates.tree import And, Column, Constant, Or, Predicate
from lance_spark.predicates.typed_literals import (
    CLOCK,
    INSTANT,
    MOST_DIGITS,
    Typed,
    is_number,
    type_name,
)

#: A bound part of a predicate. Computed booleans are `Predicate`s.
Operand = Column | Typed | Predicate | Expression | Interval

#: The possible numbers of arguments and the builder of each function, by its name in SQL.
FUNCTIONS = {
    **functions.NUMBER_FUNCTIONS,
    **functions.STRING_FUNCTIONS,
    **functions.DATE_FUNCTIONS,
    **functions.CONDITIONAL_FUNCTIONS,
}
_ORDERED: tuple[Op, ...] = ("<", "<=", ">", ">=")
_INT64 = range(-(1 << 63), 1 << 63)


def value_of(operand: Operand) -> Expression:
    """Return an operand as an expression.

    Raises NoCommonTypeError: the operand is an interval of years or months, or a column of a type
    that Spark does not have.
    """
    if isinstance(operand, Interval):
        operand = operand.typed()
    expression = as_expression(operand)
    dtype = expression.dtype
    if pat.is_decimal(dtype) and dtype.precision > MOST_DIGITS:
        raise NoCommonTypeError(f"expressions of type {type_name(dtype)} are not supported")
    return expression


def operand_of(expression: Expression) -> Operand:
    """Return an expression as the simplest operand: a literal, a column or a condition if possible.

    Raises EvaluationError: the expression has only literals, and its evaluation fails.
    """
    result = folded(expression)
    if isinstance(result, Literal):
        return result.typed
    if isinstance(result, ColumnValue):
        return result.column
    if isinstance(result, Truth):
        return result.predicate
    return functions.truth(result) if pat.is_boolean(result.dtype) else result


def as_predicate(value: Expression) -> Predicate:
    """Return a boolean expression as a condition."""
    operand = operand_of(value)
    if isinstance(operand, Typed):
        return Constant(operand.value)
    assert isinstance(operand, Predicate)
    return operand


def as_typed(operand: Operand) -> Operand:
    """Return an interval as a literal for comparisons, and other operands as they are.

    Raises NoCommonTypeError: it is an interval of years or months.
    """
    return operand.typed() if isinstance(operand, Interval) else operand


def operate(op: str, operands: Sequence[Operand], settings: SqlSettings) -> Operand:
    """Return the result of an operator of `syntax.Apply` for one or two operands.

    Raises NoCommonTypeError, CastError, EvaluationError.
    """
    if len(operands) == 1:
        if isinstance(operands[0], Interval) and op in ("negative", "positive"):
            return operands[0].negated() if op == "negative" else operands[0]
        unary = {
            "negative": functions.negative,
            "positive": functions.positive,
            "~": functions.inverse,
        }
        value = value_of(operands[0])
        return operand_of(value if pat.is_null(value.dtype) else unary[op](value, settings))
    left, right = operands
    if op == "||":
        return operand_of(functions.concat([value_of(left), value_of(right)], settings))
    if isinstance(left, Interval) and op == "+":
        left, right = right, left
    if isinstance(right, Interval) and op in ("+", "-"):
        interval = right if op == "+" else right.negated()
        return operand_of(functions.shifted(value_of(left), interval, settings))
    a, b = value_of(left), value_of(right)
    if pat.is_date(a.dtype) and op in ("+", "-") and pat.is_integer(b.dtype):
        return operand_of(functions.plus_days(a, b, 1 if op == "+" else -1))
    if pat.is_date(b.dtype) and op == "+" and pat.is_integer(a.dtype):
        return operand_of(functions.plus_days(b, a, 1))
    return operand_of(functions.operation(op, a, b, settings))


def compare(op: Op, left: Operand, right: Operand, settings: SqlSettings) -> Predicate:
    """Return the comparison of two operands, both computed for each row.

    Raises NoCommonTypeError, CastError.
    """
    a, b = value_of(left), value_of(right)
    bound = _integer_bound(a, op, b)
    if bound is not None:
        return bound
    common = comparison_type(_literal_or_type(a), _literal_or_type(b), settings)
    if pat.is_null(common):
        return Constant(None)
    a, b = _in_common_type(a, b, common, settings)
    return CompareValues(a, op, b)


def _in_common_type(
    left: Expression, right: Expression, common: pa.DataType, settings: SqlSettings
) -> tuple[Expression, Expression]:
    """Return both sides of a comparison, cast to their common type.

    Raises NoCommonTypeError: a timestamp without a zone is compared with a literal that has a zone.
    """
    sides = casted(left, common, settings), casted(right, common, settings)
    if common.equals(INSTANT) and any(isinstance(side, Literal) for side in sides):
        casts = [side for side in sides if isinstance(side, Call) and side.name == "cast"]
        has_local = any(side.args[0].dtype.equals(CLOCK) for side in casts)
        # Spark compares local times if the literal survives the cast to a local time and back. That
        # is not the order of instants when clocks are put forward.
        if has_local and not _is_fixed(settings.time_zone):
            raise NoCommonTypeError(
                "a timestamp_ntz cannot be compared with a timestamp of a zone whose clocks change;"
                " write TIMESTAMP_NTZ '...'"
            )
    return sides


def _is_fixed(zone: str | None) -> bool:
    """Return whether the offset of a zone never changes."""
    try:
        return isinstance(tzinfo_of(zone), datetime.timezone)
    except ValueError:
        return False


def _literal_or_type(value: Expression) -> pa.DataType | Typed:
    return value.typed if isinstance(value, Literal) else value.dtype


def _integer_bound(left: Expression, op: Op, right: Expression) -> Predicate | None:
    """Return the comparison of integers with a decimal literal, which Spark rounds to an integer.

    Returns None for other operands.
    """
    if isinstance(left, Literal) and not isinstance(right, Literal):
        return _integer_bound(right, FLIPPED[op], left) if op in _ORDERED else None
    if not (isinstance(right, Literal) and right.typed.written and op in _ORDERED):
        return None
    if not pat.is_integer(left.dtype) or not pat.is_decimal(right.dtype):
        return None
    value = right.typed.value
    is_above = value > _INT64.stop - 1
    if is_above or value < _INT64.start:
        # Spark decides this while it plans, so that the result is the same for null.
        return Constant(is_above == (op in ("<", "<=")))
    integer = math.floor(value) if op in (">", "<=") else math.ceil(value)
    wide = casted(left, pa.int64(), SqlSettings())
    return CompareValues(wide, op, Literal(Typed(integer, pa.int64())))


def null_safe_equal(left: Operand, right: Operand, settings: SqlSettings) -> Predicate:
    """Return the condition that two operands are equal, or both null.

    Raises NoCommonTypeError, CastError.
    """
    a, b = value_of(left), value_of(right)
    common = comparison_type(_literal_or_type(a), _literal_or_type(b), settings)
    if pat.is_null(common):
        return Constant(True)
    a, b = _in_common_type(a, b, common, settings)
    both_valid = And((ValueIsNull(a, True), ValueIsNull(b, True), CompareValues(a, "==", b)))
    return Or((And((ValueIsNull(a), ValueIsNull(b))), both_valid))


def is_in(value: Operand, items: Sequence[Operand], settings: SqlSettings) -> Predicate:
    """Return the condition that an operand equals one of some other operands.

    Raises NoCommonTypeError, CastError.
    """
    first, *item_expressions = (value_of(operand) for operand in (value, *items))
    common = list_type(
        [first.dtype, *(item.dtype for item in item_expressions)], settings, strings=True
    )
    if pat.is_null(common):
        return Constant(None)
    pairs = [_in_common_type(first, item, common, settings) for item in item_expressions]
    literals = [right.typed.value for _, right in pairs if isinstance(right, Literal)]
    if documents_of(pairs[0][0]) is not None and len(literals) == len(pairs):
        values = pa.array([value for value in literals if value is not None], common)
        return InValues(pairs[0][0], values, has_null=None in literals)
    parts = [CompareValues(left, "==", right) for left, right in pairs]
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


def is_nan(operand: Operand, settings: SqlSettings) -> Predicate:
    """Return the condition that a number is NaN; false if it is null.

    Raises NoCommonTypeError: the operand is not a number.
    """
    value = value_of(operand)
    if not is_number(value.dtype):
        raise NoCommonTypeError(f"isnan takes a number, not {type_name(value.dtype)}")
    nan = Literal(Typed(math.nan, pa.float64()))
    wide = casted(value, pa.float64(), settings)
    return And((ValueIsNull(wide, inverted=True), CompareValues(wide, "==", nan)))


def call(name: str, operands: Sequence[Operand], settings: SqlSettings) -> Operand:
    """Return the result of a function of `FUNCTIONS` for operands.

    Raises CastError, EvaluationError. Raises NoCommonTypeError: the number or the types of the
    arguments are wrong.
    """
    counts, builder = FUNCTIONS[name]
    if len(operands) not in counts:
        raise NoCommonTypeError(f"wrong number of arguments of {name}")
    return operand_of(builder([value_of(operand) for operand in operands], settings))


def dtype_of(column: Column) -> pa.DataType:
    """Return the type of a column, after its cast if it has one."""
    return column.cast_type or coercion.dtype_of(column.field)


def is_condition(operand: Operand) -> bool:
    """Return whether an operand is a condition, a boolean column or literal, or null."""
    if isinstance(operand, Typed):
        return bool(pat.is_boolean(operand.dtype) or pat.is_null(operand.dtype))
    if isinstance(operand, Column):
        return bool(pat.is_boolean(dtype_of(operand)))
    return isinstance(operand, Predicate)
