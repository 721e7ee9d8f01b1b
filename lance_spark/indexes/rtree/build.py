"""How RTREE indexes are built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa

from lance_spark.mutations.indexes.boxes import boxes_of
from lance_spark.mutations.indexes.builder import Builder
from lance_spark.scan.indexes import rtree
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.scan.predicates.spatial.columns import encoding_of, encoding_of_storage
from lance_spark.table.rows.u64_segments import UInt64Array


def _is_geometry(dtype: pa.DataType) -> bool:
    return encoding_of_storage(dtype) is not None


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    _write_batches(segment, [(values, ids)], parameters, ())


def _write_batches(
    segment: SegmentWriter,
    batches: Iterable[tuple[pa.Array, UInt64Array]],
    parameters: Mapping[str, Any],
    stored: Iterable[Any],
) -> None:
    with boxes_of(batches) as (boxes, ids, null_rows):
        rtree.write(segment, boxes, ids, null_rows, parameters["page_size"])


def _existing(files: IndexFiles) -> dict[str, Any]:
    with closing(files.open(rtree.FILE)) as file:
        return {"page_size": rtree.page_size_of(file)}


def _cannot_merge(files: IndexFiles, parameters: Mapping[str, Any]) -> bool:
    return False


BUILDER = Builder(
    "RTREE",
    _write,
    _is_geometry,
    lambda field: encoding_of(field) is not None,
    defaults={"page_size": rtree.DEFAULT_PAGE_SIZE},
    least=rtree.MIN_PAGE_SIZE,
    existing=_existing,
    write_batches=_write_batches,
    can_merge=_cannot_merge,
    # The order of the boxes is in memory.
    max_rows=16 << 20,
)
