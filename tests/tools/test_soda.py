"""Soda's contracts, with its data source for a session of Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import run_page
from tests.tools.results import PAGE

# It sends a report of each verification to its makers; it reads the variable when it is imported.
os.environ["SODA_CORE_TELEMETRY_ENABLED"] = "false"

from soda_core.contracts import verify_contract_locally
from soda_sparkdf import SparkDataFrameDataSource

CHECKS = """
checks:
  - schema:
  - row_count: {threshold: {must_be: 3}}
  - duplicate: {columns: [id, carrier]}
  - failed_rows: {expression: delay > 60}
  - metric: {query: "SELECT count(*) FROM {table} WHERE delay < 0", threshold: {must_be: 1}}
columns:
  - name: id
    data_type: int
    checks:
      - missing:
      - duplicate:
  - name: carrier
    data_type: string
    checks:
      - invalid: {valid_reference_data: {dataset: {carriers}, column: code}}
      - invalid: {qualifier: letters, valid_format: {regex: '^[A-Z]{2}$', name: two letters}}
  - name: delay
    data_type: int
    checks:
      - aggregate: {function: avg, threshold: {must_be_between: {greater_than: 20, less_than: 22}}}
      - invalid: {valid_min: 0}
"""


@pytest.fixture(scope="module")
def tables(spark: Any) -> None:
    """Tables of both catalogs."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lance.air")
    values = "VALUES (1, 'UA', 62), (2, 'DL', -3), (3, 'UA', 4) AS t(id, carrier, delay)"
    codes = "VALUES ('UA'), ('DL') AS t(code)"
    for place, using in (("lance.air.", ""), ("", "USING lance")):
        spark.sql(f"CREATE TABLE {place}delays {using} AS SELECT * FROM {values}")
        spark.sql(f"CREATE TABLE {place}carriers {using} AS SELECT * FROM {codes}")


def verified(source: Any, folder: Path, dataset: str, text: str) -> dict[str, list[bool]]:
    """Verify a contract of a dataset; return whether its checks of each type hold."""
    (folder / "contract.yml").write_text(f"dataset: {dataset}\n{text}")
    contract = str(folder / "contract.yml")
    session = verify_contract_locally(data_sources=[source], contract_file_path=contract)
    (result,) = session.contract_verification_results
    assert not result.has_errors, result.get_errors_str()
    found: dict[str, list[bool]] = {}
    for check in result.check_results:
        assert check.is_passed or check.is_failed, check.check.name
        found.setdefault(check.check.type, []).append(check.is_passed)
    return found


def test_page(spark: Any, folder: Any) -> None:
    """The lines above: the rows of a table by name are verified."""
    run_page(PAGE, {"spark": spark}, folder, tool="soda")


@pytest.mark.parametrize("catalog", ["lance", "spark_catalog"])
def test_checks(spark: Any, folder: Path, tables: None, catalog: str) -> None:
    """Checks of schemas, columns, sets of columns, references, aggregates and by SQL, of tables of both
    catalogs.
    """
    source = SparkDataFrameDataSource.from_existing_session(
        session=spark, name="tables", use_catalog=True
    )
    schema = "air" if catalog == "lance" else "default"
    names = {
        "{table}": f"{catalog}.{schema}.delays",
        "{carriers}": f"tables/{catalog}/{schema}/carriers",
    }
    text = CHECKS
    for name, value in names.items():
        text = text.replace(name, value)
    found = verified(source, folder, f"tables/{catalog}/{schema}/delays", text)
    assert found == {
        "schema": [True],
        "row_count": [True],
        "duplicate": [True, True],
        "failed_rows": [False],
        "metric": [True],
        "missing": [True],
        "invalid": [True, True, False],
        "aggregate": [True],
    }


def test_versions(spark: Any, folder: Path, tables: None) -> None:
    """Older versions and branches of a table, by temporary views."""
    spark.sql("CALL lance.system.create_branch('air.carriers', 'trial')")
    spark.sql("DELETE FROM lance.air.carriers WHERE code = 'DL'")
    older = "SELECT * FROM lance.air.carriers VERSION AS OF 1"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW older AS {older}")
    branch = spark.read.option("branch", "trial").table("lance.air.carriers")
    branch.createOrReplaceTempView("branch")
    spark.table("lance.air.carriers").createOrReplaceTempView("newest")
    source = SparkDataFrameDataSource.from_existing_session(session=spark, name="views")
    text = "checks:\n  - row_count: {threshold: {must_be: 2}}\ncolumns:\n  - name: code\n"
    found = [
        verified(source, folder, f"views/{view}", text)["row_count"]
        for view in ("older", "branch", "newest")
    ]
    assert found == [[True], [True], [False]]
