"""INSERT: the same statements on a Lance table and on a Parquet table of Spark's own catalog."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.versions import SPARK

NAME = "inserted"

COLUMNS = "a INT DEFAULT 5, b STRING DEFAULT 'x' || 'y', c INT COMMENT 'a c', d DATE"
#: Statements that append rows; `T` is the table.
STATEMENTS = (
    "INSERT INTO T VALUES (1, 'p', 2, DATE '2020-01-01')",
    "INSERT INTO T VALUES (DEFAULT, DEFAULT, DEFAULT, DEFAULT)",
    "INSERT INTO T (c) VALUES (7)",
    "INSERT INTO T (C, B) SELECT 8, 'q'",
    "INSERT INTO T (c, b) VALUES (9, DEFAULT)",
    "INSERT INTO T BY NAME SELECT 'r' AS b, 10 AS c",
    "WITH w AS (SELECT 11 AS c) INSERT INTO T BY NAME SELECT * FROM w",
    "INSERT INTO T SELECT c, b, a, d FROM T WHERE c = 7",
    "INSERT INTO T VALUES (1L, 'long', 2S, DATE '2020-01-01')",
    # Refused
    "INSERT INTO T VALUES (1, 'p')",
    "INSERT INTO T (b, c) SELECT 'q'",
    "INSERT INTO T (b, b) SELECT 'q', 'r'",
    "INSERT INTO T (nope) VALUES (1)",
    "INSERT INTO T VALUES ('text', 'p', 2, DATE '2020-01-01')",
)


def outcomes(spark: Any, table: str) -> tuple[dict[str, str | None], list[Any]]:
    """Return the class of each statement's error, and the rows of the table afterwards."""
    from pyspark.errors import AnalysisException

    errors: dict[str, str | None] = {}
    for statement in STATEMENTS:
        try:
            spark.sql(re.sub(r"\bT\b", table, statement))
            errors[statement] = None
        except AnalysisException as error:
            errors[statement] = error.getCondition()
    return errors, sorted(spark.table(table).collect(), key=str)


def test_inserts_as_into_parquet(catalog: TestCatalog) -> None:
    spark = catalog.spark
    catalog.sql(f"CREATE TABLE CAT.t ({COLUMNS})")
    spark.sql("DROP TABLE IF EXISTS inserted_parquet")
    spark.sql(f"CREATE TABLE inserted_parquet ({COLUMNS}) USING parquet")
    try:
        errors, rows = outcomes(spark, "inserted.t")
        assert (errors, rows) == outcomes(spark, "inserted_parquet")
    finally:
        spark.sql("DROP TABLE inserted_parquet")
    assert [error for error in errors.values() if error] == list(errors.values())[9:]
    assert sorted(catalog.rows("t"), key=str) == sorted((row.asDict() for row in rows), key=str)


def test_defaults_and_comments_stay_with_the_columns(catalog: TestCatalog) -> None:
    import lance_spark

    path = str(catalog.root / "k.lance")
    stored = {
        "a": {b"spark.sql.default": b"5"},
        "b": {b"spark.sql.default": b"'x' || 'y'"},
        "c": {b"comment": b"a c"},
        "d": None,
    }
    catalog.sql(f"CREATE TABLE CAT.k ({COLUMNS})")
    for statement in (
        "INSERT INTO CAT.k (c) VALUES (1), (2)",
        "INSERT INTO CAT.k (c) VALUES (3)",
        "INSERT OVERWRITE CAT.k (c) SELECT c + 1 FROM CAT.k",
        "INSERT INTO CAT.k REPLACE WHERE c = 2 SELECT 1, 'w', 2, NULL",
        "TRUNCATE TABLE CAT.k",
        "INSERT INTO CAT.k (c) VALUES (1)",
        "INSERT INTO CAT.k (c) VALUES (2)",
    ):
        catalog.sql(statement)
        schema = catalog.pylance("k").schema
        assert {field.name: field.metadata for field in schema} == stored, statement
    lance_spark.LanceTable.forPath(catalog.spark, path).optimize().executeCompaction()
    catalog.sql("ALTER TABLE CAT.k RENAME COLUMN a TO first")
    schema = catalog.pylance("k").schema
    assert schema.field("first").metadata == stored["a"]
    catalog.sql("INSERT INTO CAT.k (c) VALUES (3)")
    assert [(row["first"], row["b"], row["c"]) for row in catalog.rows("k")] == [
        (5, "xy", 1),
        (5, "xy", 2),
        (5, "xy", 3),
    ]


