"""Registers the format "lance": Spark looks for `DefaultSource` in modules named `pyspark_*`."""

from lance_spark.spark.datasource import LanceDataSource as DefaultSource

__all__ = ["DefaultSource"]
