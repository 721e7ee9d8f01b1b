"""The parser of golden inputs, on a text of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark_suites.inputs import (
    created_table,
    created_view,
    dropped_view,
    for_source,
    read_input,
    view_of_values,
)

TEXT = r"""-- a comment; with a semicolon
--SET a.b=1,c.d = x=y
--CONFIG_DIM1 first=1
--CONFIG_DIM1 first=2
--CONFIG_DIM2 second=1,third=2
--IMPORT parts/imported.sql
CREATE TABLE t (a INT)
  -- an indented comment
USING Parquet;
SELECT 'one\;text',
  a FROM t;
--QUERY-DELIMITER-START
/* a bracketed; comment */
SELECT 2;
--QUERY-DELIMITER-END
SELECT 3;

"""


def test_read_input(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "imported.sql").write_text("--SET ignored=1\nSELECT 0;")
    (tmp_path / "own.sql").write_text(TEXT)
    found = read_input(tmp_path, "own.sql")
    assert found.statements == (
        "SELECT 0",
        "CREATE TABLE t (a INT)\nUSING Parquet",
        "SELECT 'one\\;text',\n  a FROM t",
        "/* a bracketed; comment */\nSELECT 2",
        "SELECT 3",
    )
    assert found.settings == {"a.b": "1", "c.d": "x=y", "first": "1", "second": "1", "third": "2"}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE TABLE t (a INT)\nUSING  Parquet", "CREATE TABLE t (a INT)\nUSING  lance"),
        ("create table t (a INT) partitioned by (a, b) AS", "create table t (a INT)  AS"),
        ("CREATE TABLE t (a INT) PARTITIONED BY (b INT)",) * 2,
        ("CREATE TABLE t\nLOCATION '/a'", "CREATE TABLE t\nLOCATION '/root/a'"),
        ("CREATE DATABASE t LOCATION 'file:/a'", "CREATE DATABASE t LOCATION 'file:/root/a'"),
        ("CLUSTERED BY (a) SORTED BY (b ASC)\nINTO 2 BUCKETS COMMENT 'c'", " COMMENT 'c'"),
        ("SELECT * FROM parquet.`/a/parquet`", "SELECT * FROM lance.`/a/parquet`"),
        (
            "SELECT 'parquet', udf (a) FROM my_udf(1)",
            "SELECT 'parquet', coalesce(a) FROM my_udf(1)",
        ),
    ],
)
def test_for_source(statement: str, expected: str) -> None:
    assert for_source(statement, "lance", "/root") == expected


def test_created_table() -> None:
    assert created_table("CREATE TABLE IF NOT EXISTS a.T (b INT)") == "t"
    assert created_table("CREATE VIEW t AS SELECT 1") is None


def test_views() -> None:
    of_values = (
        "CREATE TEMPORARY VIEW T1 AS SELECT * FROM VALUES (1) AS t(a)",
        "create or replace temp view t1(a, b) as values (1, 2)",
        "CREATE TEMP VIEW t1 AS (SELECT * FROM (VALUES (1)))",
    )
    others = ("CREATE TEMP VIEW t1 AS SELECT 1", "CREATE GLOBAL TEMPORARY VIEW t1 AS SELECT 1")
    assert [view_of_values(text) for text in of_values] == ["t1"] * 3
    assert [view_of_values(text) for text in others] == [None] * 2
    assert [created_view(text) for text in (*of_values, *others)] == ["t1"] * 5
    assert [dropped_view(f"DROP VIEW {rest}") for rest in ("T1", "IF EXISTS t1", "a.t1")] == [
        *("t1", "t1"),
        None,
    ]
