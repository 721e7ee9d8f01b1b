"""Sums, and aggregates by groups: tasks return a row for each group, with the values of Parquet."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sf

from lance_spark.spark.pushdown.request import Aggregate
from lance_spark.spark.read import aggregates as group_by
from tests.support.cells import every_other
from tests.support.spark.metrics import counted
from tests.support.tables.beside_parquet import write_beside_parquet

ROWS = 2_500
PARTS = 3


def part_of(number: int) -> pa.Table:
    """Return the rows of a fragment, with nulls in every column but the first."""
    rng = np.random.default_rng(number)
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    day = dt.date(2024, 1, 1)
    columns = {
        "word": pa.array([f"wörd {row % 7}" * (row % 4) for row in ids]),
        "flag": pa.array(ids % 3 == 0),
        "tiny": pa.array(rng.integers(-128, 128, ROWS).astype(np.int8)),
        "count": pa.array(rng.integers(-(2**31), 2**31, ROWS).astype(np.int32)),
        "large": pa.array(rng.integers(-(2**48), 2**48, ROWS)),
        "cents": pa.array(
            [Decimal(int(value)).scaleb(-2) for value in rng.integers(-9999, 9999, ROWS)],
            pa.decimal128(5, 2),
        ),
        "money": pa.array(
            [Decimal(int(value)).scaleb(-4) for value in rng.integers(-(10**17), 10**17, ROWS)],
            pa.decimal128(18, 4),
        ),
        "wide": pa.array([Decimal(int(row)) for row in ids], pa.decimal128(30, 2)),
        "ratio": pa.array(rng.integers(0, 9, ROWS) / 4),
        "day": pa.array([day + dt.timedelta(int(row) % 5) for row in ids]),
        "at": pa.array((ids % 6) * 3_600_000_000, pa.timestamp("us", "UTC")),
        "raw": pa.array([bytes([row % 3]) for row in ids], pa.binary()),
        "list": pa.array([[int(row)] * (row % 2) for row in ids]),
    }
    result = {"id": pa.array(ids)}
    for name, array in columns.items():
        result[name] = array.take(pa.array(np.arange(ROWS), mask=rng.random(ROWS) < 0.2))
    inner = [result["word"], result["count"]]
    result["inner"] = pa.StructArray.from_arrays(inner, ["word", "count"])
    return pa.table(result)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The same rows as a Lance table, from which rows were deleted, and as Parquet."""
    folder = tmp_path_factory.mktemp("groups")
    tables = [part_of(number) for number in range(PARTS)]
    return write_beside_parquet(folder, tables, {})


SUMS = "sum(tiny), sum(count), sum(large), sum(cents), sum(money)"
QUERIES = {
    f"select {SUMS} from t": "tasks",
    f"select {SUMS}, count(*), count(list), max(day), min(at) from t where flag": "tasks",
    f"select word, {SUMS} from t group by word": "tasks",
    "select flag, day, count(*), count(word), min(large), max(cents), max(at) from t "
    "group by day, flag": "tasks",
    "select at, raw, tiny, sum(tiny) from t group by at, raw, tiny": "tasks",
    "select inner.word, sum(inner.count) from t where id > 100 group by inner.word": "tasks",
    "select sum(cents) s from t where word like '%5%' group by word having s > 10": "tasks",
    "select avg(cents), avg(money), count(*) from t group by flag": "tasks",
    "select id, sum(count) from t group by id": "tasks",
    "select sum(count) + count(*), max(id) from t where id < 0": "tasks",
    "select word, sum(count) from t where id < 0 group by word": "tasks",
    "select try_sum(large), try_sum(money) from t": "tasks",
    "select avg(count), sum(large) from t": "tasks",
    "select sum(wide), avg(wide) from t": "tasks",
    "select sum(ratio) from t": "spark",
    "select ratio, count(*) from t group by ratio": "spark",
    "select word, count(distinct tiny), sum(count) from t group by word": "tasks",
    "select sum(count) filter (where flag) from t": "tasks",
    "select sum(tiny + 1) from t": "tasks",
    "select upper(word), sum(count) from t group by upper(word)": "spark",
    "select day, word, sum(count), grouping(day) from t group by cube (day, word)": "spark",
}


def rows_of(frame: Any) -> list[str]:
    return sorted(map(repr, frame.collect()))


