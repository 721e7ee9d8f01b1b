"""Statistics of the zones of a column, by the type of index that has them."""

from __future__ import annotations

from collections.abc import Sequence

from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.schema.field import Field
from lance_spark.indexes import registry
from lance_spark.proto import table_pb2
from lance_spark.scan.pruning.bounds import ReadZones, ZoneStatistics
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths


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
