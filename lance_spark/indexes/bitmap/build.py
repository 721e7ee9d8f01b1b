"""How BITMAP indexes are built, merged and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.mutations.indexes.builder import Builder
from lance_spark.mutations.indexes.checks.keyed import Pairs
from lance_spark.mutations.indexes.checks.rows import ColumnCheck, CoveredRows, Findings
from lance_spark.mutations.indexes.column_types import is_scalar
from lance_spark.mutations.indexes.merging.keyed import has_sorted_keys, merge_sets
from lance_spark.mutations.indexes.merging.sources import Merging, SegmentSource
from lance_spark.scan.indexes import bitmap
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.table.rows.u64_segments import UInt64Array


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    bitmap.write(segment, values, ids)


def _can_merge(files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]) -> bool:
    return has_sorted_keys(files, dtype)


def _merge(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[SegmentSource],
    parameters: Mapping[str, Any],
) -> None:
    merge_sets(segment, dtype, sources)


def _check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    Pairs(files, rows, rows.values, np.arange(len(rows))).check(files, findings)


BUILDER = Builder("BITMAP", _write, is_scalar, merging=Merging(_can_merge, _merge))
CHECK = ColumnCheck(_check)
