"""Constraints: Spark checks the rows of each way to write, and the commit refuses all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lance_spark.dataset import open_dataset
from lance_spark.errors import LanceError
from lance_spark.mutations.constraints import add_check
from lance_spark.spark.table import LanceTable
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.constraints import Constraint
from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.versions import SPARK

NAME = "constrained"
VIOLATION = "CHECK_CONSTRAINT_VIOLATION"
KNOWN = pytest.mark.skipif(SPARK < (4, 1), reason="Spark has constraints since 4.1")
POSITIVE = Constraint("positive", "id > 0", (("id",),))


def refused(call: Any, match: str) -> None:
    # Spark's errors of a statement inside of another one come from Java as they are.
    with pytest.raises((PySparkException, Py4JJavaError, LanceError), match=match):
        call()


def _uri(catalog: TestCatalog, table: str) -> str:
    return LanceTable.forName(catalog.spark, f"{catalog.name}.{table}").path


@pytest.mark.skipif(SPARK >= (4, 1), reason="later releases check the rows")
def test_spark_4_0_writes_no_rows(catalog: TestCatalog, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": pa.array([1], pa.int64()), "v": [1]}), path)
    add_check(open_dataset(path)._table, POSITIVE, CommitOptions())
    new = catalog.spark.createDataFrame([(2, 2)], "id long, v long")
    table = f"CAT.`{path}`"
    for write in (
        lambda: new.write.format("lance").mode("append").save(path),
        lambda: new.write.format("lance").mode("overwrite").save(path),
        lambda: catalog.sql(f"INSERT INTO {table} VALUES (2, 2)"),
        lambda: catalog.sql(f"UPDATE {table} SET id = 2"),
        lambda: catalog.sql(
            f"MERGE INTO {table} t USING (SELECT 5L id, 5L v) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT *"
        ),
    ):
        refused(write, "constraint positive")
    catalog.sql(f"UPDATE {table} SET v = 2")
    catalog.sql(f"DELETE FROM {table} WHERE id = 7")
    assert catalog.sql(f"SELECT * FROM {table}") == [(1, 2)]


@KNOWN
def test_statements(catalog: TestCatalog) -> None:
    catalog.sql(
        "CREATE TABLE CAT.t (id INT, name STRING, s STRUCT<n: INT, m: INT>, "
        "CONSTRAINT positive CHECK (id > 0), CONSTRAINT short CHECK (length(name) < 4) RELY)"
    )
    catalog.sql("INSERT INTO CAT.t VALUES (1, 'a', named_struct('n', 1, 'm', 1)), (2, 'b', null)")
    catalog.sql("INSERT INTO CAT.t VALUES (null, null, null)")
    version = open_dataset(_uri(catalog, "t")).version
    source = "(SELECT {} id, '{}' name) s ON t.id = s.id"
    for statement in (
        "INSERT INTO CAT.t VALUES (-1, 'a', null)",
        "INSERT INTO CAT.t SELECT 5, 'long' || id, null FROM CAT.t",
        "INSERT OVERWRITE CAT.t VALUES (0, 'a', null)",
        "INSERT INTO CAT.t REPLACE WHERE id = 1 VALUES (0, 'a', null)",
        "UPDATE CAT.t SET id = id - 2 WHERE id = 2",
        "UPDATE CAT.t SET id = -1",
        f"MERGE INTO CAT.t t USING {source.format(1, 'long')} WHEN MATCHED THEN UPDATE SET "
        "t.name = s.name",
        f"MERGE INTO CAT.t t USING {source.format(-1, 'a')} WHEN NOT MATCHED THEN INSERT (id, name) "
        "VALUES (s.id, s.name)",
        f"MERGE INTO CAT.t t USING {source.format(1, 'a')} WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET t.id = -5",
    ):
        refused(lambda statement=statement: catalog.sql(statement), VIOLATION)
    assert open_dataset(_uri(catalog, "t")).version == version
    catalog.run(
        [
            "UPDATE CAT.t SET id = id + 10 WHERE id = 2",
            f"MERGE INTO CAT.t t USING {source.format(12, 'c')} WHEN MATCHED THEN UPDATE SET "
            "t.name = s.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)",
            f"MERGE INTO CAT.t t USING {source.format(3, 'd')} WHEN NOT MATCHED THEN INSERT "
            "(id, name) VALUES (s.id, s.name)",
            "DELETE FROM CAT.t WHERE id = 1",
            "UPDATE CAT.t SET s = null",
            "UPDATE CAT.t SET id = id + 1",
            "UPDATE CAT.t SET id = id - 1",
        ]
    )
    rows = catalog.sql("SELECT id, name FROM CAT.t ORDER BY id")
    assert rows == [(None, None), (3, "d"), (12, "c")]
    (text,) = catalog.sql("SHOW CREATE TABLE CAT.t")[0]
    assert "CONSTRAINT positive CHECK (id > 0)" in text
    described = [row[1] or "" for row in catalog.sql("DESCRIBE EXTENDED CAT.t")]
    assert any("length(name) < 4" in row for row in described)


@KNOWN
def test_alter_table(catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.a (id INT, s STRUCT<n: INT, m: INT>)")
    catalog.sql("INSERT INTO CAT.a VALUES (1, named_struct('n', 1, 'm', 1))")
    add = "ALTER TABLE CAT.a ADD CONSTRAINT"
    catalog.sql(f"{add} small CHECK (s.n < 10 AND id < 100)")
    config = lance.dataset(_uri(catalog, "a")).config()
    assert set(config) == {"spark.constraints.small"}
    for statement, problem in (
        (f"{add} tiny CHECK (id < 1)", "NEW_CHECK_CONSTRAINT_VIOLATION"),
        (f"{add} SMALL CHECK (id < 200)", "exists already"),
        (f"{add} r CHECK (id < rand())", "NON_DETERMINISTIC"),
        (f"{add} q CHECK (id < (SELECT 1))", "."),
        (f"{add} u UNIQUE (id)", "UNIQUE"),
        (f"{add} f FOREIGN KEY (id) REFERENCES CAT.a (id)", "FOREIGN KEY"),
        ("INSERT INTO CAT.a VALUES (100, null)", VIOLATION),
        ("ALTER TABLE CAT.a DROP COLUMN id", "constraint small"),
        ("ALTER TABLE CAT.a DROP COLUMN s.n", "constraint small"),
        ("ALTER TABLE CAT.a RENAME COLUMN s TO x", "constraint small"),
        ("ALTER TABLE CAT.a SET TBLPROPERTIES ('spark.constraints.x' = '1')", "ADD CONSTRAINT"),
        ("ALTER TABLE CAT.a UNSET TBLPROPERTIES ('spark.constraints.small')", "DROP CONSTRAINT"),
        ("ALTER TABLE CAT.a DROP CONSTRAINT nothing", "the constraints are: small"),
    ):
        refused(lambda statement=statement: catalog.sql(statement), problem)
    catalog.run(
        [
            "ALTER TABLE CAT.a DROP COLUMN s.m",
            "ALTER TABLE CAT.a ALTER COLUMN id TYPE BIGINT",
            "ALTER TABLE CAT.a DROP CONSTRAINT IF EXISTS nothing",
            "ALTER TABLE CAT.a DROP CONSTRAINT Small",
            "INSERT INTO CAT.a VALUES (100, null)",
        ]
    )


@KNOWN
def test_another_client_changes_rows_meanwhile(catalog: TestCatalog) -> None:
    """A column that Spark reads again for each statement is no proof for rows that came later."""
    catalog.sql("CREATE TABLE CAT.m (id INT)")
    catalog.sql("INSERT INTO CAT.m VALUES (1)")
    uri = _uri(catalog, "m")
    late = open_dataset(uri)._table
    catalog.sql("INSERT INTO CAT.m VALUES (-1)")
    refused(lambda: add_check(late, POSITIVE, CommitOptions()), "run the statement again")
    refused(
        lambda: catalog.sql("ALTER TABLE CAT.m ADD CONSTRAINT p CHECK (id > 0)"),
        "NEW_CHECK_CONSTRAINT_VIOLATION",
    )


@KNOWN
def test_primary_keys(catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.k (a INT, b STRING, c INT, CONSTRAINT mine PRIMARY KEY (b, a))")
    keys = {
        field.name: field.metadata[b"lance-schema:unenforced-primary-key:position"]
        for field in lance.dataset(_uri(catalog, "k")).schema
        if field.metadata
    }
    assert keys == {"a": b"2", "b": b"1"}
    assert "CONSTRAINT mine PRIMARY KEY (b, a)" in catalog.sql("SHOW CREATE TABLE CAT.k")[0][0]
    drop = "ALTER TABLE CAT.k DROP CONSTRAINT mine"
    refused(lambda: catalog.sql(drop), "cannot be dropped or changed once it is set")
    catalog.sql("INSERT INTO CAT.k VALUES (1, 'a', 1), (1, 'a', 1)")
    catalog.sql("CREATE TABLE CAT.l (a INT NOT NULL, b INT)")
    add = "ALTER TABLE CAT.l ADD PRIMARY KEY"
    refused(lambda: catalog.sql(f"{add} (b)"), "nullable")
    catalog.sql(f"{add} (a)")
    assert "PRIMARY KEY (a)" in catalog.sql("SHOW CREATE TABLE CAT.l")[0][0]
    refused(lambda: catalog.sql(f"{add} (a)"), "exists already")


@KNOWN
def test_copies_and_replacements(catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.o (id INT, CONSTRAINT positive CHECK (id > 0))")
    bad = "INSERT INTO CAT.{} VALUES (-1)"
    if SPARK >= (4, 2):
        catalog.sql("CREATE TABLE CAT.like_o LIKE CAT.o")
        refused(lambda: catalog.sql(bad.format("like_o")), VIOLATION)
    catalog.sql("CREATE TABLE CAT.as_o AS SELECT * FROM CAT.o")
    catalog.sql(bad.format("as_o"))
    catalog.sql("REPLACE TABLE CAT.o (id INT, CONSTRAINT other CHECK (id > -5))")
    catalog.sql(bad.format("o"))
    refused(lambda: catalog.sql("INSERT INTO CAT.o VALUES (-5)"), VIOLATION)
    catalog.sql("CREATE OR REPLACE TABLE CAT.o AS SELECT -9 AS id")
    assert "CONSTRAINT" not in catalog.sql("SHOW CREATE TABLE CAT.o")[0][0]


@KNOWN
def test_writes_by_path_and_streams(catalog: TestCatalog, tmp_path: Path) -> None:
    spark = catalog.spark
    source, target = str(tmp_path / "source.lance"), str(tmp_path / "target.lance")
    for path in (source, target):
        spark.range(1, 3).write.format("lance").save(path)
    catalog.sql("CREATE TABLE CAT.st (id BIGINT, CONSTRAINT positive CHECK (id > 0))")
    catalog.sql(f"ALTER TABLE CAT.`{target}` ADD CONSTRAINT positive CHECK (id > 0)")

    def save(first: int, mode: str, **options: str) -> None:
        frame = spark.range(first, 3)
        frame.write.format("lance").mode(mode).options(**options).save(target)

    def stream(*, by_name: bool) -> None:
        rows = spark.readStream.format("lance").load(source).writeStream
        rows = rows.option("checkpointLocation", str(tmp_path / str(by_name)))
        rows = rows.trigger(availableNow=True)
        name = f"{catalog.name}.st"
        query = rows.toTable(name) if by_name else rows.format("lance").start(target)
        query.awaitTermination()

    where = {"replaceWhere": "id < 100"}
    for mode, options in (("append", {}), ("overwrite", {}), ("overwrite", where)):
        save(1, mode, **options)
        refused(lambda mode=mode, options=options: save(0, mode, **options), VIOLATION)
    refused(lambda: catalog.sql(f"INSERT INTO CAT.`{target}` VALUES (-1)"), VIOLATION)
    refused(
        lambda: spark.range(3).toDF("x").write.format("lance").mode("overwrite").save(target), "id"
    )
    for by_name in (True, False):
        stream(by_name=by_name)
    spark.range(-1, 0).write.format("lance").mode("append").save(source)
    for by_name in (True, False):
        refused(lambda by_name=by_name: stream(by_name=by_name), VIOLATION)
    assert spark.read.format("lance").load(target).count() == 4
    assert catalog.sql("SELECT count(*) FROM CAT.st") == [(2,)]


def test_methods_that_run_jobs_of_their_own(spark: Any, tmp_path: Path) -> None:
    rows = [
        {"id": 1, "v": 1, "s": {"n": 1, "m": 1}, "t": "a"},
        {"id": 2, "v": 2, "s": {"n": 2, "m": 2}, "t": None},
    ]
    schema = "id INT, v INT, s STRUCT<n: INT, m: INT>, t STRING"
    path = str(tmp_path / "t.lance")
    new = spark.createDataFrame(rows, schema).coalesce(1)
    new.write.format("lance").mode("append").save(path)
    for name, check, columns in (
        ("positive", "id > 0", (("id",),)),
        ("small", "v + s.n < 10", (("v",), ("s", "n"))),
        ("given", "t IS NOT NULL OR id = 2", ()),
    ):
        add_check(open_dataset(path)._table, Constraint(name, check, columns), CommitOptions())
    table = LanceTable.forPath(spark, path)
    version = open_dataset(path).version

    def frame(*values: Any) -> Any:
        return spark.createDataFrame([values], schema)

    def merge(*values: Any) -> Any:
        return table.alias("t").merge(frame(*values).alias("s"), "t.id = s.id")

    for call, name in (
        (lambda: table.update(set={"id": "id - 1"}), "positive id > 0 .*id : 0"),
        (lambda: table.update(set={"v": "v + 8"}, mode="columns"), "small .* v : 9 s : {1, 1}"),
        (lambda: table.update("id = 1", {"s.n": "9"}), "small"),
        (lambda: table.update("id = 1", {"t": "null"}), "given"),
        (lambda: table.replace_where(frame(1, 1, None, None), "id = 1"), "given"),
        (lambda: table.replace_where(frame(1, 5, (5, 5), "b"), "id = 1"), "small"),
        (lambda: merge(-3, 3, None, "b").whenNotMatchedInsertAll().execute(), "positive"),
        (lambda: merge(1, 9, None, "b").whenMatchedUpdate(set={"v": "s.v"}).execute(), "small"),
        (
            lambda: merge(3, 9, None, "b").whenNotMatchedInsert(values={"id": "s.id"}).execute(),
            "given",
        ),
        (
            lambda: table.update_columns_from(
                spark.createDataFrame([(1, 9)], "id INT, V INT"), "id"
            ),
            "small .* v : 9 s : {1, 1}",
        ),
        (
            lambda: table.update_columns_from(
                spark.createDataFrame([(1, None)], "id INT, t STRING"), "id"
            ),
            "given",
        ),
        (
            lambda: (
                merge(3, 9, None, "b")
                .whenMatchedUpdateAll()
                .whenNotMatchedBySourceUpdate("t.id = 1", set={"v": "t.v + 8"})
                .execute()
            ),
            "small",
        ),
    ):
        refused(call, f"CHECK_CONSTRAINT_VIOLATION.* {name}")
    assert open_dataset(path).version == version
    table.update(set={"v": "v + 1"})
    table.update_columns({"v": "v - 1"})
    table.update_columns_from(spark.createDataFrame([(1, 2, "g")], "id INT, v INT, t STRING"), "id")
    assert table.toDF().where("id = 1").first().asDict(True) == {**rows[0], "v": 2, "t": "g"}
    table.replace_where(frame(2, 3, (6, 7), "c"), "id = 2")
    merge(1, 4, None, "d").whenMatchedUpdate(set={"v": "s.v"}).whenNotMatchedInsertAll().execute()
    merge(5, 5, None, "e").whenMatchedDelete().whenNotMatchedInsertAll().execute()
    merge(6, 6, (1, 1), "f").whenNotMatchedInsertAll().whenNotMatchedBySourceDelete(
        "t.id = 2"
    ).execute()
    assert lance.dataset(path).to_table().sort_by("id").to_pylist() == [
        {"id": 1, "v": 4, "s": {"n": 1, "m": 1}, "t": "g"},
        {"id": 5, "v": 5, "s": None, "t": "e"},
        {"id": 6, "v": 6, "s": {"n": 1, "m": 1}, "t": "f"},
    ]
