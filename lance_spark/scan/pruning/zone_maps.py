"""Zone maps: the rows of a table for which a condition can hold, from a ZONEMAP index.

The index has the minimum and the maximum of each *zone*: some thousand consecutive rows of one
fragment. Its only file, zonemap.lance, is a data file of version 2 with a row for each zone:

| column | content |
| --- | --- |
| min, max | of the field's type; null if the zone has only nulls, or if unknown |
| null_count, nan_count | u32; deleted rows are not counted |
| fragment_id, zone_start, zone_length | integers, see `lance_spark.scan.indexes.zoned.zones` |

NaN is the greatest value. A child of a null struct is null.

Bounds hold but need not be tight: rows may have been deleted since. If an index was merged after a
compaction that kept its addresses, zones have the bounds of the old zones. The null counts are
exact if the writer knew which rows are null; it records this by `null_bitmap` in the schema's
metadata. Otherwise the count 1 may stand for more.

`zone_places` says which rows of the table a zone has.

Specification: table/index/scalar/zonemap.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.arrow_blocks import is_variable
from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError
from lance_spark.file.schema.field import Field
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.cache import all_rows
from lance_spark.scan.indexes.comparing import filled
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.indexes.search import ZoneSearch
from lance_spark.scan.indexes.zoned.zone_map import BOUND_COLUMNS, COUNT_COLUMNS, FILE
from lance_spark.scan.indexes.zoned.zones import NULL_BITMAP, PLACE_COLUMNS, with_integers
from lance_spark.scan.predicates.conditions import by_comparisons
from lance_spark.scan.pruning.bounds import ZoneStatistics
from lance_spark.scan.pruning.overlaid_rows import value_fields
from lance_spark.scan.pruning.zone_places import PlacedZones, ZonePlacer
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths

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

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
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