def test_copies_have_the_defaults(catalog: TestCatalog, tmp_path: Any) -> None:
    import lance

    catalog.sql("CREATE TABLE CAT.e (a INT DEFAULT 5)")
    frame = catalog.spark.table("inserted.e")
    frame.write.format("lance").mode("append").save(str(tmp_path / "e.lance"))
    default = {b"spark.sql.default": b"5"}
    assert lance.dataset(str(tmp_path / "e.lance")).schema.field("a").metadata == default
    catalog.sql("CREATE TABLE CAT.e2 AS SELECT * FROM CAT.e")
    frame.writeTo("inserted.e3").create()
    for name in "e2", "e3":
        assert catalog.pylance(name).schema.field("a").metadata == default


def test_overwrites(catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.o AS SELECT id, id % 3 AS k FROM range(6)")
    catalog.sql("INSERT INTO CAT.o REPLACE WHERE k = 0 SELECT 10, 0")
    assert sorted(row["id"] for row in catalog.rows("o")) == [1, 2, 4, 5, 10]
    condition = "the condition of the rows to replace must compare columns with constants"
    assert condition in catalog.refusal("INSERT INTO CAT.o REPLACE WHERE k * 2 = k SELECT 1, 0")
    assert "must be boolean, but 1 is" in catalog.refusal(
        "INSERT INTO CAT.o REPLACE WHERE 1 SELECT 1, 0"
    )
    # No row meets null.
    for null in ("NULL", "NULL AND k = 1", "k = NULL", "NOT (k = 1 OR NULL)", "false"):
        catalog.sql(f"INSERT INTO CAT.o REPLACE WHERE {null} SELECT 11, 3")
    catalog.sql("INSERT INTO CAT.o REPLACE WHERE k = 3 AND id > 11 OR k = 1 OR NULL SELECT 12, 0")
    ids = [2, 5, 10, 11, 11, 11, 11, 11, 12]
    assert sorted(row["id"] for row in catalog.rows("o")) == ids
    catalog.sql("INSERT OVERWRITE CAT.o SELECT 7, 7")
    assert catalog.rows("o") == [{"id": 7, "k": 7}]
    catalog.sql("TRUNCATE TABLE CAT.o")
    assert catalog.rows("o") == []


def test_an_overwrite_of_rows_keeps_a_change_of_columns_by_another_client(
    catalog: TestCatalog, tmp_path: Any
) -> None:
    import lance
    import pyarrow as pa

    path, done = str(catalog.root / "kept.lance"), tmp_path / "done"
    overwritten = pa.table({"id": [5], "v": [5]})

    def while_another_client_changes(value: int) -> int:
        if not done.exists():
            done.touch()
            dataset = lance.dataset(path)
            if value == 1:
                dataset.alter_columns({"path": "v", "name": "w"})
            elif value == 2:
                dataset.update_field_metadata({"v": {"comment": "of w"}})
            elif value == 3:
                lance.write_dataset(overwritten, path, mode="overwrite")
        return value

    catalog.spark.udf.register("while_changed", while_another_client_changes, "bigint")
    changed = "another client changed the columns of the table"
    for value, error in ((1, changed), (2, changed), (3, None), (4, None)):
        catalog.sql("CREATE OR REPLACE TABLE CAT.kept AS SELECT id, id AS v FROM range(2)")
        statement = f"INSERT OVERWRITE CAT.kept SELECT 9L, while_changed({value}L)"
        done.unlink(missing_ok=True)
        if error is None:
            catalog.sql(statement)
            assert catalog.rows("kept") == [{"id": 9, "v": value}]
            continue
        assert error in catalog.refusal(statement)
        table = lance.dataset(path)
        assert table.schema.names == ["id", "w" if value == 1 else "v"]
        assert table.count_rows() == 2


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OVERWRITE CAT.own SELECT id, while_it_changed(v) + 1 FROM CAT.own",
        "CREATE OR REPLACE TABLE CAT.own AS SELECT id, while_it_changed(v) + 1 AS v FROM CAT.own",
        "INSERT OVERWRITE CAT.own SELECT 7L, while_it_changed(6L) + (SELECT min(id) FROM CAT.own)",
        "INSERT OVERWRITE CAT.own SELECT 7L, while_it_changed(6L)",
    ],
)
def test_an_overwrite_made_of_its_own_rows_loses_no_rows_of_another_client(
    catalog: TestCatalog, tmp_path: Any, statement: str
) -> None:
    import lance
    import pyarrow as pa

    path, done, appends = str(catalog.root / "own.lance"), tmp_path / "done", tmp_path / "appends"
    row = pa.table({"id": [5], "v": [5]})

    def while_another_client_changes(value: int) -> int:
        # Two tasks can get here at the same time.
        with suppress(FileExistsError):
            done.touch(exist_ok=False)
            if appends.exists():
                lance.write_dataset(row, path, mode="append")
            else:
                lance.dataset(path).update_config({"k": "v"})
        return value

    catalog.spark.udf.register("while_it_changed", while_another_client_changes, "bigint")
    catalog.sql("CREATE OR REPLACE TABLE CAT.own AS SELECT id, id AS v FROM range(2)")
    appends.touch()
    if statement.count("CAT.own") > 1:
        assert "overtaken by version" in catalog.refusal(statement)
        assert [row["id"] for row in catalog.rows("own")] == [0, 1, 5]
        done.unlink()
        appends.unlink()
    catalog.sql(statement)
    assert done.exists()
    assert [row["v"] for row in catalog.rows("own")] in ([1, 2, 6], [6])


