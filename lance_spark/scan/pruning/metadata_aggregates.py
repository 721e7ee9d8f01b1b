"""Least and greatest value of a column, and how many values it has, without decoding the column.

| source | what it says |
| --- | --- |
| BTREE index (`btree_bounds`) | both, of the rows that it holds: exact if it holds as many as its fragments have that are live |
| zone map (`zone_maps`) | bounds of each zone, which hold but need not be tight; how many nulls, of fragments without deletions |
| manifest | a fragment none of whose files has the column has only nulls |

Live rows of the fragments that an index names are all in it, so that equally many are the same rows: deletions and updates since it was
built leave more in it. Fragments with new values in overlays are in neither.

Of zones, those are decoded that could have the least or greatest value of all, best bounds first, until no other can have a better one.
That is one zone each, mostly. If it takes more than some zones, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.schema.schema import Field, Schema, alone
from lance_spark.proto import table_pb2
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.scan.pruning import zone_maps
from lance_spark.scan.pruning.btree_bounds import BTreeBounds, is_btree, read_bounds
from lance_spark.scan.pruning.min_max import is_less, is_ordered, min_max
from lance_spark.scan.pruning.zone_maps import Zones
from lance_spark.table.blob_dataset import check_columns
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.open import OpenTable

#: What is decoded at most for either of the two values.
_MOST_ZONES = 16
_MOST_ROWS = 512 * 1024

_Flags = npt.NDArray[np.bool_]
#: Least and greatest value; both null if there are none.
Extremes = tuple[pa.Scalar, pa.Scalar]


def min_max_from_metadata(
    table: OpenTable, fragments: Sequence[Fragment], path: Sequence[str]
) -> Extremes | None:
    """Return the least and the greatest value of a column over all live rows, if indexes know them.

    Parameters
    ----------
    table : OpenTable
    fragments : sequence of Fragment
        The table's, with their rows counted.
    path : sequence of str
        Names of the structs that the column is in, and its own.

    Returns
    -------
    tuple of pa.Scalar or None
        Of the column's type; NaN is greater than all other values, nulls do not count, and both are null if there is nothing else.
        None if that cannot be told without decoding the column.

    Raises
    ------
    CorruptTableError, CorruptFileError, UnsupportedEncodingError, StorageError
    """
    known = _Known.of(table, fragments, path)
    if known is None:
        return None
    nothing = pa.scalar(None, known.kind)
    if known.trees:
        # A BTREE has each value once, so that the order of its bounds is theirs.
        ends = [one for tree in known.trees for one in (tree.least, tree.greatest)]
        sure = min_max(pa.chunked_array([pa.array(ends, known.kind)]))
        assert sure is not None
    else:
        sure = nothing, nothing
    if known.zones is None:
        return sure
    with _ZoneReader(table, fragments, known) as reader:
        low = _best(known.zones, known.judged, reader, sure[0], least=True)
        high = (
            None if low is None else _best(known.zones, known.judged, reader, sure[1], least=False)
        )
    return None if low is None or high is None else (low, high)


def value_count(table: OpenTable, fragments: Sequence[Fragment], path: Sequence[str]) -> int | None:
    """Return how many live rows have a value in a column, if indexes know it; NaN is one, null is none.

    Parameters
    ----------
    table : OpenTable
    fragments : sequence of Fragment
        The table's, with their rows counted.
    path : sequence of str
        Names of the structs that the column is in, and its own.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    known = _Known.of(table, fragments, path)
    if known is None:
        return None
    count = sum(tree.num_rows - tree.null_count for tree in known.trees)
    if known.zones is None:
        return count
    zones = known.zones
    place, size = known.places(zones)[known.judged], len(fragments)
    nulls = np.bincount(place, zones.null_count[known.judged], size).astype(np.int64)
    vague = np.bincount(place, ~zones.counted[known.judged], size) > 0
    for at in np.unique(place).tolist():
        fragment = fragments[at]
        if nulls[at] and (vague[at] or fragment.deletion_file is not None):
            return None
        count += fragment.num_rows - int(nulls[at])
    return count


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What indexes tell of a column.

    Attributes
    ----------
    path : tuple of Field
    starts : int64 array
        First row of each fragment, and the number of all rows.
    trees : list of BTreeBounds
        Of different fragments, whose live rows they have.
    zones : Zones or None
        None if nothing else has live rows with values.
    judged : bool array
        Zones that are of other fragments than the trees.
    """

    path: tuple[Field, ...]
    starts: RowNumbers
    trees: list[BTreeBounds]
    zones: Zones | None
    judged: _Flags

    @property
    def kind(self) -> pa.DataType:
        """The type of the column."""
        return self.path[-1].arrow_field.type

    def places(self, zones: Zones) -> RowNumbers:
        """Return the fragment of each zone."""
        return np.searchsorted(self.starts, zones.bounds[:-1], side="right") - 1

    @classmethod
    def of(
        cls, table: OpenTable, fragments: Sequence[Fragment], names: Sequence[str]
    ) -> _Known | None:
        """Return what is known of all live rows; None if of some nothing is."""
        # Most tables have no index: nothing is looked at then.
        if table.manifest.index_section is None:
            return None
        path = _path(table.schema, names)
        if path is None:
            return None
        check_columns(table.manifest, path[:1])
        segments = [
            index
            for index in indexes.section_for_reading(table.manifest).indices
            if list(index.fields) == [path[-1].id]
        ]
        if not any(is_btree(one) or zone_maps.is_zone_map(one) for one in segments):
            return None
        trees, unknown = _trees(table, fragments, path, segments)
        starts = zone_maps.starts_of(fragments)
        found = cls(path, starts, trees, None, np.zeros(0, np.bool_))
        if not unknown:
            return found
        maps = [one for one in segments if zone_maps.is_zone_map(one)]
        zones = zone_maps.read_zones(table.paths, fragments, starts, path, maps) if maps else None
        if zones is None:
            left, judged = unknown, np.zeros(0, np.bool_)
        else:
            place = found.places(zones)
            judged = zones.known & np.isin(place, list(unknown))
            left = unknown - set(place[judged].tolist())
        if not all(_lacks(fragments[at], path) for at in left):
            return None
        return replace(found, zones=zones, judged=judged) if judged.any() else found


def _path(schema: Schema, names: Sequence[str]) -> tuple[Field, ...] | None:
    """Return a column after the structs that it is in; None if there is no such column, or its values have no order."""
    fields, found = schema.fields, []
    for name in names:
        field = next((one for one in fields if one.name == name), None)
        if field is None or field.is_blob:
            return None
        found.append(field)
        fields = field.children if field.logical_type == "struct" else ()
    if not found or found[-1].logical_type == "json":
        return None
    return tuple(found) if is_ordered(found[-1].arrow_field.type) else None


def _trees(
    table: OpenTable,
    fragments: Sequence[Fragment],
    path: tuple[Field, ...],
    segments: Sequence[table_pb2.IndexMetadata],
) -> tuple[list[BTreeBounds], set[int]]:
    """Return bounds of BTREE indexes that have the live rows of some fragments, and where the others that have live rows are."""
    unknown = {at for at, one in enumerate(fragments) if one.num_rows}
    place = {fragments[at].id: at for at in unknown}
    live = BitMap(place)
    ids = {field.id for field in path}
    covers = []
    for index in segments:
        if is_btree(index):
            bitmap = indexes.fragment_bitmap(index)
            cover = set() if bitmap is None else {place[number] for number in bitmap & live}
            covers.append((cover, index))
    trees = []
    for cover, index in sorted(covers, key=lambda one: len(one[0]), reverse=True):
        if not cover or not cover <= unknown:
            continue
        if any(zone_maps.is_overlaid(fragments[at], ids) for at in cover):
            continue
        tree = read_bounds(table.paths, index)
        rows = sum(fragments[at].num_rows for at in cover)
        if tree is None or tree.num_rows != rows or tree.least.type != path[-1].arrow_field.type:
            continue
        trees.append(tree)
        unknown -= cover
    return trees, unknown


def _lacks(fragment: Fragment, path: tuple[Field, ...]) -> bool:
    """Tell whether a fragment has the column nowhere. A packed struct is a column with all that is in it."""
    if any(field.is_packed for field in path):
        return False
    number = path[-1].id
    files = (*fragment.files, *(one.data_file for one in fragment.overlays))
    return not any(number in file.fields for file in files)


class _ZoneReader:
    """Decodes zones of a column, each once. A context manager that closes what it has opened."""

    def __init__(self, table: OpenTable, fragments: Sequence[Fragment], known: _Known) -> None:
        self._table = table
        self._fragments = fragments
        self._known = known
        self._depth = len(known.path) - 1
        self._schema = Schema((alone(known.path),))
        self._open: dict[int, FragmentReader] = {}
        self._read: dict[int, Extremes] = {}

    def __enter__(self) -> _ZoneReader:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self._open.values():
            reader.close()

    def costs(self, at: int) -> int:
        """Return how many rows are decoded to read a zone: none if it was read before, or all its rows are deleted."""
        if at in self._read:
            return 0
        reader, rows = self._locate(at)
        first, last = np.searchsorted(reader.deleted(), [rows.start, rows.stop])
        return 0 if last - first == len(rows) else len(rows)

    def read(self, at: int) -> Extremes:
        """Return the least and the greatest value of a zone's live rows."""
        known = self._read.get(at)
        if known is None:
            known = self._read[at] = self._decode(at)
        return known

    def _locate(self, at: int) -> tuple[FragmentReader, range]:
        zones = self._known.zones
        assert zones is not None
        first, stop = zones.bounds[at : at + 2].tolist()
        place = int(np.searchsorted(self._known.starts, first, side="right")) - 1
        base = int(self._known.starts[place])
        reader = self._open.get(place)
        if reader is None:
            reader = FragmentReader(self._table.paths, self._fragments[place], self._schema)
            self._open[place] = reader
        return reader, range(first - base, stop - base)

    def _decode(self, at: int) -> Extremes:
        kind = self._known.kind
        reader, rows = self._locate(at)
        ends: list[pa.Scalar] = []
        for batch in reader.live(rows):
            array = batch.column(0)
            for _ in range(self._depth):
                # A null struct makes its children null.
                (array,) = array.flatten()
            found = min_max(pa.chunked_array([array]))
            assert found is not None
            ends += found
        found = min_max(pa.chunked_array([pa.array(ends, kind)]))
        assert found is not None
        return found


