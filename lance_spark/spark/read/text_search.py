"""Plans reads with the option full_text_query: shares of the search become partitions.

| part of the request | planned as |
| --- | --- |
| option filter | decides which rows are searched |
| filters of Spark | rows that match are filtered after the search; they do not change scores |
| first rows by `_score`, the greatest first | the best rows of each partition |
| first rows in other orders, limit | rows of each partition |
| exact limit | one partition |

The driver reads the statistics of the index, by which all partitions score alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_spark.errors import InvalidOptionError
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS, SCORE
from lance_spark.scan.text.query_json import query_of_json
from lance_spark.scan.text.task import TextScanTask
from lance_spark.spark.read.planning import (
    AGGREGATE_ROW_BYTES,
    DEFAULT_BATCH_SIZE,
    MAX_TOP_ROWS,
    LancePartition,
    ResidualFilter,
    target_partitions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_spark.scan.predicates.tree import Predicate
    from lance_spark.spark.pushdown.request import Top
    from lance_spark.spark.read.planning import Plan

#: Least cost of a share, in postings: some tenths of a second.
_SMALLEST_SHARE = 4_000_000
#: Greatest cost of a search that the driver runs itself.
_DRIVER_COST = 2_000_000
#: Most rows that have a token of such a search. All tokens of a query are often in few of them.
_DRIVER_ROWS = 100_000


def text_partitions(plan: Plan) -> tuple[list[LancePartition], int, int | None]:
    """Return the partitions, and the maximum numbers of their rows and bytes.

    Raises
    ------
    InvalidOptionError
        An option cannot be combined with full_text_query.
    LanceError
        As `plan_search`.
    """
    scanned, residual = plan.filters()
    tasks = _tasks(plan, scanned, residual)
    request = plan.request
    if request.aggregates:
        partitions = [
            LancePartition(task, residual=residual, columns=plan.wanted) for task in tasks
        ]
        if not request.groups:
            size = AGGREGATE_ROW_BYTES * len(partitions)
            return partitions or [LancePartition(None)], max(1, len(partitions)), size
    else:
        partitions = [LancePartition(task, request.limit, residual) for task in tasks]
    rows = min(plan.dataset._reader.max_rows, sum(most_rows(task) for task in tasks))
    if request.limit is not None:
        rows = min(rows, request.limit * len(partitions))
    return partitions or [LancePartition(None)], rows, plan.size(rows)


def is_search_for_driver(plan: Plan, partitions: Sequence[LancePartition]) -> bool:
    """Return whether the driver is quicker than tasks, and the rows are likely to be few."""
    tasks = [partition.task for partition in partitions if isinstance(partition.task, TextScanTask)]
    rows = sum(most_rows(task) for task in tasks)
    is_bounded = bool(plan.request.aggregates) or plan.request.limit is not None
    return sum(task.search.cost for task in tasks) <= _DRIVER_COST and (
        is_bounded or rows <= _DRIVER_ROWS
    )


def most_rows(task: TextScanTask) -> int:
    """Return the most rows that a task returns for certain, but for ties."""
    most = task.search.most_rows
    return most if task.limit is None or task.keeps_ties else min(most, task.limit)


def _tasks(
    plan: Plan, scanned: tuple[Predicate, ...], residual: ResidualFilter | None
) -> list[TextScanTask]:
    options, request = plan.options, plan.request
    assert options.full_text_query is not None
    for name in ("fragment_ids", "whole_fragments"):
        if getattr(options, name):
            raise InvalidOptionError(
                f"option {name} cannot be combined with full_text_query, which searches all rows; "
                "remove it"
            )
    query = query_of_json(options.full_text_query)
    search = plan.dataset._reader.plan_text(query, **options.search_keywords)
    plan.indexes.extend(search.indexes)
    limit, keeps_ties = options.full_text_limit, False
    if residual is None and not request.aggregates and request.limit is None:
        top = _best_of(request.top)
        if top is not None and (limit is None or top <= limit):
            limit, keeps_ties = top, plan.is_fresh or not _is_complete(request.top)
    target = options.target_rows_per_partition
    if target is None:
        share = search.cost // target_partitions(request.parallelism)
        target = max(share, _SMALLEST_SHARE)
    names = plan.scanned_columns(residual)
    schema = plan.dataset._reader.text_schema(names, options.blob_handling, adds_score=False)
    return [
        plan.dataset._reader.text_task(
            share,
            schema,
            plan.prefilter,
            scanned,
            batch_size=options.batch_size or DEFAULT_BATCH_SIZE,
            limit=limit,
            keeps_ties=keeps_ties,
        )
        for share in ([search] if request.exact else search.shares(target))
    ]


def _best_of(top: Top | None) -> int | None:
    """Return how many rows with the greatest scores are wanted; None if it is another order."""
    if top is None or top.rows > MAX_TOP_ROWS:
        return None
    first = top.order[0]
    return top.rows if first.path == (SCORE.name,) and first.descending else None


def _is_complete(top: Top | None) -> bool:
    """Return whether rows of equal scores are ordered as `Hits.best` orders them."""
    assert top is not None
    further = top.order[1:]
    return not further or (further[0].path == (ROW_ADDRESS.name,) and not further[0].descending)
