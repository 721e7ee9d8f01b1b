"""Writes by name go to the table of the name, and leave nothing behind if they fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

import lance_spark
from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.messages import refusal
from tests.support.stores.namespaces import NamespaceTables, Request, serving

NAME = "named_writes"

WRITES: dict[str, Callable[[Any, str], None]] = {
    "saveAsTable": lambda writer, table: writer.mode("append").saveAsTable(table),
    "overwrite": lambda writer, table: writer.mode("overwrite").saveAsTable(table),
    "insertInto": lambda writer, table: writer.insertInto(table),
}


def test_the_option_path_names_no_other_table(catalog: TestCatalog, tmp_path: Path) -> None:
    spark, other, table = catalog.spark, str(tmp_path / "other.lance"), f"{NAME}.t"
    catalog.sql("CREATE TABLE CAT.t AS SELECT id FROM range(3)")
    spark.range(5).write.format("lance").save(other)
    frame = spark.range(1)
    for write in WRITES.values():
        assert "t.lance, " in refusal(
            lambda write=write: write(frame.write.option("Path", other), table)
        )
    assert "names" in refusal(lambda: frame.writeTo(table).option("path", other).append())
    assert "names" in refusal(lambda: spark.read.option("path", other).table(table).collect())
    assert len(catalog.rows("t")) == 3
    assert lance.dataset(other).count_rows() == 5
    for own in str(catalog.root / "t.lance"), f"file:{catalog.root}/t.lance/":
        for write in WRITES.values():
            write(frame.write.option("path", own), table)
        assert spark.read.option("path", own).table(table).count() == 2


def test_a_location_elsewhere_is_refused_before_a_write(
    catalog: TestCatalog, tmp_path: Path
) -> None:
    location = tmp_path / "elsewhere"
    for statement in (
        f"CREATE TABLE CAT.e (id INT) LOCATION '{location}'",
        f"CREATE TABLE CAT.e LOCATION '{location}' AS SELECT 1 AS id",
    ):
        assert "is not a folder of tables below" in catalog.refusal(statement)
    assert not location.exists()
    catalog.sql(f"CREATE TABLE CAT.e LOCATION '{catalog.root}/inside/e' AS SELECT 1 AS id")
    assert catalog.sql("SELECT * FROM CAT.e") == [(1,)]


def test_a_stream_does_not_create_a_dropped_table_again(
    catalog: TestCatalog, tmp_path: Path
) -> None:
    spark, source = catalog.spark, str(tmp_path / "source")
    spark.range(2).write.parquet(source)
    catalog.run(["CREATE NAMESPACE CAT.db", "CREATE TABLE CAT.db.s (id BIGINT)"])
    writer = spark.readStream.schema("id bigint").parquet(source).writeStream
    query = writer.option("checkpointLocation", str(tmp_path / "c")).toTable(f"{NAME}.db.s")
    try:
        query.processAllAvailable()
        assert len(catalog.sql("SELECT * FROM CAT.db.s")) == 2
        catalog.sql("DROP TABLE CAT.db.s")
        spark.range(2, 4).write.mode("append").parquet(source)
        with pytest.raises(Exception, match="the table was dropped"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert not list(catalog.root.glob("*db$s"))


def test_a_statement_that_fails_takes_no_name(spark: Any, tmp_path: Path) -> None:
    tables = NamespaceTables(lambda name: f"{tmp_path}/{name}.lance", dict)

    def reply(request: Request) -> Any:
        if "/deregister" in request.path:
            name = request.path.partition("?")[0].split("/")[-2]
            return 200, {"location": tables.locations.pop(name)}
        return tables.reply(request)

    with serving(reply) as uri:
        lance_spark.enable(spark, "named_rest", impl="rest", uri=uri)
        catalog = TestCatalog(spark, "named_rest", tmp_path)
        for statement in (
            "CREATE TABLE CAT.t (id INT, `a.b` INT)",
            f"CREATE TABLE CAT.t (id INT) LOCATION '{tmp_path}/elsewhere'",
            "REPLACE TABLE CAT.t AS SELECT 1 AS id",
            "REPLACE TABLE CAT.t (id INT)",
        ):
            assert catalog.refusal(statement)
            assert tables.locations == {}, statement
        catalog.sql("CREATE TABLE CAT.t AS SELECT 1 AS id")
        assert catalog.sql("SELECT * FROM CAT.t") == [(1,)]
        assert list(tables.locations) == ["t"]
