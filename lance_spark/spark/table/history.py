"""Versions, tags and branches of a table through Spark."""

from __future__ import annotations

from lance_spark.spark.table.base import TableBase


class HistoryMethods(TableBase):
    """Versions, tags and branches."""
