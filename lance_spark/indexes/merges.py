"""How segments are merged: their rows that stay, and sorted files as one sorted stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap, BitMap64

from lance_spark import progress
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.file.schema.field import Field
from lance_spark.indexes.checks import flags, ordered
from lance_spark.indexes.files import IndexFiles, SegmentWriter
from lance_spark.indexes.order import order_of
from lance_spark.indexes.row_sets import MovedRows, RowSet, in_fragments
from lance_spark.table.rows.addresses import OFFSET_BITS
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Segments that are merged, and the rows of them that the merged segment keeps.


class KeptRows:
    """The rows of an existing segment that stay.

    - `covered`: The fragments that the segment names. They may have been replaced, although its
      files still have the old addresses.
    - `fragments`: The fragments whose rows stay.
    - `moved`: Translates old addresses; None if the files have row ids.
    - `live`: The live rows of `fragments`, as the files name rows; None if the files have each row
      once, so that rows which were deleted do no harm.
    """

    def __init__(
        self, covered: BitMap, fragments: BitMap, moved: MovedRows | None, live: RowSet | None
    ) -> None:
        self.fragments = fragments
        self._covered, self._moved, self._live = covered, moved, live
        self._known: RowSet | None = None
        self._live64: BitMap64 | None = None

    def addresses(self, row_keys: UInt64Array) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return the newest addresses of rows, and which of the rows stay."""
        assert self._moved is not None, "row ids are kept as sets"
        row_keys, exists = self._moved.addresses(row_keys, self._covered)
        return row_keys, exists & in_fragments(row_keys, self.fragments)

    def rows(self, row_keys: UInt64Array) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return the newest addresses, or the ids, of rows, and which of the rows are live.

        Addresses of deleted rows stay, if the live rows are not known.
        """
        if self._live is None:
            return self.addresses(row_keys)
        stays = np.ones(len(row_keys), np.bool_)
        if self._moved is not None:
            row_keys, stays = self.addresses(row_keys)
        highs = row_keys >> np.uint64(OFFSET_BITS)
        for high in np.unique(highs).tolist():
            places = np.flatnonzero(highs == high)
            live = self._live.bitmaps.get(high, BitMap()) & BitMap(
                row_keys[places].astype(np.uint32)
            )
            low = np.frombuffer(live.to_array(), np.uint32)
            stays[places] &= np.isin(row_keys[places].astype(np.uint32), low)
        return row_keys, stays

    def of_set(self, rows: RowSet) -> RowSet:
        """Return the rows of a set that stay."""
        assert self._live is not None, "the live rows are needed"
        if self._moved is not None and any(True for _ in self._moved.old_fragments()):
            # A damaged set of few bytes can have billions of row keys.
            rows = RowSet.intersection([rows, self._known_rows(self._moved)])
            row_keys, stays = self.addresses(rows.row_keys())
            rows = RowSet.of(np.sort(row_keys[stays]))
        rows = RowSet.intersection([rows, self._live])
        return RowSet({high: bitmap for high, bitmap in rows.bitmaps.items() if bitmap})

    def of_bitmap(self, rows: BitMap64) -> BitMap64:
        """Return the rows of a 64-bit bitmap that stay."""
        assert self._live is not None, "the live rows are needed"
        if self._moved is not None and any(True for _ in self._moved.old_fragments()):
            rows &= _as_bitmap(self._known_rows(self._moved))
            row_keys, stays = self.addresses(np.frombuffer(rows.to_array(), np.uint64))
            rows = BitMap64(row_keys[stays])
        if self._live64 is None:
            self._live64 = _as_bitmap(self._live)
        return rows & self._live64

    def _known_rows(self, moved: MovedRows) -> RowSet:
        """Return the live rows, and all rows that compactions moved."""
        if self._known is None:
            assert self._live is not None
            self._known = RowSet.union([self._live, moved.old_rows()])
        return self._known


def _as_bitmap(rows: RowSet) -> BitMap64:
    result = BitMap64()
    for high, bitmap in rows.bitmaps.items():
        row_keys = np.frombuffer(bitmap.to_array(), np.uint32).astype(np.uint64)
        result.update(row_keys | np.uint64(high << OFFSET_BITS))
    return result


@dataclass(frozen=True, slots=True)
class SegmentSource:
    """A segment to merge.

    - `kept`: None for all rows, if they are in no other source.
    """

    files: IndexFiles
    kept: KeptRows | None = None


@dataclass(frozen=True, slots=True)
class Merging:
    """How segments of one type of index are merged.

    - `can_merge`: Returns whether the files of a segment can be merged, given the type of the
      column and the parameters of the new segment.
    - `merge`: Writes the files of a segment with the rows of all sources, given the type of the
      column and the parameters.
    """

    can_merge: Callable[[IndexFiles, pa.DataType, Mapping[str, Any]], bool]
    merge: Callable[[SegmentWriter, pa.DataType, Sequence[SegmentSource], Mapping[str, Any]], None]


def sets_of(row_keys: Iterator[UInt64Array]) -> RowSet:
    """Return the set of rows that are given in parts."""
    rows = RowSet.union(RowSet.of(np.sort(part)) for part in row_keys)
    for bitmap in rows.bitmaps.values():
        bitmap.run_optimize()
    return rows


# --------------------------------------------------------------------------------------------------
# Sorted files of several segments as one sorted stream of rows.
#
# Each file is read in windows, which together have a bounded size. A step returns the rows of all
# windows that are not greater than the least of their last values: all smaller rows have been read
# by then. These rows are sorted together.

#: Bytes of all windows together.
_WINDOW_BYTES = 32 * 1024 * 1024
#: Rows of the first window of a file, by which the size of its rows is known; and most rows.
_FIRST_ROWS = 1 << 12
_MAX_ROWS = 1 << 18


@dataclass(slots=True)
class SortedRun:
    """A file whose rows are sorted by its first column.

    - `unique`: Whether a value may occur only once.
    - `keep`: Returns the rows of a window that stay, with the columns of the stream.
    """

    file: DataFileReader
    fields: Sequence[Field]
    unique: bool
    keep: Callable[[pa.RecordBatch], pa.RecordBatch]
    _position: int = 0
    _row_bytes: int = 0
    _last: pa.Array | None = None
    _rows: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def rows(self) -> pa.RecordBatch | None:
        """The rows that were read, but not taken; None after the last."""
        return self._rows[0] if self._rows else None

    @property
    def is_read(self) -> bool:
        """Whether all rows have been read."""
        return self._position >= self.file.num_rows

    def fill(self, num_bytes: int) -> None:
        """Read the next window, if all rows were taken.

        Raises StorageError. Raises CorruptFileError: the values are not sorted.
        """
        while not self._rows and not self.is_read:
            count = _FIRST_ROWS
            if self._row_bytes:
                count = min(max(num_bytes // self._row_bytes, 1), _MAX_ROWS)
            stop = min(self._position + count, self.file.num_rows)
            columns = self.file.read(self.fields, range(self._position, stop))
            self._check_order(columns[0])
            names = [field.name for field in self.fields]
            window = pa.RecordBatch.from_arrays(columns, names)
            self._row_bytes = max(window.nbytes // window.num_rows, 1)
            self._position = stop
            remaining = self.keep(window)
            if remaining.num_rows:
                self._rows = [remaining]

    def take(self, count: int) -> pa.RecordBatch:
        """Return the next rows, and drop them."""
        rows = self._rows.pop()
        if count < rows.num_rows:
            self._rows.append(rows.slice(count))
        return rows.slice(0, count)

    def _check_order(self, values: pa.Array) -> None:
        joined = values if self._last is None else pa.concat_arrays([self._last, values])
        if out_of_order(joined, unique=self.unique).any():
            raise CorruptFileError(
                f"{self.file.source.name}: {self.fields[0].name} must ascend; create the index "
                "again"
            )
        self._last = values.slice(len(values) - 1)


def out_of_order(values: pa.Array, *, unique: bool) -> npt.NDArray[np.bool_]:
    """Return for each value but the first whether it may not follow the value before it.

    - `values`: Nulls are before all values.
    - `unique`: Whether equal values may not follow each other.
    """
    import pyarrow.compute as pc

    keys, is_null = ordered(values), flags(values.is_null())
    compare = pc.less_equal if unique else pc.less
    wrong = flags(compare(keys[1:], keys[:-1])) | (is_null[1:] & ~is_null[:-1])
    return wrong | is_null[1:] if unique else wrong


def merged(runs: Sequence[SortedRun]) -> Iterable[pa.RecordBatch]:
    """Return the rows of all runs, sorted; equal values in any order.

    If the values of all runs are unique, equal values are in one batch.

    Raises CorruptFileError, StorageError.
    """
    total = sum(run.file.num_rows for run in runs)
    unit = "keys" if all(run.unique for run in runs) else "rows"
    return progress.counted(_merged(runs), "merge_runs", total, unit, lambda batch: batch.num_rows)


def _merged(runs: Sequence[SortedRun]) -> Iterator[pa.RecordBatch]:
    active = list(runs)
    while True:
        for run in active:
            run.fill(_WINDOW_BYTES // len(active))
        active = [run for run in active if run.rows is not None]
        if not active:
            return
        parts = [
            run.take(count) for run, count in zip(active, _counts(active), strict=True) if count
        ]
        if len(parts) == 1:
            yield parts[0]
            continue
        rows = pa.Table.from_batches(parts).combine_chunks().to_batches()
        order = pa.array(order_of(rows[0].column(0), in_runs=True))
        yield rows[0].take(order)


def _counts(runs: Sequence[SortedRun]) -> list[int]:
    """Return how many rows of each run are not greater than the least last row."""
    batches = [run.rows for run in runs if run.rows is not None]
    lengths = [batch.num_rows for batch in batches]
    unread = [number for number, run in enumerate(runs) if not run.is_read]
    if not unread or len(runs) == 1:
        return lengths
    values = [batch.column(0) for batch in batches]
    lasts = pa.concat_arrays([column.slice(len(column) - 1) for column in values])
    least = unread[int(order_of(lasts.take(pa.array(unread)))[0])]
    bound = lasts.slice(least, 1)
    is_full = _at_most(lasts, bound)
    is_full[least] = True
    begins = _at_most(pa.concat_arrays([column.slice(0, 1) for column in values]), bound)
    counts = []
    for number, column in enumerate(values):
        if is_full[number] or not begins[number]:
            counts.append(lengths[number] if is_full[number] else 0)
        else:
            counts.append(int(np.argmin(_at_most(column, bound))))
    return counts


def _at_most(values: pa.Array, bound: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which values are not greater than a bound, of an array of one value."""
    import pyarrow.compute as pc

    if bound.null_count:
        return flags(values.is_null())
    return flags(pc.less_equal(ordered(values), ordered(bound)[0]), unknown=True)
