"""Comparisons of each pair of types keep the rows that Spark keeps in Parquet, or are refused."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lance_spark.errors import LanceError
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.sql import parse_predicate
from lance_spark.predicates.sql_settings import SqlSettings
from tests.spark.conftest import spark

__all__ = ["spark"]
NAN, INF = float("nan"), float("inf")
D = Decimal
TIMES = [
    datetime.datetime(*parts)
    for parts in (
        *(
            (1970, 1, 1),
            (1969, 12, 31, 23, 59, 59),
            (2024, 1, 31),
            (2024, 1, 31, 12, 30, 15, 123456),
        ),
        *((2024, 3, 10, 2, 30), (2024, 3, 10, 3, 0), (2024, 11, 3, 1, 30), (1900, 1, 1)),
    )
]
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bo": (pa.bool_(), [True, False] * 4),
    "i8": (pa.int8(), [-128, 127, 0, 1, -1, 5, 2, 100]),
    "i16": (pa.int16(), [-32768, 32767, 0, 1, -1, 5, 255, 300]),
    "i32": (pa.int32(), [-(1 << 31), (1 << 31) - 1, 0, 1, -1, 5, 16777217, 16777216]),
    "i64": (pa.int64(), [-(1 << 63), (1 << 63) - 1, 0, 1, (1 << 53) + 1, 1 << 53, 5, 16777217]),
    "f32": (pa.float32(), [NAN, INF, -INF, 0.0, -0.0, 16777216.0, 0.1, 3.4028234663852886e38]),
    "f64": (pa.float64(), [NAN, INF, -INF, 0.0, -0.0, 9007199254740992.0, 0.1, 5.0]),
    "d5": (
        pa.decimal128(5, 2),
        [*map(D, ["0.00", "1.00", "-1.00", "0.10", "999.99", "-999.99", "5.00", "1.55"])],
    ),
    "d38": (
        pa.decimal128(38, 18),
        [*map(D, ["0", "1", "-1", "0.1", "5", "1.55", "1.5"]), D("9" * 20)],
    ),
    "d0": (
        pa.decimal128(38, 0),
        [*map(D, ["0", "1", "-1", "5", "2", "16777217"]), D("9" * 38), D(2**63)],
    ),
    "s": (pa.string(), ["1", "abc", "true", "2024-01-31", "", " 5", "5", "é"]),
    "b": (pa.binary(), [b"", b"1", b"abc", b"\xff", b"5", b"true", b"\x00", "é".encode()]),
    "dt": (pa.date32(), [time.date() for time in TIMES]),
    "ts": (pa.timestamp("us", "UTC"), [time.replace(tzinfo=datetime.UTC) for time in TIMES]),
    "ntz": (pa.timestamp("us"), TIMES),
}
LITERALS = [
    *("true", "1Y", "300S", "5", "-1", "16777217", "16777216", "2147483648", "9007199254740993L"),
    *("99999999999999999999", "-99999999999999999999", "0.1", "1.5", "1.55", "-0.0", "16777215.5"),
    *("0.99999999999999999999999999999999999999", "12345678901234567890123456789012345678"),
    *("5.000", "0.1F", "16777216F", "0.1D", "1e300", "-0.0D", "double('NaN')"),
    *("double('Infinity')", "float('-Infinity')", "9007199254740993D", "cast(1 as decimal(38,0))"),
    *("-(1.5)", "null", "'5'", "'1'", "' 5 '", "'true'", "'abc'", "'0.1'", "'NaN'", "'2024-01-31'"),
    *("'2024-01-31 12:30:15.123456'", "'1970-01-01T00:00:00Z'", "X'35'", "X''"),
    *("DATE '2024-01-31'", "DATE '1970-01-01'", "DATE '9999-12-31'"),
    *("TIMESTAMP '2024-01-31 12:30:15.123456'", "TIMESTAMP '2024-01-31'"),
    *("TIMESTAMP '2024-03-10 03:00:00'", "TIMESTAMP '2024-11-03 01:30:00'"),
    *("TIMESTAMP '1970-01-01 00:00:00Z'", "TIMESTAMP_NTZ '2024-01-31'"),
    *("TIMESTAMP_NTZ '2024-03-10 02:30:00'", "TIMESTAMP_NTZ '1970-01-01 00:00:00.000001'"),
]
OPERATORS = ("=", "<", ">=", "<=>")
SESSIONS = [("true", "America/New_York"), ("false", "UTC")]


@pytest.fixture(scope="module")
def rows() -> pa.RecordBatch:
    arrays = [pa.array([*values, None], dtype) for dtype, values in COLUMNS.values()]
    return pa.RecordBatch.from_arrays(arrays, list(COLUMNS))


@pytest.fixture(scope="module")
def frame(
    spark: SparkSession, rows: pa.RecordBatch, tmp_path_factory: pytest.TempPathFactory
) -> DataFrame:
    path: Path = tmp_path_factory.mktemp("coercion") / "rows.parquet"
    pq.write_table(pa.Table.from_batches([rows]), path)
    return spark.read.parquet(str(path)).coalesce(1)


@pytest.fixture(params=SESSIONS, ids=["ansi", "not-ansi"])
def settings(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SqlSettings]:
    conf = dict(
        zip(("spark.sql.ansi.enabled", "spark.sql.session.timeZone"), request.param, strict=True)
    )
    for name, value in conf.items():
        spark.conf.set(name, value)
    yield SqlSettings.from_conf(conf)
    for name in conf:
        spark.conf.unset(name)


def theirs(frame: DataFrame, texts: Sequence[str]) -> dict[str, list[bool | None]]:
    """Return Spark's result of each text for each row, without the texts that Spark refuses."""
    if not texts:
        return {}
    try:
        result = frame.selectExpr(*(f"({text}) c{at}" for at, text in enumerate(texts))).toArrow()
    except Exception:
        if len(texts) == 1:
            return {}
        middle = len(texts) // 2
        return {**theirs(frame, texts[:middle]), **theirs(frame, texts[middle:])}
    return {text: result.column(at).to_pylist() for at, text in enumerate(texts)}


