"""Changing columns of a table through Spark."""

from __future__ import annotations

from lance_spark.spark.table.base import TableBase


class ColumnMethods(TableBase):
    """Changing columns."""
