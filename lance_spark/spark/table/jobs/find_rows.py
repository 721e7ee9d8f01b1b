"""Search for rows by Spark, and their deletion.

| condition | executors |
| --- | --- |
| None, or evaluated by scans (`conditions`) | find rows and write deletion files at once |
| any other | find rows, whose addresses the driver collects; then write deletion files |
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.encoding.rows import distinct
from lance_spark.mutations.mem_wal import check_rows_changeable
from lance_spark.mutations.rows.conditions import Filter
from lance_spark.mutations.rows.delete import RowsByFragment, delete_once, union_rows
from lance_spark.scan.fragment.row_meta import ROW_ADDRESS
from lance_spark.spark.job import Job
from lance_spark.spark.table.base import ChangeResult
from lance_spark.spark.table.conditions import scan_predicate
from lance_spark.spark.table.dataframes import text_of
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.rows.addresses import offsets_by_fragment
from lance_spark.table.rows.deletions import bitmap_of, encode_bitmap
from lance_spark.table.rows.u64_segments import UInt64Array

if TYPE_CHECKING:
    from pyspark.sql import Column

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.job import Job
    from lance_spark.spark.table.base import TableHandle

#: Name of the step that writes deletion files, for users.
STEP = "write deletion vectors"
#: Maximum number of characters of a condition in a transaction, except for deletions.
_MAX_TEXT = 4_096


@dataclass(frozen=True, slots=True)
class FindRows:
    """Work that collects the row addresses in the first column of a partition.

    It yields one mapping of fragment ids to bitmaps if the partition has rows.
    """

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[dict[int, bytes]]:
        """Yield the row offsets by fragment id, as encoded Roaring bitmaps."""
        rows_by_fragment: dict[int, BitMap] = {}
        for batch in batches:
            for fragment_id, offsets in offsets_by_fragment(distinct(addresses_of(batch))):
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
    handle: TableHandle,
    job: Job,
    dataset: Dataset,
    condition: str | Column | None,
    *,
    fragments: Collection[int] | None = None,
) -> dict[int, BitMap]:
    """Return the offsets by fragment of the rows that meet a condition, found on executors.

    - `condition`: Any condition that Spark can evaluate, also with subqueries. None: all rows.
    - `fragments`: Ids of the fragments to search; all by default.

    Raises InvalidInputError: Spark cannot analyse the condition.
    """
    from lance_spark.spark.table.conditions import matching_rows

    frame = matching_rows(handle, dataset, condition, fragments=fragments)
    parts = job.run_frame(frame.select(ROW_ADDRESS.name), FindRows(), "find rows", writes=False)
    return union_rows(parts, disjoint=False)


def delete(
    handle: TableHandle,
    job: Job,
    dataset: Dataset,
    condition: str | Column | None,
    options: CommitOptions,
) -> tuple[Manifest, ChangeResult]:
    """Delete rows of a version, once; see `LanceTable.delete`."""
    filters, rows = select_rows(handle, job, dataset, condition)
    manifest, count = delete_once(
        dataset._table, job.runner(STEP), filters, rows, condition_text(condition), options
    )
    return manifest, ChangeResult(manifest.version, num_deleted_rows=count)


def select_rows(
    handle: TableHandle, job: Job, dataset: Dataset, condition: str | Column | None
) -> tuple[Sequence[Filter], RowsByFragment | None]:
    """Return the rows that meet a condition: filters for tasks, and row offsets by fragment.

    If a scan cannot evaluate the condition, Spark finds the rows, and no filter is returned.
    """
    check_rows_changeable(dataset._table, data_files=False)
    if condition is None:
        return (), None
    predicate = scan_predicate(handle, dataset, condition)
    if predicate is None:
        return (), find_rows(handle, job, dataset, condition)
    return (predicate,), None


def predicate_list(condition: str | Column | None) -> str:
    """Return a condition as `LanceTable.history` shows it: a JSON list, empty without one."""
    if condition is None:
        return "[]"
    text = text_of(condition)
    return json.dumps(
        [text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."], ensure_ascii=False
    )


def condition_text(condition: str | Column | None) -> str:
    """Return a condition as transactions record it."""
    return "true" if condition is None else text_of(condition)
