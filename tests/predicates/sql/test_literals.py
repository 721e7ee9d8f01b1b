"""Numbers in the text of predicates: signs, suffixes and casts have Spark's meaning, or are
refused.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.columns import Compare
from lance_spark.predicates.sql import parse_predicate
from lance_spark.predicates.tree import Constant
from tests.hostile.guard import guarded

SCHEMA = Schema.from_arrow(
    pa.schema(
        {
            "i": pa.int32(),
            "m": pa.decimal128(10, 2),
            "f": pa.float64(),
            "d": pa.date32(),
            "t": pa.timestamp("us", "UTC"),
            "wide": pa.decimal128(38, 1),
        }
    )
)
_DIGITS = "1234567890123456789012345678901234567.8"


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("i", "cast(-1 as int)", -1),
        ("i", "cast((-3) as smallint)", -3),
        ("i", "-1L", -1),
        ("i", "cast(7L as int)", 7),
        ("i", "cast(-7Y as int)", -7),
        ("i", "cast(' 5' as int)", 5),
        ("i", "cast(true as int)", 1),
        ("i", "cast(1.5 as int)", 1),
        ("i", "cast(-1.5 as int)", -1),
        ("f", "cast(-1.5 as double)", -1.5),
        ("f", "cast(2.5BD as double)", 2.5),
        ("f", "cast(0.1 as float)", 0.10000000149011612),
        ("wide", "cast(-1 as decimal(3, 1))", Decimal("-1.0")),
        ("wide", f"-{_DIGITS}", Decimal(f"-{_DIGITS}")),
        ("wide", f"-{_DIGITS}BD", Decimal(f"-{_DIGITS}")),
        ("wide", "-0.0", Decimal("0.0")),
        ("m", "2.25BD", Decimal("2.25")),
        ("m", "7BD", Decimal("7")),
        ("m", "0.5BD", Decimal("0.5")),
        ("m", "cast('2.25' as decimal(10, 2))", Decimal("2.25")),
        ("m", "cast('2.25' as decimal(10, 4))", Decimal("2.25")),
        ("m", "cast(7 as decimal(1))", Decimal("7")),
        ("m", "cast('2.255' as decimal(10, 2))", Decimal("2.26")),
        ("m", "cast(-2.255 as decimal(10, 2))", Decimal("-2.26")),
    ],
)
def test_values(column: str, text: str, value: Any) -> None:
    result = parse_predicate(f"{column} = {text}", SCHEMA)
    assert isinstance(result, Compare)
    assert result.value.as_py() == value


def test_casts_of_null() -> None:
    result = parse_predicate("i = cast(null as int)", SCHEMA)
    assert isinstance(result, Constant)
    assert result.value is None


@pytest.mark.parametrize(
    "text",
    [
        *("i = 1EBD", "i = -1EBD", "i in (1, 1EBD)", "d = 1e999999999BD", "i = -1e999999999BD"),
        *("wide = '1e999999999'", "wide = 0.1e-999999999BD", f"i in ({'9' * 200_000}BD)"),
        "i = 1" + "::int" * 5_000,
        "i" + " between 1 and 2" * 3_000,
        "i" + " -> 1" * 3_000,
        "t = '0000-01-01 00:00:00Z'",
        "t = timestamp '9999-12-31 23:59:59-19:00'",
        "f = " + "-" * 5_000 + "1",
        "not " * 5_000 + "i = 1",
        "(" * 5_000 + "i = 1" + ")" * 5_000,
        "i = 1" + " = 1" * 5_000,
        "'" + "\\\\" * 50_000,
        "/*" * 50_000,
    ],
)
def test_hostile_texts_are_refused_fast(text: str) -> None:
    error = guarded(lambda data: parse_predicate(data.decode(), SCHEMA), text.encode())
    assert isinstance(error, InvalidInputError)
    assert "filter" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        *("i = cast(sqrt(16) as int)", "f = cast(nan as double)", "i = cast(300 as tinyint)"),
        *("i = cast('300' as tinyint)", "i = cast('1_0' as int)", "i = '1_0'", "i = '٣'"),
        *("i = cast(X'31' as int)", f"f = cast({'9' * 400} as float)"),
        *("m = cast('22.5' as decimal(2, 1))", "m = cast('NaN' as decimal(10, 2))"),
        *("m = cast('x' as decimal(10, 2))", "m = 'abc'"),
    ],
)
def test_casts_that_are_not_supported(text: str) -> None:
    with pytest.raises(InvalidInputError, match="filter"):
        parse_predicate(text, SCHEMA)


@pytest.mark.parametrize("column", ["m", "f"])
def test_integers_past_doubles(column: str) -> None:
    with pytest.raises(InvalidInputError, match=column):
        parse_predicate(f"{column} = {'9' * 400}", SCHEMA)
