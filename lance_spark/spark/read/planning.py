"""From what Spark asks to partitions: which rows are read, which filters the scan meets, what is
left to do after it.

A filter that is about columns as they are stored is met by the scan, which decodes other columns
for the rows that are left. One that is about what Spark sees of a column (JSON, descriptions of
blobs, times in other units) is met afterwards, on the values that Spark would get. Both are exact.

A limit without filters plans no more slices than have rows enough. One that must be exact is for
one partition to keep.
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

#: Rows of a batch at most, unless the option batch_size says otherwise. The scan itself keeps wide
#: rows to fewer.
DEFAULT_BATCH_SIZE = 65_536
#: Partitions a large table is split into at least, if the planning process knows nothing of the
#: cluster's cores.
MIN_PARTITIONS = 8


class LancePartition(InputPartition):
    """One task of a scan; none for a table without rows.

    Parameters
    ----------
    task : ScanTask or None
    limit : int, optional
        Rows that are enough.
    after : After, optional
        What is left to do after the scan.
    values : list of pyarrow.Array, optional
        Of aggregates, if nothing needs to be read for them.
    columns : StructType, optional
        What aggregates are about.

    Attributes
    ----------
    text : OptionText or None
        What the task has to check first.
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
    """No partition: what the rule reads out of the pickle, before the partitions.

    Parameters
    ----------
    rows, size : int or None
        None if unknown.
    version : Version
        What other scans of the same query are to read.
    fragments : tuple of int
        How many the partitions read, and how many there are.
    stream : bytes or None
        All rows, if they are there already.
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
        # One value, as a pickle has the bytes of one together.
        super().__init__(
            f"{text};" if stream is None else f"{text} stream={len(stream)};".encode() + stream
        )


@dataclass(frozen=True, slots=True)
class ResidualFilter:
    """Filters that are met after the scan.

    Attributes
    ----------
    schema : StructType
        What the task's batches are brought to first: the wanted columns, and those that the filter
        is about.
    predicate : Predicate
    """

    schema: StructType
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Plan:
    """What Spark asks of one version of a table, on its way to partitions.

    Attributes
    ----------
    dataset : Dataset
    options : ReadOptions
    wanted : StructType
        Columns that are asked for, or that aggregates are about.
    visible : pyarrow.Schema
        Columns that can be asked for, as the options have them.
    table : str
        What messages call the table.
    request : Request
    pushed : tuple of Predicate
        Filters besides those of the request.
    """

    dataset: Dataset
    options: ReadOptions
    wanted: StructType
    visible: pa.Schema
    table: str
    request: Request
    pushed: tuple[Predicate, ...]

    def partitions(self) -> tuple[list[LancePartition], int, int | None]:
        """Return the partitions, and at most how many rows and bytes they give."""
        scanned, after = self._filters()
        filtered = bool(scanned) or after is not None
        aggregates = self.request.aggregates
        if aggregates:
            from lance_spark.spark.read.aggregates import known_values

            # What is known without reading is of all fragments.
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
        """Return the filters that the scan meets, and those that are left."""
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
                raise refused("there is no such column", name)
            # A struct may be wanted with fewer children.
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


#: What a row of aggregates takes, more or less.
_ROW_BYTES = 64


def read_fragments(partitions: Sequence[LancePartition]) -> int:
    """Return how many fragments partitions read."""
    tasks = [partition.task for partition in partitions if partition.task is not None]
    return len({piece.fragment.id for task in tasks for piece in task.slices})


def known_columns(dataset: Dataset) -> Schema:
    """Return the columns that filters can be about: the table's, and those that every table has of
    its rows.
    """
    return row_meta.with_all(dataset._table.schema)


def first_rows(tasks: Sequence[ScanTask], limit: int) -> list[LancePartition]:
    """Return partitions that give the first rows of tasks without filters, or a few more, and read
    little else.

    How many live rows a part of a fragment has is not known before its deletion file is read; at
    least so many as if all that are deleted were in the parts so far.
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
    """Return into how many partitions a large table is split at least, if so many tasks run at a
    time.
    """
    if parallelism is not None:
        # A task that has bad luck is to keep the others waiting half as long.
        return 2 * parallelism
    return max(MIN_PARTITIONS, 2 * (os.cpu_count() or 1))


def _joined(partitions: Sequence[LancePartition], limit: int | None) -> LancePartition:
    """Return one partition of the rows of several, in their order."""
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
