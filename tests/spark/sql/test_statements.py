"""Statements of other connectors: the text that Spark gets, and their effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException

from lance_spark.spark.catalog.procedures.statements import rewrite_statement
from lance_spark.spark.jvm.classes import CATALOG_CLASS, SESSION_CATALOG_CLASS
from tests.spark.sql.catalogs import TestCatalog

CATALOGS = {"cat": CATALOG_CLASS, "iceberg": "org.apache.iceberg.spark.SparkCatalog"}
T = "table => '`cat`.`db`.`t`'"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("statements")


@pytest.fixture
def catalog(spark: Any, root: Path) -> Iterator[TestCatalog]:
    yield TestCatalog.of(spark, "statements", root)
    spark.sql("USE spark_catalog.default")


def rewritten(statement: str, **arguments: Any) -> Any:
    """Return the text that Spark gets; None if it gets the statement itself, a dict for an
    error.
    """
    call = {"statement": statement, "catalogs": CATALOGS, "settings": {}, **arguments}
    reply = rewrite_statement(call)
    return reply.get("error") or reply["statement"]


def in_namespace(root: Path, *namespace: str) -> dict[str, Any]:
    """Return the arguments of a session whose current catalog is ours."""
    current = {
        "catalog": {"root": str(root)},
        "warehouse": str(root),
        "catalog_name": "cat",
        "current_namespace": list(namespace),
    }
    return {"current": current}


@pytest.mark.parametrize(
    ("statement", "call"),
    [
        ("OPTIMIZE cat.db.t", f"optimize({T})"),
        ("/* a */ optimize -- b\n `cat`.db.t /* c */ ;;", f"optimize({T})"),
        (
            "OPTIMIZE cat.db.t WITH (Target_Rows_Per_Fragment = 10, materialize_deletions = TRUE)",
            f"optimize({T}, target_rows_per_fragment => 10, materialize_deletions => TRUE)",
        ),
        ("OPTIMIZE cat.db.t WHERE id > 3 AND s < 'b' -- c", None),
        (
            "OPTIMIZE cat.db.t ZORDER BY (a, `b c`)",
            f"optimize({T}, z_order_by => array('a', 'b c'))",
        ),
        ("OPTIMIZE cat.`/data/t.lance`", "optimize(table => '`cat`.`/data/t.lance`')"),
        ("VACUUM cat.db.t", f"vacuum({T})"),
        (
            "VACUUM cat.db.t RETAIN 2.5 HOURS DRY RUN",
            f"vacuum({T}, retention_hours => 2.5, dry_run => true)",
        ),
        ("VACUUM cat.db.t WITH (before_version = ?)", f"vacuum({T}, before_version => ?)"),
        ("VACUUM cat.db.t WITH (before_version = :n)", f"vacuum({T}, before_version => :n)"),
        ("VACUUM cat.db.t WITH ()", f"vacuum({T})"),
        (
            "ALTER TABLE cat.db.t ADD COLUMNS a, b FROM v",
            f"add_columns_from({T}, columns => array('a', 'b'), source => '`v`')",
        ),
        (
            "ALTER TABLE cat.db.t ADD COLUMNS (`FROM`) FROM cat.db.`v``w`",
            f"add_columns_from({T}, columns => array('FROM'), source => '`cat`.`db`.`v``w`')",
        ),
        (
            "ALTER TABLE cat.db.t UPDATE COLUMNS (a) FROM v",
            f"update_columns_from({T}, columns => array('a'), source => '`v`')",
        ),
        ("ALTER TABLE cat.db.t CREATE TAG x", f"create_tag({T}, name => 'x')"),
        (
            "ALTER TABLE cat.db.t CREATE TAG IF NOT EXISTS x AS OF VERSION 5",
            f"create_tag({T}, if_not_exists => true, name => 'x', version => 5)",
        ),
        (
            "ALTER TABLE cat.db.t CREATE BRANCH x AS OF BRANCH `a/b` VERSION 5",
            f"create_branch({T}, name => 'x', branch => 'a/b', version => 5)",
        ),
        (
            "ALTER TABLE cat.db.t CREATE BRANCH x AS OF TAG y",
            f"create_branch({T}, name => 'x', tag => 'y')",
        ),
        (
            "ALTER TABLE cat.db.t DROP TAG IF EXISTS x",
            f"delete_tag({T}, if_exists => true, name => 'x')",
        ),
        ("ALTER TABLE cat.db.t DROP BRANCH x", f"delete_branch({T}, name => 'x')"),
        ("SHOW TAGS FROM cat.db.t", f"tags({T})"),
        ("SHOW TAG IN cat.db.t", f"tags({T})"),
        ("SHOW BRANCHES IN cat.db.t", f"branches({T})"),
        ("SHOW BRANCH FROM cat.db.t", f"branches({T})"),
        ("SHOW INDEXES FROM cat.db.t", f"describe_indices({T})"),
        ("SHOW INDEX IN cat.db.t", f"describe_indices({T})"),
        (
            "ALTER TABLE cat.db.t CREATE INDEX i USING btree (a.b, c) WITH (zone_size = 2)",
            f"create_index({T}, name => 'i', method => 'btree', columns => array('a.b', 'c'), "
            "options => map('zone_size', CAST(2 AS STRING)))",
        ),
        (
            "CREATE INDEX IF NOT EXISTS i ON TABLE cat.db.t (a) OPTIONS (zone_size = 2)",
            f"create_index({T}, name => 'i', method => 'BTREE', columns => array('a'), "
            "if_not_exists => true, options => map('replace', CAST(false AS STRING), 'zone_size', "
            "CAST(2 AS STRING)))",
        ),
        (
            "CREATE INDEX i ON cat.db.t USING zonemap (a)",
            f"create_index({T}, name => 'i', method => 'zonemap', columns => array('a'), "
            "options => map('replace', CAST(false AS STRING)))",
        ),
        (
            "ALTER TABLE cat.db.t CREATE INDEX IF NOT EXISTS i USING btree (a)",
            f"create_index({T}, if_not_exists => true, name => 'i', method => 'btree', "
            "columns => array('a'))",
        ),
        ("DROP INDEX i ON cat.db.t;", f"drop_index({T}, name => 'i')"),
        (
            "DROP INDEX IF EXISTS i ON TABLE cat.db.t",
            f"drop_index({T}, name => 'i', if_exists => true)",
        ),
        (
            "ALTER TABLE cat.db.t DROP INDEX IF EXISTS i",
            f"drop_index({T}, if_exists => true, name => 'i')",
        ),
        (
            "ALTER TABLE cat.db.t CREATE OR REPLACE TAG x AS OF VERSION 2",
            f"create_tag({T}, name => 'x', or_replace => true, version => 2)",
        ),
        (
            "ALTER TABLE cat.db.t REPLACE TAG x AS OF BRANCH b",
            f"update_tag({T}, name => 'x', branch => 'b')",
        ),
        ("SHOW VERSIONS FROM cat.db.t", f"history({T})"),
        ("ALTER TABLE cat.db.t DROP INDEX i", f"drop_index({T}, name => 'i')"),
        ("ALTER TABLE cat.db.t OPTIMIZE INDEX i", f"optimize_index({T}, name => 'i')"),
        ("ALTER TABLE cat.db.t REFRESH INDEX i", f"refresh_index({T}, name => 'i')"),
        (
            "ALTER TABLE cat.db.t SET UNENFORCED PRIMARY KEY (a, b)",
            f"set_unenforced_primary_key({T}, columns => array('a', 'b'))",
        ),
        ("DESCRIBE HISTORY cat.db.t", f"history({T})"),
        ("desc history cat.db.t LIMIT 3", f"history({T}, limit => 3)"),
        ("DESCRIBE DETAIL cat.db.t", f"detail({T})"),
        ("RESTORE TABLE cat.db.t TO VERSION AS OF 3", f"restore_to_version({T}, version => 3)"),
        ("RESTORE cat.db.t VERSION AS OF 'x'", f"restore_to_tag({T}, tag => 'x')"),
        (
            "RESTORE cat.db.t TO TIMESTAMP AS OF '2026-01-01' -- a",
            f"restore_to_timestamp({T}, timestamp => '2026-01-01' -- a\n)",
        ),
    ],
)
def test_statements_become_calls(statement: str, call: str | None) -> None:
    if call is None:
        condition = b"id > 3 AND s < 'b' -- c".hex()
        call = f"optimize({T}, where => CAST(X'{condition}' AS STRING))"
    assert rewritten(statement) == f"CALL `cat`.system.{call}"


def test_a_replacement_of_rows_becomes_an_insert() -> None:
    statement = "REPLACE cat.t WHERE CAST(a AS INT) = :n -- b\n AS (SELECT 1 AS a) -- c"
    assert rewritten(statement) == (
        "INSERT INTO cat.t \nREPLACE WHERE CAST(a AS INT) = :n -- b\n \n(SELECT 1 AS a) -- c"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "OPTIMIZE t",
        "OPTIMIZE iceberg.db.t",
        "OPTIMIZE spark_catalog.default.t",
        "OPTIMIZE",
        "OPTIMIZE 'cat",
        "VACUUM 'a string'",
        "REPLACE TABLE cat.t AS SELECT 1",
        "ALTER TABLE cat.db.t ADD COLUMNS (a INT COMMENT 'from')",
        "ALTER TABLE cat.db.t ADD COLUMNS (a STRUCT<index: INT>, tag INT)",
        "ALTER TABLE cat.db.t DROP COLUMN tag",
        "ALTER TABLE cat.db.t SET TBLPROPERTIES ('index' = 'a')",
        "ALTER TABLE cat.db.t RENAME COLUMN branch TO b",
        "DESCRIBE HISTORY t",
        "SHOW INDEXES",
        "CREATE INDEX i ON iceberg.db.t (a)",
        "DROP INDEX i ON t",
    ],
)
def test_other_statements_are_left_to_spark(statement: str) -> None:
    assert rewritten(statement) is None


def test_names_without_a_catalog(tmp_path: Path) -> None:
    current = in_namespace(tmp_path, "db")
    assert rewritten("OPTIMIZE t", **current) == f"CALL `cat`.system.optimize({T})"
    assert rewritten("OPTIMIZE db.t", **current) == f"CALL `cat`.system.optimize({T})"
    path = "CALL `cat`.system.detail(table => '`cat`.`/data/t`')"
    assert rewritten("DESC DETAIL `/data/t`", **current) == path
    assert rewritten("DESC DETAIL '/data/t'", **current) == path
    assert rewritten("OPTIMIZE iceberg.db.t", **current) is None
    assert rewritten("OPTIMIZE spark_catalog.db.t", **current) is None


def test_names_keep_their_characters_under_all_settings() -> None:
    quoted = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}
    statement = 'DESC DETAIL cat."a ""b"""'
    assert rewritten(statement, settings=quoted) == (
        """CALL `cat`.system.detail(table => '`cat`.`a "b"`')"""
    )
    assert rewritten(statement)["message"] == ": expected the name of a table"
    for name in ("it's", r"\a", "${x}"):
        literal = f"CAST(X'{f'`cat`.`{name}`'.encode().hex()}' AS STRING)"
        call = rewritten(f"DESC DETAIL cat.`{name}`")
        assert call == f"CALL `cat`.system.detail(table => {literal})"


