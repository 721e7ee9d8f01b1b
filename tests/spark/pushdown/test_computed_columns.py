"""Aggregates of expressions, averages and distinct counts, which tasks compute as Spark does."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.cells import number_of
from tests.support.spark.settings import restored
from tests.support.spark.versions import SPARK
from tests.support.tables.beside_parquet import write_beside_parquet

ROWS = 700
PARTS = 2

#: Queries whose aggregates the scan has.
PUSHED = [
    "select count(distinct word) from t",
    "select flag, count(distinct word), count(*), sum(count), min(word), avg(tiny), max(flag) "
    "from t group by flag",
    "select count(distinct tiny), sum(distinct tiny), max(distinct tiny), avg(distinct tiny) "
    "from t",
    "select count(distinct word) filter (where tiny > 3), sum(tiny) filter (where flag), "
    "count(*) filter (where not flag) from t",
    "select min(word), max(raw), min(flag), bool_or(tiny > 100) from t",
    "select min(ratio), max(ratio), max(if(flag, ratio, null)) from t group by word, day",
    "select avg(tiny), avg(count), avg(cents), sum(count) from t group by day",
    "select distinct word, flag from t",
    "select year(day), month(day), dayofmonth(day), quarter(day), dayofweek(day), weekday(day), "
    "dayofyear(day), trunc(day, 'MONTH'), count(*) from t group by all",
    "select hour(at), minute(at), second(at), cast(at as date), year(at), sum(tiny) from t "
    "group by all",
    "select date_trunc('hour', at), date_trunc('week', at), count(*) from t group by all",
    "select hour(clock), count(*) from t group by 1",
    "select length(word), sum(length(word)), avg(length(word)) from t group by 1",
    "select substring(word, 1, 3), substring(word, -2), coalesce(word, 'x'), count(*) from t "
    "group by all",
    "select sum(count + 1L), sum(tiny + 1000), sum(2 * cast(tiny as int)), max(tiny % 7) from t",
    "select sum(if(tiny > 5, 1, 0)), sum(case when flag then tiny when tiny < 0 then 0 end), "
    "count_if(tiny = 3), count(case when word like 'w%' then 1 end) from t",
    "select case when flag then word else '' end k, count(*) n from t group by 1 having n > 2",
    "select sum(cents) filter (where tiny > 0), avg(cents) filter (where flag) from t",
    "select x, count(*) from (select tiny % 5 x, flag from t where id > 20) where flag group by x",
    "select minute(at) + 1, max(tiny) from t group by minute(at)",
    "select flag, sum(price * (1 - rate)), sum(price * (1 - rate) * (1 + rate)), avg(price), "
    "avg(rate), count(*) from t where tiny > -100 group by flag",
    "select sum(price * rate), avg(cents * 3), min(cents + price), max(rate - tiny) from t",
    "select sum(huge), avg(huge), sum(huge - 1), sum(long * long * 1.000), max(huge), "
    "min(huge + 123456789012345678901234567.1234567891) from t",
    "select sum(cast(cents as decimal(20,5)) + cast(count as decimal(12,1))), sum(long + long), "
    "sum(case when flag then price * rate else -0.5 end), sum(rate) from t",
    "select cents - rate, count(*), sum(cents) from t where tiny > 120 group by 1",
    "select count(distinct day), sum(cents), avg(price), sum(huge) from t group by flag",
    "select avg(cents), avg(cast(tiny as decimal(9,4)) - cents) from t group by count % 5, day",
]
#: A query that may fail for rows that its filter leaves out. Spark 4.0 does not tell a scan before.
FILTERED = "select sum(huge * 100000000000), count(*) from t where huge <> 0 or flag"
#: The same, of values with too many digits for the type: null, or an error in ANSI mode.
OVERFLOWING = [
    "select sum(long * long * long * long), count(*) from t",
    "select count(huge * long), sum(huge * 100000000000) from t",
    FILTERED,
    "select sum(try_multiply(long * long, long)) from t group by flag",
    "select sum(if(tiny > 3, rate, long * long * long * 10 * long)) from t",
]
#: Queries that Spark answers: their values depend on what the scan does not know.
KEPT = [
    "select sum(ratio), avg(ratio) from t",
    "select upper(word), count(*) from t group by 1",
    "select count(distinct word collate unicode_ci) from t",
    "select count(distinct word), count(distinct day) from t",
    "select count(distinct word), count(distinct word) filter (where tiny > 3) from t",
    "select count(distinct tiny), try_sum(count) from t group by flag",
    "select sum(distinct ratio), count(distinct ratio) from t",
    "select sum(cents / 2), avg(price) from t",
    "select sum(long * long * long) from t where upper(word) = 'X'",
]
KEYS = [
    *("flag", "word", "day", "tiny % 3", "year(day)", "minute(at)", "length(word)"),
    *("date_trunc('DAY', at)", "case when flag then word end", "substring(word, 2, 2)"),
]
CONDITIONS = ["flag", "tiny > 0", "word like '%1%'", "word is null", "day < '2024-01-03' or flag"]
ARGUMENTS = [
    *("tiny", "count", "cents", "length(word)", "tiny + 5", "tiny * 3S", "month(day)"),
    *("if(flag, tiny, 0Y)", "case when tiny > 9 then count end", "-7 + cast(tiny as bigint)"),
    *("price * (1 - rate)", "cents + tiny", "rate * 0.5 * rate", "huge + price", "-3 - rate"),
    *("price - cents", "long * 9", "coalesce(rate, 1) * count", "if(flag, huge, 0) + 1"),
]
FUNCTIONS = ["sum", "avg", "min", "max", "count", "count(distinct", "sum(distinct"]


def decimals(values: Any, precision: int, scale: int) -> pa.Array:
    """Return decimals of unscaled values."""
    dtype = pa.decimal128(precision, scale)
    return pa.array([Decimal(int(value)).scaleb(-scale) for value in values], dtype)


def part_of(number: int) -> pa.Table:
    """Return the rows of a fragment, with nulls in every column but the first."""
    rng = np.random.default_rng(number)
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    # From 1938 to 3800, in days with and without daylight saving time.
    micros = (ids % 50 - 10) ** 3 * 1_000_007_777_777
    columns = {
        "word": pa.array([f"wörd 1{row % 7}" * (row % 3) for row in ids]),
        "flag": pa.array(ids % 3 == 0),
        "tiny": pa.array(rng.integers(-128, 128, ROWS).astype(np.int8)),
        "count": pa.array(rng.integers(-(2**24), 2**24, ROWS).astype(np.int32)),
        "cents": decimals(rng.integers(-9999, 9999, ROWS), 9, 2),
        "price": decimals(rng.integers(-(10**7), 10**7, ROWS), 15, 2),
        "rate": decimals(rng.integers(0, 1500, ROWS), 6, 3),
        "long": decimals(rng.integers(10**17, 10**18, ROWS) * rng.choice([1, -1], ROWS), 18, 4),
        "huge": decimals([int(row) ** 3 * 7**27 - 7**29 for row in ids], 38, 10),
        "ratio": pa.array(np.where(ids % 40 == 0, np.nan, rng.integers(-9, 9, ROWS) / 4)),
        "day": pa.array((19_723 + ids % 40 * 11).astype(np.int32), pa.date32()),
        "at": pa.array(micros, pa.timestamp("us", "UTC")),
        "clock": pa.array(micros, pa.timestamp("us")),
        "raw": pa.array([bytes([row % 200]) for row in ids], pa.binary()),
    }
    result = {"id": pa.array(ids)}
    for name, array in columns.items():
        result[name] = array.take(pa.array(np.arange(ROWS), mask=rng.random(ROWS) < 0.2))
    return pa.table(result)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same rows as a Lance table, from which rows were deleted, and as Parquet."""
    folder = tmp_path_factory.mktemp("computed")
    return write_beside_parquet(folder, [part_of(number) for number in range(PARTS)], {})