@pytest.mark.sample(3)
@pytest.mark.parametrize(("ansi", "on_driver"), [("true", False), ("false", True)])
def test_values_are_those_of_parquet(
    spark: Any,
    pushdown: Callable[..., None],
    paths: tuple[str, str],
    ansi: str,
    on_driver: bool,
) -> None:
    # On the driver, `make test` runs every second query.
    queries = every_other(QUERIES.items(), 0) if on_driver else QUERIES.items()
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for query, place in queries:
            spark.read.parquet(paths[1]).createOrReplaceTempView("t")
            frame = spark.sql(query)
            expected, schema = rows_of(frame), frame.schema
            pushdown(True, on_driver)
            table = spark.read.format("lance").option("target_rows_per_partition", ROWS)
            table.load(paths[0]).createOrReplaceTempView("t")
            frame = spark.sql(query)
            assert rows_of(frame) == expected, query
            assert frame.schema.simpleString() == schema.simpleString(), query
            plan = frame._jdf.queryExecution().toString()
            assert ("agg0" in plan) == (place == "tasks"), query
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.catalog.dropTempView("t")


def test_tasks_return_groups(
    spark: Any, pushdown: Callable[..., None], paths: tuple[str, str]
) -> None:
    pushdown(True, False)
    reader = spark.read.format("lance").option("target_rows_per_partition", ROWS)
    frame = reader.load(paths[0]).groupBy("flag").agg(sf.sum("count"))
    assert len(frame.collect()) == 3
    assert counted(frame) == [3 * PARTS]


@pytest.mark.parametrize("on_driver", [False, True], ids=["tasks", "driver"])
def test_a_limit_of_groups(
    spark: Any, pushdown: Callable[..., None], paths: tuple[str, str], on_driver: bool
) -> None:
    frame = spark.read.format("lance").load(paths[0])
    pushdown(True, on_driver)
    for rows in (frame, frame.where("flag")):
        groups = rows.groupBy("day").agg(sf.count("*"), sf.max("large"))
        everything = rows_of(groups)
        assert len(everything) == 5
        assert len(groups.limit(2).collect()) == 2
        assert set(rows_of(groups.limit(2))) < set(everything)
        assert len(groups.offset(4).limit(7).collect()) == 1
        assert groups.limit(3).count() == 3


@pytest.mark.sample(5)
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("on_driver", [False, True], ids=["tasks", "driver"])
def test_sums_that_do_not_fit(
    spark: Any, pushdown: Callable[..., None], tmp_path: Path, on_driver: bool, ansi: str
) -> None:
    """Sums of tasks that Spark cannot hold travel in parts; Spark adds them up as its own."""
    longs = [2**63 - 1, 5, -(2**63 - 1), 2**63 - 1, -(2**63), 7, -(2**62)]
    digits = Decimal(10**18 - 1)
    tables = {
        "fits": pa.table({"n": longs, "d": pa.array([digits] * 7, pa.decimal128(18, 0))}),
        "overflows": pa.table(
            {"n": [2**63 - 1, 1], "d": pa.array([-digits] * 2, pa.decimal128(18, 0))}
        ),
    }
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for name, table in tables.items():
            lance.write_dataset(table, tmp_path / f"{name}.lance")
            pq.write_table(table, tmp_path / f"{name}.parquet")
            pushdown(True, on_driver)
            frame = spark.read.format("lance").load(str(tmp_path / f"{name}.lance"))
            other = spark.read.parquet(str(tmp_path / f"{name}.parquet"))
            assert rows_of(frame.agg(sf.sum("d"))) == rows_of(other.agg(sf.sum("d")))
            assert rows_of(frame.agg(sf.try_sum("d"))) == rows_of(other.agg(sf.try_sum("d")))
            if name == "overflows" and ansi == "true":
                with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
                    frame.agg(sf.sum("n")).collect()
                assert rows_of(frame.agg(sf.try_sum("n"))) == ["Row(try_sum(n)=None)"]
            elif ansi == "false":
                assert rows_of(frame.agg(sf.sum("n"))) == rows_of(other.agg(sf.sum("n")))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_more_groups_than_a_task_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_by, "_MAX_GROUPS", 100)
    rng = np.random.default_rng(3)
    table = pa.table({"g": rng.integers(0, 400, 5_000), "v": rng.integers(-(2**62), 2**62, 5_000)})
    output = pa.schema([("g", pa.int64()), ("n", pa.int64()), ("s", pa.int64()), ("m", pa.int64())])
    aggregates = [Aggregate("count_star"), Aggregate("sum", ("v",)), Aggregate("min", ("v",))]
    grouped = group_by.GroupedRows([("g",)], aggregates, output, table.schema)
    rows = pa.Table.from_batches(grouped.rows(table.to_batches(max_chunksize=150)), output)
    assert 400 < len(rows) < 5_000
    totals: dict[int, list[Any]] = {}
    for row in rows.to_pylist():
        total = totals.setdefault(row["g"], [0, 0, []])
        total[0] += row["n"]
        total[1] += row["s"] or 0
        total[2].append(row["m"])
    expected: dict[int, list[int]] = {}
    for row in table.to_pylist():
        expected.setdefault(row["g"], []).append(row["v"])
    assert totals.keys() == expected.keys()
    for group, values in expected.items():
        count, total, minima = totals[group]
        assert (count, total) == (len(values), sum(values))
        assert min(item for item in minima if item is not None) == min(values)


