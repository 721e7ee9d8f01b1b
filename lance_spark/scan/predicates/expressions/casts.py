"""Casts of expressions: the pairs of types that are supported, and Spark's rules for literals."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates import literal_casts as literals
from lance_spark.scan.predicates.common_types import NoCommonTypeError
from lance_spark.scan.predicates.expressions.kernels.casts import LONG_DIGITS, is_small
from lance_spark.scan.predicates.expressions.node import Call, Expression, Literal, folded
from lance_spark.scan.predicates.literal_casts import FailedCastError
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import (
    TIME,
    Typed,
    is_bytes,
    is_datetime,
    is_number,
    is_text,
    type_name,
)

#: Java writes decimals up to this scale without an exponent.
_MAX_PLAIN_SCALE = 6


def casted(
    value: Expression, dtype: pa.DataType, settings: SqlSettings, *, null_if_failed: bool = False
) -> Expression:
    """Return a value cast to another type.

    - `dtype`: One of the table in `typed_values`.
    - `null_if_failed`: Whether it is a ``TRY_CAST``: it has the rules of ANSI mode, with null
      instead of an error.

    Raises NoCommonTypeError: Spark does not cast between these types, or this package does not.
    Raises CastError: the cast of a literal fails.
    """
    source = value.dtype
    if source.equals(dtype):
        return value
    strict = replace(settings, ansi=settings.ansi or null_if_failed)
    if pat.is_float64(dtype) and isinstance(value, Call) and value.name == "cast":
        (inner,) = value.args
        if pat.is_float32(source) and pat.is_integer(inner.dtype):
            # Spark's optimizer drops the cast to float, although it can change the value.
            return casted(inner, dtype, settings)
    via_double = pat.is_decimal(source) and source.precision > LONG_DIGITS and is_small(dtype)
    if isinstance(value, Literal) and not via_double:
        try:
            return Literal(literals.cast(value.typed, dtype, strict))
        except FailedCastError:
            if settings.ansi and not null_if_failed:
                raise
            if is_text(source):
                return Literal(Typed(None, dtype))
    if not _is_supported(source, dtype) and not pat.is_null(source):
        raise NoCommonTypeError(
            f"{type_name(source)} is not cast to {type_name(dtype)} here; leave it to "
            "DataFrame.where"
        )
    mode = "try" if null_if_failed else "ansi" if settings.ansi else "java"
    return folded(Call("cast", (value,), dtype, (mode, settings.time_zone)))


def _is_supported(source: pa.DataType, dtype: pa.DataType) -> bool:
    if is_text(dtype):
        return bool(
            pat.is_integer(source)
            or pat.is_boolean(source)
            or is_datetime(source)
            or source.equals(TIME)
            or (pat.is_decimal(source) and source.scale <= _MAX_PLAIN_SCALE)
        )
    if is_text(source):
        return (
            is_number(dtype)
            or is_datetime(dtype)
            or dtype.equals(TIME)
            or pat.is_boolean(dtype)
            or is_bytes(dtype)
        )
    if is_number(source) and is_number(dtype):
        return not (pat.is_floating(source) and pat.is_decimal(dtype))
    if is_number(source) and pat.is_boolean(dtype):
        return not pat.is_decimal(source)
    if pat.is_boolean(source):
        return is_number(dtype) and not pat.is_decimal(dtype)
    return is_datetime(source) and is_datetime(dtype)
