"""Rows that Spark finds: addresses in, bitmaps by fragment out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.mutations.rows.delete import union_rows
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS
from lance_spark.table.rows.addresses import offsets_by_fragment
from lance_spark.table.rows.deletion_writer import bitmap_of, encode_bitmap
from lance_spark.table.rows.u64_segments import UInt64Array

if TYPE_CHECKING:
    from pyspark.sql import Column

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.jobs.job import Job
    from lance_spark.spark.table.base import TableBase


@dataclass(frozen=True, slots=True)
class FindRows:
    """Collects the addresses of a partition, whose first column they are: one mapping of fragments
    to bitmaps, if there are any.
    """

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[int, bytes]]:
        """Yield the offsets of the rows by fragment, as Roaring bitmaps."""
        results: dict[int, BitMap] = {}
        for batch in batches:
            for number, offsets in offsets_by_fragment(np.unique(addresses_of(batch))):
                rows = results.setdefault(number, BitMap())
                rows |= bitmap_of(offsets)
        if results:
            yield {number: encode_bitmap(rows) for number, rows in results.items()}


def addresses_of(batch: pa.RecordBatch) -> UInt64Array:
    """Return the first column of a batch, in which Spark has addresses as signed numbers."""
    numbers: UInt64Array = np.ascontiguousarray(batch.column(0).to_numpy()).view(np.uint64)
    return numbers


def find_rows(
    base: TableBase,
    job: Job,
    dataset: Dataset,
    condition: str | Column | None,
    *,
    fragments: Collection[int] | None = None,
) -> dict[int, BitMap]:
    """Return the rows that meet a condition, by fragment, as executors find them.

    Parameters
    ----------
    base : TableBase
    job : Job
    dataset : Dataset
        At the version.
    condition : str, Column or None
        Of any kind that Spark knows, subqueries too; all rows if there is none.
    fragments : collection of int, optional
        Ids of those to look in; all by default.

    Raises
    ------
    InvalidInputError
        Spark cannot make sense of the condition.
    """
    from lance_spark.spark.table.conditions import matching

    frame = matching(base, dataset, condition, fragments=fragments)
    parts = job.run_frame(frame.select(ROW_ADDRESS.name), FindRows(), "find rows", writes=False)
    return union_rows(parts, disjoint=False)
