"""Functions of numbers, dates and strings, and conditional functions, as Spark computes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowRanges
from lance_spark.predicates.coercion import NoCommonTypeError, decimal_for, list_type, wider_type
from lance_spark.predicates.columns import OPPOSITE, is_in, match_candidates
from lance_spark.predicates.comparison import (
    FLIPPED,
    Op,
    TextMatch,
    compared,
    has_nan,
    is_nan,
    like_regex,
    rust_to_re2,
    to_re2,
)
from lance_spark.predicates.conditions import Bound, ColumnBound, RangePruner
from lance_spark.predicates.expressions.kernels import BITS, DAY, SHIFTS
from lance_spark.predicates.expressions.node import (
    JSON,
    Builder,
    Call,
    Choice,
    Expression,
    Literal,
    casted,
)
from lance_spark.predicates.sql_settings import SqlSettings
from lance_spark.predicates.tree import Column, Constant, Predicate
from lance_spark.predicates.typed_literals import (
    CLOCK,
    DURATION,
    INSTANT,
    MOST_DIGITS,
    TIME,
    Typed,
    is_bytes,
    is_datetime,
    is_number,
    is_text,
    type_name,
)
from lance_spark.subjects import JSON_VALUES, load

# --------------------------------------------------------------------------------------------------
# Operators and functions of numbers, with the result types of Spark.
#
# | operands | type of the result |
# | --- | --- |
# | integers | the wider type; double for ``/``, bigint for ``DIV`` |
# | decimals, or a decimal and an integer | a decimal with all digits of the result |
# | two floats | float; double for ``/`` |
# | a float or double and another number | double |
#
# Decimals have ``+``, ``-`` and ``*`` only, up to 38 digits. In ANSI mode integer overflow and
# division by zero are errors. Otherwise integers wrap around, and division by zero is null.

#: Scala rounds a decimal of more digits when it changes the sign.
_MAX_SIGNED_DIGITS = 34


def operation(op: str, left: Expression, right: Expression, settings: SqlSettings) -> Expression:
    """Return the result of an operator for two numbers.

    Raises NoCommonTypeError: Spark does not support the types, or this package does not.
    """
    types = [left.dtype, right.dtype]
    are_numbers = all(is_number(dtype) or pat.is_null(dtype) for dtype in types)
    if not are_numbers or all(map(pat.is_null, types)):
        raise NoCommonTypeError(
            f"{op.upper()} of {type_name(types[0])} and {type_name(types[1])} is not computed "
            "here; cast both to numbers, or leave it to DataFrame.where"
        )
    # A null takes the type of the other operand.
    types = [
        other_type if pat.is_null(dtype) else dtype
        for dtype, other_type in zip(types, types[::-1], strict=True)
    ]
    has_floats, has_decimals = any(map(pat.is_floating, types)), any(map(pat.is_decimal, types))
    if op in (*BITS, *SHIFTS, "div") and (has_floats or has_decimals):
        raise NoCommonTypeError(f"{op.upper()} supports only integers here")
    if op in SHIFTS:
        common = types[0] if types[0].bit_width > 32 else pa.int32()
        if types[1].bit_width > 32:
            raise NoCommonTypeError(f"the number of bits of {op} must be an int")
        return Call(
            op, (casted(left, common, settings), casted(right, pa.int32(), settings)), common
        )
    if has_decimals and not has_floats:
        return _decimal(op, left, right, types, settings)
    if op == "/":
        common = pa.float64()
    elif op == "div":
        common = pa.int64()
    else:
        common = wider_type(types[0], types[1], settings)
    operands = (casted(left, common, settings), casted(right, common, settings))
    return Call(op, operands, common, settings.ansi)


def _decimal(
    op: str, left: Expression, right: Expression, types: list[pa.DataType], settings: SqlSettings
) -> Expression:
    a, b = (
        _decimal_type(side, dtype, settings)
        for side, dtype in zip((left, right), types, strict=True)
    )
    if op == "*":
        precision, scale = a.precision + b.precision + 1, a.scale + b.scale
    else:
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    if op not in ("+", "-", "*") or precision > MOST_DIGITS:
        raise NoCommonTypeError(
            f"{op.upper()} of {type_name(a)} and {type_name(b)} is not computed here; cast both "
            "to double, or leave it to DataFrame.where"
        )
    operands = (casted(left, a, settings), casted(right, b, settings))
    return Call(op, operands, pa.decimal128(precision, scale), settings.ansi)


def _decimal_type(side: Expression, dtype: pa.DataType, settings: SqlSettings) -> pa.DataType:
    """Return the decimal type of an operand beside a decimal."""
    if pat.is_decimal(dtype):
        if dtype.precision > MOST_DIGITS:
            raise NoCommonTypeError(f"Spark does not have the type {type_name(dtype)}")
        return dtype
    if (
        isinstance(side, Literal)
        and side.typed.written
        and side.typed.value is not None
        and settings.minimum_precision
    ):
        return pa.decimal128(len(str(abs(side.typed.value))), 0)
    return decimal_for(dtype)


def negative(value: Expression, settings: SqlSettings) -> Expression:
    """Return the negative of a number."""
    return Call("negative", (_signed_number(value, "-"),), value.dtype, settings.ansi)


def positive(value: Expression, settings: SqlSettings) -> Expression:
    """Return a number as it is."""
    return Call("positive", (_number(value, "+"),), value.dtype)


def inverse(value: Expression, settings: SqlSettings) -> Expression:
    """Return an integer with all its bits inverted."""
    if not pat.is_integer(value.dtype):
        raise NoCommonTypeError(f"~ takes an integer, not {type_name(value.dtype)}")
    return Call("~", (value,), value.dtype)


def _number(value: Expression, name: str) -> Expression:
    if not is_number(value.dtype):
        raise NoCommonTypeError(f"{name} takes a number, not {type_name(value.dtype)}")
    return value


def _signed_number(value: Expression, name: str) -> Expression:
    if pat.is_decimal(value.dtype) and value.dtype.precision > _MAX_SIGNED_DIGITS:
        raise NoCommonTypeError(
            f"{name} of decimals of more than {_MAX_SIGNED_DIGITS} digits is not computed here; "
            "cast to double"
        )
    return _number(value, name)


def _abs(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return Call("abs", (_signed_number(args[0], "abs"),), args[0].dtype, settings.ansi)


def _rounded(name: str, args: Sequence[Expression], settings: SqlSettings) -> Expression:
    dtype = _number(args[0], name).dtype
    if pat.is_decimal(dtype):
        raise NoCommonTypeError(f"{name} of decimals is not computed here; cast to double")
    if dtype.equals(pa.int64()):
        return positive(args[0], settings)
    return Call(name, (casted(args[0], pa.float64(), settings),), pa.int64(), settings.ansi)


#: The possible numbers of arguments and the builder of each function.
NUMBER_FUNCTIONS: dict[str, tuple[range, Builder]] = {
    "abs": (range(1, 2), _abs),
    "mod": (range(2, 3), lambda args, settings: operation("%", args[0], args[1], settings)),
    "negative": (range(1, 2), lambda args, settings: negative(args[0], settings)),
    "positive": (range(1, 2), lambda args, settings: positive(args[0], settings)),
    "floor": (range(1, 2), partial(_rounded, "floor")),
    "ceil": (range(1, 2), partial(_rounded, "ceil")),
    "ceiling": (range(1, 2), partial(_rounded, "ceil")),
}


# --------------------------------------------------------------------------------------------------
# Conditions on computed values, and choices between values: ``coalesce``, ``nullif``, ``CASE``.
#
# An error in a value counts only for the rows that choose it.


def documents_of(value: Expression) -> ColumnBound | None:
    """Return an expression as the values that an index of documents can have; None if not.

    The bound of the result has no meaning.
    """
    if not isinstance(value, Call) or value.name != JSON:
        return None
    documents: ColumnBound | None = load(JSON_VALUES)(value)
    return documents


@dataclass(frozen=True, slots=True)
class CompareValues(Predicate):
    """A comparison of two computed values of one type."""

    left: Expression
    op: Op
    right: Expression

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        return compared(self.left.evaluate(batch), self.op, self.right.evaluate(batch))

    def columns(self) -> Iterator[Column]:
        yield from self.left.columns()
        yield from self.right.columns()

    def negated(self) -> CompareValues:
        return CompareValues(self.left, OPPOSITE[self.op], self.right)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        bound = self._bound()
        return None if bound is None else bound.ask(statistics, *bound.bound)

    def column_bound(self) -> ColumnBound | None:
        return None if self.op in ("==", "!=") else self._bound()

    def _bound(self) -> ColumnBound | None:
        """Return the comparison of values in documents with a literal that it is; None if not."""
        left, op, right = self.left, self.op, self.right
        if isinstance(left, Literal):
            left, op, right = right, FLIPPED[op], left
        documents = documents_of(left)
        if documents is None or not isinstance(right, Literal) or right.typed.value is None:
            return None
        scalar = pa.scalar(right.typed.value, right.dtype)
        return None if is_nan(scalar) else documents._replace(bound=Bound(op, scalar))


@dataclass(frozen=True, slots=True)
class InValues(Predicate):
    """Whether a computed value is in a set; the other attributes are those of `In`."""

    value: Expression
    values: pa.Array
    has_null: bool = False
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow.compute as pc

        result = is_in(self.value.evaluate(batch), self.values, has_null=self.has_null)
        return pc.invert(result) if self.inverted else result

    def columns(self) -> Iterator[Column]:
        yield from self.value.columns()

    def negated(self) -> InValues:
        return InValues(self.value, self.values, self.has_null, not self.inverted)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        documents = documents_of(self.value)
        if documents is None or has_nan(self.values) or (self.inverted and self.has_null):
            return None
        return documents.ask(statistics, "not_in" if self.inverted else "in", self.values)


@dataclass(frozen=True, slots=True)
class Holds(Predicate):
    """Whether a computed boolean is true; if `inverted`, whether it is false."""

    value: Expression
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow.compute as pc

        result = self.value.evaluate(batch)
        return pc.invert(result) if self.inverted else result

    def columns(self) -> Iterator[Column]:
        yield from self.value.columns()

    def negated(self) -> Holds:
        return Holds(self.value, not self.inverted)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        if isinstance(self.value, Call) and self.value.name == "match" and not self.inverted:
            documents = documents_of(self.value.args[0])
            if documents is None:
                return None
            match, text = self.value.detail
            return match_candidates(match, text, partial(documents.ask, statistics))
        documents = documents_of(self.value)
        if documents is None:
            return None
        return documents.ask(statistics, "==", pa.scalar(not self.inverted))


@dataclass(frozen=True, slots=True)
class ValueIsNull(Predicate):
    """Whether a computed value is null; if `inverted`, whether it is not null."""

    value: Expression
    inverted: bool = False

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        array = self.value.evaluate(batch)
        return array.is_valid() if self.inverted else array.is_null()

    def columns(self) -> Iterator[Column]:
        yield from self.value.columns()

    def negated(self) -> ValueIsNull:
        return ValueIsNull(self.value, not self.inverted)

    def candidates(self, statistics: RangePruner) -> RowRanges | None:
        documents = documents_of(self.value)
        if documents is None:
            return None
        return documents.ask(statistics, "is_not_null" if self.inverted else "is_null", None)


def choice(
    branches: Sequence[tuple[Predicate, Expression]], otherwise: Expression, settings: SqlSettings
) -> Expression:
    """Return the value of the first branch whose condition is true, in the common type.

    Raises NoCommonTypeError: the values have no common type.
    """
    values = _in_common_type([*(value for _, value in branches), otherwise], settings)
    conditions = [condition for condition, _ in branches]
    return Choice(tuple(zip(conditions, values[:-1], strict=True)), values[-1])


def _in_common_type(values: Sequence[Expression], settings: SqlSettings) -> Sequence[Expression]:
    common = list_type([value.dtype for value in values], settings, strings=True)
    if pat.is_null(common):
        return values
    return [casted(value, common, settings) for value in values]


def _coalesce(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    # The null check is on the value after the cast, because a cast can return null.
    values = _in_common_type(args, settings)
    branches = tuple((ValueIsNull(value, inverted=True), value) for value in values[:-1])
    return Choice(branches, values[-1]) if branches else values[0]


def _nvl2(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return choice([(ValueIsNull(args[0], inverted=True), args[1])], args[2], settings)


def truth(value: Expression) -> Predicate:
    """Return a boolean value as a condition."""
    if isinstance(value, Literal):
        return Constant(value.typed.value)
    return Holds(value)


def nullif(value: Expression, equal: Predicate) -> Expression:
    """Return the value, or null where the condition `equal` is true."""
    return Choice(((equal, Literal(Typed(None, value.dtype))),), value)


CONDITIONAL_FUNCTIONS: dict[str, tuple[range, Builder]] = {
    "coalesce": (range(1, 1000), _coalesce),
    **dict.fromkeys(("ifnull", "nvl"), (range(2, 3), _coalesce)),
    "nvl2": (range(3, 4), _nvl2),
}


# --------------------------------------------------------------------------------------------------
# Functions of dates and timestamps: their parts, sums with days and intervals, and truncation.
#
# The parts of a timestamp are the parts of its local time in the session's zone. An interval is a
# number of months or of microseconds.

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
        value = casted(value, INSTANT, settings)
    return Call("time_part", (value,), pa.int32(), (part, settings.time_zone))


def _to_timestamp(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    if not (is_datetime(args[0].dtype) or is_text(args[0].dtype)):
        raise NoCommonTypeError(f"to_timestamp of {type_name(args[0].dtype)} is not computed here")
    zoned = settings.timestamp_type != "TIMESTAMP_NTZ"
    return casted(args[0], INSTANT if zoned else CLOCK, settings)


def unit_of(value: Expression, name: str) -> str:
    """Return the unit of NumPy that a literal names. Raises NoCommonTypeError."""
    text = value.typed.value if isinstance(value, Literal) and is_text(value.dtype) else None
    unit = _UNITS.get(text.lower()) if text else None
    if unit is None:
        raise NoCommonTypeError(f"the unit of {name} must be one of {', '.join(_UNITS)} here")
    return unit


def _date_trunc(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    unit, value = unit_of(args[0], "date_trunc"), args[1]
    if not (is_datetime(value.dtype) or is_text(value.dtype)):
        raise NoCommonTypeError(f"date_trunc of {type_name(value.dtype)} is not computed here")
    instant = casted(value, INSTANT, settings)
    return Call("date_trunc", (instant,), INSTANT, (unit, settings.time_zone))


def _trunc(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    unit = unit_of(args[1], "trunc")
    if unit not in _DATE_UNITS:
        raise NoCommonTypeError(
            "the unit of trunc must be a year, quarter, month or week; use date_trunc"
        )
    return Call("trunc", (_date(args[0], settings),), pa.date32(), unit)


_ONE = range(1, 2)
_TWO = range(2, 3)
#: The possible numbers of arguments and the builder of each function.
DATE_FUNCTIONS: dict[str, tuple[range, Builder]] = {
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


# --------------------------------------------------------------------------------------------------
# Functions of strings, and matches of patterns. Positions and lengths count code points.


def text(value: Expression, settings: SqlSettings) -> Expression:
    """Return a value as a string.

    Raises NoCommonTypeError: the value is not a string and not null. Spark casts it depending on
    settings.
    """
    if not is_text(value.dtype) and not pat.is_null(value.dtype):
        raise NoCommonTypeError(
            f"expected a string, not {type_name(value.dtype)}; cast it to string"
        )
    return casted(value, pa.string(), settings)


def pattern_match(op: str, pattern: str, escape: str) -> tuple[TextMatch, str]:
    """Translate a pattern; see `like_regex`.

    - `op`: ``like``, ``ilike``, ``rlike``; ``rust`` for a regular expression of pylance, or
      ``rust_i`` without regard to case.

    Raises ValueError: the pattern is not valid.
    """
    if op == "rlike":
        return "like", to_re2(pattern)
    if op.startswith("rust"):
        return "like", rust_to_re2(pattern, ignore_case=op == "rust_i")
    return like_regex(pattern.lower() if op == "ilike" else pattern, escape)


def matched(
    op: str, value: Expression, pattern: Expression, escape: str, settings: SqlSettings
) -> Expression:
    """Return whether strings are ``LIKE``, ``ILIKE`` or ``RLIKE`` a literal pattern.

    Raises NoCommonTypeError: the values are not strings, or the pattern is not a literal. Raises
    ValueError: the pattern is not valid.
    """
    for side in (value, pattern):
        if not is_text(side.dtype) and not pat.is_null(side.dtype):
            raise NoCommonTypeError(
                f"{op.upper()} takes strings, not {type_name(side.dtype)}; cast it to string"
            )
    if not isinstance(pattern, Literal):
        raise NoCommonTypeError(
            f"the pattern of {op.upper()} must be a literal here; leave it to DataFrame.where"
        )
    if pattern.typed.value is None or pat.is_null(value.dtype):
        return Literal(Typed(None, pa.bool_()))
    if op == "ilike":
        value = _with_case("lower", value)
    return Call("match", (value,), pa.bool_(), pattern_match(op, pattern.typed.value, escape))


def _with_case(name: str, value: Expression) -> Expression:
    if isinstance(value, Call) and value.name in ("lower", "upper"):
        # Spark's optimizer drops the inner call, although it can change the result: upper('ß') is
        # 'SS'.
        value = value.args[0]
    return Call(name, (value,), pa.string())


def _change_case(name: str, args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return _with_case(name, text(args[0], settings))


def _length(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    value = args[0] if is_bytes(args[0].dtype) else text(args[0], settings)
    return Call("length", (value,), pa.int32())


def _trim(sides: str, args: Sequence[Expression], settings: SqlSettings) -> Expression:
    # Spark trims spaces only, not other white space.
    return Call("trim", (text(args[0], settings),), pa.string(), sides)


def _position(value: Expression, name: str) -> int | None:
    if not isinstance(value, Literal) or not (
        pat.is_null(value.dtype) or (pat.is_integer(value.dtype) and value.dtype.bit_width <= 32)
    ):
        raise NoCommonTypeError(
            f"positions and lengths of {name} must be integer literals here; leave it to "
            "DataFrame.where"
        )
    number: int | None = value.typed.value
    return number


def _slice(
    value: Expression, start: int | None, length: int | None, settings: SqlSettings
) -> Expression:
    if start is None or length is None:
        return Call("null", (value,), pa.string())
    if is_bytes(value.dtype):
        raise NoCommonTypeError("substrings of binary values are not computed here")
    first = start - 1 if start > 0 else start
    stop: int | None = first + max(length, 0)
    assert stop is not None
    if (first < 0 <= stop) or stop > (1 << 31) - 1:
        # Up to the end of the string.
        stop = None
    if length <= 0:
        first, stop = 0, 0
    return Call("slice", (text(value, settings),), pa.string(), (first, stop))


def _substring(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    start = _position(args[1], "substring")
    length = _position(args[2], "substring") if len(args) == 3 else (1 << 31) - 1
    return _slice(args[0], start, length, settings)


def _left(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    return _slice(args[0], 1, _position(args[1], "left"), settings)


def _right(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    length = _position(args[1], "right")
    if length is not None and length <= 0:
        return _slice(args[0], 1, 0, settings)
    start = None if length is None else max(-length, -(1 << 31) + 1)
    return _slice(args[0], start, (1 << 31) - 1, settings)


def concat(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    """Return the concatenation of strings, or of binary values; null if one of them is null."""
    if all(is_bytes(arg.dtype) for arg in args):
        return Call("concat", tuple(args), pa.binary())
    if any(is_bytes(arg.dtype) for arg in args):
        raise NoCommonTypeError(
            "binary values and other values are not concatenated here; cast them to string"
        )
    return Call("concat", tuple(text(arg, settings) for arg in args), pa.string())


def _search(match_kind: str, args: Sequence[Expression], settings: SqlSettings) -> Expression:
    value, part = args
    if is_bytes(value.dtype) != is_bytes(part.dtype):
        raise NoCommonTypeError("strings are not searched in binary values; cast one of them")
    if not is_bytes(value.dtype):
        value, part = text(value, settings), text(part, settings)
    if not isinstance(part, Literal):
        raise NoCommonTypeError(
            "the text to search must be a literal here; leave it to DataFrame.where"
        )
    if part.typed.value is None:
        return Call("null", (value,), pa.bool_())
    return Call("match", (value,), pa.bool_(), (match_kind, part.typed.value))


def _replace(args: Sequence[Expression], settings: SqlSettings) -> Expression:
    value, *replacements = (text(arg, settings) for arg in args)
    if not all(isinstance(argument, Literal) for argument in replacements):
        raise NoCommonTypeError("the search text and the new text of replace must be literals here")
    old, new = [
        *(argument.typed.value for argument in replacements if isinstance(argument, Literal)),
        "",
    ][:2]
    if old is None or new is None:
        return Call("null", (value,), pa.string())
    return Call("replace", (value,), pa.string(), (old, new))


#: The possible numbers of arguments and the builder of each function.
STRING_FUNCTIONS: dict[str, tuple[range, Builder]] = {
    **dict.fromkeys(("lower", "lcase"), (range(1, 2), partial(_change_case, "lower"))),
    **dict.fromkeys(("upper", "ucase"), (range(1, 2), partial(_change_case, "upper"))),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), (range(1, 2), _length)),
    **dict.fromkeys(("trim", "btrim"), (range(1, 2), partial(_trim, "both"))),
    "ltrim": (range(1, 2), partial(_trim, "left")),
    "rtrim": (range(1, 2), partial(_trim, "right")),
    **dict.fromkeys(("substring", "substr"), (range(2, 4), _substring)),
    "left": (range(2, 3), _left),
    "right": (range(2, 3), _right),
    "concat": (range(1, 1000), concat),
    "startswith": (range(2, 3), partial(_search, "starts")),
    "endswith": (range(2, 3), partial(_search, "ends")),
    "contains": (range(2, 3), partial(_search, "contains")),
    "replace": (range(2, 4), _replace),
}
