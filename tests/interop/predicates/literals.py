"""Literals of Spark's SQL in every spelling, by the family of the columns that they are compared
with.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.interop.predicates.columns import BYTES, TEXTS
from tests.support.spark.versions import HAS_TIME

WHOLE = [
    *("0", "1", "-1", "2", "5", "-5", "100", "127", "128", "-128", "-129", "255", "256"),
    *("32767", "32768", "-32768", "-32769", "65535", "65536", "2147483647", "2147483648"),
    *("-2147483648", "-2147483649", "4294967295", "4294967296", "9223372036854775806"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("-9223372036854775809", "18446744073709551615", "18446744073709551616"),
    *("16777216", "16777217", "16777218", "16777215", "-16777217", "9007199254740992"),
    *("9007199254740993", "9007199254740994", "9" * 38, "-" + "9" * 38, "9" * 39, "007", "+5"),
    *("1" + "0" * 37, "65504", "65505", "2048", "2049", "- 5", "-(5)", "- -5"),
]
POINTED = [
    *("0.0", "-0.0", "1.0", "5.0", "5.", ".5", "-.5", "0.1", "0.10", "0.3", "1.05", "1.050"),
    *("1.055", "99.99", "999.99", "-999.99", "999.995", "0.01", "0.001", "16777215.5"),
    *("16777216.0", "16777217.0", "9007199254740993.0", "0.000001", "0.0000001", "2147483647.5"),
    *("9223372036854775807.5", "99999999999999999999.999999999999999999", "127.5", "-128.5"),
    *("0." + "9" * 38, "0." + "0" * 37 + "1", "1.4", "3.4028235", "100.00000000000000000000"),
]
EXPONENTS = [
    *("1e0", "5E0", "1E2", "-1e2", "1e-1", "1.5e1", ".5e1", "5.e0", "1e300", "-1e300", "1e308"),
    *("1e309", "1e-400", "5e-324", "1e10", "3.4028235e38", "3.4028236e38", "1.4e-45", "1e38"),
    *("1e39", "1e18", "9.223372036854775807e18", "16777217e0", "1e+2", "0e0", "-0e0"),
]
SUFFIXED = [
    *("5Y", "-128Y", "127y", "128Y", "5S", "32767S", "32768S", "5L", "-5l", "9223372036854775807L"),
    *("-9223372036854775808L", "9223372036854775808L", "5D", "0.1D", "-0.0D", "1e300d", "5F"),
    *("0.1F", "16777217F", "1e39F", "-0.0f", "5BD", "0.1BD", "1.050bd", "1e2BD", "1E-3BD"),
    *("9e37BD", ".1BD", "16777217D", "9007199254740993D", "0.30000001192092896D"),
    "0.10000000149011612D",
]
MADE = [
    *("double('NaN')", "double('Infinity')", "-double('inf')", "float('NaN')"),
    *("float('-Infinity')", "float('0.1')", "double('0.1')", "cast(0.1 as float)"),
    *("cast(0.1 as double)", "cast(5 as bigint)", "cast('5' as int)", "int('5')", "tinyint(5)"),
    *("cast(5 as tinyint)", "cast(300 as tinyint)", "5::bigint", "'5'::int", "cast(1.5 as int)"),
    *("cast(5 as decimal(10, 2))", "try_cast('x' as int)", "cast(1.055 as decimal(5, 2))"),
    *("cast(null as int)", "cast('NaN' as float)", "bigint(5.9)", "cast(1e10 as int)"),
    *("decimal('1.05')", "cast(true as int)", "cast('9e37' as decimal(38, 0))", "1 + 1", "2 * 3"),
    *("5 - 10", "1 / 2", "7 DIV 2", "7 % 4", "-5 % 3", "1.1 + 2.2", "2 << 2", "~5", "5 & 4"),
    *("5 | 8", "0.1 + 0.2", "0.1D + 0.2D", "127Y + 1Y", "abs(-5)", "2147483647 + 1"),
]
QUOTED_NUMBERS = [
    *("'5'", "'-5'", "' 5 '", "'5.0'", "'1e0'", "'x'", "''", "'128'", "'2147483648'", "'NaN'"),
    *("'0.1'", "'9223372036854775808'", "'5L'", "'Infinity'", "'+5'", "'٥'", "'5\\n'", "'0x5'"),
    *("'1_0'", "'5D'"),
]
DATES = [
    *("2024-01-31", "2024-02-29", "2024-02-30", "1970-01-01", "1969-12-31", "1582-10-10"),
    *("0001-01-01", "9999-12-31", "2024-1-5", "2024", "2024-02", "2024-01-31 12:00:00"),
    *("2024-01-31T", " 2024-01-31 ", "10000-01-01", "+10000-01-01", "-0001-01-01", "2024-13-01"),
    *("epoch", "Today", "2023-02-29", "1582-10-04"),
]
TIMES = [
    *("2024-01-31 12:30:15", "2024-01-31 12:30:15.123456", "2024-01-31T12:30:15", "2024-01-31"),
    *("2024-01-31 12:30:15Z", "2024-01-31 12:30:15+01:00", "2024-01-31 12:30:15 UTC"),
    *("2024-01-31 12:30:15 Europe/Berlin", "2024-01-31 12:30:15.123456789", "2024-01-31 12:30"),
    *("2024-03-10 02:30:00", "2024-03-31 02:30:00", "2024-11-03 01:30:00", "2024-10-27 02:30:00"),
    *("1970-01-01 00:00:00", "1969-12-31 23:59:59", "1582-10-15 00:00:00"),
    *("9999-12-31 23:59:59.999999", "2024-01-31 12:30:15-08:00", "2024-01-31 12:30:15 GMT+1"),
    *("2024-01-31 12:30:15 +5:30", "12:30:15", "2024-01-31 24:00:00", "2024-1-31 1:2:3"),
    *("2024-01-31 12:30:15 PST", "1900-01-01 00:00:00", "2024", "2024-01-31 12:30:15."),
    *("2024-01-31 12:30:15.1", "2024-01-31 12:30:15z", "T12:30", "1883-11-18 12:00:00"),
]
PATTERNS = [
    *("%", "", "a%", "%b", "%a%", "_", "__", "a_b", "a\\_b", "a\\%b", "50\\%", "%\\%%", "%_%"),
    *("_%_", "%''%", "%'%", "O%n", "%\n%", "x_y", "ä", "_ä", "😀", "_a", "😀_", "%😀%", "\\\\"),
    *("a\\\\b", "%\\\\%", "a\\b", "\\", "a\\", "[a]", "a.c", "a|b", "(", "^a$", "%%", "a%%c", "A%"),
    *("%B", "%\\", "\\%", "!%", "a!_b", "!!", "%\0%", "%\r\n%", "abc%abc", "%abc%abc%", "null"),
    *("%l_", "é%", "ss", "%O'B%"),
]
REGEXES = ["a", "^a", "b$", "a.c", "^$", "[ab]+", "\\\\d", "(?i)o", "a|b", "(", "\\\\.", "^O''B"]

HOURS = [
    *("12:34:56", "12:34:56.789", "12:34:56.123456", "12:34:56.1", "12:34:56.10", "12:30", "9:5:3"),
    *("00:00:00", "0:0", "23:59:59", "23:59:59.999999", "23:59:59.999", "00:00:00.000001", "13:00"),
    *("T12:34:56", "12:34:56.", "24:00:00", "12:60", "12:34:60", "12", "-1:00", "12:34:56Z", "x"),
    *("", " 12:34:56 ", "12:34:56.1234567", "12:34:56.1000000", "12:34:56.1234567890", "1:00 PM"),
    *("now", "2024-01-31 12:34:56", "12:34:", "001:00", "t1:00", "\t13:00", "12.34", "12:34:56 pm"),
    "١:٠٠",
]
SPANS = [
    *("INTERVAL '1' DAY", "INTERVAL '24' HOUR", "INTERVAL 25 HOURS", "INTERVAL '90' MINUTES"),
    *("INTERVAL 1 SECOND", "INTERVAL '-1' SECOND", "INTERVAL -1 DAY", "INTERVAL - '1' DAY"),
    *("INTERVAL '1 02:03:04' DAY TO SECOND", "INTERVAL '1 02:03:04.123456' DAY TO SECOND"),
    *("INTERVAL '-1 02:03:04' DAY TO SECOND", "INTERVAL -'1 02:03:04.1' DAY TO SECOND"),
    *("INTERVAL '1 02' DAY TO HOUR", "INTERVAL '1 02:03' DAY TO MINUTE"),
    *("interval '31 0' day to hour", "INTERVAL '25:00' HOUR TO MINUTE"),
    *("INTERVAL '26:03:04' HOUR TO SECOND", "INTERVAL '90:00' MINUTE TO SECOND"),
    *("INTERVAL '0:00.000001' MINUTE TO SECOND", "INTERVAL '0.000001' SECOND"),
    *("INTERVAL 1.5 SECONDS", "INTERVAL '-0.000001' SECOND", "INTERVAL '1 day 2 hours'"),
    *("INTERVAL '1 day -1 second'", "INTERVAL 1 DAY 2 HOURS"),
    *("INTERVAL '1 day 7384.123456 seconds'", "INTERVAL '1' WEEK", "INTERVAL '0' DAY"),
    *("INTERVAL '1' MICROSECOND", "INTERVAL '1000' MILLISECONDS", "INTERVAL '365' DAYS"),
    *("INTERVAL '106751991 04:00:54.775807' DAY TO SECOND", "INTERVAL '106751992' DAY"),
    *("INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND", "- INTERVAL '1' DAY"),
    *("INTERVAL '1.0000019' SECOND", "INTERVAL '-1.0000019' SECOND"),
    *("INTERVAL '1 2:3:4' DAY TO SECOND", "INTERVAL '1 24:00:00' DAY TO SECOND"),
    *("INTERVAL '1.5' DAY", "INTERVAL '1' DAY TO SECOND", "INTERVAL '1  02:03:04' DAY TO SECOND"),
    *("INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '1' MONTH", "INTERVAL '1' DAY '2' HOUR"),
    *("INTERVAL '1 day' + INTERVAL '2 hours'", "INTERVAL '1' DAY * 2"),
    *("INTERVAL '3:4' DAY TO SECOND", "INTERVAL '1 02:03:04' SECOND TO DAY"),
    *("INTERVAL '1 month 2 days'", "make_dt_interval(1, 2, 3, 4)"),
    *("cast('1 02:03:04' as interval day to second)", "INTERVAL '5'"),
    *("INTERVAL ' 1 00:00:00.9999999 ' DAY TO SECOND", "INTERVAL '9999999999' SECOND"),
]


def text(rng: random.Random, value: str) -> str:
    """Return a string literal of a value in some spelling, by Spark's defaults most of the time."""
    choice = rng.randrange(10)
    if choice < 4:
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{_visible(rng, escaped)}'"
    if choice == 4:
        doubled = value.replace("\\", "\\\\").replace("'", "''")
        return f"'{doubled}'"
    if choice == 5:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if choice == 6:
        doubled = value.replace("\\", "\\\\").replace('"', '""')
        return f'"{doubled}"'
    if choice == 7:
        # The text is not escaped: the settings of the session decide what backslashes mean.
        quote = "'" if "'" not in value else '"'
        return f"{rng.choice(['', 'r', 'R'])}{quote}{value}{quote}"
    if choice == 8 and len(value) > 1:
        position = rng.randrange(1, len(value))
        return " ".join(text(rng, part) for part in (value[:position], value[position:]))
    return "'" + "".join(_spelt(rng, char) for char in value) + "'"