@pytest.mark.parametrize("where", ["TRUE", "id < 9"])
def test_a_partial_overwrite_made_of_its_own_rows_loses_no_update(
    catalog: TestCatalog, tmp_path: Any, where: str
) -> None:
    import lance

    path, done = str(catalog.root / "part.lance"), tmp_path / "done"

    def while_another_client_updates(value: int) -> int:
        if not done.exists():
            done.touch()
            lance.dataset(path).update({"v": "100"}, "id = 1")
        return value

    catalog.spark.udf.register("while_updated", while_another_client_updates, "bigint")
    catalog.sql("CREATE OR REPLACE TABLE CAT.part AS SELECT id, id AS v FROM range(2)")
    replace = f"INSERT INTO CAT.part REPLACE WHERE {where} SELECT id, while_updated(v) + 1 FROM "
    error = catalog.refusal(replace + "CAT.part")
    assert "rows that its query has read were changed" in error or "overtaken" in error
    assert sorted(row["v"] for row in catalog.rows("part")) == [0, 100]
    done.unlink()
    catalog.sql(replace + "range(2) AS r(id) LATERAL VIEW explode(array(id)) AS v")
    assert done.exists()
    assert sorted(row["v"] for row in catalog.rows("part")) == [1, 2]
    catalog.sql(replace + "CAT.part")
    assert sorted(row["v"] for row in catalog.rows("part")) == [2, 3]


def test_frames(catalog: TestCatalog) -> None:
    from pyspark.sql import functions

    spark = catalog.spark
    spark.range(3).writeTo("inserted.f").tableProperty("p", "1").create()
    spark.range(3, 5).writeTo("inserted.f").append()
    spark.range(20, 21).writeTo("inserted.f").overwrite(functions.col("id") < 3)
    assert sorted(row["id"] for row in catalog.rows("f")) == [3, 4, 20]
    assert catalog.pylance("f").metadata == {"p": "1"}
    spark.range(2).writeTo("inserted.f").createOrReplace()
    spark.range(2, 4).write.mode("append").saveAsTable("inserted.f")
    spark.range(9).write.mode("ignore").saveAsTable("inserted.f")
    spark.range(4, 5).write.insertInto("inserted.f")
    assert sorted(row["id"] for row in catalog.rows("f")) == [0, 1, 2, 3, 4]
    spark.range(1).write.insertInto("inserted.f", overwrite=True)
    assert catalog.rows("f") == [{"id": 0}]


