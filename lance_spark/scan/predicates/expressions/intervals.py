"""Intervals: their text, and their value as months or microseconds."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lance_spark.scan.predicates.common_types import NoCommonTypeError
from lance_spark.scan.predicates.expressions.kernels import zones
from lance_spark.scan.predicates.typed_values import DURATION, Typed

MONTHS = {"year": 12, "month": 1}
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


@dataclass(frozen=True, slots=True)
class Interval:
    """A number of months, or a number of microseconds. Spark does not mix them.

    Attributes
    ----------
    months, micros : int
        One of them is 0.
    smallest : str
        The smallest unit in the text. A date plus an interval of days is a date.
    """

    months: int
    micros: int
    smallest: str

    def __post_init__(self) -> None:
        if self.months not in _INT32 or self.micros not in _INT64:
            raise ValueError("an interval is out of Spark's range")

    def negated(self) -> Interval:
        """Return the negative interval.

        Raises
        ------
        ValueError
            It is out of Spark's range.
        """
        return Interval(-self.months, -self.micros, self.smallest)

    def typed(self) -> Typed:
        """Return the interval as a literal for comparisons.

        Raises
        ------
        NoCommonTypeError
            It is an interval of years or months. Lance has no columns of these.
        """
        if self.smallest in MONTHS:
            raise NoCommonTypeError(
                "an interval of years or months is only added to dates and timestamps here"
            )
        return Typed(self.micros, DURATION)


def interval(text: str) -> Interval:
    """Parse an interval such as ``3 days``, ``1 year 2 months`` or ``1.5 seconds``.

    Raises
    ------
    ValueError
        The text has another form, has months beside days, or is out of range.
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
