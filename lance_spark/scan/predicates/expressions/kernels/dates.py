"""Kernels of dates and timestamps: parts, sums with days and intervals, truncation, and time zones.

Times are microseconds since 1970. Times too far from 1970 are refused. Conversions between instants
and local times have the results of Java's time zones. The changes of a zone's offset are searched
once for each year that occurs, with Python's zones (`times.tzinfo_of`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates import times
from lance_spark.scan.predicates.expressions.kernels import Kernel, RowError, numpy_of

Ints = npt.NDArray[np.int64]
DAY = 86_400_000_000
#: The years 1 to 9999, which Python's zones support.
FIRST, STOP = -719_162 * DAY, 2_932_897 * DAY
#: The calendar, and with it the rules of zones, repeats after 400 years.
_CYCLE = 146_097 * DAY
_LIMIT = 1 << 62
#: Microseconds of each part of a clock, and the number of its values.
_CLOCK_PARTS = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}


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


def to_local(instants: Ints, zone: str | None) -> Ints:
    """Return the local times of instants in a zone.

    Raises RowError. Raises ValueError: the zone is missing or unknown.
    """
    in_range = _in_range(instants)
    changes, before, after = _changes(in_range, zone)
    offsets = np.concatenate([before[:1], after])[np.searchsorted(changes, in_range, "right")]
    local: Ints = check_micros(instants + offsets)
    return local


def to_instants(local: Ints, zone: str | None) -> Ints:
    """Return the instants of local times in a zone; see `times.to_instant`.

    Raises RowError, ValueError.
    """
    in_range = _in_range(local)
    changes, before, after = _changes(in_range, zone)
    # The offset before a change holds until the later of both local times of the change.
    local_changes = changes + np.maximum(before, after)
    offsets = np.concatenate([before[:1], after])[np.searchsorted(local_changes, in_range, "right")]
    instants: Ints = local - offsets
    return instants


def starts_of_days(days: Ints, zone: str | None) -> Ints:
    """Return the instants at which dates begin in a zone. Raises RowError, ValueError."""
    if len(days) and (days.min() * 1.0 * DAY < -_LIMIT or days.max() * 1.0 * DAY >= _LIMIT):
        raise RowError("a date is out of the range of a timestamp")
    midnights = days * DAY
    instants = to_instants(midnights, zone)
    for index in np.flatnonzero(to_local(instants, zone) != midnights):
        # On some days of some zones, clocks skip midnight.
        in_range = int(_in_range(midnights[index : index + 1])[0])
        start = times.start_of_day(in_range // DAY, zone)
        instants[index] = start + int(midnights[index]) - in_range
    return instants


def _in_range(values: Ints) -> Ints:
    """Return times in the years 1 to 9999 with the same offset of any zone."""
    check_micros(values)
    if not len(values) or (values.min() >= FIRST + 2 * DAY and values.max() < STOP - 2 * DAY):
        return values
    # The offset of a zone is constant before its first year.
    not_early = np.maximum(values, FIRST + 2 * DAY)
    cycles = np.maximum(not_early - (STOP - 2 * DAY) + _CYCLE, 0) // _CYCLE
    return np.asarray(not_early - cycles * _CYCLE, np.int64)


def _changes(values: Ints, zone: str | None) -> tuple[Ints, Ints, Ints]:
    """Return the changes of a zone's offset in the years of some values.

    Returns instants of the changes, and the offsets before and after each.
    """
    times.tzinfo_of(zone)
    years = np.unique(values.astype("M8[us]").astype("M8[Y]").astype(np.int64)) + 1970
    # A local time can be in the year before or after the year of its instant.
    around = sorted({year + step for year in years.tolist() for step in (-1, 0, 1)})
    changes = [
        change
        for year in around or [1970]
        if 1 < year < 9999
        for change in _changes_of_year(year, zone)
    ]
    instants, before, after = (np.array(part, np.int64) for part in zip(*changes, strict=True))
    return instants, before, after


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
    offset = to_local(before, zone) - before
    same_offset = check_micros(local - offset)
    return np.where(to_local(same_offset, zone) == local, same_offset, to_instants(local, zone))


def _date_trunc_of(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    unit, zone = detail
    micros, null = _micros(arrays[0])
    if unit == "s":
        return _array(micros // 1_000_000 * 1_000_000, null, dtype)
    local = to_local(micros, zone)
    cut = _truncated(local.astype("M8[us]"), unit)
    if unit in ("h", "m"):
        truncated = cut.astype("M8[us]").astype(np.int64)
        return _array(_instants_after(micros, truncated, zone), null, dtype)
    days = cut.astype("M8[D]").astype(np.int64)
    return _array(starts_of_days(days, zone), null, dtype)


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