def _visible(rng: random.Random, escaped: str) -> str:
    if rng.random() < 0.5:
        for char, name in (("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r"), ("\0", "\\0")):
            escaped = escaped.replace(char, name)
    return escaped


def _spelt(rng: random.Random, char: str) -> str:
    number = ord(char)
    if rng.random() < 0.4 or (char in "\\'" and number < 0x80):
        if number <= 0x7F and rng.random() < 0.4:
            return f"\\{number:03o}"
        return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08X}"
    # A backslash before another character is dropped. Before a wildcard it stays.
    return f"\\{char}" if char in "#-%_." and rng.random() < 0.5 else char


def number(rng: random.Random) -> str:
    return rng.choice(
        rng.choices(
            [
                WHOLE,
                POINTED,
                EXPONENTS,
                SUFFIXED,
                MADE,
                QUOTED_NUMBERS,
                ["NULL", "true", "DATE '2024-01-31'"],
            ],
            [10, 6, 4, 4, 4, 3, 1],
        )[0]
    )


def string(rng: random.Random) -> str:
    if rng.random() < 0.08:
        return rng.choice(
            [
                *("NULL", "5", "1.0", "true", "X'61'", "concat('a', 'b')", "lower('A')"),
                "DATE'2024-01-31'",
            ]
        )
    return text(rng, rng.choice(TEXTS))


