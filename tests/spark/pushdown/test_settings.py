"""Conditions have the meaning that Spark gives them with the settings of the session. Spark over
Parquet is the oracle.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lance_spark
from lance_spark import LanceTable
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import LanceError
from lance_spark.predicates.sql import SPARK_NAMES
from tests.support.cells import ALL_CELLS, every_other
from tests.support.spark.settings import settings

UTC = datetime.UTC
SQL = "spark.sql."
ESCAPED = {SQL + "parser.escapedStringLiterals": "true"}
QUOTED = {SQL + "ansi.doubleQuotedIdentifiers": "true"}
LENIENT = {SQL + "ansi.enabled": "false"}
CASE = {SQL + "caseSensitive": "true"}
LEGACY = SQL + "legacy."

TABLE = pa.table(
    {
        "id": list(range(10)),
        "s": ["O'Brien", "OBrien", "a\\b", "a\bb", "a\b", "50%", "it's", "s", "plain", None],
        "f": pa.array(
            [16777216.0, 16777218.0, 1.5, float("nan"), None, 0.0, -0.0, float("inf"), 2.0, 3.0],
            pa.float32(),
        ),
        "t": pa.array(
            [datetime.datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (0, 5, 15, 16, 23)] * 2,
            pa.timestamp("us", "UTC"),
        ),
        "n": pa.array(
            [datetime.datetime(2024, 1, 1, hour) for hour in (0, 5, 15, 16, 23)] * 2,
            pa.timestamp("us"),
        ),
        "comment": ["1", "2", "x", None, "5", "6", "7", "8", "9", "10"],
        "values": [True, False] * 5,
        "a b": pa.array([{"c": n, "D": str(n)} for n in range(10)]),
    }
)
#: Settings and condition. Each pair is tried by delete; pairs of `SOME` also at other entry points:
#: one of them, and every other in `make test-long`.
CASES: list[tuple[Mapping[str, str], str]] = [
    ({}, "s = 'O''Brien'"),
    ({}, "s LIKE '%''%'"),
    (ESCAPED, r"s = 'a\b'"),
    ({}, r"s = 'a\b'"),
    ({}, r"s = r'a\b' or s = 'it\'s'"),
    (ESCAPED, r"s like 'a\\b'"),
    (QUOTED, "\"s\" = 'plain'"),
    ({}, "\"s\" = 'plain'"),
    ({**QUOTED, **LENIENT}, 's = "plain"'),
    (CASE, "S = 'plain'"),
    (CASE, "`a b`.d = '3'"),
    ({}, "S = 'plain' or `A B`.d = '3'"),
    ({}, "comment = 5"),
    (LENIENT, "comment = 5"),
    (LENIENT, "comment > 5"),
    (LENIENT, "id = 'x' or id = 2"),
    ({SQL + "session.timeZone": "Asia/Tokyo"}, "t = '2024-01-01 09:00:00'"),
    ({SQL + "session.timeZone": "-05:00"}, "t = timestamp '2024-01-01'"),
    ({SQL + "timestampType": "TIMESTAMP_NTZ"}, "t = timestamp '2024-01-01 00:00:00'"),
    ({SQL + "timestampType": "TIMESTAMP_NTZ"}, "n = timestamp '2024-01-01 05:00:00'"),
    ({}, "n = timestamp '2024-01-01 05:00:00'"),
    ({LEGACY + "consecutiveStringLiterals.enabled": "true"}, "s = 'O''Brien'"),
    ({LEGACY + "exponentLiteralAsDecimal.enabled": "true"}, "f < 1.6777217E7"),
    ({LEGACY + "literal.pickMinimumPrecision": "false"}, "f < 16777217"),
    ({}, "f <= 16777215.5 or f = 16777217"),
    ({}, "f IN (16777217, 1.5) or isnan(f)"),
    ({}, "f > double('inf')"),
    ({}, "s = '${spark.app.name}' or s = 's'"),
    ({SQL + "variable.substitute": "false"}, "s <> '${spark.app.name}'"),
    ({SQL + "ansi.enforceReservedKeywords": "true"}, "values and comment = '1'"),
    ({}, "values and comment <> '1' and values is not false"),
    ({SQL + "parser.quotedRegexColumnNames": "true"}, "`s` = 'plain'"),
    ({}, "! values <=> true"),
    ({}, "id in (select 3)"),
    ({}, "id = 1 and rand() >= 0"),
]
SOME = [CASES[n] for n in (0, 1, 2, 6, 12, 13, 16, 18, 24)]


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("settings") / "t.parquet"
    pq.write_table(TABLE, path)
    return str(path)


@contextmanager
def settings_of(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    # Spark's Parquet push-down loses rows with NaN.
    with settings(spark, {**values, SQL + "parquet.filterPushdown": "false"}):
        yield


def expected(spark: Any, parquet: str, condition: str) -> set[int] | None:
    """Return the ids for which Spark finds a condition true; None if it raises."""
    from pyspark.errors import PySparkException

    try:
        rows = spark.read.parquet(parquet).where(condition).select("id").collect()
    except PySparkException:
        return None
    return {row.id for row in rows}


def ids(path: Path) -> set[int]:
    return set(lance.dataset(str(path)).to_table(["id"])["id"].to_pylist())


def outcome(change: Callable[[], Any]) -> str | None:
    """Return the text of the error of a change; None without an error."""
    from pyspark.errors import PySparkException

    try:
        change()
    except (LanceError, PySparkException) as error:
        return str(error)
    return None


def merged(table: LanceTable, spark: Any, condition: str) -> None:
    source = spark.createDataFrame([(n,) for n in range(10)], "k long").alias("source")
    merge = table.alias("target").merge(source, "target.id = source.k")
    merge.whenMatchedDelete(condition).execute()


def replaced(table: LanceTable, spark: Any, condition: str) -> None:
    table.replace_where(spark.createDataFrame([], "id long"), condition)


def updated(table: LanceTable, spark: Any, condition: str) -> None:
    table.update(condition, {"id": "id + 100"})


METHODS = {
    "delete": lambda table, spark, condition: table.delete(condition),
    "update": updated,
    "merge": merged,
    "replace_where": replaced,
}


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("entry", "values", "condition"),
    [("delete", *case) for case in CASES]
    + [
        (entry, *case)
        for number, entry in enumerate(("update", "merge", "replace_where"))
        for place, case in enumerate(SOME)
        if ALL_CELLS or place % 3 == number
    ],
)
def test_conditions_of_methods_agree_with_spark(
    spark: Any, parquet: str, tmp_path: Path, entry: str, values: Mapping[str, str], condition: str
) -> None:
    path = tmp_path / "t.lance"
    write_dataset(TABLE, str(path), max_rows_per_file=4)
    with settings_of(spark, values):
        wanted = expected(spark, parquet, condition)
        table = LanceTable.forPath(spark, str(path))
        error = outcome(lambda: METHODS[entry](table, spark, condition))
    every = set(range(10))
    if wanted is None:
        assert error is not None
        assert ids(path) == every
        return
    assert error is None
    moved = {n + 100 for n in wanted} if entry == "update" else set()
    assert ids(path) == (every - wanted) | moved


def test_each_session_has_its_own_settings(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    write_dataset(TABLE, path)
    second_session = spark.newSession()
    with settings_of(second_session, ESCAPED):
        first_table, second_table = (
            LanceTable.forPath(item, path) for item in (spark, second_session)
        )
        assert first_table.delete(r"s = 'a\b'").num_deleted_rows == 1
        assert second_table.delete(r"s = 'a\b'").num_deleted_rows == 1
    assert ids(tmp_path / "t.lance") == set(range(10)) - {2, 4}


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("with_rule", "values", "condition"),
    [(True, *case) for case in SOME] + [(False, *case) for case in every_other(SOME, 0)],
)
def test_conditions_in_options_agree_with_spark_or_are_refused(
    spark: Any,
    pushdown: Callable[..., None],
    parquet: str,
    tmp_path: Path,
    with_rule: bool,
    values: Mapping[str, str],
    condition: str,
) -> None:
    path = tmp_path / "t.lance"
    write_dataset(TABLE, str(path), max_rows_per_file=4)
    pushdown(with_rule)
    results: set[int] = set()

    def read() -> None:
        frame = spark.read.format("lance").option("filter", condition).load(str(path))
        results.update(row.id for row in frame.select("id", "s").collect())

    def write() -> None:
        empty = spark.createDataFrame([], spark.read.format("lance").load(str(path)).schema)
        writer = empty.write.format("lance").mode("overwrite")
        writer.option("replaceWhere", condition).save(str(path))

    with settings_of(spark, values):
        wanted = expected(spark, parquet, condition)
        refused = outcome(read)
        assert refused is not None or results == wanted
        refused_too = outcome(write)
    left = set(range(10))
    assert ids(path) == (left if refused_too is not None else left - (wanted or left))
    if wanted is None:
        assert refused is not None
    elif with_rule and condition != "comment = 5":
        # Without ANSI, a cast of a column is left to Spark. The error says so.
        assert (refused, refused_too) == (None, None)


@pytest.mark.sample(3)
@pytest.mark.parametrize("with_rule", [False, True], ids=["alone", "pushdown"])
def test_conditions_of_streams_agree_with_spark_or_are_refused(
    spark: Any, pushdown: Callable[..., None], parquet: str, tmp_path: Path, with_rule: bool
) -> None:
    path = tmp_path / "t.lance"
    write_dataset(TABLE, str(path), max_rows_per_file=4)
    pushdown(with_rule)
    cases: list[tuple[Mapping[str, str], str]] = [
        ({}, "id + 1 > 5"),
        (LENIENT, "id / 0 is null and id < 3"),
        (ESCAPED, r"s = 'a\b'"),
        (CASE, "S = 'plain'"),
        ({SQL + "session.timeZone": "Asia/Tokyo"}, "hour(t) = 9"),
    ]
    answered = 0
    for number, (values, condition) in enumerate([cases[0], *every_other(cases[1:], with_rule)]):
        results: set[int] = set()

        def read(condition: str = condition, name: str = f"stream{number}{with_rule}") -> set[int]:
            stream = spark.readStream.format("lance").option("filter", condition)
            frame = stream.load(str(path)).select("id").writeStream.format("memory")
            query = frame.queryName(name).trigger(availableNow=True).start()
            query.awaitTermination()
            return {row.id for row in spark.table(name).collect()}

        with settings_of(spark, values):
            wanted = expected(spark, parquet, condition)
            refused = outcome(lambda: results.update(read()))  # noqa: B023 - called at once
        assert refused is not None or results == wanted, condition
        answered += refused is None
    assert answered >= 1


def test_columns_that_differ_only_in_case(
    spark: Any, pushdown: Callable[..., None], tmp_path: Path
) -> None:
    path = str(tmp_path / "t.lance")
    rows = pa.table({"id": [0, 1, 2], "ID": [2, 1, 0], "s": ["a", "b", "c"]})
    dataset = write_dataset(rows, path)
    pushdown(True)
    with settings_of(spark, CASE):
        frame = spark.read.format("lance").option("filter", "ID + 0 = 2").load(path)
        assert [row.id for row in frame.collect()] == [0]
        assert [row.id for row in frame.where("id < 5").collect()] == [0]
        table = LanceTable.forPath(spark, path)
        assert table.update("ID = 1", {"s": "'x'"}).num_updated_rows == 1
        assert table.update("id = 2", {"ID": "id + ID + 5"}).num_updated_rows == 1
        assert table.delete("ID = 2").num_deleted_rows == 1
    result = lance.dataset(path).to_table().sort_by("id").to_pydict()
    assert result == {"id": [1, 2], "ID": [1, 7], "s": ["x", "c"]}
    with pytest.raises(LanceError, match="ambiguous"):
        dataset.to_table(filter="Id = 1")


def test_names_of_new_values_follow_the_setting(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    write_dataset(TABLE.select(["id", "s"]), path)
    table = LanceTable.forPath(spark, path)
    source = spark.createDataFrame([(1, "new")], "id long, s string").alias("source")
    merge = table.alias("target").merge(source, "target.id = source.id")
    assert table.update("id = 0", {"S": "'x'"}).num_updated_rows == 1
    with settings_of(spark, CASE):
        for change in (
            lambda: table.update("id = 0", {"S": "'y'"}),
            lambda: merge.whenMatchedUpdate(None, {"S": "'y'"}).execute(),
            lambda: merge.whenNotMatchedInsert(None, {"ID": "source.id"}).execute(),
        ):
            with pytest.raises(LanceError, match=r"no column '(S|ID)'"):
                change()
        assert table.update("id = 1", {"s": "'y'"}).num_updated_rows == 1
    assert lance.dataset(path).to_table(filter="id < 2").sort_by("id")["s"].to_pylist() == [
        "x",
        "y",
    ]


def test_the_error_names_a_setting_that_planning_cannot_see(
    spark: Any, pushdown: Callable[..., None], tmp_path: Path
) -> None:
    path = str(tmp_path / "t.lance")
    write_dataset(TABLE, path)
    pushdown(False)

    def rows(condition: str) -> list[int]:
        frame = spark.read.format("lance").option("filter", condition).load(path)
        return [row.id for row in frame.select("id").collect()]

    with settings_of(spark, ESCAPED):
        error = outcome(lambda: rows(r"s = 'a\b'"))
        assert error is not None
        assert "spark.sql.parser.escapedStringLiterals=true" in error
        assert "lance_spark.enable(spark)" in error
        # The setting does not change the meaning of the text: it is read.
        assert rows("s = 'plain'") == [8]
    # Text without meaning under the defaults is refused.
    for setting, condition in (
        ("spark.sql.legacy.bangEqualsNot=true", "id ! IN (1)"),
        ("spark.sql.variable.substitute=false", "s = '${x}'"),
        ("spark.sql.ansi.enabled=false", "id = cast('x' as int)"),
    ):
        error = outcome(lambda: rows(condition))  # noqa: B023 - called at once
        assert error is not None
        assert setting in error
        assert "lance_spark.enable(spark)" in error


def test_the_rule_sends_every_setting() -> None:
    source = (
        Path(lance_spark.__file__).parent / "spark" / "jvm" / "java" / "session" / "Settings.java"
    )
    text = source.read_text()
    assert all(f'"{name}"' in text for name in SPARK_NAMES.values())
    assert text.count('"spark.sql.') == len(SPARK_NAMES)


def test_scans_evaluate_pushed_conditions(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    from lance_spark.spark.table.conditions import condition_tree

    path = str(tmp_path / "t.lance")
    dataset = write_dataset(TABLE, path)
    table = LanceTable.forPath(spark, path)
    column = {"col": ["s"]}
    equal = {"op": "=", "args": [column, {"lit": "O'Brien", "type": "string"}]}
    wanted = {"op": "and", "args": [{"op": "is_not_null", "args": [column]}, equal]}
    for condition in (r"s = 'O\'Brien'", F.col("s") == "O'Brien"):
        assert condition_tree(table._handle, dataset, condition) == wanted
    # Conditions that can raise, are random, or need another table are left to Spark.
    for condition in ("s = 5", "id / 0 > 1", "rand() > 0.5", "id in (select 1)", "s rlike 'a'"):
        assert condition_tree(table._handle, dataset, condition) is None
