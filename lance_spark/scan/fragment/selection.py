"""The rows of a window that filters and deletions leave, and the choice how to read them.

`FilterReader` reads the columns that filters need, and decides which rows are left.

Selected rows are read in one of two ways. A *scan* decodes a range of rows and takes the selected
rows out. A *take* decodes the chunks that hold selected rows and copies each value. The cheaper way
depends on the columns and on the number and position of the selected rows:

| values | a scanned row | a row of a touched chunk | a taken row |
| --- | --- | --- | --- |
| numbers: unpacked a thousand at a time | 2.5 ns | 2.8 ns | 60 ns |
| strings, lists: built one by one | 20 ns + 7 ns/byte | 15 ns | 120 ns + half of a scanned row |
| vectors and other wide values | a sixteenth of a taken row | nothing | 200 ns + 0.3 ns/byte |

A scan of wide values copies the selected rows only.

Selected rows that are far apart form *segments*. The rows between two segments are not read if
reading them costs more than another call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.levels import BoolArray
from lance_spark.encoding.row_ranges import NO_ROWS, RowRanges, in_all
from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.errors import CorruptFileError, EvaluationError, UnsupportedEncodingError
from lance_spark.file.blobs.fields import without_bytes
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.json_fields import paged_json
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment.column_reader import ALIGNMENT, ColumnReader
from lance_spark.scan.fragment.fragment_files import FragmentFiles
from lance_spark.scan.kept_dictionaries import preserve_dictionaries
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.conditions import (
    Condition,
    candidate_ranges,
    matching,
)
from lance_spark.scan.row_size import fixed_width

#: Rows of a chunk of numbers. Segments begin and end at multiples of it.
_CHUNK = 1024
#: Nanoseconds of a call for each column.
_CALL = 150_000.0
#: Values of more bytes are stored one by one, not in chunks.
_WIDE = 128
#: Rows between two segments that are always worth another call.
_MAX_GAP = 256 * 1024
#: If fewer than one row in this number is live, only live rows are read; otherwise all rows are
#: read.
_SPARSE = 16


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of reading some columns, in nanoseconds.

    - `scan`: For each scanned row.
    - `touch`: For each row of a chunk that holds a taken row.
    - `take`: For each taken row.
    """

    scan: float
    touch: float
    take: float
    call: float

    @classmethod
    def of(cls, columns: Sequence[tuple[pa.DataType, float | None]]) -> Costs:
        """Estimate the cost from the type and the stored bytes of a row of each column.

        The bytes of a column that no file stores are None.
        """
        scan = touch = take = 0.0
        for dtype, stored in columns:
            if stored is None:
                continue
            column = _costs(dtype, stored)
            scan, touch, take = scan + column[0], touch + column[1], take + column[2]
        return cls(scan, touch, take, _CALL * len(columns))


class ReadRange(NamedTuple):
    """Rows to read, and the indices of those to keep among them; None keeps all."""

    rows: Rows
    indices: RowNumbers | None


class FilterResult(NamedTuple):
    """The columns that the filters read, and their rows."""

    rows: Rows
    batch: pa.RecordBatch

    def compacted(self, selected: BoolArray) -> FilterResult:
        """Return the result for some rows, numbered as if the other rows did not exist.

        - `selected`: An entry for each row from row 0 on.
        """
        rows = np.asarray(self.rows)
        mask = selected[rows]
        numbers = (np.cumsum(selected) - 1)[rows[mask]]
        return FilterResult(numbers, self.batch.filter(pa.array(mask)))

    def indices_of(self, rows: Rows, indices: RowNumbers | None) -> slice | RowNumbers:
        """Return the indices in the batch of the rows of a `ReadRange`."""
        if isinstance(rows, range) and isinstance(self.rows, range):
            first = rows.start - self.rows.start
            return slice(first, first + len(rows)) if indices is None else indices + first
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
        if indices is not None:
            numbers = numbers[indices]
        if isinstance(self.rows, range):
            return numbers - self.rows.start
        return np.searchsorted(self.rows, numbers)


