"""Indexes of a table: executors build, extend and check them, and the driver commits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lance_spark.dataset.indexes import ExtendKeywords
from lance_spark.mutations.indexes.check import CheckTask, plan_check
from lance_spark.mutations.indexes.create import (
    IndexRequest,
    commit_index,
    default_segments,
    plan_index,
)
from lance_spark.mutations.indexes.optimize import OptimizeRequest, extend
from lance_spark.mutations.indexes.task import IndexTask, undo_of
from lance_spark.spark.job import Job, parallelism
from lance_spark.spark.table.base import ChangeResult
from lance_spark.table.commit.options import RetryKeywords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableHandle
    from lance_spark.table.commit.options import CommitOptions
    from lance_spark.table.manifest.manifest import Manifest

INDEX_COLUMNS = (
    "name string, fields array<string>, index_type string, num_indexed_fragments long, "
    "num_indexed_rows long, num_unindexed_fragments long, num_unindexed_rows long, "
    "num_segments long"
)
CHECK_COLUMNS = (
    "segment string, is_valid boolean, num_rows long, missing long, wrong long, stale long, "
    "problems array<string>"
)
STEP = "write an index"
CHECK_STEP = "compare an index with its column"


class ExtendRetryKeywords(ExtendKeywords, RetryKeywords, total=False):
    """Keywords of `LanceTable.optimize_indices`."""


def create_index(
    handle: TableHandle, request: IndexRequest, num_segments: int | None, commit: CommitOptions
) -> ChangeResult:
    """Create an index; see `LanceTable.create_index`."""

    def plan(job: Job, dataset: Dataset) -> tuple[Manifest, ChangeResult]:
        count = num_segments or default_segments(
            dataset._table, request.index_type, parallelism(handle.spark)
        )
        (path,) = handle.spelled_paths(dataset, request.column)
        complete = replace(request, column=path, num_segments=count)
        tasks = plan_index(dataset._table, complete)
        segments = job.runner(STEP).run(tasks, IndexTask.run, undo_of(tasks))
        manifest = commit_index(dataset._table, complete, segments, commit)
        return manifest, ChangeResult(manifest.version)

    return handle.change("create index", plan, commit)


def optimize_indices(
    handle: TableHandle, request: OptimizeRequest, commit: CommitOptions
) -> ChangeResult:
    """Extend indexes to rows that they do not cover; see `LanceTable.optimize_indices`."""

    def plan(job: Job, dataset: Dataset) -> tuple[Manifest, ChangeResult]:
        complete = replace(request, parallelism=parallelism(handle.spark))
        manifest = extend(dataset._table, complete, commit, job.runner(STEP))
        return manifest, ChangeResult(manifest.version)

    return handle.change("optimize indices", plan, commit)


def indexes_frame(handle: TableHandle) -> DataFrame:
    """Return a row for each index; see `LanceTable.indexes`."""
    dataset = handle.dataset()
    fragments = {fragment.id for fragment in dataset.fragments}
    num_rows = dataset.count_rows()
    rows = []
    for index in dataset.describe_indices():
        covered = {number for part in index.segments for number in part.fragment_ids or ()}
        num_covered = len(fragments & covered)
        rows.append(
            (
                index.name,
                list(index.field_names),
                index.index_type,
                num_covered,
                index.num_rows_indexed,
                len(fragments) - num_covered,
                num_rows - index.num_rows_indexed,
                index.num_segments,
            )
        )
    return handle.data_frame(rows, INDEX_COLUMNS)


def check_index(handle: TableHandle, name: str) -> DataFrame:
    """Compare an index with its column; see `LanceTable.check_index`."""
    table = handle.dataset()._table
    tasks = plan_check(table, name)
    with Job(handle.spark, table, "check index") as job:
        results = job.run_tasks(tasks, CheckTask.run, CHECK_STEP, writes=False)
    rows = [
        (
            result.uuid,
            result.is_valid,
            result.num_rows,
            result.missing,
            result.wrong,
            result.stale,
            list(result.problems),
        )
        for result in results
    ]
    return handle.data_frame(rows, CHECK_COLUMNS)