@pytest.mark.parametrize(
    ("statement", "near", "message", "place"),
    [
        ("OPTIMIZE cat.t FOO", "'FOO'", "expected the end of the statement", (1, 15)),
        ("OPTIMIZE cat.t\nWITH (a 1);", "'1'", "expected =", (2, 8)),
        ("OPTIMIZE cat.t WITH (a = 1, a = 2)", "'a'", "option a has a value already", (1, 28)),
        ("VACUUM cat.t WITH (TABLE = 'b')", "'TABLE'", "option table has a value already", (1, 19)),
        ("VACUUM cat.t WITH (`a b` = 1)", "'`a'", "expected the name of an option", (1, 19)),
        ("OPTIMIZE cat.t WHERE a = :b", "':'", "the condition must not have parameters", (1, 25)),
        ("VACUUM cat.t RETAIN x HOURS", "'x'", "expected a number, a string", (1, 20)),
        ("VACUUM cat.t WITH (a = -", "end of input", "expected a number", (1, 24)),
        ("ALTER TABLE cat.t CREATE TAG", "end of input", "expected the name of a tag", (1, 28)),
        ("ALTER TABLE cat.t CREATE TAG a AS OF b", "'b'", "expected VERSION, BRANCH", (1, 37)),
        ("ALTER TABLE cat.t UPDATE COLUMNS a", "end of input", "expected FROM", (1, 34)),
        ("ALTER TABLE cat.t CREATE INDEX i (a)", "'('", "expected USING", (1, 33)),
        ("ALTER TABLE cat.t REPLACE BRANCH b", "'b'", "a branch cannot be replaced", (1, 33)),
        ("CREATE INDEX i ON cat.t", "end of input", "expected the name of a column", (1, 23)),
        ("RESTORE cat.t TO 3", "'3'", "expected VERSION", (1, 17)),
        ("RESTORE cat.t TO TIMESTAMP AS OF ;", "';'", "expected a time", (1, 33)),
        ("REPLACE cat.t WHERE a = 1 SELECT 1", "end of input", "expected AS and a query", (1, 34)),
    ],
)
def test_syntax_errors(statement: str, near: str, message: str, place: tuple[int, int]) -> None:
    error = rewritten(statement)
    assert isinstance(error, dict), error
    assert (error["kind"], error["near"]) == ("syntax", near)
    assert error["message"].startswith(f": {message}")
    assert (error["line"], error["position"]) == place


