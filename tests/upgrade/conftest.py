"""The session that continues a stream."""

from tests.spark.conftest import spark

__all__ = ["spark"]
