"""Zone maps: which rows of a table a condition can hold for, from an index of the kind ZONEMAP.

Such an index has for each *zone*, some thousand rows of one fragment that follow one another, the least and the greatest value. Its
only file, zonemap.lance, is a data file of version 2 with a row for each zone:

| column | content |
| --- | --- |
| min, max | of the field's type, NaN greater than all; null if the zone has only nulls, or the writer did not know |
| null_count, nan_count | u32; rows that were deleted are not counted, a child of a null struct is null |
| fragment_id, zone_start | u64; the physical row of the fragment that is the zone's first live one, with stable row ids too |
| zone_length | u64; up to the zone's last live row. Releases until 2025 counted the live rows instead |

Zones of a fragment follow one another, and rows that none has were deleted when the index was built. So a zone is taken to go as far as
the next one begins; a fragment is passed over if a live row is outside of all zones, if the segment's bitmap does not name it, or if
overlays have new values of the column.

Bounds hold, but need not be tight: rows may have been deleted since, and where an index was merged after a compaction that left its
addresses as they were, zones have the bounds of the old ones. Then counts of nulls are those of the rows, if the writer knew which
rows are null: it says so by `null_bitmap` in the schema's metadata. Without, 1 may stand for some.

Rows of all fragments are numbered through, in the table's order, so that conditions are asked once for the whole table.

Specification: table/index/scalar/zonemap.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark.encoding.arrow_blocks import is_variable
from lance_spark.encoding.rows import RowNumbers, runs_of
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import open_file
from lance_spark.file.schema.schema import Field
from lance_spark.proto import table_pb2
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.pruning.index_cache import all_rows, cached
from lance_spark.scan.pruning.ranges import in_all, intersection
from lance_spark.scan.task import FragmentSlice
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

_FILE = "zonemap.lance"
_KIND = "ZONEMAP"
#: Versions of the index that are known.
_VERSIONS = (0,)
_COLUMNS = ("min", "max", "null_count", "nan_count", "fragment_id", "zone_start", "zone_length")
#: Key of the metadata of a schema whose writer knew which rows are null.
_NULL_BITMAP = "null_bitmap"
#: Rows that are ruled out, but read if there are rows to be read on both sides: to begin anew costs as much.
_NEAR = 16 * 1024

_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Zones:
    """What is known of the values of one column, zone by zone; zones follow one another and hold all rows of the table.

    Attributes
    ----------
    bounds : int64 array
        First row of each zone, and the number of all rows.
    known : bool array
        Whether anything is known of a zone.
    minimum, maximum : pa.Array
        Of the column's type. Null if unknown.
    comparable : bool array
        Whether there may be values other than null and NaN.
    null_count, nan_count : int64 array
        Of the rows that were live when the index was built.
    only_nulls : bool array
    counted : bool array
        Whether `null_count` is exact where it is not 0.
    """

    bounds: RowNumbers
    known: _Flags
    minimum: pa.Array
    maximum: pa.Array
    comparable: _Flags
    null_count: RowNumbers
    nan_count: RowNumbers
    only_nulls: _Flags
    counted: _Flags

    def candidates(self, op: str, value: Any) -> list[range] | None:
        """Return the rows that a comparison can hold for; None if nothing can be told."""
        keep = self._kept(op, value)
        if keep is None:
            return None
        return runs_of(self.bounds, keep | ~self.known)

    def _kept(self, op: str, value: Any) -> _Flags | None:
        import pyarrow.compute as pc

        if op == "is_null":
            return self.null_count > 0
        if op == "is_not_null":
            return ~self.only_nulls
        kind = self.minimum.type
        scalar = value if isinstance(value, pa.Scalar) else _scalar(value, kind)
        if scalar is None or not scalar.is_valid or scalar.type != kind:
            return None
        low, high = self.minimum, self.maximum
        found = np.ones(len(self.known), np.bool_)
        if op in ("==", "<", "<="):
            found &= _flags((pc.less if op == "<" else pc.less_equal)(low, scalar))
        if op in ("==", ">", ">="):
            found &= _flags((pc.greater if op == ">" else pc.greater_equal)(high, scalar))
        if op == "!=":
            if is_variable(kind):
                return None
            same = pc.and_(pc.equal(low, scalar), pc.equal(high, scalar))
            found = ~_flags(same, unknown=False)
        elif op not in ("==", "<", "<=", ">", ">="):
            return None
        found &= self.comparable
        if op in (">", ">=", "!="):
            found |= self.nan_count > 0
        return found


def candidates(
    conditions: Sequence[Condition],
    paths: TablePaths,
    manifest: Manifest,
    fragments: Sequence[Fragment],
) -> dict[int, list[range]] | None:
    """Return the rows of each fragment that conditions can all hold for, as far as zone maps tell.

    Parameters
    ----------
    conditions : sequence of Condition
    paths : TablePaths
    manifest : Manifest
    fragments : sequence of Fragment
        Of the version.

    Returns
    -------
    dict of int to list of range, or None
        Physical rows by the fragment's id. None if the zone maps that there are have none of the columns.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    if not conditions or manifest.index_section is None or not fragments:
        return None
    segments = list(segments_of(manifest))
    paths_asked = [path for condition in conditions for path in condition.paths]
    asked = {path[-1].id: path for path in paths_asked}
    # Computed columns have negative ids.
    fields = {index.fields[0] for index in segments} & asked.keys()
    if not fields:
        return None
    if len({fragment.id for fragment in fragments}) < len(fragments):
        # Where an id occurs twice, nobody can say which of the fragments a zone is of: all rows are looked at.
        return None
    starts = starts_of(fragments)
    zones = {}
    for number in fields:
        mine = [index for index in segments if index.fields[0] == number]
        zones[number] = read_zones(paths, fragments, starts, asked[number], mine)

    def statistics(field: Field, op: str, value: Any) -> list[range] | None:
        known = zones.get(field.id)
        return None if known is None else known.candidates(op, value)

    rows = in_all(condition.candidates(statistics) for condition in conditions)
    return None if rows is None else _by_fragment(rows, fragments, starts)


