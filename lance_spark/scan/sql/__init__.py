"""Predicates from text: what ``WHERE`` takes in Spark's SQL."""

from lance_spark.scan.sql.predicate import parse_predicate
from lance_spark.scan.sql.settings import SPARK_NAMES, SqlSettings

__all__ = ["SPARK_NAMES", "SqlSettings", "parse_predicate"]
