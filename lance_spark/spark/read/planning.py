"""Plans the partitions of a scan: rows, filters of the scan, and residual filters.

The scan evaluates filters on stored values, and decodes other columns only for the remaining rows.
Filters on values as Spark sees them (JSON, descriptions of blobs, times in other units) are
evaluated after the scan. Both are exact.

A limit without filters plans only as many slices as it needs. One partition enforces an exact
limit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.task import ScanTask
from lance_spark.spark.options.options import ReadOptions
from lance_spark.spark.pushdown.request import Request, Version, refused
from lance_spark.spark.read.projection import find, paths_for

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.scan.predicates.tree import Predicate
    from lance_spark.spark.options.predicate_text import OptionText

#: Default of the option batch_size. The scan uses fewer rows if they are wide.
DEFAULT_BATCH_SIZE = 65_536
#: Least partitions of a large table, if the number of cores of the cluster is unknown.
MIN_PARTITIONS = 8


class LancePartition(InputPartition):
    """A partition: one task of a scan, or none for a table without rows.

    Parameters
    ----------
    task : ScanTask or None
    limit : int, optional
        Rows that suffice.
    after : ResidualFilter, optional
        Filter to evaluate after the scan.
    values : list of pyarrow.Array, optional
        Values of aggregates, if no rows need to be read.
    columns : StructType, optional
        Aggregated columns.

    Attributes
    ----------
    text : OptionText or None
        Text that the task must check first.
    """

    def __init__(
        self,
        task: ScanTask | None,
        limit: int | None = None,
        after: ResidualFilter | None = None,
        values: list[pa.Array] | None = None,
        columns: StructType | None = None,
    ) -> None:
        super().__init__(None)
        self.task = task
        self.limit = limit
        self.after = after
        self.values = values
        self.columns = columns
        self.text: OptionText | None = None


class PlanReply(InputPartition):
    """Not a partition: the reply to the rule, which reads it before the partitions.

    Parameters
    ----------
    rows, size : int or None
        None if unknown.
    version : Version
        Version that other scans of the same query must read.
    fragments : tuple of int
        Number of fragments that the partitions read, and of all fragments.
    stream : bytes or None
        All rows, if they have been read already.
    """

    def __init__(
        self,
        rows: int | None,
        size: int | None,
        version: Version,
        fragments: tuple[int, int],
        stream: bytes | None = None,
    ) -> None:
        numbers = (-1 if number is None else number for number in (rows, size))
        text = "lance-plan rows={} bytes={} at={}".format(*numbers, version)
        text += " fragments={}/{}".format(*fragments)
        # One bytes object, as a pickle stores it contiguously.
        super().__init__(
            f"{text};" if stream is None else f"{text} stream={len(stream)};".encode() + stream
        )


@dataclass(frozen=True, slots=True)
class ResidualFilter:
    """A filter that is evaluated after the scan.

    Attributes
    ----------
    schema : StructType
        Schema to convert batches to first: the requested columns and those of the filter.
    predicate : Predicate
    """

    schema: StructType
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a scan of one version of a table.

    Attributes
    ----------
    dataset : Dataset
    options : ReadOptions
    wanted : StructType
        Requested or aggregated columns.
    visible : pyarrow.Schema
        Columns that can be requested with the options.
    table : str
        Name of the table in errors.
    request : Request
    pushed : tuple of Predicate
        Filters in addition to those of the request.
    """

    dataset: Dataset
    options: ReadOptions
    wanted: StructType
    visible: pa.Schema
    table: str
    request: Request
    pushed: tuple[Predicate, ...]

    def partitions(self) -> tuple[list[LancePartition], int, int | None]:
        """Return the partitions, and upper bounds of their rows and bytes."""
        scanned, after = self._filters()
        filtered = bool(scanned) or after is not None
        aggregates = self.request.aggregates
        if aggregates:
            from lance_spark.spark.read.aggregates import known_values

            # Metadata describes whole fragments.
            some = filtered or self.options.fragment_ids is not None
            values = None if some else known_values(aggregates, self.dataset, self.visible)
            if values is not None:
                return [LancePartition(None, values=values)], 1, _ROW_BYTES
        tasks = self._tasks(self.wanted if after is None else after.schema, scanned)
        limit = None if aggregates else self.request.limit
        if aggregates:
            result = [LancePartition(task, after=after, columns=self.wanted) for task in tasks]
            return result or [LancePartition(None)], max(1, len(result)), _ROW_BYTES * len(result)
        if limit is None or filtered:
            result = [LancePartition(task, limit, after) for task in tasks]
        else:
            result = first_rows(tasks, limit)
        if self.request.exact and len(result) > 1:
            result = [_joined(result, limit)]
        rows = self.dataset.count_rows()
        if limit is not None:
            rows = min(rows, limit * (len(result) if filtered else 1))
        return result or [LancePartition(None)], rows, self._size(rows)

    def _filters(self) -> tuple[tuple[Predicate, ...], ResidualFilter | None]:
        """Return the filters of the scan and the residual filters."""
        if not self.request.filters:
            return self.pushed, None
        from lance_spark.spark.pushdown.filter_trees import to_predicate

        known = known_columns(self.dataset)
        scanned = list(self.pushed)
        others: list[dict[str, Any]] = []
        for tree in self.request.filters:
            try:
                scanned.append(to_predicate(tree, known))
            except InvalidInputError:
                others.append(tree)
        return tuple(scanned), self._after(others) if others else None

    def _after(self, trees: Sequence[dict[str, Any]]) -> ResidualFilter:
        from lance_spark.scan.predicates.tree import conjunction
        from lance_spark.spark.pushdown.filter_trees import columns_of, to_predicate
        from lance_spark.spark.types.mapping import batch_schema, to_spark_schema

        fields = {field.name: field for field in self.wanted}
        for name in dict.fromkeys(path[0] for tree in trees for path in columns_of(tree)):
            position = find(self.visible.names, name)
            if position < 0:
                raise refused("a column was not found", name)
            # A struct may be requested with fewer children.
            (fields[name],) = to_spark_schema(
                pa.schema([self.visible.field(position).with_name(name)])
            )
        schema = StructType(list(fields.values()))
        known = Schema.from_arrow(batch_schema(schema))
        predicate = conjunction([to_predicate(tree, known) for tree in trees])
        assert predicate is not None
        return ResidualFilter(schema, predicate)

    def _tasks(self, schema: StructType, filters: Sequence[Predicate]) -> list[ScanTask]:
        return self.dataset.plan(
            paths_for(self.visible, schema, self.table),
            target_rows=self.options.target_rows,
            min_partitions=_waves(self.request.parallelism),
            batch_size=self.options.batch_size or DEFAULT_BATCH_SIZE,
            filter=_all_of(filters),
            blob_handling=self.options.blob_handling,
            fragment_ids=self.options.fragment_ids,
            whole_fragments=self.options.whole_fragments,
        )

    def _size(self, rows: int) -> int | None:
        from lance_spark.spark.read.estimate import estimated_size

        columns = paths_for(self.visible, self.wanted, self.table)
        known = known_columns(self.dataset)
        read = row_meta.select(known, columns)
        return estimated_size(self.dataset.fragments, rows, read, known)


