"""The zones of a table that may have certain values, by a BLOOMFILTER index.

`lance_spark.scan.indexes.zoned.bloom_filter` has the layout of the index, `zone_places` says which
rows of the table a zone has.

Nulls are found by `has_null` of each zone. The null bitmap of the index is not used: after a
compaction that kept the addresses in the index, pylance merges null bitmaps with old addresses.
Zones with old addresses do not have all live rows of a fragment, so that they are ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.schema.field import Field
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.comparing import typed, with_both_zeros
from lance_spark.scan.indexes.files import INDEX_ERRORS, IndexFiles
from lance_spark.scan.indexes.search import ZoneSearch
from lance_spark.scan.indexes.zoned.bloom_filter import (
    HAS_NULL,
    FilterFile,
    cached_file,
    may_have,
    supports,
)
from lance_spark.scan.pruning.overlaid_rows import value_fields
from lance_spark.scan.pruning.zone_places import PlacedZones, ZonePlacer
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths

_LOG = logging.getLogger(__name__)

OPS = frozenset({"==", "in", "is_null"})
#: A set of more values is not looked up: most zones seem to have one of them.
_MAX_VALUES = 1000

_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ZoneFilters:
    """Bloom filters of one column by zone. The zones together hold all rows of the table.

    Attributes
    ----------
    dtype : pa.DataType
        Type of the column.
    placed : PlacedZones
        Its columns `segment` and `row` say which row of which file has the filter.
    files : list of (IndexFiles, FilterFile)
        By the number of the segment.
    """

    dtype: pa.DataType
    placed: PlacedZones
    files: list[tuple[IndexFiles, FilterFile]]

    def candidates(self, op: str, value: Any) -> RowRanges | None:
        """Return the rows for which a comparison can hold; None if unknown."""
        if op == "is_null":
            possible = self._column(HAS_NULL, True).astype(np.bool_)
        elif op in ("==", "in"):
            values = _values(op, value, self.dtype)
            if values is None or len(values) > _MAX_VALUES:
                return None
            possible = self._may_have(values)
        else:
            return None
        return RowRanges.of_blocks(self.placed.bounds, possible)

    def _may_have(self, values: pa.Array) -> _Flags:
        possible = np.ones(len(self.placed.is_zone), np.bool_)
        segment, row = self._column("segment", -1), self._column("row", -1)
        for number, (files, content) in enumerate(self.files):
            parts = np.flatnonzero(segment == number)
            parts = parts[np.argsort(row[parts])]
            try:
                possible[parts] = may_have(files, content, row[parts], values)
            except INDEX_ERRORS as error:
                _LOG.warning("index %r is ignored: %s", files.segment.name, error)
        return possible

    def _column(self, name: str, default: int | bool) -> RowNumbers:
        """Return a column of the zones; `default` for fragments without zones."""
        column: RowNumbers = self.placed.columns[name].fill_null(default).to_numpy()
        return column


def read_filters(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    starts: RowNumbers,
    path: tuple[Field, ...],
    segments: Sequence[table_pb2.IndexMetadata],
) -> ZoneFilters | None:
    """Return the Bloom filters of a column; see `search.ReadZonesOfColumn`."""
    dtype = path[-1].arrow_field.type
    if not supports(dtype):
        return None
    sources: list[tuple[IndexFiles, FilterFile]] = []

    def read(segment: table_pb2.IndexMetadata) -> pa.Table | None:
        files = IndexFiles(paths, segment)
        content = cached_file(files)
        if content is None:
            return None
        zones = content.zones
        number = pa.array(np.full(len(zones), len(sources)))
        sources.append((files, content))
        return zones.append_column("segment", number).append_column(
            "row", pa.array(np.arange(len(zones)))
        )

    placer = ZonePlacer(paths, fragments, starts, value_fields(path))
    placed = placer.place(segments, read)
    return None if placed is None else ZoneFilters(dtype, placed, sources)


def has_values_of(files: IndexFiles, dtype: pa.DataType) -> bool:
    """Return whether the file of a segment says that its values have a type.

    Raises
    ------
    CorruptFileError, StorageError
    """
    content = cached_file(files)
    return content is not None and content.value_type == str(dtype)


def _values(op: str, value: Any, dtype: pa.DataType) -> pa.Array | None:
    """Return the values of a comparison; None if one is not of the column's type, or is NaN."""
    sides = typed(op, value, dtype)
    if sides is None or isinstance(sides, pa.Array):
        return sides
    return with_both_zeros(pa.array([bound.value for bound in sides], dtype))


SEARCH = ZoneSearch(OPS, read_filters, has_values_of)
