"""Columns in place of rows: answers equal the answers over Parquet, with every setting of Spark."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from lance_spark.spark.jvm import classes
from tests.support.cells import every_other
from tests.support.settled import settled

COLUMNAR = "spark.lance.columnar.enabled"
ROWS = 2_000
PARTS = 3
DELETED = 5


def part_of(number: int) -> pa.Table:
    """Return the rows of a fragment. Every column but the first has nulls."""
    rng = np.random.default_rng(number)
    ids = np.arange(number * ROWS, (number + 1) * ROWS)
    words = [f"wörd {row % 37}" * (row % 3) for row in ids]
    day = dt.datetime(2024, 3, 9, 23, 30, tzinfo=dt.UTC)
    columns = {
        "word": pa.array(words),
        "flag": pa.array(ids % 3 == 0),
        "small": pa.array((ids % 100).astype(np.int8)),
        "short": pa.array((ids % 1000).astype(np.int16)),
        "count": pa.array((ids * 7).astype(np.int32)),
        "price": pa.array(rng.integers(0, 1000, ROWS) / 8),
        "ratio": pa.array((rng.integers(0, 1000, ROWS) / 8).astype(np.float32)),
        "cents": pa.array(
            [decimal.Decimal(int(row)).scaleb(-2) for row in ids], pa.decimal128(9, 2)
        ),
        "large": pa.array(
            [decimal.Decimal(int(row) - 3000) * 10**24 for row in ids], pa.decimal128(38, 4)
        ),
        "day": pa.array([day.date() + dt.timedelta(int(row)) for row in ids]),
        "at": pa.array(
            [day + dt.timedelta(hours=int(row)) for row in ids], pa.timestamp("us", "UTC")
        ),
        "clock": pa.array([day.replace(tzinfo=None)] * ROWS, pa.timestamp("us")),
        "span": pa.array([dt.timedelta(minutes=int(row)) for row in ids], pa.duration("us")),
        "raw": pa.array([word.encode() for word in words], pa.binary()),
        "words": pa.array([[word, None][: row % 3] for row, word in enumerate(words)]),
        "numbers": pa.array([list(range(row % 4)) for row in ids], pa.list_(pa.int64())),
        "deep": pa.array(
            [{"a": {"b": int(row)}, "l": [{"c": "x" * (row % 3)}] * (row % 2)} for row in ids]
        ),
        "pairs": pa.array([[(str(row % 5), int(row))] * (row % 2) for row in ids], PAIRS),
    }
    missing = pa.array(rng.random(ROWS) < 0.1)
    result = {"id": pa.array(ids)}
    for name, array in columns.items():
        result[name] = array.take(pa.array(np.arange(ROWS), mask=missing.to_numpy(False)))
    return pa.table(result)


PAIRS = pa.map_(pa.string(), pa.int64())


@pytest.fixture(scope="module")
def paths(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Write the same rows as Parquet, and as a Lance table with deleted rows."""
    folder = tmp_path_factory.mktemp("columnar")
    lance_path, parquet_path = str(folder / "t.lance"), str(folder / "t.parquet")
    tables = [part_of(number) for number in range(PARTS)]
    for table in tables:
        lance.write_dataset(table, lance_path, mode="append", data_storage_version="2.2")
    lance.dataset(lance_path).delete(f"id % {DELETED} = 3")
    rows = pa.concat_tables(tables)
    rows = rows.filter(pa.compute.not_equal(pa.array(np.arange(len(rows)) % DELETED), 3))
    pq.write_table(rows, parquet_path)
    return lance_path, parquet_path


@pytest.fixture
def frames(spark: Any, pushdown: Callable[..., None], paths: tuple[str, str]) -> tuple[Any, Any]:
    pushdown(True, False)
    table = spark.read.format("lance").load(paths[0])
    # Parquet has no type for intervals.
    return table, spark.read.schema(table.schema).parquet(paths[1])


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def rows_of(frame: Any) -> list[str]:
    return sorted(repr(tuple(row)) for row in frame.collect())


def nested(frame: Any) -> Any:
    return frame.select(
        "id",
        "deep.a.b",
        sf.get("deep.l", sf.lit(0))["c"].alias("c"),
        sf.element_at("pairs", sf.lit("3")).alias("three"),
        sf.transform("numbers", lambda x: x + 1).alias("next"),
        sf.size("words").alias("size"),
        sf.array_join("words", "-", "?").alias("joined"),
    )


def grouped(frame: Any) -> Any:
    return frame.groupBy("word").agg(
        sf.count("*"),
        sf.sum("count"),
        sf.max("raw"),
        sf.min("word"),
        sf.sum("large"),
        sf.max(sf.struct("cents", "word")),
        sf.first("day", ignorenulls=True).isNull(),
    )


