"""Zones: runs of some thousand consecutive live rows of one fragment.

ZONEMAP and BLOOMFILTER indexes have a row for each zone. Both have these columns:

| column | content |
| --- | --- |
| fragment_id | u64 |
| zone_start | u64; row offset of the zone's first live row |
| zone_length | u64; up to the zone's last live row |

Offsets are physical, also in tables with stable row ids. The zones of a fragment follow one
another. The schema metadata `null_bitmap` is the number of a global buffer with the addresses of
all null rows, as a row address map (`row_sets`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError
from lance_spark.file.writer import FileWriter
from lance_spark.scan.indexes.row_sets import RowSet
from lance_spark.table.rows.index import fragment_runs
from lance_spark.table.rows.u64_segments import UInt64Array

PLACE_COLUMNS = ("fragment_id", "zone_start", "zone_length")
PLACE_FIELDS = [pa.field(name, pa.uint64(), nullable=False) for name in PLACE_COLUMNS]
#: Key in the schema metadata of an index that knows which rows are null.
NULL_BITMAP = "null_bitmap"
#: Live rows of a zone, if the caller does not say.
DEFAULT_ROWS = 8192


@dataclass(frozen=True, slots=True)
class ZonedRows:
    """Live rows of fragments, divided into zones.

    Attributes
    ----------
    bounds : int64 array
        Number of each zone's first row among the rows, and the number of all rows.
    fragment_id, start, length : uint64 arrays
        The place of each zone.
    """

    bounds: RowNumbers
    fragment_id: UInt64Array
    start: UInt64Array
    length: UInt64Array

    @classmethod
    def of(cls, addresses: UInt64Array, rows_per_zone: int) -> ZonedRows:
        """Divide rows, given by their addresses in increasing order."""
        ids, first, last, bounds = [], [], [], []
        for number, part, offsets in fragment_runs(addresses):
            starts = np.arange(0, len(offsets), rows_per_zone)
            ends = np.append(starts[1:], len(offsets)) - 1
            ids.append(np.full(len(starts), number, np.uint64))
            first.append(offsets[starts])
            last.append(offsets[ends])
            bounds.append(starts + part.start)
        none = np.empty(0, np.int64)
        start, stop = np.concatenate([none, *first]), np.concatenate([none, *last]) + 1
        return cls(
            np.concatenate([none, *bounds, [len(addresses)]]).astype(np.int64),
            np.concatenate([none.astype(np.uint64), *ids]),
            start.astype(np.uint64),
            (stop - start).astype(np.uint64),
        )

    @property
    def num_zones(self) -> int:
        """The number of zones."""
        return len(self.start)

    def counts(self, flags: npt.NDArray[np.bool_]) -> RowNumbers:
        """Return the number of true flags in each zone, given a flag for each row."""
        totals = np.cumsum(flags, dtype=np.int64)
        counts: RowNumbers = np.diff(np.append(0, totals)[self.bounds])
        return counts

    def place_columns(self) -> list[pa.Array]:
        """Return the columns `PLACE_COLUMNS`."""
        return [pa.array(column) for column in (self.fragment_id, self.start, self.length)]


def add_null_bitmap(writer: FileWriter, values: pa.Array, addresses: UInt64Array) -> None:
    """Write which rows are null."""
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    set_null_bitmap(writer, RowSet.of(addresses[is_null]))


def set_null_bitmap(writer: FileWriter, rows: RowSet) -> None:
    """Write which rows are null."""
    writer.set_metadata(NULL_BITMAP, str(writer.add_global_buffer(rows.encode())))


def with_integers(zones: pa.Table, names: Sequence[str], name: str) -> pa.Table:
    """Return zones with some columns as int64. Too large numbers become negative.

    Parameters
    ----------
    zones : pa.Table
    names : sequence of str
        Columns of integers. Their width depends on the release of the writer.
    name : str
        What errors call the file.

    Raises
    ------
    CorruptFileError
        A column has another type, or nulls.
    """
    for column_name in names:
        column = zones[column_name]
        if column.null_count or not pat.is_integer(column.type):
            raise CorruptFileError(
                f"{name}: {column_name} must be an integer and not null; rebuild the index"
            )
        index = zones.column_names.index(column_name)
        zones = zones.set_column(index, column_name, column.cast(pa.int64(), safe=False))
    return zones
