"""Zone maps: the rows of a table for which a condition can hold, from a ZONEMAP index.

The index has the minimum and the maximum of each *zone*: some thousand consecutive rows of one
fragment. Its only file, zonemap.lance, is a data file of version 2 with a row for each zone:

| column | content |
| --- | --- |
| min, max | of the field's type; null if the zone has only nulls, or if unknown |
| null_count, nan_count | u32; deleted rows are not counted |
| fragment_id | u64 |
| zone_start | u64; row offset of the zone's first live row |
| zone_length | u64; up to the zone's last live row |

NaN is the greatest value. A child of a null struct is null. `zone_start` is an offset also in
tables with stable row ids. In releases until 2025 `zone_length` is the number of live rows.

Zones of a fragment follow one another; rows outside of all zones were deleted when the index was
built. So a zone is extended up to the start of the next zone. A fragment is ignored if a live row
is outside of all zones, if the segment's bitmap does not name the fragment, or if it has overlays
of the column.

Bounds hold but need not be tight: rows may have been deleted since. If an index was merged after a
compaction that kept its addresses, zones have the bounds of the old zones. The null counts are
exact if the writer knew which rows are null; it records this by `null_bitmap` in the schema's
metadata. Otherwise the count 1 may stand for more.

Rows of all fragments are numbered consecutively, in the table's order, so that a condition is
evaluated once for the whole table.

Specification: table/index/scalar/zonemap.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark.encoding.arrow_blocks import is_variable
from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import open_file
from lance_spark.file.schema.field import Field
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.cache import all_rows, cached
from lance_spark.scan.predicates.conditions import by_comparisons
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

_FILE = "zonemap.lance"
_KIND = "ZONEMAP"
#: Supported versions of the index.
_VERSIONS = (0,)
_COLUMNS = ("min", "max", "null_count", "nan_count", "fragment_id", "zone_start", "zone_length")
#: Key in the schema metadata of an index with exact null counts.
_NULL_BITMAP = "null_bitmap"

_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Zones:
    """Statistics of one column by zone. The zones together hold all rows of the table.

    Attributes
    ----------
    bounds : int64 array
        First row of each zone, and the number of all rows.
    has_bounds : bool array
        Whether the zone has statistics.
    minimum, maximum : pa.Array
        Of the column's type. Null if unknown.
    comparable : bool array
        Whether there may be values other than null and NaN.
    null_count, nan_count : int64 array
        Of the rows that were live when the index was built.
    only_nulls : bool array
    counted : bool array
        Whether `null_count` is exact if it is not 0.
    """

    bounds: RowNumbers
    has_bounds: _Flags
    minimum: pa.Array
    maximum: pa.Array
    comparable: _Flags
    null_count: RowNumbers
    nan_count: RowNumbers
    only_nulls: _Flags
    counted: _Flags

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
            possible &= _flags((pc.less if op == "<" else pc.less_equal)(low, scalar))
        if op in ("==", ">", ">="):
            possible &= _flags((pc.greater if op == ">" else pc.greater_equal)(high, scalar))
        if op == "!=":
            if is_variable(dtype):
                return None
            all_equal = pc.and_(pc.equal(low, scalar), pc.equal(high, scalar))
            possible = ~_flags(all_equal, unknown=False)
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
    """Return the zones of a column; None if no segment has usable zones.

    Parameters
    ----------
    paths : TablePaths
    fragments : sequence of Fragment
        Of the version.
    starts : int64 array
        The result of `starts_of` for the fragments.
    path : tuple of Field
        The fields from the top-level field to the column.
    segments : sequence of IndexMetadata
        The zone maps of the column.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    return _ZoneReader(paths, fragments, starts, path).read(segments)


def starts_of(fragments: Sequence[Fragment]) -> RowNumbers:
    """Return the number of each fragment's first row, and the number of all rows."""
    return np.cumsum([0, *(fragment.physical_rows for fragment in fragments)])


