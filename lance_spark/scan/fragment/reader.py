"""The rows of one fragment as record batches, with late materialisation.

A scan goes through the fragment in windows: ranges of rows whose decoded size is near a byte
budget, independent of the batch size. With filters, windows are sized by the columns of the
filters, which are read first: numbers before texts and lists, of which fewer rows may be needed. Of
the other columns (`column_reader`) only the rows that pass are read (`selection`), at most a
window's bytes at once. The result is cut into batches without copying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.blocks import with_kept_forms
from lance_spark.encoding.levels import BoolArray
from lance_spark.encoding.rows import NO_ROWS, RowNumbers, RowRanges, Rows, in_all
from lance_spark.errors import (
    CorruptFileError,
    EvaluationError,
    InvalidInputError,
    UnsupportedEncodingError,
)
from lance_spark.file.arrays import holds_matrices, without_sliced_matrices
from lance_spark.file.blobs.fields import without_bytes
from lance_spark.file.checks import narrow_indices
from lance_spark.file.dictionaries import (
    declared,
    in_form,
    preserve_dictionaries,
    unscaled_decimals,
)
from lance_spark.file.json_columns import paged_json, read_json
from lance_spark.file.open import DataFileReader
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.conditions import Condition, candidate_ranges, matching
from lance_spark.scan.blobs import BlobDescriptors, BlobLoader
from lance_spark.scan.fragment.column_reader import (
    ALIGNMENT,
    NO_READERS,
    ColumnReader,
    FragmentFiles,
    fixed_width,
    rows_without_columns,
)
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.prefetch import AHEAD_BYTES, prefetched
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths

# --------------------------------------------------------------------------------------------------
# The rows of a window that filters and deletions leave, and the choice how to read them.
#
# `FilterReader` reads the columns that filters need, and decides which rows are left.
#
# Selected rows are read in one of two ways. A *scan* decodes a range of rows and takes the selected
# rows out. A *take* decodes the chunks that hold selected rows and copies each value. The cheaper
# way depends on the columns and on the number and position of the selected rows:
#
# | values | a scanned row | a row of a touched chunk | a taken row |
# | --- | --- | --- | --- |
# | numbers: unpacked a thousand at a time | 2.5 ns | 2.8 ns | 60 ns |
# | strings, lists: built one by one | 20 ns + 7 ns/byte | 15 ns | 120 ns + half of a scanned row |
# | vectors and other wide values | a sixteenth of a taken row | nothing | 200 ns + 0.3 ns/byte |
#
# A scan of wide values copies the selected rows only.
#
# Selected rows that are far apart form *segments*. The rows between two segments are not read if
# reading them costs more than another call.

#: Rows of a chunk of numbers. Segments begin and end at multiples of it.
_CHUNK = 1024
#: Nanoseconds of a call for each column.
_CALL = 150_000.0
#: Values of more bytes are stored one by one, not in chunks.
_WIDE = 128
#: Bytes of the largest values whose filters are evaluated first, and stored bytes of them on
#: average.
_SMALL = 16
_SMALL_STORED = 4.0
#: Rows between two segments that are always worth another call.
_MAX_ROW_GAP = 256 * 1024
#: If fewer than one row in this number is live, only live rows are read; otherwise all rows are
#: read.
_SPARSE_SELECTION = 16


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


class _FilterStage(NamedTuple):
    """Filters that are evaluated together, and the positions of columns that are read for them."""

    filters: list[Condition]
    columns: list[int]


def _in_stages(
    filters: Sequence[Condition], fields: Sequence[Field], stored: Sequence[float | None]
) -> tuple[_FilterStage, _FilterStage] | None:
    """Return the filters of small values, and the others; None to evaluate all at once.

    Where the first leave few rows, the columns of the others are read of these rows only.

    - `fields`: The columns of the filters.
    - `stored`: The stored bytes of a row for each.
    """
    # A scan without filters is spared the import.
    from lance_spark.predicates.columns import IsNull

    parts = [part for condition in filters for part in condition.conjuncts()]
    # A row that a later filter leaves out may be one for which an earlier filter fails.
    if any(part.can_fail for part in parts):
        return None
    small = {field.id for field, size in zip(fields, stored, strict=True) if _is_small(field, size)}
    first: list[Condition] = []
    rest: list[Condition] = []
    for part in parts:
        (first if small.issuperset(path[0].id for path in part.paths) else rest).append(part)
    # Hardly a row is null, and Spark asks this of all columns.
    if not rest or all(isinstance(part, IsNull) for part in first):
        return None
    read = {path[0].id for part in first for path in part.paths}
    numbers = range(len(fields))
    return (
        _FilterStage(first, [number for number in numbers if fields[number].id in read]),
        _FilterStage(rest, [number for number in numbers if fields[number].id not in read]),
    )


def _is_small(field: Field, stored: float | None) -> bool:
    """Return whether values are numbers, or indices of a dictionary by their stored bytes."""
    width = fixed_width(field.arrow_field.type)
    return (width is not None and width <= _SMALL) or (stored or 0.0) <= _SMALL_STORED


class FilterReader:
    """Evaluates filters on rows of a fragment.

    - `filters`: At least one.
    - `fields`: The columns of the filters.
    - `columns`: Reads them; some may be dictionary arrays (`kept_dictionaries`), and JSON is JSONB.
    - `is_staged`: Whether filters of numbers may be evaluated before other columns are read. From a
      remote store, a second read waits for the answer to another request, unless the bytes of both
      are prefetched.
    """

    def __init__(
        self, files: FragmentFiles, filters: Sequence[Condition], metrics: ScanMetrics
    ) -> None:
        schema = Schema.of_paths(path for condition in filters for path in condition.paths)
        self.fields = schema.fields
        # Overlays replace values of plain arrays.
        fields = self.fields
        if files.overlays is None:
            fields = unscaled_decimals(preserve_dictionaries(fields, decimals=True))
        # Functions of JSON search JSONB; other conditions make texts of it.
        fields = tuple(map(paged_json, fields))
        # Conditions on blobs test for null.
        ends = (path[-1] for condition in filters for path in condition.paths)
        if blobs := {node.id for node in ends if node.is_blob}:
            fields = tuple(without_bytes(field, blobs) for field in fields)
        self.columns = ColumnReader(files, replace(schema, fields=fields))
        self._files = files
        self._filters = tuple(filters)
        self.is_staged = files.paths.store.is_local
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
            if num_live * _SPARSE_SELECTION < len(rows) or self.columns.has_blobs:
                return self._apply_to_live(rows, live)
        stages = self._stages if self.is_staged else None
        if stages is None:
            result = FilterResult(rows, self.columns.read(rows))
            matches = self._matching_live(result, live)
        else:
            first, rest = stages
            window = self.columns.window(rows, rest.columns)
            matches = matching(first.filters, self.columns.some(window, len(rows), first.columns))
            if live is not None:
                matches &= live
            num_left = int(np.count_nonzero(matches))
            if num_left * _SPARSE_SELECTION < len(rows):
                self._metrics.rows_filtered += num_live - num_left
                return self._apply_to_live(rows, matches) if num_left else (matches, None)
            window.update(self.columns.window(rows, first.columns))
            result = FilterResult(rows, self.columns.batch(window, len(rows)))
            matches &= matching(rest.filters, result.batch)
        count = int(np.count_nonzero(matches))
        self._metrics.rows_filtered += num_live - count
        return (None if count == len(rows) else matches), result

    @cached_property
    def _stages(self) -> tuple[_FilterStage, _FilterStage] | None:
        if self.columns.has_blobs:
            return None
        return _in_stages(self._filters, self.fields, self.columns.stored_row_bytes())

    def _matching_live(self, result: FilterResult, live: BoolArray | None) -> BoolArray:
        """Return which rows of a range are live and meet the filters."""
        try:
            matches = self._matching(result)
            return matches if live is None else matches & live
        except EvaluationError:
            if live is None:
                raise
            # A deleted row may have caused the error.
            matches = np.zeros(len(live), np.bool_)
            rows = np.asarray(result.rows)[live]
            batch = result.batch.filter(pa.array(live))
            matches[live] = self._matching(FilterResult(rows, batch))
            return matches

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
    gap = min(max(costs.call / max(costs.scan, 1e-3), _CHUNK), _MAX_ROW_GAP)
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


# --------------------------------------------------------------------------------------------------
# The rows of one fragment as record batches, with late materialisation.

#: Most bytes of a batch of more than one row.
BATCH_BYTES = 16 * 1024 * 1024
#: A batch has at least so many bytes for each column, because each column has a fixed cost in each
#: batch.
_COLUMN_BYTES = 8 * 1024
#: Ranges of rows that are fewer rows apart are in one window: another window costs as much as
#: reading this many values.
_MAX_GAP = 16 * 1024
#: More ranges than this are read as one: windows without rows cost little. So are ranges of fewer
#: rows than this on average: one window of scattered rows costs less than several of a few rows.
_MAX_PARTS = 64
_SCATTERED = 64
#: If fewer than one row in this number is read, no bytes are prefetched.
_SPARSE_MATCHES = 8
#: If fewer than one row in this number is read, each is taken: hardly a chunk has two of them.
_VERY_SPARSE = 256
#: Stored bytes of a fragment that are fetched at once for some of its rows. They take less time
#: than the answer to another request.
SMALL_BYTES = 256 * 1024
#: Most rows of a fragment whose columns and filters are read at once, most columns, and the part of
#: a window that the rows may be.
_TOGETHER = 64
_TOGETHER_COLUMNS = 64
_PART_OF_WINDOW = 16

_Result = TypeVar("_Result")
_Rows = TypeVar("_Rows", range, RowNumbers)


class SelectiveReader:
    """Reads the rows that are not deleted and meet filters, window by window.

    - `schema`: The columns to read.
    - `filters`: Rows that do not meet all of them are left out. Their columns need not be in
      `schema`.
    - `load_external`: As for `ColumnReader`.
    """

    def __init__(
        self,
        files: FragmentFiles,
        schema: Schema,
        filters: Sequence[Condition] = (),
        metrics: ScanMetrics | None = None,
        *,
        load_external: bool = True,
    ) -> None:
        self._files = files
        self._metrics = ScanMetrics() if metrics is None else metrics
        self._columns = ColumnReader(files, schema, load_external=load_external)
        types = [field.type for field in self._columns.arrow]
        types += [path[0].arrow_field.type for part in filters for path in part.paths]
        # A halved window holds all its batches at once, and its blobs may not fit into memory
        # together: a window with blobs is read as it is.
        self._may_halve = not self._columns.has_blobs and any(
            index is not None for dtype in types for index in narrow_indices(dtype)
        )
        self._filter = FilterReader(files, filters, self._metrics) if filters else None
        # Columns that the filters have read already: position in the schema, and in the filters'.
        self._shared: dict[int, int] = {}
        if self._filter is not None:
            filter_fields = self._filter.fields
            self._shared = {
                position: filter_fields.index(field)
                for position, field in enumerate(map(declared, schema.fields))
                if field in filter_fields and not any(node.is_blob for node in field.walk())
            }
        self._costs: Costs | None = None
        self._is_expected = False
        self._ahead_bytes = min(AHEAD_BYTES, files.paths.store.ahead_bytes)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        return self._columns.arrow

    def begin(self) -> None:
        """Begin to read the ends of the files, if they are remote."""
        numbers = self._columns.file_numbers
        if self._filter is not None:
            numbers |= self._filter.columns.file_numbers
        self._files.expect(numbers)

    def close(self) -> None:
        """Close the data files; batches handed out before stay valid."""
        self._columns.close()
        if self._filter is not None:
            self._filter.columns.close()
        self._files.close(self._metrics)

    def live(self, rows: range | RowRanges, *, prefetch: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the live rows among some physical rows that meet the filters, in order.

        A batch has the rows that were read at once; `batches_of` cuts it.

        - `rows`: Physical rows.
        - `prefetch`: Whether to fetch the bytes of the next windows meanwhile, if the store is
          remote. Not worth it for a caller that stops early.
        """
        self.begin()
        wanted = rows if isinstance(rows, RowRanges) else RowRanges.of([rows])
        candidates = self._candidates(wanted)
        self._metrics.rows_skipped += wanted.num_rows - candidates.num_rows
        self._expect_small(candidates)
        if self._reads_together(candidates):
            for rows_at_once in self._scattered(candidates.numbers()):
                yield from self._read_window(rows_at_once, self._together)
            return
        if candidates.num_rows * _VERY_SPARSE < candidates.span:
            for rows_at_once in self._scattered(candidates.numbers()):
                yield from self._read_window(rows_at_once, self._taken)
            return
        parts = self._joined(candidates)
        is_sparse = candidates.num_rows * _SPARSE_MATCHES < parts.num_rows
        windows: Iterator[range] = (window for part in parts for window in self._windows(part))
        first_read = self._first_read()
        if (
            prefetch
            and not is_sparse
            and not self._is_expected
            and not self._files.paths.store.is_local
            and not first_read.has_blobs
        ):
            windows = prefetched(
                windows, first_read.stored_fields(), self.deleted(), self._ahead_bytes
            )
            if self._filter is not None:
                self._filter.is_staged = True
        excluded = parts.num_ranges != candidates.num_ranges
        read = partial(self._live, candidates if excluded else None)
        for window in windows:
            yield from self._read_window(window, read)

    def matching_windows(self, rows: RowRanges | None = None) -> Iterator[RowNumbers]:
        """Yield the physical offsets of the live rows that meet the filters, window by window.

        - `rows`: Physical rows; all by default.
        """
        self.begin()
        all_rows = RowRanges.of([range(self._files.physical_rows)])
        candidates = self._candidates(all_rows if rows is None else rows)
        if candidates.num_rows * _VERY_SPARSE < candidates.span:
            for rows_at_once in self._scattered(candidates.numbers()):
                yield self._select_taken(rows_at_once)[0]
            return
        parts = self._joined(candidates)
        excluded = parts.num_ranges != candidates.num_ranges
        for window in (window for part in parts for window in self._windows(part)):
            for offsets in self._read_window(window, self._matching):
                if excluded:
                    yield offsets[candidates.mask(window)[offsets - window.start]]
                else:
                    yield offsets

    def window_rows(self) -> int:
        """Return the rows of a window of the columns."""
        return self._columns.window_rows()

    def row_bytes(self) -> float:
        """Return about how many decoded bytes a row of the columns has."""
        return self._columns.row_bytes()

    def held_bytes(self, num_rows: int) -> int:
        """Return about how many bytes a read of some rows holds: a window, and stored bytes."""
        self.begin()
        first = self._first_read()
        rows = min(num_rows, first.window_rows())
        stored = sum(size or 0.0 for size in first.stored_row_bytes())
        ahead = min(stored * num_rows, self._ahead_bytes + stored * rows)
        return int(rows * first.row_bytes() + ahead)

    def deleted(self) -> RowNumbers:
        """Return the offsets of the deleted rows, increasing."""
        return self._files.deleted()

    def _expect_small(self, rows: RowRanges) -> None:
        """Fetch the stored bytes around some rows by one request, if a remote file has few.

        Otherwise the tables of chunks are read first, and the columns of the filters before the
        others: each waits for the one before.
        """
        readers = [self._columns] if self._filter is None else [self._columns, self._filter.columns]
        if (
            self._files.paths.store.is_local
            or not rows.num_rows
            or any(reader.has_blobs for reader in readers)
        ):
            return
        stored = sum(size or 0.0 for reader in readers for size in reader.stored_row_bytes())
        if stored * rows.span > SMALL_BYTES:
            return
        span = range(int(rows.starts[0]), int(rows.stops[-1]))
        for reader in readers:
            for file, fields, column_of in reader.stored_fields():
                if isinstance(file, FileReader):
                    # The bytes stay until the file is closed or given back.
                    file.expect(fields, span, column_of)
                    self._is_expected = True

    def _first_read(self) -> ColumnReader:
        """Return the reader of the columns that are read of each window: the filters', if any."""
        return self._columns if self._filter is None else self._filter.columns

    def _candidates(self, rows: RowRanges) -> RowRanges:
        return rows if self._filter is None else self._filter.candidates(rows)

    def _joined(self, rows: RowRanges) -> RowRanges:
        """Return the ranges to read for some rows, with the rows between if the gaps are small."""
        parts = rows.joined(_MAX_GAP)
        is_scattered = rows.num_rows < _SCATTERED * rows.num_ranges
        if parts.num_ranges > 1 and (is_scattered or parts.num_ranges > _MAX_PARTS):
            return rows.joined(1 << 62)
        return parts

    def _windows(self, rows: range) -> Iterator[range]:
        return cut(rows, self._first_read().window_rows())

    def _scattered(self, rows: RowNumbers) -> Iterator[RowNumbers]:
        """Yield the live rows among some, as many at once as a window has."""
        deleted = self.deleted()
        live = rows[~np.isin(rows, deleted, assume_unique=True)] if len(deleted) else rows
        step = self._first_read().window_rows()
        for start in range(0, len(live), step):
            yield live[start : start + step]

    def _read_window(
        self, rows: _Rows, read: Callable[[_Rows], Iterator[_Result]]
    ) -> Iterator[_Result]:
        """Yield the results of `read` for a window; if they do not fit one array, of each half.

        Some clients write pages whose dictionaries together have more values than the index type
        can number. Each batch has its own dictionary, so fewer rows at a time can be read.
        """
        if not self._may_halve:
            yield from read(rows)
            return
        try:
            results = list(read(rows))
        except (InvalidInputError, UnsupportedEncodingError):
            if len(rows) < 2:
                raise
        else:
            yield from results
            return
        middle = len(rows) // 2
        yield from self._read_window(rows[:middle], read)
        yield from self._read_window(rows[middle:], read)

    def _reads_together(self, rows: RowRanges) -> bool:
        """Return whether columns and filters of some rows are read at once.

        A second read of few rows costs more than values of rows that the filters leave out, if
        these are a small part of a window.
        """
        if not 0 < rows.num_rows <= _TOGETHER or len(self._columns.fields) > _TOGETHER_COLUMNS:
            return False
        # A batch without columns does not keep its number of rows.
        if self._filter is None or not self._filter.fields or not self._columns.fields:
            return False
        readers = (self._columns, self._filter.columns)
        return all(
            not reader.has_blobs and rows.num_rows * _PART_OF_WINDOW <= reader.window_rows()
            for reader in readers
        )

    def _together(self, rows: RowNumbers) -> Iterator[pa.RecordBatch]:
        """Read some live rows, and leave out those that do not meet the filters."""
        assert self._filter is not None
        fields = self._columns.fields
        read = tuple(map(declared, fields))
        others = tuple(field for field in self._filter.fields if field not in read)
        batch = ColumnReader(self._files, Schema(fields + others)).read(rows)
        matches = self._filter.matches(
            [batch.column((*read, *others).index(field)) for field in self._filter.fields]
        )
        self._metrics.windows += 1
        count = int(np.count_nonzero(matches))
        if not count:
            self._metrics.windows_skipped += 1
            return
        columns = batch.columns[: len(fields)]
        result = pa.RecordBatch.from_arrays(
            columns, schema=with_kept_forms(self._columns.arrow, columns)
        )
        yield result if count == len(rows) else result.filter(pa.array(matches))

    def _taken(self, rows: RowNumbers) -> Iterator[pa.RecordBatch]:
        """Read those of some live rows that meet the filters."""
        rows, result = self._select_taken(rows)
        self._metrics.windows += 1
        if not len(rows):
            self._metrics.windows_skipped += 1
        elif not self._columns.fields:
            yield rows_without_columns(len(rows))
        else:
            step = self.window_rows()
            for start in range(0, len(rows), step):
                yield from self._read_part(ReadRange(rows[start : start + step], None), result)

    def _select_taken(self, rows: RowNumbers) -> tuple[RowNumbers, FilterResult | None]:
        """Return those of some live rows that meet the filters."""
        if self._filter is None or not len(rows):
            return rows, None
        matches, result = self._filter.apply_to(rows)
        return rows[matches], result

    def _matching(self, rows: range) -> Iterator[RowNumbers]:
        selected, _ = self._select(rows)
        yield rows.start + (np.arange(len(rows)) if selected is None else np.flatnonzero(selected))

    def _texts(self, values: pa.Array, field: Field, rows: Rows) -> pa.Array:
        """Return a column that filters have read as JSONB with texts."""
        try:
            return read_json(values, field, self._files.paths.store.display)
        except (CorruptFileError, UnsupportedEncodingError):
            # The error of a read as text names the file.
            ColumnReader(self._files, Schema((field,))).read(rows)
            raise

    def _live(self, candidates: RowRanges | None, rows: range) -> Iterator[pa.RecordBatch]:
        selected, result = self._select(rows, candidates)
        count = len(rows) if selected is None else int(np.count_nonzero(selected))
        self._metrics.windows += 1
        if not count:
            self._metrics.windows_skipped += 1
        elif not self._columns.fields:
            yield rows_without_columns(count)
        else:
            yield from self._selected(rows, selected, result)

    def _select(
        self, rows: range, candidates: RowRanges | None = None
    ) -> tuple[BoolArray | None, FilterResult | None]:
        """Return which rows are live and meet the filters; None if all do. See `FilterReader`.

        - `candidates`: Only these rows are looked at.
        """
        live: BoolArray | None = None
        if candidates is not None:
            live = candidates.mask(rows)
            if not live.any():
                return live, None
        deleted = self.deleted()
        first, last = np.searchsorted(deleted, [rows.start, rows.stop])
        if last > first:
            live = np.ones(len(rows), dtype=bool) if live is None else live
            live[deleted[first:last] - rows.start] = False
        return (live, None) if self._filter is None else self._filter.apply(rows, live)

    def _selected(
        self, rows: range, selected: BoolArray | None, result: FilterResult | None
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows of a window that `_select` has left."""
        for part in plan_ranges(rows, selected, self.window_rows(), self._read_costs()):
            yield from self._read_part(part, result)

    def _read_part(self, part: ReadRange, result: FilterResult | None) -> Iterator[pa.RecordBatch]:
        rows, row_indices = part
        shared = {} if result is None else self._shared
        window = self._columns.window(rows, shared)
        if row_indices is not None:
            indices = pa.array(row_indices)
            window = {key: array.take(indices) for key, array in window.items()}
        if result is not None and shared:
            selected = result.indices_of(rows, row_indices)
            for position, number in shared.items():
                column = result.batch.column(number)
                values = (
                    column.slice(selected.start, selected.stop - selected.start)
                    if isinstance(selected, slice)
                    else column.take(pa.array(selected))
                )
                field = self._columns.fields[position]
                values = in_form(values, field)
                if field.has_json and not values.type.equals(field.arrow_field.type):
                    values = self._texts(values, field, rows)
                window[-1 - position] = values
        yield from self._columns.batches(
            window, len(rows) if row_indices is None else len(row_indices)
        )

    def _read_costs(self) -> Costs:
        if self._costs is None:
            types = [field.type for field in self._columns.arrow]
            columns = list(zip(types, self._columns.stored_row_bytes(), strict=True))
            self._costs = Costs.of(
                [column for index, column in enumerate(columns) if index not in self._shared]
            )
        return self._costs


class FragmentReader(SelectiveReader):
    """Reads rows of one fragment in the shape of a schema.

    - `paths`: Opens the table's files.
    - `schema`: The columns to read, with the table's field ids. Fields that the fragment lacks are
      null.
    - `filters`: `scan` leaves out the rows that do not meet all of them. Their columns need not be
      in `schema`.
    - `open_files`: Data files that may be open already; `release` returns them there.
    - `first_position`: Position of the fragment's first live row in the table's order; `_rowoffset`
      needs it.
    - `load_external`: Whether to read blobs that are references to other objects. They are empty
      otherwise.
    - `metrics`: Counts the rows read and left out; `close` adds the bytes read.
    - `readers`: Data files that are open, by their number in the fragment; closed with this one.

    Raises CorruptTableError: a data file has another number of rows than the manifest says.
    """

    def __init__(
        self,
        paths: TablePaths,
        fragment: Fragment,
        schema: Schema,
        filters: Sequence[Condition] = (),
        open_files: OpenFiles | None = None,
        first_position: int | None = None,
        load_external: bool = True,
        metrics: ScanMetrics | None = None,
        readers: Mapping[int, DataFileReader] = NO_READERS,
    ) -> None:
        files = FragmentFiles(paths, fragment, open_files, first_position, readers)
        super().__init__(files, schema, filters, metrics, load_external=load_external)

    def release(self) -> None:
        """Return the data files to `open_files`, and close all others."""
        self._files.release(self._metrics)
        self.close()

    def read(self, rows: Rows) -> pa.RecordBatch:
        """Return the physical rows `rows`, deleted rows included."""
        self.begin()
        return self._columns.read(rows)

    def pieces(self, rows: range) -> Iterator[pa.RecordBatch]:
        """Yield the physical rows `rows` in order, deleted rows included, window by window."""
        for window in self._windows(rows):
            yield from self._read_window(window, self._physical)

    def pieces_of(self, rows: RowNumbers) -> Iterator[pa.RecordBatch]:
        """Yield some physical rows in order, in batches that are cut by the bytes of blobs."""
        return self._columns.batches(self._columns.window(rows), len(rows))

    def take(self, rows: RowNumbers) -> pa.RecordBatch:
        """Return live rows by their number among the live rows, strictly increasing."""
        self.begin()
        return self.read(live_to_physical(rows, self.deleted()))

    def scan(self, rows: range | RowRanges, batch_size: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `live` in batches of at most `batch_size` rows."""
        for piece in self.live(rows):
            yield from batches_of(piece, batch_size)

    def blob_descriptors(self, rows: RowNumbers) -> tuple[BlobLoader, BlobDescriptors]:
        """Return the descriptors of the blobs of some physical rows; see `ColumnReader`."""
        return self._columns.blob_descriptors(rows)

    def stored_bytes(self) -> int:
        """Return the bytes that the pages of the columns take in the data files."""
        rows = max(self._files.physical_rows, 1)
        return round(rows * sum(size or 0.0 for size in self._columns.stored_row_bytes()))

    def _physical(self, rows: range) -> Iterator[pa.RecordBatch]:
        return self._columns.batches(self._columns.window(rows), len(rows))


def batches_of(piece: pa.RecordBatch, batch_size: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into batches of at most `batch_size` rows and about `BATCH_BYTES`, or more if it
    has many columns.
    """
    size = max(BATCH_BYTES, _COLUMN_BYTES * piece.num_columns)
    rows = min(batch_size, max(piece.num_rows * size // max(piece.nbytes, 1), 1))
    if rows >= piece.num_rows:
        if piece.num_rows:
            yield piece
        return
    has_matrices = any(map(holds_matrices, piece.schema.types))
    for start in range(0, piece.num_rows, rows):
        batch = piece.slice(start, rows)
        yield without_sliced_matrices(batch) if has_matrices else batch
