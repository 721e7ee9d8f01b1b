"""Runs the statements of golden files in sessions of one source: a line of JSON for each outcome.

Each line of the standard input names a file. Its statements run in a new session, in the database
`default`, which afterwards has only the tables of the suite. A view of rows in the text of its
statement becomes a table, so that the queries of it read files of the source.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lance_spark
from tests.spark_suites.inputs import (
    created_view,
    dropped_view,
    for_source,
    read_input,
    view_of_values,
)
from tests.spark_suites.outcomes import Outcome
from tests.support.spark.processes import JAVA_OPTIONS
from tests.support.spark.settings import INTERPRETED

#: What precedes a line for the parent: Spark writes to the same stream.
REPLY = "outcome: "
#: Separates rows that come from Java as one text.
_ROW_END = "\x1e"
_WIDE = (
    "unique1 int, unique2 int, two int, four int, ten int, twenty int, hundred int, thousand int, "
    "twothousand int, fivethous int, tenthous int, odd int, even int, stringu1 string, "
    "stringu2 string, string4 string"
)
#: Tables of the suite from files: the name, the file, the columns.
_FILES = (
    ("aggtest", "agg.data", "a int, b float"),
    ("onek", "onek.data", _WIDE),
    ("tenk1", "tenk.data", _WIDE),
)
#: Tables of the suite from queries.
_QUERIES = {
    "testdata": "SELECT CAST(id AS INT) AS key, CAST(id AS STRING) AS value FROM range(1, 101)",
    "arraydata": (
        "SELECT * FROM VALUES (array(1, 2, 3), array(array(1, 2, 3))),"
        " (array(2, 3, 4), array(array(2, 3, 4))) AS t(arraycol, nestedarraycol)"
    ),
    "mapdata": (
        "SELECT map_from_entries(transform(sequence(1, 6 - n), k -> "
        "struct(k, concat(substring('abcde', k, 1), n)))) AS mapcol FROM range(1, 6, 1, 1) AS r(n)"
    ),
}
_KEPT = frozenset({*_QUERIES, *(name for name, _, _ in _FILES)})
#: Settings of the suite, and those of files in some of its folders.
_SETTINGS = {
    "spark.sql.session.timeZone": "America/Los_Angeles",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.datetime.java8API.enabled": "true",
}
#: Spark cannot read variants of Parquet by interpreted plans.
_COMPILED = "variant"
_OF_FOLDERS = {
    "nonansi": {"spark.sql.ansi.enabled": "false"},
    "timestampNTZ": {"spark.sql.timestampType": "TIMESTAMP_NTZ"},
    "postgreSQL": {"spark.sql.legacy.interval.enabled": "true"},
}
#: Nodes below which an order is lost, and above which it stays.
_UNORDERED = frozenset({"Join", "Aggregate", "Generate", "Sample", "Distinct"})
_TRANSPARENT = frozenset({"Project", "Filter"})


class Suite:
    """The golden files, with a source."""

    def __init__(self, spark: Any, source: str, resources: Path, scratch: Path):
        self._spark = spark
        self._root = str(scratch / "root")
        self._source = source
        self._folder = resources / "sql-tests" / "inputs"
        self._databases = {"default"}
        self._hive_result = spark._jvm.org.apache.spark.sql.execution.HiveResult
        data = resources / "test-data" / "postgresql"
        for name, query in _QUERIES.items():
            spark.sql(query).coalesce(1).write.saveAsTable(name)
        for name, file, columns in _FILES:
            rows = spark.read.csv(str(data / file), schema=columns, sep="\t")
            rows.write.saveAsTable(name)

    def run(self, file: str) -> Iterator[Outcome]:
        """Run the statements of a file."""
        session = self._spark.newSession()
        folders = Path(file).parts[:-1]
        parsed = read_input(self._folder, file)
        settings = _SETTINGS if file.startswith(_COMPILED) else {**_SETTINGS, **INTERPRETED}
        for name, value in settings.items():
            session.conf.set(name, value)
        session.conf.set("spark.sql.sources.default", self._source)
        for folder in folders:
            for name, value in _OF_FOLDERS.get(folder, {}).items():
                session.conf.set(name, value)
        if "postgreSQL" in folders:
            session.udf.register("booleq", lambda a, b: a == b, "boolean")
            session.udf.register("boolne", lambda a, b: a != b, "boolean")
            session.udf.register("vol", lambda text: text, "string")
        for name, value in parsed.settings.items():
            session.sql(f"SET {name}={value}")
        tables: set[str] = set()
        for number, statement in enumerate(parsed.statements, 1):
            yield self._outcome(session, file, number, statement, tables)
        self._clean(session)

    def _outcome(
        self, session: Any, file: str, number: int, statement: str, tables: set[str]
    ) -> Outcome:
        place: dict[str, Any] = {"file": file, "number": number, "text": statement}
        text = for_source(statement, self._source, self._root)
        try:
            dropped = dropped_view(text)
            if dropped in tables:
                tables.discard(dropped)
                text = f"DROP TABLE {dropped}"
            created = created_view(text)
            if created in tables:
                tables.discard(created)
                session.sql(f"DROP TABLE {created}")
            frame = session.sql(text)
            view = view_of_values(text)
            if view and view not in _KEPT:
                frame = session.sql(f"CREATE TABLE {view} AS SELECT * FROM {view}")
                session.sql(f"DROP VIEW {view}")
                tables.add(view)
            execution = frame._jdf.queryExecution()
            rows = self._hive_result.hiveResultString(execution.executedPlan())
            return Outcome(
                **place,
                schema=frame._jdf.schema().catalogString(),
                rows=tuple(rows.mkString(_ROW_END).split(_ROW_END)) if rows.size() else (),
                is_ordered=rows.size() > 1 and _is_ordered(execution.analyzed()),
            )
        except PySparkException as error:
            condition = error.getCondition() or _java_class(error)
            return Outcome(**place, condition=condition, error=_message(error))
        except Exception as error:
            java = getattr(error, "java_exception", None)
            condition = java.getClass().getName() if java else type(error).__name__
            return Outcome(**place, condition=condition, error=_message(error))

    def _clean(self, session: Any) -> None:
        """Remove what the statements of a file have left."""
        with suppress(Exception):
            session.sql("SET CATALOG spark_catalog")
        session.sql("RESET")
        session.sql("USE default")
        for row in session.sql("SHOW TABLES").collect():
            if row.tableName not in _KEPT and not row.isTemporary:
                for kind in ("TABLE", "VIEW"):
                    with suppress(Exception):
                        session.sql(f"DROP {kind} IF EXISTS `{row.tableName}`")
        for row in session.sql("SHOW DATABASES").collect():
            if row.namespace not in self._databases:
                with suppress(Exception):
                    session.sql(f"DROP DATABASE `{row.namespace}` CASCADE")
        for row in session.sql("SHOW USER FUNCTIONS").collect():
            with suppress(Exception):
                session.sql(f"DROP FUNCTION IF EXISTS {row.function}")
        for row in session.sql("SHOW VIEWS IN global_temp").collect():
            with suppress(Exception):
                session.sql(f"DROP VIEW global_temp.`{row.viewName}`")
        session.catalog.clearCache()


def _is_ordered(plan: Any) -> bool:
    """Return whether a plan orders its rows, as Spark's suite decides it."""
    name = plan.getClass().getSimpleName()
    if name in _UNORDERED:
        return False
    if name.startswith("Describe"):
        return True
    children = plan.children()
    if name in _TRANSPARENT:
        return _is_ordered(children.head())
    if name == "Sort":
        return bool(getattr(plan, "global")())
    return any(_is_ordered(children.apply(place)) for place in range(children.size()))


def _java_class(error: Exception) -> str:
    java = getattr(error, "_origin", None)
    return java.getClass().getName() if java is not None else type(error).__name__


def _message(error: Exception) -> str:
    """Return the first lines of an error."""
    return str(error).strip()[:2000]


def start(source: str, folder: Path) -> Any:
    """Start a session whose tables are of a source by default.

    It has one core, so that both sources add floating-point numbers in the same order.
    """
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "localhost")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.sources.default", source)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    if source == "lance":
        lance_spark.enable(spark)
    return spark


def main(source: str, resources: str, folder: str) -> None:
    """Run the files that the standard input names."""
    logging.disable()
    scratch = Path(folder)
    spark = start(source, scratch)
    suite = Suite(spark, source, Path(resources), scratch)
    for line in sys.stdin:
        for outcome in suite.run(line.strip()):
            print(REPLY + json.dumps(outcome.values()), flush=True)
        print(REPLY + "null", flush=True)
    spark.stop()
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
