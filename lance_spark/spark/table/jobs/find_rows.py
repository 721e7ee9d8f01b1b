"""Search for rows by Spark: from addresses to bitmaps by fragment."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.mutations.rows.delete import union_rows
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS
from lance_spark.table.rows.deletions import bitmap_of, encode_bitmap
from lance_spark.table.rows.index import offsets_by_fragment
from lance_spark.table.rows.u64_segments import UInt64Array

if TYPE_CHECKING:
    from pyspark.sql import Column

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.jobs.job import Job
    from lance_spark.spark.table.base import TableBase


@dataclass(frozen=True, slots=True)
class FindRows:
    """Work that collects the row addresses in the first column of a partition.

    It yields one mapping of fragment ids to bitmaps if the partition has rows.
    """

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[int, bytes]]:
        """Yield the row offsets by fragment id, as encoded Roaring bitmaps."""
        rows_by_fragment: dict[int, BitMap] = {}
        for batch in batches:
            for fragment_id, offsets in offsets_by_fragment(np.unique(addresses_of(batch))):
                rows = rows_by_fragment.setdefault(fragment_id, BitMap())
                rows |= bitmap_of(offsets)
        if rows_by_fragment:
            yield {
                fragment_id: encode_bitmap(rows) for fragment_id, rows in rows_by_fragment.items()
            }


def addresses_of(batch: pa.RecordBatch) -> UInt64Array:
    """Return the row addresses in the first column of a batch, which are signed in Spark."""
    addresses: UInt64Array = np.ascontiguousarray(batch.column(0).to_numpy()).view(np.uint64)
    return addresses


def find_rows(
    handle: TableBase,
    job: Job,
    dataset: Dataset,
    condition: str | Column | None,
    *,
    fragments: Collection[int] | None = None,
) -> dict[int, BitMap]:
    """Find the rows that meet a condition, on executors.

    Parameters
    ----------
    handle : TableBase
    job : Job
    dataset : Dataset
        The version.
    condition : str, Column or None
        Any condition that Spark can evaluate, also with subqueries. None: all rows.
    fragments : collection of int, optional
        Ids of the fragments to search; all by default.

    Returns
    -------
    dict
        Row offsets by fragment id.

    Raises
    ------
    InvalidInputError
        Spark cannot analyse the condition.
    """
    from lance_spark.spark.table.conditions import matching_rows

    frame = matching_rows(handle, dataset, condition, fragments=fragments)
    parts = job.run_frame(frame.select(ROW_ADDRESS.name), FindRows(), "find rows", writes=False)
    return union_rows(parts, disjoint=False)
