"""How segments of zones are merged, and how they are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.indexes.cache import all_rows
from lance_spark.indexes.checks import CoveredRows, Findings, Flags, flags
from lance_spark.indexes.files import buffer_in, named
from lance_spark.indexes.merges import KeptRows, SegmentSource
from lance_spark.indexes.order import float_keys, floats_of_keys
from lance_spark.indexes.row_sets import RowSet
from lance_spark.indexes.zones import NULL_BITMAP, PLACE_COLUMNS, with_integers
from lance_spark.table.fragments.fragment import MAX_ID
from lance_spark.table.rows.addresses import OFFSET_BITS, split_addresses
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# ZONEMAP and BLOOMFILTER segments merged: the zones of the fragments that stay.

#: Bytes of zones that are copied at once.
_BATCH_BYTES = 8 * 1024 * 1024


def copy_zones(
    sources: Sequence[SegmentSource],
    name: str,
    schema: pa.Schema,
    write: Callable[[pa.RecordBatch], object],
) -> RowSet:
    """Write the zones that stay; return the rows of them that are null.

    The zones of a fragment are in one source, or in consecutive sources.
    """
    nulls = []
    for source in sources:
        with closing(source.files.open(name)) as file:
            for batch in _zones(file, schema, source.kept):
                write(batch)
            rows = RowSet.decode(buffer_in(file, NULL_BITMAP), file.source.name)
        fragments = rows.bitmaps if source.kept is None else source.kept.fragments
        nulls.append(
            RowSet({high: rows.bitmaps[high] for high in rows.bitmaps if high in fragments})
        )
    return RowSet.union(nulls)


def _zones(
    file: DataFileReader, schema: pa.Schema, kept: KeptRows | None
) -> Iterator[pa.RecordBatch]:
    """Yield the zones of a file that stay."""
    fields = [named(file, name) for name in schema.names]
    name = PLACE_COLUMNS[0]
    (fragment_ids,) = file.read([named(file, name)], all_rows(file))
    rows = np.arange(file.num_rows)
    if kept is not None:
        (ids,) = with_integers(pa.table([fragment_ids], [name]), [name], file.source.name).columns
        rows = rows[np.isin(ids.to_numpy(), np.frombuffer(kept.fragments.to_array(), np.uint32))]
    count = max(_BATCH_BYTES * file.num_rows // max(file.source.size, 1), 1)
    for start in range(0, len(rows), count):
        columns = file.read(fields, rows[start : start + count])
        try:
            columns = [
                column.cast(field.type) for column, field in zip(columns, schema, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            batch.validate()
        except pa.ArrowException as error:
            raise CorruptFileError(f"{file.source.name}: {error}; create the index again") from None
        if any(
            column.null_count and not field.nullable
            for column, field in zip(columns, schema, strict=True)
        ):
            raise CorruptFileError(f"{file.source.name}: a column is null; create the index again")
        yield batch


# --------------------------------------------------------------------------------------------------
# Checks ZONEMAP and BLOOMFILTER indexes: each row is in a zone that admits its value.
#
# pylance adds the zones of fragments that it indexes again to those of their old values: rows are
# in the zone that comes last in the file.

#: Rows of old fragments that are looked up at once, unless one zone has more.
_BATCH_ROWS = 1 << 20
#: Most rows of such a zone.
_MAX_ZONE_ROWS = 1 << 26
#: Most passes over zones that share rows; one or two, unless a file is damaged.
_MOST_PASSES = 100


@dataclass(frozen=True, slots=True)
class SegmentZoneRows:
    """The rows of a segment, and the zone of each.

    - `zone` (int64 array): Row of the zone in the file.
    - `is_inside` (bool array): Whether the row is in a zone.
    - `is_null`, `is_nan`: Bool arrays.
    """

    num_zones: int
    zone: RowNumbers
    is_inside: Flags
    is_null: Flags
    is_nan: Flags

    @classmethod
    def of(cls, zones: pa.Table, rows: CoveredRows, findings: Findings) -> SegmentZoneRows:
        """Find the zones of rows. Rows outside of all zones are missing.

        - `zones`: Has the columns `PLACE_COLUMNS`.
        """
        fragment, start, length = (zones[name].to_numpy() for name in PLACE_COLUMNS)
        limit = 1 << OFFSET_BITS
        # Too large numbers have become negative.
        is_wrong = (fragment < 0) | (fragment > MAX_ID) | (start < 0) | (start >= limit)
        is_wrong |= (length < 0) | (length > limit) | (start + length > limit)
        key = np.where(is_wrong, 0, fragment).astype(np.uint64) << np.uint64(OFFSET_BITS)
        key |= np.where(is_wrong, 0, start).astype(np.uint64)
        order = np.flatnonzero(~is_wrong)
        order = order[np.argsort(key[order], kind="stable")]
        stops = key + np.where(is_wrong, 0, length).astype(np.uint64)
        is_replaced = _replaced(order, key, stops)
        order = order[~is_replaced[order]]
        fragment_ids, offsets = split_addresses(rows.row_keys)
        place = np.searchsorted(key[order], rows.row_keys, "right") - 1
        if len(order):
            zone = order[np.maximum(place, 0)]
            is_inside = (place >= 0) & (fragment[zone] == fragment_ids.astype(np.int64))
            is_inside &= offsets < start[zone] + length[zone]
        else:
            zone, is_inside = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        known_fragments = np.unique(fragment_ids).astype(np.int64)
        if rows.moved is not None:
            sizes = {digest.id: digest.physical_rows for digest in rows.moved.old_fragments()}
            old = order[np.isin(fragment[order], list(sizes))]
            physical = np.array([sizes[number] for number in fragment[old].tolist()], np.int64)
            stop = np.minimum(start[old] + length[old], physical)
            for number, positions in _moved_rows(rows, key[old], np.maximum(stop - start[old], 0)):
                zone[positions], is_inside[positions] = old[number], True
            known_fragments = np.append(known_fragments, list(sizes))
        result = cls(
            len(zones), zone, is_inside, flags(rows.values.is_null()), are_nan(rows.values)
        )
        result.note(is_wrong, "its rows are outside of fragments", findings)
        missing = np.flatnonzero(~is_inside)
        findings.missing += len(missing)
        findings.add(rows.problem(number, "no zone has the row") for number in missing.tolist())
        # Zones of other fragments, and of older values, are counted as one row each.
        is_stale = is_replaced | ~np.isin(fragment, known_fragments)
        findings.stale += int(np.count_nonzero(is_stale))
        return result

    def counts(self, is_counted: Flags) -> RowNumbers:
        """Return the number of some rows in each zone."""
        counts: RowNumbers = np.bincount(
            self.zone[is_counted & self.is_inside], minlength=self.num_zones
        )
        return counts

    def note(self, is_wrong: Flags, text: str, findings: Findings) -> None:
        """Note zones that are wrong."""
        wrong = np.flatnonzero(is_wrong)
        findings.wrong += len(wrong)
        findings.add(f"zone {zone}: {text}" for zone in wrong.tolist())


def _replaced(order: RowNumbers, first: UInt64Array, stops: UInt64Array) -> Flags:
    """Return which zones of a file share rows with a later one.

    - `order` (int64 array): The zones to look at, by their first row.
    - `first`, `stops` (uint64 arrays): Address of the first row of each zone in the file, and of
      the row after its last one.
    """
    is_replaced = np.zeros(len(first), np.bool_)
    for _ in range(_MOST_PASSES):
        ends = np.maximum.accumulate(stops[order])
        # The zone before each that ends last.
        longest = np.maximum.accumulate(np.where(stops[order] == ends, np.arange(len(order)), 0))
        shares = ends[:-1] > first[order[1:]]
        if not shares.any():
            break
        is_replaced[np.minimum(order[longest[:-1]], order[1:])[shares]] = True
        order = order[~is_replaced[order]]
    return is_replaced


def _moved_rows(
    rows: CoveredRows, first: UInt64Array, sizes: RowNumbers
) -> Iterator[tuple[RowNumbers, RowNumbers]]:
    """Yield which rows are in zones of old fragments: number of the zone and position of each.

    - `first` (uint64 array): Old address of the first row of each zone.
    - `sizes` (int64 array): Rows of each zone.

    Raises CorruptFileError: a zone has too many rows.
    """
    if sizes.max(initial=0) > _MAX_ZONE_ROWS:
        raise CorruptFileError(
            f"a zone of {sizes.max()} rows that were moved cannot be checked; the maximum is "
            f"{_MAX_ZONE_ROWS}; rebuild the index"
        )
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        num_before = int(ends[start] - sizes[start])
        stop = max(int(np.searchsorted(ends, num_before + _BATCH_ROWS, "right")), start + 1)
        count = sizes[start:stop]
        offsets = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        row_keys = np.repeat(first[start:stop], count) + offsets.astype(np.uint64)
        position, is_live = rows.find(row_keys)
        yield np.repeat(np.arange(start, stop), count)[is_live], position[is_live]
        start = stop


def are_nan(values: pa.Array) -> Flags:
    """Return which values are NaN."""
    if not pat.is_floating(values.type):
        return np.zeros(len(values), np.bool_)
    keys = float_keys(values)
    is_nan: Flags = np.isnan(floats_of_keys(keys.fill_null(0), values.type).to_numpy())
    return is_nan & flags(values.is_valid())


def ordered_values(values: pa.Array) -> pa.Array:
    """Return values that can be compared. Both zeros are equal."""
    if pat.is_duration(values.type):
        return values.view(pa.int64())
    if not pat.is_floating(values.type):
        return values
    import pyarrow.compute as pc

    keys = float_keys(values)
    # The negative zero comes just before the other zero.
    return pc.if_else(pc.equal(keys, -1), pa.scalar(0, keys.type), keys)
