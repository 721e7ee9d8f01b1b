"""Predicates from text keep the rows that Spark's own ``WHERE`` keeps."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.sql import parse_predicate
from lance_spark.spark.options.predicate_text import settings_of_session

NAN, INF = float("nan"), float("inf")
UNIQUE = datetime(2024, 1, 31, 12, 30, 15, 123456)
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [None, -128, -1, 0, 1, 5, 127, 5]),
    "number": (pa.int32(), [None, -(1 << 31), -1, 0, 1, 5, 1 << 30, 7]),
    "big": (pa.int64(), [None, -(1 << 63), (1 << 53) + 1, 1 << 53, 0, 5, (1 << 63) - 1, -7]),
    "small": (pa.float32(), [None, NAN, INF, -INF, 0.0, -0.0, 0.1, 1.5]),
    "double": (pa.float64(), [None, NAN, INF, -INF, 0.0, -0.0, 0.1, 1e300]),
    "money": (
        pa.decimal128(12, 2),
        [None, *map(Decimal, ["-1.50", "0.00", "0.10", "1.00", "1.05", "5.00", "9999999999.99"])],
    ),
    "flag": (pa.bool_(), [None, True, False, True, None, False, True, False]),
    "word": (pa.string(), [None, "", "a", "a_b", "A%b", "né\nz", "abc", "it's"]),
    "bytes": (pa.binary(), [None, b"", b"\x00", b"\x1f\x2a", b"\xff", b"abc", b"\x7f", b"\x80"]),
    "day": (
        pa.date32(),
        [
            *(None, date(1582, 10, 15), date(1970, 1, 1), date(2024, 1, 31), date(2024, 2, 1)),
            *(date(9999, 12, 31), date(1969, 12, 31), date(2024, 2, 29)),
        ],
    ),
    "instant": (
        pa.timestamp("us", "UTC"),
        [None, UNIQUE.replace(tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]
        + [datetime(2024, month, 1, tzinfo=UTC) for month in (1, 2, 3, 4, 5)],
    ),
    "clock": (
        pa.timestamp("us"),
        [None, UNIQUE, datetime(1970, 1, 1), datetime(1900, 1, 1)]
        + [datetime(2024, month, 1) for month in (2, 3, 4, 5)],
    ),
    "with-hyphen": (pa.int32(), [1, 2, 3, None, 5, 6, 7, 8]),
    "Upper": (pa.int32(), [8, 7, 6, 5, None, 3, 2, 1]),
    "deep": (
        pa.struct([("x", pa.int32()), ("in ner", pa.struct([("y.z", pa.string())]))]),
        [None, {"x": None, "in ner": None}]
        + [{"x": i, "in ner": {"y.z": text}} for i, text in enumerate(["a", None, "b", "c", "d"])]
        + [{"x": 9, "in ner": None}],
    ),
}

#: Conditions whose negations are tried too.
CONDITIONS = [
    *(
        f"{name} {op} {value}"
        for name in ("tiny", "number", "big")
        for op in ("=", "<", ">=", "!=")
        for value in (
            "5",
            "-1",
            "0",
            "300",
            "1.5",
            "5.0",
            "2147483648",
            "1e0",
            "9007199254740992",
            "1e300",
        )
    ),
    *(
        f"{name} {op} {value}"
        for name in ("small", "double")
        for op in ("=", "<", "<=", ">", ">=", "<>")
        for value in (
            "0",
            "-0.0",
            "0.1",
            "1.5D",
            "1e300",
            "double('NaN')",
            "double('Infinity')",
            "double('-Infinity')",
            "float('0.1')",
        )
    ),
    *(
        f"number = {value}"
        for value in (
            "cast(-1 as int)",
            "cast((-1) as bigint)",
            "cast(-1Y as int)",
            "-1BD",
            "int('-1')",
        )
    ),
    "money = cast(-1.5 as decimal(3, 1))",
    "double > cast(-1BD as double)",
    "number = cast(null as int)",
    *(
        f"money {op} {value}"
        for op in ("=", "<", ">")
        for value in ("1", "1.05", "1.050", "1.055", "1e0", "5", "0.1D")
    ),
    *(
        f"word {op} {value}"
        for op in ("=", "<", ">=", "!=")
        for value in ("''", "'a'", "'A%b'", "'it\\'s'", "'ab'")
    ),
    *(
        f"word LIKE {value}"
        for value in (
            "'a%'",
            "'%b'",
            "'%\\_%'",
            "'_'",
            "'%'",
            "''",
            "'a_b'",
            "'%\\%%'",
            "'n_\\n%'",
            "'%a%c'",
        )
    ),
    "word LIKE 'a!_b' ESCAPE '!'",
    "word NOT LIKE 'a%'",
    "word NOT LIKE '%b' AND word NOT LIKE ''",
    "word NOT LIKE 'a!_b' ESCAPE '!'",
    "word NOT LIKE NULL",
    "startswith(word, 'a')",
    "endswith(word, 'b')",
    "contains(word, 'b')",
    *(f"bytes {op} {value}" for op in ("=", "<", ">=") for value in ("X'1F2A'", "X''", "X'80'")),
    *(
        f"day {op} {value}"
        for op in ("=", "<", ">=")
        for value in ("DATE '2024-01-31'", "'2024-02-01'", "DATE '1969-12-31'")
    ),
    *(
        f"instant {op} {value}"
        for op in ("=", "<", ">=")
        for value in (
            "TIMESTAMP '2024-01-31 12:30:15.123456Z'",
            "TIMESTAMP '2024-02-01 01:00:00+01:00'",
            "TIMESTAMP '2024-02-01 00:00:00'",
            "TIMESTAMP '2024-03-01T00:00:00 UTC'",
        )
    ),
    *(
        f"clock {op} {value}"
        for op in ("=", "<", ">=")
        for value in ("TIMESTAMP_NTZ '2024-01-31 12:30:15.123456'", "TIMESTAMP_NTZ '2024-02-01'")
    ),
    "flag",
    "flag = true",
    "flag <> true",
    "flag IS TRUE",
    "flag IS NOT FALSE",
    "flag IS NULL",
    "flag > false",
    *(f"{name} IS NULL" for name in ("tiny", "word", "deep", "deep.x", "day", "double")),
    *(f"{name} IS NOT NULL" for name in ("number", "deep", "deep.`in ner`.`y.z`")),
    "number IN (1, 5)",
    "number IN (1, NULL)",
    "number NOT IN (1, NULL)",
    "number NOT IN (1, 5)",
    "tiny IN (5, 300)",
    "double IN (0, double('NaN'))",
    "small IN (-0.0D, 1.5D)",
    "word IN ('a', '')",
    "money IN (1, 1.05)",
    "day IN (DATE '2024-01-31', DATE '1970-01-01')",
    "tiny IN (1.0, 2.5)",
    "number BETWEEN 0 AND 5",
    "number NOT BETWEEN 0 AND 5",
    "double BETWEEN -1 AND 1",
    "number BETWEEN 1 AND NULL",
    "number <=> 5",
    "number <=> NULL",
    "double <=> double('NaN')",
    "number IS DISTINCT FROM 5",
    "NOT (flag <=> true)",
    "number = NULL",
    "number < 0.00000000000000000000000000000000000001",
    "0.99999999999999999999999999999999999999 < number",
    "number = ~-6 OR tiny = try_cast('5' as tinyint)",
    "true",
    "number > NULL OR flag",
    "5 = number",
    "5 < number",
    "-1 >= number",
    "0.1 = double",
    "`with-hyphen` > 3",
    "upper > 3",
    "UPPER > 3",
    "deep.x > 1",
    "deep.`in ner`.`y.z` >= 'b'",
    "number = tiny",
    "number < big",
    "double > small",
    "double = small",
    "small >= double",
    "number = money",
    "number > double",
    "money < double",
    "word = word",
    "double = double",
    "double != double",
    "big = double",
    "isnan(double)",
    "isnull(word)",
    "isnotnull(word)",
    "word RLIKE 'a'",
    "word RLIKE '^[a-z]+b?$' OR word = 'it''s'",
    "bytes = 'abc'",
    "day < TIMESTAMP '2024-01-31 05:00:00Z'",
    "clock > TIMESTAMP '2024-02-01 00:00:00'",
    "1 = 1",
    "flag = (number > 1)",
    "flag <=> (number > 1)",
    "(number > 1) IS NULL",
    "(number > 1) < flag",
    "(number > 1) IN (true, flag)",
    "number > 99999999999999999999",
    "number < 99999999999999999999",
    "number = 1 AND flag OR word = 'a'",
    "NOT (number = 1 OR NOT flag)",
    "(number > 0) = (flag) OR true",
]
REFUSED = [
    "sqrt(number) = 2", "soundex(word) = 'a'", "word RLIKE '(?i)a'", "number", "number = 'x'", "word = 1", "day = 5",
    "missing = 1", "deep = 1", "number IN (SELECT 1)", "number =", "number = 1; DROP TABLE x", "word ILIKE word",
    "instant = TIMESTAMP_NTZ '2024-01-01 00:00:00' AND", "rand() < 0.5", "word LIKE 'a\\\\b'", "bytes = 5", "1 = 'a'",
    "NULL", "tiny = cast('x' as tinyint)", "flag = 1", "number BETWEEN SYMMETRIC 5 AND 0", "word = TRY_CAST('a' AS STRING FORMAT 'x')",
    "",
    ";", "case WHEN flag THEN true",
]  # fmt: skip


@pytest.fixture(scope="module")
def table() -> pa.Table:
    names = {"row": pa.array(range(8), pa.int32())}
    return pa.table({**names, **{name: pa.array(v, dtype) for name, (dtype, v) in COLUMNS.items()}})


@pytest.fixture(scope="module")
def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    return spark.createDataFrame(table).cache()


def ours(table: pa.Table, text: str) -> list[int]:
    predicate = parse_predicate(
        text,
        Schema.from_arrow(table.schema),
        settings_of_session({"spark.sql.session.timeZone": "America/New_York"}),
    )
    (batch,) = table.combine_chunks().to_batches()
    rows: list[int] = table["row"].filter(predicate.holds(batch)).to_pylist()
    return rows


def both(
    table: pa.Table, frame: DataFrame, texts: list[str]
) -> list[tuple[str, list[int], list[int]]]:
    """Return the rows that each condition keeps, by this package and by Spark, which evaluates all
    of them at once.
    """
    kept = frame.selectExpr(
        "row", *(f"({text}) AS c{index}" for index, text in enumerate(texts))
    ).collect()
    wanted = [[row["row"] for row in kept if row[f"c{index}"]] for index in range(len(texts))]
    return [(text, rows, ours(table, text)) for text, rows in zip(texts, wanted, strict=True)]


def test_conditions(table: pa.Table, frame: DataFrame) -> None:
    texts = [text for item in CONDITIONS for text in (item, f"NOT ({item})")]
    wrong = [item for item in both(table, frame, texts) if item[1] != item[2]]
    assert not wrong


def test_random_trees(table: pa.Table, frame: DataFrame) -> None:
    draw = random.Random(20)
    parts = CONDITIONS

    def tree(depth: int) -> str:
        if depth == 0 or draw.random() < 0.2:
            return draw.choice(parts)
        if draw.random() < 0.25:
            return f"NOT ({tree(depth - 1)})"
        return f"({tree(depth - 1)}) {draw.choice(['AND', 'OR'])} ({tree(depth - 1)})"

    wrong = [
        item for item in both(table, frame, [tree(4) for _ in range(300)]) if item[1] != item[2]
    ]
    assert not wrong


@pytest.mark.parametrize("text", REFUSED)
def test_refused(table: pa.Table, text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"filter|there is no|column"):
        ours(table, text)


def test_a_timestamp_without_zone_needs_the_session_zone(table: pa.Table) -> None:
    schema = Schema.from_arrow(table.schema)
    with pytest.raises(InvalidInputError, match="needs a zone"):
        parse_predicate("instant > TIMESTAMP '2024-01-01 00:00:00'", schema)
    with pytest.raises(InvalidInputError, match="needs a zone"):
        parse_predicate("clock > TIMESTAMP '2024-01-01 00:00:00Z'", schema)
