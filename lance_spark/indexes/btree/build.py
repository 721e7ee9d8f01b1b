"""How BTREE indexes are built: options, segments of new rows, and segments of other segments."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa

from lance_spark.mutations.indexes.builder import Builder
from lance_spark.mutations.indexes.column_types import is_scalar
from lance_spark.mutations.indexes.merging.btree import can_merge, merge
from lance_spark.mutations.indexes.merging.sources import Merging
from lance_spark.scan.indexes.btree import (
    DEFAULT_BATCH_SIZE,
    LOOKUP_FILE,
    BTreeWriter,
    rows_of_page,
)
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.scan.indexes.order import order_of
from lance_spark.table.rows.u64_segments import UInt64Array

_BATCH_ROWS = 1 << 20


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    writer = BTreeWriter(segment, values.type, parameters["zone_size"])
    order = order_of(values)
    for start in range(0, len(order), _BATCH_ROWS):
        part = order[start : start + _BATCH_ROWS]
        writer.write(values.take(pa.array(part)), pa.array(ids[part]))
    writer.finish()


def _existing(files: IndexFiles) -> dict[str, Any]:
    with closing(files.open(LOOKUP_FILE)) as lookup:
        return {"zone_size": rows_of_page(lookup)}


BUILDER = Builder(
    "BTREE",
    _write,
    is_scalar,
    defaults={"zone_size": DEFAULT_BATCH_SIZE},
    existing=_existing,
    merging=Merging(can_merge, merge),
)