class FilterReader:
    """Evaluates filters on rows of a fragment.

    - `filters`: At least one.
    - `fields`: The columns of the filters.
    - `columns`: Reads them; some may be dictionary arrays (`kept_dictionaries`), and JSON is JSONB.
    """

    def __init__(
        self, files: FragmentFiles, filters: Sequence[Condition], metrics: ScanMetrics
    ) -> None:
        schema = Schema.of_paths(path for condition in filters for path in condition.paths)
        self.fields = schema.fields
        # Overlays replace values of plain arrays.
        fields = self.fields if files.overlays is not None else preserve_dictionaries(self.fields)
        # Functions of JSON search JSONB; other conditions make texts of it.
        fields = tuple(map(paged_json, fields))
        # Conditions on blobs test for null.
        ends = (path[-1] for condition in filters for path in condition.paths)
        if blobs := {node.id for node in ends if node.is_blob}:
            fields = tuple(without_bytes(field, blobs) for field in fields)
        self.columns = ColumnReader(files, replace(schema, fields=fields))
        self._files = files
        self._filters = tuple(filters)
        self._metrics = metrics

    def candidates(self, rows: RowRanges) -> RowRanges:
        """Return the rows that page statistics do not rule out."""
        # One row decides for all if no file holds a column of the filters. A manifest of some bytes
        # can claim 2^32 such rows.
        if rows.num_ranges and self.columns.is_all_null:
            first = next(iter(rows))[:1]
            return rows if matching(self._filters, self.columns.read(first)).any() else NO_ROWS
        possible = in_all(
            condition.candidates(self._candidate_ranges) for condition in self._filters
        )
        return rows if possible is None else in_all((rows, possible)) or NO_ROWS

    def apply(
        self, rows: range, live: BoolArray | None
    ) -> tuple[BoolArray | None, FilterResult | None]:
        """Evaluate the filters on some rows.

        Parameters
        ----------
        rows : range
        live : bool array or None
            Which of the rows are not deleted; None if all are live.

        Returns
        -------
        bool array or None
            Which rows are live and meet the filters; None if all do.
        FilterResult or None
            The columns that were read; None if no row is live.
        """
        if live is None:
            num_live = len(rows)
        else:
            num_live = int(np.count_nonzero(live))
            if not num_live:
                return live, None
            # Blobs of deleted rows may be gone, and are not read.
            if num_live * _SPARSE < len(rows) or self.columns.has_blobs:
                return self._apply_to_live(rows, live)
        result = FilterResult(rows, self.columns.read(rows))
        try:
            matches = self._matching(result)
        except EvaluationError:
            if live is None:
                raise
            # A deleted row may have caused the error.
            matches = np.zeros(len(rows), np.bool_)
            batch = result.batch.filter(pa.array(live))
            matches[live] = self._matching(FilterResult(rows.start + np.flatnonzero(live), batch))
        if live is not None:
            matches &= live
        count = int(np.count_nonzero(matches))
        self._metrics.rows_filtered += num_live - count
        return (None if count == len(rows) else matches), result

    def _apply_to_live(self, rows: range, live: BoolArray) -> tuple[BoolArray, FilterResult]:
        indices = np.flatnonzero(live)
        matches, result = self.apply_to(indices + rows.start)
        selected = np.zeros(len(rows), np.bool_)
        selected[indices] = matches
        return selected, result

    def apply_to(self, rows: RowNumbers) -> tuple[BoolArray, FilterResult]:
        """Return which of some live rows meet the filters, and the columns that were read."""
        result = FilterResult(rows, self.columns.read(rows))
        matches = self._matching(result)
        self._metrics.rows_filtered += len(rows) - int(np.count_nonzero(matches))
        return matches, result

    def matches(self, columns: Sequence[pa.Array]) -> BoolArray:
        """Return which live rows meet the filters, given their columns, in the order of `fields`.

        The values of no row may be those of a deleted row.
        """
        batch = pa.RecordBatch.from_arrays(columns, [field.name for field in self.fields])
        matches = matching(self._filters, batch)
        self._metrics.rows_filtered += batch.num_rows - int(np.count_nonzero(matches))
        return matches

    def _matching(self, result: FilterResult) -> BoolArray:
        """Return which rows meet the filters."""
        try:
            return matching(self._filters, result.batch)
        except (CorruptFileError, UnsupportedEncodingError):
            # A document is damaged. The error of a read as text names its file.
            ColumnReader(self._files, Schema(self.fields)).read(result.rows)
            raise

    def _candidate_ranges(self, field: Field, op: str, value: Any) -> RowRanges | None:
        number, overlays = self._files.file_of.get(field.id), self._files.overlays
        # Statistics of a data file do not hold for values of overlays.
        if number is None or (overlays is not None and overlays.cover(field)):
            return None
        return candidate_ranges(self._files.reader(number), field, op, value)


