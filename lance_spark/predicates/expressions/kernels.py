"""Kernels: functions that compute an Arrow array from arrays. Here: their type, error and casts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.predicates import times
from lance_spark.predicates import typed_literals as literals
from lance_spark.predicates.coercion import decimal_for
from lance_spark.predicates.comparison import text_matches, widened
from lance_spark.predicates.sql_settings import SqlSettings
from lance_spark.predicates.typed_literals import (
    CLOCK,
    INSTANT,
    MOST_DIGITS,
    TIME,
    CastError,
    FailedCastError,
    Typed,
    decimal_of,
    is_bytes,
    is_datetime,
    is_text,
    type_name,
)

#: Computes an array from the arrays of the arguments, the `detail` of the call, and the result
#: type.
Kernel = Callable[[Sequence[pa.Array], Any, pa.DataType], pa.Array]


class RowError(ValueError):
    """A kernel cannot compute the value of a row."""


def numpy_of(array: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the values of an array, 0 for null, and which of them are null."""
    null = array.is_null().to_numpy(zero_copy_only=False)
    filled = array.fill_null(0) if array.null_count else array
    return filled.to_numpy(zero_copy_only=False), null


def saturated(values: npt.NDArray[Any], dtype: Any) -> npt.NDArray[Any]:
    """Cast floats to integers as Java does: NaN becomes 0, other values the nearest integer."""
    info = np.iinfo(dtype)
    with np.errstate(all="ignore"):
        # The least integer is exact as a float, and so is the integer after the greatest.
        result = np.where(np.isnan(values), 0, values).astype(np.float64)
        low, high = result <= float(info.min), result >= float(info.max)
        inner = np.where(low | high, 0, result).astype(dtype)
    return np.where(low, info.min, np.where(high, info.max, inner)).astype(dtype)


# --------------------------------------------------------------------------------------------------
# Kernels of numbers: operators, `abs`, `floor` and `ceil`, with the overflow of Java.

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


