"""Deleting rows by Spark.

| condition | executors |
| --- | --- |
| none, or one that scans know (`conditions`) | find the rows of a fragment and write its deletion file, in one pass |
| any other | find rows, whose addresses come together on the driver; then others write deletion files |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyroaring import BitMap

from lance_spark.mutations.retry import check_rows_writable
from lance_spark.mutations.rows.delete import (
    DeleteTask,
    FragmentDeletion,
    commit_deletes,
    plan_delete,
)
from lance_spark.mutations.rows.deletion_vectors import plan_vectors
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS
from lance_spark.spark.jobs.job import Job
from lance_spark.spark.table.conditions import native
from lance_spark.spark.table.jobs.find_rows import find_rows
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
    properties: Mapping[str, str] | None,
) -> tuple[Manifest, int]:
    """Delete rows of a version, once; see `LanceTable.delete`.

    Returns
    -------
    tuple of Manifest and int
        The new version, and how many rows were deleted.
    """
    table = dataset._table
    deletions = find_and_write(base, job, dataset, condition)
    manifest = commit_deletes(table, deletions, text_of(condition), properties=properties)
    return manifest, sum(deletion.num_rows for deletion in deletions)


def find_and_write(
    base: TableBase, job: Job, dataset: Dataset, condition: str | Column | None
) -> list[FragmentDeletion]:
    """Find the rows that meet a condition, and write deletion files for them; nothing refers to
    these yet.
    """
    table = dataset._table
    check_rows_writable(table, data_files=False)
    predicate = native(base, dataset, condition)
    if predicate is not None or condition is None:
        filters = () if predicate is None else (predicate,)
        rows = None if predicate is None else candidates(dataset, predicate)
        tasks = plan_delete(table, filters, rows=rows, tag=job.tag)
    else:
        tasks = plan_vectors(table, find_rows(base, job, dataset, condition), tag=job.tag)
    return run(job, tasks)


def run(job: Job, tasks: list[DeleteTask]) -> list[FragmentDeletion]:
    """Write deletion files on executors."""
    return [item for part in job.run_tasks(tasks, DeleteTask.run, STEP) for item in part]


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