def is_zone_map(index: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment is a zone map of a supported version."""
    return indexes.is_single_column_index(index, _KIND, _VERSIONS)


def is_overlaid(fragment: Fragment, ids: Collection[int]) -> bool:
    """Return whether overlays of a fragment have new values of some fields, given by id."""
    return fragment.has_overlays and any(
        not set(ids).isdisjoint(overlay.data_file.fields) for overlay in fragment.overlays
    )


class _ZoneReader:
    """Reads the zone maps of one column of a table."""

    def __init__(
        self,
        paths: TablePaths,
        fragments: Sequence[Fragment],
        starts: RowNumbers,
        path: tuple[Field, ...],
    ) -> None:
        self._paths = paths
        self._fragments = fragments
        self._starts = starts
        self._index_of = {fragment.id: index for index, fragment in enumerate(fragments)}
        self._fragment_ids = BitMap(self._index_of)
        self._dtype = path[-1].arrow_field.type
        self._field_ids = {node.id for node in path}

    def read(self, segments: Sequence[table_pb2.IndexMetadata]) -> Zones | None:
        """Return the zones of segments; None if no segment has usable zones."""
        if pat.is_float16(self._dtype) or pat.is_nested(self._dtype):
            return None
        tables = []
        covered: set[int] = set()
        for segment in segments:
            bitmap = indexes.fragment_bitmap(segment)
            # A bitmap of few bytes can have millions of ids, most of which no fragment has.
            named = BitMap() if bitmap is None else bitmap & self._fragment_ids
            positions = {
                self._index_of[fragment_id]
                for fragment_id in named
                if not is_overlaid(self._fragments[self._index_of[fragment_id]], self._field_ids)
            } - covered
            table = self._read(segment) if positions else None
            if table is None:
                continue
            table = self._usable(table, positions)
            covered |= set(table["fragment_index"].to_numpy().tolist())
            tables.append(table)
        if not covered:
            return None
        return self._zones(pa.concat_tables(tables), covered)

    def _read(self, segment: table_pb2.IndexMetadata) -> pa.Table | None:
        """Return the zones of a segment; None if the bounds are of another type than the column."""
        table = cached(self._paths, segment, _FILE, _read, lambda zones: int(zones.nbytes))
        if table is None or any(
            table.schema.field(name).type != self._dtype for name in ("min", "max")
        ):
            return None
        return table

    def _usable(self, table: pa.Table, positions: set[int]) -> pa.Table:
        """Return the zones of wanted fragments that have all their live rows in zones.

        The zones are in the table's order. The column `fragment_index` is added.
        """
        ids = table["fragment_id"].to_numpy()
        fragment = np.array([self._index_of.get(number, -1) for number in ids.tolist()], np.int64)
        start = table["zone_start"].to_numpy().astype(np.int64)
        stop = start + table["zone_length"].to_numpy().astype(np.int64)
        order = np.lexsort([start, fragment])
        order = order[np.isin(fragment[order], list(positions))]
        order = order[self._has_all_live(fragment[order], start[order], stop[order])]
        return table.take(pa.array(order)).append_column(
            "fragment_index", pa.array(fragment[order])
        )

    def _has_all_live(self, fragment: RowNumbers, start: RowNumbers, stop: RowNumbers) -> _Flags:
        """Return for each zone whether the zones of its fragment have all live rows.

        Parameters
        ----------
        fragment : int64 array
            Index of each zone's fragment. The zones of a fragment follow one another.
        start, stop : int64 arrays
            Rows of each zone in its fragment.
        """
        heads = np.flatnonzero(np.diff(fragment, prepend=-1))
        if not len(heads):
            return np.zeros(0, np.bool_)
        sizes = np.diff(heads, append=len(fragment))
        fragments = [self._fragments[index] for index in fragment[heads].tolist()]
        rows = np.array([fragment.physical_rows for fragment in fragments])
        is_wrong = (start < 0) | (stop < start) | (stop > np.repeat(rows, sizes))
        is_wrong[:-1] |= (fragment[:-1] == fragment[1:]) & (stop[:-1] > start[1:])
        is_valid = np.add.reduceat(is_wrong, heads, dtype=np.int64) == 0
        has_all = is_valid & (np.add.reduceat(stop - start, heads) == rows)
        for index in np.flatnonzero(is_valid & ~has_all).tolist():
            zones = slice(heads[index], heads[index] + sizes[index])
            has_all[index] = self._others_deleted(fragments[index], start[zones], stop[zones])
        return np.repeat(has_all, sizes)

    def _others_deleted(self, fragment: Fragment, start: RowNumbers, stop: RowNumbers) -> bool:
        """Return whether all rows of a fragment outside of its zones are deleted."""
        if fragment.deletion_file is None:
            return False
        # Zones do not overlap, so that counting is enough. No array has the size of the fragment,
        # which is only claimed by the manifest.
        deleted = read_deletions(self._paths, fragment)
        zone = np.searchsorted(start, deleted, "right") - 1
        inside = (zone >= 0) & (deleted < stop[zone])
        rows = int((stop - start).sum()) + int(np.count_nonzero(~inside))
        return rows == fragment.physical_rows

    def _zones(self, table: pa.Table, covered: set[int]) -> Zones:
        fragment = table["fragment_index"].to_numpy()
        order = np.lexsort([table["zone_start"].to_numpy(), fragment])
        table = table.take(pa.array(order))
        fragment = fragment[order]
        first = self._starts[fragment] + table["zone_start"].to_numpy().astype(np.int64)
        # The rows before the first zone of a fragment are deleted, and become part of the zone.
        heads = np.flatnonzero(np.diff(fragment, prepend=-1))
        first[heads] = self._starts[fragment[heads]]
        # Each fragment without statistics becomes a zone.
        uncovered = np.array(sorted(set(range(len(self._fragments))) - covered), np.int64)
        first = np.concatenate([first, self._starts[uncovered]])
        order = np.argsort(first, kind="stable")
        count = len(table)
        columns = {
            name: pa.concat_arrays(
                [*table[name].chunks, pa.nulls(len(uncovered), table[name].type)]
            )
            for name in _COLUMNS
        }
        numbers = {
            name: np.concatenate([table[name].to_numpy(), np.zeros(len(uncovered))]).astype(
                np.int64
            )[order]
            for name in ("null_count", "nan_count", "zone_length")
        }
        nulls, nans, length = (numbers[name] for name in ("null_count", "nan_count", "zone_length"))
        counted = np.concatenate([table["counted"].to_numpy(), np.zeros(len(uncovered), np.bool_)])
        low, high = (_bound(columns[name]).take(pa.array(order)) for name in ("min", "max"))
        return Zones(
            np.append(first[order], self._starts[-1]),
            order < count,
            low,
            high,
            length > nulls + nans,
            nulls,
            nans,
            nulls >= length,
            counted[order],
        )


def _read(paths: TablePaths, base_id: int | None, folder: str) -> pa.Table:
    """Return the zones of a file. The column `counted` says whether null counts are exact."""
    with closing(open_file(paths.open_index_file(f"{folder}/{_FILE}", base_id))) as file:
        fields = {field.name: field for field in file.schema.fields}
        missing = [name for name in _COLUMNS if name not in fields]
        if missing:
            raise CorruptFileError(
                f"{file.source.name}: the zone map lacks columns {missing}; rebuild the index"
            )
        arrays = file.read([fields[name] for name in _COLUMNS], all_rows(file))
    columns = dict(zip(_COLUMNS, arrays, strict=True))
    for name in _COLUMNS[2:]:
        if columns[name].null_count or not pat.is_integer(columns[name].type):
            raise CorruptFileError(
                f"{file.source.name}: {name} must be an integer and not null; rebuild the index"
            )
    counted = np.full(file.num_rows, _NULL_BITMAP in file.schema.metadata)
    return pa.table({**columns, "counted": counted})


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


def _flags(array: pa.Array, unknown: bool = True) -> _Flags:
    flags: _Flags = array.fill_null(unknown).to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags
