"""One column of each type, with values at which comparisons go wrong: bounds, NaN, signed zeros,
quotes, wildcards.

Columns of the family `hours` are TIME to Spark, which Spark 4.0 does not have: tables leave them
out there. Lance has no type of year-month intervals, so that those occur as literals only.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

NAN, INF = math.nan, math.inf
UTC = dt.UTC


@dataclass(frozen=True)
class Column:
    """A column, or a child of a struct.

    Attributes
    ----------
    sql : str
        How a predicate names it.
    family : str
        Which literals it is compared with, most of the time.
    dtype : pa.DataType
    """

    sql: str
    family: str
    dtype: pa.DataType


def integers(bits: int, signed: bool = True) -> list[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    # Spark has no type for the upper half of uint64.
    high = min(high, (1 << 63) - 1)
    near = [0, 1, 2, 5, 100, 127, *([-1, -5, -128] if signed else [])]
    exact = [1 << 24, (1 << 24) + 1, 1 << 53, (1 << 53) + 1, (1 << 53) + 2]
    chosen = [low, low + 1, high - 1, high, *near, *exact]
    return sorted({n for n in chosen if low <= n <= high})


SINGLES = [
    *(NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 5.0, 100.0, 0.5, 16777216.0, 16777218.0),
    *(-16777216.0, 16777215.0),
    *(float(np.float32(x)) for x in (0.1, 0.3, 3.4028235e38, 1.4e-45, 1e10, 1.1)),
]
DOUBLES = [
    *(NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 5.0, 100.0, 0.5, 0.1, 0.3, 16777217.0),
    *(float(np.float32(0.1)), 9007199254740992.0, 9007199254740994.0, 1.7976931348623157e308),
    *(5e-324, -9223372036854775808.0, 9223372036854775807.0, 1e300),
]
HALVES = [NAN, INF, -INF, 0.0, -0.0, 1.0, 0.5, float(np.float16(0.1)), 65504.0, 6e-8, 2048.0, 5.0]
TEXTS = [
    *("", "a", "A", "ab", "abc", "aB", "b", "O'Brien", "OBrien", 'say "hi"', "a\\b", "a\\\\b"),
    *("50%", "50x", "a_b", "axb", "a%b", "x\ny", "x\tz", "\\", "'", "''", "%", "_", " ", " a "),
    *("null", "NULL", "true", "false", "1", "01", "1.0", "1e0", " 5 ", "-5", "127", "128"),
    *("2147483648", "9007199254740993", "NaN", "Infinity", "2024-01-31", "2024-02-30", "1970"),
    *(
        "2024-01-31 12:30:15",
        "ä",
        "Ä",
        "ß",
        "ss",
        "é",
        "e\u0301",
        "漢字",
        "😀",
        "\U0010ffff",
        "😀a",
    ),
    *("\uffff", "zzz", "abc" * 30, "[a]", "a.c", "a|b", "(", "*", "^a$", "\r\n", "a\0b"),
]
BYTES = [
    *(b"", b"\x00", b"\x00\x00", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"abc", b"ab", b"a"),
    *(b"O'Brien", b"\x1f\x2a", b"1", b"\xc3\xa4"),
]
DAYS = [
    *(dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(1900, 1, 1)),
    *(dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2023, 12, 31), dt.date(2024, 1, 31)),
    *(dt.date(2024, 2, 29), dt.date(2024, 3, 10), dt.date(2024, 3, 31), dt.date(2024, 11, 3)),
    dt.date(9999, 12, 31),
]
CLOCKS = [
    *(dt.datetime(1582, 10, 15), dt.datetime(1900, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59)),
    *(dt.datetime(1970, 1, 1), dt.datetime(2024, 1, 31), dt.datetime(2024, 1, 31, 12, 30, 15)),
    dt.datetime(2024, 1, 31, 12, 30, 15, 123456),
    dt.datetime(2024, 1, 31, 23, 0),
    # Times of day that time zones skip or repeat.
    *(dt.datetime(2024, 3, 10, 2, 30), dt.datetime(2024, 3, 10, 7, 0)),
    *(dt.datetime(2024, 3, 31, 1, 0), dt.datetime(2024, 3, 31, 2, 30)),
    *(dt.datetime(2024, 11, 3, 5, 30), dt.datetime(2024, 11, 3, 6, 30)),
    *(dt.datetime(2024, 11, 3, 1, 30), dt.datetime(2024, 10, 27, 0, 30)),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
]
INSTANTS = [clock.replace(tzinfo=UTC) for clock in CLOCKS]
SECONDS = [clock.replace(microsecond=0) for clock in CLOCKS]
#: Years that 64 bits of nanoseconds reach.
NANOS = [clock for clock in CLOCKS if 1700 < clock.year < 2200]

HOURS = [
    *(dt.time(0), dt.time(0, 0, 1), dt.time(1, 2, 3), dt.time(9, 5, 3), dt.time(11, 59, 59)),
    *(dt.time(12), dt.time(12, 30), dt.time(12, 34, 56), dt.time(13), dt.time(23, 59, 59)),
]
MILLI_HOURS = [*HOURS, dt.time(12, 34, 56, 789000), dt.time(23, 59, 59, 999000)]
MICRO_HOURS = [
    *(*MILLI_HOURS, dt.time(0, 0, 0, 1), dt.time(12, 34, 56, 123456), dt.time(12, 34, 56, 100000)),
    dt.time(23, 59, 59, 999999),
]
SPANS = [
    *(dt.timedelta(), dt.timedelta(seconds=1), dt.timedelta(seconds=-1), dt.timedelta(minutes=90)),
    *(dt.timedelta(hours=24), dt.timedelta(hours=25), dt.timedelta(days=-1), dt.timedelta(days=31)),
    *(dt.timedelta(1, 7384), -dt.timedelta(1, 7384), dt.timedelta(1, -1), dt.timedelta(365)),
]
MICRO_SPANS = [
    *(*SPANS, dt.timedelta(1, 7384, 123456), -dt.timedelta(1, 7384, 100000)),
    *(dt.timedelta(microseconds=1), dt.timedelta(microseconds=-1)),
]
#: The bounds of microseconds in 64 bits.
LONG_SPANS = [
    *MICRO_SPANS,
    dt.timedelta(microseconds=(1 << 63) - 1),
    dt.timedelta(microseconds=-(1 << 63)),
]


def decimals(precision: int, scale: int) -> list[Decimal]:
    most = Decimal((0, (9,) * precision, -scale))
    unit = Decimal((0, (1,), -scale))
    near = [Decimal(text) for text in ("0", "1", "-1", "5", "100", "0.5", "0.1", "1.05", "0.3")]
    limit = Decimal((0, (1,), precision - scale))
    fitting = [number for number in near if abs(number) < limit and _digits(number, scale)]
    return [most, most.copy_negate(), unit, unit.copy_negate(), *fitting]


def _digits(number: Decimal, scale: int) -> bool:
    exponent = number.as_tuple().exponent
    return isinstance(exponent, int) and -exponent <= scale


INNER = pa.struct([("y.z", pa.string()), ("values", pa.int32()), ("tick`s", pa.int32())])
DEEP = pa.struct([("x", pa.int32()), ("Text", pa.string()), ("f", pa.float32()), ("in ner", INNER)])
#: Columns of the table: name, type, values, and the family of its literals.
PLAIN: list[tuple[str, pa.DataType, list[Any], str]] = [
    ("tiny", pa.int8(), integers(8), "integer"),
    ("small", pa.int16(), integers(16), "integer"),
    ("number", pa.int32(), integers(32), "integer"),
    ("big", pa.int64(), integers(64), "integer"),
    ("u8", pa.uint8(), integers(8, False), "integer"),
    ("u16", pa.uint16(), integers(16, False), "integer"),
    ("u32", pa.uint32(), integers(32, False), "integer"),
    ("u64", pa.uint64(), integers(64, False), "integer"),
    ("half", pa.float16(), HALVES, "float"),
    ("single", pa.float32(), SINGLES, "float"),
    ("double", pa.float64(), DOUBLES, "float"),
    ("d5_2", pa.decimal128(5, 2), decimals(5, 2), "decimal"),
    ("d10", pa.decimal128(10, 0), decimals(10, 0), "decimal"),
    ("d18_6", pa.decimal128(18, 6), decimals(18, 6), "decimal"),
    ("d38", pa.decimal128(38, 0), decimals(38, 0), "decimal"),
    ("d38_18", pa.decimal128(38, 18), decimals(38, 18), "decimal"),
    ("d38_38", pa.decimal128(38, 38), decimals(38, 38), "decimal"),
    ("word", pa.string(), TEXTS, "text"),
    ("long_word", pa.large_string(), TEXTS, "text"),
    ("code", pa.dictionary(pa.int16(), pa.string()), TEXTS[:40], "text"),
    ("bytes", pa.binary(), BYTES, "bytes"),
    ("three", pa.binary(3), [b"abc", b"\x00\x00\x00", b"\xff\xff\xff", b"ab\x00"], "bytes"),
    ("flag", pa.bool_(), [True, False], "flag"),
    ("other_flag", pa.bool_(), [True, False], "flag"),
    ("day", pa.date32(), DAYS, "day"),
    ("day64", pa.date64(), DAYS, "day"),
    ("at", pa.timestamp("us", "UTC"), INSTANTS, "instant"),
    ("at_ns", pa.timestamp("ns", "UTC"), [clock.replace(tzinfo=UTC) for clock in NANOS], "instant"),
    ("clock", pa.timestamp("us"), CLOCKS, "clock"),
    ("clock_s", pa.timestamp("s"), SECONDS, "clock"),
    ("time_us", pa.time64("us"), MICRO_HOURS, "hours"),
    ("time_ns", pa.time64("ns"), MICRO_HOURS, "hours"),
    ("time_ms", pa.time32("ms"), MILLI_HOURS, "hours"),
    ("time_s", pa.time32("s"), HOURS, "hours"),
    ("span", pa.duration("us"), LONG_SPANS, "span"),
    ("span_ns", pa.duration("ns"), MICRO_SPANS, "span"),
    ("span_s", pa.duration("s"), SPANS, "span"),
    ("a-b", pa.int32(), integers(32), "integer"),
    ("with space", pa.string(), TEXTS, "text"),
    ("comment", pa.string(), TEXTS, "text"),
    ("values", pa.int32(), integers(32), "integer"),
    ("key", pa.int64(), integers(64), "integer"),
    ("Upper", pa.int32(), integers(32), "integer"),
    ("größe", pa.float64(), DOUBLES, "float"),
    ("列", pa.string(), TEXTS, "text"),
    ("1st", pa.int32(), integers(32), "integer"),
]
#: Columns that are only compared with null.
OPAQUE: list[tuple[str, pa.DataType, list[Any]]] = [
    ("list", pa.list_(pa.int32()), [[], [1, None], [2]]),
    ("vector", pa.list_(pa.float32(), 2), [[1.0, 2.0], [NAN, 0.0]]),
    ("parts", pa.list_(pa.struct([("k", pa.int32())])), [[], [{"k": 1}], [{"k": None}]]),
]
MAP = ("map", pa.map_(pa.string(), pa.int32()), [[], [("a", 1)], [("b", None)]])

#: The texts by which predicates name columns without backticks, or with them.
_QUOTED = {"a-b", "with space", "größe", "列", "1st"}


def quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


COMPARED = [
    Column(quoted(name) if name in _QUOTED else name, family, dtype)
    for name, dtype, _, family in PLAIN
] + [
    Column("`word`", "text", pa.string()),
    Column("WORD", "text", pa.string()),
    Column("upper", "integer", pa.int32()),
    Column("deep.x", "integer", pa.int32()),
    Column("deep.Text", "text", pa.string()),
    Column("Deep.TEXT", "text", pa.string()),
    Column("deep.f", "float", pa.float32()),
    Column("deep.`in ner`.`y.z`", "text", pa.string()),
    Column("`deep`.`in ner`.values", "integer", pa.int32()),
    Column("deep.`in ner`.`tick``s`", "integer", pa.int32()),
]
NULLABLE = ["deep", "deep.`in ner`", *(name for name, *_ in OPAQUE)]


def values_of(rng: random.Random, choices: list[Any], rows: int, nulls: float = 0.12) -> list[Any]:
    """Return values of a column in a random order, each choice at least once if they are few."""
    values = [*choices, *(rng.choice(choices) for _ in range(max(rows - len(choices), 0)))][:rows]
    rng.shuffle(values)
    return [None if rng.random() < nulls else value for value in values]


def deep_values(rng: random.Random, rows: int) -> list[Any]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.12 else value

    def inner() -> Any:
        return {
            "y.z": maybe(rng.choice(TEXTS)),
            "values": maybe(rng.choice(integers(32))),
            "tick`s": maybe(rng.choice(integers(32))),
        }

    return [
        maybe(
            {
                "x": maybe(rng.choice(integers(32))),
                "Text": maybe(rng.choice(TEXTS)),
                "f": maybe(rng.choice(SINGLES)),
                "in ner": maybe(inner()),
            }
        )
        for _ in range(rows)
    ]
