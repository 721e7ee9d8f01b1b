"""ZONEMAP indexes: the least and the greatest value of each zone. This module writes them.

The only file, `zonemap.lance`, has a row for each zone:

| column | content |
| --- | --- |
| min, max | of the column's type |
| null_count, nan_count | u32 |
| fragment_id, zone_start, zone_length | see `zones` |

Bounds leave out nulls and NaN, in the total order of IEEE 754, so that -0.0 is less than 0.0. But
`max` is NaN if the zone has a NaN. Bounds are null if no value is left. The schema metadata
`rows_per_zone` is the number of live rows of a zone.

`lance_spark.scan.pruning.zone_maps` reads them.

Specification: table/index/scalar/zonemap.md.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.writer import FileWriter
from lance_spark.proto import index_old_pb2
from lance_spark.scan.indexes.files import SegmentWriter
from lance_spark.scan.indexes.order import float_keys, floats_of_keys
from lance_spark.scan.indexes.zoned.zones import PLACE_FIELDS, ZonedRows, add_null_bitmap
from lance_spark.table.rows.u64_segments import UInt64Array

FILE = "zonemap.lance"
BOUND_COLUMNS = ("min", "max")
COUNT_COLUMNS = ("null_count", "nan_count")
#: Columns whose zones pylance reads from the data files of later appends, if these have them.
_WITH_SEEDS = (
    pat.is_string,
    pat.is_large_string,
    pat.is_binary,
    pat.is_large_binary,
    pat.is_decimal,
)


def details(dtype: pa.DataType, rows_per_zone: int) -> bytes:
    """Return the bytes of the message in `index_details`."""
    message = index_old_pb2.ZoneMapIndexDetails(
        rows_per_zone=rows_per_zone,
        use_seeds=any(test(dtype) for test in _WITH_SEEDS),
        has_null_bitmap=True,
    )
    return message.SerializeToString()


def write(
    segment: SegmentWriter, values: pa.Array, addresses: UInt64Array, rows_per_zone: int
) -> None:
    """Write the file of an index.

    Parameters
    ----------
    segment : SegmentWriter
    values : pa.Array
    addresses : uint64 array
        Row address of each value, increasing.
    rows_per_zone : int
        Live rows of a zone.
    """
    zones = ZonedRows.of(addresses, rows_per_zone)
    schema = schema_of(values.type)
    low, high, nan_count = _statistics(values, zones)
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    numbers = [pa.array(count, pa.uint32()) for count in (zones.counts(is_null), nan_count)]
    writer = segment.create(FILE, schema)
    writer.write(
        pa.RecordBatch.from_arrays([low, high, *numbers, *zones.place_columns()], schema=schema)
    )
    set_parameters(writer, rows_per_zone)
    add_null_bitmap(writer, values, addresses)


def schema_of(dtype: pa.DataType) -> pa.Schema:
    """Return the schema of the file, given the type of the column."""
    bounds = [pa.field(name, dtype) for name in BOUND_COLUMNS]
    counts = [pa.field(name, pa.uint32(), nullable=False) for name in COUNT_COLUMNS]
    return pa.schema([*bounds, *counts, *PLACE_FIELDS])


def set_parameters(writer: FileWriter, rows_per_zone: int) -> None:
    """Write the metadata of the file."""
    writer.set_metadata("rows_per_zone", str(rows_per_zone))


def _statistics(values: pa.Array, zones: ZonedRows) -> tuple[pa.Array, pa.Array, RowNumbers]:
    """Return the bounds and the number of NaN of each zone."""
    import pyarrow.compute as pc

    dtype = values.type
    if not pat.is_floating(dtype):
        return *_bounds(values, zones), np.zeros(zones.num_zones, np.int64)
    keys = float_keys(values)
    is_null = keys.is_null().to_numpy(zero_copy_only=False)
    is_nan = np.isnan(floats_of_keys(keys.fill_null(0), dtype).to_numpy()) & ~is_null
    numbers = pa.array(keys.fill_null(0).to_numpy(), mask=is_nan | is_null)
    nan_count = zones.counts(is_nan)
    nan_key = float_keys(pa.array([math.nan], pa.float64()).cast(dtype))[0]
    low, high = _bounds(numbers, zones)
    high = pc.if_else(pa.array(nan_count > 0), nan_key, high)
    return floats_of_keys(low, dtype), floats_of_keys(high, dtype), nan_count


def _bounds(values: pa.Array, zones: ZonedRows) -> list[pa.Array]:
    """Return the minimum and the maximum of each zone; null if all values are null."""
    dtype = values.type
    if pat.is_duration(dtype):
        # Arrow has no kernel for durations.
        return [bound.view(dtype) for bound in _bounds(values.view(pa.int64()), zones)]
    zone = np.repeat(np.arange(zones.num_zones), np.diff(zones.bounds))
    rows = pa.table({"zone": zone, "value": values})
    # With one thread, groups are in the order of their first rows.
    grouped = rows.group_by("zone", use_threads=False).aggregate(
        [("value", "min"), ("value", "max")]
    )
    return [grouped.column(name).combine_chunks() for name in ("value_min", "value_max")]
