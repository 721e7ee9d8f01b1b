"""Minimum, maximum and count of a column from indexes, without decoding the whole column.

| source | content |
| --- | --- |
| BTREE index  | exact minimum, maximum and null count of its rows |
| zone map (`zone_maps`) | bounds of each zone, not always tight; null counts |
| manifest | a fragment has only nulls if none of its files holds the column |

A BTREE index is used if it has as many rows as its fragments have live rows. All live rows of its
fragments are in it, so equal counts mean the same rows; deletions and updates since it was built
leave more rows in it. Null counts of a zone map are used if they are 0, or if they are exact and
the fragment has no deletions. Neither index is used for fragments with overlays of the column.

Zones that may hold the minimum or maximum are decoded, best bounds first, until no other zone can
have a better value. Mostly this is one zone for each. If it takes too many zones, the answer is
unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.schema.field import Field, reduced_to_path
from lance_spark.file.schema.schema import Schema
from lance_spark.indexes import registry
from lance_spark.proto import table_pb2
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.scan.pruning.bounds import (
    Bounds,
    ReadBounds,
    ZoneStatistics,
    is_less,
    is_ordered,
    min_max,
)
from lance_spark.scan.pruning.coverage import checked_section
from lance_spark.scan.pruning.overlaid_rows import is_overlaid, value_fields
from lance_spark.scan.pruning.table_rows import starts_of
from lance_spark.scan.pruning.zones import is_zone_index, read_zones
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.repairs import check_columns
from lance_spark.table.open import OpenTable

#: Most zones and rows that are decoded for the minimum, and for the maximum.
_MAX_ZONES = 16
_MAX_ROWS = 512 * 1024

_Flags = npt.NDArray[np.bool_]
#: Minimum and maximum; both null if all values are null.
MinMax = tuple[pa.Scalar, pa.Scalar]


def min_max_from_metadata(
    table: OpenTable, fragments: Sequence[Fragment], path: Sequence[str]
) -> MinMax | None:
    """Return the minimum and the maximum of a column over all live rows, if indexes know them.

    Parameters
    ----------
    table : OpenTable
    fragments : sequence of Fragment
        The table's, with their rows counted.
    path : sequence of str
        Names from the top-level field to the column.

    Returns
    -------
    tuple of pa.Scalar or None
        Of the column's type. NaN is the greatest value and nulls are skipped; both are null if all
        values are null. None if the answer is unknown without decoding the column.

    Raises
    ------
    CorruptTableError, CorruptFileError, UnsupportedEncodingError, StorageError
    """
    column = _ColumnStatistics.of(table, fragments, path)
    if column is None:
        return None
    null = pa.scalar(None, column.dtype)
    bounds = null, null
    if column.trees:
        ends = [end for tree in column.trees for end in (tree.minimum, tree.maximum)]
        bounds = _min_max_of(ends, column.dtype)
    zones = column.zones
    if zones is None:
        return bounds
    with closing(_ZoneReader(table, fragments, column)) as reader:
        low = _best(zones, column.used, reader, bounds[0], least=True)
        high = None if low is None else _best(zones, column.used, reader, bounds[1], least=False)
    return None if low is None or high is None else (low, high)


def value_count(table: OpenTable, fragments: Sequence[Fragment], path: Sequence[str]) -> int | None:
    """Return how many live rows are not null in a column, if indexes know it. NaN counts.

    Parameters
    ----------
    table : OpenTable
    fragments : sequence of Fragment
        The table's, with their rows counted.
    path : sequence of str
        Names from the top-level field to the column.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    column = _ColumnStatistics.of(table, fragments, path)
    if column is None:
        return None
    count = sum(tree.num_rows - tree.null_count for tree in column.trees)
    if column.zones is None:
        return count
    zones, used = column.zones, column.used
    fragment_of, size = column.fragments_of(zones)[used], len(fragments)
    nulls = np.bincount(fragment_of, zones.null_count[used], size).astype(np.int64)
    is_inexact = np.bincount(fragment_of, ~zones.counted[used], size) > 0
    for index in np.unique(fragment_of).tolist():
        fragment = fragments[index]
        if nulls[index] and (is_inexact[index] or fragment.deletion_file is not None):
            return None
        count += fragment.num_rows - int(nulls[index])
    return count


