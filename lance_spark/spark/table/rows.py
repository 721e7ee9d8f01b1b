"""Changing rows of a table through Spark."""

from __future__ import annotations

from lance_spark.spark.table.base import TableBase


class RowMethods(TableBase):
    """Changing rows."""
