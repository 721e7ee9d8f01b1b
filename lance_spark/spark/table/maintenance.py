"""Keeping a table fast and small, through Spark."""

from __future__ import annotations

from lance_spark.spark.table.base import TableBase


class MaintenanceMethods(TableBase):
    """Keeping a table fast and small."""
