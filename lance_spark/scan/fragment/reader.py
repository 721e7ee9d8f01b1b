"""The rows of one fragment as record batches, with late materialisation.

A scan goes through the fragment in windows: ranges of rows whose decoded size is near a byte
budget, independent of the batch size. With filters, windows are sized by the columns of the
filters, which are read first. Of the other columns (`column_reader`) only the
rows that pass are read (`selection`), at most a window's bytes at once. The result is cut into
batches without copying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import with_dictionaries
from lance_spark.encoding.levels import BoolArray
from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedEncodingError
from lance_spark.file.checks import narrow_indices
from lance_spark.file.matrices import without_sliced_matrices
from lance_spark.file.open import DataFileReader
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.json_fields import read_json
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.blob_descriptors import BlobDescriptors
from lance_spark.scan.blob_loader import BlobLoader
from lance_spark.scan.fragment.column_reader import ColumnReader, rows_without_columns
from lance_spark.scan.fragment.fragment_files import NO_READERS, FragmentFiles
from lance_spark.scan.fragment.selection import (
    Costs,
    FilterReader,
    FilterResult,
    ReadRange,
    cut,
    live_to_physical,
    plan_ranges,
)
from lance_spark.scan.kept_dictionaries import decoded, is_preserved
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.prefetch import AHEAD_BYTES, prefetched
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths

#: Most bytes of a batch of more than one row.
BATCH_BYTES = 16 * 1024 * 1024
#: Ranges of rows that are fewer rows apart are in one window: another window costs as much as
#: reading this many values.
_MAX_GAP = 16 * 1024
#: More ranges than this are read as one: windows without rows cost little. So are ranges of fewer
#: rows than this on average: one window of scattered rows costs less than several of a few rows.
_MAX_PARTS = 64
_SCATTERED = 64
#: If fewer than one row in this number is read, no bytes are prefetched.
_SPARSE = 8
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
                for position, field in enumerate(schema.fields)
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
        is_sparse = candidates.num_rows * _SPARSE < parts.num_rows
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
        others = tuple(field for field in self._filter.fields if field not in fields)
        batch = ColumnReader(self._files, Schema(fields + others)).read(rows)
        matches = self._filter.matches(
            [batch.column((*fields, *others).index(field)) for field in self._filter.fields]
        )
        self._metrics.windows += 1
        count = int(np.count_nonzero(matches))
        if not count:
            self._metrics.windows_skipped += 1
            return
        columns = batch.columns[: len(fields)]
        result = pa.RecordBatch.from_arrays(
            columns, schema=with_dictionaries(self._columns.arrow, columns)
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
                if is_preserved(values, self._columns.fields[position]):
                    values = decoded(values)
                field = self._columns.fields[position]
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
    """Cut a batch into batches of at most `batch_size` rows and about `BATCH_BYTES`."""
    rows = min(batch_size, max(piece.num_rows * BATCH_BYTES // max(piece.nbytes, 1), 1))
    if rows >= piece.num_rows:
        if piece.num_rows:
            yield piece
        return
    for start in range(0, piece.num_rows, rows):
        yield without_sliced_matrices(piece.slice(start, rows))
