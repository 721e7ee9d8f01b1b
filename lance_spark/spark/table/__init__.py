"""`LanceTable`: changes of a table through Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_spark._lazy import lazy_exports

if TYPE_CHECKING:
    from lance_spark.spark.table.base import ChangeResult
    from lance_spark.spark.table.create import TableBuilder
    from lance_spark.spark.table.lance_table import LanceTable
    from lance_spark.spark.table.maintenance import OptimizeBuilder
    from lance_spark.spark.table.merge.builder import MergeBuilder

__all__ = ["ChangeResult", "LanceTable", "MergeBuilder", "OptimizeBuilder", "TableBuilder"]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(
        globals(),
        {
            "ChangeResult": "lance_spark.spark.table.base",
            "LanceTable": "lance_spark.spark.table.lance_table",
            "MergeBuilder": "lance_spark.spark.table.merge.builder",
            "OptimizeBuilder": "lance_spark.spark.table.maintenance",
            "TableBuilder": "lance_spark.spark.table.create",
        },
    )
