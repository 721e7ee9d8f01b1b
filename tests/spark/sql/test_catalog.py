"""Namespaces, names, views, caches and versions of a catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import lance_spark
from lance_spark.errors import InvalidInputError, TableNotFoundError
from lance_spark.spark.table import LanceTable
from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.settings import LOCAL, restored


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> TestCatalog:
    catalog = TestCatalog.of(spark, "named", tmp_path_factory.mktemp("named"))
    spark.sql("CREATE NAMESPACE named.db COMMENT 'a place'")
    catalog.sql("CREATE TABLE CAT.db.t (id INT COMMENT 'an id', v STRING) COMMENT 'a table'")
    catalog.sql("INSERT INTO CAT.db.t VALUES (1, 'a'), (2, 'b')")
    return catalog


@pytest.fixture
def settings(spark: Any) -> Iterator[Any]:
    """Settings of the session, which the test may change."""
    yield spark.conf
    spark.conf.unset("spark.sql.caseSensitive")
    spark.sql("USE spark_catalog.default")


def test_namespaces(catalog: TestCatalog) -> None:
    catalog.run(["CREATE NAMESPACE IF NOT EXISTS CAT.db.inner", "CREATE NAMESPACE CAT.gone"])
    assert set(catalog.spark.sql("SHOW NAMESPACES IN named").collect()) == {("db",), ("gone",)}
    assert catalog.sql("SHOW NAMESPACES IN CAT.db") == [("db.inner",)]
    assert ("Comment", "a place") in catalog.sql("DESCRIBE NAMESPACE EXTENDED CAT.db")
    assert "[SCHEMA_ALREADY_EXISTS]" in catalog.refusal("CREATE NAMESPACE CAT.db")
    assert "leave LOCATION out" in catalog.refusal("CREATE NAMESPACE CAT.placed LOCATION '/x'")
    assert "[SCHEMA_NOT_EMPTY]" in catalog.refusal("DROP NAMESPACE CAT.db")
    assert "[SCHEMA_NOT_FOUND]" in catalog.refusal("SHOW TABLES IN CAT.nope")
    catalog.run(["CREATE TABLE CAT.gone.t AS SELECT 1 AS id", "DROP NAMESPACE CAT.gone CASCADE"])
    assert catalog.spark.sql("SHOW NAMESPACES IN named").collect() == [("db",)]


def test_show_and_describe_statements(catalog: TestCatalog) -> None:
    assert [row.tableName for row in catalog.sql("SHOW TABLES IN CAT.db LIKE 't*'")] == ["t"]
    assert catalog.sql("SHOW TABLES IN CAT.db LIKE 'x*'") == []
    ((information,),) = [
        (row.information,) for row in catalog.sql("SHOW TABLE EXTENDED IN CAT.db LIKE 't'")
    ]
    assert "Comment: a table" in information
    assert catalog.sql("SHOW COLUMNS IN CAT.db.t") == [("id",), ("v",)]
    described = catalog.sql("DESCRIBE EXTENDED CAT.db.t")
    assert described[0] == ("id", "int", "an id")
    assert "_rowaddr" in [row.col_name for row in described]
    for statement in "ANALYZE TABLE CAT.db.t COMPUTE STATISTICS", "MSCK REPAIR TABLE CAT.db.t":
        assert "[NOT_SUPPORTED_COMMAND_FOR_V2_TABLE]" in catalog.refusal(statement)


def test_methods_of_the_catalog_in_the_root(catalog: TestCatalog, settings: Any) -> None:
    catalog.sql("CREATE TABLE CAT.of_root AS SELECT 1 AS id")
    catalog.sql(f"USE {catalog.name}")
    # The session of the tests generates no code, and Spark then fails to make objects of rows.
    frame = catalog.spark._jsparkSession.catalog().listTables().toDF()
    assert [row.getString(0) for row in frame.collect()] == ["of_root"]
    catalog.sql("DROP TABLE CAT.of_root")


def test_tables_that_are_not_found(catalog: TestCatalog) -> None:
    for statement in "SELECT * FROM CAT.db.no", "DROP TABLE CAT.db.no", "SELECT * FROM CAT.no.t":
        assert "[TABLE_OR_VIEW_NOT_FOUND]" in catalog.refusal(statement)
    assert catalog.sql("DROP TABLE IF EXISTS CAT.db.no") == []
    assert "[UNRESOLVED_COLUMN" in catalog.refusal("SELECT nope FROM CAT.db.t")


@pytest.mark.parametrize("name", ["lance.nowhere", "lance.`/no/such/t.lance`"])
def test_names_that_begin_with_the_name_of_the_format(spark: Any, settings: Any, name: str) -> None:
    """Spark looks for files of the format `lance` only after the catalog `lance`."""
    lance = TestCatalog(spark, "lance", Path())
    lance_spark.enable(spark)
    parts = ".".join(f"`{part.strip('`')}`" for part in name.split(".", 1))
    for statement in (
        f"SELECT * FROM {name}",
        f"SELECT * FROM {name} VERSION AS OF 1",
        f"DELETE FROM {name} WHERE id = 1",
        f"UPDATE {name} SET id = 1",
        f"INSERT INTO {name} VALUES (1)",
        f"MERGE INTO {name} AS t USING (SELECT 1 AS id) AS s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT *",
        f"DESCRIBE {name}",
        "USE lance",
        f"SELECT * FROM {name}",
    ):
        if statement == "USE lance":
            lance.sql(statement)
        else:
            text = f"[TABLE_OR_VIEW_NOT_FOUND] The table or view {parts} cannot be found"
            assert text in lance.refusal(statement), statement
    assert not spark.catalog.tableExists(name)


def test_writes_to_names_that_begin_with_the_name_of_the_format(spark: Any) -> None:
    lance_spark.enable(spark)
    spark.sql("DROP TABLE IF EXISTS lance.nowhere")
    spark.range(2).write.mode("append").saveAsTable("lance.nowhere")
    spark.range(3).write.mode("overwrite").saveAsTable("lance.nowhere")
    assert spark.table("lance.nowhere").count() == 3
    spark.sql("DROP TABLE lance.nowhere")
    spark.sql("CREATE TABLE IF NOT EXISTS lance.nowhere (id INT)")
    spark.sql("DROP TABLE lance.nowhere")


def test_names_that_begin_with_the_name_of_the_format_and_are_known_late(spark: Any) -> None:
    lance_spark.enable(spark)
    spark.sql("CREATE OR REPLACE TABLE lance.late AS SELECT 1 AS id")
    spark.sql("DECLARE OR REPLACE VARIABLE name STRING DEFAULT 'lance.late'")
    late = "IDENTIFIER('lance.' || 'late')"
    for query in (
        f"SELECT * FROM {late}",
        "SELECT * FROM IDENTIFIER(name)",
        f"WITH w AS (SELECT * FROM {late}) SELECT max(id) FROM w WHERE id IN (TABLE {late})",
        "EXECUTE IMMEDIATE 'SELECT * FROM lance.late'",
        "SELECT * FROM lance.late TIMESTAMP AS OF now() + INTERVAL 9 DAYS",
        "SELECT * FROM lance.late TIMESTAMP AS OF (SELECT TIMESTAMP '2200-01-01')",
    ):
        assert spark.sql(query).collect() == [(1,)], query
    for statement in (
        f"INSERT INTO {late} VALUES (2)",
        f"UPDATE {late} SET id = 3 WHERE id = 2",
        f"MERGE INTO {late} t USING {late} s ON t.id = s.id + 2 WHEN MATCHED THEN DELETE",
        f"DELETE FROM {late} WHERE id > 1",
        f"CACHE TABLE {late}",
        f"UNCACHE TABLE {late}",
    ):
        spark.sql(statement)
    assert spark.table("lance.late").collect() == [(1,)]
    with pytest.raises(AnalysisException, match="out of range: times must be from"):
        spark.sql("SELECT * FROM lance.late TIMESTAMP AS OF 1795894971190922")
    spark.sql(f"DROP TABLE {late}")
    for query in (f"SELECT * FROM {late}", f"DELETE FROM {late}", f"INSERT INTO {late} VALUES (1)"):
        with pytest.raises(AnalysisException, match=r"TABLE_OR_VIEW_NOT_FOUND.*`lance`\.`late`"):
            spark.sql(query)


def test_names_of_tags_and_branches_as_in_iceberg(catalog: TestCatalog) -> None:
    catalog.run(
        [
            "CREATE TABLE CAT.named AS SELECT 1 AS id",
            "ALTER TABLE CAT.named CREATE TAG gold",
            "ALTER TABLE CAT.named CREATE BRANCH dev",
            "INSERT INTO CAT.named.branch_dev VALUES (2), (3)",
            "UPDATE CAT.named.branch_dev SET id = 4 WHERE id = 3",
            "MERGE INTO CAT.named.branch_dev t USING (SELECT 2 AS k) ON id = k "
            "WHEN MATCHED THEN DELETE",
            "INSERT INTO CAT.named VALUES (5)",
        ]
    )
    assert catalog.sql("SELECT id FROM CAT.named.tag_gold") == [(1,)]
    assert catalog.sql("SELECT id FROM CAT.named.branch_dev ORDER BY id") == [(1,), (4,)]
    assert catalog.sql("SELECT id FROM CAT.named ORDER BY id") == [(1,), (5,)]
    assert catalog.sql("CALL CAT.system.Rollback_To_Snapshot('named', 1)") == [(3,)]
    assert catalog.sql("SELECT id FROM table_changes('CAT.named', 2, 2)") == [(5,)]
    assert "cannot change" in catalog.refusal("DELETE FROM CAT.named.tag_gold")
    assert "and the statement names a version" in catalog.refusal(
        "SELECT * FROM CAT.named.tag_gold VERSION AS OF 1"
    )
    assert "DROP BRANCH dev" in catalog.refusal("DROP TABLE CAT.named.branch_dev")
    assert "TABLE_OR_VIEW_NOT_FOUND" in catalog.refusal("SELECT * FROM CAT.nothing.tag_gold")


def test_names_of_columns_in_another_case(catalog: TestCatalog) -> None:
    spark = catalog.spark
    catalog.run(
        [
            "CREATE TABLE CAT.cased (userId BIGINT NOT NULL, Word STRING, s STRUCT<Kid: INT>)",
            "INSERT INTO CAT.cased VALUES (1, 'a', struct(1))",
            "CREATE INDEX i ON CAT.cased (USERID)",
            "ALTER TABLE CAT.cased SET UNENFORCED PRIMARY KEY (USERID)",
        ]
    )
    table = LanceTable.forName(spark, f"{catalog.name}.cased")
    assert table.indexes().head()["fields"] == ["userId"]
    table.add_columns_from(spark.sql("SELECT 1L AS USERID, 5 AS z"), "userid")
    table.create_index("WORD", "BITMAP")
    table.alter_column("S.KID", data_type="long")
    table.reorder_columns("WORD")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        for change in (lambda: table.drop_columns("Z"), lambda: table.rename_column("WORD", "w")):
            with pytest.raises(InvalidInputError, match="no field"):
                change()
        assert "no field 'Z'" in catalog.refusal(
            "CALL CAT.system.drop_columns('cased', array('Z'))"
        )
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    catalog.sql("CALL CAT.system.drop_columns('cased', array('Z'))")
    table.rename_column("WORD", "w")
    schema = catalog.pylance("cased").schema
    assert (schema.names, schema.field("s").type) == (
        ["w", "userId", "s"],
        pa.struct([pa.field("Kid", pa.int64())]),
    )
    ours = lance_spark.open_dataset(str(catalog.root / "cased.lance"))
    ours = ours.create_scalar_index("USERID", "BTREE", replace=True)
    assert [list(index.field_names) for index in ours.describe_indices()][-1] == ["userId"]


def test_a_table_by_its_name(catalog: TestCatalog) -> None:
    spark = catalog.spark
    catalog.run(["CREATE NAMESPACE CAT.space", "CREATE TABLE CAT.space.`a b` AS SELECT 1 AS id"])
    table = LanceTable.forName(spark, f"{catalog.name}.space.`a b`")
    assert table.toDF().collect() == [(1,)]
    spark.range(1).createOrReplaceTempView("a_view")
    for name in (f"{catalog.name}.nothing", "a_view", "not a name"):
        with pytest.raises(TableNotFoundError, match="is not the name of a Lance table"):
            LanceTable.forName(spark, name)


def test_uncache_of_names_that_begin_with_the_name_of_the_format(spark: Any) -> None:
    spark.sql("CREATE OR REPLACE TABLE lance.cached AS SELECT 1 AS id")
    spark.sql("CACHE TABLE lance.cached")
    for name in ("lance.cached", "lance.cached", "lance.nothing", "lance.nothing.nothing"):
        spark.sql(f"UNCACHE TABLE IF EXISTS {name}")
    assert not spark.catalog.isCached("lance.cached")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("UNCACHE TABLE lance.nothing")
    spark.sql("DROP TABLE lance.cached")


def test_caches_are_refreshed(catalog: TestCatalog) -> None:
    spark = catalog.spark
    catalog.run(["CREATE TABLE CAT.c AS SELECT 1 AS id", "CACHE TABLE CAT.c"])
    for statement, expected in (
        ("INSERT INTO CAT.c VALUES (2)", [(1,), (2,)]),
        ("ALTER TABLE CAT.c ADD COLUMN w INT DEFAULT 9", [(1, 9), (2, 9)]),
        ("INSERT INTO CAT.c VALUES (3, 4)", [(1, 9), (2, 9), (3, 4)]),
        ("ALTER TABLE CAT.c DROP COLUMN w", [(1,), (2,), (3,)]),
        ("INSERT OVERWRITE CAT.c VALUES (3)", [(3,)]),
        ("TRUNCATE TABLE CAT.c", []),
        ("CREATE OR REPLACE TABLE CAT.c AS SELECT 7 AS id", [(7,)]),
    ):
        catalog.sql(statement)
        assert sorted(catalog.sql("SELECT * FROM CAT.c")) == expected, statement
    spark.sql("UNCACHE TABLE IF EXISTS named.c")


def test_columns_that_another_client_changes_before_a_query_runs(catalog: TestCatalog) -> None:
    """Spark does not load a table again that it has just loaded: the scan checks the columns."""
    catalog.sql("CREATE TABLE CAT.d AS SELECT 1 AS id, 2 AS v, 'a' AS s")
    frame = catalog.spark.table("named.d")
    table = catalog.pylance("d")
    table.add_columns({"w": "3"})
    assert frame.collect() == [(1, 2, "a")]
    table.drop_columns(["v"])
    for query in (frame.where("id = 1"), frame.where("v = 2"), frame.groupBy("v").count()):
        with pytest.raises(Exception, match=r"column v|columns? .*v|COLUMNS_MISMATCH|`v`"):
            query.collect()
    assert frame.select("id", "s").collect() == [(1, "a")]
    table.add_columns({"v": "'text'"})
    for query in (frame.where("id < 2"), frame.where("v = 3"), frame.select("v")):
        with pytest.raises(Exception, match=r"column v|columns? .*v|COLUMNS_MISMATCH|`v`"):
            query.collect()
    assert catalog.sql("SELECT v FROM CAT.d") == [("text",)]


def test_views(catalog: TestCatalog) -> None:
    """Spark resolves views with the settings of the session that made them."""
    catalog.sql("CREATE TABLE CAT.b AS SELECT 1 AS id")
    views = {
        "TEMPORARY VIEW v1": "v1",
        "GLOBAL TEMPORARY VIEW v2": "global_temp.v2",
        "VIEW v3": "v3",
    }
    for created in views:
        catalog.sql(f"CREATE {created} AS SELECT id + 1 AS x FROM CAT.b")
    catalog.sql("INSERT INTO CAT.b VALUES (5)")
    try:
        for view in views.values():
            assert sorted(catalog.spark.table(view).collect()) == [(2,), (6,)]
    finally:
        for view in views.values():
            catalog.sql(f"DROP VIEW {view}")
    assert "does not support views" in catalog.refusal("CREATE VIEW CAT.v AS SELECT 1")


def test_rows_are_not_deleted_through_views(catalog: TestCatalog) -> None:
    """Spark would ignore filters that a scan evaluates, such as a condition or a limit."""
    catalog.sql("CREATE TABLE CAT.viewed AS SELECT id FROM range(3)")
    for query in ("WHERE id = 1", "WHERE id % 2 = 1", "LIMIT 1"):
        catalog.sql(f"CREATE OR REPLACE TEMPORARY VIEW part AS SELECT * FROM CAT.viewed {query}")
        for condition in ("", "WHERE id = 2"):
            refusal = catalog.refusal(f"DELETE FROM part {condition}")
            assert "rows cannot be deleted from a query or view of the table" in refusal
    assert len(catalog.rows("viewed")) == 3
    catalog.sql("DELETE FROM CAT.viewed")
    assert catalog.rows("viewed") == []


def test_views_of_a_catalog_in_the_warehouse(spark: Any, tmp_path: Any) -> None:
    """The root is the warehouse folder, which is not a setting that a view keeps."""
    import lance_spark

    lance_spark.enable(spark, "housed")
    spark.sql("CREATE TABLE housed.b AS SELECT 1 AS id")
    try:
        spark.sql("CREATE TEMPORARY VIEW hv AS SELECT * FROM housed.b")
        assert spark.table("hv").collect() == [(1,)]
    finally:
        spark.sql("DROP VIEW IF EXISTS hv")
        spark.sql("DROP TABLE housed.b")


def test_versions_tags_and_branches(catalog: TestCatalog) -> None:
    from lance_spark import LanceTable

    catalog.run(["CREATE TABLE CAT.h AS SELECT 1 AS id", "INSERT INTO CAT.h VALUES (2)"])
    table = LanceTable.forPath(catalog.spark, str(catalog.root / "h.lance"))
    table.create_tag("first", 1)
    table.create_branch("side", 1)
    for version in "1", "'1'", "'first'", "'side'":
        assert catalog.sql(f"SELECT * FROM CAT.h VERSION AS OF {version}") == [(1,)]
    assert len(catalog.sql("SELECT * FROM CAT.h TIMESTAMP AS OF current_timestamp()")) == 2
    spark = catalog.spark
    for name in "versionAsOf", "VersionAsOf":
        assert spark.read.option(name, "1").table("named.h").count() == 1
    key = "spark.sql.timeTravelVersionKey"
    with restored(spark, key):
        spark.conf.set(key, "snapshotNumber")
        assert spark.read.option("snapshotNumber", "1").table("named.h").count() == 1
    assert "has no version 99" in catalog.refusal("SELECT * FROM CAT.h VERSION AS OF 99")
    assert "'no' is not a version" in catalog.refusal("SELECT * FROM CAT.h VERSION AS OF 'no'")
    early = "SELECT * FROM CAT.h TIMESTAMP AS OF '2001-01-01'"
    assert "has no version as of" in catalog.refusal(early)


def test_equal_scans_of_a_query_run_once(catalog: TestCatalog, pushed: None) -> None:
    catalog.run(["CREATE TABLE CAT.twice AS SELECT 1 AS id", "INSERT INTO CAT.twice VALUES (2)"])
    # A scan of one task has no exchange that another scan could use.
    options = "WITH ('target_rows_per_partition' = '1')"
    counts = f"SELECT id, count(*) AS n FROM CAT.twice {{}} {options} GROUP BY id"
    query = "SELECT a.n, b.n FROM ({}) a JOIN ({}) b ON a.id = b.id"
    spark, broadcast = catalog.spark, "spark.sql.autoBroadcastJoinThreshold"

    def plan_of(*versions: str) -> str:
        text = query.format(*(counts.format(version) for version in versions))
        frame = spark.sql(text.replace("CAT.", "named."))
        frame.collect()
        return str(frame._jdf.queryExecution().executedPlan().toString())

    with restored(spark, broadcast, LOCAL):
        spark.conf.set(broadcast, "-1")
        spark.conf.set(LOCAL, "false")
        assert "Reused" in plan_of("", "")
        assert "Reused" not in plan_of("", "VERSION AS OF 1")
        assert "Reused" not in plan_of("VERSION AS OF 2", "VERSION AS OF 1")


def test_hidden_columns(catalog: TestCatalog) -> None:
    rows = catalog.sql("SELECT id, _rowaddr, _rowid, _fragid FROM CAT.db.t")
    assert sorted(row.id for row in rows) == [1, 2]
    for row in rows:
        assert row._rowaddr == row._rowid
        assert row._rowaddr >> 32 == row._fragid


def test_names(catalog: TestCatalog) -> None:
    for name in "a table", "täble", "tick``s", "a.b", "SELECT":
        catalog.sql(f"CREATE TABLE CAT.`{name}` AS SELECT 1 AS `a col`, 2 AS `ünï`")
        assert catalog.sql(f"SELECT `a col`, `ünï` FROM CAT.`{name}`") == [(1, 2)]
        catalog.sql(f"ALTER TABLE CAT.`{name}` RENAME COLUMN `a col` TO `b'c`")
        assert catalog.sql(f"SELECT `b'c` FROM CAT.`{name}`") == [(1,)]
        rename = f"ALTER TABLE CAT.`{name}` RENAME COLUMN `b'c` TO `b``c`"
        assert "has a backtick in its name" in catalog.refusal(rename)
        catalog.sql(f"DROP TABLE CAT.`{name}`")


def test_paths(catalog: TestCatalog, tmp_path: Any) -> None:
    path = f"{tmp_path}/p.lance"
    catalog.run(
        [
            f"CREATE TABLE CAT.`{path}` AS SELECT 1 AS id",
            f"INSERT INTO CAT.`{path}` VALUES (2)",
            f"ALTER TABLE CAT.`{path}` ADD COLUMN x INT DEFAULT 3",
        ]
    )
    assert catalog.sql(f"SELECT * FROM CAT.`{path}` ORDER BY id") == [(1, 3), (2, 3)]
    assert "needs the name of a table" in catalog.refusal(f"DROP TABLE CAT.`{path}`")


def test_case(catalog: TestCatalog, settings: Any) -> None:
    catalog.sql("CREATE TABLE CAT.s (Id INT)")
    catalog.run(
        ["ALTER TABLE CAT.s ADD COLUMN B INT AFTER ID", "INSERT INTO CAT.s (iD) VALUES (1)"]
    )
    assert catalog.pylance("s").schema.names == ["Id", "B"]
    settings.set("spark.sql.caseSensitive", "true")
    catalog.run(
        ["ALTER TABLE CAT.s ADD COLUMN b INT AFTER B", "INSERT INTO CAT.s VALUES (2, 3, 4)"]
    )
    assert catalog.rows("s") == [{"Id": 1, "B": None, "b": None}, {"Id": 2, "B": 3, "b": 4}]
    catalog.sql("ALTER TABLE CAT.s DROP COLUMN B")
    assert catalog.pylance("s").schema.names == ["Id", "b"]
    assert "[UNRESOLVED_COLUMN" in catalog.refusal("ALTER TABLE CAT.s DROP COLUMN ID")


def test_options_of_catalogs(spark: Any, tmp_path: Any, settings: Any) -> None:
    everything = TestCatalog.of(spark, "opt_all", tmp_path)
    single = TestCatalog.of(spark, "opt_single", tmp_path, single_level_ns="true")
    parent = TestCatalog.of(spark, "opt_parent", tmp_path, parent="p/q", parent_delimiter="/")
    assert spark.sql("SHOW NAMESPACES IN opt_single").collect() == [("default",)]
    single.sql("CREATE TABLE CAT.default.t AS SELECT 1 AS id")
    assert everything.sql("SELECT * FROM CAT.t") == single.sql("SELECT * FROM CAT.t") == [(1,)]
    assert "[SCHEMA_NOT_FOUND]" in single.refusal("SHOW TABLES IN CAT.other")
    everything.run(["CREATE NAMESPACE CAT.p", "CREATE NAMESPACE CAT.p.q"])
    parent.sql("CREATE TABLE CAT.t AS SELECT 1 AS id, 2 AS v")
    assert everything.sql("SELECT * FROM CAT.p.q.t") == [(1, 2)]
    joined = "SELECT a.id, b.v FROM opt_single.t a JOIN opt_parent.t b ON a.id = b.id"
    assert spark.sql(joined).collect() == [(1, 2)]
    spark.sql("INSERT INTO opt_single.t SELECT v FROM opt_parent.t")
    assert everything.rows("t") == [{"id": 1}, {"id": 2}]
    spark.sql("USE opt_parent")
    assert spark.sql("SELECT v FROM t").collect() == [(2,)]
