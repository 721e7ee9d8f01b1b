"""Functions of dates and timestamps: their parts, sums with days and intervals, and truncation.

The parts of a timestamp are those of its local time in the session's zone.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.scan.predicates.common_types import NoCommonTypeError
from lance_spark.scan.predicates.expressions.casts import casted
from lance_spark.scan.predicates.expressions.intervals import MONTHS, Interval
from lance_spark.scan.predicates.expressions.kernels import zones
from lance_spark.scan.predicates.expressions.node import Builder, Call, Expression, Literal
from lance_spark.scan.predicates.sql_settings import SqlSettings
from lance_spark.scan.predicates.typed_values import (
    CLOCK,
    INSTANT,
    TIME,
    is_datetime,
    is_text,
    type_name,
)

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


def shifted(value: Expression, by: Interval, settings: SqlSettings) -> Expression:
    """Return a date or timestamp with an interval added.

    Raises
    ------
    NoCommonTypeError
        The value is of another type.
    """
    dtype = value.dtype
    if not is_datetime(dtype):
        raise NoCommonTypeError(
            f"an interval is added to dates and timestamps here, not to {type_name(dtype)}"
        )
    if by.months or by.smallest in MONTHS:
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
            f"the days to add to a date must be an int, not {type_name(days.dtype)}"
        )
    return Call("plus_days", (value, days), pa.date32(), sign)


def _date(value: Expression, settings: SqlSettings) -> Expression:
    if not (is_datetime(value.dtype) or is_text(value.dtype) or pat.is_null(value.dtype)):
        raise NoCommonTypeError(f"expected a date, not {type_name(value.dtype)}")
    return casted(value, pa.date32(), settings)


def _added(sign: int) -> Builder:
    def build(args: Sequence[Expression], settings: SqlSettings) -> Expression:
        return plus_days(_date(args[0], settings), args[1], sign)

    return build


def _difference(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return Call("datediff", tuple(_date(arg, settings) for arg in args), pa.int32())


def _of_date(part: str) -> Builder:
    def build(args: Sequence[Expression], settings: SqlSettings) -> Expression:
        return Call("date_part", (_date(args[0], settings),), pa.int32(), part)

    return build


def _of_time(part: str) -> Builder:
    def build(args: Sequence[Expression], settings: SqlSettings) -> Expression:
        value = args[0]
        if not (value.dtype.equals(CLOCK) or value.dtype.equals(TIME)):
            if not (is_datetime(value.dtype) or is_text(value.dtype)):
                raise NoCommonTypeError(f"expected a timestamp, not {type_name(value.dtype)}")
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