def plan_ranges(
    rows: range, selected: BoolArray | None, max_rows: int, costs: Costs
) -> Iterator[ReadRange]:
    """Yield the ranges to read, in order.

    - `rows`: The rows of a window.
    - `selected`: Which of them to read; None reads all.
    - `max_rows`: Most rows that are read at once.
    """
    if selected is None:
        yield from (ReadRange(piece, None) for piece in cut(rows, max_rows))
        return
    gap = min(max(costs.call / max(costs.scan, 1e-3), _CHUNK), _MAX_GAP)
    # Segments to take are joined up to the next segment to scan.
    pending = 0
    for start, stop in _segments(selected, int(gap) // _CHUNK):
        count = int(np.count_nonzero(selected[start:stop]))
        length = stop - start
        scan = costs.call + length * costs.scan
        take = count * costs.take + min(length, count * _CHUNK) * costs.touch
        if scan < take:
            yield from _takes(rows, selected, range(pending, start), max_rows)
            yield from _scans(rows, selected, range(start, stop), max_rows)
            pending = stop
    yield from _takes(rows, selected, range(pending, len(selected)), max_rows)


def _segments(selected: BoolArray, gap: int) -> list[tuple[int, int]]:
    """Return ranges of chunks with selected rows, more than `gap` chunks apart."""
    full = len(selected) // _CHUNK * _CHUNK
    has_rows = selected[:full].reshape(-1, _CHUNK).any(axis=1)
    chunks = np.flatnonzero(np.append(has_rows, selected[full:].any()))
    if not len(chunks):
        return []
    breaks = np.flatnonzero(np.diff(chunks) > gap + 1)
    firsts = chunks[np.append(0, breaks + 1)] * _CHUNK
    lasts = (chunks[np.append(breaks, len(chunks) - 1)] + 1) * _CHUNK
    return list(zip(firsts.tolist(), np.minimum(lasts, len(selected)).tolist(), strict=True))


def _takes(rows: range, selected: BoolArray, part: range, max_rows: int) -> Iterator[ReadRange]:
    numbers = np.flatnonzero(selected[part.start : part.stop]) + (rows.start + part.start)
    for start in range(0, len(numbers), max_rows):
        yield ReadRange(numbers[start : start + max_rows], None)


def _scans(rows: range, selected: BoolArray, part: range, max_rows: int) -> Iterator[ReadRange]:
    start = rows.start
    for piece in cut(range(start + part.start, start + part.stop), max_rows):
        indices = np.flatnonzero(selected[piece.start - start : piece.stop - start])
        if len(indices) == len(piece):
            yield ReadRange(piece, None)
        elif len(indices):
            # Deletions mostly come in runs, so the range is cut to the selected rows.
            first = int(indices[0])
            tight = range(piece.start + first, piece.start + int(indices[-1]) + 1)
            if len(indices) == len(tight):
                yield ReadRange(tight, None)
            else:
                yield ReadRange(tight, indices - first if first else indices)


def cut(rows: range, max_rows: int) -> Iterator[range]:
    """Yield pieces of a range, in order, each of at most `max_rows` rows."""
    start = rows.start
    while start < rows.stop:
        stop = min(rows.stop, start + max_rows)
        if stop < rows.stop and max_rows >= ALIGNMENT:
            stop -= stop % ALIGNMENT
        yield range(start, stop)
        start = stop


def live_to_physical(rows: RowNumbers, deleted: RowNumbers) -> RowNumbers:
    """Turn numbers among the live rows into physical row offsets.

    - `rows`: Row numbers that count live rows only.
    - `deleted`: Physical offsets of the deleted rows, increasing.
    """
    if not len(deleted):
        return rows
    # The i-th deleted row has deleted[i] - i live rows before it. The deletions before a live row
    # are those with at most as many live rows before them as the live row has.
    live_before = deleted - np.arange(len(deleted))
    return rows + np.searchsorted(live_before, rows, side="right")


def _costs(dtype: pa.DataType, stored: float) -> tuple[float, float, float]:
    width = fixed_width(dtype)
    if width is None:
        scan = 20.0 + 7.0 * stored
        return scan, 15.0, 120.0 + scan / 2
    if width > _WIDE and not pat.is_struct(dtype):
        take = 200.0 + 0.3 * width
        return take / 16, 0.0, take
    leaves = _leaves(dtype)
    return 2.5 * leaves, 2.8 * leaves, 60.0 * leaves


def _leaves(dtype: pa.DataType) -> int:
    if pat.is_struct(dtype):
        return sum(_leaves(field.type) for field in dtype)
    return 1
