"""Errors of statements that pass the parser of this package."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException

import lance_spark
from tests.support.spark.versions import SPARK


@pytest.mark.skipif(SPARK < (4, 2), reason="the analyzer of earlier releases checks parameters")
@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        ("EXECUTE IMMEDIATE 'SELECT :a' USING 1, 2", "ALL_PARAMETERS_MUST_BE_NAMED"),
        (
            "EXECUTE IMMEDIATE 'SELECT ? = :a' USING 1, 2 AS a",
            "INVALID_QUERY_MIXED_QUERY_PARAMETERS",
        ),
    ],
)
def test_errors_of_parameters_have_conditions(spark: Any, statement: str, condition: str) -> None:
    lance_spark.enable(spark)
    with pytest.raises(AnalysisException) as caught:
        spark.sql(statement)
    assert caught.value.getCondition() == condition
