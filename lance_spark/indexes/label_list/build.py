"""How LABEL_LIST indexes are built, merged, checked, and rewritten after a compaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.file.open import DataFileReader
from lance_spark.indexes.address_map import AddressMap, of_one_file
from lance_spark.indexes.bitmap import files as bitmap
from lance_spark.indexes.bitmap.build import Pairs, has_sorted_keys, merge_sets, remap_sets
from lance_spark.indexes.builds import Builder, is_list_of_scalars
from lance_spark.indexes.checks import ColumnCheck, CoveredRows, Findings
from lance_spark.indexes.files import IndexFiles, SegmentWriter
from lance_spark.indexes.label_list import files as label_list
from lance_spark.indexes.merges import Merging, SegmentSource
from lance_spark.indexes.row_sets import RowSet
from lance_spark.table.rows.u64_segments import UInt64Array


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    label_list.write(segment, values, ids)


def _can_merge(files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]) -> bool:
    with closing(files.open(bitmap.FILE)) as file:
        has_nulls = label_list.has_nulls(file)
    return has_nulls and has_sorted_keys(files, dtype.value_type)


def _merge(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[SegmentSource],
    parameters: Mapping[str, Any],
) -> None:
    nulls = []
    for source in sources:
        with closing(source.files.open(bitmap.FILE)) as file:
            rows = label_list.read_nulls(file)
        nulls.append(rows if source.kept is None else source.kept.of_set(rows))
    writer = merge_sets(segment, dtype.value_type, sources)
    label_list.set_nulls(writer, RowSet.union(nulls))


def _check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    import pyarrow.compute as pc

    lengths = pc.list_value_length(rows.values).fill_null(0).to_numpy()
    positions = np.repeat(np.arange(len(rows)), lengths)
    Pairs(files, rows, rows.values.flatten(), positions, of_lists=True).check(files, findings)


def _remap(segment: SegmentWriter, file: DataFileReader, address_map: AddressMap) -> None:
    writer = remap_sets(segment, file, address_map)
    if label_list.has_nulls(file):
        label_list.set_nulls(writer, address_map.of_set(label_list.read_nulls(file)))


BUILDER = Builder(
    "LABEL_LIST",
    _write,
    is_list_of_scalars,
    version=1,
    merging=Merging(_can_merge, _merge),
)
CHECK = ColumnCheck(_check)
REMAPPING = of_one_file(bitmap.FILE, _remap)