NUMBER_KERNELS: dict[str, Kernel] = {
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


# --------------------------------------------------------------------------------------------------
# Kernels of dates and timestamps: parts, sums with days and intervals, truncation, and time zones.
#
# Times are microseconds since 1970. Times too far from 1970 are refused. Conversions between
# instants and local times have the results of Java's time zones. The changes of a zone's offset are
# searched once for each year that occurs, with Python's zones (`times.tzinfo_of`).

Ints = npt.NDArray[np.int64]
DAY = 86_400_000_000
#: The years 1 to 9999, which Python's zones support.
FIRST, STOP = -719_162 * DAY, 2_932_897 * DAY
#: The calendar, and with it the rules of zones, repeats after 400 years.
_CYCLE = 146_097 * DAY
_LIMIT = 1 << 62
_SECOND = 1_000_000
_DAY_SECONDS = 86_400
#: Microseconds of the units of `date_trunc` that are no parts of a calendar.
_FIXED_UNITS = {"D": DAY, "h": 3_600 * _SECOND, "m": 60 * _SECOND, "s": _SECOND}
#: Seconds of each part of a clock, and the number of its values.
_CLOCK_PARTS = {"hour": (3_600, 24), "minute": (60, 60), "second": (1, 60)}


def check_days(days: Ints) -> Ints:
    """Return days since 1970 unchanged. Raises RowError: a date does not fit the type date."""
    if len(days) and (days.min() < -(1 << 31) or days.max() >= 1 << 31):
        raise RowError("a date is out of range")
    return days


def check_micros(micros: Ints) -> Ints:
    """Return microseconds since 1970 unchanged.

    Raises RowError: a time is so large that sums of it may overflow.
    """
    if len(micros) and (micros.min() < -_LIMIT or micros.max() >= _LIMIT):
        raise RowError("a time is out of the range that is computed with here")
    return micros


class ZoneOffsets(NamedTuple):
    """The offsets of a time zone, which may differ from those of Python's release of the zones.

    - `changes`: Seconds since 1970, in order.
    - `offsets`: In seconds: before the first change, and after each.
    - `repeats`: Whether the offsets of the 400 years before the last change repeat.
    """

    changes: tuple[int, ...]
    offsets: tuple[int, ...]
    repeats: bool

    def in_range(self, values: Ints) -> Ints:
        """Return instants or local times with the same offsets that are not after the changes."""
        if not self.repeats:
            return values
        cycle = _CYCLE // _SECOND
        # A local time can be two days from its instant.
        first_unknown = self.changes[-1] - 2 * _DAY_SECONDS
        cycles = np.maximum(values // _SECOND - first_unknown + cycle, 0) // cycle
        in_range: Ints = values - cycles * _CYCLE
        return in_range


_Zone = str | ZoneOffsets | None


def to_local(instants: Ints, zone: _Zone) -> Ints:
    """Return the local times of instants in a zone.

    Raises RowError. Raises ValueError: the zone is missing or unknown.
    """
    offsets = _offsets(instants, zone)
    local: Ints = instants + offsets
    if ((local < instants) != (offsets < 0)).any():
        raise RowError("a local time is out of the range of a timestamp")
    return local


def _offsets(instants: Ints, zone: _Zone) -> Ints:
    """Return the offsets of a zone from UTC at instants."""
    in_range, changes, offsets = _changes(instants, zone)
    return offsets[np.searchsorted(changes, in_range, "right")]


def _local_seconds(instants: Ints, zone: _Zone) -> Ints:
    """Return the local times of instants in seconds, of which there are some for every instant."""
    seconds: Ints = instants // _SECOND + _offsets(instants, zone) // _SECOND
    return seconds


def _local_days(instants: Ints, zone: _Zone) -> Ints:
    return _local_seconds(instants, zone) // _DAY_SECONDS


def to_instants(local: Ints, zone: _Zone) -> Ints:
    """Return the instants of local times in a zone; see `times.to_instant`.

    Raises RowError, ValueError.
    """
    in_range, changes, offsets = _changes(local, zone)
    # The offset before a change holds until the later of both local times of the change.
    local_changes = changes + np.maximum(offsets[:-1], offsets[1:])
    found = offsets[np.searchsorted(local_changes, in_range, "right")]
    instants: Ints = local - found
    if ((instants > local) != (found < 0)).any():
        raise RowError("a time is out of the range of a timestamp")
    return instants


def starts_of_days(days: Ints, zone: _Zone) -> Ints:
    """Return the instants at which dates begin in a zone. Raises RowError, ValueError."""
    midnights = days * DAY
    if (midnights // DAY != days).any():
        raise RowError("a date is out of the range of a timestamp")
    instants = to_instants(midnights, zone)
    skipped = np.flatnonzero(to_local(instants, zone) != midnights)
    if len(skipped):
        # On some days of some zones, clocks skip midnight: they begin when clocks are put forward.
        in_range, changes, _ = _changes(instants[skipped], zone)
        last = changes[np.searchsorted(changes, in_range, "right") - 1]
        instants[skipped] -= in_range - last
    return instants


def _in_range(values: Ints) -> Ints:
    """Return times in the years 1 to 9999 with the same offset of any zone."""
    if not len(values) or (values.min() >= FIRST + 2 * DAY and values.max() < STOP - 2 * DAY):
        return values
    # The offset of a zone is constant before its first year.
    not_early = np.maximum(values, FIRST + 2 * DAY)
    cycles = np.maximum(not_early - (STOP - 2 * DAY) + _CYCLE, 0) // _CYCLE
    return np.asarray(not_early - cycles * _CYCLE, np.int64)


def _changes(values: Ints, zone: _Zone) -> tuple[Ints, Ints, Ints]:
    """Return the changes of a zone's offset around some instants or local times.

    Returns times with the same offsets that the changes are searched for; the instants of the
    changes; and the offsets before the first change, and after each. Raises ValueError.
    """
    if isinstance(zone, ZoneOffsets):
        changes, offsets = (np.array(part, np.int64) * _SECOND for part in zone[:2])
        return zone.in_range(values), changes, offsets
    times.tzinfo_of(zone)
    in_range = _in_range(values)
    years = np.unique(in_range.astype("M8[us]").astype("M8[Y]").astype(np.int64)) + 1970
    # A local time can be in the year before or after the year of its instant.
    around = sorted({year + step for year in years.tolist() for step in (-1, 0, 1)})
    entries = [
        entry
        for year in around or [1970]
        if 1 < year < 9999
        for entry in _changes_of_year(year, zone)
    ]
    instants, before, after = (np.array(part, np.int64) for part in zip(*entries, strict=True))
    return in_range, instants, np.concatenate([before[:1], after])


@lru_cache(maxsize=4096)
def _changes_of_year(year: int, zone: str | None) -> tuple[tuple[int, int, int], ...]:
    start = (np.datetime64(f"{year:04}", "us")).astype(np.int64).item()
    stop = (np.datetime64(f"{year + 1:04}", "us")).astype(np.int64).item()
    before = times.offset_at(start, zone)
    # The first entry sets the offset if the year before is not among the years.
    changes = [(start, before, before)]
    for end in range(start + DAY - 1, stop, DAY):
        after = times.offset_at(end, zone)
        if after != before:
            changes.append((times.next_change(max(start, end - DAY), end, zone), before, after))
            before = after
    return tuple(changes)


def _days(array: pa.Array) -> tuple[Ints, Any]:
    days, null = numpy_of(array.cast(pa.int32()))
    return check_days(days.astype(np.int64)), null


def _micros(array: pa.Array) -> tuple[Ints, Any]:
    micros, null = numpy_of(array.cast(pa.int64()))
    return check_micros(micros), null


def _array(values: Ints, null: Any, dtype: pa.DataType) -> pa.Array:
    if pat.is_date32(dtype):
        days = check_days(np.where(null, 0, values)).astype(np.int32)
        return pa.array(days, pa.int32(), mask=null).cast(dtype)
    if pat.is_timestamp(dtype):
        check_micros(np.where(null, 0, values))
        return pa.array(values, pa.int64(), mask=null).cast(dtype)
    return pa.array(values, dtype, mask=null)


def _truncated(values: Any, unit: str) -> Any:
    """Truncate days or times of NumPy to a unit."""
    if unit == "Q":
        months = values.astype("M8[M]").astype(np.int64)
        return (months - months % 3).astype("M8[M]")
    if unit == "W":
        days = values.astype("M8[D]").astype(np.int64)
        # Weeks begin on Monday, and 1970 began on a Thursday.
        return (days - (days + 3) % 7).astype("M8[D]")
    return values.astype(f"M8[{unit}]")


def _date_part(arrays: Sequence[pa.Array], part: Any, dtype: pa.DataType) -> pa.Array:
    values, null = _days(arrays[0])
    days = values.astype("M8[D]")
    months = days.astype("M8[M]").astype(np.int64)
    month = months % 12 + 1
    result: Any
    if part == "year":
        result = (months - months % 12) // 12 + 1970
    elif part == "month":
        result = month
    elif part == "quarter":
        result = (month + 2) // 3
    elif part == "dayofyear":
        result = (days - days.astype("M8[Y]").astype("M8[D]")).astype(np.int64) + 1
    elif part == "dayofweek":
        # Sunday is 1.
        result = (values + 4) % 7 + 1
    elif part == "weekday":
        # Monday is 0.
        result = (values + 3) % 7
    else:
        result = (days - days.astype("M8[M]").astype("M8[D]")).astype(np.int64) + 1
    return _array(result, null, dtype)


def _time_part(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    part, zone = detail
    (array,) = arrays
    micros, null = numpy_of(array.cast(pa.int64()))
    is_instant = pat.is_timestamp(array.type) and array.type.tz is not None
    seconds = _local_seconds(micros, zone) if is_instant else micros // _SECOND
    size, count = _CLOCK_PARTS[part]
    return _array(seconds // size % count, null, dtype)


def _plus_days(arrays: Sequence[pa.Array], sign: Any, dtype: pa.DataType) -> pa.Array:
    days, null = _days(arrays[0])
    number, is_null = numpy_of(arrays[1])
    null = null | is_null
    # Java's integers wrap around here, also in ANSI mode.
    later = (days + sign * number.astype(np.int64)).astype(np.int32)
    return _array(later.astype(np.int64), null, dtype)


def _add_days(arrays: Sequence[pa.Array], days: Any, dtype: pa.DataType) -> pa.Array:
    values, null = _days(arrays[0])
    return _array((values + days).astype(np.int32).astype(np.int64), null, dtype)


def _datediff(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    (end, end_null), (start, start_null) = map(_days, arrays)
    return _array(end - start, end_null | start_null, dtype)


def _months_later(days: Ints, months: int) -> Ints:
    """Return dates some months later. A day past the end of the month becomes its last day."""
    dates = days.astype("M8[D]")
    first = dates.astype("M8[M]")
    day = (dates - first.astype("M8[D]")).astype(np.int64)
    later = first + np.timedelta64(months, "M")
    last = ((later + 1).astype("M8[D]") - later.astype("M8[D]")).astype(np.int64) - 1
    result: Ints = later.astype("M8[D]").astype(np.int64) + np.minimum(day, last)
    return result


def _add_months(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    months, zone = detail
    if abs(months) > 12 * 10_000:
        raise RowError("a date is out of the years 1 to 9999")
    if pat.is_date(dtype):
        days, null = _days(arrays[0])
        return _array(_months_later(days, months), null, dtype)
    micros, null = _micros(arrays[0])
    local = micros if dtype.tz is None else to_local(micros, zone)
    local = _months_later(local // DAY, months) * DAY + local % DAY
    local = check_micros(local)
    return _array(local if dtype.tz is None else _instants_after(micros, local, zone), null, dtype)


def _add_micros(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    amount, zone = detail
    micros, null = _micros(arrays[0])
    if dtype.tz is None:
        return _array(micros + amount, null, dtype)
    # Whole days are calendar days, which are longer or shorter when clocks change.
    days = abs(amount) // DAY * (1 if amount > 0 else -1)
    if days:
        local = check_micros(to_local(micros, zone) + days * DAY)
        micros = _instants_after(micros, local, zone)
    return _array(micros + (amount - days * DAY), null, dtype)


def _instants_after(before: Ints, local: Ints, zone: str | None) -> Ints:
    """Return the instants of local times that were computed from the instants `before`.

    If a local time has two instants, the instant with the same offset as before is returned, as
    Java's ZonedDateTime does.
    """
    offsets = _offsets(before, zone)
    return _with_offsets(check_micros(local - offsets), offsets, zone)


def _with_offsets(instants: Ints, offsets: Ints, zone: _Zone) -> Ints:
    """Return the instants of local times, which are given as instants if the zone has offsets.

    If the zone has other offsets at these instants, the local times are before or after a change.
    """
    changed = _offsets(instants, zone) != offsets
    if changed.any():
        instants[changed] = to_instants(instants[changed] + offsets[changed], zone)
    return instants


def _date_trunc_of(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    unit, zone = detail
    micros, null = numpy_of(arrays[0].cast(pa.int64()))
    in_range, changes, offsets_of_zone = _changes(micros, zone)
    offsets = offsets_of_zone[np.searchsorted(changes, in_range, "right")]
    if unit in _FIXED_UNITS:
        size = _FIXED_UNITS[unit]
        truncated = _with_offsets(micros - (micros % size + offsets % size) % size, offsets, zone)
    else:
        days = _truncated(_local_days(micros, zone).astype("M8[D]"), unit)
        days = days.astype("M8[D]").astype(np.int64)
        has_one = (offsets_of_zone == offsets_of_zone[0]).all()
        # Integers wrap around, and back.
        truncated = days * DAY - offsets if has_one else starts_of_days(days, zone)
    if (truncated > micros).any():
        raise RowError("the start of a unit of time is out of the range of a timestamp")
    return pa.array(truncated, pa.int64(), mask=null).cast(dtype)


def _trunc_of(arrays: Sequence[pa.Array], unit: Any, dtype: pa.DataType) -> pa.Array:
    days, null = _days(arrays[0])
    return _array(
        _truncated(days.astype("M8[D]"), unit).astype("M8[D]").astype(np.int64), null, dtype
    )


DATE_KERNELS: dict[str, Kernel] = {
    "date_part": _date_part,
    "time_part": _time_part,
    "plus_days": _plus_days,
    "add_days": _add_days,
    "add_months": _add_months,
    "add_micros": _add_micros,
    "datediff": _datediff,
    "date_trunc": _date_trunc_of,
    "trunc": _trunc_of,
}


# --------------------------------------------------------------------------------------------------
# Kernels of casts: they cast arrays as Spark casts each value.
#
# A value that the type cannot represent is an error in mode "ansi" and null in mode "try". In mode
# "java" numbers wrap around as in Java, and other values become null. Casts whose result depends on
# the release of Java (the digits of a float as text) are not supported.

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
        result = values // DAY if source.tz is None else _in_zone(_local_days, values, zone)
    elif source.equals(CLOCK):
        assert dtype.equals(INSTANT)
        result = _in_zone(to_instants, values, zone)
    else:
        result = _in_zone(to_local, values, zone)
    narrow = pa.int32() if pat.is_date(dtype) else pa.int64()
    return pa.array(result, pa.int64(), mask=null).cast(narrow).cast(dtype)


CAST_KERNELS: dict[str, Kernel] = {"cast": _cast}


# --------------------------------------------------------------------------------------------------
# Kernels of strings.


def _cased(name: str, arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    (array,) = arrays
    ascii_only = pc.string_is_ascii(array)
    if pc.all(ascii_only).as_py() in (True, None):
        return pc.call_function(f"ascii_{name}", [array])
    # Python changes the case by the tables of Unicode, once for each different string.
    encoded = array.dictionary_encode()
    changed = [getattr(value, name)() for value in encoded.dictionary.to_pylist()]
    return pa.array(changed, dtype).take(encoded.indices)


def _lengths(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    kernel = pc.binary_length if is_bytes(arrays[0].type) else pc.utf8_length
    return kernel(arrays[0]).cast(dtype)


def _trimmed(arrays: Sequence[pa.Array], sides: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    kernel = {"both": pc.ascii_trim, "left": pc.ascii_ltrim, "right": pc.ascii_rtrim}[sides]
    return kernel(arrays[0], characters=" ")


def _sliced(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    first, stop = detail
    return pc.utf8_slice_codeunits(arrays[0], first, stop)


def _joined(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*arrays, pa.scalar("", dtype), null_handling="emit_null")


def _match(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    match_kind, pattern = detail
    return text_matches(arrays[0], match_kind, pattern)


def _replaced(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    old, new = detail
    return pc.replace_substring(arrays[0], pattern=old, replacement=new) if old else arrays[0]


def _null(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    return pa.nulls(len(arrays[0]), dtype)


STRING_KERNELS: dict[str, Kernel] = {
    "lower": partial(_cased, "lower"),
    "upper": partial(_cased, "upper"),
    "length": _lengths,
    "trim": _trimmed,
    "slice": _sliced,
    "concat": _joined,
    "match": _match,
    "replace": _replaced,
    "null": _null,
}