@dataclass(frozen=True, slots=True, eq=False)
class _ColumnStatistics:
    """Index statistics of a column that together cover all live rows.

    Attributes
    ----------
    path : tuple of Field
        The fields from the top-level field to the column.
    starts : int64 array
        First row of each fragment, and the number of all rows.
    trees : list of Bounds
        They have exactly the live rows of some fragments, without overlap.
    zones : Zones or None
        None if no other fragment has a value.
    used : bool array
        Which zones to use: the zones of fragments that no tree covers.
    """

    path: tuple[Field, ...]
    starts: RowNumbers
    trees: list[Bounds]
    zones: ZoneStatistics | None
    used: _Flags

    @property
    def dtype(self) -> pa.DataType:
        """The type of the column."""
        return self.path[-1].arrow_field.type

    def fragments_of(self, zones: ZoneStatistics) -> RowNumbers:
        """Return the index of the fragment of each zone."""
        return np.searchsorted(self.starts, zones.bounds[:-1], side="right") - 1

    @classmethod
    def of(
        cls, table: OpenTable, fragments: Sequence[Fragment], names: Sequence[str]
    ) -> _ColumnStatistics | None:
        """Collect the statistics; None if they do not cover all live rows."""
        # Most tables have no index.
        if table.manifest.index_section is None:
            return None
        path = _path(table.schema, names)
        if path is None:
            return None
        check_columns(table.manifest, path[:1])
        segments = [
            index
            for index in checked_section(table.paths, table.manifest).indices
            if list(index.fields) == [path[-1].id]
        ]
        if not any(_is_tree(index) or is_zone_index(index) for index in segments):
            return None
        trees, unknown = _trees(table, fragments, path, segments)
        starts = starts_of(fragments)
        of_trees = cls(path, starts, trees, None, np.zeros(0, np.bool_))
        if not unknown:
            return of_trees
        zones = read_zones(table.paths, fragments, starts, path, segments)
        used = np.zeros(0, np.bool_)
        if zones is not None:
            fragment_of = of_trees.fragments_of(zones)
            # A zone without bounds does not show that its fragment has other zones with bounds.
            ids = value_fields(path)
            known = [index for index in unknown if not is_overlaid(fragments[index], ids)]
            used = zones.has_bounds & np.isin(fragment_of, known)
            unknown -= set(fragment_of[used].tolist())
        if not all(is_all_null(fragments[index], path) for index in unknown):
            return None
        return replace(of_trees, zones=zones, used=used) if used.any() else of_trees


def _path(schema: Schema, names: Sequence[str]) -> tuple[Field, ...] | None:
    """Return the fields from the top-level field to a column; None if not found or not ordered."""
    fields, path = schema.fields, []
    for name in names:
        field = next((field for field in fields if field.name == name), None)
        if field is None or field.is_blob:
            return None
        path.append(field)
        fields = field.children if field.logical_type == "struct" else ()
    if not path or path[-1].logical_type == "json":
        return None
    return tuple(path) if is_ordered(path[-1].arrow_field.type) else None


def _trees(
    table: OpenTable,
    fragments: Sequence[Fragment],
    path: tuple[Field, ...],
    segments: Sequence[table_pb2.IndexMetadata],
) -> tuple[list[Bounds], set[int]]:
    """Return the bounds of usable BTREE indexes, and the other fragments that have live rows.

    Fragments are given by their index in `fragments`.
    """
    unknown = {index for index, fragment in enumerate(fragments) if fragment.num_rows}
    index_of = {fragments[index].id: index for index in unknown}
    live = BitMap(index_of)
    field_ids = value_fields(path)
    candidates = []
    for segment in segments:
        if _is_tree(segment):
            bitmap = indexes.fragment_bitmap(segment)
            covered = set() if bitmap is None else {index_of[number] for number in bitmap & live}
            candidates.append((covered, segment))
    trees = []
    for covered, segment in sorted(candidates, key=lambda pair: len(pair[0]), reverse=True):
        if not covered or not covered <= unknown:
            continue
        built_on = segment.dataset_version
        if any(is_overlaid(fragments[index], field_ids, built_on) for index in covered):
            continue
        tree = _read_bounds(table, segment)
        rows = sum(fragments[index].num_rows for index in covered)
        if tree is None or tree.num_rows != rows or tree.minimum.type != path[-1].arrow_field.type:
            continue
        trees.append(tree)
        unknown -= covered
    return trees, unknown


