"""Plans vector searches: a search, or shares of it, become partitions.

Reads with the option nearest:

| part of the request | planned as |
| --- | --- |
| option filter | decides which rows are searched; with `prefilter` = false, filters found rows |
| filters of Spark | filter the rows that the search finds |
| option nearest_shares; first rows by `_distance` | each partition searches a share |
| anything else | one partition, which returns the rows of the whole search |

`ORDER BY` of a distance with `LIMIT`, if the session allows approximate answers, is a search too,
if an index has the metric of the distance and the scan answers all filters. Fragments that the
index does not cover, and overlaid rows, are read exactly (`scan/nearest_rows`). An index has no
rows without a vector, which Spark orders, too. So it answers in these cases only:

| case | why no row is missing |
| --- | --- |
| a filter `IS NOT NULL`, or a column that is not nullable | such rows are not wanted |
| the order is NULLS LAST, without filters | the index has as many rows as are wanted |
| the index has all live rows of its fragments | there are no such rows |

Otherwise the answer is exact.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_spark.dataset.nearest import searched_indexes
from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.errors import InvalidOptionError
from lance_spark.scan.fragment.row_meta import DISTANCE
from lance_spark.scan.indexes.files import INDEX_ERRORS
from lance_spark.scan.nearest_rows import can_measure
from lance_spark.scan.predicates.column_predicates import IsNull
from lance_spark.scan.predicates.tree import And
from lance_spark.scan.pruning.narrowing import narrowed_slices
from lance_spark.scan.vectors.query import parse_nearest
from lance_spark.scan.vectors.task import VectorScanTask
from lance_spark.scan.vectors.threads import num_processors
from lance_spark.spark.read.planning import (
    AGGREGATE_ROW_BYTES,
    DEFAULT_BATCH_SIZE,
    LancePartition,
    ResidualFilter,
    target_partitions,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_spark.file.schema.schema import Schema
    from lance_spark.scan.predicates.tree import Predicate
    from lance_spark.scan.task import FragmentSlice
    from lance_spark.scan.vectors.search import VectorSearch
    from lance_spark.spark.pushdown.request import Top
    from lance_spark.spark.read.planning import Plan

_LOG = logging.getLogger(__name__)

#: The metric of each function of distances, and whether the greatest values are the nearest.
_METRICS = {
    "l2_distance": ("l2", False),
    "cosine_distance": ("cosine", False),
    "dot_product": ("dot", True),
}
#: Bytes of the vectors of the smallest share: some tenths of a second.
_SMALLEST_SHARE = 1 << 28
#: Vectors of local files are measured without copies, in less time than tasks take to start.
_LOCAL_FACTOR = 8
#: Most rows of a search that the driver runs itself.
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
        partitions = [_partition(task, residual=residual, columns=plan.wanted) for task in tasks]
        if not request.groups:
            size = AGGREGATE_ROW_BYTES * len(partitions)
            return partitions or [LancePartition(None)], max(1, len(partitions)), size
    else:
        partitions = [_partition(task, limit=request.limit, residual=residual) for task in tasks]
    rows = sum(task.most_rows for task in tasks)
    if request.limit is not None:
        rows = min(rows, request.limit * len(partitions))
    return partitions or [LancePartition(None)], rows, plan.size(rows)


def ordered_partitions(plan: Plan) -> tuple[list[LancePartition], int, int | None]:
    """Return partitions with the first rows by a distance, as an index finds them.

    If no index has the distance, and in other cases, partitions give the exact answer.
    """
    filters, residual = plan.filters()
    top = plan.request.top
    # Spark passes a limit in place of first rows if the table is sorted.
    if residual is None and plan.request.limit is None and top is not None:
        partitions = _index_partitions(plan, top, filters)
        if partitions is not None:
            rows = top.rows * len(partitions)
            return partitions, rows, plan.size(rows)
    return plan.partitions()


def _index_partitions(
    plan: Plan, top: Top, filters: tuple[Predicate, ...]
) -> list[LancePartition] | None:
    """Return partitions that search an index.

    Returns
    -------
    list of LancePartition or None
        None if the answer has to be exact: the distance is not that of an index, the first rows are
        the farthest ones, or the read is of some fragments.
    """
    options = plan.options
    first = top.order[0]
    field = plan.ordered_field(first)
    if field is None or first.distance is None or not can_measure(field, first.distance):
        return None
    metric, is_descending = _METRICS[first.distance.function]
    is_part = options.fragment_ids is not None or options.whole_fragments
    if first.descending is not is_descending or is_part or not top.rows:
        return None
    nearest = {"column": field.name, "q": list(first.distance.vector), "k": top.rows}
    query = parse_nearest({**nearest, "metric": metric, **(top.approximate or {})})
    search = plan.dataset._reader.plan_nearest(query, fast_search=True)
    if not search.indexes or not _leaves_nothing_out(plan, search, top, filters):
        return None
    plan.indexes.extend(searched_indexes(plan.dataset._table.paths, search))
    schema = plan.dataset._reader.nearest_schema(
        plan.columns, options.blob_handling, adds_distance=False
    )
    tasks = _shares(plan, _task(plan, search, schema, filters, ()))
    return [*map(_partition, tasks), *_uncovered(plan, search)]


def _leaves_nothing_out(
    plan: Plan, search: VectorSearch, top: Top, filters: tuple[Predicate, ...]
) -> bool:
    """Return whether rows without a vector are not among the first rows."""
    field = search.path[-1]
    for predicate in filters:
        for part in predicate.parts if isinstance(predicate, And) else (predicate,):
            if isinstance(part, IsNull) and part.inverted and part.column.field == field:
                return True
    if not field.nullable:
        return True
    dataset = plan.dataset
    if not filters and not top.order[0].nulls_first:
        # At most so many vectors of the index are not those of live rows that it covers.
        others = sum(
            part.num_deleted_rows if part.id in search.covered else part.physical_rows
            for part in dataset.fragments
        ) + sum(map(len, search.overlaid.values()))
        if search.num_rows - others >= top.rows:
            return True
    try:
        return search.has_every_row(
            dataset._table.paths, dataset.fragments, dataset._reader.find_rows
        )
    except INDEX_ERRORS as error:
        _LOG.warning("the vector index of column %r is ignored: %s", search.query.column, error)
        return False


def _uncovered(plan: Plan, search: VectorSearch) -> list[LancePartition]:
    """Return partitions with the exact first rows of the rows that the index lacks."""
    rows = {
        part.id: RowRanges.of_rows(np.array(overlaid, np.int64))
        if (overlaid := search.overlaid.get(part.id))
        else RowRanges.of([range(part.physical_rows)])
        for part in plan.dataset.fragments
        if part.id not in search.covered or part.id in search.overlaid
    }
    if not rows:
        return []
    options = replace(plan.options, fragment_ids=tuple(rows))
    partitions, _, _ = replace(plan, options=options).partitions()
    for partition in partitions:
        if (task := partition.task) is not None:
            pieces = (part for piece in task.slices for part in narrowed_slices(piece, rows))
            partition.task = replace(task, slices=tuple(pieces))
            partition.search_cost = partition.task.num_rows * search.dtype.stored_bytes
    return [part for part in partitions if part.task is None or part.task.slices]


def is_nearest_for_driver(plan: Plan, partitions: Sequence[LancePartition]) -> bool:
    """Return whether the driver is quicker than tasks."""
    budget = plan.options.driver_read_bytes
    if plan.dataset._table.paths.store.is_local and _has_processors(plan.request.parallelism):
        budget *= _LOCAL_FACTOR
    tasks = [part.task for part in partitions if isinstance(part.task, VectorScanTask)]
    cost = sum(part.search_cost or 0 for part in partitions)
    return cost <= budget and sum(task.most_rows for task in tasks) <= _DRIVER_ROWS


def _has_processors(tasks: int | None) -> bool:
    """Return whether this machine has processors for so many tasks."""
    return tasks is not None and tasks <= num_processors()


def _partition(task: VectorScanTask, **arguments: Any) -> LancePartition:
    partition = LancePartition(task, **arguments)
    partition.search_cost = task.num_measured * task.search.dtype.stored_bytes
    return partition


def _shares(plan: Plan, whole: VectorScanTask) -> list[VectorScanTask]:
    """Return tasks that each search a part of the partitions of a segment, or of the rows."""
    search = whole.search
    target = _target(plan, search)
    rows = max(1, target // search.num_queries)
    shares = search.shares(target)
    are_of_segments = sum(len(share.segments) for share in shares) > len(search.segments)
    if whole.prefilter and are_of_segments and plan.options.driver_read_bytes:
        whole = whole.with_passing()
    tasks = []
    for share in shares:
        task = whole.share(share)
        # Shares have whole fragments.
        tasks += [task] if share.segments else [replace(task, slices=p) for p in _cut(task, rows)]
    return [*tasks, *whole.further_shares()]


def _cut(task: VectorScanTask, rows: int) -> list[tuple[FragmentSlice, ...]]:
    """Return the slices of a task in groups of about some number of rows."""
    groups: list[tuple[FragmentSlice, ...]] = []
    current: list[FragmentSlice] = []
    num_rows = 0
    for piece in task.slices:
        for first in range(0, piece.num_rows, rows):
            current.append(piece.part(first, min(first + rows, piece.num_rows)))
            num_rows += current[-1].num_rows
            if num_rows >= rows:
                groups.append(tuple(current))
                current, num_rows = [], 0
    return [*groups, tuple(current)] if current or not groups else groups


def _target(plan: Plan, search: VectorSearch) -> int:
    """Return the cost that shares of a search aim at, in vectors."""
    if plan.options.target_rows_per_partition is not None:
        return plan.options.target_rows_per_partition
    smallest = _SMALLEST_SHARE // search.dtype.stored_bytes
    return max(search.cost // target_partitions(plan.request.parallelism), smallest, 1)


def _task(
    plan: Plan,
    search: VectorSearch,
    schema: Schema,
    prefilter: tuple[Predicate, ...],
    filters: tuple[Predicate, ...],
) -> VectorScanTask:
    batch_size = plan.options.batch_size or DEFAULT_BATCH_SIZE
    return plan.dataset._reader.nearest_task(
        search, schema, prefilter, filters, batch_size=batch_size
    )


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
    search = plan.dataset._reader.plan_nearest(query, **options.search_keywords)
    plan.indexes.extend(searched_indexes(plan.dataset._table.paths, search))
    prefilter = plan.prefilter if options.prefilter else ()
    early = [id(predicate) for predicate in prefilter]
    later = tuple(predicate for predicate in scanned if id(predicate) not in early)
    names = plan.scanned_columns(residual)
    schema = plan.dataset._reader.nearest_schema(
        names, options.blob_handling, is_batch=search.query.is_batch, adds_distance=False
    )
    can_share = options.nearest_shares or (
        not later and residual is None and not request.aggregates and _is_ordered(plan, query.k)
    )

    task = _task(plan, search, schema, prefilter, later)
    return _shares(plan, task) if can_share and not request.exact else [task]


def _is_ordered(plan: Plan, k: int) -> bool:
    """Return whether the first rows by distance are wanted, and no more than the search has."""
    top = plan.request.top
    if top is None or top.rows > k or plan.options.nearest is None:
        return False
    first = top.order[0]
    is_first = first.path == (DISTANCE.name,) and first.distance is None and not first.descending
    return is_first and not parse_nearest(plan.options.nearest).is_batch
