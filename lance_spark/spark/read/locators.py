"""Scans that return locators in place of large blobs, for queries that only copy them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lance_spark.file.blobs import fields
from lance_spark.scan.task import ScanTask
from lance_spark.spark.options.declared import DEFAULT_BLOB_HANDLING
from lance_spark.spark.read.planning import LancePartition, Plan


def with_locators(plan: Plan, partitions: Sequence[LancePartition]) -> None:
    """Let the tasks of partitions return locators, in place, where the request allows it.

    A request only says that the query does not look at the blobs. Rows of a MemWAL or of a search,
    whose tasks are of other classes, and rows that a filter compares with bytes, keep their bytes.
    """
    locators, options = plan.request.locators, plan.options
    is_plain = options.blob_handling == DEFAULT_BLOB_HANDLING and not options.fresh
    if locators is None or not is_plain or options.is_search or plan.request.aggregates:
        return
    for partition in partitions:
        task = partition.task
        if type(task) is not ScanTask or partition.residual is not None:
            continue
        columns = tuple(
            fields.with_locators(field, locators.mark)
            if field.name in locators.columns and field.is_blob
            else field
            for field in task.lance_schema.fields
        )
        partition.task = replace(task, lance_schema=replace(task.lance_schema, fields=columns))
