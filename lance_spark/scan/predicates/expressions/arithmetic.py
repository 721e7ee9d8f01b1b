"""Numbers: operators and functions of them, typed and computed as Spark does.

| operands | result |
| --- | --- |
| integers | the wider of both; ``/`` a double, ``DIV`` a bigint |
| decimals, integers beside them | a decimal with the digits that the result can have; ``+ - *`` only, at most 38 digits |
| floats, or a decimal or integer beside one | double, or float for two floats; ``/`` a double |

In ANSI mode overflow of integers and division by zero are errors. Without it integers wrap around, and division by zero is null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates.common_types import NoCommonTypeError, decimal_for, wider_type
from lance_spark.scan.predicates.expressions.casts import casted
from lance_spark.scan.predicates.expressions.node import Call, Expression, Kernel, Literal, RowError
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import MOST_DIGITS, is_number, type_name

OPERATORS = ("+", "-", "*", "/", "%", "div", "&", "|", "^", "<<", ">>", ">>>")
#: Digits of a decimal that Scala keeps where it changes the sign.
_MOST_KEPT = 34
_BITS = ("&", "|", "^")
_SHIFTS = ("<<", ">>", ">>>")


def operation(op: str, left: Expression, right: Expression, settings: SqlSettings) -> Expression:
    """Return what an operator makes of two numbers.

    Raises
    ------
    NoCommonTypeError
        Spark does not compute it, or it is not known here how.
    """
    types = [one.dtype for one in (left, right)]
    numbers = all(is_number(one) or pat.is_null(one) for one in types)
    if not numbers or all(map(pat.is_null, types)):
        raise NoCommonTypeError(
            f"{op.upper()} of {type_name(types[0])} and {type_name(types[1])} is not computed "
            "here; cast both to numbers, or leave it to DataFrame.where"
        )
    types = [
        other if pat.is_null(one) else one for one, other in zip(types, types[::-1], strict=True)
    ]
    floats, decimals = any(map(pat.is_floating, types)), any(map(pat.is_decimal, types))
    if op in (*_BITS, *_SHIFTS, "div") and (floats or decimals):
        raise NoCommonTypeError(f"{op.upper()} is computed of integers here")
    if op in _SHIFTS:
        common = types[0] if types[0].bit_width > 32 else pa.int32()
        if types[1].bit_width > 32:
            raise NoCommonTypeError(f"the number of bits of {op} has to be an int")
        return Call(
            op, (casted(left, common, settings), casted(right, pa.int32(), settings)), common
        )
    if decimals and not floats:
        return _decimal(op, left, right, types, settings)
    if op == "/":
        common = pa.float64()
    elif op == "div":
        common = pa.int64()
    else:
        common = wider_type(types[0], types[1], settings)
    both = (casted(left, common, settings), casted(right, common, settings))
    return Call(op, both, common, settings.ansi)


def _decimal(
    op: str, left: Expression, right: Expression, types: list[pa.DataType], settings: SqlSettings
) -> Expression:
    one, other = (
        _digits(side, dtype, settings) for side, dtype in zip((left, right), types, strict=True)
    )
    if op == "*":
        precision, scale = one.precision + other.precision + 1, one.scale + other.scale
    else:
        scale = max(one.scale, other.scale)
        precision = max(one.precision - one.scale, other.precision - other.scale) + scale + 1
    if op not in ("+", "-", "*") or precision > MOST_DIGITS:
        raise NoCommonTypeError(
            f"{op.upper()} of {type_name(one)} and {type_name(other)} is not computed here; cast "
            "both to double, or leave it to DataFrame.where"
        )
    both = (casted(left, one, settings), casted(right, other, settings))
    return Call(op, both, pa.decimal128(precision, scale), settings.ansi)


def _digits(side: Expression, dtype: pa.DataType, settings: SqlSettings) -> pa.DataType:
    if pat.is_decimal(dtype):
        if dtype.precision > MOST_DIGITS:
            raise NoCommonTypeError(f"Spark has no {type_name(dtype)}")
        return dtype
    written = isinstance(side, Literal) and side.typed.written and side.typed.value is not None
    if written and settings.minimum_precision:
        assert isinstance(side, Literal)
        return pa.decimal128(len(str(abs(side.typed.value))), 0)
    return decimal_for(dtype)


def negative(value: Expression, settings: SqlSettings) -> Expression:
    """Return a number with the other sign."""
    return Call("negative", (_signed_number(value, "-"),), value.dtype, settings.ansi)


def positive(value: Expression, settings: SqlSettings) -> Expression:
    """Return a number as it is."""
    return Call("positive", (_number(value, "+"),), value.dtype)


def inverse(value: Expression, settings: SqlSettings) -> Expression:
    """Return an integer with all its bits inverted."""
    if not pat.is_integer(value.dtype):
        raise NoCommonTypeError(f"~ is about integers, not about {type_name(value.dtype)}")
    return Call("~", (value,), value.dtype)


def _number(value: Expression, name: str) -> Expression:
    if not is_number(value.dtype):
        raise NoCommonTypeError(f"{name} is about numbers, not about {type_name(value.dtype)}")
    return value


def _signed_number(value: Expression, name: str) -> Expression:
    if pat.is_decimal(value.dtype) and value.dtype.precision > _MOST_KEPT:
        # Scala rounds it.
        raise NoCommonTypeError(
            f"{name} of decimals of more than {_MOST_KEPT} digits is not computed here; cast to double"
        )
    return _number(value, name)


def _abs(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return Call("abs", (_signed_number(args[0], "abs"),), args[0].dtype, settings.ansi)


def _rounded(name: str) -> Callable[[Sequence[Expression], SqlSettings], Expression]:
    def build(args: Sequence[Expression], settings: SqlSettings) -> Expression:
        dtype = _number(args[0], name).dtype
        if pat.is_decimal(dtype):
            raise NoCommonTypeError(f"{name} of decimals is not computed here; cast to double")
        if dtype.equals(pa.int64()):
            return positive(args[0], settings)
        return Call(name, (casted(args[0], pa.float64(), settings),), pa.int64(), settings.ansi)

    return build


def _mod(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return operation("%", args[0], args[1], settings)


# Kernels


def parts_of(
    arrays: Sequence[pa.Array],
) -> tuple[list[npt.NDArray[Any]], npt.NDArray[np.bool_]]:
    """Return values of arrays as NumPy has them, 1 for null, and where none of them is null."""
    valid = np.ones(len(arrays[0]), np.bool_)
    values = []
    for array in arrays:
        if array.null_count:
            valid &= array.is_valid().to_numpy(zero_copy_only=False)
        filled = array.fill_null(1) if array.null_count else array
        values.append(filled.to_numpy(zero_copy_only=False))
    return values, valid


def _computed(arrays: Sequence[pa.Array], ansi: Any, dtype: pa.DataType, op: str) -> pa.Array:
    import pyarrow.compute as pc

    if pat.is_decimal(dtype):
        kernel = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[op]
        return kernel(*arrays).cast(dtype)
    (left, right), valid = parts_of(arrays)
    with np.errstate(all="ignore"):
        result = {"+": np.add, "-": np.subtract, "*": np.multiply}[op](left, right)
        if pat.is_integer(dtype) and ansi:
            checked = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}[op]
            try:
                checked(*arrays)
            except pa.ArrowInvalid:
                raise RowError(f"{op} overflows {type_name(dtype)}") from None
    return pa.array(result, dtype, mask=~valid)


def _divided(arrays: Sequence[pa.Array], ansi: Any, dtype: pa.DataType, op: str) -> pa.Array:
    (left, right), valid = parts_of(arrays)
    zero = right == 0
    if ansi and (zero & valid).any():
        raise RowError("it divides by zero")
    valid &= ~zero
    right = np.where(zero, right.dtype.type(1), right)
    with np.errstate(all="ignore"):
        if op == "/":
            result = left / right
        elif pat.is_floating(dtype):
            result = np.fmod(left, right)
        else:
            # The least integer has no opposite; its remainder by -1 is 0.
            low = np.iinfo(left.dtype).min
            least = (left == low) & (right == -1)
            if op == "div" and ansi and (least & valid).any():
                raise RowError("DIV overflows bigint")
            divisor = np.where(least, right.dtype.type(1), right)
            rest = np.fmod(left, divisor)
            result = (left - rest) // divisor if op == "div" else rest
    return pa.array(result, dtype, mask=~valid)


def _bits(arrays: Sequence[pa.Array], ansi: Any, dtype: pa.DataType, op: str) -> pa.Array:
    (left, right), valid = parts_of(arrays)
    kernel = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}[op]
    return pa.array(kernel(left, right), dtype, mask=~valid)


def _shifted(arrays: Sequence[pa.Array], ansi: Any, dtype: pa.DataType, op: str) -> pa.Array:
    (left, right), valid = parts_of(arrays)
    size = dtype.bit_width
    # Java takes the lowest bits of the number of bits.
    count = (right & (size - 1)).astype(left.dtype)
    if op == ">>>":
        plain = left.view(f"u{size // 8}") >> count.view(f"u{size // 8}")
        result = plain.view(left.dtype)
    else:
        result = left << count if op == "<<" else left >> count
    return pa.array(result, dtype, mask=~valid)


def _kernel(kernel: Any, op: str) -> Kernel:
    def run(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
        return kernel(arrays, detail, dtype, op)

    return run


def _signed(arrays: Sequence[pa.Array], ansi: Any, dtype: pa.DataType, op: str) -> pa.Array:
    import pyarrow.compute as pc

    (array,) = arrays
    if pat.is_integer(dtype):
        low = -(1 << dtype.bit_width - 1)
        if ansi and pc.any(pc.equal(array, pa.scalar(low, dtype))).as_py():
            raise RowError(f"{op} overflows {type_name(dtype)}")
        return pc.negate(array) if op == "negative" else pc.abs(array)
    return pc.negate(array) if op == "negative" else pc.abs(array)


def _whole(arrays: Sequence[pa.Array], ansi: Any, dtype: pa.DataType, op: str) -> pa.Array:
    (values,), valid = parts_of(arrays)
    rounded = np.floor(values) if op == "floor" else np.ceil(values)
    if ansi and not (np.abs(np.where(valid, rounded, 0)) < 2.0**63).all():
        raise RowError(f"{op} overflows bigint")
    return pa.array(saturated(rounded, np.int64), dtype, mask=~valid)


def saturated(values: npt.NDArray[Any], dtype: Any) -> npt.NDArray[Any]:
    """Return floats as integers as Java casts them: NaN is 0, and what is too large is the last one."""
    info = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        # The least integer is a float, the one after the greatest too.
        result = np.where(np.isnan(values), 0, values).astype(np.float64)
        low, high = result <= float(info.min), result >= float(info.max)
        inner = np.where(low | high, 0, result).astype(dtype)
    return np.where(low, info.min, np.where(high, info.max, inner)).astype(dtype)


KERNELS: dict[str, Kernel] = {
    **{op: _kernel(_computed, op) for op in ("+", "-", "*")},
    **{op: _kernel(_divided, op) for op in ("/", "%", "div")},
    **{op: _kernel(_bits, op) for op in _BITS},
    **{op: _kernel(_shifted, op) for op in _SHIFTS},
    "negative": _kernel(_signed, "negative"),
    "abs": _kernel(_signed, "abs"),
    "positive": lambda arrays, detail, dtype: arrays[0],
    "~": lambda arrays, detail, dtype: pa.compute.bit_wise_not(arrays[0]),
    "floor": _kernel(_whole, "floor"),
    "ceil": _kernel(_whole, "ceil"),
}
#: Names, and how many arguments they take.
FUNCTIONS: dict[str, tuple[range, Callable[[Sequence[Expression], SqlSettings], Expression]]] = {
    "abs": (range(1, 2), _abs),
    "mod": (range(2, 3), _mod),
    "negative": (range(1, 2), lambda args, settings: negative(args[0], settings)),
    "positive": (range(1, 2), lambda args, settings: positive(args[0], settings)),
    "floor": (range(1, 2), _rounded("floor")),
    "ceil": (range(1, 2), _rounded("ceil")),
    "ceiling": (range(1, 2), _rounded("ceil")),
}