def sorted_top(frame: Any) -> Any:
    return frame.orderBy(sf.desc("word"), "id").limit(50)


def joined(frame: Any) -> Any:
    second = frame.select(sf.col("id").alias("other"), sf.col("word").alias("text"), "numbers")
    return frame.select("id", "word", "at").join(second, sf.expr("id = other + 1"))


def windowed(frame: Any) -> Any:
    from pyspark.sql import Window

    window = Window.partitionBy("flag").orderBy("id")
    return frame.select("id", sf.lag("word").over(window), sf.sum("price").over(window))


def shuffled(frame: Any) -> Any:
    return frame.repartition(3, "count").select("*")


def by_python(frame: Any) -> Any:
    @sf.udf("string")
    def shout(word: str | None, numbers: list[int] | None) -> str | None:
        return None if word is None else f"{word.upper()} {numbers}"

    return frame.where("id % 7 = 0").select("id", shout("word", "numbers"))


def by_pandas(frame: Any) -> Any:
    @sf.pandas_udf("double")
    def half(price: pd.Series) -> pd.Series:
        return price / 2

    return frame.select("id", half("price"), "word")


def by_arrow(frame: Any) -> Any:
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    frame = frame.select("id", "word", "numbers")
    return frame.mapInArrow(same, frame.schema)


def exploded(frame: Any) -> Any:
    return frame.select("id", sf.explode("numbers").alias("n")).where("n > 0")


def filtered(frame: Any) -> Any:
    return frame.where("length(word) > 8 AND substr(word, 7, 1) < '3'").select("id", "word", "deep")


QUERIES = [
    shuffled,
    nested,
    grouped,
    sorted_top,
    joined,
    windowed,
    by_python,
    by_pandas,
    by_arrow,
    exploded,
    filtered,
]
SETTINGS: dict[str, dict[str, str]] = {
    "default": {},
    "no codegen": {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    },
    "few fields": {"spark.sql.codegen.maxFields": "2"},
    "not adaptive": {"spark.sql.adaptive.enabled": "false"},
    "off-heap": {"spark.sql.columnVector.offheap.enabled": "true"},
    "small batches of Arrow": {"spark.sql.execution.arrow.maxRecordsPerBatch": "7"},
    "sort merge joins": {"spark.sql.autoBroadcastJoinThreshold": "-1"},
}


