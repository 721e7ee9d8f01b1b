"""Operators and functions of numbers, with the result types of Spark.

| operands | type of the result |
| --- | --- |
| integers | the wider type; double for ``/``, bigint for ``DIV`` |
| decimals, or a decimal and an integer | a decimal with all digits of the result |
| two floats | float; double for ``/`` |
| a float or double and another number | double |

Decimals have ``+``, ``-`` and ``*`` only, up to 38 digits. In ANSI mode integer overflow and
division by zero are errors. Otherwise integers wrap around, and division by zero is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates.common_types import NoCommonTypeError, decimal_for, wider_type
from lance_spark.scan.predicates.expressions.casts import casted
from lance_spark.scan.predicates.expressions.kernels.arithmetic import BITS, SHIFTS
from lance_spark.scan.predicates.expressions.node import Builder, Call, Expression, Literal
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import MOST_DIGITS, is_number, type_name

#: Scala rounds a decimal of more digits when it changes the sign.
_MAX_SIGNED_DIGITS = 34


def operation(op: str, left: Expression, right: Expression, settings: SqlSettings) -> Expression:
    """Return the result of an operator for two numbers.

    Raises NoCommonTypeError: Spark does not support the types, or this package does not.
    """
    types = [left.dtype, right.dtype]
    are_numbers = all(is_number(dtype) or pat.is_null(dtype) for dtype in types)
    if not are_numbers or all(map(pat.is_null, types)):
        raise NoCommonTypeError(
            f"{op.upper()} of {type_name(types[0])} and {type_name(types[1])} is not computed "
            "here; cast both to numbers, or leave it to DataFrame.where"
        )
    # A null takes the type of the other operand.
    types = [
        other_type if pat.is_null(dtype) else dtype
        for dtype, other_type in zip(types, types[::-1], strict=True)
    ]
    has_floats, has_decimals = any(map(pat.is_floating, types)), any(map(pat.is_decimal, types))
    if op in (*BITS, *SHIFTS, "div") and (has_floats or has_decimals):
        raise NoCommonTypeError(f"{op.upper()} supports only integers here")
    if op in SHIFTS:
        common = types[0] if types[0].bit_width > 32 else pa.int32()
        if types[1].bit_width > 32:
            raise NoCommonTypeError(f"the number of bits of {op} must be an int")
        return Call(
            op, (casted(left, common, settings), casted(right, pa.int32(), settings)), common
        )
    if has_decimals and not has_floats:
        return _decimal(op, left, right, types, settings)
    if op == "/":
        common = pa.float64()
    elif op == "div":
        common = pa.int64()
    else:
        common = wider_type(types[0], types[1], settings)
    operands = (casted(left, common, settings), casted(right, common, settings))
    return Call(op, operands, common, settings.ansi)


def _decimal(
    op: str, left: Expression, right: Expression, types: list[pa.DataType], settings: SqlSettings
) -> Expression:
    a, b = (
        _decimal_type(side, dtype, settings)
        for side, dtype in zip((left, right), types, strict=True)
    )
    if op == "*":
        precision, scale = a.precision + b.precision + 1, a.scale + b.scale
    else:
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    if op not in ("+", "-", "*") or precision > MOST_DIGITS:
        raise NoCommonTypeError(
            f"{op.upper()} of {type_name(a)} and {type_name(b)} is not computed here; cast both "
            "to double, or leave it to DataFrame.where"
        )
    operands = (casted(left, a, settings), casted(right, b, settings))
    return Call(op, operands, pa.decimal128(precision, scale), settings.ansi)


def _decimal_type(side: Expression, dtype: pa.DataType, settings: SqlSettings) -> pa.DataType:
    """Return the decimal type of an operand beside a decimal."""
    if pat.is_decimal(dtype):
        if dtype.precision > MOST_DIGITS:
            raise NoCommonTypeError(f"Spark does not have the type {type_name(dtype)}")
        return dtype
    if (
        isinstance(side, Literal)
        and side.typed.written
        and side.typed.value is not None
        and settings.minimum_precision
    ):
        return pa.decimal128(len(str(abs(side.typed.value))), 0)
    return decimal_for(dtype)


def negative(value: Expression, settings: SqlSettings) -> Expression:
    """Return the negative of a number."""
    return Call("negative", (_signed_number(value, "-"),), value.dtype, settings.ansi)


def positive(value: Expression, settings: SqlSettings) -> Expression:
    """Return a number as it is."""
    return Call("positive", (_number(value, "+"),), value.dtype)


def inverse(value: Expression, settings: SqlSettings) -> Expression:
    """Return an integer with all its bits inverted."""
    if not pat.is_integer(value.dtype):
        raise NoCommonTypeError(f"~ takes an integer, not {type_name(value.dtype)}")
    return Call("~", (value,), value.dtype)


def _number(value: Expression, name: str) -> Expression:
    if not is_number(value.dtype):
        raise NoCommonTypeError(f"{name} takes a number, not {type_name(value.dtype)}")
    return value


def _signed_number(value: Expression, name: str) -> Expression:
    if pat.is_decimal(value.dtype) and value.dtype.precision > _MAX_SIGNED_DIGITS:
        raise NoCommonTypeError(
            f"{name} of decimals of more than {_MAX_SIGNED_DIGITS} digits is not computed here; "
            "cast to double"
        )
    return _number(value, name)


def _abs(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return Call("abs", (_signed_number(args[0], "abs"),), args[0].dtype, settings.ansi)


def _rounded(name: str, args: Sequence[Expression], settings: SqlSettings) -> Expression:
    dtype = _number(args[0], name).dtype
    if pat.is_decimal(dtype):
        raise NoCommonTypeError(f"{name} of decimals is not computed here; cast to double")
    if dtype.equals(pa.int64()):
        return positive(args[0], settings)
    return Call(name, (casted(args[0], pa.float64(), settings),), pa.int64(), settings.ansi)


#: The possible numbers of arguments and the builder of each function.
FUNCTIONS: dict[str, tuple[range, Builder]] = {
    "abs": (range(1, 2), _abs),
    "mod": (range(2, 3), lambda args, settings: operation("%", args[0], args[1], settings)),
    "negative": (range(1, 2), lambda args, settings: negative(args[0], settings)),
    "positive": (range(1, 2), lambda args, settings: positive(args[0], settings)),
    "floor": (range(1, 2), partial(_rounded, "floor")),
    "ceil": (range(1, 2), partial(_rounded, "ceil")),
    "ceiling": (range(1, 2), partial(_rounded, "ceil")),
}
