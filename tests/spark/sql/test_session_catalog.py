"""Lance tables among the tables of the session's own catalog, `spark_catalog`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.errors import ParseException

import lance_spark
from lance_spark.errors import InvalidOptionError
from lance_spark.spark.catalog.procedures.call import PROCEDURES
from tests.support.spark.versions import SPARK


@dataclass(frozen=True)
class Database:
    """A database of the session's catalog, and its folder."""

    spark: Any
    folder: Path

    def sql(self, statement: str) -> list[Any]:
        """Run a statement, in which `DB` is the database, and return its rows."""
        return [tuple(row) for row in self.spark.sql(statement.replace("DB.", "own.")).collect()]

    def refusal(self, statement: str) -> str:
        """Return the first line of the error of a statement that fails while it is analysed."""
        from pyspark.errors import AnalysisException

        with pytest.raises(AnalysisException) as raised:
            self.sql(statement)
        return str(raised.value).partition("\n")[0]

    def entry(self, table: str) -> str:
        """Return what the metastore has of a table."""
        return self.sql(f"SHOW TABLE EXTENDED IN own LIKE '{table}'")[0][3]

    def pylance(self, table: str) -> Any:
        """Open a managed table by pylance."""
        dataset = lance.dataset(str(self.folder / table))
        dataset.validate()
        return dataset