@pytest.fixture
def setting(spark: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    values = SETTINGS[request.param]
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    yield request.param
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


@pytest.fixture(scope="module")
def answers() -> dict[str, list[str]]:
    """Answers over Parquet, under the first setting."""
    return {}


@pytest.mark.sample(3)
@pytest.mark.parametrize("setting", SETTINGS, indirect=True)
def test_answers_equal_those_over_parquet(
    frames: tuple[Any, Any], answers: dict[str, list[str]], setting: str
) -> None:
    """Run all queries by default, and every second one with another setting."""
    table, parquet = frames
    number = list(SETTINGS).index(setting)
    for query in every_other(QUERIES, number) if number else QUERIES:
        name = query.__name__
        if name not in answers:
            answers[name] = rows_of(query(parquet))
        answer = query(table)
        assert "columnar=yes" in plan_of(answer), name
        assert rows_of(answer) == answers[name], name


def test_strings_with_a_dictionary(
    spark: Any, pushdown: Callable[..., None], tmp_path: Path
) -> None:
    """Dictionaries are sent to Spark. Each batch may have another dictionary."""
    pushdown(True, False)
    path, rows = str(tmp_path / "t.lance"), 60_000
    for part in range(3):
        ids = np.arange(part * rows, (part + 1) * rows)
        words = pa.array([f"word {row % (7 + 50 * part)}" for row in ids], mask=ids % 13 == 2)
        table = pa.table({"id": ids, "word": words, "raw": words.cast(pa.binary())})
        lance.write_dataset(table, path, mode="append")
    frame = spark.read.format("lance").load(path)
    query = frame.groupBy("word").agg(sf.count("*"), sf.sum("id"), sf.max("raw")).collect()
    expected = (
        lance.dataset(path)
        .to_table()
        .group_by("word")
        .aggregate([([], "count_all"), ("id", "sum"), ("raw", "max")])
    )
    wanted = zip(*(column.to_pylist() for column in expected.columns), strict=True)
    # Spark 4.0 and 4.1 return bytes as bytearray.
    answer = [(*row[:-1], bytes(row[-1]) if row[-1] is not None else None) for row in query]
    assert sorted(map(repr, answer)) == sorted(map(repr, wanted))
    some = frame.where("id % 1000 = 7").select("word", sf.hex("raw").alias("raw"), "id")
    wanted = lance.dataset(path).to_table(filter="id % 1000 = 7", columns=["word", "raw", "id"])
    texts = pa.array([row and row.hex().upper() for row in wanted["raw"].to_pylist()])
    wanted = wanted.set_column(1, "raw", texts)
    assert rows_of(some) == sorted(repr(tuple(row.values())) for row in wanted.to_pylist())


def test_cached_columns(frames: tuple[Any, Any]) -> None:
    table, parquet = frames
    cached = table.cache()
    try:
        assert rows_of(cached) == rows_of(parquet)
        assert rows_of(grouped(cached)) == rows_of(grouped(parquet))
    finally:
        cached.unpersist()


def test_the_setting_turns_columnar_scans_off(spark: Any, frames: tuple[Any, Any]) -> None:
    table, parquet = frames
    spark.conf.set(COLUMNAR, "false")
    try:
        answer = table.select("*")
        assert "columnar=" not in plan_of(answer)
        assert "ColumnarToRow" not in plan_of(answer)
        assert rows_of(answer) == rows_of(parquet)
    finally:
        spark.conf.unset(COLUMNAR)
    assert "ColumnarToRow" in plan_of(table.select("*"))


def test_types_without_columns_come_as_rows(
    spark: Any, pushdown: Callable[..., None], tmp_path: Path
) -> None:
    from pyspark.ml.linalg import Vectors, VectorUDT

    pushdown(True, False)
    path = str(tmp_path / "t.lance")
    schema = st.StructType().add("id", st.LongType()).add("v", VectorUDT())
    rows = [(1, Vectors.dense([1.0, 2.0])), (2, None), (3, Vectors.sparse(3, [1], [4.0]))]
    spark.createDataFrame(rows, schema).write.format("lance").mode("append").save(path)
    frame = spark.read.format("lance").load(path)
    plan = plan_of(frame.select("*"))
    assert "columnar=no:v:vector" in plan
    assert "ColumnarToRow" not in plan
    assert sorted(tuple(row) for row in frame.collect()) == rows
    assert "columnar=yes" in plan_of(frame.select("id"))


def test_queries_that_stop_early_leave_no_memory(spark: Any, frames: tuple[Any, Any]) -> None:
    """Scans end by a limit, by an error in a function, or because the job is cancelled."""
    table, _ = frames
    allocator = spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()

    @sf.udf("long")
    def fail(number: int) -> int:
        raise ValueError("no more")

    for _ in range(3):
        assert len(table.where("id % 2 = 0").select("word", "deep").limit(3).collect()) == 3
        assert len(table.select("word", "words").take(2)) == 2
        with pytest.raises(Exception, match="no more"):
            table.select(fail("id"), "deep").collect()
    assert settled(allocator.getAllocatedMemory, 0) == 0


def warnings_of(spark: Any) -> list[str]:
    """Return the warnings of the Java classes in this JVM."""
    loader = classes.loaded_extension(spark).getClassLoader()
    field = loader.loadClass(f"{classes.PACKAGE}.Log").getDeclaredField("WRITTEN")
    field.setAccessible(True)
    return [str(text) for text in field.get(None)]


@pytest.mark.parametrize("columnar", [True, False])
def test_rows_of_all_types_are_written(
    spark: Any, frames: tuple[Any, Any], tmp_path: Path, columnar: bool
) -> None:
    _, parquet = frames
    path = str(tmp_path / "t.lance")
    spark.conf.set(COLUMNAR, str(columnar).lower())
    try:
        writer = parquet.repartition(3).write.format("lance").mode("append")
        writer.option("data_storage_version", "2.2").save(path)
    finally:
        spark.conf.unset(COLUMNAR)
    assert not [text for text in warnings_of(spark) if text.startswith("columns")]
    written = lance.dataset(path)
    written.validate()
    rows = written.to_table().sort_by("id")
    expected = pa.concat_tables([part_of(number) for number in range(PARTS)])
    expected = expected.filter(
        pa.compute.not_equal(pa.array(np.arange(len(expected)) % DELETED), 3)
    )
    for name in expected.column_names:
        assert rows[name].to_pylist() == expected[name].to_pylist(), name


def test_functions_that_compute_written_rows_get_batches(
    spark: Any, tmp_path: Path, pushed: None
) -> None:
    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"rows": pa.array([batch.num_rows], pa.int64())})

    # The tasks that write compute the rows of both partitions while they write.
    frame = spark.range(0, 1000, 1, 2).mapInArrow(sizes, "rows bigint").coalesce(1)
    frame.write.format("lance").save(str(tmp_path / "t.lance"))
    rows = lance.dataset(str(tmp_path / "t.lance")).to_table()["rows"]
    assert rows.to_pylist() == [500, 500]
