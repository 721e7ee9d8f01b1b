"""Sorting of a table: Spark sorts keys and row addresses, tasks read and write the rows.

Only the sort keys and the addresses pass through Spark and its shuffle. Each partition of the
sorted frame becomes a fragment; its task reads the rows from all old fragments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.compaction.plan import CompactionOptions
from lance_spark.mutations.compaction.reorder import (
    Reorder,
    Reordered,
    commit_reordered,
    plan_reorder,
)
from lance_spark.mutations.compaction.task import CompactionMetrics
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS
from lance_spark.spark.jobs.task_number import task_number
from lance_spark.spark.read.snapshot import TableSnapshot, snapshot_of
from lance_spark.spark.table import dataframes
from lance_spark.spark.table.jobs.find_rows import addresses_of
from lance_spark.spark.table.jobs.zorder import Z_VALUE, with_z_values
from lance_spark.spark.table.merge.clauses import quoted
from lance_spark.table.bases import Target
from lance_spark.table.placement import placement_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.jobs.job import Job
    from lance_spark.spark.table.base import TableBase
    from lance_spark.table.commit.options import CommitOptions
    from lance_spark.table.manifest.manifest import Manifest


@dataclass(frozen=True, slots=True)
class ReorderRows:
    """Work that writes the rows of a partition of addresses, in the order of the addresses.

    Attributes
    ----------
    table : TableSnapshot
        The version to which the addresses refer.
    tag : bytes
        Suffix of the names of the files.
    max_bytes_per_file : int
    targets : tuple of int or None
        Ids of the base paths to which files go in turn; None is the table's root.
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

    Parameters
    ----------
    keys : str, Column or sequence of them
        Strings are names of columns.
    parameter : str
        Name of the parameter in errors.

    Raises
    ------
    InvalidInputError
        The sequence is empty.
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
    handle: TableBase,
    job: Job,
    dataset: Dataset,
    columns: Sequence[Column],
    options: CompactionOptions,
    excluded: frozenset[int],
    commit: CommitOptions,
    *,
    z_order: bool,
) -> tuple[Manifest, CompactionMetrics]:
    """Sort the rows of a table by columns, or by their Z-order, and commit.

    Raises
    ------
    InvalidInputError
        Spark cannot analyse the columns.
    CommitConflictError
        Another client changed the same fragments.
    UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
    """
    table = dataset._table
    named = dataframes.named_columns(dataset, *columns)
    read = dataframes.resolve_columns(handle, dataset, named, *columns)
    placement = placement_of(table)
    written = []
    for group in plan_reorder(table, excluded | frozenset(options.excluded_fragment_ids)):
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
    return commit_reordered(table, written, commit)


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
