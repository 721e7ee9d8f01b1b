"""Decimals in the text of predicates."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.predicates.column_predicates import Compare
from lance_spark.scan.predicates.sql import parse_predicate

SCHEMA = Schema.from_arrow(pa.schema({"m": pa.decimal128(10, 2), "f": pa.float64()}))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2.25BD", "2.25"),
        ("7BD", "7"),
        ("0.5BD", "0.5"),
        ("cast('2.25' as decimal(10, 2))", "2.25"),
        ("cast('2.25' as decimal(10, 4))", "2.25"),
        ("cast(7 as decimal(1))", "7"),
        ("cast('2.255' as decimal(10, 2))", "2.26"),
        ("cast(-2.255 as decimal(10, 2))", "-2.26"),
    ],
)
def test_decimals(text: str, number: str) -> None:
    found = parse_predicate(f"m = {text}", SCHEMA)
    assert isinstance(found, Compare)
    assert found.value.as_py() == Decimal(number)


@pytest.mark.parametrize(
    "text",
    [
        "cast('22.5' as decimal(2, 1))",
        "cast('NaN' as decimal(10, 2))",
        "cast('x' as decimal(10, 2))",
        "'abc'",
    ],
)
def test_decimals_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="filter"):
        parse_predicate(f"m = {text}", SCHEMA)


@pytest.mark.parametrize("column", ["m", "f"])
def test_integers_past_doubles(column: str) -> None:
    with pytest.raises(InvalidInputError, match=column):
        parse_predicate(f"{column} = {'9' * 400}", SCHEMA)