@pytest.mark.skipif(SPARK < (4, 1), reason="Spark 4.0 asks for all columns of a DataFrame")
def test_frames_may_leave_columns_out(catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.m (a INT DEFAULT 5, c INT)")
    catalog.spark.createDataFrame([(1,)], "c int").writeTo("inserted.m").append()
    assert catalog.rows("m") == [{"a": 5, "c": 1}]


def test_streams(catalog: TestCatalog, tmp_path: Any) -> None:
    spark = catalog.spark
    spark.range(4).writeTo("inserted.s").create()
    query = (
        spark.readStream.table("inserted.s")
        .writeStream.option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .toTable("inserted.s2")
    )
    query.awaitTermination()
    assert sorted(row["id"] for row in catalog.rows("s2")) == [0, 1, 2, 3]


def test_lance_table_inserts_defaults_of_columns_that_are_left_out(catalog: TestCatalog) -> None:
    """As SQL does, also for columns that must not be null."""
    from lance_spark import LanceTable

    spark = catalog.spark
    catalog.sql(
        "CREATE TABLE CAT.left_out (id BIGINT NOT NULL, k STRING NOT NULL DEFAULT 'd' || 'k', "
        "n INT DEFAULT 7, p STRING)"
    )
    table = LanceTable.forPath(spark, str(catalog.root / "left_out.lance")).alias("t")
    new = spark.range(1).alias("s")
    table.merge(new, "t.id = s.id").whenNotMatchedInsertAll().execute()
    insert = table.merge(new, "t.id = s.id - 1").whenNotMatchedInsert(values={"id": "s.id + 1"})
    insert.execute()
    table.replace_where(spark.range(2, 3).selectExpr("id AS ID", "9 AS n"), "id = 2")
    spark.sql(
        f"MERGE INTO {NAME}.left_out t USING (SELECT 3L AS id) AS s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    )
    rows = sorted(catalog.rows("left_out"), key=lambda row: row["id"])
    assert [tuple(row.values()) for row in rows] == [
        (0, "dk", 7, None),
        (1, "dk", 7, None),
        (2, "dk", 9, None),
        (3, "dk", 7, None),
    ]


def test_writes_by_path_and_streams_fill_defaults(catalog: TestCatalog, tmp_path: Path) -> None:
    """As INSERT by name does: also partial overwrites and columns in another case."""
    spark = catalog.spark
    catalog.sql(
        "CREATE TABLE CAT.filled (id INT, k INT NOT NULL DEFAULT 3 + 4, s STRING DEFAULT 'x', "
        "c CHAR(3) DEFAULT 'a', p STRING)"
    )
    path = str(catalog.root / "filled.lance")

    def save(query: str, mode: str = "append", **options: str) -> None:
        spark.sql(query).write.format("lance").options(**options).mode(mode).save(path)

    save("SELECT 1 AS id")
    save("SELECT 2 AS id, 9 AS K, CAST(NULL AS STRING) AS s")
    save("SELECT 3 AS id, 5 AS added", mergeSchema="true")
    save("SELECT 1 AS id", "overwrite", replaceWhere="id = 1")
    save("SELECT 3 AS id", "overwrite", partitionBy="id", partitionOverwriteMode="dynamic")
    spark.sql("SELECT 4 AS id").write.parquet(str(tmp_path / "source"))
    stream = spark.readStream.schema("id INT").parquet(str(tmp_path / "source")).writeStream
    for target in (path, f"{NAME}.filled"):
        writer = stream.format("lance").option("checkpointLocation", str(tmp_path / target[-8:]))
        writer = writer.trigger(availableNow=True)
        query = writer.start(path) if target == path else writer.toTable(target)
        query.awaitTermination()
    rows = sorted(tuple(row.values()) for row in catalog.rows("filled"))
    others = ("a  ", None, None)
    filled = [(number, 7, "x", *others) for number in (1, 3, 4, 4)]
    assert rows == sorted([*filled, (2, 9, None, *others)], key=lambda row: row[0])
    save("SELECT 1 AS id", "overwrite")
    assert catalog.rows("filled") == [{"id": 1}]
