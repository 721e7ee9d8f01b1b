"""Dates and timestamps: their parts, days and intervals that are added, and where units of the calendar begin.

A timestamp has the parts that clocks of the session's zone show. Times outside of the years 1 to 9999 are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates.common_types import NoCommonTypeError
from lance_spark.scan.predicates.expressions import zones
from lance_spark.scan.predicates.expressions.casts import casted, numpy_of
from lance_spark.scan.predicates.expressions.node import Call, Expression, Kernel, Literal, RowError
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import (
    CLOCK,
    DURATION,
    INSTANT,
    TIME,
    Typed,
    is_datetime,
    is_text,
    type_name,
)

_MONTHS = {"year": 12, "month": 1}
_MICROS = {
    "week": 7 * zones.DAY,
    "day": zones.DAY,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_PART = re.compile(r"\s*([+-]?)([0-9]{1,13})(?:\.([0-9]{0,9}))?\s+([a-zA-Z]+)")
_SIGN, _SMALL = r"\s*([+-]?)", r"([0-9]{1,2})"
_FRACTION = r"(?:\.([0-9]{1,9}))?\s*"
#: Forms of intervals from one unit to a smaller one; each part after the first is limited as on a clock.
_RANGES = {
    ("year", "month"): re.compile(_SIGN + r"([0-9]{1,9})-" + _SMALL + r"\s*"),
    ("day", "hour"): re.compile(_SIGN + r"([0-9]{1,9}) " + _SMALL + r"\s*"),
    ("day", "minute"): re.compile(_SIGN + rf"([0-9]{{1,9}}) {_SMALL}:{_SMALL}\s*"),
    ("day", "second"): re.compile(_SIGN + rf"([0-9]{{1,9}}) {_SMALL}:{_SMALL}:{_SMALL}{_FRACTION}"),
    ("hour", "minute"): re.compile(_SIGN + rf"([0-9]{{1,9}}):{_SMALL}\s*"),
    ("hour", "second"): re.compile(_SIGN + rf"([0-9]{{1,9}}):{_SMALL}:{_SMALL}{_FRACTION}"),
    ("minute", "second"): re.compile(_SIGN + rf"([0-9]{{1,9}}):{_SMALL}{_FRACTION}"),
}
_LIMITS = {"month": 12, "hour": 24, "minute": 60, "second": 60}
_INT32, _INT64 = range(-(1 << 31), 1 << 31), range(-(1 << 63), 1 << 63)
#: Names of units of `date_trunc` and `trunc`, and the unit of NumPy that values are cut to; weeks begin on Mondays.
_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "Y"),
    "quarter": "Q",
    **dict.fromkeys(("month", "mon", "mm"), "M"),
    "week": "W",
    **dict.fromkeys(("day", "dd"), "D"),
    "hour": "h",
    "minute": "m",
    "second": "s",
}
_OF_DATES = ("Y", "Q", "M", "W")


@dataclass(frozen=True, slots=True)
class Interval:
    """A number of months, or a number of microseconds: Spark does not mix them.

    Attributes
    ----------
    months, micros : int
        One of them is 0.
    smallest : str
        The smallest unit that the text has: an interval of days keeps a date a date.
    """

    months: int
    micros: int
    smallest: str

    def __post_init__(self) -> None:
        if self.months not in _INT32 or self.micros not in _INT64:
            raise ValueError("an interval is longer than those that Spark has")

    def negated(self) -> Interval:
        """Return the opposite.

        Raises
        ------
        ValueError
            Spark has no interval so long.
        """
        return Interval(-self.months, -self.micros, self.smallest)

    def typed(self) -> Typed:
        """Return the interval as a literal that is compared.

        Raises
        ------
        NoCommonTypeError
            It is one of years or months, and Lance has no columns of those.
        """
        if self.smallest in _MONTHS:
            raise NoCommonTypeError(
                "an interval of years or months is only added to dates and timestamps here"
            )
        return Typed(self.micros, DURATION)


def interval_between(text: str, largest: str, smallest: str) -> Interval:
    """Return the interval of a text such as ``1 02:03:04.5``, which has all units from one to another.

    Parameters
    ----------
    text : str
    largest, smallest : str
        Names of units, such as "day" and "second".

    Raises
    ------
    ValueError
        Spark has no intervals of these units, or the text has another form or is out of range.
    """
    pattern = _RANGES.get((largest, smallest))
    if pattern is None:
        raise ValueError(f"there are no intervals {largest.upper()} TO {smallest.upper()}")
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is not an interval {largest.upper()} TO {smallest.upper()}; write it as in "
            "INTERVAL '1 02:03:04' DAY TO SECOND"
        )
    sign, first, *rest = found.groups()
    parts = {largest: int(first)}
    for unit, digits in zip(_units_below(largest), rest, strict=False):
        if unit == "fraction":
            break
        parts[unit] = int(digits)
        if parts[unit] >= _LIMITS[unit]:
            raise ValueError(f"{digits} is not below {_LIMITS[unit]}, as a {unit} has to be")
    fraction = (rest[-1] or "") if smallest == "second" else ""
    return _interval(parts, _micros_of(fraction), smallest, -1 if sign == "-" else 1)


def _units_below(largest: str) -> list[str]:
    order = (
        ["year", "month"] if largest == "year" else ["day", "hour", "minute", "second", "fraction"]
    )
    return order[order.index(largest) + 1 :]


def _micros_of(fraction: str) -> int:
    """Return the microseconds of the digits after the point of seconds; Spark passes over those after the sixth."""
    return int(fraction.ljust(6, "0")[:6])


def _interval(parts: dict[str, int], micros: int, smallest: str, sign: int) -> Interval:
    months = sum(count * _MONTHS.get(unit, 0) for unit, count in parts.items())
    micros += sum(count * _MICROS.get(unit, 0) for unit, count in parts.items())
    return Interval(sign * months, sign * micros, smallest)


def interval(text: str) -> Interval:
    """Return the interval of a text such as ``3 days``, ``1 year 2 months`` or ``1.5 seconds``.

    Raises
    ------
    ValueError
        It has another form, months beside days, or is out of range.
    """
    at, months, micros = 0, 0, 0
    units: list[str] = []
    while at < len(text.rstrip()):
        part = _PART.match(text, at)
        if part is None:
            raise ValueError("write an interval as INTERVAL 3 DAYS or INTERVAL '3' MONTH")
        sign, digits, fraction, name = part.groups()
        unit = name.lower()
        unit = unit if unit in (*_MONTHS, *_MICROS) else unit.removesuffix("s")
        if unit not in _MONTHS and unit not in _MICROS:
            raise ValueError(f"{name} is not a unit of intervals")
        if fraction is not None and unit != "second":
            raise ValueError(f"only seconds have a fraction, not {name}")
        one = _interval(
            {unit: int(digits)}, _micros_of(fraction or ""), unit, -1 if sign == "-" else 1
        )
        months, micros = months + one.months, micros + one.micros
        units.append(unit)
        at = part.end()
    kinds = {unit in _MONTHS for unit in units}
    if len(kinds) != 1:
        raise ValueError("an interval has years and months, or days and what is less")
    order = [*_MONTHS, *_MICROS]
    return Interval(months, micros, max(units, key=order.index))


def shifted(value: Expression, by: Interval, settings: SqlSettings) -> Expression:
    """Return a date or timestamp with an interval added.

    Raises
    ------
    NoCommonTypeError
        The value is neither.
    """
    dtype = value.dtype
    if not is_datetime(dtype):
        raise NoCommonTypeError(
            f"an interval is added to dates and timestamps here, not to {type_name(dtype)}"
        )
    if by.months or by.smallest in _MONTHS:
        return Call("add_months", (value,), dtype, (by.months, settings.time_zone))
    if pat.is_date(dtype):
        if by.smallest in ("day", "week"):
            return Call("add_days", (value,), dtype, by.micros // zones.DAY)
        raise NoCommonTypeError("hours are not added to dates here; cast the date to timestamp")
    return Call("add_micros", (value,), dtype, (by.micros, settings.time_zone))


def plus_days(value: Expression, days: Expression, sign: int) -> Expression:
    """Return a date some days later, or earlier.

    Raises
    ------
    NoCommonTypeError
        The number of days is not an integer of at most 32 bits.
    """
    if not pat.is_integer(days.dtype) or days.dtype.bit_width > 32:
        raise NoCommonTypeError(
            f"days that are added to a date are an int, not {type_name(days.dtype)}"
        )
    return Call("plus_days", (value, days), pa.date32(), sign)


def _date(value: Expression, settings: SqlSettings) -> Expression:
    if not (is_datetime(value.dtype) or is_text(value.dtype) or pat.is_null(value.dtype)):
        raise NoCommonTypeError(f"a date is expected, not {type_name(value.dtype)}")
    return casted(value, pa.date32(), settings)


def _added(sign: int) -> Callable[[Sequence[Expression], SqlSettings], Expression]:
    def build(args: Sequence[Expression], settings: SqlSettings) -> Expression:
        return plus_days(_date(args[0], settings), args[1], sign)

    return build


def _difference(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return Call("datediff", tuple(_date(one, settings) for one in args), pa.int32())


def _of_date(part: str) -> Callable[[Sequence[Expression], SqlSettings], Expression]:
    def build(args: Sequence[Expression], settings: SqlSettings) -> Expression:
        return Call("date_part", (_date(args[0], settings),), pa.int32(), part)

    return build


def _of_time(part: str) -> Callable[[Sequence[Expression], SqlSettings], Expression]:
    def build(args: Sequence[Expression], settings: SqlSettings) -> Expression:
        value = args[0]
        if not (value.dtype.equals(CLOCK) or value.dtype.equals(TIME)):
            if not (is_datetime(value.dtype) or is_text(value.dtype)):
                raise NoCommonTypeError(f"a timestamp is expected, not {type_name(value.dtype)}")
            value = casted(casted(value, INSTANT, settings), CLOCK, settings)
        return Call("time_part", (value,), pa.int32(), part)

    return build


def _to_date(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return _date(args[0], settings)


def _to_timestamp(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    if not (is_datetime(args[0].dtype) or is_text(args[0].dtype)):
        raise NoCommonTypeError(f"to_timestamp of {type_name(args[0].dtype)} is not computed here")
    zoned = settings.timestamp_type != "TIMESTAMP_NTZ"
    return casted(args[0], INSTANT if zoned else CLOCK, settings)


def _unit(value: Expression, name: str) -> str:
    text = value.typed.value if isinstance(value, Literal) and is_text(value.dtype) else None
    unit = _UNITS.get(text.lower()) if text else None
    if unit is None:
        raise NoCommonTypeError(f"{name} takes one of the units {', '.join(_UNITS)} here")
    return unit


def _date_trunc(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    unit, value = _unit(args[0], "date_trunc"), args[1]
    if not (is_datetime(value.dtype) or is_text(value.dtype)):
        raise NoCommonTypeError(f"date_trunc of {type_name(value.dtype)} is not computed here")
    instant = casted(value, INSTANT, settings)
    return Call("date_trunc", (instant,), INSTANT, (unit, settings.time_zone))


def _trunc(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    unit = _unit(args[1], "trunc")
    if unit not in _OF_DATES:
        raise NoCommonTypeError("trunc takes a year, quarter, month or week; use date_trunc")
    return Call("trunc", (_date(args[0], settings),), pa.date32(), unit)


# Kernels


def _days(array: pa.Array) -> tuple[zones.Ints, Any]:
    days, null = numpy_of(array.cast(pa.int32()))
    return zones.check_days(days.astype(np.int64)), null


def _micros(array: pa.Array) -> tuple[zones.Ints, Any]:
    micros, null = numpy_of(array.cast(pa.int64()))
    return zones.check_micros(micros), null


def _made(values: zones.Ints, null: Any, dtype: pa.DataType) -> pa.Array:
    if pat.is_date32(dtype):
        days = zones.check_days(np.where(null, 0, values)).astype(np.int32)
        return pa.array(days, pa.int32(), mask=null).cast(dtype)
    if pat.is_timestamp(dtype):
        zones.check_micros(np.where(null, 0, values))
        return pa.array(values, pa.int64(), mask=null).cast(dtype)
    return pa.array(values, dtype, mask=null)


def _cut(values: Any, unit: str) -> Any:
    """Return days or times of NumPy cut to a unit."""
    if unit == "Q":
        months = values.astype("M8[M]").astype(np.int64)
        return (months - months % 3).astype("M8[M]")
    if unit == "W":
        days = values.astype("M8[D]").astype(np.int64)
        # 1970 began with a Thursday.
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
    return _made(result, null, dtype)


def _time_part(arrays: Sequence[pa.Array], part: Any, dtype: pa.DataType) -> pa.Array:
    micros, null = _micros(arrays[0])
    size = {"hour": 24, "minute": 60, "second": 60}[part]
    return _made(micros // _MICROS[part] % size, null, dtype)


def _plus_days(arrays: Sequence[pa.Array], sign: Any, dtype: pa.DataType) -> pa.Array:
    days, null = _days(arrays[0])
    number, unknown = numpy_of(arrays[1])
    null = null | unknown
    # Java's integers wrap around here, in ANSI mode too.
    later = (days + sign * number.astype(np.int64)).astype(np.int32)
    return _made(later.astype(np.int64), null, dtype)


def _add_days(arrays: Sequence[pa.Array], days: Any, dtype: pa.DataType) -> pa.Array:
    values, null = _days(arrays[0])
    return _made((values + days).astype(np.int32).astype(np.int64), null, dtype)


def _datediff(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    (end, one), (start, other) = map(_days, arrays)
    return _made(end - start, one | other, dtype)


def _months_later(days: zones.Ints, months: int) -> zones.Ints:
    """Return dates some months later; what is past the end of a month becomes its last day."""
    shown = days.astype("M8[D]")
    first = shown.astype("M8[M]")
    day = (shown - first.astype("M8[D]")).astype(np.int64)
    later = first + np.timedelta64(months, "M")
    last = ((later + 1).astype("M8[D]") - later.astype("M8[D]")).astype(np.int64) - 1
    result: zones.Ints = later.astype("M8[D]").astype(np.int64) + np.minimum(day, last)
    return result


def _add_months(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    months, zone = detail
    if abs(months) > 12 * 10_000:
        raise RowError("a date is in no year from 1 to 9999, and is not computed with here")
    if pat.is_date(dtype):
        days, null = _days(arrays[0])
        return _made(_months_later(days, months), null, dtype)
    micros, null = _micros(arrays[0])
    local = micros if dtype.tz is None else zones.to_local(micros, zone)
    local = _months_later(local // zones.DAY, months) * zones.DAY + local % zones.DAY
    local = zones.check_micros(local)
    return _made(local if dtype.tz is None else _kept(micros, local, zone), null, dtype)


def _add_micros(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    by, zone = detail
    micros, null = _micros(arrays[0])
    if dtype.tz is None:
        return _made(micros + by, null, dtype)
    # Days are those of the calendar, which are longer and shorter now and then.
    days = abs(by) // zones.DAY * (1 if by > 0 else -1)
    if days:
        local = zones.check_micros(zones.to_local(micros, zone) + days * zones.DAY)
        micros = _kept(micros, local, zone)
    return _made(micros + (by - days * zones.DAY), null, dtype)


def _kept(before: zones.Ints, local: zones.Ints, zone: str | None) -> zones.Ints:
    """Return the instants of local times; of two, that of the offset before, as a date and time of a zone moves in Java."""
    offset = zones.to_local(before, zone) - before
    kept = zones.check_micros(local - offset)
    return np.where(zones.to_local(kept, zone) == local, kept, zones.to_instants(local, zone))


def _date_trunc_of(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    unit, zone = detail
    micros, null = _micros(arrays[0])
    if unit == "s":
        return _made(micros // 1_000_000 * 1_000_000, null, dtype)
    local = zones.to_local(micros, zone)
    cut = _cut(local.astype("M8[us]"), unit)
    if unit in ("h", "m"):
        whole = cut.astype("M8[us]").astype(np.int64)
        return _made(_kept(micros, whole, zone), null, dtype)
    days = cut.astype("M8[D]").astype(np.int64)
    return _made(zones.starts_of_days(days, zone), null, dtype)


def _trunc_of(arrays: Sequence[pa.Array], unit: Any, dtype: pa.DataType) -> pa.Array:
    days, null = _days(arrays[0])
    return _made(_cut(days.astype("M8[D]"), unit).astype("M8[D]").astype(np.int64), null, dtype)


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
_ONE = range(1, 2)
_TWO = range(2, 3)
#: Names, and how many arguments they take.
FUNCTIONS: dict[str, tuple[range, Callable[[Sequence[Expression], SqlSettings], Expression]]] = {
    **{
        part: (_ONE, _of_date(part))
        for part in ("year", "quarter", "month", "dayofyear", "dayofweek", "weekday")
    },
    **dict.fromkeys(("day", "dayofmonth"), (_ONE, _of_date("day"))),
    **{part: (_ONE, _of_time(part)) for part in ("hour", "minute", "second")},
    "to_date": (_ONE, _to_date),
    "to_timestamp": (_ONE, _to_timestamp),
    "date_add": (_TWO, _added(1)),
    "dateadd": (_TWO, _added(1)),
    "date_sub": (_TWO, _added(-1)),
    **dict.fromkeys(("datediff", "date_diff"), (_TWO, _difference)),
    "date_trunc": (_TWO, _date_trunc),
    "trunc": (_TWO, _trunc),
}
