"""How ZONEMAP indexes are built, merged and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError
from lance_spark.indexes import zones
from lance_spark.indexes.builds import Builder, is_scalar
from lance_spark.indexes.checks import ColumnCheck, CoveredRows, Findings, flags, shown
from lance_spark.indexes.files import IndexFiles, SegmentWriter, named, number_in
from lance_spark.indexes.merges import Merging, SegmentSource
from lance_spark.indexes.zone_map import files as zone_map
from lance_spark.indexes.zone_map.files import BOUND_COLUMNS, COUNT_COLUMNS, read_file
from lance_spark.indexes.zone_segments import SegmentZoneRows, are_nan, copy_zones, ordered_values
from lance_spark.indexes.zones import NULL_BITMAP, set_null_bitmap
from lance_spark.table.rows.u64_segments import UInt64Array


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    zone_map.write(segment, values, ids, parameters["rows_per_zone"])


def _details(dtype: pa.DataType, parameters: Mapping[str, Any]) -> bytes:
    return zone_map.details(dtype, parameters["rows_per_zone"])


def _existing(files: IndexFiles) -> dict[str, Any]:
    with closing(files.open(zone_map.FILE)) as file:
        return {"rows_per_zone": number_in(file, "rows_per_zone", zones.DEFAULT_ROWS)}


def _can_merge(files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]) -> bool:
    """Return whether zones have the size of the new segment, and known nulls; see `Merging`."""
    with closing(files.open(zone_map.FILE)) as file:
        rows = number_in(file, "rows_per_zone", 0)
        bounds = [named(file, name).arrow_field.type for name in zone_map.BOUND_COLUMNS]
        is_same = rows == parameters["rows_per_zone"] and bounds == [dtype, dtype]
        return is_same and NULL_BITMAP in file.schema.metadata


def _merge(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[SegmentSource],
    parameters: Mapping[str, Any],
) -> None:
    """Write the file of a ZONEMAP segment; see `Merging`."""
    schema = zone_map.schema_of(dtype)
    writer = segment.create(zone_map.FILE, schema)
    nulls = copy_zones(sources, zone_map.FILE, schema, writer.write)
    zone_map.set_parameters(writer, parameters["rows_per_zone"])
    set_null_bitmap(writer, nulls)


def _check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    """Compare a segment of a ZONEMAP index with its rows.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    import pyarrow.compute as pc

    segment = files.segment
    zones = read_file(files)
    bounds = [zones[name].combine_chunks() for name in BOUND_COLUMNS]
    if any(bound.type != rows.values.type for bound in bounds):
        raise CorruptFileError(
            f"index {segment.name!r}: the bounds are {bounds[0].type}, the column is "
            f"{rows.values.type}; rebuild the index"
        )
    zoned = SegmentZoneRows.of(zones, rows, findings)
    null_count, nan_count, length = (
        zones[name].to_numpy() for name in (*COUNT_COLUMNS, "zone_length")
    )
    nulls, nans = zoned.counts(zoned.is_null), zoned.counts(zoned.is_nan)
    # Without a null bitmap, 1 may stand for more.
    nulls = np.where(zones["counted"].to_numpy(), nulls, np.minimum(nulls, 1))
    zoned.note(null_count < nulls, "null_count is too small", findings)
    zoned.note(nan_count < nans, "nan_count is too small", findings)
    is_plain = ~zoned.is_null & ~zoned.is_nan
    has_values = zoned.counts(is_plain) > 0
    zoned.note(
        has_values & (null_count + nan_count >= length), "it has values, but only counts", findings
    )
    live = np.flatnonzero(is_plain & zoned.is_inside)
    low, high = (ordered_values(bound) for bound in bounds)
    zone = pa.array(zoned.zone[live])
    values = ordered_values(rows.values).take(pa.array(live))
    # A bound that is null or NaN is unknown.
    is_below = flags(pc.less(values, low.take(zone)))
    is_above = flags(pc.greater(values, high.take(zone)))
    is_below &= ~are_nan(bounds[0])[zoned.zone[live]]
    is_above &= ~are_nan(bounds[1])[zoned.zone[live]]
    wrong = live[is_below | is_above]
    findings.wrong += len(wrong)
    findings.add(
        rows.problem(
            number,
            f"zone {zone} has values from {shown(bounds[0][zone])} to {shown(bounds[1][zone])}",
        )
        for number in wrong.tolist()
        for zone in [int(zoned.zone[number])]
    )


BUILDER = Builder(
    "ZONEMAP",
    _write,
    is_scalar,
    with_addresses=True,
    defaults={"rows_per_zone": zones.DEFAULT_ROWS},
    details=_details,
    existing=_existing,
    merging=Merging(_can_merge, _merge),
)
CHECK = ColumnCheck(_check)
