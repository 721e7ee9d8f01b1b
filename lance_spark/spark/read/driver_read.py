"""Reads small results in the planning process, so that a small query starts no task.

A task of a Python source takes some hundredths of a second before its first row, and LIMIT ends its
process. Rows that are read here reach Spark with the reply to the request of the rule, as an Arrow
stream:

- Without filters: if there are at most 10,000 rows, of 4 MiB in Spark.
- With filters or aggregates: if the filtered or aggregated columns have at most `driver_read_bytes`
  (128 MiB by default) in Spark, and the result has at most 2,000 rows of 4 MiB.
- In both cases: at most 16 slices of fragments, within two seconds after the first batch.

Tasks read everything else, and report errors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_spark.errors import LanceError
from lance_spark.file.schema.schema import Field, Schema
from lance_spark.scan.predicates.conditions import top_fields
from lance_spark.spark.read.estimate import estimated_size

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.spark.pushdown.request import Request
    from lance_spark.spark.read.planning import LancePartition, Plan

_Read = Callable[["LancePartition"], Iterable[pa.RecordBatch]]

MOST_ROWS = 10_000
#: Maximum rows after a filter. With more rows, tasks would read them again.
_MAX_FILTERED_ROWS = 2_000
_MAX_BYTES = 4 * 1024 * 1024
_MAX_SLICES = 16
#: Seconds after the first batch. Slow stores and slow decoding need several tasks.
_SECONDS = 2.0
_THREADS = 4


class _TooMuchError(Exception):
    """The rows exceed a bound."""


def read_on_driver(
    read: _Read,
    schema: StructType,
    plan: Plan,
    partitions: Sequence[LancePartition],
    size: int | None,
) -> bytes | None:
    """Read the rows of the partitions of a plan as an Arrow stream.

    Parameters
    ----------
    read : callable
        Yields the batches of a partition.
    schema : pyspark.sql.types.StructType
        Schema of the rows.
    plan : Plan
    partitions : sequence of LancePartition
        Partitions of the plan.
    size : int or None
        Upper bound of the bytes of their rows, if known.

    Returns
    -------
    bytes or None
        None if tasks are to read them.
    """
    budget = plan.options.driver_read_bytes
    if plan.request.tasks or budget == 0 or not _is_small(plan, partitions, size, budget):
        return None
    try:
        return _stream(read, schema, plan.request, partitions)
    except (_TooMuchError, LanceError, OSError, MemoryError, pa.ArrowException):
        return None


def _is_small(
    plan: Plan, partitions: Sequence[LancePartition], size: int | None, budget: int
) -> bool:
    tasks = [item.task for item in partitions if item.task is not None]
    if sum(len(task.slices) for task in tasks) > _MAX_SLICES:
        return False
    fields: list[Field] = []
    for task in tasks[:1]:
        fields += top_fields(task.filters)
        if partitions[0].after is not None or plan.request.aggregates:
            fields += [item for item in task.lance_schema.fields if item not in fields]
    if not fields:
        if plan.request.aggregates or not tasks:
            return True
        rows = sum(task.num_rows for task in tasks)
        if plan.request.limit is not None:
            rows = min(rows, plan.request.limit)
        return rows <= MOST_ROWS and size is not None and size <= _MAX_BYTES
    from lance_spark.spark.read.planning import known_columns

    rows = sum(task.num_rows for task in tasks)
    known = known_columns(plan.dataset)
    read = estimated_size(plan.dataset.fragments, rows, Schema(tuple(fields)), known)
    return read is not None and read <= budget


def _stream(
    read: _Read, schema: StructType, request: Request, partitions: Sequence[LancePartition]
) -> bytes:
    from lance_spark.spark.types.mapping import batch_schema

    wanted = batch_schema(schema)
    filtered = any(
        item.after is not None or (item.task and item.task.filters) for item in partitions
    )
    counter = _Counter(_MAX_FILTERED_ROWS if filtered else MOST_ROWS)

    def rows_of(partition: LancePartition) -> list[pa.RecordBatch]:
        return counter.add(read(partition))

    if request.limit is not None and not request.aggregates:
        # Only the first rows, as tasks would return them.
        parts = []
        for partition in partitions:
            parts.append(rows_of(partition))
            if counter.rows >= request.limit:
                break
    else:
        pool = ThreadPoolExecutor(min(len(partitions), _THREADS, os.cpu_count() or 1))
        try:
            parts = list(pool.map(rows_of, partitions))
        finally:
            pool.shutdown(cancel_futures=True)
    batches = [batch for part in parts for batch in part]
    if request.aggregates:
        from lance_spark.spark.read.aggregates import merged

        batches = [merged(request.aggregates, wanted, batches)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, wanted) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


class _Counter:
    """Counts the rows that several threads have read."""

    def __init__(self, max_rows: int) -> None:
        self.rows = 0
        self._max_rows = max_rows
        self._bytes = 0
        self._until = 0.0

    def add(self, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Return the batches; raise if all batches so far exceed a bound."""
        kept = []
        for batch in batches:
            self._until = self._until or monotonic() + _SECONDS
            kept.append(batch)
            self.rows += batch.num_rows
            self._bytes += batch.nbytes
            if self.rows > self._max_rows or self._bytes > _MAX_BYTES or monotonic() > self._until:
                raise _TooMuchError
        return kept
