"""Functions of dates and timestamps: their parts, sums with days and intervals, and truncation.

The parts of a timestamp are the parts of its local time in the session's zone. An interval is a
number of months or of microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates.common_types import NoCommonTypeError
from lance_spark.scan.predicates.expressions.casts import casted
from lance_spark.scan.predicates.expressions.kernels.dates import DAY
from lance_spark.scan.predicates.expressions.node import Builder, Call, Expression, Literal
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

MONTHS = {"year": 12, "month": 1}
_MICROS = {
    "week": 7 * DAY,
    "day": DAY,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_PART = re.compile(r"\s*([+-]?)([0-9]{1,13})(?:\.([0-9]{0,9}))?\s+([a-zA-Z]+)")
_SIGN, _SMALL = r"\s*([+-]?)", r"([0-9]{1,2})"
_FRACTION = r"(?:\.([0-9]{1,9}))?\s*"
#: Forms of intervals from one unit to a smaller unit. Parts after the first are below `_LIMITS`.
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
#: Names of units of `date_trunc` and `trunc`, and the unit of NumPy. Weeks begin on Mondays.
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
_DATE_UNITS = ("Y", "Q", "M", "W")


@dataclass(frozen=True, slots=True)
class Interval:
    """A number of months, or a number of microseconds. Spark does not mix them.

    - `months`, `micros`: One of them is 0.
    - `smallest`: The smallest unit in the text. A date plus an interval of days is a date.
    """

    months: int
    micros: int
    smallest: str

    def __post_init__(self) -> None:
        if self.months not in _INT32 or self.micros not in _INT64:
            raise ValueError("an interval is out of Spark's range")

    def negated(self) -> Interval:
        """Return the negative interval. Raises ValueError: it is out of Spark's range."""
        return Interval(-self.months, -self.micros, self.smallest)

    def typed(self) -> Typed:
        """Return the interval as a literal for comparisons.

        Raises NoCommonTypeError: it is an interval of years or months. Lance has no columns of
        these.
        """
        if self.smallest in MONTHS:
            raise NoCommonTypeError(
                "an interval of years or months is only added to dates and timestamps here"
            )
        return Typed(self.micros, DURATION)


def interval(text: str) -> Interval:
    """Parse an interval such as ``3 days``, ``1 year 2 months`` or ``1.5 seconds``.

    Raises ValueError: the text has another form, has months beside days, or is out of range.
    """
    position, months, micros = 0, 0, 0
    units: list[str] = []
    while position < len(text.rstrip()):
        part = _PART.match(text, position)
        if part is None:
            raise ValueError("write an interval as INTERVAL 3 DAYS or INTERVAL '3' MONTH")
        sign, digits, fraction, name = part.groups()
        unit = name.lower()
        unit = unit if unit in (*MONTHS, *_MICROS) else unit.removesuffix("s")
        if unit not in MONTHS and unit not in _MICROS:
            raise ValueError(f"{name} is not a unit of intervals")
        if fraction is not None and unit != "second":
            raise ValueError(f"only seconds have a fraction, not {name}")
        addend = _interval(
            {unit: int(digits)}, _micros_of(fraction or ""), unit, -1 if sign == "-" else 1
        )
        months, micros = months + addend.months, micros + addend.micros
        units.append(unit)
        position = part.end()
    if len({unit in MONTHS for unit in units}) != 1:
        raise ValueError("an interval has years and months, or days and smaller units, not both")
    order = [*MONTHS, *_MICROS]
    return Interval(months, micros, max(units, key=order.index))


def interval_between(text: str, largest: str, smallest: str) -> Interval:
    """Parse an interval such as ``1 02:03:04.5``, which has all units from one to another.

    - `largest`, `smallest`: Names of units, such as "day" and "second".

    Raises ValueError: Spark has no intervals of these units, or the text has another form or is out
    of range.
    """
    pattern = _RANGES.get((largest, smallest))
    if pattern is None:
        raise ValueError(f"INTERVAL {largest.upper()} TO {smallest.upper()} is not supported")
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not an interval {largest.upper()} TO {smallest.upper()}; write it as in "
            "INTERVAL '1 02:03:04' DAY TO SECOND"
        )
    sign, first, *digit_groups = match.groups()
    parts = {largest: int(first)}
    for unit, digits in zip(_units_below(largest), digit_groups, strict=False):
        if unit == "fraction":
            break
        parts[unit] = int(digits)
        if parts[unit] >= _LIMITS[unit]:
            raise ValueError(f"the {unit} must be below {_LIMITS[unit]}, not {digits}")
    fraction = (digit_groups[-1] or "") if smallest == "second" else ""
    return _interval(parts, _micros_of(fraction), smallest, -1 if sign == "-" else 1)


def _units_below(largest: str) -> list[str]:
    order = (
        ["year", "month"] if largest == "year" else ["day", "hour", "minute", "second", "fraction"]
    )
    return order[order.index(largest) + 1 :]


def _micros_of(fraction: str) -> int:
    """Return the microseconds of a fraction of a second. Spark ignores digits after the sixth."""
    return int(fraction.ljust(6, "0")[:6])