def test_two_counts_of_rows() -> None:
    # Spark asks for them if its rule that makes one of them is excluded (NullPropagation).
    output = pa.schema([("g", pa.int64()), ("n", pa.int64()), ("m", pa.int64()), ("x", pa.int64())])
    table = pa.table({"g": [1, 2, 1], "v": [5, 6, 7]})
    count, most = Aggregate("count_star"), Aggregate("max", ("v",))
    grouped = group_by.GroupedRows([("g",)], [count, count, most], output, table.schema)
    batches = grouped.rows(table.to_batches(max_chunksize=2))
    rows = pa.Table.from_batches(list(batches)).sort_by("g").to_pylist()
    assert rows == [{"g": 1, "n": 2, "m": 2, "x": 7}, {"g": 2, "n": 1, "m": 1, "x": 6}]


@pytest.mark.parametrize("digits", [3, 18, 19, 28, 38])
def test_sums_of_decimals(digits: int) -> None:
    rng = random.Random(digits)
    dtype, context = pa.decimal128(digits, 2), Context(prec=80)
    total_type = pa.decimal128(min(digits + 10, 38), 2)
    sums: dict[int, int] = {}
    batches = []
    # Numbers of 64 bits, of all digits, and unscaled values.
    for most in (10 ** min(digits, 6), 10**digits, 10 ** min(digits, 6)):
        keys = [rng.randrange(3) for _ in range(50)]
        numbers = [rng.randrange(-most // 9, most) for _ in keys]
        for key, number in zip(keys, numbers, strict=True):
            sums[key] = sums.get(key, 0) + number
        values = pa.array([Decimal(number).scaleb(-2, context) for number in numbers], dtype)
        if len(batches) == 2:
            values = pa.array(numbers)
        batches.append(pa.record_batch([pa.array(keys), values], ["g", "v"]))
    columns = pa.schema([("g", pa.int64()), ("v", dtype)])
    output = pa.schema([("g", pa.int64()), ("s", total_type)])
    grouped = group_by.GroupedRows([("g",)], [Aggregate("sum", ("v",))], output, columns)
    found: dict[int, int] = {}
    for row in pa.Table.from_batches(grouped.rows(batches), output).to_pylist():
        part = int(row["s"].scaleb(2, context))
        # Spark casts each to the type of the column.
        assert abs(part) < 10**digits
        found[row["g"]] = found.get(row["g"], 0) + part
    assert found == sums


def test_many_groups_stay_with_spark(
    spark: Any, pushdown: Callable[..., None], tmp_path: Path
) -> None:
    ids = np.arange(80_000)
    table = pa.table({"id": ids, "few": ids % 1_500, "pairs": ids // 2})
    lance.write_dataset(table, tmp_path / "t.lance", max_rows_per_file=30_001)
    pushdown(True, False)
    frame = spark.read.format("lance").load(str(tmp_path / "t.lance"))
    for name, is_pushed in (("few", True), ("pairs", False), ("id", False)):
        query = frame.groupBy(name).agg(sf.sum("id"), sf.count("*"))
        plan = query._jdf.queryExecution().toString()
        assert ("agg0" in plan) == is_pushed
        groups = {row[0]: (row[1], row[2]) for row in query.collect()}
        keys = table[name].to_numpy()
        assert len(groups) == keys.max() + 1
        assert groups[7] == (int(ids[keys == 7].sum()), int((keys == 7).sum()))


def test_conditions_that_spark_does_not_translate(
    spark: Any, pushdown: Callable[..., None], paths: tuple[str, str]
) -> None:
    """Spark makes `tiny IS NULL AND NULL` of the comparison, and fails to translate it."""
    pushdown(True)
    spark.read.format("lance").load(paths[0]).createOrReplaceTempView("t")
    try:
        for query, expected in (
            ("select bool_or(tiny > 300), max(id) from t", [(False, 3 * ROWS - 1)]),
            ("select count(distinct day), bool_or(tiny <= 300) from t", [(4, True)]),
            ("select id from t where id < 3 order by tiny > 300, id limit 2", None),
            ("select tiny > 300 a, count(*) > 5 from t group by 1 order by a", None),
        ):
            rows = [tuple(row) for row in spark.sql(query).collect()]
            assert len(rows) in (1, 2)
            assert expected is None or rows == expected, query
    finally:
        spark.catalog.dropTempView("t")
