"""Minimum, maximum and counts of a column from indexes and page metadata, without a scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from google.protobuf.message import DecodeError
from pyroaring import BitMap

from lance_spark.encoding.levels import Layer
from lance_spark.encoding.meta import PageMeta
from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import open_file
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field, reduced_to_path
from lance_spark.file.schema.schema import Schema
from lance_spark.indexes import registry
from lance_spark.indexes.coverage import checked_section
from lance_spark.indexes.search import (
    Bounds,
    ReadBounds,
    ReadZones,
    ZoneStatistics,
    is_less,
    is_ordered,
    min_max,
)
from lance_spark.indexes.table_rows import is_overlaid, starts_of, value_fields
from lance_spark.proto import encodings_v2_1_pb2, encodings_v2_3_pb2, table_pb2
from lance_spark.scan.fragment.assemble import files_of, locate
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.codec import check_columns
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

# --------------------------------------------------------------------------------------------------
# Statistics of the zones of a column, by the type of index that has them.


def is_zone_index(index: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment has statistics of zones, and a supported version."""
    return indexes.is_usable_for(index, "zone_statistics")


def read_zones(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    starts: RowNumbers,
    path: tuple[Field, ...],
    segments: Sequence[table_pb2.IndexMetadata],
) -> ZoneStatistics | None:
    """Return the zones of a column; None if none of its segments has usable zones.

    Parameters and errors are those of `scan.indexes.search.ReadZonesOfColumn`.
    """
    zoned = [segment for segment in segments if is_zone_index(segment)]
    if not zoned:
        return None
    read: ReadZones = registry.part_of(indexes.type_of_index(zoned[0]), "zone_statistics")
    return read(paths, fragments, starts, path, zoned)


# --------------------------------------------------------------------------------------------------
# Minimum, maximum and count of a column from indexes, without decoding the whole column.
#
# | source | content |
# | --- | --- |
# | BTREE index  | exact minimum, maximum and null count of its rows |
# | zone map (`zone_maps`) | bounds of each zone, not always tight; null counts |
# | manifest | a fragment has only nulls if none of its files holds the column |
#
# A BTREE index is used if it has as many rows as its fragments have live rows. All live rows of its
# fragments are in it, so equal counts mean the same rows; deletions and updates since it was built
# leave more rows in it. Null counts of a zone map are used if they are 0, or if they are exact and
# the fragment has no deletions. Neither index is used for fragments with overlays of the column.
#
# Zones that may hold the minimum or maximum are decoded, best bounds first, until no other zone can
# have a better value. Mostly this is one zone for each. If it takes too many zones, the answer is
# unknown.

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

    - `fragments`: The table's, with their rows counted.
    - `path`: Names from the top-level field to the column.

    Raises CorruptTableError, CorruptFileError, StorageError.
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

    - `path`: The fields from the top-level field to the column.
    - `starts` (int64 array): First row of each fragment, and the number of all rows.
    - `trees`: They have exactly the live rows of some fragments, without overlap.
    - `zones`: None if no other fragment has a value.
    - `used` (bool array): Which zones to use: the zones of fragments that no tree covers.
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


# --------------------------------------------------------------------------------------------------
# The only value of a column in each fragment, from zone maps.
#
# A fragment has one value if the bounds of all of its zones are this value, and no zone has a null
# or a NaN: bounds hold for all rows, whichever of them are deleted. It has only nulls if all of its
# zones have, or if no file holds the column. Anything else is unknown, so that no fragment with two
# values passes for one with one value. Rows without a zone are unknown, too: appended and updated
# rows, and those of zones with overlays.

#: Of fragments whose values are unknown, and of those with only nulls.
_UNKNOWN, _NULL = -2, -1


def single_values(
    table: OpenTable,
    section: table_pb2.IndexSection,
    fragments: Sequence[Fragment],
    field: Field,
) -> pa.Array | None:
    """Return the value of a column in each fragment; None if one has several values, or may have.

    - `section`: Its indexes.
    - `fragments`: The table's, with their rows counted.
    - `field`: A top-level column without children, whose values are equal if they compare equal.

    Returns a value, or null, for each fragment. Without meaning for fragments without live rows.
    Raises CorruptTableError, CorruptFileError, StorageError.
    """
    maps = [
        index
        for index in section.indices
        if is_zone_index(index) and list(index.fields) == [field.id]
    ]
    if not maps:
        return None
    starts = starts_of(fragments)
    zones = read_zones(table.paths, fragments, starts, (field,), maps)
    if zones is None:
        return None
    values = zones.minimum.dictionary_encode()
    of_zones = _codes(zones, values)
    codes = np.full(len(fragments), _UNKNOWN, np.int64)
    fragment_of = np.searchsorted(starts, zones.bounds[:-1], side="right") - 1
    heads = np.flatnonzero(np.diff(fragment_of, prepend=-1))
    least, most = (bound.reduceat(of_zones, heads) for bound in (np.minimum, np.maximum))
    codes[fragment_of[heads]] = np.where(least == most, least, _UNKNOWN)
    for index in np.flatnonzero(codes == _UNKNOWN).tolist():
        if not fragments[index].num_rows or is_all_null(fragments[index], (field,)):
            codes[index] = _NULL
        else:
            return None
    return values.dictionary.take(pa.array(codes, mask=codes == _NULL))