def test_statements_change_the_table(catalog: TestCatalog) -> None:
    catalog.run(
        [
            "CREATE NAMESPACE CAT.db",
            f"USE {catalog.name}.db",
            "CREATE TABLE t (id BIGINT NOT NULL, s STRING)",
            "INSERT INTO t SELECT id, 'a' FROM range(0, 10, 1, 2)",
            "DELETE FROM t WHERE id = 9",
            "CREATE TEMP VIEW by_address AS SELECT _rowaddr, _fragid, id * 2 AS twice, "
            "upper(s) AS s FROM t",
            "CREATE TEMP VIEW by_id AS SELECT ID, id * 3 AS thrice, 'b' AS S FROM t WHERE id < 3",
        ]
    )
    path = catalog.sql("DESCRIBE DETAIL t")[0].uri

    def rows() -> list[dict[str, Any]]:
        table_rows: list[dict[str, Any]] = lance.dataset(path).to_table().to_pylist()
        return table_rows

    assert catalog.sql("ALTER TABLE t ADD COLUMNS twice FROM by_address") == [(4,)]
    (updated,) = catalog.sql("ALTER TABLE t UPDATE COLUMNS (s) FROM by_address")
    assert updated.num_updated_rows == 9
    assert rows() == [{"id": n, "s": "A", "twice": 2 * n} for n in range(9)]
    assert "by_id`' has no key of table" in catalog.refusal(
        "ALTER TABLE t ADD COLUMNS (thrice) FROM by_id"
    )
    catalog.sql("ALTER TABLE t SET UNENFORCED PRIMARY KEY (id)")
    catalog.sql("ALTER TABLE t ADD COLUMNS (thrice) FROM by_id")
    catalog.sql("ALTER TABLE t UPDATE COLUMNS S FROM by_id")
    assert [(row["thrice"], row["s"]) for row in rows()[1:4]] == [(3, "b"), (6, "b"), (None, "A")]
    catalog.sql("REPLACE t WHERE id > 3 AND (id < 20) AS SELECT 20L, 'r', 40L, 60L;")
    assert [row["id"] for row in rows()] == [0, 1, 2, 3, 20]
    assert catalog.sql("OPTIMIZE t -- all of it")[0].fragments_added == 1
    version = lance.dataset(path).version
    catalog.sql("ALTER TABLE t CREATE TAG first AS OF VERSION 2")
    catalog.sql("ALTER TABLE t CREATE BRANCH `a/b` AS OF TAG first")
    assert catalog.sql("SHOW TAGS IN t")[0].version == 2
    assert [row.name for row in catalog.sql("SHOW BRANCHES IN t")] == ["a/b"]
    (row,) = catalog.spark.sql("VACUUM t WITH (before_version = :n)", {"n": version}).collect()
    # The tag keeps its version.
    assert row.old_versions == version - 2
    assert [v["version"] for v in lance.dataset(path).versions()] == [2, version]
    assert [row.version for row in catalog.sql("DESC HISTORY t LIMIT 5")] == [version, 2]
    assert catalog.sql("RESTORE TABLE t TO VERSION AS OF 'first'") == [(version + 1,)]
    assert len(rows()) == 10
    (row,) = catalog.spark.sql("RESTORE t TO VERSION AS OF ?", [version]).collect()
    assert row.version == version + 2
    assert "no version as of" in catalog.refusal("RESTORE t TO TIMESTAMP AS OF '2020-01-01'")
    assert catalog.sql("RESTORE t TO TIMESTAMP AS OF current_timestamp()") == [(version + 3,)]
    catalog.run(["ALTER TABLE t DROP BRANCH `a/b`", "ALTER TABLE t DROP TAG first"])
    assert not lance.dataset(path).tags.list()
    assert catalog.sql("SHOW INDEXES IN t") == []
    assert "one column, not 2" in catalog.refusal(
        "ALTER TABLE t CREATE INDEX i USING btree (id, v)"
    )
    assert "'i' not found" in catalog.refusal("ALTER TABLE t DROP INDEX i")