def _best(
    zones: Zones, judged: _Flags, reader: _ZoneReader, best: pa.Scalar, *, least: bool
) -> pa.Scalar | None:
    """Return the least, or greatest, of a value and those of zones; None if that takes too much."""
    read = rows = 0
    better = is_less if least else (lambda one, other: is_less(other, one))
    for at, bound in _in_order(zones, judged, least):
        if best.is_valid and bound is not None and not better(bound, best):
            break
        cost = reader.costs(at)
        read += cost > 0
        rows += cost
        if read > _MOST_ZONES or rows > _MOST_ROWS:
            return None
        value = reader.read(at)[0 if least else 1]
        if value.is_valid and (not best.is_valid or better(value, best)):
            best = value
    return best


def _in_order(zones: Zones, judged: _Flags, least: bool) -> Iterator[tuple[int, pa.Scalar | None]]:
    """Yield zones that may have values, with their bound, best bounds first: those without any come before all."""
    import pyarrow.compute as pc

    bounds = zones.minimum if least else zones.maximum
    valid = bounds.is_valid().to_numpy(zero_copy_only=False)
    with_nan = judged & (zones.nan_count > 0)
    comparable = judged & zones.comparable
    nan = pa.scalar(float("nan"), bounds.type) if pat.is_floating(bounds.type) else None
    if not least:
        yield from ((at, nan) for at in np.flatnonzero(with_nan).tolist())
        comparable &= ~with_nan
    yield from ((at, None) for at in np.flatnonzero(comparable & ~valid).tolist())
    known = np.flatnonzero(comparable & valid)
    values = bounds.take(pa.array(known))
    order = pc.array_sort_indices(values, order="ascending" if least else "descending")
    yield from ((int(known[at]), values[at]) for at in order.to_pylist())
    if least:
        # Where nothing else is found, NaN is the least.
        yield from ((at, nan) for at in np.flatnonzero(with_nan & ~comparable).tolist())
