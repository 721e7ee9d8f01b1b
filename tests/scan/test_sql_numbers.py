"""Numbers in predicates that are given as text: those without end are refused at once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema import Schema
from lance_spark.scan.sql import parse_predicate
from tests.hostile.guard import guarded

SCHEMA = Schema.from_arrow(
    pa.schema({"i": pa.int32(), "f": pa.float64(), "d": pa.date32(), "wide": pa.decimal128(38, 1)})
)


@pytest.mark.parametrize(
    "text",
    [
        "i = 1EBD",
        "i = -1EBD",
        "i in (1, 1EBD)",
        "d = 1e999999999BD",
        "wide = '1e999999999'",
        "wide = 0.1e-999999999BD",
        f"i in ({'9' * 200_000}BD)",
        "i" + " between 1 and 2" * 3_000,
        "i" + " -> 1" * 3_000,
    ],
)
def test_texts_that_are_refused_at_once(text: str) -> None:
    error = guarded(lambda data: parse_predicate(data.decode(), SCHEMA), text.encode())
    assert isinstance(error, InvalidInputError)
    assert "filter" in str(error)