def test_a_primary_key_is_declared_once(catalog: TestCatalog) -> None:
    catalog.run(["CREATE TABLE CAT.k (id BIGINT NOT NULL)", f"USE {catalog.name}"])
    assert catalog.sql("ALTER TABLE k SET UNENFORCED PRIMARY KEY (id)") == [("OK", "id")]
    assert "primary key is id already" in catalog.refusal(
        "ALTER TABLE k SET UNENFORCED PRIMARY KEY (id)"
    )


def test_errors_are_those_of_sparks_parser(catalog: TestCatalog) -> None:
    with pytest.raises(ParseException) as caught:
        catalog.sql("OPTIMIZE CAT.t\nWHER id = 1")
    assert caught.value.getCondition() == "PARSE_SYNTAX_ERROR"
    assert "Syntax error at or near 'WHER': expected the end of the statement." in str(caught.value)
    assert "(line 2, pos 0)" in str(caught.value)
    # Spark gets statements about tables of a catalog that cannot have Lance tables.
    session = catalog.spark.newSession()
    session.conf.set("spark.sql.catalog.spark_catalog", "builtin")
    with pytest.raises(ParseException, match="near 'OPTIMIZE'"):
        session.sql("OPTIMIZE spark_catalog.default.t")
    with pytest.raises(AnalysisException, match=r"nope.*was not found"):
        catalog.sql("OPTIMIZE CAT.nope")