def _interval(parts: dict[str, int], micros: int, smallest: str, sign: int) -> Interval:
    months = sum(count * MONTHS.get(unit, 0) for unit, count in parts.items())
    micros += sum(count * _MICROS.get(unit, 0) for unit, count in parts.items())
    return Interval(sign * months, sign * micros, smallest)


def shifted(value: Expression, added: Interval, settings: SqlSettings) -> Expression:
    """Return a date or timestamp with an interval added.

    Raises NoCommonTypeError: the value is of another type.
    """
    dtype = value.dtype
    if not is_datetime(dtype):
        raise NoCommonTypeError(
            f"an interval is added to dates and timestamps here, not to {type_name(dtype)}"
        )
    if added.months or added.smallest in MONTHS:
        return Call("add_months", (value,), dtype, (added.months, settings.time_zone))
    if pat.is_date(dtype):
        if added.smallest in ("day", "week"):
            return Call("add_days", (value,), dtype, added.micros // DAY)
        raise NoCommonTypeError("hours are not added to dates here; cast the date to timestamp")
    return Call("add_micros", (value,), dtype, (added.micros, settings.time_zone))


def plus_days(value: Expression, days: Expression, sign: int) -> Expression:
    """Return a date some days later, or earlier.

    Raises NoCommonTypeError: the number of days is not an integer of at most 32 bits.
    """
    if not pat.is_integer(days.dtype) or days.dtype.bit_width > 32:
        raise NoCommonTypeError(
            f"the days to add to a date must be an int, not {type_name(days.dtype)}"
        )
    return Call("plus_days", (value, days), pa.date32(), sign)


def _date(value: Expression, settings: SqlSettings) -> Expression:
    if not (is_datetime(value.dtype) or is_text(value.dtype) or pat.is_null(value.dtype)):
        raise NoCommonTypeError(f"expected a date, not {type_name(value.dtype)}")
    return casted(value, pa.date32(), settings)


def _added(sign: int, args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return plus_days(_date(args[0], settings), args[1], sign)


def _difference(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return Call("datediff", tuple(_date(arg, settings) for arg in args), pa.int32())


def _of_date(part: str, args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return Call("date_part", (_date(args[0], settings),), pa.int32(), part)


def _of_time(part: str, args: Sequence[Expression], settings: SqlSettings) -> Expression:
    value = args[0]
    if not (value.dtype.equals(CLOCK) or value.dtype.equals(TIME)):
        if not (is_datetime(value.dtype) or is_text(value.dtype)):
            raise NoCommonTypeError(f"expected a timestamp, not {type_name(value.dtype)}")
        value = casted(casted(value, INSTANT, settings), CLOCK, settings)
    return Call("time_part", (value,), pa.int32(), part)


def _to_timestamp(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    if not (is_datetime(args[0].dtype) or is_text(args[0].dtype)):
        raise NoCommonTypeError(f"to_timestamp of {type_name(args[0].dtype)} is not computed here")
    zoned = settings.timestamp_type != "TIMESTAMP_NTZ"
    return casted(args[0], INSTANT if zoned else CLOCK, settings)


def _unit(value: Expression, name: str) -> str:
    text = value.typed.value if isinstance(value, Literal) and is_text(value.dtype) else None
    unit = _UNITS.get(text.lower()) if text else None
    if unit is None:
        raise NoCommonTypeError(f"the unit of {name} must be one of {', '.join(_UNITS)} here")
    return unit


def _date_trunc(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    unit, value = _unit(args[0], "date_trunc"), args[1]
    if not (is_datetime(value.dtype) or is_text(value.dtype)):
        raise NoCommonTypeError(f"date_trunc of {type_name(value.dtype)} is not computed here")
    instant = casted(value, INSTANT, settings)
    return Call("date_trunc", (instant,), INSTANT, (unit, settings.time_zone))


def _trunc(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    unit = _unit(args[1], "trunc")
    if unit not in _DATE_UNITS:
        raise NoCommonTypeError(
            "the unit of trunc must be a year, quarter, month or week; use date_trunc"
        )
    return Call("trunc", (_date(args[0], settings),), pa.date32(), unit)


_ONE = range(1, 2)
_TWO = range(2, 3)
#: The possible numbers of arguments and the builder of each function.
FUNCTIONS: dict[str, tuple[range, Builder]] = {
    **{
        part: (_ONE, partial(_of_date, part))
        for part in ("year", "quarter", "month", "dayofyear", "dayofweek", "weekday")
    },
    **dict.fromkeys(("day", "dayofmonth"), (_ONE, partial(_of_date, "day"))),
    **{part: (_ONE, partial(_of_time, part)) for part in ("hour", "minute", "second")},
    "to_date": (_ONE, lambda args, settings: _date(args[0], settings)),
    "to_timestamp": (_ONE, _to_timestamp),
    **dict.fromkeys(("date_add", "dateadd"), (_TWO, partial(_added, 1))),
    "date_sub": (_TWO, partial(_added, -1)),
    **dict.fromkeys(("datediff", "date_diff"), (_TWO, _difference)),
    "date_trunc": (_TWO, _date_trunc),
    "trunc": (_TWO, _trunc),
}