#: Approximate bytes of a row of aggregates.
_ROW_BYTES = 64


def read_fragments(partitions: Sequence[LancePartition]) -> int:
    """Return the number of fragments that partitions read."""
    tasks = [partition.task for partition in partitions if partition.task is not None]
    return len({piece.fragment.id for task in tasks for piece in task.slices})


def known_columns(dataset: Dataset) -> Schema:
    """Return the columns that filters can use: those of the table, and row columns."""
    return row_meta.with_all(dataset._table.schema)


def first_rows(tasks: Sequence[ScanTask], limit: int) -> list[LancePartition]:
    """Reduce tasks without filters to the first rows, and little more.

    The live rows of a slice are unknown before its deletion file is read. The least number assumes
    that all deleted rows are in the slices so far.
    """
    results: list[LancePartition] = []
    sure = before = taken = 0
    fragment_id: int | None = None
    for task in tasks:
        missing = limit - sure
        if missing <= 0:
            break
        slices = []
        for piece in task.slices:
            if sure >= limit:
                break
            if piece.fragment.id != fragment_id:
                fragment_id, before, taken = piece.fragment.id, sure, 0
            deleted = piece.fragment.physical_rows - piece.fragment.num_rows
            rows = min(piece.num_rows, limit - before + deleted - taken)
            taken += rows
            sure = before + max(0, taken - deleted)
            slices.append(piece._replace(stop=piece.start + rows))
        results.append(LancePartition(replace(task, slices=tuple(slices)), missing))
    return results


def _waves(parallelism: int | None) -> int:
    """Return the least partitions of a large table for a number of parallel tasks."""
    if parallelism is not None:
        # Two waves halve the time that a slow task delays the others.
        return 2 * parallelism
    return max(MIN_PARTITIONS, 2 * (os.cpu_count() or 1))


def _joined(partitions: Sequence[LancePartition], limit: int | None) -> LancePartition:
    """Merge several partitions to one, in order."""
    first = partitions[0]
    assert first.task is not None
    slices = tuple(
        piece
        for partition in partitions
        if partition.task is not None
        for piece in partition.task.slices
    )
    return LancePartition(replace(first.task, slices=slices), limit, first.after)


def _all_of(filters: Sequence[Predicate]) -> Predicate | None:
    if not filters:
        return None
    from lance_spark.scan.predicates.tree import conjunction

    return conjunction(filters)
