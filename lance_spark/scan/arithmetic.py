"""Arithmetic on literals, as Spark types it and computes it in ANSI mode.

| operands | result |
| --- | --- |
| integers | the wider of both; ``/`` a double, ``DIV`` a bigint |
| decimals, integers beside them | a decimal with the digits that the result can have; ``+ - *`` only |
| floats, or a decimal or integer beside one | double, or float for two floats |
| strings | ``||`` only |

What overflows, and what is divided by zero, is an error.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.casts import cast
from lance_spark.scan.common_types import decimal_for, wider_type
from lance_spark.scan.numbers import decimal_of, to_float32
from lance_spark.scan.settings import SqlSettings
from lance_spark.scan.typed import MOST_DIGITS, Typed, is_number, is_text, type_name

_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


class NoValueError(ValueError):
    """An expression of literals has no value, or none that is computed here."""


def negative(literal: Typed) -> Typed:
    """Return a number with the other sign.

    Raises
    ------
    NoValueError
        It is not a number, or the least integer of its type.
    """
    value, dtype = literal.value, literal.dtype
    if value is None:
        return Typed(None, dtype)
    if not is_number(dtype):
        raise NoValueError(f"there is no negative of a literal of type {type_name(dtype)}")
    if pat.is_decimal(dtype):
        # The minus of decimals rounds to the digits of Python's context.
        return Typed(value.copy_negate(), dtype)
    return Typed(-value, dtype) if pat.is_floating(dtype) else _integer(-value, dtype)


def positive(literal: Typed) -> Typed:
    """Return a number as it is.

    Raises
    ------
    NoValueError
        It is not a number.
    """
    if literal.value is not None and not is_number(literal.dtype):
        raise NoValueError(f"a literal of type {type_name(literal.dtype)} has no sign")
    return Typed(literal.value, literal.dtype)


def inverse(literal: Typed) -> Typed:
    """Return an integer with all its bits inverted.

    Raises
    ------
    NoValueError
        It is not an integer.
    """
    if not pat.is_integer(literal.dtype):
        raise NoValueError(f"~ is about integers, not about {type_name(literal.dtype)}")
    return Typed(None if literal.value is None else ~literal.value, literal.dtype)


def arithmetic(op: str, left: Typed, right: Typed, settings: SqlSettings) -> Typed:
    """Return what an operator makes of two literals.

    Parameters
    ----------
    op : str
        As `sql.tree.Apply` has it.
    left, right : Typed
    settings : SqlSettings

    Raises
    ------
    NoValueError, CastError, NoCommonTypeError
    """
    types = left.dtype, right.dtype
    if op == "||" and all(is_text(one) for one in types):
        both = left.value is not None and right.value is not None
        return Typed(left.value + right.value if both else None, pa.string())
    if op not in ("+", "-", "*", "/", "%", "div") or not all(is_number(one) for one in types):
        raise NoValueError(
            f"{op.upper()} of literals of type {type_name(types[0])} and {type_name(types[1])} is "
            "not computed here; write the result"
        )
    if left.value is None or right.value is None:
        return Typed(None, wider_type(*types, settings))
    if not settings.ansi:
        raise NoValueError("arithmetic is computed here in ANSI mode only; write the result")
    if any(pat.is_floating(one) for one in types) or (
        op == "/" and not any(pat.is_decimal(one) for one in types)
    ):
        common = pa.float64() if op == "/" else wider_type(*types, settings)
        if all(pat.is_float32(one) for one in types):
            common = pa.float64() if op == "/" else pa.float32()
        return _floats(op, cast(left, common, settings), cast(right, common, settings))
    if any(pat.is_decimal(one) for one in types):
        return _decimals(op, left, right, settings)
    common = pa.int64() if op == "div" else wider_type(*types, settings)
    return _integers(op, left.value, right.value, common)


def _floats(op: str, left: Typed, right: Typed) -> Typed:
    one, other = left.value, right.value
    if op in _PLAIN:
        found = _PLAIN[op](one, other)
    elif op == "div" or other == 0:
        raise NoValueError("DIV is about integers" if op == "div" else "it divides by zero")
    elif op == "/":
        found = one / other
    elif math.isinf(one) or math.isnan(one) or math.isnan(other):
        found = math.nan
    else:
        found = math.fmod(one, other)
    single = pat.is_float32(left.dtype)
    # Rounding a double once more gives the float that rounding at once would.
    return Typed(to_float32(found) if single else found, left.dtype)


def _integers(op: str, left: int, right: int, dtype: pa.DataType) -> Typed:
    if op in _PLAIN:
        return _integer(_PLAIN[op](left, right), dtype)
    if right == 0:
        raise NoValueError("it divides by zero")
    # Java rounds towards zero.
    whole = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return _integer(whole if op == "div" else left - whole * right, dtype)


def _integer(value: int, dtype: pa.DataType) -> Typed:
    limit = 1 << dtype.bit_width - 1
    if not -limit <= value < limit:
        raise NoValueError(f"{value} does not fit {type_name(dtype)}")
    return Typed(value, dtype)


def _decimals(op: str, left: Typed, right: Typed, settings: SqlSettings) -> Typed:
    one, other = _digits(left, settings), _digits(right, settings)
    if op == "*":
        precision, scale = one.precision + other.precision + 1, one.scale + other.scale
    else:
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
    if op not in _PLAIN or precision > MOST_DIGITS:
        raise NoValueError(
            f"{op.upper()} of {type_name(one)} and {type_name(other)} is not computed here; write "
            "the result"
        )
    exact = _PLAIN[op](Fraction(left.value), Fraction(right.value))
    return Typed(decimal_of(int(exact * 10**scale), scale), pa.decimal128(precision, scale))


def _digits(literal: Typed, settings: SqlSettings) -> pa.DataType:
    if pat.is_decimal(literal.dtype):
        return literal.dtype
    if literal.written and settings.minimum_precision:
        return pa.decimal128(len(str(abs(literal.value))), 0)
    return decimal_for(literal.dtype)