def _codes(zones: ZoneStatistics, values: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    """Return the number of the value of each zone."""
    import pyarrow.compute as pc

    is_one = pc.equal(zones.minimum, zones.maximum).fill_null(False)
    is_one = is_one.to_numpy(zero_copy_only=False) & zones.has_bounds
    is_one &= (zones.null_count == 0) & (zones.nan_count == 0)
    codes = values.indices.fill_null(_UNKNOWN).to_numpy().astype(np.int64)
    codes = np.where(is_one, codes, _UNKNOWN)
    return np.where(zones.has_bounds & zones.only_nulls, _NULL, codes)


# --------------------------------------------------------------------------------------------------
# Counts of non-null rows from page metadata, for fragments whose pages have no nulls.
#
# A page of file versions 2.1 to 2.3 records for each layer around its values whether it can be null
# in this page. Writers set this only for pages that have nulls, independent of the schema. So the
# metadata of a column shows that it has no nulls, and its values are not read.
#
# Specification: RepDefLayer of protos/encodings_v2_1.proto, DenseStructure of
# protos/encodings_v2_3.proto.

_LAYOUTS = ("mini_block_layout", "full_zip_layout", "constant_layout")
#: If so many more fragments have nulls than have none, the others are not checked: the check opens
#: files that are opened once more to read their values.
_MAX_FAILED = 3
_VALID = frozenset(int(layer) for layer in Layer if not layer.nullable)


def split_valid(task: ScanTask, path: Sequence[str]) -> tuple[int, ScanTask]:
    """Count the rows of a task in fragments without nulls in a column, without reading values.

    Parameters
    ----------
    task : ScanTask
        Without filters.
    path : sequence of str
        Names from the top-level field to the column. The task reads this field.

    Returns
    -------
    int
        Live rows of the slices of fragments without nulls.
    ScanTask
        The other slices; it may have none.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    fields = _path_of_names(task.lance_schema.fields, path)
    if fields is None or task.filters:
        return 0, task
    paths = TablePaths.open(task.uri, task.storage_options, task.base_paths)
    all_valid: dict[int, bool] = {}
    count, remaining = 0, []
    for piece in task.slices:
        fragment = piece.fragment
        if fragment.id not in all_valid:
            passed = sum(all_valid.values())
            failed = len(all_valid) - passed
            all_valid[fragment.id] = failed < passed + _MAX_FAILED and is_all_valid(
                paths, fragment, fields
            )
        if all_valid[fragment.id]:
            count += _live_rows(paths, piece)
        else:
            remaining.append(piece)
    return count, replace(task, slices=tuple(remaining))


def is_all_valid(paths: TablePaths, fragment: Fragment, path: tuple[Field, ...]) -> bool:
    """Return whether the data file of a column shows that no row of a fragment is null.

    - `path`: The fields from the top-level field to the column.

    Raises CorruptTableError, CorruptFileError, StorageError.
    """
    if is_overlaid(fragment, {node.id for field in path for node in field.walk()}):
        return False
    parts = locate(reduced_to_path(path), files_of(fragment))
    if len(parts) != 1:
        return False
    file = fragment.files[parts[0].file]
    with closing(open_file(paths.open_data_file(file), file.fields)) as reader:
        # The part may have another child of a struct than the column; see `locate`.
        stored = _path_of_names((parts[0].field,), [field.name for field in path])
        if not isinstance(reader, FileReader) or reader.version < (2, 1) or stored is None:
            return False
        column_of = dict(zip(file.fields, file.column_indices, strict=False))
        columns = reader.column_metas([parts[0].field], column_of)
        # All leaves are inside the column, so that the layers of any leaf include the column's.
        return any(
            bool(column.pages) and all(_has_no_nulls(page, reader) for page in column.pages)
            for column in columns
        )


def _has_no_nulls(page: PageMeta, reader: FileReader) -> bool:
    layers: Sequence[int] = ()
    try:
        if reader.version == (2, 3):
            planes = encodings_v2_3_pb2.PlanarLayout.FromString(page.encoding)
            layers = planes.structure.dense.layers
        else:
            message = encodings_v2_1_pb2.PageLayout.FromString(page.encoding)
            layout = message.WhichOneof("layout")
            if layout in _LAYOUTS:
                layers = getattr(message, layout).layers
    except DecodeError as error:
        raise CorruptFileError(
            f"{reader.source.name}: the layout of a page cannot be parsed: {error}"
        ) from None
    return bool(layers) and all(layer in _VALID for layer in layers)


def _live_rows(paths: TablePaths, piece: FragmentSlice) -> int:
    fragment = piece.fragment
    if piece.start == 0 and piece.stop == fragment.physical_rows:
        return fragment.num_rows
    first, last = np.searchsorted(read_deletions(paths, fragment), [piece.start, piece.stop])
    return piece.num_rows - int(last - first)


def _path_of_names(fields: Sequence[Field], names: Sequence[str]) -> tuple[Field, ...] | None:
    """Return the fields from the top-level field to a column.

    Returns None if the column is not found, or if the layers of its pages do not show its nulls.
    """
    path: list[Field] = []
    for name in names:
        if path and (path[-1].is_packed or path[-1].logical_type != "struct"):
            return None
        field = next((field for field in fields if field.name == name), None)
        # Computed columns have negative ids.
        if field is None or field.id < 0 or field.is_blob:
            return None
        path.append(field)
        fields = field.children
    if not path or pat.is_null(path[-1].arrow_field.type):
        return None
    return tuple(path)
