"""The rows of a table in the order of columns: Spark sorts keys and addresses, executors read and
write the rows.

Nothing but the columns to sort by and the addresses goes through Spark and its shuffle. Each
partition of the sorted frame becomes a fragment, which reads its rows out of all the old ones.
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
from lance_spark.spark.table.jobs.zorder import PLACE, with_places
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
    """Work over addresses in the order that rows are to have: writes the rows.

    Attributes
    ----------
    table : Pinned
        The version that the addresses are of.
    tag : bytes
        Ends the names of the files.
    max_bytes_per_file : int
    targets : tuple of int or None
        Ids of the base paths that files go to in turns; None for the table itself.
    """

    table: TableSnapshot
    tag: bytes
    max_bytes_per_file: int
    targets: tuple[Target, ...] = (None,)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Reordered]:
        """Yield what was written of a partition."""
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
            written = writer.finish()
        except BaseException:
            writer.abort()
            raise
        yield written


def sort_columns(given: str | Column | Sequence[str | Column], what: str) -> list[Column]:
    """Return the columns to sort by.

    Raises
    ------
    InvalidInputError
        There is none.
    """
    from pyspark.sql import functions

    several: list[str | Column] = (
        list(given) if isinstance(given, (list, tuple)) else [cast("str | Column", given)]
    )
    if not several:
        raise InvalidInputError(f"{what} names no column")
    return [
        functions.col(f"`{item.replace('`', '``')}`")
        if isinstance(item, str)
        else dataframes.to_column(item, what)
        for item in several
    ]


def sort_rows(
    base: TableBase,
    job: Job,
    dataset: Dataset,
    columns: Sequence[Column],
    options: CompactionOptions,
    excluded: frozenset[int],
    commit: CommitOptions,
    *,
    curve: bool,
) -> tuple[Manifest, CompactionMetrics]:
    """Put the rows of a table in the order of columns, or on their Z-curve, and commit.

    Raises
    ------
    InvalidInputError
        The columns cannot be analysed.
    CommitConflictError
        Others changed the same fragments.
    UnsupportedFeatureError, CorruptFileError, CorruptTableError, StorageError
    """
    table = dataset._table
    names = dataframes.resolved(base, dataset, dataframes.named_in(dataset, *columns), *columns)
    placement = placement_of(table)
    written = []
    for group in plan_reorder(table, excluded | frozenset(options.excluded_fragment_ids)):
        rows = sum(item.num_rows for item in group)
        partitions = max(round(rows / options.target_rows(group)), 1)
        ids = [item.id for item in group]
        result = dataframes.frame(base, dataset, names, fragments=ids)
        frame = _ordered(result, columns, partitions, rows if curve else None)
        targets = placement.of(group[0])
        work = ReorderRows(snapshot_of(table), job.tag, options.max_bytes_per_file, targets)
        written.append((group, job.run_frame(frame, work, "sort rows")))
    if not written:
        return table.manifest, CompactionMetrics()
    return commit_reordered(table, written, commit)


def _ordered(
    frame: DataFrame, columns: Sequence[Column], partitions: int, curve_of: int | None
) -> DataFrame:
    """Return the addresses of a frame in the order of columns, or on their Z-curve, cut into
    partitions.

    `curve_of` is how many rows there are, if it is to be the curve.
    """
    from pyspark.sql import functions

    address = functions.col(ROW_ADDRESS.name)
    names = [f"__key_{index}" for index in range(len(columns))]
    keyed = frame.select(
        address, *(column.alias(name) for column, name in zip(columns, names, strict=True))
    )
    if curve_of is not None:
        keyed, names = with_places(keyed, names, curve_of), [PLACE]
    # Rows of equal values stay in their order, and do not have to be in one partition.
    order = [*(functions.col(name) for name in names), address]
    return keyed.repartitionByRange(partitions, *order).sortWithinPartitions(*order).select(address)