@pytest.fixture(scope="module")
def db(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database in the catalog of the session, which `enable` extends."""
    folder = tmp_path_factory.mktemp("own")
    spark.sql(f"CREATE DATABASE own LOCATION '{folder}'")
    spark.sql("CREATE TABLE own.plain USING parquet AS SELECT 1 AS id")
    lance_spark.enable(spark)
    yield Database(spark, folder)
    spark.sql("DROP DATABASE own CASCADE")


def test_rows_of_a_managed_table(db: Database) -> None:
    db.sql("CREATE TABLE DB.t (id BIGINT COMMENT 'an id', w STRING DEFAULT 'd') USING lance")
    db.sql("INSERT INTO DB.t (id, w) VALUES (1, 'a'), (2, DEFAULT), (3, 'c')")
    db.sql("UPDATE DB.t SET w = 'u' WHERE id = 2")
    db.sql("DELETE FROM DB.t WHERE id IN (SELECT id FROM DB.plain)")
    db.sql(
        "MERGE INTO DB.t AS t USING (SELECT id, 'm' AS w FROM range(3, 5)) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    rows = [(2, "u"), (3, "m"), (4, "m")]
    assert db.sql("SELECT * FROM DB.t ORDER BY id") == rows
    table = db.pylance("t").to_table()
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == rows
    assert db.sql("SELECT count(*) FROM DB.t VERSION AS OF 2") == [(3,)]
    assert db.sql("SELECT spark_catalog.own.t.id FROM DB.t ORDER BY id LIMIT 1") == [(2,)]
    plan = db.spark.table("own.t").where("id > 2")._jdf.queryExecution().optimizedPlan().toString()
    assert "LocalRelation" in plan or "spark_catalog.own.t" in plan


def test_columns_names_and_files_of_a_managed_table(db: Database) -> None:
    db.sql("CREATE TABLE DB.a USING lance AS SELECT id FROM range(3)")
    db.sql("ALTER TABLE DB.a ADD COLUMNS (n INT DEFAULT 3)")
    db.sql("ALTER TABLE DB.a RENAME COLUMN n TO m")
    db.sql("ALTER TABLE DB.a RENAME TO DB.b")
    assert db.sql("SELECT * FROM DB.b WHERE id = 1") == [(1, 3)]
    assert db.pylance("b").schema.names == ["id", "m"]
    # The metastore follows, for programs that list columns.
    assert re.findall(r"\|-- (\w+): (\w+)", db.entry("b")) == [("id", "long"), ("m", "integer")]
    assert db.spark.catalog.getTable("own.b").tableType == "MANAGED"
    described = {row[0]: row[1] for row in db.sql("DESCRIBE DB.b")}
    assert described == {"id": "bigint", "m": "int"}
    assert "USING lance" in db.sql("SHOW CREATE TABLE DB.b")[0][0]
    db.sql("COMMENT ON TABLE DB.b IS 'first'")
    db.sql("ALTER TABLE DB.b ALTER COLUMN m FIRST")
    assert "Comment: first\n" in db.entry("b")
    db.sql(
        "CREATE OR REPLACE TABLE DB.b USING lance COMMENT 'second' AS "
        "SELECT 'x' AS new, CAST(id AS INT) AS id FROM DB.b WHERE id > 0"
    )
    entry = db.entry("b")
    assert "Comment: second\n" in entry
    assert re.findall(r"\|-- (\w+): (\w+)", entry) == [("new", "string"), ("id", "integer")]
    db.sql("CREATE OR REPLACE TABLE DB.b (id INT COMMENT 'an id', n INT DEFAULT 3) USING lance")
    entry = db.entry("b")
    assert "Comment: second\n" in entry
    assert re.findall(r"\|-- (\w+): (\w+)", entry) == [("id", "integer"), ("n", "integer")]
    db.sql("INSERT INTO DB.b (id) VALUES (1), (2)")
    assert db.sql("SELECT count(*) FROM DB.b WHERE n = 3") == [(2,)]
    assert db.sql("SELECT count(*) FROM DB.b VERSION AS OF 1") == [(3,)]
    db.sql("TRUNCATE TABLE DB.b")
    assert db.pylance("b").count_rows() == 0
    db.sql("DROP TABLE DB.b")
    assert not (db.folder / "b").exists()


def test_caches_of_a_managed_table(db: Database) -> None:
    db.sql("CREATE TABLE DB.c USING lance AS SELECT 1 AS id")
    db.sql("CACHE TABLE DB.c")
    for statement, rows in (
        ("INSERT INTO DB.c VALUES (2)", [(1,), (2,)]),
        ("ALTER TABLE DB.c ADD COLUMNS (n INT DEFAULT 3)", [(1, 3), (2, 3)]),
        ("INSERT INTO DB.c VALUES (5, 6)", [(1, 3), (2, 3), (5, 6)]),
        ("ALTER TABLE DB.c DROP COLUMN n", [(1,), (2,), (5,)]),
    ):
        db.sql(statement)
        assert sorted(db.sql("SELECT * FROM DB.c")) == rows, statement
        # Spark 4.0 does not read a table again after its columns changed: the table must leave the
        # cache.
        assert db.spark.catalog.isCached("own.c") or db.spark.version < "4.1"
    db.sql("DROP TABLE DB.c")


def test_a_statement_that_fails_leaves_no_table(db: Database) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="no rows"):
        db.sql("CREATE TABLE DB.failed USING lance AS SELECT raise_error('no rows') AS id")
    assert not db.spark.catalog.tableExists("own.failed")
    assert not (db.folder / "failed").exists()
    assert "partitions" in db.refusal(
        "CREATE TABLE DB.failed (id INT) USING lance PARTITIONED BY (id)"
    )
    assert not db.spark.catalog.tableExists("own.failed")


def test_a_statement_that_fails_keeps_the_table_of_another_client(db: Database) -> None:
    """The other client creates a table in the folder while the query runs."""
    folder = str(db.folder / "theirs")

    def create(number: int) -> int:
        import lance_spark

        lance_spark.write_dataset(pa.table({"id": [7]}), folder, mode="overwrite")
        raise ValueError("the query fails")

    db.spark.udf.register("create_theirs", create, "long")
    with pytest.raises(Exception, match="the query fails"):
        db.sql("CREATE TABLE DB.theirs USING lance AS SELECT create_theirs(id) AS id FROM range(1)")
    assert db.pylance("theirs").to_table()["id"].to_pylist() == [7]
    assert db.sql("SELECT * FROM DB.theirs") == [(7,)]
    db.sql("DROP TABLE DB.theirs")
    assert not (db.folder / "theirs").exists()


def test_tables_with_a_location(db: Database, tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": [1, 2]}), str(path))
    db.sql(f"CREATE TABLE DB.there USING lance LOCATION '{path}'")
    db.sql("INSERT INTO DB.there VALUES (3)")
    assert lance.dataset(str(path)).count_rows() == 3
    text = db.refusal(f"CREATE TABLE DB.again (id INT) USING lance LOCATION '{path}'")
    assert "[PATH_ALREADY_EXISTS]" in text
    text = db.refusal(f"CREATE TABLE DB.no USING lance LOCATION '{tmp_path}/no.lance'")
    assert "table own.no: no Lance table was found at" in text
    db.sql("DROP TABLE DB.there")
    assert lance.dataset(str(path)).count_rows() == 3
    # Spark passes on the options of such a table, also in a session without the extension.
    db.sql(f"CREATE TABLE DB.old USING lance OPTIONS (path '{path}', version '1')")
    assert db.sql("SELECT count(*) FROM DB.old") == [(2,)]


def test_managed_and_external_tables(db: Database, tmp_path: Path) -> None:
    """As of Parquet tables: what Spark tells of them, and statements that make them again."""
    columns = (
        "(id INT NOT NULL DEFAULT 5 COMMENT 'it\\'s \"an\" id', e ARRAY<FLOAT>, j STRING, "
        "c STRING COLLATE UTF8_LCASE, ch CHAR(4), n STRUCT<a: ARRAY<STRUCT<b: INT COMMENT 'deep'>>>)"
    )
    told = []
    for form in ("parquet", "lance"):
        db.spark.range(1).write.format(form).save(f"{tmp_path}/{form}")
        db.sql(f"CREATE TABLE DB.external USING {form} LOCATION '{tmp_path}/{form}'")
        db.sql(f"CREATE TABLE DB.managed {columns} USING {form}")
        names = ("own.external", "own.managed")
        texts = [db.sql(f"SHOW CREATE TABLE {name}")[0][0] for name in names]
        told.append(
            [
                [db.spark.catalog.getTable(name).tableType for name in names],
                ["LOCATION" in text for text in texts],
            ]
        )
        types = [
            [row[1] for row in db.sql(f"DESC EXTENDED {name}") if row[0] == "Type"]
            for name in names
        ]
        assert types == [["EXTERNAL"], ["MANAGED"]]
        db.sql("DROP TABLE DB.external")
        db.sql("DROP TABLE DB.managed")
    assert told[0] == told[1]
    properties = "('e.arrow.fixed-size-list.size' = '2', 'j.arrow.json' = 'true', 'own' = 'x')"
    db.sql(f"CREATE TABLE DB.m {columns} USING lance COMMENT 'all' TBLPROPERTIES {properties}")
    made, own = db.pylance("m").schema, db.pylance("m").metadata
    text = db.sql("SHOW CREATE TABLE DB.m")[0][0]
    db.sql("DROP TABLE DB.m")
    db.spark.sql(text)
    again = db.pylance("m")
    assert again.schema.equals(made, check_metadata=True)
    assert again.metadata == own
    db.sql("DROP TABLE DB.m")
    assert not (db.folder / "m").exists()


def test_a_table_without_its_files_can_be_dropped(db: Database, tmp_path: Path) -> None:
    db.sql(f"CREATE TABLE DB.lost USING lance LOCATION '{tmp_path}/t.lance' AS SELECT 1 AS id")
    shutil.rmtree(tmp_path / "t.lance")
    assert "table own.lost: no Lance table was found at" in db.refusal("SELECT * FROM DB.lost")
    db.sql("DROP TABLE DB.lost")
    assert not db.spark.catalog.tableExists("own.lost")


def test_save_as_table(db: Database) -> None:
    frame = db.spark.range(3)
    frame.write.format("lance").saveAsTable("own.saved")
    frame.write.format("lance").mode("append").saveAsTable("own.saved")
    frame.write.insertInto("own.saved")
    assert db.pylance("saved").count_rows() == 9
    frame.write.format("lance").mode("overwrite").saveAsTable("own.saved")
    assert db.pylance("saved").count_rows() == 3
    assert "[TABLE_OR_VIEW_ALREADY_EXISTS]" in db.refusal(
        "CREATE TABLE DB.saved USING lance AS SELECT 1 AS id"
    )


def test_tables_of_other_formats(db: Database) -> None:
    db.sql("INSERT INTO DB.plain VALUES (2)")
    db.sql("CREATE TABLE DB.parts (id INT, g INT) USING parquet PARTITIONED BY (g)")
    db.sql("INSERT INTO DB.parts VALUES (1, 2)")
    db.sql("ALTER TABLE DB.parts ADD COLUMNS (z STRING)")
    assert db.sql("SELECT * FROM DB.parts") == [(1, None, 2)]
    db.spark.range(4).write.mode("overwrite").saveAsTable("own.plain")
    assert db.sql("SELECT count(*) FROM DB.plain") == [(4,)]
    db.sql("CREATE VIEW DB.v AS SELECT id FROM DB.plain WHERE id > 1")
    assert db.sql("SELECT count(*) FROM DB.v") == [(2,)]
    text = db.refusal("CREATE OR REPLACE TABLE DB.plain USING lance AS SELECT 1 AS id")
    assert "own.plain is a table of another format" in text


def test_procedures_and_statements_of_other_connectors(db: Database) -> None:
    db.sql("CREATE TABLE DB.o USING lance AS SELECT id, id * 2 AS v FROM range(10)")
    assert db.sql("CALL spark_catalog.system.delete('own.o', condition => 'id > 5')")[0][3] == 4
    for statement, rows in (
        ("ALTER TABLE DB.o CREATE TAG before AS OF VERSION 1", [("before",)]),
        ("ALTER TABLE spark_catalog.DB.o CREATE BRANCH IF NOT EXISTS b", [("b",)]),
        ("INSERT INTO spark_catalog.DB.o.branch_b VALUES (7L, 0L)", []),
        ("SELECT count(*) FROM DB.o.branch_b", [(7,)]),
        ("SELECT count(*) FROM spark_catalog.DB.o.Tag_before", [(10,)]),
        ("RESTORE TABLE DB.o TO VERSION AS OF 'before'", [(3,)]),
        ("SELECT count(*) FROM DB.o", [(10,)]),
        ("REPLACE DB.o WHERE id = 3 AS SELECT 3L AS id, 99L AS v", []),
        ("INSERT INTO DB.o REPLACE WHERE id = 4 SELECT 4L AS id, 98L AS v", []),
        ("SELECT id, v FROM DB.o WHERE v > 90 ORDER BY id", [(3, 99), (4, 98)]),
        ("VACUUM DB.o RETAIN 168 HOURS DRY RUN", [(0, 0)]),
        ("SELECT count(*) FROM lance_changes('DB.o', 2, 2)", [(4,)]),
    ):
        assert db.sql(statement) == rows, statement
    assert "cannot change" in db.refusal("DELETE FROM DB.o.tag_before")
    db.sql("CREATE TEMPORARY VIEW more AS SELECT _rowaddr, v + 1 AS w FROM DB.o")
    db.sql("ALTER TABLE DB.o ADD COLUMNS w FROM more")
    db.sql("DROP VIEW more")
    db.sql("OPTIMIZE DB.o")
    table = db.pylance("o")
    assert len(table.get_fragments()) == 1
    assert table.tags.list()["before"]["version"] == 1
    assert sorted(table.to_table()["w"].to_pylist()) == [1, 3, 5, 11, 13, 15, 17, 19, 99, 100]
    assert [row[0] for row in db.sql("SHOW TAGS IN DB.o")] == ["before"]
    assert [row[0] for row in db.sql("SHOW BRANCHES IN DB.o")] == ["b"]
    assert db.sql("DESCRIBE HISTORY DB.o LIMIT 1")[0][0] == table.version
    assert db.sql("DESCRIBE DETAIL DB.o")[0][1] == str(db.folder / "o")
    if db.spark.version >= "4.2":
        assert db.sql("SELECT count(*) FROM DB.o CHANGES FROM VERSION 1 TO VERSION 1") == [(10,)]


def test_names_of_procedures_and_statements(db: Database) -> None:
    """Names in the current database, in others, and of other tables."""
    db.sql("CREATE TABLE DB.n USING lance AS SELECT 1 AS c")
    db.sql(f"CREATE TABLE DB.odd (c INT) USING lance LOCATION '{db.folder}/a`b'")
    db.sql("USE own")
    try:
        for statement in (
            "CALL system.history('n')",
            "CALL spark_catalog.system.history(table => '`own`.`n`')",
            f"CALL spark_catalog.system.history('{db.folder}/n')",
            "DESCRIBE HISTORY n",
            "CALL system.history('odd')",
            f"DESCRIBE HISTORY spark_catalog.`{db.folder}/n`",
        ):
            assert [row[0] for row in db.sql(statement)] == [1], statement
        db.sql("CACHE TABLE n")
        db.sql("CALL system.delete('n')")
        assert db.sql("SELECT count(*) FROM n") == [(0,)]
        # The name of this table is a keyword of a statement.
        db.sql("CREATE TABLE history USING lance AS SELECT 1 AS c")
        assert ("data_type", "int") in db.sql("DESCRIBE HISTORY c")
        assert "[TABLE_OR_VIEW_NOT_FOUND]" in db.refusal("OPTIMIZE nothing")
        assert "[TABLE_OR_VIEW_NOT_FOUND]" in db.refusal("CALL system.history('nothing')")
        # The name of the warehouse folder is not a table either.
        lance.write_dataset(pa.table({"id": [1]}), str(db.folder / "a-b.lance"))
        assert "`a-b`" in db.refusal("CALL system.history('a-b')")
        text = db.refusal("CALL system.optimize('plain')")
        assert text.startswith("table own.plain is not a Lance table, or has OPTIONS: name")
        assert "is not the name of a table" in db.refusal("CALL system.history('a`b c')")
        assert "use CREATE TABLE" in db.refusal("CALL system.register_table('x', '/x')")
        if SPARK >= (4, 1):
            names = {row[-1] for row in db.sql("SHOW PROCEDURES IN system")}
            assert set(PROCEDURES) - names == {"register_table", "deregister_table"}
        assert "register_table" not in db.refusal("CALL system.nothing()")
    finally:
        db.sql("USE default")
    with pytest.raises(ParseException, match="near 'FOO': expected the end of the statement"):
        db.sql("OPTIMIZE DB.n FOO")
    # Spark gets statements about tables of other formats.
    with pytest.raises(ParseException, match="near 'OPTIMIZE'"):
        db.sql("OPTIMIZE DB.plain")
    with pytest.raises(Exception, match=r"own\.plain is not a Lance table"):
        db.sql("SELECT * FROM lance_changes('DB.plain', 1)")


def test_tables_like_others(db: Database) -> None:
    db.sql(
        "CREATE TABLE DB.l USING lance TBLPROPERTIES ('e.arrow.fixed-size-list.size' = '2') "
        "AS SELECT array(1f, 2f) AS e"
    )
    refused = "Spark would create a name without a Lance table; use CREATE TABLE"
    with pytest.raises(ParseException, match=refused):
        db.sql("CREATE TABLE DB.like1 LIKE DB.plain USING lance")
    if db.spark.version < "4.2":
        with pytest.raises(ParseException, match=refused):
            db.sql("CREATE TABLE DB.like2 LIKE DB.l")
    else:
        db.sql("CREATE TABLE DB.like2 LIKE DB.l")
        assert db.pylance("like2").schema == db.pylance("l").schema
        assert db.sql("SELECT * FROM DB.like2") == []
        db.sql("DROP TABLE DB.like2")
        db.sql("CREATE TABLE DB.like3 LIKE DB.l USING parquet")
        assert db.spark.table("own.like3").columns == ["e"]
        assert not (db.folder / "like3" / "_versions").exists()
    db.sql("CREATE TABLE DB.like4 LIKE DB.plain")
    assert db.sql("SELECT * FROM DB.like4") == []
    for name in ("like1", "like2"):
        assert not db.spark.catalog.tableExists(f"own.{name}")


def test_a_catalog_is_extended_unless_another_class_extends_it(spark: Any) -> None:
    setting = "spark.sql.catalog.spark_catalog"
    session = spark.newSession()
    session.conf.set(setting, "io.delta.DeltaCatalog")
    with pytest.raises(InvalidOptionError, match="only one class can extend"):
        lance_spark.enable(session, session_catalog=True)
    lance_spark.enable(session)
    assert session.conf.get(setting) == "io.delta.DeltaCatalog"
    session.conf.set(setting, "builtin")
    lance_spark.enable(session, session_catalog=False)
    # The catalog of the session is in use already, in the class that Spark has for it.
    session.sql("CREATE TABLE IF NOT EXISTS plain_table USING parquet AS SELECT 1 AS id")
    for create in (
        lambda: session.sql("CREATE TABLE mine (id INT) USING lance"),
        lambda: session.sql("CREATE OR REPLACE TABLE mine USING lance AS SELECT 1 AS id"),
        lambda: session.range(1).write.format("lance").saveAsTable("mine"),
        lambda: session.catalog.createTable("mine", source="lance", schema=session.range(1).schema),
    ):
        with pytest.raises(Exception, match=r"default\.mine: .* not extended: call lance_spark"):
            create()
        assert not session.catalog.tableExists("mine")
    lance_spark.enable(session)
    session.sql("CREATE TABLE mine (id INT) USING lance")
    session.sql("INSERT INTO mine VALUES (1), (2)")
    session.sql("DELETE FROM mine WHERE id = 1")
    assert session.table("mine").collect() == [(2,)]
    for table in ("mine", "plain_table"):
        session.sql(f"DROP TABLE {table}")
