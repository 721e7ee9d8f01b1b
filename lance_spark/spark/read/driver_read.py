"""Reads on the driver: small queries are answered while they are planned, so that no task starts.

A task of a Python source takes some hundredths of a second before its first row, and LIMIT ends the
process that it runs in. The rows travel to Spark in the reply to the rule's request, as an Arrow
stream:

| read on the driver | if |
| --- | --- |
| rows without filters, or without nulls | they are at most 10,000 rows, of 4 MiB in Spark |
| filtered rows, aggregates | at most 10,000 rows result, of 4 MiB in Spark; the columns to decode |
| | have at most `driver_read_bytes` in Spark (128 MiB by default; 1 MiB if the query has other |
| | scans): the scans of a query share these bytes |
| rows with keys of a MERGE | at most as many rows as keys and 1,000 more result, of 16 MiB in |
| | Spark; the columns to decode have at most `driver_read_bytes` |
| rows of a vector search | at most 10,000 rows result, of 4 MiB in Spark, of a search that |
| | measures vectors of `driver_read_bytes`; eight times as many by their codes, or in local |
| | files if Spark runs no more tasks at a time than the driver's machine has processors |
| rows of a full-text query | at most 10,000 rows result, of 4 MiB in Spark; the tokens have at |
| | most 2 million postings, and at most 10,000 texts are without an index |
| rows with blobs | not of a search; filtered by columns, at most 4 MiB by their descriptors |
| both | they come from at most 16 slices of fragments (64 of rows with keys), within two seconds |
| | of the first batch |

A read that exceeds a bound or fails is left to tasks, and so is the report of its error. A few
samples show whether the filter of a large table is likely to leave too many rows, so that few rows
are filtered in vain. A filter that only leaves out nulls counts as one that leaves too many. No
sample is read if the indexes of all filtered columns have shown how many rows are left, nor if a
read of the filters' columns takes no more requests after one another than samples do: those of a
store that have few bytes.

Where tasks read a table that is too large for a broadcast, such a sample shows whether its filters
leave few enough rows for it.

The scans of a query are planned one after the other, and their tasks run at the same time. So in a
query of several scans, the driver reads only small columns.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pyarrow as pa

from lance_spark.errors import LanceError
from lance_spark.file.blobs.fields import without_bytes
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.columns import IsNull
from lance_spark.predicates.conditions import Condition, top_fields
from lance_spark.scan.take import blob_bytes, described_schema, loads_blobs
from lance_spark.spark.read.estimate import estimated_size

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from lance_spark.scan.task import ScanTask
    from lance_spark.spark.pushdown.request import PushedScan
    from lance_spark.spark.read.planning import LancePartition, Plan

_MAX_ROWS = 10_000
#: Smaller than `_MAX_ROWS`: if samples promise more, tasks filter the rows. A read past the maximum
#: would have filtered them in vain.
_MAX_PROMISED_ROWS = 8_000
#: Number and rows of the samples that a filter is tried on, and rows below which it is not.
_SAMPLES = 4
_SAMPLED_ROWS = 1_024
_MIN_SAMPLED = 65_536
#: The same for the share of the rows that filters leave.
_PLACES = 8
_ROWS_OF_A_PLACE = 512
#: The same for rows in ranges of fewer rows than this on average.
_RANGE_ROWS = 16
_SCATTERED_ROWS = 32
#: Bytes in Spark of columns of a store that are read at once, without samples before.
_UNSAMPLED_BYTES = 16 * 1024 * 1024
#: Types of indexes whose answers are the rows that meet a condition, and hardly any others.
_EXACT = frozenset({"BTREE", "BITMAP"})
_MIN_SCATTERED = 4_000
#: Rows of a sample that groups are counted in, and the least rows of a group on average for which
#: tasks make groups.
_GROUPED_ROWS = 4_096
_ROWS_OF_A_GROUP = 8
_MAX_BYTES = 4 * 1024 * 1024
#: Bytes in Spark of the columns that are decoded for all scans of a query of several scans.
_BYTES_BESIDE_OTHERS = 1024 * 1024
#: Rows besides the number of keys, and bytes, of rows with keys of a MERGE.
_ROWS_BESIDES_KEYS = 1_000
_MAX_BYTES_OF_KEYS = 16 * 1024 * 1024
_MAX_SLICES = 16
_MAX_SLICES_OF_KEYS = 64
#: After the first batch. Slow stores and slow decoding are for several tasks.
_SECONDS = 2.0
_THREADS = 4
#: On stores that answer requests in parallel: threads wait, and compute little.
_REMOTE_THREADS = 16

_T = TypeVar("_T")
_ReadRows = Callable[["LancePartition"], Iterator[pa.RecordBatch]]


class _TooLargeError(Exception):
    """The rows exceed a bound."""


def read_on_driver(
    plan: Plan,
    partitions: Sequence[LancePartition],
    rows: int,
    schema: StructType,
    read_rows: _ReadRows,
) -> tuple[bytes | None, int]:
    """Read the rows of all partitions of a plan, if they are few.

    - `rows`: Maximum number of their rows.
    - `read_rows`: Returns the rows of a partition, as a task would. Several threads call it.

    Returns an Arrow stream, or None if tasks are to read the rows; and about how many bytes of
    columns were read.
    """
    budget = plan.options.driver_read_bytes
    if plan.request.tasks or budget == 0:
        return None, 0
    spent = 0
    try:
        if not _is_small(plan, partitions, plan.size(rows), budget):
            return None, 0
        limit, top = plan.request.limit, partitions[0].top
        is_search = plan.options.is_search or partitions[0].search_cost is not None
        is_bounded = (
            plan.request.is_aggregated
            or is_search
            or bool(plan.request.keys)
            or _load_blobs(partitions)
            or (limit is not None and limit <= _MAX_ROWS)
            or (top is not None and top.count * len(partitions) <= _MAX_ROWS)
        )
        threads = _threads(plan)
        if not is_bounded and _is_decided_by_indexes(plan, partitions):
            if _num_rows(partitions) > _MAX_ROWS:
                return None, 0
        elif not is_bounded and _leaves_many_rows(plan, partitions, read_rows, threads):
            return None, 0
        if not is_search and _decoded_fields(plan, partitions):
            spent = _decoded_bytes(plan, partitions) or 0
        return _read(plan.request, partitions, schema, read_rows, threads), spent
    except (_TooLargeError, LanceError, OSError, MemoryError, pa.ArrowException):
        return None, spent


def _threads(plan: Plan) -> int:
    """Return how many partitions are read at the same time."""
    if plan.dataset._table.store.reads_at_once > 1:
        return _REMOTE_THREADS
    return min(_THREADS, os.cpu_count() or 1)


def _is_small(
    plan: Plan, partitions: Sequence[LancePartition], size: int | None, budget: int
) -> bool:
    tasks = [partition.task for partition in partitions if partition.task is not None]
    has_blobs = _load_blobs(partitions)
    costs = [partition.search_cost for partition in partitions]
    if has_blobs and (costs[0] is not None or plan.options.is_search or plan.is_fresh):
        return False
    if costs[0] is not None:
        from lance_spark.spark.read.searches import is_nearest_for_driver

        return is_nearest_for_driver(plan, partitions)
    if plan.options.full_text_query is not None:
        from lance_spark.spark.read.searches import is_search_for_driver

        return is_search_for_driver(plan, partitions)
    max_slices = _MAX_SLICES_OF_KEYS if plan.request.keys else _MAX_SLICES
    if sum(len(task.slices) for task in tasks) > max_slices:
        return False
    decoded = _decoded_fields(plan, partitions)
    rows = sum(task.num_rows for task in tasks)
    if decoded:
        if plan.request.other_scans and not plan.request.keys:
            budget = min(budget, _BYTES_BESIDE_OTHERS)
        bytes_read = _decoded_bytes(plan, partitions)
        if bytes_read is None or bytes_read + plan.request.spent > budget:
            return False
        return not has_blobs or _blobs_are_small(plan, partitions)
    if plan.request.is_aggregated or not tasks:
        return True
    if plan.request.limit is not None:
        rows = min(rows, plan.request.limit)
    return rows <= _MAX_ROWS and size is not None and size <= _MAX_BYTES


def _decoded_fields(plan: Plan, partitions: Sequence[LancePartition]) -> list[Field]:
    """Return the fields that are decoded for all rows, even if the result is one row."""
    first = next((item.task for item in partitions if item.task is not None), None)
    if first is None:
        return []
    # Filters only test blobs for null.
    decoded: list[Field] = list(map(without_bytes, top_fields(first.filters)))
    if (top := partitions[0].top) is not None:
        decoded += [field for field in top.fields if field not in decoded]
    if partitions[0].residual is not None or plan.request.is_aggregated:
        decoded += [field for field in first.lance_schema.fields if field not in decoded]
    return decoded


def _decoded_bytes(plan: Plan, partitions: Sequence[LancePartition]) -> int | None:
    """Return about how many bytes these fields have in Spark; None if it is unknown."""
    read = Schema(tuple(_decoded_fields(plan, partitions)))
    rows = _num_rows(partitions)
    return estimated_size(plan.dataset.fragments, rows, read, plan.known, in_one_column=True)


def _blobs_are_small(plan: Plan, partitions: Sequence[LancePartition]) -> bool:
    """Return whether the blobs of the rows can be read here, by a read of their descriptors.

    A read of the bytes could not stop before it has those of a batch, and one blob can have 2 GiB.
    """
    version = plan.dataset._table.manifest.data_storage_version
    total = 0
    for partition in partitions:
        if partition.task is None:
            continue
        if partition.residual is not None or partition.top is not None:
            return False
        described = described_schema(partition.task.lance_schema, version)
        task = replace(partition.task, lance_schema=described)
        rows = 0
        for batch in task.batches(prefetch=False):
            rows += batch.num_rows
            total += int(blob_bytes(batch, described).sum())
            if total > _MAX_BYTES or rows > _MAX_ROWS:
                return False
            if partition.limit is not None and rows >= partition.limit:
                break
    return True


def _is_decided_by_indexes(plan: Plan, partitions: Sequence[LancePartition]) -> bool:
    """Return whether indexes have shown which rows meet all filters."""
    decided = {
        index.column for index in plan.indexes if index.index_type in _EXACT and not index.deferred
    }
    for partition in partitions:
        task = partition.task
        if task is None or partition.residual is not None or partition.top is not None:
            return False
        filtered = {
            ".".join(node.name for node in path) for part in task.filters for path in part.paths
        }
        is_narrowed = all(piece.rows is not None for piece in task.slices)
        if not (filtered and filtered <= decided and is_narrowed):
            return False
    return True


def _leaves_many_rows(
    plan: Plan, partitions: Sequence[LancePartition], read_rows: _ReadRows, threads: int
) -> bool:
    """Return whether a sample of the rows promises more rows than the driver reads."""
    rows = _num_rows(partitions)
    # Each of the scattered rows that an index leaves costs as much as many others.
    is_scattered = _num_ranges(partitions) * _RANGE_ROWS > rows
    minimum, sample_rows = (
        (_MIN_SCATTERED, _SCATTERED_ROWS) if is_scattered else (_MIN_SAMPLED, _SAMPLED_ROWS)
    )
    if not _is_filtered(partitions):
        return False
    is_remote = plan.dataset._table.store.reads_at_once > 1
    # A read in vain costs as many requests as a sample.
    many = _MAX_PROMISED_ROWS if is_remote else minimum
    if not is_scattered and all(map(_tests_null_only, partitions)):
        # Spark adds such filters to the columns of joins. A sample would cost time and requests.
        if rows >= (_MAX_ROWS if plan.request.other_scans else many):
            return True
        minimum = _MAX_ROWS
    if rows < minimum or (
        is_remote and (_decoded_bytes(plan, partitions) or 0) <= _UNSAMPLED_BYTES
    ):
        return False
    samples = list(_samples(partitions, _SAMPLES, sample_rows))
    sampled = _num_rows(samples)
    matching = sum(
        _each(lambda part: sum(batch.num_rows for batch in read_rows(part)), samples, threads)
    )
    return matching * rows > sampled * _MAX_PROMISED_ROWS


def sampled_size(plan: Plan, partitions: Sequence[LancePartition], rows: int) -> int | None:
    """Return the bytes of at most `rows` rows that a scan in tasks reports to Spark.

    None if it is unknown. If they are too many for a broadcast, a sample shows what filters leave.
    """
    size, reported = plan.size(rows), plan.reported_size(rows)
    if not size or reported is None or not reported > plan.request.broadcast > 0:
        return reported
    return min(reported, math.ceil(size * _filtered_share(plan, partitions, size)))


def _filtered_share(plan: Plan, partitions: Sequence[LancePartition], size: int) -> float:
    """Return the share of the rows that meets the filters, by a sample; rather more than less.

    Spark does not estimate what filters leave, and would not broadcast a large table of which they
    leave little. Rows near each other may be alike, so that a sample can miss all rows that meet
    the filters: the least share is that of the rows between two places of the sample.

    - `size`: Bytes of the rows in Spark. The driver reads no sample if Spark would not broadcast
      even the least share of them.

    Returns 1.0 if the driver reads no sample, or if half of it shows that Spark would not broadcast
    the rows.
    """
    partition = partitions[0]
    is_sampled = (
        size <= plan.request.broadcast * _PLACES
        and not plan.request.is_aggregated
        and not (plan.options.is_search or plan.is_fresh)
        and partition.search_cost is None
        and partition.top is None
        and partition.limit is None
        and partition.residual is None
        and _is_filtered(partitions)
        and not all(map(_tests_null_only, partitions))
        and _num_rows(partitions) >= _MIN_SAMPLED
        # Then the size is that of the rows that they leave.
        and not _is_decided_by_indexes(plan, partitions)
    )
    if not is_sampled:
        return 1.0

    def matching_rows(sample: LancePartition) -> int:
        assert sample.task is not None
        task = sample.task
        # Each column costs as much as the rest of the read, and nulls are rare as a rule.
        filters = tuple(part for part in _conjuncts(task) if not _tests_not_null(part))
        schema = replace(task.lance_schema, fields=())
        task = replace(task, lance_schema=schema, filters=filters)
        return sum(batch.num_rows for batch in task.batches(prefetch=False))

    samples = list(_samples(partitions, _PLACES, _ROWS_OF_A_PLACE))
    matching = sampled = 0
    for half in (samples[::2], samples[1::2]):
        try:
            matching += sum(_each(matching_rows, half, _threads(plan)))
        except (LanceError, OSError, MemoryError, pa.ArrowException):
            return 1.0
        sampled += _num_rows(half)
        if matching * size > sampled * plan.request.broadcast:
            return 1.0
    # The number of matching rows of another sample is seldom two deviations larger.
    most = matching + 2 * math.sqrt(matching) + 1
    return min(1.0, max(most / sampled, 1 / _PLACES))


def _tests_null_only(partition: LancePartition) -> bool:
    """Return whether all filters leave the rows whose columns are not null."""
    if partition.residual is not None or partition.top is not None or partition.task is None:
        return False
    return all(map(_tests_not_null, _conjuncts(partition.task)))


def _conjuncts(task: ScanTask) -> Iterator[Condition]:
    """Yield the conditions that rows of a task must all meet."""
    for part in task.filters:
        yield from part.conjuncts()


def _tests_not_null(condition: Condition) -> bool:
    return isinstance(condition, IsNull) and condition.inverted


def _each(
    read: Callable[[LancePartition], _T], partitions: Sequence[LancePartition], threads: int
) -> list[_T]:
    """Return what a function returns for each partition, in order; threads call it."""
    if min(len(partitions), threads) <= 1:
        return list(map(read, partitions))
    pool = ThreadPoolExecutor(min(len(partitions), threads))
    try:
        return list(pool.map(read, partitions))
    finally:
        pool.shutdown(cancel_futures=True)


def _samples(
    partitions: Sequence[LancePartition], places: int, rows: int
) -> Iterator[LancePartition]:
    """Yield partitions of at most so many rows each, from places evenly among all rows."""
    step = max(1, _num_rows(partitions) // places)
    position = step // 2
    for partition in partitions:
        assert partition.task is not None
        for piece in partition.task.slices:
            while position < piece.num_rows:
                first = max(0, min(position, piece.num_rows - rows))
                part = piece.part(first, first + rows)
                sample = copy(partition)
                sample.task = replace(partition.task, slices=(part,))
                # So that no thread prefetches.
                sample.limit = rows
                yield sample
                position += step
            position -= piece.num_rows


class Groups(NamedTuple):
    """What a sample of the rows shows of their groups.

    - `are_many`: About as many as rows, so that Spark is to make them.
    - `are_few`: Perhaps few enough for the driver.
    """

    are_many: bool
    are_few: bool


def sampled_groups(
    plan: Plan,
    partitions: Sequence[LancePartition],
    schema: StructType,
    read_rows: _ReadRows,
) -> Groups:
    """Return what a sample of the rows shows of their groups."""
    if _load_blobs(partitions):
        # Spark writes to disk what does not fit into memory.
        return Groups(are_many=True, are_few=False)
    if plan.options.is_search or _num_rows(partitions) < _MIN_SAMPLED:
        return Groups(are_many=False, are_few=True)
    from lance_spark.spark.read.aggregates import merged_on_driver
    from lance_spark.spark.types.mapping import batch_schema

    # Beside other scans, the driver makes groups of small columns alone: one place shows whether
    # tasks are to make them.
    places = 1 if plan.request.other_scans else _SAMPLES
    samples = list(_samples(partitions, places, _GROUPED_ROWS))
    try:
        read = _each(lambda part: list(read_rows(part)), samples, _threads(plan))
        rows = [batch for batches in read for batch in batches]
        request, output = plan.request, batch_schema(schema)
        groups = merged_on_driver(request.groups, request.aggregates, output, rows)
    except (LanceError, OSError, MemoryError, pa.ArrowException):
        return Groups(are_many=False, are_few=True)
    sampled = sum(sample.task.num_rows for sample in samples if sample.task is not None)
    num_groups: int = sum(batch.num_rows for batch in groups)
    # Groups that hardly occur in two samples are as many times more as there are more rows.
    are_rare = num_groups * 4 > 3 * sum(batch.num_rows for batch in rows)
    expected = num_groups * _num_rows(partitions) // max(1, sampled)
    are_many = num_groups * _ROWS_OF_A_GROUP > sampled
    most = _MAX_PROMISED_ROWS
    return Groups(are_many, are_few=not are_many and (not are_rare or expected <= most))


def _load_blobs(partitions: Sequence[LancePartition]) -> bool:
    return any(item.task is not None and loads_blobs(item.task.lance_schema) for item in partitions)


def _num_rows(partitions: Sequence[LancePartition]) -> int:
    return sum(partition.task.num_rows for partition in partitions if partition.task is not None)


def _num_ranges(partitions: Sequence[LancePartition]) -> int:
    tasks = [partition.task for partition in partitions if partition.task is not None]
    return sum(piece.rows.num_ranges for task in tasks for piece in task.slices if piece.rows)


def _is_filtered(partitions: Sequence[LancePartition]) -> bool:
    return any(
        partition.residual is not None
        or partition.top is not None
        or (partition.task is not None and partition.task.filters)
        for partition in partitions
    )


def _read(
    request: PushedScan,
    partitions: Sequence[LancePartition],
    schema: StructType,
    read_rows: _ReadRows,
    threads: int,
) -> bytes:
    from lance_spark.spark.types.mapping import batch_schema

    output = batch_schema(schema)
    bounds = _bounds(request)

    def read(partition: LancePartition) -> list[pa.RecordBatch]:
        return bounds.take(read_rows(partition))

    if request.limit is not None and not request.is_aggregated:
        # In order and one after the other: the same first rows that tasks would return.
        results = []
        for partition in partitions:
            results.append(read(partition))
            if bounds.rows >= request.limit:
                break
    else:
        results = _each(read, partitions, threads)
    batches = [batch for result in results for batch in result]
    if request.is_aggregated:
        from lance_spark.spark.read.aggregates import merged_on_driver

        batches = merged_on_driver(request.groups, request.aggregates, output, batches)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, output) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _bounds(request: PushedScan) -> _Bounds:
    if request.keys:
        from lance_spark.spark.pushdown.filter_trees import packed_count

        count = max(map(packed_count, request.keys))
        return _Bounds(count + _ROWS_BESIDES_KEYS, _MAX_BYTES_OF_KEYS)
    return _Bounds(_MAX_ROWS, _MAX_BYTES)


class _Bounds:
    """Bounds on the rows that several threads read together."""

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self.rows = 0
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._bytes = 0
        self._deadline = 0.0

    def take(self, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Return the batches; raise `_TooLargeError` once all that were taken exceed a bound."""
        taken_batches = []
        for batch in batches:
            self._deadline = self._deadline or monotonic() + _SECONDS
            taken_batches.append(batch)
            self.rows += batch.num_rows
            self._bytes += batch.nbytes
            if (
                self.rows > self._max_rows
                or self._bytes > self._max_bytes
                or monotonic() > self._deadline
            ):
                raise _TooLargeError
        return taken_batches
