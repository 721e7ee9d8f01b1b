"""Great Expectations with its data source for Spark."""

from __future__ import annotations

from typing import Any

import great_expectations as gx
import great_expectations.expectations as gxe
import pytest

from tests.support.pages import run_page
from tests.tools.results import PAGE


@pytest.fixture(scope="module")
def context() -> Any:
    return gx.get_context(mode="ephemeral")


@pytest.fixture(scope="module")
def batches(spark: Any, context: Any) -> Any:
    """The batches of a data source; there are tables in both catalogs."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lance.air")
    values = "VALUES (1, 'UA', 62), (2, 'DL', -3), (3, 'UA', 4) AS t(id, carrier, delay)"
    spark.sql(f"CREATE TABLE lance.air.delays AS SELECT * FROM {values}")
    spark.sql("DELETE FROM lance.air.delays WHERE id = 2")
    spark.sql(f"CREATE TABLE own USING lance AS SELECT * FROM {values}")
    asset = context.data_sources.add_spark(name="tables").add_dataframe_asset(name="delays")
    return asset.add_batch_definition_whole_dataframe("all")


def test_page(spark: Any, folder: Any) -> None:
    """The lines above: the rows of a table by name are checked."""
    run_page(PAGE, {"spark": spark}, folder, tool="great_expectations")


def test_expectations(spark: Any, batches: Any) -> None:
    """Expectations of columns, of sets of columns, of tables, and by SQL."""
    batch = batches.get_batch({"dataframe": spark.table("own")})
    fulfilled = [
        gxe.ExpectColumnValuesToNotBeNull(column="id"),
        gxe.ExpectColumnValuesToBeUnique(column="id"),
        gxe.ExpectColumnValuesToBeInSet(column="carrier", value_set=["UA", "DL"]),
        gxe.ExpectColumnValuesToMatchRegex(column="carrier", regex="^[A-Z]{2}$"),
        gxe.ExpectColumnValuesToBeOfType(column="id", type_="IntegerType"),
        gxe.ExpectColumnMeanToBeBetween(column="delay", min_value=20, max_value=22),
        gxe.ExpectCompoundColumnsToBeUnique(column_list=["id", "carrier"]),
        gxe.ExpectTableColumnsToMatchSet(column_set=["id", "carrier", "delay"]),
        gxe.ExpectTableRowCountToEqual(value=3),
    ]
    assert [item for item in fulfilled if not batch.validate(item).success] == []
    late = "SELECT * FROM {batch} WHERE delay < 0"
    broken = [
        gxe.ExpectColumnValuesToBeBetween(column="delay", min_value=0),
        gxe.UnexpectedRowsExpectation(unexpected_rows_query=late),
    ]
    results = [batch.validate(item) for item in broken]
    assert [result.success for result in results] == [False, False]
    assert results[0].result["partial_unexpected_list"] == [-3]


def test_suites(spark: Any, context: Any, batches: Any) -> None:
    """Suites, run as validations of tables of both catalogs."""
    suite = context.suites.add(gx.ExpectationSuite(name="delays"))
    suite.add_expectation(gxe.ExpectColumnValuesToNotBeNull(column="id"))
    suite.add_expectation(gxe.ExpectColumnValuesToBeBetween(column="delay", min_value=0))
    definition = gx.ValidationDefinition(name="delays", data=batches, suite=suite)
    validation = context.validation_definitions.add(definition)
    found = [
        validation.run(batch_parameters={"dataframe": spark.table(name)}).success
        for name in ("own", "lance.air.delays")
    ]
    assert found == [False, True]


def test_versions(spark: Any, batches: Any) -> None:
    """Older versions (`VERSION AS OF`) and branches of a table."""
    older = spark.sql("SELECT * FROM lance.air.delays VERSION AS OF 1")
    spark.sql("CALL lance.system.create_branch('air.delays', 'trial')")
    branch = spark.read.option("branch", "trial").table("lance.air.delays")
    counts = [
        batches.get_batch({"dataframe": frame})
        .validate(gxe.ExpectTableRowCountToEqual(value=count))
        .success
        for frame, count in ((older, 3), (branch, 2))
    ]
    assert counts == [True, True]
