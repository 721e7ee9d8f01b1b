"""INSERT OVERWRITE and other overwrites by the mode of the session, the option, and the property of
the table that names the columns of partitions: the same rows as in a Parquet table with partitions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.settings import restored
from tests.support.spark.versions import SPARK

NAME = "replaced"

MODE = "spark.sql.sources.partitionOverwriteMode"
#: Statements on a table of three rows for each of the days 0, 1 and 2, which are its partitions, and
#: the rows of each day afterwards in a static and in a dynamic session: those of a Parquet table.
STATEMENTS: dict[str, tuple[dict[Any, int], dict[Any, int]]] = {
    "INSERT OVERWRITE T SELECT 100L, 1L": ({1: 1}, {0: 3, 1: 1, 2: 3}),
    "INSERT OVERWRITE T SELECT 7L, 1L WHERE false": ({}, {0: 3, 1: 3, 2: 3}),
    "INSERT OVERWRITE T PARTITION (day = 1) SELECT 7L": ({0: 3, 1: 1, 2: 3},) * 2,
    "INSERT OVERWRITE T PARTITION (DAY = 1) SELECT 7L WHERE false": ({0: 3, 2: 3},) * 2,
    "INSERT OVERWRITE T PARTITION (day = NULL) VALUES (7L)": ({0: 3, 1: 3, 2: 3, None: 1},) * 2,
    "INSERT OVERWRITE T PARTITION (day) SELECT 7L, 2L": ({2: 1}, {0: 3, 1: 3, 2: 1}),
    "INSERT OVERWRITE T WITH (partitionOverwriteMode = 'static') SELECT 100L, 1L": ({1: 1},) * 2,
    "INSERT OVERWRITE T WITH (partitionOverwriteMode = 'dynamic') SELECT 100L, 1L": (
        ({0: 3, 1: 1, 2: 3},) * 2
    ),
    "INSERT OVERWRITE T WITH (partitionOverwriteMode = 'static') PARTITION (day = 1) SELECT 7L": (
        ({0: 3, 1: 1, 2: 3},) * 2
    ),
    "INSERT OVERWRITE T WITH (partitionOverwriteMode = 'dynamic') PARTITION (day = 1) SELECT 7L": (
        ({0: 3, 1: 1, 2: 3},) * 2
    ),
    "INSERT INTO T PARTITION (day = 1) SELECT 7L": ({0: 3, 1: 4, 2: 3},) * 2,
}
DAYS = "SELECT id, id % 3 AS day FROM range(0, 9, 1, 1)"


def days_of(catalog: TestCatalog, table: str) -> dict[Any, int]:
    """Return the number of rows of each day, as pylance reads them."""
    return dict(Counter(row["day"] for row in catalog.rows(table)))


def test_partitions_are_replaced_as_in_parquet(catalog: TestCatalog) -> None:
    wrong = {}
    with restored(catalog.spark, MODE):
        for statement, results in STATEMENTS.items():
            for mode, expected in zip(("static", "dynamic"), results, strict=True):
                catalog.spark.conf.set(MODE, mode)
                catalog.sql(
                    "CREATE OR REPLACE TABLE CAT.t TBLPROPERTIES ('partitionBy' = 'Day') AS " + DAYS
                )
                catalog.sql(re.sub(r"\bT\b", "CAT.t", statement))
                if days_of(catalog, "t") != expected:
                    wrong[statement, mode] = days_of(catalog, "t")
    assert not wrong


def test_every_way_in_replaces_partitions_in_a_dynamic_session(catalog: TestCatalog) -> None:
    """With the option or the property, rows of other days stay; without, all rows are replaced."""
    spark, path = catalog.spark, str(catalog.root / "w.lance")
    new = spark.sql("SELECT 100L AS id, 1L AS day")

    def by_path(**options: str) -> None:
        new.write.format("lance").mode("overwrite").options(**options).save(path)

    def by_view(**_: str) -> None:
        spark.read.format("lance").load(path).createOrReplaceTempView("w")
        spark.sql("INSERT OVERWRITE w SELECT 100L, 1L")

    ways: dict[str, Callable[..., Any]] = {
        "sql": lambda **options: spark.sql(
            f"INSERT OVERWRITE replaced.w {with_options(options)} SELECT 100L, 1L"
        ),
        "path": by_path,
        "view": by_view,
        "insertInto": lambda **_: new.write.mode("overwrite").insertInto("replaced.w"),
        "saveAsTable": lambda **options: (
            new.write.mode("overwrite").options(**options).saveAsTable("replaced.w")
        ),
        "writeTo": lambda **options: (
            new.writeTo("replaced.w").options(**options).overwritePartitions()
        ),
    }
    part = {0: 3, 1: 1, 2: 3}
    kept = {"": {1: 1}, "option": part, "property": part}
    wrong = {}
    with restored(spark, MODE):
        spark.conf.set(MODE, "dynamic")
        for way, write in ways.items():
            for named, expected in kept.items():
                if named == "option" and way in ("view", "insertInto"):
                    # Spark takes no options there.
                    continue
                properties = "TBLPROPERTIES ('partitionBy' = 'day')" if named == "property" else ""
                catalog.sql("DROP TABLE IF EXISTS CAT.w")
                catalog.sql(f"CREATE TABLE CAT.w {properties} AS {DAYS}")
                write(**({"partitionBy": "day"} if named == "option" else {}))
                if days_of(catalog, "w") != expected:
                    wrong[way, named] = days_of(catalog, "w")
        # The statement asks for a new table.
        catalog.sql("CREATE OR REPLACE TABLE CAT.w AS SELECT 100L AS id, 1L AS day")
        assert catalog.rows("w") == [{"id": 100, "day": 1}]
    assert not wrong


def with_options(options: dict[str, str]) -> str:
    texts = ", ".join(f"{name} = '{value}'" for name, value in options.items())
    return f"WITH ({texts})" if texts else ""


def test_refusals_of_partitions(catalog: TestCatalog) -> None:
    catalog.sql(f"CREATE TABLE CAT.r TBLPROPERTIES ('partitionBy' = 'day') AS {DAYS}")
    for statement, message in (
        ("CREATE TABLE CAT.x (id INT) TBLPROPERTIES ('partitionBy' = 'day')", "no column 'day'"),
        ("ALTER TABLE CAT.r SET TBLPROPERTIES ('partitionBy' = 'nope')", "no column 'nope'"),
        (f"CREATE TABLE CAT.x TBLPROPERTIES ('partitionBy' = 'dy') AS {DAYS}", "no column 'dy'"),
        (
            "INSERT OVERWRITE CAT.r WITH (partitionBy = 'id', partitionOverwriteMode = 'dynamic') "
            "PARTITION (day = 1) SELECT 7L",
            "option partitionBy does not name day",
        ),
    ):
        assert message in catalog.refusal(statement), statement
    with restored(catalog.spark, MODE):
        catalog.sql("CREATE TABLE CAT.plain AS " + DAYS)
        with pytest.raises(Exception, match="needs the option partitionBy"):
            catalog.spark.table("replaced.r").writeTo("replaced.plain").overwritePartitions()
        # A client without these checks has dropped the column: no row is replaced.
        catalog.sql("ALTER TABLE CAT.r DROP COLUMN day")
        catalog.sql("INSERT INTO CAT.r VALUES (9)")
        catalog.spark.conf.set(MODE, "dynamic")
        assert "no column 'day'" in catalog.refusal("INSERT OVERWRITE CAT.r VALUES (10)")
    assert len(catalog.rows("r")) == 10


@pytest.mark.skipif(SPARK < (4, 3), reason="the statements came with Spark 4.3")
def test_replace_using_and_replace_on(catalog: TestCatalog) -> None:
    spark = catalog.spark
    spark.sql("CREATE OR REPLACE TEMP VIEW one AS SELECT 5L AS id, 2L AS day")
    for statement, kept in (
        ("REPLACE USING (day) SELECT id, 1L AS day FROM range(4)", {0: 3, 1: 4, 2: 3, None: 1}),
        ("REPLACE USING (day) SELECT 50L, NULL", {0: 3, 1: 3, 2: 3, None: 2}),
        ("AS t REPLACE ON t.day = s.day SELECT * FROM one AS s", {0: 3, 1: 3, 2: 1, None: 1}),
        (
            "AS t REPLACE ON t.day <=> s.day SELECT 50L, s.day FROM (SELECT NULL AS day) AS s",
            {0: 3, 1: 3, 2: 3, None: 1},
        ),
        (
            "AS t REPLACE ON t.day = s.day AND s.id = t.id SELECT id, id % 3 AS day FROM range(2) s",
            {0: 3, 1: 3, 2: 3, None: 1},
        ),
    ):
        for mode in ("static", "dynamic"):
            catalog.sql(f"CREATE OR REPLACE TABLE CAT.u AS {DAYS}")
            catalog.sql("INSERT INTO CAT.u VALUES (50, NULL)")
            with restored(spark, MODE):
                spark.conf.set(MODE, mode)
                catalog.sql(f"INSERT INTO CAT.u {statement}")
            assert days_of(catalog, "u") == kept, (mode, statement)
    before = catalog.rows("u")
    for statement in (
        "AS t REPLACE ON t.day > s.day SELECT * FROM one AS s",
        "AS t REPLACE ON t.day = s.id SELECT id, 1L AS day FROM range(4) AS s",
        # Another column of this name is inserted.
        "AS t REPLACE ON t.day = s.day SELECT s.id, s.day + 1 AS day FROM one AS s",
    ):
        assert "REPLACE ON takes equalities" in catalog.refusal(f"INSERT INTO CAT.u {statement}")
    assert catalog.rows("u") == before
