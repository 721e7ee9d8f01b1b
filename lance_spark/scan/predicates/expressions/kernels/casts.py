"""Kernels of casts: they cast arrays as Spark casts each value.

A value that the type cannot represent is an error in mode "ansi" and null in mode "try". In mode
"java" numbers wrap around as in Java, and other values become null. Casts whose result depends on
the release of Java (the digits of a float as text) are not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates import literal_casts as literals
from lance_spark.scan.predicates.common_types import decimal_for
from lance_spark.scan.predicates.comparison import widened
from lance_spark.scan.predicates.expressions.kernels import Kernel, RowError, numpy_of, saturated
from lance_spark.scan.predicates.expressions.kernels.dates import (
    DAY,
    FIRST,
    STOP,
    Ints,
    starts_of_days,
    to_instants,
    to_local,
)
from lance_spark.scan.predicates.literal_casts import CastError, FailedCastError, decimal_of
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import (
    CLOCK,
    INSTANT,
    MOST_DIGITS,
    TIME,
    Typed,
    is_bytes,
    is_datetime,
    is_text,
    type_name,
)

#: A long can have any value of this number of decimal digits.
LONG_DIGITS = 18


def _cast(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    (array,), (mode, zone) = arrays, detail
    source = array.type
    if pat.is_null(source):
        return pa.nulls(len(array), dtype)
    if is_text(source):
        return _of_text(array, dtype, mode, zone)
    if is_text(dtype):
        return _to_text(array, zone)
    if is_datetime(source):
        return _of_time(array, dtype, zone)
    if pat.is_boolean(dtype):
        # NaN is true, too.
        return pa.compute.not_equal(array, pa.scalar(0, source))
    if pat.is_boolean(source):
        return array.cast(pa.int8()).cast(dtype)
    if pat.is_decimal(source):
        return _of_decimal(array, dtype, mode)
    if pat.is_floating(source):
        return _of_float(array, dtype, mode)
    return _of_integer(array, dtype, mode)


def _check(failed: npt.NDArray[np.bool_], array: pa.Array, dtype: pa.DataType) -> None:
    index = int(np.argmax(failed)) if len(failed) else 0
    if len(failed) and failed[index]:
        raise RowError(f"{str(array[index])[:60]} cannot be cast to {type_name(dtype)}")


def _of_integer(array: pa.Array, dtype: pa.DataType, mode: str) -> pa.Array:
    if pat.is_floating(dtype):
        return array.cast(dtype, safe=False)
    if pat.is_decimal(dtype):
        return _of_decimal(array.cast(decimal_for(array.type)), dtype, mode)
    values, null = numpy_of(array)
    small = values.astype(_native(dtype))
    failed = (small != values) & ~null
    if mode == "ansi":
        _check(failed, array, dtype)
    return pa.array(small, dtype, mask=null | failed if mode == "try" else null)


def _native(dtype: pa.DataType) -> Any:
    return dtype.to_pandas_dtype()


def _of_float(array: pa.Array, dtype: pa.DataType, mode: str) -> pa.Array:
    values, null = numpy_of(array)
    if pat.is_floating(dtype):
        with np.errstate(all="ignore"):
            return pa.array(values.astype(_native(dtype)), dtype, mask=null)
    wide = values.astype(np.float64)
    info = np.iinfo(_native(dtype))
    with np.errstate(all="ignore"):
        fits = (np.floor(wide) <= float(info.max)) & (np.ceil(wide) >= float(info.min))
    # Java casts to int first if the target is smaller than int.
    first = np.int64 if dtype.bit_width == 64 else np.int32
    integers = saturated(np.trunc(wide), first).astype(_native(dtype))
    if mode == "java":
        return pa.array(integers, dtype, mask=null)
    failed = ~fits & ~null
    if mode == "ansi":
        _check(failed, array, dtype)
    return pa.array(integers, dtype, mask=null | failed)


def _of_decimal(array: pa.Array, dtype: pa.DataType, mode: str) -> pa.Array:
    import pyarrow.compute as pc

    if pat.is_floating(dtype):
        return widened(array, dtype)
    if mode != "java" and array.type.precision > LONG_DIGITS and is_small(dtype):
        # In ANSI mode Spark casts to double first.
        return _of_float(widened(array, pa.float64()), dtype, mode)
    target = dtype if pat.is_decimal(dtype) else pa.decimal128(MOST_DIGITS, 0)
    rounding: Any = "half_towards_infinity" if pat.is_decimal(dtype) else "towards_zero"
    # One digit more, because rounding can add one.
    wide = array.cast(pa.decimal256(array.type.precision + 1, array.type.scale))
    if target.scale < array.type.scale:
        wide = pc.round(wide, ndigits=target.scale, round_mode=rounding)
    digits = array.type.precision - array.type.scale
    wide_digits = max(digits + 1, target.precision - target.scale)
    wide = wide.cast(pa.decimal256(wide_digits + target.scale, target.scale))
    greatest = 10**target.precision - 1
    low, high = decimal_of(-greatest, target.scale), decimal_of(greatest, target.scale)
    if pat.is_integer(dtype):
        limit = 1 << dtype.bit_width - 1
        low, high = Decimal(-limit), Decimal(limit - 1)
    fits = pc.and_(
        pc.greater_equal(wide, pa.scalar(low, wide.type)),
        pc.less_equal(wide, pa.scalar(high, wide.type)),
    )
    failed = pc.invert(fits).fill_null(False)
    if failed.true_count:
        if mode == "ansi":
            _check(failed.to_numpy(zero_copy_only=False), array, dtype)
        if mode == "java" and pat.is_integer(dtype):
            if digits <= LONG_DIGITS:
                # Java casts to long first and takes its lowest bits.
                return _of_integer(
                    wide.cast(pa.decimal128(MOST_DIGITS, 0)).cast(pa.int64()), dtype, mode
                )
            raise RowError(
                f"a decimal does not fit {type_name(dtype)}, and Spark's result for it is not "
                "computed here"
            )
        wide = pc.if_else(failed, pa.scalar(None, wide.type), wide)
    return wide.cast(target).cast(dtype)


def is_small(dtype: pa.DataType) -> bool:
    """Return whether a type is an integer of at most 32 bits."""
    return bool(pat.is_integer(dtype) and dtype.bit_width <= 32)


def _of_text(array: pa.Array, dtype: pa.DataType, mode: str, zone: str | None) -> pa.Array:
    """Parse strings, each different string once."""
    if is_bytes(dtype):
        return array.cast(dtype)
    encoded = array.dictionary_encode()
    settings = SqlSettings(ansi=mode != "java", time_zone=zone)
    values: list[Any] = []
    for text in encoded.dictionary.to_pylist():
        try:
            literal = literals.cast(Typed(text, pa.string()), dtype, settings, foldable=False)
            values.append(literal.value)
        except FailedCastError as error:
            if mode == "ansi":
                raise RowError(str(error)) from None
            values.append(None)
        except CastError as error:
            raise RowError(str(error)) from None
    return pa.array(values, dtype).take(encoded.indices)


def _to_text(array: pa.Array, zone: str | None) -> pa.Array:
    if array.type.equals(TIME):
        return _without_zeros(array.cast(pa.string()))
    if not pat.is_timestamp(array.type):
        if pat.is_date(array.type):
            _check_years(numpy_of(array.cast(pa.int32()))[0].astype(np.int64) * DAY)
        return array.cast(pa.string())
    values, null = numpy_of(array.cast(pa.int64()))
    if array.type.tz is not None:
        values = _in_zone(to_local, values, zone)
    _check_years(values)
    return _without_zeros(pa.array(values, pa.int64(), mask=null).cast(CLOCK).cast(pa.string()))


def _without_zeros(text: pa.Array) -> pa.Array:
    """Return times without trailing zeros in the fraction of a second, as Spark writes them."""
    import pyarrow.compute as pc

    text = pc.replace_substring_regex(text, r"\.0+$", "")
    return pc.replace_substring_regex(text, r"(\.[0-9]*[1-9])0+$", r"\1")


def _check_years(micros: Ints) -> None:
    if len(micros) and (micros.min() < FIRST or micros.max() >= STOP):
        raise RowError("a date outside of the years 1 to 9999 is not cast to string here")


def _in_zone(convert: Callable[[Ints, str | None], Ints], values: Ints, zone: str | None) -> Ints:
    try:
        return convert(values, zone)
    except RowError:
        raise
    except ValueError as error:
        raise RowError(str(error)) from None


def _of_time(array: pa.Array, dtype: pa.DataType, zone: str | None) -> pa.Array:
    source = array.type
    wide = pa.int32() if pat.is_date32(source) else pa.int64()
    values, null = numpy_of(array.cast(wide))
    values = values.astype(np.int64)
    if pat.is_date(source):
        result = values * DAY if dtype.equals(CLOCK) else _in_zone(starts_of_days, values, zone)
    elif pat.is_date(dtype):
        local = values if source.tz is None else _in_zone(to_local, values, zone)
        result = local // DAY
    elif source.equals(CLOCK):
        assert dtype.equals(INSTANT)
        result = _in_zone(to_instants, values, zone)
    else:
        result = _in_zone(to_local, values, zone)
    narrow = pa.int32() if pat.is_date(dtype) else pa.int64()
    return pa.array(result, pa.int64(), mask=null).cast(narrow).cast(dtype)


KERNELS: dict[str, Kernel] = {"cast": _cast}