def _is_tree(index: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment has bounds, and all rows."""
    return indexes.is_usable_for(index, "bounds") and not indexes.may_lack_rows(index)


def _read_bounds(table: OpenTable, index: table_pb2.IndexMetadata) -> Bounds | None:
    read: ReadBounds = registry.part_of(indexes.type_of_index(index), "bounds")
    return read(table.paths, index)


def is_all_null(fragment: Fragment, path: tuple[Field, ...]) -> bool:
    """Return whether no file of a fragment holds the column."""
    # A packed struct is one column, and its fields are in no list of field ids.
    if any(field.is_packed for field in path):
        return False
    field_id = path[-1].id
    files = (*fragment.files, *(overlay.data_file for overlay in fragment.overlays))
    return not any(field_id in file.fields for file in files)


class _ZoneReader:
    """Decodes zones of a column, each once."""

    def __init__(
        self, table: OpenTable, fragments: Sequence[Fragment], column: _ColumnStatistics
    ) -> None:
        self._table = table
        self._fragments = fragments
        self._column = column
        self._depth = len(column.path) - 1
        self._schema = Schema((reduced_to_path(column.path),))
        self._readers: dict[int, FragmentReader] = {}
        self._results: dict[int, MinMax] = {}

    def close(self) -> None:
        """Close the files."""
        for reader in self._readers.values():
            reader.close()

    def rows_to_decode(self, zone: int) -> int:
        """Return how many rows `read` decodes: 0 if it did so before, or all rows are deleted."""
        if zone in self._results:
            return 0
        reader, rows = self._locate(zone)
        first, last = np.searchsorted(reader.deleted(), [rows.start, rows.stop])
        return 0 if last - first == len(rows) else len(rows)

    def read(self, zone: int) -> MinMax:
        """Return the minimum and the maximum of a zone's live rows."""
        result = self._results.get(zone)
        if result is None:
            result = self._results[zone] = self._decode(zone)
        return result

    def _locate(self, zone: int) -> tuple[FragmentReader, range]:
        zones, starts = self._column.zones, self._column.starts
        assert zones is not None
        first, stop = zones.bounds[zone : zone + 2].tolist()
        index = int(np.searchsorted(starts, first, side="right")) - 1
        base = int(starts[index])
        reader = self._readers.get(index)
        if reader is None:
            reader = FragmentReader(self._table.paths, self._fragments[index], self._schema)
            self._readers[index] = reader
        return reader, range(first - base, stop - base)

    def _decode(self, zone: int) -> MinMax:
        reader, rows = self._locate(zone)
        ends: list[pa.Scalar] = []
        for batch in reader.live(rows):
            array = batch.column(0)
            for _ in range(self._depth):
                # `flatten` makes the children of a null struct null.
                (array,) = array.flatten()
            bounds = min_max(pa.chunked_array([array]))
            assert bounds is not None
            ends += bounds
        return _min_max_of(ends, self._column.dtype)


def _min_max_of(values: Sequence[pa.Scalar], dtype: pa.DataType) -> MinMax:
    result = min_max(pa.chunked_array([pa.array(values, dtype)]))
    assert result is not None
    return result


def _best(
    zones: ZoneStatistics, used: _Flags, reader: _ZoneReader, best: pa.Scalar, *, least: bool
) -> pa.Scalar | None:
    """Return the least, or greatest, of a value and the values of zones.

    Returns None if too many rows would have to be decoded.
    """
    num_zones = num_rows = 0
    is_better = is_less if least else (lambda left, right: is_less(right, left))
    for zone, bound in _best_first(zones, used, least):
        if best.is_valid and bound is not None and not is_better(bound, best):
            break
        rows = reader.rows_to_decode(zone)
        num_zones += rows > 0
        num_rows += rows
        if num_zones > _MAX_ZONES or num_rows > _MAX_ROWS:
            return None
        value = reader.read(zone)[0 if least else 1]
        if value.is_valid and (not best.is_valid or is_better(value, best)):
            best = value
    return best


def _best_first(
    zones: ZoneStatistics, used: _Flags, least: bool
) -> Iterator[tuple[int, pa.Scalar | None]]:
    """Yield zones that may have values with their bound, best bounds first.

    Zones without a bound come before zones with one.
    """
    import pyarrow.compute as pc

    bounds = zones.minimum if least else zones.maximum
    is_bounded = bounds.is_valid().to_numpy(zero_copy_only=False)
    with_nan = used & (zones.nan_count > 0)
    comparable = used & zones.comparable
    nan = pa.scalar(float("nan"), bounds.type) if pat.is_floating(bounds.type) else None
    if not least:
        yield from ((zone, nan) for zone in np.flatnonzero(with_nan).tolist())
        comparable &= ~with_nan
    yield from ((zone, None) for zone in np.flatnonzero(comparable & ~is_bounded).tolist())
    bounded = np.flatnonzero(comparable & is_bounded)
    values = bounds.take(pa.array(bounded))
    order = pc.array_sort_indices(values, order="ascending" if least else "descending")
    yield from ((int(bounded[index]), values[index]) for index in order.to_pylist())
    if least:
        # NaN is the minimum only if there is no other value.
        yield from ((zone, nan) for zone in np.flatnonzero(with_nan & ~comparable).tolist())
