"""Kernels of numbers: operators, `abs`, `floor` and `ceil`, with the overflow of Java."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates.expressions.kernels import Kernel, RowError, saturated
from lance_spark.scan.predicates.typed_values import type_name

BITS = ("&", "|", "^")
SHIFTS = ("<<", ">>", ">>>")


def _operands(arrays: Sequence[pa.Array]) -> tuple[list[npt.NDArray[Any]], npt.NDArray[np.bool_]]:
    """Return the values of arrays, 1 for null, and for each row whether no value is null."""
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
    (left, right), valid = _operands(arrays)
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
    (left, right), valid = _operands(arrays)
    zero = right == 0
    if ansi and (zero & valid).any():
        raise RowError("division by zero")
    valid &= ~zero
    right = np.where(zero, right.dtype.type(1), right)
    with np.errstate(all="ignore"):
        if op == "/":
            result = left / right
        elif pat.is_floating(dtype):
            result = np.fmod(left, right)
        else:
            # The least integer divided by -1 overflows; the remainder is 0.
            overflows = (left == np.iinfo(left.dtype).min) & (right == -1)
            if op == "div" and ansi and (overflows & valid).any():
                raise RowError("DIV overflows bigint")
            divisor = np.where(overflows, right.dtype.type(1), right)
            remainder = np.fmod(left, divisor)
            result = (left - remainder) // divisor if op == "div" else remainder
    return pa.array(result, dtype, mask=~valid)


def _bits(arrays: Sequence[pa.Array], ansi: Any, dtype: pa.DataType, op: str) -> pa.Array:
    (left, right), valid = _operands(arrays)
    kernel = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}[op]
    return pa.array(kernel(left, right), dtype, mask=~valid)


def _shifted(arrays: Sequence[pa.Array], ansi: Any, dtype: pa.DataType, op: str) -> pa.Array:
    (left, right), valid = _operands(arrays)
    size = dtype.bit_width
    # Java uses the lowest bits of the shift count.
    count = (right & (size - 1)).astype(left.dtype)
    if op == ">>>":
        unsigned = left.view(f"u{size // 8}") >> count.view(f"u{size // 8}")
        result = unsigned.view(left.dtype)
    else:
        result = left << count if op == "<<" else left >> count
    return pa.array(result, dtype, mask=~valid)


def _signed(arrays: Sequence[pa.Array], ansi: Any, dtype: pa.DataType, op: str) -> pa.Array:
    import pyarrow.compute as pc

    (array,) = arrays
    if pat.is_integer(dtype):
        low = -(1 << dtype.bit_width - 1)
        if ansi and pc.any(pc.equal(array, pa.scalar(low, dtype))).as_py():
            raise RowError(f"{op} overflows {type_name(dtype)}")
        return pc.negate(array) if op == "negative" else pc.abs(array)
    return pc.negate(array) if op == "negative" else pc.abs(array)


def _integers(arrays: Sequence[pa.Array], ansi: Any, dtype: pa.DataType, op: str) -> pa.Array:
    (values,), valid = _operands(arrays)
    rounded = np.floor(values) if op == "floor" else np.ceil(values)
    if ansi and not (np.abs(np.where(valid, rounded, 0)) < 2.0**63).all():
        raise RowError(f"{op} overflows bigint")
    return pa.array(saturated(rounded, np.int64), dtype, mask=~valid)


KERNELS: dict[str, Kernel] = {
    **{op: partial(_computed, op=op) for op in ("+", "-", "*")},
    **{op: partial(_divided, op=op) for op in ("/", "%", "div")},
    **{op: partial(_bits, op=op) for op in BITS},
    **{op: partial(_shifted, op=op) for op in SHIFTS},
    "negative": partial(_signed, op="negative"),
    "abs": partial(_signed, op="abs"),
    "positive": lambda arrays, detail, dtype: arrays[0],
    "~": lambda arrays, detail, dtype: pa.compute.bit_wise_not(arrays[0]),
    "floor": partial(_integers, op="floor"),
    "ceil": partial(_integers, op="ceil"),
}
