"""The Spark session that is the oracle."""

from tests.spark.conftest import spark

__all__ = ["spark"]
