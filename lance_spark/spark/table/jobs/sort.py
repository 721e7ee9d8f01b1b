"""Sorting of a table: Spark sorts keys and row addresses, tasks read and write the rows.

Only the sort keys and the addresses pass through Spark and its shuffle. Each partition of the
sorted frame becomes a fragment; its task reads the rows from all old fragments. If all fragments of
a table are sorted together, by names of columns, the commit records the order (`sort_order`).

Z-order is a number for each row, by which rows that are similar in several columns are adjacent.
Each value is replaced by its rank among up to 1,023 values of a sample, scaled to 10 bits. So only
the order of the values matters, not their distribution; null has the lowest rank. The Z-value has
the bits of the ranks in turn, the highest bits first: for columns a and b ``a9 b9 a8 b8 ... a0
b0``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.compaction.options import CompactionOptions
from lance_spark.mutations.compaction.reorder import (
    Reorder,
    Reordered,
    commit_reordered,
    plan_reorder,
)
from lance_spark.mutations.compaction.task import CompactionMetrics
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS
from lance_spark.spark.job import job_group, task_number
from lance_spark.spark.quoting import quoted
from lance_spark.spark.read.estimate import sorted_columns
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.spark.table import dataframes
from lance_spark.spark.table.jobs.find_rows import addresses_of
from lance_spark.table.bases import Target
from lance_spark.table.placement import placement_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.job import Job
    from lance_spark.spark.table.base import TableHandle
    from lance_spark.table.commit.options import CommitOptions
    from lance_spark.table.manifest.manifest import Manifest

#: Maximum number of columns: their ranks must fit into 64 bits.
MAX_COLUMNS = 6
_BITS = 10
_MAX_RANK = (1 << _BITS) - 1
_SAMPLE_ROWS = 50_000
#: Number of leading characters of a string that are compared.
_PREFIX_LENGTH = 64
#: Name of the column of Z-values.
Z_VALUE = "__place"

Numbers = npt.NDArray[np.int64]


def with_z_values(frame: DataFrame, keys: Sequence[str], num_rows: int) -> DataFrame:
    """Return the row addresses of a frame with Z-values. Runs a Spark job for a sample.

    - `frame`: Row addresses, and the keys.
    - `num_rows`: Approximate number of rows of the frame.

    Raises InvalidInputError: there are too many keys, or the values of a key have no order.
    """
    from pyspark.sql import functions
    from pyspark.sql.types import StringType

    if len(keys) > MAX_COLUMNS:
        raise InvalidInputError(
            f"z_order_by has {len(keys)} columns; it can have at most {MAX_COLUMNS}"
        )
    columns = [
        functions.substring(key, 1, _PREFIX_LENGTH).alias(key)
        if isinstance(frame.schema[key].dataType, StringType)
        else functions.col(key)
        for key in keys
    ]
    frame = frame.select(ROW_ADDRESS.name, *columns)
    fraction = min(_SAMPLE_ROWS / max(num_rows, 1), 1.0)
    with job_group(frame.sparkSession, "lance optimize: sample the columns of the Z-order"):
        sample = frame.select(*keys).sample(fraction=fraction, seed=1).toArrow()
    bounds = tuple(bounds_of(sample.column(index), key) for index, key in enumerate(keys))
    return frame.mapInArrow(_ZValues(bounds), f"{ROW_ADDRESS.name} long, {Z_VALUE} long")


def bounds_of(sample: pa.ChunkedArray, name: str) -> pa.Array:
    """Return distinct values that divide a sorted sample into parts of about the same size.

    Raises InvalidInputError: the values have no order.
    """
    values = pa.concat_arrays(sample.drop_null().chunks or [pa.array([], sample.type)])
    try:
        ordered = values.take(pc.array_sort_indices(values))
    except pa.ArrowNotImplementedError:
        raise InvalidInputError(
            f"z_order_by: column {name} cannot be sorted: its type {sample.type} has no order"
        ) from None
    count = min(_MAX_RANK, len(ordered))
    indexes = np.unique(np.linspace(0, len(ordered) - 1, count).astype(np.int64))
    return ordered.take(pa.array(indexes)).unique()


def ranks_of(bounds: pa.Array, values: pa.Array) -> Numbers:
    """Return the number of bounds up to each value, scaled to 0 to 1,023; 0 for null."""
    bounds_and_values = pa.concat_arrays([bounds.cast(values.type), values])
    # The sort is stable, so a bound comes before the values that equal it.
    order = (
        pc.array_sort_indices(bounds_and_values, null_placement="at_start")
        .to_numpy()
        .astype(np.int64)
    )
    is_value = order >= len(bounds)
    below = np.cumsum(~is_value)
    ranks = np.empty(len(values), np.int64)
    # Scaled, so that columns with few distinct values have the same weight as others.
    ranks[order[is_value] - len(bounds)] = below[is_value] * _MAX_RANK // max(len(bounds), 1)
    return ranks


def interleaved(ranks: Sequence[Numbers]) -> Numbers:
    """Return numbers with the bits of several ranks in turn, the highest bits first."""
    numbers = np.zeros(len(ranks[0]), np.int64)
    for bit in range(_BITS - 1, -1, -1):
        for rank in ranks:
            numbers = (numbers << 1) | ((rank >> bit) & 1)
    return numbers


@dataclass(frozen=True, slots=True)
class _ZValues:
    """Work that computes the Z-values of a partition: address first, then the keys."""

    bounds: tuple[pa.Array, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            ranks = [
                ranks_of(bounds, batch.column(index)) for index, bounds in enumerate(self.bounds, 1)
            ]
            z_values = pa.array(interleaved(ranks))
            yield pa.RecordBatch.from_arrays(
                [batch.column(0), z_values], names=[ROW_ADDRESS.name, Z_VALUE]
            )


@dataclass(frozen=True, slots=True)
class ReorderRows:
    """Work that writes the rows of a partition of addresses, in the order of the addresses.

    - `targets`: Ids of the base paths to which files go in turn; None is the table's root.
    """

    table: TableSnapshot
    tag: bytes
    max_bytes_per_file: int
    targets: tuple[Target, ...] = (None,)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Reordered]:
        """Write the rows of all batches; yield the result."""
        writer = Reorder(
            self.table.open(),
            tag=self.tag,
            max_bytes_per_file=self.max_bytes_per_file,
            targets=self.targets,
            first=task_number(),
        )
        try:
            for batch in batches:
                writer.write(addresses_of(batch))
            result = writer.finish()
        except BaseException:
            writer.abort()
            raise
        yield result


def sort_columns(keys: str | Column | Sequence[str | Column], parameter: str) -> list[Column]:
    """Return sort keys as Columns.

    - `keys`: Strings are names of columns.
    - `parameter`: Name of the parameter in errors.

    Raises InvalidInputError: the sequence is empty.
    """
    from pyspark.sql import functions

    sequence: list[str | Column] = (
        list(keys) if isinstance(keys, (list, tuple)) else [cast("str | Column", keys)]
    )
    if not sequence:
        raise InvalidInputError(f"{parameter} has no column; name at least one")
    return [
        functions.col(quoted(key)) if isinstance(key, str) else dataframes.to_column(key, parameter)
        for key in sequence
    ]


def sort_rows(
    handle: TableHandle,
    job: Job,
    dataset: Dataset,
    columns: Sequence[Column],
    options: CompactionOptions,
    excluded: frozenset[int],
    commit: CommitOptions,
    *,
    z_order: bool,
    names: Sequence[str] = (),
) -> tuple[Manifest, CompactionMetrics]:
    """Sort the rows of a table by columns, or by their Z-order, and commit.

    - `names`: Names of the first columns, by which the version is recorded to be sorted.

    Raises UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError. Raises
    InvalidInputError: Spark cannot analyse the columns. Raises CommitConflictError: another client
    changed the same fragments.
    """
    table = dataset._table
    named = dataframes.named_columns(dataset, *columns)
    read = dataframes.resolve_columns(handle, dataset, named, *columns)
    placement = placement_of(table)
    written = []
    for group in plan_reorder(table, excluded | options.excluded_fragment_ids):
        num_rows = sum(fragment.num_rows for fragment in group)
        partitions = max(round(num_rows / options.target_rows(group)), 1)
        ids = [fragment.id for fragment in group]
        rows = dataframes.frame(handle, dataset, read, fragments=ids)
        addresses = _sorted_addresses(rows, columns, partitions, num_rows if z_order else None)
        targets = placement.of(group[0])
        work = ReorderRows(snapshot_of(table), job.tag, options.max_bytes_per_file, targets)
        written.append((group, job.run_frame(addresses, work, "sort rows")))
    if not written:
        return table.manifest, CompactionMetrics()
    order = () if z_order else sorted_columns(table.schema.fields, names)
    return commit_reordered(table, written, commit, order)


def column_names(keys: str | Column | Sequence[str | Column]) -> list[str]:
    """Return the names of the first sort keys, up to one that may be an expression."""
    sequence: list[Any] = list(keys) if isinstance(keys, (list, tuple)) else [keys]
    return list(takewhile(lambda key: isinstance(key, str), sequence))


def _sorted_addresses(
    rows: DataFrame, columns: Sequence[Column], partitions: int, z_order_rows: int | None
) -> DataFrame:
    """Return the addresses of rows in sorted partitions.

    The rows are sorted by the columns, or by their Z-order if `z_order_rows`, the number of rows,
    is given.
    """
    from pyspark.sql import functions

    address = functions.col(ROW_ADDRESS.name)
    names = [f"__key_{index}" for index in range(len(columns))]
    keyed = rows.select(
        address, *(column.alias(name) for column, name in zip(columns, names, strict=True))
    )
    if z_order_rows is not None:
        keyed, names = with_z_values(keyed, names, z_order_rows), [Z_VALUE]
    # The address keeps the order of rows with equal keys, and lets a partition end between them.
    order = [*(functions.col(name) for name in names), address]
    return keyed.repartitionByRange(partitions, *order).sortWithinPartitions(*order).select(address)
