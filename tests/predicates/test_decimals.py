"""Arithmetic of decimals has the digits, the rounding and the overflow of Spark's rules."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.encoding.blocks import decimal_words, from_decimal_words
from lance_spark.errors import EvaluationError
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates import coercion
from lance_spark.predicates.expressions.decimals import DecimalResult
from lance_spark.predicates.expressions.node import ColumnValue
from tests.support.cells import number_of

EXACT = Context(prec=160)
MOST = 38


def random_column(rng: random.Random, rows: int) -> tuple[pa.DataType, list[Decimal | None]]:
    """Return a type of decimals, and values of few or of all its digits."""
    precision = rng.choice([3, 9, 18, 19, MOST])
    scale = rng.randrange(precision + 1)
    most = 10 ** rng.choice([precision, precision // 2 + 1])
    values = [
        None if rng.random() < 0.1 else EXACT.scaleb(rng.randrange(-most + 1, most), -scale)
        for _ in range(rows)
    ]
    return pa.decimal128(precision, scale), values


def decimals(values: list[Decimal | None], dtype: pa.DataType) -> pa.Array:
    """Return decimals. Nulls have the bytes of the greatest value."""
    greatest = EXACT.scaleb(10**dtype.precision - 1, -dtype.scale)
    whole = pa.array([greatest if value is None else value for value in values], dtype)
    null = np.array([value is None for value in values], np.bool_)
    return from_decimal_words(decimal_words(whole), dtype, null) if values else whole


def result_type(op: str, left: pa.DataType, right: pa.DataType, loss: bool) -> pa.DataType:
    """Return the type of a result by Spark's rules."""
    scale = left.scale + right.scale if op == "*" else max(left.scale, right.scale)
    whole = [side.precision - side.scale for side in (left, right)]
    precision = scale + 1 + (sum(whole) if op == "*" else max(whole))
    if precision > MOST and loss:
        return pa.decimal128(MOST, max(MOST - (precision - scale), min(scale, 6)))
    return pa.decimal128(min(precision, MOST), min(scale, MOST))


@pytest.mark.parametrize("seed", range(number_of(60, 3_000)))
def test_results_are_those_of_exact_arithmetic(seed: int) -> None:
    rng = random.Random(seed)
    rows = rng.randrange(20)
    columns = {name: random_column(rng, rows) for name in "ab"}
    schema = pa.schema([(name, dtype) for name, (dtype, _) in columns.items()])
    known = Schema.from_arrow(schema)
    args = tuple(ColumnValue(coercion.column(known, (name,))) for name in columns)
    arrays = [
        pa.array([None if item is None else int(item.scaleb(dtype.scale)) for item in values])
        if dtype.precision < 19 and rows and rng.random() < 0.5
        else decimals(values, dtype)
        for dtype, values in columns.values()
    ]
    # Decimals may be their unscaled values.
    batch = pa.RecordBatch.from_arrays(
        [array.cast(pa.int64()) if pa.types.is_null(array.type) else array for array in arrays],
        list(columns),
    )
    op = rng.choice("+-*")
    dtype = result_type(op, *schema.types, loss=rng.random() < 0.5)
    compute = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}[op]
    unit, limit = Decimal(1).scaleb(-dtype.scale), Decimal(10) ** (dtype.precision - dtype.scale)
    exact = [
        None
        if left is None or right is None
        else compute(left, right).quantize(unit, ROUND_HALF_UP, EXACT)
        for left, right in zip(*(values for _, values in columns.values()), strict=True)
    ]
    fits = [item is None or abs(item) < limit for item in exact]
    expected = [item if fit else None for item, fit in zip(exact, fits, strict=True)]
    assert DecimalResult(op, args, dtype, False).evaluate(batch).to_pylist() == expected
    strict = DecimalResult(op, args, dtype, True)
    if all(fits):
        assert strict.evaluate(batch).to_pylist() == expected
    else:
        with pytest.raises(EvaluationError, match="NUMERIC_VALUE_OUT_OF_RANGE"):
            strict.evaluate(batch)
