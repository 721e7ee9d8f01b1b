"""Kernels of dates and timestamps: parts, sums with days and intervals, and truncation.

Times too far from 1970 are refused; see `zones`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates.expressions.kernels import zones
from lance_spark.scan.predicates.expressions.kernels.base import (
    Kernel,
    RowError,
    numpy_of,
)

#: Microseconds of each part of a clock, and the number of its values.
_CLOCK_PARTS = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}


def _days(array: pa.Array) -> tuple[zones.Ints, Any]:
    days, null = numpy_of(array.cast(pa.int32()))
    return zones.check_days(days.astype(np.int64)), null


def _micros(array: pa.Array) -> tuple[zones.Ints, Any]:
    micros, null = numpy_of(array.cast(pa.int64()))
    return zones.check_micros(micros), null


def _array(values: zones.Ints, null: Any, dtype: pa.DataType) -> pa.Array:
    if pat.is_date32(dtype):
        days = zones.check_days(np.where(null, 0, values)).astype(np.int32)
        return pa.array(days, pa.int32(), mask=null).cast(dtype)
    if pat.is_timestamp(dtype):
        zones.check_micros(np.where(null, 0, values))
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


def _time_part(arrays: Sequence[pa.Array], part: Any, dtype: pa.DataType) -> pa.Array:
    micros, null = _micros(arrays[0])
    size, count = _CLOCK_PARTS[part]
    return _array(micros // size % count, null, dtype)


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


def _months_later(days: zones.Ints, months: int) -> zones.Ints:
    """Return dates some months later. A day past the end of the month becomes its last day."""
    dates = days.astype("M8[D]")
    first = dates.astype("M8[M]")
    day = (dates - first.astype("M8[D]")).astype(np.int64)
    later = first + np.timedelta64(months, "M")
    last = ((later + 1).astype("M8[D]") - later.astype("M8[D]")).astype(np.int64) - 1
    result: zones.Ints = later.astype("M8[D]").astype(np.int64) + np.minimum(day, last)
    return result


def _add_months(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    months, zone = detail
    if abs(months) > 12 * 10_000:
        raise RowError("a date is out of the years 1 to 9999")
    if pat.is_date(dtype):
        days, null = _days(arrays[0])
        return _array(_months_later(days, months), null, dtype)
    micros, null = _micros(arrays[0])
    local = micros if dtype.tz is None else zones.to_local(micros, zone)
    local = _months_later(local // zones.DAY, months) * zones.DAY + local % zones.DAY
    local = zones.check_micros(local)
    return _array(local if dtype.tz is None else _instants_after(micros, local, zone), null, dtype)


def _add_micros(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    by, zone = detail
    micros, null = _micros(arrays[0])
    if dtype.tz is None:
        return _array(micros + by, null, dtype)
    # Whole days are calendar days, which are longer or shorter when clocks change.
    days = abs(by) // zones.DAY * (1 if by > 0 else -1)
    if days:
        local = zones.check_micros(zones.to_local(micros, zone) + days * zones.DAY)
        micros = _instants_after(micros, local, zone)
    return _array(micros + (by - days * zones.DAY), null, dtype)


def _instants_after(before: zones.Ints, local: zones.Ints, zone: str | None) -> zones.Ints:
    """Return the instants of local times that were computed from the instants `before`.

    If a local time has two instants, the instant with the same offset as before is returned, as
    Java's ZonedDateTime does.
    """
    offset = zones.to_local(before, zone) - before
    same_offset = zones.check_micros(local - offset)
    return np.where(
        zones.to_local(same_offset, zone) == local, same_offset, zones.to_instants(local, zone)
    )


def _date_trunc_of(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    unit, zone = detail
    micros, null = _micros(arrays[0])
    if unit == "s":
        return _array(micros // 1_000_000 * 1_000_000, null, dtype)
    local = zones.to_local(micros, zone)
    cut = _truncated(local.astype("M8[us]"), unit)
    if unit in ("h", "m"):
        truncated = cut.astype("M8[us]").astype(np.int64)
        return _array(_instants_after(micros, truncated, zone), null, dtype)
    days = cut.astype("M8[D]").astype(np.int64)
    return _array(zones.starts_of_days(days, zone), null, dtype)


def _trunc_of(arrays: Sequence[pa.Array], unit: Any, dtype: pa.DataType) -> pa.Array:
    days, null = _days(arrays[0])
    return _array(
        _truncated(days.astype("M8[D]"), unit).astype("M8[D]").astype(np.int64), null, dtype
    )


KERNELS: dict[str, Kernel] = {
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