def read_zones(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    starts: RowNumbers,
    path: tuple[Field, ...],
    segments: Sequence[table_pb2.IndexMetadata],
) -> Zones | None:
    """Return what zone maps tell of a column; None if that is nothing.

    Parameters
    ----------
    paths : TablePaths
    fragments : sequence of Fragment
        Of the version.
    starts : int64 array
        Their `starts_of`.
    path : tuple of Field
        The column, after the structs that it is in.
    segments : sequence of IndexMetadata
        Those of `segments_of` that are of the column.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    return _Reader(paths, fragments, starts, path).read(segments)


def starts_of(fragments: Sequence[Fragment]) -> RowNumbers:
    """Return the number of each fragment's first row, and that of all rows."""
    return np.cumsum([0, *(fragment.physical_rows for fragment in fragments)])


def segments_of(manifest: Manifest) -> Iterator[table_pb2.IndexMetadata]:
    """Yield the segments that are zone maps of a version that is known."""
    for index in indexes.section_for_reading(manifest).indices:
        if is_zone_map(index):
            yield index


def is_zone_map(index: table_pb2.IndexMetadata) -> bool:
    """Tell whether a segment is a zone map of a version that is known."""
    return indexes.is_of_column(index, _KIND, _VERSIONS)


def is_overlaid(fragment: Fragment, ids: Collection[int]) -> bool:
    """Tell whether overlays of a fragment have new values of some fields."""
    return fragment.has_overlays and any(
        not set(ids).isdisjoint(one.data_file.fields) for one in fragment.overlays
    )


