"""Values compared and matched as Spark does it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError

Op = Literal["==", "!=", "<", "<=", ">", ">="]
How = Literal["starts", "ends", "contains", "like"]

#: Arrow's kernel of each comparison.
KERNELS: dict[str, str] = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def column_at(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    """Return a column of a batch, or a child of struct columns by the names down to it; null where a struct is."""
    array = batch.column(batch.schema.get_field_index(path[0]))
    for name in path[1:]:
        array = array.flatten()[array.type.get_field_index(name)]
    return array


def compared(left: pa.Array, op: Op, right: pa.Array | pa.Scalar) -> pa.BooleanArray:
    """Compare values as Spark does: NaN equals NaN and is greater than everything else, zeros are equal.

    Parameters
    ----------
    left : pa.Array
    op : str
    right : pa.Array or pa.Scalar
        Of the same type.

    Returns
    -------
    pa.BooleanArray
        Null where either is null.
    """
    import pyarrow.compute as pc

    if pat.is_fixed_size_binary(left.type):
        left, right = left.cast(pa.binary()), right.cast(pa.binary())
    met = pc.call_function(KERNELS[op], [left, right])
    if not pat.is_floating(left.type):
        return met
    if isinstance(right, pa.Scalar) and not is_nan(right):
        # What NaN is to a number: greater, and another one.
        return pc.or_(met, pc.is_nan(left)) if op in (">", ">=") else met
    one, other = pc.is_nan(left), pc.is_nan(right)
    if op in ("==", "!="):
        both = pc.and_(one, other)
        return pc.or_(met, both) if op == "==" else pc.and_(met, pc.invert(both))
    if op in (">", "<="):
        greater = pc.and_(one, pc.invert(other))
        met = pc.or_(pc.greater(left, right), greater)
        return met if op == ">" else pc.invert(met)
    less = pc.or_(pc.less(left, right), pc.and_(pc.invert(one), other))
    return less if op == "<" else pc.invert(less)


def widened(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return values as a wider type has them: decimals as the doubles that are nearest.

    Raises
    ------
    InvalidInputError
        A date or timestamp is too far away for the other type.
    """
    if pat.is_decimal(array.type) and pat.is_floating(dtype):
        # Arrow divides doubles, and is one off now and then; what reads text rounds correctly.
        return array.cast(pa.string()).cast(dtype)
    if not pat.is_temporal(dtype):
        return array.cast(dtype, safe=False)
    try:
        return array.cast(dtype)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"filter: a value of {array.type} cannot be compared as {dtype}: {error}"
        ) from None


def exact_ticks(array: pa.Array) -> pa.Array:
    """Return dates or timestamps as nanoseconds since 1970, in a type that has room for all of them."""
    import pyarrow.compute as pc

    if pat.is_date(array.type):
        array = array.cast(pa.timestamp("s"))
    factor = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[array.type.unit]
    ticks = array.cast(pa.int64()).cast(pa.decimal128(19, 0))
    return pc.multiply(ticks, pa.scalar(factor, pa.decimal128(10, 0)))


def like_regex(pattern: str, escape: str = "\\") -> tuple[How, str]:
    """Translate a pattern of ``LIKE``.

    Parameters
    ----------
    pattern : str
        ``_`` is any character, ``%`` any number of them.
    escape : str
        One character, before which and before ``_`` and ``%`` it takes their meaning away.

    Returns
    -------
    how, text
        For `Match`.

    Raises
    ------
    ValueError
        The escape character ends the pattern, or stands before another character.
    """
    parts: list[str | None] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("_", "%", escape):
                raise ValueError(f"{escape!r} has to stand before _, % or itself in {pattern!r}")
            parts.append(pattern[at])
        else:
            parts.append(None if char == "%" else "" if char == "_" else char)
        at += 1
    inner = parts[1:-1] if len(parts) > 1 else []
    if all(inner) or not inner:
        text = "".join(part for part in parts if part)
        first, last = (parts[0], parts[-1]) if parts else ("x", "x")
        if first is None and last is None and len(parts) > 1:
            return "contains", text
        if last is None and first:
            return "starts", text
        if first is None and last:
            return "ends", text
    found = [".*" if part is None else re.escape(part) if part else "." for part in parts]
    return "like", f"(?s)\\A{''.join(found)}\\z"


def is_nan(value: Any) -> bool:
    """Tell whether a scalar is NaN."""
    return bool(pat.is_floating(value.type) and value.is_valid and value.as_py() != value.as_py())


def with_one_zero(array: pa.Array) -> pa.Array:
    """Return floats with one zero, and one NaN: kernels that hash tell the signs apart."""
    if not pat.is_floating(array.type):
        return array
    import pyarrow.compute as pc

    array = pc.if_else(pc.equal(array, 0.0), pa.scalar(0.0, array.type), array)
    return pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), array)
