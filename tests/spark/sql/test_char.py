"""char(n) and varchar(n) by every way of writing, and as keys of merges. Spark pads and checks writes
by name; pylance reads what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lance_spark.spark.table import LanceTable
from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.versions import SPARK

NAME = "padded"
_SOURCE = "SELECT 'ab' AS k, 7 AS n UNION ALL SELECT 'zz', 8"


@contextmanager
def _set(spark: Any, name: str) -> Iterator[None]:
    spark.conf.set(name, "true")
    try:
        yield
    finally:
        spark.conf.unset(name)


def _rows(catalog: TestCatalog, table: str) -> list[tuple[Any, ...]]:
    return sorted((row["c"], row["v"], row["id"]) for row in catalog.rows(table))


def test_writes_pad_and_check(spark: Any, catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.t (id INT, c CHAR(4), v VARCHAR(3))")
    path = str(catalog.root / "t.lance")
    table = LanceTable.forPath(spark, path)

    def append(c: str, v: str) -> None:
        frame = spark.createDataFrame([(1, c, v)], "id int, c string, v string")
        frame.write.format("lance").mode("append").save(path)

    append("a", "b    ")
    assert _rows(catalog, "t") == [("a   ", "b  ", 1)]
    assert table.update("c = 'a'", {"c": "'d'"}).num_updated_rows == 1
    for c, v in (("abcde", "b"), ("a", "bcde")):
        with pytest.raises(Exception, match="which cannot hold"):
            append(c, v)
        with pytest.raises(Exception, match="which cannot hold"):
            table.update("true", {"c": f"'{c}'", "v": f"'{v}'"})
    keyed = spark.sql("SELECT 'd' AS c, 'e' AS v")
    table.update_columns_from(keyed, "c")
    table.add_columns_from(spark.sql("SELECT 'd' AS c, 5 AS n"), "c")
    assert catalog.rows("t") == [{"id": 1, "c": "d   ", "v": "e", "n": 5}]
    catalog.sql("DELETE FROM CAT.t WHERE c = 'e' OR length(v) = 2")
    assert len(catalog.rows("t")) == 1
    catalog.sql("DELETE FROM CAT.t AS t WHERE t.c = 'd'")
    assert catalog.rows("t") == []


@pytest.mark.parametrize(
    ("inserts_only", "setting"),
    [
        (False, "spark.sql.readSideCharPadding"),
        (False, "spark.sql.preserveCharVarcharTypeInfo"),
        (True, "spark.sql.preserveCharVarcharTypeInfo"),
    ],
)
def test_keys_of_merges_meet(
    spark: Any, catalog: TestCatalog, inserts_only: bool, setting: str
) -> None:
    if inserts_only and SPARK < (4, 1):
        pytest.skip("Spark 4.0 fails to plan an insert of a query into char(n)")
    spark.sql(_SOURCE).createOrReplaceTempView("padded_source")
    expected = [("ab  ", "ab", 1 if inserts_only else 7), ("cd  ", "cd", 2), ("zz  ", "zz", 8)]
    matched = "" if inserts_only else "WHEN MATCHED THEN UPDATE SET id = s.n"
    for source, key in (("padded_source", "t.c = s.k"), ("padded_source", "s.k <=> t.c")):
        for name in ("sql", "api"):
            catalog.sql(f"CREATE OR REPLACE TABLE CAT.{name} (id INT, c CHAR(4), v VARCHAR(4))")
            catalog.sql(f"INSERT INTO CAT.{name} VALUES (1, 'ab', 'ab'), (2, 'cd', 'cd')")
        table = LanceTable.forPath(spark, str(catalog.root / "api.lance")).alias("t")
        with _set(spark, setting):
            catalog.sql(
                f"MERGE INTO CAT.sql t USING {source} s ON {key} {matched} "
                "WHEN NOT MATCHED THEN INSERT (id, c, v) VALUES (s.n, s.k, s.k)"
            )
            builder = table.merge(spark.table(source).alias("s"), key)
            if not inserts_only:
                builder = builder.whenMatchedUpdate(set={"id": "s.n"})
            values = {"id": "s.n", "c": "s.k", "v": "s.k"}
            builder.whenNotMatchedInsert(values=values).execute()
        assert _rows(catalog, "sql") == expected, key
        assert _rows(catalog, "api") == expected, key
    spark.catalog.dropTempView("padded_source")


def test_streams_by_name(spark: Any, catalog: TestCatalog, tmp_path: Path) -> None:
    catalog.sql("CREATE TABLE CAT.streamed (c CHAR(3), v VARCHAR(3))")
    catalog.sql("INSERT INTO CAT.streamed VALUES ('a', 'b'), ('d', 'e')")
    rows: list[Any] = []
    stream = spark.readStream.table("padded.streamed").where("c = 'a'").writeStream
    stream = stream.foreachBatch(lambda batch, _: rows.extend(map(tuple, batch.collect())))
    query = stream.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    assert query.start().awaitTermination(60)
    assert rows == [("a  ", "b")]


def test_settings_of_char(spark: Any, catalog: TestCatalog) -> None:
    # As over Parquet: types that plans keep, and strings without a limit.
    columns = "(id INT, c CHAR(4), s STRUCT<v: VARCHAR(2)>, a ARRAY<CHAR(2)>)"
    catalog.sql(f"CREATE TABLE CAT.kept {columns}")
    row = "VALUES (1, 'ab', named_struct('v', 'x'), array('y'))"
    with _set(spark, "spark.sql.preserveCharVarcharTypeInfo"):
        catalog.sql(f"INSERT INTO CAT.kept {row}")
        found = catalog.sql("SELECT c || '|', s.v, a, typeof(c) FROM CAT.kept WHERE c = 'ab  '")
        assert found == [("ab  |", "x", ["y "], "char(4)")]
        catalog.sql("UPDATE CAT.kept SET c = 'cd' WHERE id = 1")
        assert catalog.sql("SELECT c || '|' FROM CAT.kept") == [("cd  |",)]
    with _set(spark, "spark.sql.legacy.charVarcharAsString"):
        catalog.sql(f"CREATE TABLE CAT.plain {columns}")
        catalog.sql("ALTER TABLE CAT.plain ADD COLUMNS (w CHAR(3))")
        long = "VALUES (1, 'abcdef', named_struct('v', 'xyz'), array('xyz'), 'w')"
        catalog.sql(f"INSERT INTO CAT.plain {long}")
    assert catalog.sql("SELECT c || '|', s.v, a, w || '|' FROM CAT.plain WHERE w = 'w'") == [
        ("abcdef|", "xyz", ["xyz"], "w|")
    ]
