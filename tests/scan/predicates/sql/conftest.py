"""The session that judges."""

from tests.spark.conftest import spark

__all__ = ["spark"]
