"""Zone maps: the least and the greatest value of each zone, and the rows that they leave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import is_variable
from lance_spark.encoding.rows import RowNumbers, RowRanges
from lance_spark.errors import CorruptFileError
from lance_spark.file.schema.field import Field
from lance_spark.file.writer import FileWriter
from lance_spark.indexes.cache import all_rows
from lance_spark.indexes.files import IndexFiles, SegmentWriter
from lance_spark.indexes.order import filled, float_keys, floats_of_keys
from lance_spark.indexes.search import ZoneSearch, ZoneStatistics
from lance_spark.indexes.table_rows import value_fields
from lance_spark.indexes.zones import (
    NULL_BITMAP,
    PLACE_COLUMNS,
    PLACE_FIELDS,
    PlacedZones,
    ZonedRows,
    ZonePlacer,
    add_null_bitmap,
    with_integers,
)
from lance_spark.predicates.conditions import by_comparisons
from lance_spark.proto import index_old_pb2, table_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# ZONEMAP indexes: the least and the greatest value of each zone. This module writes them.
#
# The only file, `zonemap.lance`, has a row for each zone:
#
# | column | content |
# | --- | --- |
# | min, max | of the column's type |
# | null_count, nan_count | u32 |
# | fragment_id, zone_start, zone_length | see `zones` |
#
# Bounds leave out nulls and NaN, in the total order of IEEE 754, so that -0.0 is less than 0.0. But
# `max` is NaN if the zone has a NaN. Bounds are null if no value is left. The schema metadata
# `rows_per_zone` is the number of live rows of a zone.
#
# `lance_spark.indexes.zone_map.files` reads them.
#
# Specification: table/index/scalar/zonemap.md.

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

    - `addresses` (uint64 array): Row address of each value, increasing.
    - `rows_per_zone`: Live rows of a zone.
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


# --------------------------------------------------------------------------------------------------
# Zone maps: the rows of a table for which a condition can hold, from a ZONEMAP index.
#
# The index has the minimum and the maximum of each *zone*: some thousand consecutive rows of one
# fragment. Its only file, zonemap.lance, is a data file of version 2 with a row for each zone:
#
# | column | content |
# | --- | --- |
# | min, max | of the field's type; null if the zone has only nulls, or if unknown |
# | null_count, nan_count | u32; deleted rows are not counted |
# | fragment_id, zone_start, zone_length | integers, see `lance_spark.indexes.zones` |
#
# NaN is the greatest value. A child of a null struct is null.
#
# Bounds hold but need not be tight: rows may have been deleted since. If an index was merged after
# a compaction that kept its addresses, zones have the bounds of the old zones. The null counts are
# exact if the writer knew which rows are null; it records this by `null_bitmap` in the schema's
# metadata. Otherwise the count 1 may stand for more.
#
# `zone_places` says which rows of the table a zone has.
#
# Specification: table/index/scalar/zonemap.md.

OPS = frozenset({"==", "!=", "<", "<=", ">", ">=", "between", "in", "is_null", "is_not_null"})
_COLUMNS = (*BOUND_COLUMNS, *COUNT_COLUMNS, *PLACE_COLUMNS)

_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Zones(ZoneStatistics):
    """Statistics of one column by zone, which answer comparisons."""

    def candidates(self, op: str, value: Any) -> RowRanges | None:
        """Return the rows for which a comparison can hold; None if unknown."""
        return by_comparisons(self._candidates, op, value)

    def _candidates(self, op: str, value: Any) -> RowRanges | None:
        possible = self._possible(op, value)
        if possible is None:
            return None
        return RowRanges.of_blocks(self.bounds, possible | ~self.has_bounds)

    def _possible(self, op: str, value: Any) -> _Flags | None:
        import pyarrow.compute as pc

        if op == "is_null":
            return self.null_count > 0
        if op == "is_not_null":
            return ~self.only_nulls
        dtype = self.minimum.type
        scalar = value if isinstance(value, pa.Scalar) else _scalar(value, dtype)
        if scalar is None or not scalar.is_valid or scalar.type != dtype:
            return None
        low, high = self.minimum, self.maximum
        possible = np.ones(len(self.has_bounds), np.bool_)
        if op in ("==", "<", "<="):
            possible &= filled((pc.less if op == "<" else pc.less_equal)(low, scalar))
        if op in ("==", ">", ">="):
            possible &= filled((pc.greater if op == ">" else pc.greater_equal)(high, scalar))
        if op == "!=":
            if is_variable(dtype):
                return None
            all_equal = pc.and_(pc.equal(low, scalar), pc.equal(high, scalar))
            possible = ~filled(all_equal, unknown=False)
        elif op not in ("==", "<", "<=", ">", ">="):
            return None
        possible &= self.comparable
        if op in (">", ">=", "!="):
            possible |= self.nan_count > 0
        return possible


def read_zones(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    starts: RowNumbers,
    path: tuple[Field, ...],
    segments: Sequence[table_pb2.IndexMetadata],
) -> Zones | None:
    """Return the zones of a column; see `search.ReadZonesOfColumn`."""
    dtype = path[-1].arrow_field.type
    if pat.is_float16(dtype) or pat.is_nested(dtype):
        return None

    def read(segment: table_pb2.IndexMetadata) -> pa.Table | None:
        table = cached_zones(IndexFiles(paths, segment))
        if table is None or any(table[name].type != dtype for name in BOUND_COLUMNS):
            return None
        return table

    placer = ZonePlacer(paths, fragments, starts, value_fields(path))
    placed = placer.place(segments, read)
    return None if placed is None else _zones(placed)


def _zones(placed: PlacedZones) -> Zones:
    columns = placed.columns
    nulls, nans, length = (
        columns[name].fill_null(0).to_numpy() for name in (*COUNT_COLUMNS, "zone_length")
    )
    low, high = (_bound(columns[name].combine_chunks()) for name in BOUND_COLUMNS)
    return Zones(
        placed.bounds,
        placed.is_zone,
        low,
        high,
        length > nulls + nans,
        nulls,
        nans,
        nulls >= length,
        columns["counted"].fill_null(False).to_numpy(),
    )


def cached_zones(files: IndexFiles) -> pa.Table | None:
    """Return the zones of a segment; None if the file is missing."""
    return files.cached(FILE, read_file, lambda zones: int(zones.nbytes))


def read_file(files: IndexFiles) -> pa.Table:
    """Return the zones of a file. The column `counted` says whether null counts are exact.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    with closing(files.open(FILE)) as file:
        fields = {field.name: field for field in file.schema.fields}
        missing = [name for name in _COLUMNS if name not in fields]
        if missing:
            raise CorruptFileError(
                f"{file.source.name}: the zone map lacks columns {missing}; rebuild the index"
            )
        arrays = file.read([fields[name] for name in _COLUMNS], all_rows(file))
    counted = np.full(file.num_rows, NULL_BITMAP in file.schema.metadata)
    zones = pa.table({**dict(zip(_COLUMNS, arrays, strict=True)), "counted": counted})
    return with_integers(zones, (*COUNT_COLUMNS, *PLACE_COLUMNS), file.source.name)


def _bound(values: pa.Array) -> pa.Array:
    """Return bounds with null for NaN, which stands for an unknown bound."""
    if not pat.is_floating(values.type):
        return values
    import pyarrow.compute as pc

    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def _scalar(value: Any, dtype: pa.DataType) -> pa.Scalar | None:
    try:
        return pa.scalar(value, dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


SEARCH = ZoneSearch(OPS, read_zones)