def test_errors_of_sparks_parser_keep_their_class(spark: Any) -> None:
    """In Spark 4.3, an error that is none of its syntax or analysis."""
    text = "SELECT CAST('a' AS TIMESTAMP_NTZ(9))"
    errors = []
    for parser in (
        spark._jvm.org.apache.spark.sql.execution.SparkSqlParser(),
        spark._jsparkSession.sessionState().sqlParser(),
    ):
        with pytest.raises((Py4JJavaError, ParseException)) as caught:
            parser.parsePlan(text)
        error = getattr(caught.value, "java_exception", caught.value)
        errors.append(str(getattr(error, "toString", error.__str__)()))
    assert errors[0] == errors[1]


def test_every_method_of_sparks_parser_is_passed_on(spark: Any) -> None:
    """A method that Spark's trait implements itself would lose what another parser does."""
    parser = spark._jsparkSession.sessionState().sqlParser().getClass()
    (spark_parser,) = [
        item for item in parser.getInterfaces() if item.getSimpleName() == "ParserInterface"
    ]
    own, wanted = (
        {
            (item.getName(), *(dtype.getName() for dtype in item.getParameterTypes()))
            for item in methods
            if not item.isSynthetic() and "$" not in item.getName()
        }
        for methods in (parser.getDeclaredMethods(), spark_parser.getMethods())
    )
    assert wanted <= own
    assert len(wanted) > 8


def test_a_column_of_a_table_called_history(catalog: TestCatalog) -> None:
    catalog.run(["CREATE TABLE CAT.history (t INT)", f"USE {catalog.name}"])
    assert catalog.sql("DESCRIBE history t")[0] == ("col_name", "t")
    (row,) = catalog.sql("DESCRIBE HISTORY CAT.history")
    assert row.version == 1


def test_variables_and_new_sessions(catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.variables (id INT)")
    catalog.sql("SET chosen = CAT.variables")
    assert len(catalog.sql("DESCRIBE HISTORY ${chosen}")) == 1
    catalog.sql("RESET chosen")
    catalog.sql("CREATE TABLE CAT.`it's` (id INT)")
    assert catalog.sql("ALTER TABLE CAT.`it's` CREATE TAG a") == [("a",)]
    session = catalog.spark.newSession()
    assert session.sql(f"SHOW TAGS IN {catalog.name}.variables").collect() == []


def test_statements_that_depend_on_tables() -> None:
    """The JVM looks for these tables, and leaves the statement to Spark."""
    catalogs = {"lance": CATALOG_CLASS, "spark_catalog": SESSION_CATALOG_CLASS}
    current = {"catalog_name": "spark_catalog", "current_namespace": ["own"]}

    def reply(statement: str) -> dict[str, Any]:
        call = {"statement": statement, "catalogs": catalogs, "settings": {}, "current": current}
        return rewrite_statement(call)

    for statement in (
        "CREATE TABLE t AS SELECT 1 WHERE 'a' LIKE 'b'",
        "CREATE TABLE IF NOT EXISTS t LIKE s USING parquet",
    ):
        assert reply(statement) == {"statement": None}, statement
    rewritten_call = reply("OPTIMIZE t")
    assert rewritten_call["session_table"] == ["own", "t"]
    assert rewritten_call["statement"].startswith("CALL `spark_catalog`.system.optimize(")
    assert reply("DESCRIBE HISTORY t")["unless_table"] == ["spark_catalog", "own", "HISTORY"]
    assert reply("CREATE TABLE t LIKE s USING lance")["error"]["near"] == "'LIKE'"
