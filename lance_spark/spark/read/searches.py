"""Plans searches by vectors, by text, and by both."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from lance_spark.dataset.queries import searched_indexes
from lance_spark.encoding.rows import RowRanges
from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.file.schema.schema import Schema
from lance_spark.indexes.candidates import narrowed_slices
from lance_spark.indexes.files import INDEX_ERRORS
from lance_spark.indexes.text.queries import query_of_json
from lance_spark.indexes.text.search import TextScanTask
from lance_spark.indexes.vectors.distances import num_processors
from lance_spark.indexes.vectors.query import parse_nearest
from lance_spark.indexes.vectors.search import VectorScanTask
from lance_spark.predicates.columns import IsNull
from lance_spark.predicates.tree import And
from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX, ROW_ADDRESS, ROW_ID, SCORE
from lance_spark.scan.nearest_rows import can_measure
from lance_spark.scan.plan import pack_slices
from lance_spark.spark.quoting import quoted
from lance_spark.spark.read.planning import (
    DEFAULT_BATCH_SIZE,
    MAX_TOP_ROWS,
    LancePartition,
    ResidualFilter,
    target_partitions,
)
from lance_spark.spark.read.projection import select, with_row_columns
from lance_spark.table.primary_key import primary_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_spark.indexes.vectors.search import VectorSearch
    from lance_spark.predicates.tree import Predicate
    from lance_spark.spark.pushdown.request import Top
    from lance_spark.spark.read.planning import Plan


# --------------------------------------------------------------------------------------------------
# What Spark does with the rows that the tasks of a search return.
#
# | step | value |
# | --- | --- |
# | `order` | list of columns with whether the order is descending; nulls are last |
# | `limit`, `offset` | number of rows |
# | `where` | condition in Spark's SQL |
# | `select` | list of expressions in Spark's SQL |
# | `drop` | name of a column |
#
# `LanceTable` and the table functions in the JVM (`SearchFunction.java`) make the same steps.

Step = tuple[str, Any]
_NUMBER = "__number"


def text_steps(limit: int | None, ties: Sequence[str] = (ROW_ADDRESS.name,)) -> list[Step]:
    """Return the steps to the rows with the greatest scores.

    - `ties`: The columns that order rows with equal scores.
    """
    order: Step = ("order", [(SCORE.name, True), *((name, False) for name in ties)])
    return [order] if limit is None else [order, ("limit", limit)]


def nearest_steps(k: int, *, is_batch: bool, ties: Sequence[str] = (ROW_ID.name,)) -> list[Step]:
    """Return the steps to the nearest rows: of each query, if there are several.

    - `ties`: The columns that order rows with equal distances.
    """
    keys = [(name, False) for name in (DISTANCE.name, *ties)]
    if not is_batch:
        return [("order", keys), ("limit", k)]
    order = ", ".join(f"{name} NULLS LAST" for name, _ in keys)
    window = f"PARTITION BY {QUERY_INDEX.name} ORDER BY {order}"
    return [
        ("select", ["*", f"row_number() OVER ({window}) AS {_NUMBER}"]),
        ("where", f"{_NUMBER} <= {k}"),
        ("drop", _NUMBER),
        ("order", [(QUERY_INDEX.name, False), *keys]),
    ]


def last_steps(where: str | None, added: str, columns: Collection[str]) -> list[Step]:
    """Return the steps that filter found rows, and leave out a column that is not selected."""
    steps: list[Step] = [] if where is None else [("where", where)]
    return steps if added in columns else [*steps, ("drop", added)]


def after(frame: DataFrame, steps: Iterable[Step]) -> DataFrame:
    """Return rows after some steps."""
    from pyspark.sql import functions

    for step, value in steps:
        match step:
            case "order":
                keys: Sequence[tuple[str, bool]] = value
                frame = frame.orderBy(
                    *(
                        functions.desc(name) if down else functions.asc_nulls_last(name)
                        for name, down in keys
                    )
                )
            case "select":
                frame = frame.selectExpr(*value)
            case _:
                frame = getattr(frame, step)(value)
    return frame


# --------------------------------------------------------------------------------------------------
# Plans vector searches: a search, or shares of it, become partitions.
#
# Reads with the option nearest:
#
# | part of the request | planned as |
# | --- | --- |
# | option filter | decides which rows are searched; with `prefilter` = false, filters found rows |
# | filters of Spark | filter the rows that the search finds |
# | option nearest_shares; first rows by `_distance` | each partition searches a share |
# | anything else | one partition, which returns the rows of the whole search |
#
# `ORDER BY` of a distance with `LIMIT`, if the session allows approximate answers, is a search too,
# if an index has the metric of the distance and the scan answers all filters. Fragments that the
# index does not cover, and overlaid rows, are read exactly (`scan/nearest_rows`). An index has no
# rows without a vector, which Spark orders, too. So it answers in these cases only:
#
# | case | why no row is missing |
# | --- | --- |
# | a filter `IS NOT NULL`, or a column that is not nullable | such rows are not wanted |
# | the order is NULLS LAST, without filters | the index has as many rows as are wanted |
# | the index has all live rows of its fragments | there are no such rows |
#
# Otherwise the answer is exact.

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


def nearest_partitions(plan: Plan) -> tuple[list[LancePartition], int]:
    """Return the partitions, and the maximum number of their rows.

    Raises InvalidOptionError: an option cannot be combined with nearest. Raises LanceError: as
    `plan_vectors`.
    """
    scanned, residual = plan.filters()
    request = plan.request
    tasks = _tasks(plan, scanned, residual)
    if request.is_aggregated:
        partitions = [_partition(task, residual=residual, columns=plan.wanted) for task in tasks]
        if not request.groups:
            return partitions or [LancePartition(None)], max(1, len(partitions))
    else:
        partitions = [_partition(task, limit=request.limit, residual=residual) for task in tasks]
    rows = sum(task.most_rows for task in tasks)
    if request.limit is not None:
        rows = min(rows, request.limit * len(partitions))
    return partitions or [LancePartition(None)], rows


def ordered_partitions(plan: Plan) -> tuple[list[LancePartition], int]:
    """Return partitions with the first rows by a distance, as an index finds them.

    If no index has the distance, and in other cases, partitions give the exact answer.
    """
    filters, residual = plan.filters()
    top = plan.request.top
    # Spark passes a limit in place of first rows if the table is sorted.
    if residual is None and plan.request.limit is None and top is not None:
        partitions = _index_partitions(plan, top, filters)
        if partitions is not None:
            return partitions, top.rows * len(partitions)
    return plan.partitions()


def _index_partitions(
    plan: Plan, top: Top, filters: tuple[Predicate, ...]
) -> list[LancePartition] | None:
    """Return partitions that search an index.

    Returns None if the answer has to be exact: the distance is not that of an index, the first rows
    are the farthest ones, or the read is of some fragments.
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
        plan.columns, adds=False, blob_handling=options.blob_handling
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
    partitions, _ = replace(plan, options=options).partitions()
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
        if share.segments:
            tasks.append(task)
        else:
            # Shares have whole fragments.
            groups = pack_slices(task.slices, rows) or [()]
            tasks += [replace(task, slices=slices) for slices in groups]
    return [*tasks, *whole.further_shares()]


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
        names,
        is_batch=search.query.is_batch,
        adds=False,
        blob_handling=options.blob_handling,
    )
    can_share = options.nearest_shares or (
        not later and residual is None and not request.is_aggregated and _is_ordered(plan, query.k)
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


# --------------------------------------------------------------------------------------------------
# Plans reads with the option full_text_query: shares of the search become partitions.
#
# | part of the request | planned as |
# | --- | --- |
# | option filter | decides which rows are searched |
# | filters of Spark | rows that match are filtered after the search; they do not change scores |
# | first rows by `_score`, the greatest first | the best rows of each partition |
# | first rows in other orders, limit | rows of each partition |
# | exact limit | one partition |
#
# The driver reads the statistics of the index, by which all partitions score alike.

#: Least cost of a share, in postings: some tenths of a second.
_SMALLEST_TEXT_SHARE = 4_000_000
#: Greatest cost of a search that the driver runs itself.
_DRIVER_COST = 2_000_000
#: Most rows that have a token of such a search. All tokens of a query are often in few of them.
_DRIVER_TEXT_ROWS = 100_000


def text_partitions(plan: Plan) -> tuple[list[LancePartition], int]:
    """Return the partitions, and the maximum number of their rows.

    Raises InvalidOptionError: an option cannot be combined with full_text_query. Raises LanceError:
    as `plan_search`.
    """
    scanned, residual = plan.filters()
    tasks = _text_tasks(plan, scanned, residual)
    request = plan.request
    if request.is_aggregated:
        partitions = [
            LancePartition(task, residual=residual, columns=plan.wanted) for task in tasks
        ]
        if not request.groups:
            return partitions or [LancePartition(None)], max(1, len(partitions))
    else:
        partitions = [LancePartition(task, request.limit, residual) for task in tasks]
    rows = min(plan.dataset._reader.max_rows, sum(most_rows(task) for task in tasks))
    if request.limit is not None:
        rows = min(rows, request.limit * len(partitions))
    return partitions or [LancePartition(None)], rows


def is_search_for_driver(plan: Plan, partitions: Sequence[LancePartition]) -> bool:
    """Return whether the driver is quicker than tasks, and the rows are likely to be few."""
    tasks = [partition.task for partition in partitions if isinstance(partition.task, TextScanTask)]
    rows = sum(most_rows(task) for task in tasks)
    is_bounded = plan.request.is_aggregated or plan.request.limit is not None
    return sum(task.search.cost for task in tasks) <= _DRIVER_COST and (
        is_bounded or rows <= _DRIVER_TEXT_ROWS
    )


def most_rows(task: TextScanTask) -> int:
    """Return the most rows that a task returns for certain, but for ties."""
    most = task.search.most_rows
    return most if task.limit is None or task.keeps_ties else min(most, task.limit)


def _text_tasks(
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
    if residual is None and not request.is_aggregated and request.limit is None:
        top = _best_of(request.top)
        if top is not None and (limit is None or top <= limit):
            limit, keeps_ties = top, plan.is_fresh or not _is_complete(request.top)
    target = options.target_rows_per_partition
    if target is None:
        share = search.cost // target_partitions(request.parallelism)
        target = max(share, _SMALLEST_TEXT_SHARE)
    names = plan.scanned_columns(residual)
    schema = plan.dataset._reader.text_schema(
        names, adds=False, blob_handling=options.blob_handling
    )
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


# --------------------------------------------------------------------------------------------------
# Hybrid search: rows that two searches find, by vectors and by text, in one order.
#
# Each search finds candidates. A candidate of both searches is one row. Expressions in Spark's SQL
# compute its relevance:
#
# | reranker | `_relevance_score` |
# | --- | --- |
# | `rrf` | sum over the searches of 1 / (rank + `rrf_k`); the first row has the rank 0 |
# | `linear` | `weight` * similarity + (1 - `weight`) * score |
#
# For `linear`, the candidates of each search are scaled: 1 for the nearest row and for the greatest
# score, 0 for the last candidate. A row that a search has not found has no part of it.
#
# Rows of the table are matched by their addresses. Rows of a MemWAL have none, and are matched by
# the primary key.

DEFAULT_RRF_K = 60.0
#: The column of relevance.
RELEVANCE = "_relevance_score"
#: The aliases of the searches.
VECTORS, TEXTS = "vectors", "texts"
#: The column of the candidates' ranks, or scaled distances or scores.
_PART = "__part"


@dataclass(frozen=True, slots=True)
class RowMatch:
    """How the rows of two searches are matched.

    - `key`: The columns of the primary key in Spark's SQL, if rows of a MemWAL are searched.
    - `columns`: The columns that the searches read; all if None.
    - `added`: Those of them that are not wanted.
    """

    key: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    added: tuple[str, ...] = ()

    @classmethod
    def by_key(cls, schema: Schema, columns: Sequence[str] | None, table: str) -> Self:
        """RowMatch rows of a table and of its MemWAL.

        Raises InvalidInputError: the table has no primary key whose columns are not nullable, or
        some children only of a struct are wanted that has a column of the key. Raises
        InvalidOptionError: a column is not found.
        """
        paths = primary_key(schema)
        if not paths or any(node.nullable for path in paths for node in path):
            raise InvalidInputError(
                f"table {table}: a hybrid search with fresh rows matches rows by the primary key, "
                "and the table has none whose columns are not nullable; search vectors and texts "
                "one after the other"
            )
        key = tuple(quoted(*(node.name for node in path)) for path in paths)
        if columns is None:
            return cls(key)
        wanted = select(with_row_columns(schema.to_arrow()), columns, table)
        read, added = [*columns], []
        for top, *children in paths:
            if top.name not in wanted.names:
                read.append(".".join(node.name for node in (top, *children)))
                added.append(top.name)
                continue
            dtype = wanted.field(top.name).type
            for child in children:
                if dtype.get_field_index(child.name) < 0:
                    raise InvalidInputError(
                        f"table {table}: column {top.name!r} has a column of the primary key, by "
                        "which a hybrid search with fresh rows matches rows; name the whole "
                        "column, and not its children"
                    )
                dtype = dtype.field(child.name).type
        return cls(key, tuple(read), tuple(dict.fromkeys(added)))

    @property
    def condition(self) -> str:
        """The condition of the full outer join of the rows."""
        first, second = (f"{side}.{ROW_ADDRESS.name}" for side in (VECTORS, TEXTS))
        if not self.key:
            return f"{first} = {second}"
        # A key can have several rows in a table where it is not enforced. A row that was compacted
        # between the two searches has an address in one of them.
        keys = (f"{VECTORS}.{column} = {TEXTS}.{column}" for column in self.key)
        return " AND ".join([*keys, f"coalesce({first} = {second}, true)"])

    @property
    def ties(self) -> tuple[str, ...]:
        """The columns that order rows that are equally relevant."""
        return ROW_ADDRESS.name, *self.key

    def last_steps(self, limit: int) -> list[Step]:
        """Return the steps from joined rows with their relevance to the most relevant rows."""
        order = [(RELEVANCE, True), *((name, False) for name in self.ties)]
        return [("order", order), ("limit", limit), *(("drop", name) for name in self.added)]


@dataclass(frozen=True, slots=True)
class Hybrid:
    """How two searches are combined.

    - `reranker`: "rrf" or "linear".
    - `rrf_k`: More than 0.
    - `weight`: Of the vector search, from 0 to 1.

    Raises InvalidInputError: a value is out of range.
    """

    reranker: str = "rrf"
    rrf_k: float = DEFAULT_RRF_K
    weight: float = 0.7
    match: RowMatch = RowMatch()

    def __post_init__(self) -> None:
        if self.reranker not in ("rrf", "linear"):
            raise InvalidInputError(
                f"reranker must be one of 'rrf', 'linear' or a function, not {self.reranker!r}"
            )
        if not (_is_number(self.rrf_k) and 0 < self.rrf_k < math.inf):
            raise InvalidInputError(f"rrf_k must be a number greater than 0, not {self.rrf_k!r}")
        if not (_is_number(self.weight) and 0 <= self.weight <= 1):
            raise InvalidInputError(f"weight must be a number from 0 to 1, not {self.weight!r}")

    @property
    def parts(self) -> tuple[str, str]:
        """Expressions to add to the rows of the vector search, and of the text search."""
        distance, score = DISTANCE.name, SCORE.name
        if self.reranker == "rrf":
            return self._ranked(distance, distance), self._ranked(score, f"{score} DESC")
        return _scaled(distance, f"-double({distance})"), _scaled(score, f"double({score})")

    def _ranked(self, column: str, order: str) -> str:
        ties = ", ".join(f"{name} NULLS LAST" for name in self.match.ties)
        return f"row_number() OVER ({_all(column)} ORDER BY {order}, {ties}) - 1 AS {_PART}"

    def columns(self, names: Sequence[str]) -> list[str]:
        """Return the expressions of the columns of the joined rows.

        - `names`: Columns that both searches return, `ROW_ADDRESS` among them.
        """
        columns = [*candidates(names)]
        values = [f"{side}.{_PART}" for side in (VECTORS, TEXTS)]
        if self.reranker == "rrf":
            values = [f"1D / ({value} + {float(self.rrf_k)!r}D)" for value in values]
        else:
            weights = self.weight, 1 - self.weight
            values = [
                f"{float(weight)!r}D * {value}"
                for weight, value in zip(weights, values, strict=True)
            ]
        total = " + ".join(f"coalesce({value}, 0D)" for value in values)
        return [*columns, f"float({total}) AS {RELEVANCE}"]


def candidates(names: Sequence[str]) -> list[str]:
    """Return the expressions of the columns of the joined rows, without relevance."""
    columns = []
    for name in names:
        column = quoted(name)
        columns.append(f"coalesce({VECTORS}.{column}, {TEXTS}.{column}) AS {column}")
    return [*columns, f"{VECTORS}.{DISTANCE.name}", f"{TEXTS}.{SCORE.name}"]


@dataclass(frozen=True)
class Rerank:
    """Work that adds the relevance to all candidates.

    - `reranker`: Gets a table, and returns a number for each row.
    - `names`: Columns of the candidates.
    """

    reranker: Callable[[pa.Table], Any]
    names: tuple[str, ...]

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the candidates with their relevance.

        Raises InvalidInputError: the function does not return a number for each row.
        """
        rows = rows.select(self.names)
        result = self.reranker(rows)
        try:
            if isinstance(result, pa.ChunkedArray):
                result = result.combine_chunks()
            values = result if isinstance(result, pa.Array) else pa.array(result)
            relevance = values.cast(pa.float32(), safe=False)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise InvalidInputError(
                f"the reranker must return a number for each row: {error}"
            ) from None
        if len(relevance) != rows.num_rows:
            raise InvalidInputError(
                f"the reranker returned {len(relevance)} numbers for {rows.num_rows} rows; it must "
                "return one for each row"
            )
        return rows.append_column(RELEVANCE, relevance)


def num_candidates(candidates: int | None, wanted: int) -> int:
    """Return how many rows each search finds."""
    return wanted if candidates is None else max(candidates, wanted)


def _all(column: str) -> str:
    """Return a partition of all rows. Spark warns of windows without a partition."""
    return f"PARTITION BY isnull({column})"


def _scaled(column: str, value: str) -> str:
    low, high = (f"{bound}({value}) OVER ({_all(column)})" for bound in ("min", "max"))
    return f"if({high} = {low}, 1D, ({value} - {low}) / ({high} - {low})) AS {_PART}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
