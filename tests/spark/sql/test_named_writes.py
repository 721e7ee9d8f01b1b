"""Writes by name leave nothing behind if they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance_spark
from tests.spark.sql.catalogs import TestCatalog
from tests.support.stores.namespaces import NamespaceTables, Request, serving

NAME = "named_writes"


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