def random_query(rng: random.Random) -> str:
    """Return a query with aggregates of expressions."""
    keys = rng.sample(KEYS, rng.randrange(3))
    argument = rng.choice(ARGUMENTS)
    aggregates = ["count(*)"]
    for _ in range(rng.randrange(1, 4)):
        function = rng.choice(FUNCTIONS)
        # Several arguments of distinct aggregates stay with Spark.
        used = argument if "distinct" in function else rng.choice(ARGUMENTS)
        call = f"{function} {used})" if "distinct" in function else f"{function}({used})"
        where = f" filter (where {rng.choice(CONDITIONS)})" if rng.random() < 0.3 else ""
        aggregates.append(call + where)
    where = f" where {rng.choice(CONDITIONS)}" if rng.random() < 0.4 else ""
    groups = f" group by {', '.join(keys)}" if keys else ""
    return f"select {', '.join([*keys, *aggregates])} from t{where}{groups}"


def answer(frame: Any) -> list[str]:
    """Return the sorted rows of a query, or that it fails."""
    try:
        return sorted(map(repr, frame.collect()))
    except Exception as error:
        if "NUMERIC_VALUE_OUT_OF_RANGE" not in str(error):
            raise
        return ["overflow"]


@pytest.mark.parametrize(
    ("ansi", "zone", "on_driver", "loss"),
    [("true", "+05:30", True, "true"), ("false", "America/New_York", False, "false")],
)
def test_values_are_those_of_parquet(
    spark: Any,
    pushdown: Callable[..., None],
    paths: tuple[str, str],
    ansi: str,
    zone: str,
    on_driver: bool,
    loss: str,
) -> None:
    rng = random.Random(f"{ansi} {zone}")
    others = [random_query(rng) for _ in range(number_of(12, 500))]
    settings = {
        "spark.sql.ansi.enabled": ansi,
        "spark.sql.session.timeZone": zone,
        "spark.sql.decimalOperations.allowPrecisionLoss": loss,
        # For so few rows, compiling takes longer than running.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "1",
    }
    with restored(spark, *settings):
        for name, value in settings.items():
            spark.conf.set(name, value)
        for query in [*PUSHED, *OVERFLOWING, *KEPT, *others]:
            spark.read.parquet(paths[1]).createOrReplaceTempView("t")
            frame = spark.sql(query)
            expected, schema = answer(frame), frame.schema
            pushdown(True, on_driver)
            table = spark.read.format("lance").option("target_rows_per_partition", ROWS)
            table.load(paths[0]).createOrReplaceTempView("t")
            frame = spark.sql(query)
            assert answer(frame) == expected, query
            assert frame.schema.simpleString() == schema.simpleString(), query
            plan = frame._jdf.queryExecution().toString()
            if query not in others:
                is_pushed = any(sign in plan for sign in ("agg0#", "group0#"))
                is_kept = query in KEPT
                is_kept |= query == FILTERED and ansi == "true" and SPARK < (4, 1)
                assert is_pushed == (not is_kept), query
    spark.catalog.dropTempView("t")


UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
#: Zones, and a day on which their clocks change: at midnight, by half an hour, by a whole day, from
#: an offset with seconds, and after the changes that the zone's history has.
CLOCK_CHANGES = [
    ("America/New_York", "2024-11-03"),
    ("America/Havana", "2024-11-03"),
    ("America/Sao_Paulo", "2018-11-04"),
    ("Australia/Lord_Howe", "2024-04-07"),
    ("Pacific/Apia", "2011-12-30"),
    ("Africa/Monrovia", "1972-01-07"),
    ("Europe/Berlin", "3021-03-26"),
]


@pytest.mark.parametrize(("zone", "day"), CLOCK_CHANGES)
def test_starts_of_units_around_changes_of_clocks(
    spark: Any, pushdown: Callable[..., None], tmp_path: Path, zone: str, day: str
) -> None:
    start = int(np.datetime64(day, "us").astype(np.int64)) - 172_800_000_000
    micros = start + np.arange(500) * 701_000_001
    columns = {"id": range(500), "at": pa.array(micros, pa.timestamp("us", "UTC"))}
    rows = pa.table(columns)
    # The second fragment has rows of one offset, but their years, months and weeks began with another.
    paths = write_beside_parquet(tmp_path, [rows.slice(0, 300), rows.slice(300)], {})
    starts = [f"date_trunc('{unit}', at)" for unit in UNITS]
    query = f"select at, {', '.join(starts)}, count(*) from t group by all"
    with restored(spark, "spark.sql.session.timeZone"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        frame = spark.read.parquet(paths[1])
        frame.createOrReplaceTempView("t")
        expected = answer(spark.sql(query))
        last = frame.where("id = 499").selectExpr(*[f"unix_micros({item})" for item in starts])
        texts = []
        for start, instant in zip(starts, last.first(), strict=True):
            moment = np.datetime64(instant, "us").item().isoformat(" ")
            texts.append(f"{start} = timestamp '{moment}Z'")
        counts = [frame.where(text).count() for text in texts]
        pushdown(True, False)
        table = spark.read.format("lance").option("target_rows_per_partition", 300)
        table.load(paths[0]).createOrReplaceTempView("t")
        frame = spark.sql(query)
        assert answer(frame) == expected
        assert "group0#" in frame._jdf.queryExecution().toString()
        filtered = [table.option("filter", text).load(paths[0]).count() for text in texts]
        assert filtered == counts
    spark.catalog.dropTempView("t")