def narrowed(
    groups: Sequence[tuple[FragmentSlice, ...]],
    rows: Mapping[int, Sequence[range]],
    target_rows: int,
) -> list[tuple[FragmentSlice, ...]]:
    """Return groups of slices without the rows that are ruled out.

    Parameters
    ----------
    groups : sequence of tuple of FragmentSlice
    rows : mapping of int to sequence of range
        Those that are left, by the fragment's id.
    target_rows : int
        Groups that have fewer rows left than this together are made one.
    """
    made: list[tuple[FragmentSlice, ...]] = []
    current: list[FragmentSlice] = []
    size = 0
    for group in groups:
        left = [
            one._replace(start=piece.start, stop=piece.stop)
            for one in group
            for piece in intersection([range(one.start, one.stop)], rows[one.fragment.id])
        ]
        count = sum(one.num_rows for one in left)
        if current and size + count > target_rows:
            made.append(tuple(current))
            current, size = [], 0
        current += left
        size += count
    if current:
        made.append(tuple(current))
    return made


class _Reader:
    """Reads segments for one column of a table."""

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
        self._place = {fragment.id: at for at, fragment in enumerate(fragments)}
        self._live = BitMap(self._place)
        self._kind = path[-1].arrow_field.type
        self._ids = {node.id for node in path}

    def read(self, segments: Sequence[table_pb2.IndexMetadata]) -> Zones | None:
        """Return what segments tell; None if that is nothing."""
        if pat.is_float16(self._kind) or pat.is_nested(self._kind):
            return None
        tables = []
        taken: set[int] = set()
        for index in segments:
            bitmap = indexes.fragment_bitmap(index)
            # Of few bytes millions of ids can come, most of which no fragment has.
            covered = BitMap() if bitmap is None else bitmap & self._live
            wanted = {
                self._place[number]
                for number in covered
                if not is_overlaid(self._fragments[self._place[number]], self._ids)
            } - taken
            table = self._read(index) if wanted else None
            if table is None:
                continue
            table = self._trusted(table, wanted)
            taken |= set(table["place"].to_numpy().tolist())
            tables.append(table)
        if not taken:
            return None
        return self._zones(pa.concat_tables(tables), taken)

    def _read(self, index: table_pb2.IndexMetadata) -> pa.Table | None:
        """Return the zones of a segment, with numbers for fragments; None if they are of another type."""
        table = cached(self._paths, index, _FILE, _read, _size)
        if table is None or any(
            table.schema.field(name).type != self._kind for name in ("min", "max")
        ):
            return None
        return table

    def _trusted(self, table: pa.Table, wanted: set[int]) -> pa.Table:
        """Return the zones of those wanted fragments that zones hold all live rows of, in the table's order, with their fragment's place."""
        ids = table["fragment_id"].to_numpy()
        place = np.array([self._place.get(number, -1) for number in ids.tolist()], np.int64)
        start = table["zone_start"].to_numpy().astype(np.int64)
        stop = start + table["zone_length"].to_numpy().astype(np.int64)
        order = np.lexsort([start, place])
        order = order[np.isin(place[order], list(wanted))]
        trusted = self._holding_all(place[order], start[order], stop[order])
        found = order[trusted]
        return table.take(pa.array(found)).append_column("place", pa.array(place[found]))

    def _holding_all(self, place: RowNumbers, start: RowNumbers, stop: RowNumbers) -> _Flags:
        """Return which zones are of fragments whose live rows are all in zones; those of a fragment follow one another."""
        heads = np.flatnonzero(np.diff(place, prepend=-1))
        if not len(heads):
            return np.zeros(0, np.bool_)
        sizes = np.diff(heads, append=len(place))
        fragments = [self._fragments[at] for at in place[heads].tolist()]
        rows = np.array([fragment.physical_rows for fragment in fragments])
        wrong = (start < 0) | (stop < start) | (stop > np.repeat(rows, sizes))
        wrong[:-1] |= (place[:-1] == place[1:]) & (stop[:-1] > start[1:])
        right = np.add.reduceat(wrong, heads, dtype=np.int64) == 0
        holding = right & (np.add.reduceat(stop - start, heads) == rows)
        for number in np.flatnonzero(right & ~holding).tolist():
            mine = slice(heads[number], heads[number] + sizes[number])
            holding[number] = self._holds_live(fragments[number], start[mine], stop[mine])
        return np.repeat(holding, sizes)

    def _holds_live(self, fragment: Fragment, start: RowNumbers, stop: RowNumbers) -> bool:
        if fragment.deletion_file is None:
            return False
        # Zones do not overlap, so that rows are counted: the manifest's number of rows sizes no array.
        deleted = read_deletions(self._paths, fragment)
        zone = np.searchsorted(start, deleted, "right") - 1
        inside = (zone >= 0) & (deleted < stop[zone])
        rows = int((stop - start).sum()) + int(np.count_nonzero(~inside))
        return rows == fragment.physical_rows

    def _zones(self, table: pa.Table, taken: set[int]) -> Zones:
        place = table["place"].to_numpy()
        order = np.lexsort([table["zone_start"].to_numpy(), place])
        table = table.take(pa.array(order))
        place = place[order]
        first = self._starts[place] + table["zone_start"].to_numpy().astype(np.int64)
        # The rows before the first zone of a fragment are deleted.
        heads = np.flatnonzero(np.diff(place, prepend=-1))
        first[heads] = self._starts[place[heads]]
        # Other fragments, of which nothing is known, are a zone each.
        others = np.array(sorted(set(range(len(self._fragments))) - taken), np.int64)
        first = np.concatenate([first, self._starts[others]])
        order = np.argsort(first, kind="stable")
        count = len(table)
        columns = {
            name: pa.concat_arrays([*table[name].chunks, pa.nulls(len(others), table[name].type)])
            for name in _COLUMNS
        }
        numbers = {
            name: np.concatenate([table[name].to_numpy(), np.zeros(len(others))]).astype(np.int64)[
                order
            ]
            for name in ("null_count", "nan_count", "zone_length")
        }
        nulls, nans, length = (numbers[name] for name in ("null_count", "nan_count", "zone_length"))
        counted = np.concatenate([table["counted"].to_numpy(), np.zeros(len(others), np.bool_)])
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
    """Return the zones of a file, and whether their counts of nulls are exact."""
    file = open_file(paths.open_index_file(f"{folder}/{_FILE}", base_id))
    try:
        held = {field.name: field for field in file.schema.fields}
        missing = [name for name in _COLUMNS if name not in held]
        if missing:
            raise CorruptFileError(f"{file.source.name}: a zone map without {missing}")
        arrays = file.read([held[name] for name in _COLUMNS], all_rows(file))
    finally:
        file.close()
    columns = dict(zip(_COLUMNS, arrays, strict=True))
    if any(
        columns[name].null_count or not pat.is_integer(columns[name].type) for name in _COLUMNS[2:]
    ):
        raise CorruptFileError(f"{file.source.name}: a zone without a place or counts")
    counted = np.full(file.num_rows, _NULL_BITMAP in file.schema.metadata)
    return pa.table({**columns, "counted": counted})


def _size(table: pa.Table) -> int:
    return int(table.nbytes)


def _by_fragment(
    rows: Sequence[range], fragments: Sequence[Fragment], starts: RowNumbers
) -> dict[int, list[range]]:
    found: dict[int, list[range]] = {fragment.id: [] for fragment in fragments}
    for part in rows:
        first, last = np.searchsorted(starts, [part.start, part.stop - 1], side="right") - 1
        for at in range(int(first), int(last) + 1):
            base = int(starts[at])
            start = max(part.start - base, 0)
            stop = min(part.stop - base, fragments[at].physical_rows)
            mine = found[fragments[at].id]
            if mine and start - mine[-1].stop < _NEAR:
                mine[-1] = range(mine[-1].start, stop)
            elif stop > start:
                mine.append(range(start, stop))
    return found


def _bound(values: pa.Array) -> pa.Array:
    """Return bounds, with null for NaN: it stands for unknown."""
    if not pat.is_floating(values.type):
        return values
    import pyarrow.compute as pc

    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar | None:
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _flags(array: pa.Array, unknown: bool = True) -> _Flags:
    flags: _Flags = array.fill_null(unknown).to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags
