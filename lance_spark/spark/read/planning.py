"""Planning of reads: from a request of Spark to partitions.

| part of the request | planned as |
| --- | --- |
| filter on columns as they are stored | filter of the scan (late materialisation) |
| filter on values as Spark has them: JSON, blobs, other time units | residual filter |
| limit without filters | no more slices than have enough rows |
| first rows in an order | first rows of each partition, if values are ordered as they are stored |
| first rows in the order of the table | limit |
| first rows in the reverse order, without filters | first rows of the last partitions |
| exact limit | one partition |

Both kinds of filters are exact: Spark does not check them again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.file.blobs.fields import without_bytes
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.task import ScanTask
from lance_spark.spark.options.declared import DEFAULT_BLOB_HANDLING
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.pushdown.request import PushedScan, SortOrder, Top, Version
from lance_spark.spark.read.projection import find, missing_column, paths_for
from lance_spark.spark.replies import reply_of

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.file.schema.field import Field
    from lance_spark.predicates.tree import Predicate
    from lance_spark.scan.nearest_rows import NearestRows
    from lance_spark.scan.plan import UsedIndex
    from lance_spark.scan.top_rows import FirstRows
    from lance_spark.scan.vector_distances import Distance
    from lance_spark.spark.options.predicate_text import OptionText
    from lance_spark.spark.pushdown.request import SortOrder, Top

#: Maximum number of rows of a batch by default. The scan itself returns fewer if rows are wide.
DEFAULT_BATCH_SIZE = 65_536
#: Minimum number of partitions of a large table, if the cluster's number of cores is unknown.
MIN_PARTITIONS = 8
#: Maximum number of rows of an order that a task keeps in memory.
MAX_TOP_ROWS = 100_000
#: Aggregates that do not depend on the values of a column.
_COUNTS = ("count_star", "count")
#: Approximate size in Spark of a row of aggregates.
_AGGREGATE_ROW_BYTES = 64


class LancePartition(InputPartition):
    """The part of a scan that one task reads.

    - `task`: None for a table without rows.
    - `limit`: Number of rows after which the task stops.
    - `values`: Values of aggregates that are known without reading.
    - `columns`: Columns that aggregates are computed from.
    - `top`: The only rows that are wanted.
    - `text`: Text of a predicate that the task checks before it reads.
    - `search_cost`: Bytes of the vectors that the task measures, if it is a vector search.
    """

    def __init__(
        self,
        task: ScanTask | None,
        limit: int | None = None,
        residual: ResidualFilter | None = None,
        values: list[pa.Array] | None = None,
        columns: StructType | None = None,
        top: FirstRows | None = None,
    ) -> None:
        super().__init__(None)
        self.task = task
        self.limit = limit
        self.residual = residual
        self.values = values
        self.columns = columns
        self.top = top
        self.text: OptionText | None = None
        self.search_cost: int | None = None


class PlanReply(InputPartition):
    """The reply to a request of the rule, which travels in place of the first partition.

    The rule (`PlanReply.java`) takes it out of the pickle; Spark never sees it as a partition.

    - `rows`, `size`: Maximum number of rows, and of their bytes in Spark; None if unknown.
    - `version`: Version that other scans of the same query are to read.
    - `fragments`: Number of fragments that the partitions read, and number of fragments of the
      table.
    - `table`: Where the table is, as EXPLAIN shows it.
    - `stream`: All rows as an Arrow stream, if they were read on the driver.
    - `columnar`: "yes" if tasks return columns, or why not; None if the request does not ask for
      them.
    - `has_many_groups`: Whether Spark is to ask for rows, and make the groups itself.
    - `ordered`: The order of the rows of each partition.
    - `indexes`: The indexes that rule out rows.
    - `fresh`: How many SSTables and WAL entries of a MemWAL are read.
    - `unread`: A warning about rows that are not read.
    - `keys`: The keys of the partitions, whose values the stream has.
    - `spent`: Bytes of columns that the driver has read.
    """

    def __init__(
        self,
        rows: int | None,
        size: int | None,
        version: Version,
        fragments: tuple[int, int],
        table: str,
        stream: bytes | None = None,
        columnar: str | None = None,
        has_many_groups: bool = False,
        ordered: Sequence[SortOrder] = (),
        indexes: Sequence[UsedIndex] = (),
        fresh: tuple[int, int] | None = None,
        unread: str | None = None,
        keys: list[dict[str, Any]] | None = None,
        spent: int = 0,
    ) -> None:
        data = None if stream is None else "rows" if keys is None else "keys"
        self.has_rows = data == "rows"
        super().__init__(
            reply_of(
                "plan",
                stream or b"",
                rows=-1 if rows is None else rows,
                bytes=-1 if size is None else size,
                at=str(version),
                fragments=fragments,
                table=table,
                columnar=columnar,
                many_groups=has_many_groups,
                ordered=[order.in_reply() for order in ordered],
                indexes=", ".join(map(str, indexes)) or None,
                fresh=fresh,
                unread=unread,
                keys=keys,
                spent=spent,
                data=data,
            )
        )


@dataclass(frozen=True, slots=True)
class ResidualFilter:
    """A filter on values as Spark gets them, applied after the scan.

    - `schema`: Columns that the task converts for it: columns of the result, and columns of the
      filter.
    """

    schema: StructType
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Plan:
    """A read of one version of a table, before it is split into partitions.

    - `schema`: All columns that can be read, with blobs as the options choose.
    - `known`: The same columns as they are stored (`known_columns`).
    - `wanted`: Columns of the result, or of its aggregates.
    - `columns`: Their paths.
    - `pushed`: Filters besides the filters of the request.
    - `prefilter`: Those of them that are options: they decide which rows a search searches.
    - `ordered`: The order of the rows of each task, if it is known.
    - `indexes`: The indexes that rule out rows; complete after `partitions`.
    """

    dataset: Dataset
    options: ReadOptions
    table: str
    schema: pa.Schema
    known: Schema
    wanted: StructType
    columns: list[str]
    request: PushedScan
    pushed: tuple[Predicate, ...]
    prefilter: tuple[Predicate, ...] = ()
    ordered: tuple[SortOrder, ...] = ()
    indexes: list[UsedIndex] = field(default_factory=list)

    @property
    def is_fresh(self) -> bool:
        """Whether rows of a MemWAL are read, too: these have no addresses."""
        return bool(self.options.fresh)

    @property
    def reported_order(self) -> tuple[SortOrder, ...]:
        """The order of the rows of each partition; empty if it is unknown."""
        # Nothing is said of the first rows in another order.
        return () if self.request.is_aggregated or self.request.top is not None else self.ordered

    def partitions(self) -> tuple[list[LancePartition], int]:
        """Return the partitions, and the maximum number of their rows."""
        scanned, residual = self.filters()
        # Which rows of a fresh read are hidden is known only when they are read.
        filtered = bool(scanned) or residual is not None or self.is_fresh
        if self.request.is_aggregated:
            return self._aggregates(scanned, residual)
        limit = self.request.limit
        tasks = self._tasks(scanned, residual)
        top = self._top() if residual is None and limit is None else None
        if not filtered and self.request.top is not None and self._is_reversed(self.request.top):
            tasks = last_tasks(tasks, self.request.top.rows)
        if limit is None or filtered:
            partitions = [LancePartition(task, limit, residual, top=top) for task in tasks]
        else:
            partitions = first_rows(tasks, limit)
        if self.request.exact and len(partitions) > 1:
            partitions = [_merged(partitions, limit)]
        rows = self.dataset._reader.max_rows
        if not self.is_fresh:
            # Indexes and chosen fragments leave fewer.
            rows = min(rows, sum(task.num_rows for task in tasks))
        if limit is not None:
            rows = min(rows, limit * (len(partitions) if filtered else 1))
        elif top is not None:
            rows = min(rows, top.count * len(partitions))
        return partitions or [LancePartition(None)], rows

    def _is_reversed(self, top: Top) -> bool:
        """Return whether the first rows are the last rows of the table."""
        reverse = [
            SortOrder(order.path, not order.descending, not order.nulls_first)
            for order in self.ordered[: len(top.order)]
        ]
        return top.order == tuple(reverse)

    def _aggregates(
        self, scanned: tuple[Predicate, ...], residual: ResidualFilter | None
    ) -> tuple[list[LancePartition], int]:
        from lance_spark.spark.read.aggregates import known_values

        # Values that are known without reading are values of all rows.
        is_whole = (
            not scanned
            and residual is None
            and self.options.fragment_ids is None
            and not self.is_fresh
        )
        if is_whole and not self.request.groups:
            values = known_values(self.request.aggregates, self.dataset, self.schema)
            if values is not None:
                return [LancePartition(None, values=values)], 1
        tasks = self._tasks(scanned, residual)
        if residual is None and not self.is_fresh:
            tasks = list(map(self._counting, tasks))
        partitions = [
            LancePartition(task, residual=residual, columns=self.wanted) for task in tasks
        ]
        rows = self.dataset._reader.max_rows if self.request.groups else max(1, len(partitions))
        return partitions or [LancePartition(None)], rows

    def _counting(self, task: ScanTask) -> ScanTask:
        """Return a task that does not load blobs whose values are only counted."""
        fields = task.lance_schema.fields
        is_binary = self.options.blob_handling == DEFAULT_BLOB_HANDLING
        if not is_binary or not any(field.has_blobs for field in fields):
            return task
        paths = [item.path for item in self.request.aggregates if item.op not in _COUNTS]
        sources = {field.name for item in self.request.computed for field in item.sources}
        loaded = {path[0] for path in (*paths, *self.request.groups)} | sources
        kept = tuple(field if field.name in loaded else without_bytes(field) for field in fields)
        return replace(task, lance_schema=replace(task.lance_schema, fields=kept))

    def _top(self) -> FirstRows | None:
        """Return the first rows of a request; None if tasks return all rows."""
        top = self.request.top
        if top is None or top.rows > MAX_TOP_ROWS or self.is_fresh:
            return None
        if row_meta.ROW_OFFSET.name in self.columns:
            return None
        from lance_spark.scan.top_rows import SortKey, TopRows, can_order

        first = top.order[0]
        if first.distance is not None:
            return self._nearest(first, first.distance, top)
        keys = []
        for order in top.order:
            field = self.ordered_field(order)
            if field is None or order.distance is not None or not can_order(field):
                return None
            keys.append(SortKey(field, order.descending, order.nulls_first))
        return TopRows(tuple(keys), top.rows)

    def _nearest(self, order: SortOrder, distance: Distance, top: Top) -> NearestRows | None:
        from lance_spark.scan.nearest_rows import NearestRows, can_measure

        field = self.ordered_field(order)
        if field is None or not can_measure(field, distance):
            return None
        has_more_keys = len(top.order) > 1
        direction = order.descending, order.nulls_first
        return NearestRows(field, distance, *direction, has_more_keys, top.rows)

    def ordered_field(self, order: SortOrder) -> Field | None:
        """Return the top-level column of a key; None if Spark has other values of it."""
        from lance_spark.spark.types.mapping import spark_type_of

        name = order.path[0]
        fields = [field for field in self.known.fields if field.name == name]
        if len(order.path) > 1 or len(fields) != 1 or fields[0].has_blobs:
            return None
        matches = [field for field in self.wanted if field.name == name]
        # A user's schema may read values as another type, which has another order.
        dtype = spark_type_of(fields[0].to_arrow())
        return None if matches and matches[0].dataType != dtype else fields[0]

    def filters(self) -> tuple[tuple[Predicate, ...], ResidualFilter | None]:
        """Return the filters of the scan, and the residual filter."""
        if not self.request.filters:
            return self.pushed, None
        from lance_spark.spark.pushdown.filter_trees import to_predicate

        scanned = list(self.pushed)
        unscanned: list[dict[str, Any]] = []
        for tree in self.request.filters:
            try:
                scanned.append(to_predicate(tree, self.known))
            except InvalidInputError:
                unscanned.append(tree)
        return tuple(scanned), self._residual(unscanned) if unscanned else None

    def _residual(self, trees: Sequence[dict[str, Any]]) -> ResidualFilter:
        from lance_spark.predicates.tree import conjunction
        from lance_spark.spark.pushdown.filter_trees import columns_of, to_predicate
        from lance_spark.spark.types.mapping import batch_schema, to_spark_schema

        fields = {field.name: field for field in self.wanted}
        for name in dict.fromkeys(path[0] for tree in trees for path in columns_of(tree)):
            index = find(self.schema.names, name)
            if index < 0:
                names = self.schema.names
                raise SchemaMismatchError(missing_column(name, name, names, self.table))
            # Replaces a struct that is wanted with fewer children.
            (fields[name],) = to_spark_schema(pa.schema([self.schema.field(index).with_name(name)]))
        schema = StructType(list(fields.values()))
        converted = Schema.from_arrow(batch_schema(schema))
        predicate = conjunction([to_predicate(tree, converted) for tree in trees])
        assert predicate is not None
        return ResidualFilter(schema, predicate)

    def scanned_columns(self, residual: ResidualFilter | None) -> list[str]:
        """Return the paths of the columns of the result and of a residual filter."""
        if residual is None:
            return self.columns
        return paths_for(self.schema, residual.schema, self.table)

    def _tasks(
        self, filters: Sequence[Predicate], residual: ResidualFilter | None
    ) -> list[ScanTask]:
        reader = self.dataset._reader
        plan = reader.plan(
            self.scanned_columns(residual),
            reader.conditions(None, _all_of(filters)),
            rows_per_task=self.options.target_rows_per_partition,
            min_partitions=target_partitions(self.request.parallelism),
            batch_size=self.options.batch_size or DEFAULT_BATCH_SIZE,
            blob_handling=self.options.blob_handling,
            fragment_ids=self.options.fragment_ids,
            whole_fragments=self.options.whole_fragments,
            use_scalar_index=self.options.use_scalar_index,
        )
        self.indexes.extend(plan.indexes)
        return plan.tasks

    def size(self, rows: int) -> int | None:
        """Return about how many bytes rows take in Spark; None if it is unknown."""
        if self._has_totals:
            return _AGGREGATE_ROW_BYTES * rows
        from lance_spark.spark.read.estimate import estimated_size

        return estimated_size(self.dataset.fragments, rows, self._read, self.known)

    def reported_size(self, rows: int) -> int | None:
        """Return the bytes of rows that the scan reports to Spark; None if it is unknown."""
        size = self.size(rows)
        if size is None or self._has_totals:
            return size
        from lance_spark.spark.read.estimate import reported_size

        return reported_size(
            size, self.dataset.fragments, rows, self._read, self.dataset._table.schema
        )

    @property
    def _has_totals(self) -> bool:
        """Whether a row has aggregates of all rows of a partition."""
        return self.request.is_aggregated and not self.request.groups

    @property
    def _read(self) -> Schema:
        """The columns that the scan reads of the table."""
        computed = (
            {field.name for field in row_meta.SEARCH_FIELDS} if self.options.is_search else ()
        )
        return row_meta.select(self.known, [name for name in self.columns if name not in computed])


def with_limit(request: PushedScan, ordered: Sequence[SortOrder]) -> PushedScan:
    """Return a request with a limit in place of first rows, if the rows of tasks are in order."""
    top = request.top
    if top is None or request.limit is not None or top.order != tuple(ordered[: len(top.order)]):
        return request
    return replace(request, limit=top.rows, top=None)


def last_tasks(tasks: Sequence[ScanTask], rows: int) -> list[ScanTask]:
    """Return the last tasks without filters that have a number of rows for certain.

    The deletion files are not read yet, so the deleted rows of a fragment may be in any slice.
    """
    last: list[ScanTask] = []
    certain = 0
    for task in reversed(tasks):
        if certain >= rows:
            break
        last.append(task)
        for piece in task.slices:
            certain += max(0, piece.num_rows - piece.fragment.num_deleted_rows)
    return last[::-1]


def count_fragments(partitions: Sequence[LancePartition]) -> int:
    """Return the number of fragments that partitions read."""
    tasks = [partition.task for partition in partitions if partition.task is not None]
    return len({piece.fragment.id for task in tasks for piece in task.slices})


def known_columns(dataset: Dataset) -> Schema:
    """Return the columns that filters can name: the table's, and the row columns of every table."""
    return row_meta.with_all(dataset._table.schema)


def first_rows(tasks: Sequence[ScanTask], limit: int) -> list[LancePartition]:
    """Return partitions for the first rows of tasks without filters.

    The partitions may return a few rows more than the limit. The deletion files are not read yet,
    so the deleted rows of a fragment are taken to be in the slices so far.
    """
    partitions: list[LancePartition] = []
    # Rows that are certain to be live: in all fragments so far, and in all before the current.
    certain = before = 0
    # Rows that are taken of the current fragment.
    num_taken = 0
    fragment_id: int | None = None
    for task in tasks:
        missing = limit - certain
        if missing <= 0:
            break
        slices = []
        for piece in task.slices:
            if certain >= limit:
                break
            if piece.fragment.id != fragment_id:
                fragment_id, before, num_taken = piece.fragment.id, certain, 0
            deleted = piece.fragment.physical_rows - piece.fragment.num_rows
            rows = min(piece.num_rows, limit - before + deleted - num_taken)
            num_taken += rows
            certain = before + max(0, num_taken - deleted)
            slices.append(piece._replace(stop=piece.start + rows))
        partitions.append(LancePartition(replace(task, slices=tuple(slices)), missing))
    return partitions


def target_partitions(parallelism: int | None) -> int:
    """Return the minimum number of partitions of a large table, for a number of parallel tasks."""
    if parallelism is not None:
        return parallelism
    return max(MIN_PARTITIONS, 2 * (os.cpu_count() or 1))


def _merged(partitions: Sequence[LancePartition], limit: int | None) -> LancePartition:
    """Return one partition with the rows of several, in their order."""
    first = partitions[0]
    assert first.task is not None
    tasks = [partition.task for partition in partitions if partition.task is not None]
    if any(type(task) is not ScanTask for task in tasks):
        from lance_spark.mem_wal.fresh.scan import JoinedTask

        return LancePartition(JoinedTask.of(tasks), limit, first.residual)
    slices = tuple(piece for task in tasks for piece in task.slices)
    return LancePartition(replace(first.task, slices=slices), limit, first.residual)


def _all_of(filters: Sequence[Predicate]) -> Predicate | None:
    if not filters:
        return None
    from lance_spark.predicates.tree import conjunction

    return conjunction(filters)
