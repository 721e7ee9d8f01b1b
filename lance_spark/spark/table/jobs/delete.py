"""Deleting rows by Spark.

| condition | executors |
| --- | --- |
| none, or one that scans know (`conditions`) | find rows and write deletion files, in one pass |
| any other | find rows, whose addresses the driver collects; then write deletion files |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyroaring import BitMap

from lance_spark.mutations.commits import check_rows_writable
from lance_spark.mutations.rows.conditions import Filter
from lance_spark.mutations.rows.delete import (
    RowsByFragment,
    delete_once,
)
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS
from lance_spark.spark.jobs.job import Job
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.table.conditions import native
from lance_spark.spark.table.jobs.find_rows import find_rows
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.manifest.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import Column

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.scan.predicates.tree import Predicate
    from lance_spark.spark.table.base import TableBase

STEP = "write deletion vectors"
_ALL_ROWS = 1 << 62


def delete(
    base: TableBase,
    job: Job,
    dataset: Dataset,
    condition: str | Column | None,
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    """Delete rows of a version, once; see `LanceTable.delete`."""
    filters, rows = chosen_rows(base, job, dataset, condition)
    manifest, count = delete_once(
        dataset._table, job.runner(STEP), filters, rows, text_of(condition), options
    )
    return manifest, ChangeResult(manifest.version, num_deleted_rows=count)


def chosen_rows(
    base: TableBase, job: Job, dataset: Dataset, condition: str | Column | None
) -> tuple[Sequence[Filter], RowsByFragment | None]:
    """Return the rows that meet a condition, as filters of tasks and row offsets by fragment.

    Spark finds the rows if a scan does not know the condition: then there are no filters.
    """
    check_rows_writable(dataset._table, data_files=False)
    if condition is None:
        return (), None
    predicate = native(base, dataset, condition)
    if predicate is None:
        return (), find_rows(base, job, dataset, condition)
    return (predicate,), candidates(dataset, predicate)


def candidates(dataset: Dataset, predicate: Predicate) -> dict[int, BitMap] | None:
    """Return the rows that can meet a predicate, by fragment, as far as zone maps tell; None if
    there are no indexes.
    """
    if dataset._table.manifest.index_section is None:
        return None
    results: dict[int, BitMap] = {}
    for task in dataset.plan([ROW_ADDRESS.name], filter=predicate, target_rows=_ALL_ROWS):
        for piece in task.slices:
            results.setdefault(piece.fragment.id, BitMap()).add_range(piece.start, piece.stop)
    return results


def text_of(condition: str | Column | None) -> str:
    """Return a condition as transactions note it."""
    if condition is None:
        return "true"
    text = str(condition)
    return (
        text.removeprefix("Column<'").removesuffix("'>") if not isinstance(condition, str) else text
    )
