"""Plans reads with the option nearest: a vector search, or shares of it, become partitions.

| part of the request | planned as |
| --- | --- |
| option filter | decides which rows are searched; with `prefilter` = false, filters found rows |
| filters of Spark | filter the rows that the search finds |
| option nearest_shares; first rows by `_distance` | each partition searches a share |
| anything else | one partition, which returns the rows of the whole search |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_spark.errors import InvalidOptionError
from lance_spark.scan.fragment.row_meta import DISTANCE
from lance_spark.scan.vectors.query import parse_nearest
from lance_spark.scan.vectors.task import VectorScanTask
from lance_spark.spark.read.planning import (
    AGGREGATE_ROW_BYTES,
    DEFAULT_BATCH_SIZE,
    LancePartition,
    ResidualFilter,
    target_partitions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_spark.scan.predicates.tree import Predicate
    from lance_spark.spark.read.planning import Plan

#: Least cost of a share: some tenths of a second.
_SMALLEST_SHARE = 1 << 28
#: Greatest cost of a search that the driver runs itself.
_DRIVER_COST = 1 << 27
#: Most rows of such a search.
_DRIVER_ROWS = 10_000


def nearest_partitions(plan: Plan) -> tuple[list[LancePartition], int, int | None]:
    """Return the partitions, and the maximum numbers of their rows and bytes.

    Raises
    ------
    InvalidOptionError
        An option cannot be combined with nearest.
    LanceError
        As `plan_vectors`.
    """
    scanned, residual = plan.filters()
    request = plan.request
    tasks = _tasks(plan, scanned, residual)
    if request.aggregates:
        partitions = [
            LancePartition(task, residual=residual, columns=plan.wanted) for task in tasks
        ]
        if not request.groups:
            size = AGGREGATE_ROW_BYTES * len(partitions)
            return partitions or [LancePartition(None)], max(1, len(partitions)), size
    else:
        partitions = [LancePartition(task, request.limit, residual) for task in tasks]
    rows = min(
        plan.dataset.count_rows() * _num_queries(tasks), sum(_most_rows(task) for task in tasks)
    )
    if request.limit is not None:
        rows = min(rows, request.limit * len(partitions))
    return partitions or [LancePartition(None)], rows, plan.size(rows)


def is_nearest_for_driver(partitions: Sequence[LancePartition]) -> bool:
    """Return whether the driver is quicker than tasks."""
    tasks = [part.task for part in partitions if isinstance(part.task, VectorScanTask)]
    cost = sum(task.search.cost for task in tasks)
    return cost <= _DRIVER_COST and sum(_most_rows(task) for task in tasks) <= _DRIVER_ROWS


def _num_queries(tasks: Sequence[VectorScanTask]) -> int:
    return max((task.search.query.num_queries for task in tasks), default=1)


def _most_rows(task: VectorScanTask) -> int:
    return task.search.query.k * task.search.query.num_queries


def _tasks(
    plan: Plan, scanned: tuple[Predicate, ...], residual: ResidualFilter | None
) -> list[VectorScanTask]:
    options, request = plan.options, plan.request
    assert options.nearest is not None
    for name in ("fragment_ids", "whole_fragments"):
        if getattr(options, name):
            raise InvalidOptionError(
                f"option {name} cannot be combined with nearest, which searches all rows; remove it"
            )
    query = parse_nearest(options.nearest)
    search = plan.dataset._plan_nearest(query, fast_search=options.fast_search)
    plan.indexes.extend(search.indexes)
    prefilter = plan.prefilter if options.prefilter else ()
    later = tuple(given for given in scanned if all(given is not own for own in prefilter))
    names = plan.scanned_columns(residual)
    schema = plan.dataset._nearest_schema(names, options.blob_handling, adds_distance=False)
    can_share = options.nearest_shares or (
        not later and residual is None and not request.aggregates and _is_ordered(plan, query.k)
    )
    shares = [search]
    if can_share and not request.exact:
        target = options.target_rows
        if target is None:
            share = search.cost // target_partitions(request.parallelism)
            target = max(share, _SMALLEST_SHARE)
        shares = search.shares(target)
    return [
        plan.dataset._nearest_task(
            share, schema, prefilter, later, batch_size=options.batch_size or DEFAULT_BATCH_SIZE
        )
        for share in shares
    ]


def _is_ordered(plan: Plan, k: int) -> bool:
    """Return whether the first rows by distance are wanted, and no more than the search has."""
    top = plan.request.top
    if top is None or top.rows > k or plan.options.nearest is None:
        return False
    first = top.order[0]
    is_first = first.path == (DISTANCE.name,) and first.distance is None and not first.descending
    return is_first and not parse_nearest(plan.options.nearest).is_batch
