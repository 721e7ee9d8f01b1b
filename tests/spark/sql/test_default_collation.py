"""The default collation of a table, and char(n) and varchar(n) with a collation. Spark over Parquet
is the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lance_spark
from lance_spark.spark.table import LanceTable
from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.settings import restored
from tests.support.spark.versions import SPARK

NAME = "collated"
_OF_NAMESPACES = "spark.sql.collation.schemaLevel.enabled"

_STATEMENTS = [
    "ALTER TABLE {} ADD COLUMN b STRING",
    "ALTER TABLE {} ADD COLUMN c ARRAY<STRING>",
    "ALTER TABLE {} ADD COLUMN s STRUCT<x: STRING>",
    "INSERT INTO {} VALUES ('X', 'X', ARRAY('X'), NAMED_STRUCT('x', 'X'))",
]
_CONDITIONS = ["a = 'x'", "b = 'x'", "array_contains(c, 'x')", "s.x = 'x'"]


def _types(spark: Any, table: str) -> list[str]:
    return [row.data_type for row in spark.sql(f"DESCRIBE {table}").collect()]


def _shown(spark: Any, catalog: TestCatalog, table: str) -> str | None:
    """Return the collation that a table has, and that its SQL shows."""
    path = catalog.root / f"{table.replace('.', '/')}.lance"
    stored = lance_spark.open_dataset(str(path)).metadata.get("spark.sql.collation")
    text = spark.sql(f"SHOW CREATE TABLE collated.{table}").head()[0]
    # Spark 4.0 does not show it.
    if SPARK >= (4, 3):
        assert (f"DEFAULT COLLATION {stored}" in text) == (stored is not None)
    return stored


def test_new_columns_have_it(spark: Any, catalog: TestCatalog) -> None:
    spark.sql("DROP TABLE IF EXISTS collated_oracle")
    tables = {"parquet": "collated_oracle", "lance": "collated.t"}
    for provider, table in tables.items():
        spark.sql(f"CREATE TABLE {table} (a STRING) USING {provider} DEFAULT COLLATION UTF8_LCASE")
        for statement in _STATEMENTS:
            spark.sql(statement.format(table))
    oracle, ours = tables.values()
    assert _types(spark, ours) == _types(spark, oracle)
    assert _shown(spark, catalog, "t") == "UTF8_LCASE"
    for condition in _CONDITIONS:
        assert spark.table(ours).where(condition).count() == 1, condition
    for table in (oracle, ours):
        spark.sql(f"ALTER TABLE {table} DEFAULT COLLATION UNICODE_CI")
        spark.sql(f"ALTER TABLE {table} ADD COLUMN d STRING")
    assert _types(spark, ours) == _types(spark, oracle)
    assert _types(spark, ours)[-1] == "string collate UNICODE_CI"
    # The text is no property that a statement can set, and pylance reads the table.
    assert "collation" in catalog.refusal(
        "ALTER TABLE CAT.t SET TBLPROPERTIES ('spark.sql.collation' = 'UNICODE')"
    )
    assert catalog.rows("t")[0]["b"] == "X"
    spark.sql("DROP TABLE collated_oracle")


def test_statements_that_create_and_replace(spark: Any, catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.made DEFAULT COLLATION UTF8_LCASE AS SELECT 'A' AS a")
    assert _shown(spark, catalog, "made") == "UTF8_LCASE"
    catalog.sql("CREATE OR REPLACE TABLE CAT.made (a STRING) DEFAULT COLLATION UNICODE")
    assert _shown(spark, catalog, "made") == "UNICODE"
    # The replaced table has none.
    for replaced in ("(k INT)", "AS SELECT 1 AS k"):
        catalog.sql("CREATE OR REPLACE TABLE CAT.made (a STRING) DEFAULT COLLATION UNICODE")
        catalog.sql(f"CREATE OR REPLACE TABLE CAT.made {replaced}")
        catalog.sql("ALTER TABLE CAT.made ADD COLUMN b STRING")
        assert _shown(spark, catalog, "made") is None
        assert _types(spark, "collated.made") == ["int", "string"]


@pytest.mark.skipif(SPARK < (4, 3), reason="Spark 4.3 has char(n) with a collation")
def test_lengths_with_a_collation(spark: Any, catalog: TestCatalog) -> None:
    spark.sql("DROP TABLE IF EXISTS collated_oracle")
    tables = {"parquet": "collated_oracle", "lance": "collated.lengths"}
    for provider, table in tables.items():
        columns = "a CHAR(4), b VARCHAR(4) COLLATE UNICODE_CI"
        spark.sql(f"CREATE TABLE {table} ({columns}) USING {provider} DEFAULT COLLATION UTF8_LCASE")
        spark.sql(f"ALTER TABLE {table} ADD COLUMN c CHAR(3)")
        spark.sql(f"INSERT INTO {table} VALUES ('AB', 'AB', 'AB')")
    oracle, ours = tables.values()
    assert _types(spark, ours) == _types(spark, oracle)
    assert spark.table(ours).schema == spark.table(oracle).schema
    lance_spark.enable(spark)
    by_path = spark.read.format("lance").load(str(catalog.root / "lengths.lance"))
    for rows in (spark.table(oracle), spark.table(ours), by_path):
        found = rows.where("a = 'ab  ' AND b = 'ab' AND c = 'ab '")
        assert [tuple(row) for row in found.collect()] == [("AB  ", "AB", "AB ")]
    spark.sql("DROP TABLE collated_oracle")


@pytest.mark.skipif(SPARK < (4, 3), reason="earlier versions have no collation of a namespace")
def test_tables_have_the_collation_of_their_namespace(spark: Any, catalog: TestCatalog) -> None:
    # Spark has this behind a setting.
    with restored(spark, _OF_NAMESPACES):
        spark.conf.set(_OF_NAMESPACES, "true")
        catalog.sql("CREATE NAMESPACE CAT.ns DEFAULT COLLATION UNICODE_CI")
    catalog.sql("CREATE TABLE CAT.ns.t (a STRING)")
    catalog.sql("ALTER TABLE CAT.ns.t ADD COLUMN b STRING")
    assert _types(spark, "collated.ns.t") == ["string collate UNICODE_CI"] * 2
    assert "DEFAULT COLLATION UNICODE_CI" in spark.sql("SHOW CREATE TABLE collated.ns.t").head()[0]


@pytest.mark.skipif(SPARK < (4, 2), reason="Spark 4.2 asks for the changes that a table takes")
def test_schema_evolution_keeps_a_collation(spark: Any, catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.evolved (id INT, a STRING COLLATE UTF8_LCASE)")
    catalog.sql(
        "MERGE WITH SCHEMA EVOLUTION INTO CAT.evolved t USING (SELECT 1 AS id, 'X' AS a, 2 AS n) s "
        "ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    )
    assert _types(spark, "collated.evolved") == ["int", "string collate UTF8_LCASE", "int"]


def test_alter_column_of_a_path(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    spark.sql("SELECT 'X' AS a, 'b' AS b").write.format("lance").save(path)
    table = LanceTable.forPath(spark, path)
    assert table.alter_column("a", data_type="string collate UTF8_LCASE").version == 2
    assert spark.read.format("lance").load(path).where("a = 'x'").count() == 1
    # As in SQL, a string without a collation keeps it.
    table.alter_column("a", data_type="string", nullable=True)
    assert spark.read.format("lance").load(path).where("a = 'x'").count() == 1
    table.alter_column("b", data_type="char(4)")
    dtype = spark.read.format("lance").load(path).schema["b"]
    assert dtype.metadata["__CHAR_VARCHAR_TYPE_STRING"] == "char(4)"
    table.alter_column("b", data_type="string")
    assert spark.read.format("lance").load(path).schema["b"].metadata == {}