def binary(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return rng.choice(
            [
                *("NULL", "'abc'", "X'F'", "x''", "binary('abc')", "cast('a' as binary)"),
                *("X'1f2A'", "5", "unhex('61')"),
            ]
        )
    return f"X'{rng.choice(BYTES).hex()}'"


def boolean(rng: random.Random) -> str:
    return rng.choice(
        [
            *("true", "FALSE", "NULL", "'true'", "'f'", "1", "0", "1.0", "cast('yes' as boolean)"),
            *("(1 = 1)", "(not true)", "'x'"),
        ]
    )


def day(rng: random.Random) -> str:
    choice = rng.randrange(12)
    value = rng.choice(DATES)
    if choice < 5:
        return f"{rng.choice(['DATE', 'date'])}{rng.choice(['', ' '])}'{value}'"
    if choice < 8:
        return f"'{value}'"
    if choice == 8:
        return rng.choice(
            [
                *(f"cast('{value}' as date)", f"date('{value}')", f"to_date('{value}')"),
                f"'{value}'::date",
            ]
        )
    if choice == 9:
        return instant(rng)
    if choice == 10:
        return rng.choice(
            [
                *("DATE '2024-01-31' + INTERVAL '1' DAY", "DATE '2024-01-31' + 1"),
                *("date_add(DATE '2024-01-31', 29)", "DATE '2024-03-31' - INTERVAL '1' MONTH"),
                "make_date(2024, 1, 31)",
            ]
        )
    return rng.choice(["NULL", "20240131", "5", "cast(null as date)", "true"])


def instant(rng: random.Random) -> str:
    choice = rng.randrange(14)
    value = rng.choice(TIMES)
    if choice < 5:
        return f"TIMESTAMP{rng.choice(['', ' '])}'{value}'"
    if choice < 7:
        return f"TIMESTAMP_NTZ '{value}'"
    if choice < 9:
        return f"TIMESTAMP_LTZ '{value}'"
    if choice < 11:
        return f"'{value}'"
    if choice == 11:
        return rng.choice(
            [
                *(f"cast('{value}' as timestamp)", f"timestamp('{value}')"),
                *(f"'{value}'::timestamp_ntz", f"to_timestamp('{value}')"),
            ]
        )
    if choice == 12:
        return f"DATE '{rng.choice(DATES)}'"
    return rng.choice(
        [
            *("NULL", "5", "timestamp_seconds(1706704215)"),
            *("TIMESTAMP '2024-01-31 12:30:15' - INTERVAL '30' SECOND", "1706704215.0"),
        ]
    )


def hour(rng: random.Random) -> str:
    choice, value = rng.randrange(12), rng.choice(HOURS)
    if choice < 6:
        return f"{rng.choice(['TIME', 'time'])}{rng.choice(['', ' '])}'{value}'"
    if choice < 9:
        return f"'{value}'"
    if choice == 9:
        return rng.choice(
            [
                *(f"cast('{value}' as time)", f"try_cast('{value}' as time(6))"),
                *(f"'{value}'::time", f"cast('{value}' as time(3))", f"time('{value}')"),
                f"to_time('{value}')",
            ]
        )
    return rng.choice(
        [
            *("NULL", "cast(null as time)", "5", "TIMESTAMP '2024-01-31 12:30:15'"),
            *("DATE '2024-01-31'", "TIME '12:30' + INTERVAL '1' HOUR", "make_time(12, 30, 0)"),
            *("true", "INTERVAL '1' HOUR", "cast(TIMESTAMP_NTZ '2024-01-31 12:30:15' as time)"),
        ]
    )


def span(rng: random.Random) -> str:
    if rng.random() < 0.9:
        return rng.choice(SPANS)
    return rng.choice(
        [
            *("NULL", "5", "'1 02:03:04'", "'1 day'", "true"),
            *("DATE '2024-01-31' - DATE '2024-01-30'", "abs(INTERVAL '-1' DAY)"),
            *("cast(5 as interval day)", "TIMESTAMP '2024-01-31 12:30:15'"),
            "cast(null as interval day to second)",
        ]
    )


FAMILIES: dict[str, Callable[[random.Random], str]] = {
    "integer": number,
    "float": number,
    "decimal": number,
    "text": string,
    "bytes": binary,
    "flag": boolean,
    "day": day,
    "instant": instant,
    "clock": instant,
    "span": span,
    **({"hours": hour} if HAS_TIME else {}),
}