def check(frame: DataFrame, rows: pa.RecordBatch, texts: list[str], settings: SqlSettings) -> float:
    """Compare the results; return the share of Spark's answers that is refused here."""
    schema, refused, wrong, answered = Schema.from_arrow(rows.schema), 0, [], {}
    for text in texts:
        try:
            answered[text] = parse_predicate(text, schema, settings).evaluate(rows).to_pylist()
        except LanceError:
            refused += 1
    wanted = theirs(frame, list(answered))
    wrong = [
        (text, result, wanted.get(text, "refused by Spark"))
        for text, result in answered.items()
        if result != wanted.get(text)
    ]
    assert wrong == []
    return refused / len(texts)


@pytest.mark.sample(8)
@pytest.mark.parametrize("column", COLUMNS)
def test_literals(
    frame: DataFrame, rows: pa.RecordBatch, settings: SqlSettings, column: str
) -> None:
    texts = [f"{column} {op} {literal}" for op in OPERATORS for literal in LITERALS]
    texts += [f"{literal} > {column}" for literal in LITERALS]
    texts += [f"{column} NOT IN ({literal}, null)" for literal in LITERALS]
    texts += [f"{column} IN ({first}, {second})" for first, second in itertools.pairwise(LITERALS)]
    refused = check(frame, rows, texts, settings)
    # Most literals have no common type with these columns.
    few = column not in ("bo", "s", "b", "dt", "ts", "ntz")
    assert refused < (0.6 if few else 1.0)


def test_columns(frame: DataFrame, rows: pa.RecordBatch, settings: SqlSettings) -> None:
    texts = [
        f"{item} {op} {other_column}"
        for item in COLUMNS
        for other_column in COLUMNS
        for op in ("=", "<", "<=>")
    ]
    assert check(frame, rows, texts, settings) < 0.7
