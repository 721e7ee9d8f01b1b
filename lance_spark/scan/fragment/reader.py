"""The rows of one fragment as record batches.

A scan goes through the fragment in *windows*: ranges of rows whose decoded size is near a byte budget, whatever the batch
size, because decoders work best on many rows at once. With filters, windows are those of the filters' columns alone, which are read
first; of the other columns only what the survivors need is read (`survivors`), again at most a window's bytes at once. What was read is
cut into batches without copying.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.encoding.levels import BoolArray
from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.errors import EvaluationError
from lance_spark.file.blobs.fields import PLACE
from lance_spark.file.open import DataFileReader, open_file
from lance_spark.file.reader import PAGE_BYTES, FileReader
from lance_spark.file.schema.schema import Field, Schema
from lance_spark.scan.blobs.loader import BlobDescriptors, BlobLoader
from lance_spark.scan.fragment.assemble import FieldPart, assemble, files_of, locate
from lance_spark.scan.fragment.overlays import Overlays
from lance_spark.scan.fragment.row_meta import COMPUTED, RowMeta
from lance_spark.scan.fragment.selection import (
    ALIGNMENT,
    Costs,
    FilterResult,
    ReadRange,
    cut,
    plan_ranges,
)
from lance_spark.scan.fragment.window_prefetch import StoredFields, fetched_ahead
from lance_spark.scan.fragment.window_split import window_reader
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.open_files import OpenFiles
from lance_spark.scan.positions import live_to_physical
from lance_spark.scan.predicates.conditions import Condition, candidate_ranges, matching
from lance_spark.scan.pruning.ranges import intersection
from lance_spark.scan.row_size import estimate_row_bytes, fixed_width, nulls
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import check_row_count
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

#: Decoded bytes a window aims at. Large enough that a decoder's fixed cost per call vanishes, small enough for a worker.
WINDOW_BYTES = 16 * 1024 * 1024
#: Windows in one, where a request takes long: as many parts of it are fetched at once.
_FAR_WINDOWS = 2
#: Rows of a window at most, so that narrow columns do not make windows of many chunks' bookkeeping.
MAX_WINDOW_ROWS = 512 * 1024
#: The same where a request takes long: a window of numbers has as many bytes as one of text.
_FAR_ROWS = 4 * 1024 * 1024
#: Pages that make a window: writers end them at about 8 MiB of values.
_PAGES = WINDOW_BYTES // PAGE_BYTES
#: Bytes of a batch at most, if its rows allow.
BATCH_BYTES = 16 * 1024 * 1024

#: Where fewer than one row in so many is wanted, these are read; elsewhere all are, and some taken out.
_SPARSE = 16

#: In the place of a data file's number: no file holds the field, overlays alone do.
_OVERLAID = -2

#: What the files of a fragment hold of some rows: an array for each part, by the part's identity; whole columns that filters have
#: read, by -1 and less.
Window = dict[int, pa.Array]


class FragmentReader:
    """Reads rows of one fragment in the shape of a schema.

    Parameters
    ----------
    paths : TablePaths
        Opens the table's files.
    fragment : Fragment
    schema : Schema
        The columns wanted, with the table's field ids; fields that the fragment lacks come out null.
    filters : sequence of Condition
        `scan` leaves out the rows that do not meet all of them. Their columns need not be in `schema`.
    open_files : OpenFiles, optional
        Where data files may be open already; `release` leaves them there.
    first_position : int, optional
        Position of the fragment's first live row in the table's order: `_rowoffset` needs it.
    load_external : bool
        Whether bytes are read of blobs that are references to other objects; they come out empty otherwise.
    metrics : ScanMetrics, optional
        Counts what is read and left out; `close` adds what was read of files.

    Raises
    ------
    CorruptTableError
        A data file has another number of rows than the manifest says.
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
    ) -> None:
        self._paths = paths
        self._load_external = load_external
        self._metrics = ScanMetrics() if metrics is None else metrics
        self._fragment = fragment
        self._arrow = schema.to_arrow()
        self._fields = schema.fields
        file_of = files_of(fragment)
        self._physical_rows = fragment.physical_rows
        self._meta = self._row_meta(first_position)
        self._overlays = Overlays(paths, fragment) if fragment.has_overlays else None
        self._parts = [self._locate(field, file_of) for field in self._fields]
        self._blob_parts = [
            part
            for parts in self._parts
            for part in parts
            if any(node.is_blob and not node.children for node in part.field.walk())
        ]
        self._in_parts = window_reader(self._arrow, filters, has_blobs=bool(self._blob_parts))
        self._files: dict[int, DataFileReader] = {}
        self._columns: dict[int, dict[int, int]] = {}
        self._loaders: dict[int, BlobLoader] = {}
        self._deleted: RowNumbers | None = None
        self._open_files = open_files
        self._file_of = file_of
        self._filters = tuple(filters)
        self._judge: FragmentReader | None = None
        # Columns that the filters have read already: their place in the schema, and among those of the filters.
        self._known: dict[int, int] = {}
        self._costs: Costs | None = None
        self._stored_bytes: list[float | None] | None = None
        self._most_rows: int | None = None
        if filters:
            judged = Schema.of_paths(path for part in filters for path in part.paths)
            self._judge = self._like(judged, first_position)
            self._judge._files = self._files
            self._known = {
                at: judged.fields.index(field)
                for at, field in enumerate(self._fields)
                if field in judged.fields and not any(node.is_blob for node in field.walk())
            }

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        return self._arrow

    def close(self) -> None:
        """Close the data files; batches handed out before stay valid."""
        for reader in self._files.values():
            self._metrics.add_source(reader.source)
            reader.close()
        self._files.clear()
        self._loaders.clear()
        if self._overlays is not None:
            self._overlays.close()
        if self._judge is not None:
            self._judge.close()

    def release(self) -> None:
        """Leave the data files open for others, if there is a place for them."""
        if self._open_files is not None:
            for number, reader in self._files.items():
                file = self._fragment.files[number]
                self._open_files.give_back(file.base_id, file.path, reader)
            self._files.clear()
        self.close()

    def read(self, rows: Rows) -> pa.RecordBatch:
        """Return the physical rows `rows`, deleted ones included."""
        return self._batch(self._window(rows), len(rows))

    def pieces(self, rows: range) -> Iterator[pa.RecordBatch]:
        """Yield the physical rows `rows` in order, deleted ones included; in pieces, if they have more bytes than a window should."""
        for window in self._windows(rows):
            yield from self._in_parts(window, self._physical)

    def _physical(self, rows: range) -> Iterator[pa.RecordBatch]:
        return self._batches(self._window(rows), len(rows))

    def take(self, rows: RowNumbers) -> pa.RecordBatch:
        """Return live rows by their number among the live rows, strictly increasing."""
        return self.read(live_to_physical(rows, self.deleted()))

    def blob_places(self, rows: RowNumbers) -> tuple[BlobLoader, BlobDescriptors]:
        """Return where the blobs of some physical rows are, of a schema of one blob, or of structs around it."""
        (parts,) = self._parts
        if not parts:
            loader = self._loader(0)
            return loader, BlobDescriptors.of(pa.nulls(len(rows), PLACE), loader.name)
        (part,) = parts
        array = self._window(rows)[id(part)]
        while array.type.num_fields == 1:
            (array,) = array.flatten()
        loader = self._loader(part.file)
        return loader, BlobDescriptors.of(array, loader.name)

    def scan(self, rows: range, batch_size: int) -> Iterator[pa.RecordBatch]:
        """Yield the live rows among the physical rows `rows`, in order, in batches of at most `batch_size`."""
        for piece in self.live(rows):
            yield from batches_of(piece, batch_size)

    def live(self, rows: range, *, ahead: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the live rows among the physical rows `rows` that meet the filters, in order, as they were read.

        `ahead`: all are wanted, what comes next is fetched meanwhile if the store is far."""
        parts = self._candidates(rows)
        self._metrics.rows_skipped += len(rows) - sum(len(part) for part in parts)
        windows: Iterator[range] = (one for part in parts for one in self._windows(part))
        reader = self if self._judge is None else self._judge
        if ahead and not self._paths.store.is_local and not reader._blob_parts:
            windows = fetched_ahead(windows, reader._stored(), self.deleted())
        for window in windows:
            yield from self._in_parts(window, self._live)

    def matching_rows(self) -> RowNumbers:
        """Return the physical offsets of the live rows that meet the filters, increasing."""
        return np.concatenate([np.empty(0, np.int64), *self.matching_windows()])

    def matching_windows(self) -> Iterator[RowNumbers]:
        """Yield the physical offsets of the live rows that meet the filters, increasing; of one window at a time."""
        for part in self._candidates(range(self._physical_rows)):
            for window in self._windows(part):
                yield from self._in_parts(window, self._matching)

    def _matching(self, rows: range) -> Iterator[RowNumbers]:
        wanted, _ = self._wanted(rows)
        yield rows.start + (np.arange(len(rows)) if wanted is None else np.flatnonzero(wanted))

    def window_rows(self) -> int:
        """Rows of a window: `WINDOW_BYTES` over the estimated decoded bytes of a row.

        Values that were compressed a hundred times over decode to far more than is estimated. How many of them filled a page says more.
        """
        if self._most_rows is None:
            row_bytes = estimate_row_bytes(self._arrow, self._stored_row_bytes())
            rows = min(int(WINDOW_BYTES / max(row_bytes, 1.0)), self._rows_in_pages())
            most = MAX_WINDOW_ROWS
            if not self._paths.store.is_local:
                rows, most = rows * _FAR_WINDOWS, _FAR_ROWS
            if rows >= ALIGNMENT * 2:
                rows -= rows % ALIGNMENT
            self._most_rows = min(max(rows, 1), most)
        return self._most_rows

    def stored_bytes(self) -> int:
        """Return the bytes that the pages of the columns take in the data files."""
        rows = max(self._physical_rows, 1)
        return round(rows * sum(held or 0.0 for held in self._stored_row_bytes()))

    def deleted(self) -> RowNumbers:
        """Return the offsets of the deleted rows, increasing; read once."""
        if self._deleted is None:
            file = self._fragment.deletion_file
            self._deleted = (
                np.empty(0, dtype=np.int64)
                if file is None
                else read_deletions(self._paths, self._fragment).astype(np.int64, copy=False)
            )
        return self._deleted

    def _row_meta(self, first_position: int | None) -> RowMeta:
        return RowMeta(self._fragment, first_position, self.deleted, self._paths)

    def _like(self, schema: Schema, first_position: int | None) -> FragmentReader:
        """Return a reader of other columns of the same rows."""
        return FragmentReader(self._paths, self._fragment, schema, first_position=first_position)

    def _locate(self, field: Field, file_of: Mapping[int, int]) -> list[FieldPart]:
        parts = self._meta.locate(field) or locate(field, file_of)
        if not parts and self._overlays is not None and self._overlays.cover(field):
            return [FieldPart(_OVERLAID, field)]
        return parts

    def _window(self, rows: Rows, without: Collection[int] = ()) -> Window:
        """Read what the files hold of some rows, but for the fields at some places: blobs are still descriptions."""
        wanted: dict[int, list[FieldPart]] = {}
        found = [
            part for at, parts in enumerate(self._parts) if at not in without for part in parts
        ]
        for part in found:
            wanted.setdefault(part.file, []).append(part)
        arrays: Window = {}
        for part in wanted.pop(COMPUTED, ()):
            arrays[id(part)] = self._meta.array(part.field, rows)
        for part in wanted.pop(_OVERLAID, ()):
            arrays[id(part)] = nulls(len(rows), part.field.to_arrow())
        for number, parts in wanted.items():
            fields = [part.field for part in parts]
            read = self._file(number).read(fields, rows, self._columns_of(number))
            arrays.update({id(part): array for part, array in zip(parts, read, strict=True)})
        if self._overlays is not None:
            for part in found:
                arrays[id(part)] = self._overlays.apply(part.field, arrays[id(part)], rows)
        return arrays

    def _stored(self) -> list[StoredFields]:
        """Return the data files that hold columns which are read, and which."""
        fields: dict[int, list[Field]] = {}
        for part in (part for parts in self._parts for part in parts if part.file >= 0):
            fields.setdefault(part.file, []).append(part.field)
        return [StoredFields(self._file(n), of, self._columns_of(n)) for n, of in fields.items()]

    def _batch(self, window: Window, num_rows: int) -> pa.RecordBatch:
        if not self._fields:
            return _rows_without_columns(num_rows)
        for part in self._blob_parts:
            loader = self._loader(part.file)
            window = {**window, id(part): loader.load(window[id(part)], part.field)}
        columns = [
            window[-1 - at]
            if -1 - at in window
            else assemble(field, parts, [window[id(part)] for part in parts], num_rows)
            for at, (field, parts) in enumerate(zip(self._fields, self._parts, strict=True))
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)

    def _candidates(self, rows: range) -> list[range]:
        """Return the parts of a range that the filters do not rule out by statistics."""
        judge = self._judge
        # No file holds a column that is looked at: one row tells of all, of which there may be 2^32 in a manifest of some bytes.
        if judge is not None and rows and not any(judge._parts):
            return [rows] if matching(self._filters, judge.read(rows[:1])).any() else []
        left = [rows]
        for condition in self._filters:
            known = condition.candidates(self._candidate_ranges)
            if known is not None:
                left = intersection(left, known)
        return left

    def _candidate_ranges(self, field: Field, op: str, value: Any) -> list[range] | None:
        number = self._file_of.get(field.id)
        if number is None or (self._overlays is not None and self._overlays.cover(field)):
            return None
        return candidate_ranges(self._file(number), field, op, value)

    def _windows(self, rows: range) -> Iterator[range]:
        reader = self if self._judge is None else self._judge
        return cut(rows, reader.window_rows())

    def _live(self, rows: range) -> Iterator[pa.RecordBatch]:
        wanted, judged = self._wanted(rows)
        count = len(rows) if wanted is None else int(np.count_nonzero(wanted))
        self._metrics.windows += 1
        if not count:
            self._metrics.windows_skipped += 1
            return
        if not self._fields:
            yield _rows_without_columns(count)
            return
        yield from self._surviving(rows, wanted, judged)

    def _surviving(
        self, rows: range, wanted: BoolArray | None, judged: FilterResult | None
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows of a window that `_wanted` has left."""
        for reading in plan_ranges(rows, wanted, self.window_rows(), self._read_costs()):
            yield from self._read_live(reading, judged)

    def _read_live(
        self, reading: ReadRange, judged: FilterResult | None
    ) -> Iterator[pa.RecordBatch]:
        rows, kept = reading
        known = {} if judged is None else self._known
        window = self._window(rows, known)
        if kept is not None:
            live = pa.array(kept)
            window = {part: array.take(live) for part, array in window.items()}
        if judged is not None and known:
            places = judged.places(rows, kept)
            for at, number in known.items():
                column = judged.batch.column(number)
                window[-1 - at] = (
                    column.slice(places.start, places.stop - places.start)
                    if isinstance(places, slice)
                    else column.take(pa.array(places))
                )
        yield from self._batches(window, len(rows) if kept is None else len(kept))

    def _read_costs(self) -> Costs:
        if self._costs is None:
            types = [field.type for field in self._arrow]
            columns = list(zip(types, self._stored_row_bytes(), strict=True))
            self._costs = Costs.of(
                [column for at, column in enumerate(columns) if at not in self._known]
            )
        return self._costs

    def _wanted(self, rows: range) -> tuple[BoolArray | None, FilterResult | None]:
        """Return which of some rows are not deleted and meet the filters, None if all are; and what was read for it."""
        deleted = self.deleted()
        first, last = np.searchsorted(deleted, [rows.start, rows.stop])
        wanted: BoolArray | None = None
        if last > first:
            wanted = np.ones(len(rows), dtype=bool)
            wanted[deleted[first:last] - rows.start] = False
        if self._judge is None:
            return wanted, None
        live = len(rows) - int(last - first)
        if not live:
            return wanted, None
        # Nobody needs the blobs of deleted rows, which may be gone.
        if wanted is not None and (live * _SPARSE < len(rows) or self._judge._blob_parts):
            places = np.flatnonzero(wanted)
            judged = FilterResult(places + rows.start, self._judge.read(places + rows.start))
            met = matching(self._filters, judged.batch)
            wanted[places] = met
            self._metrics.rows_filtered += live - int(np.count_nonzero(met))
            return wanted, judged
        judged = FilterResult(rows, self._judge.read(rows))
        try:
            met = matching(self._filters, judged.batch)
        except EvaluationError:
            if wanted is None:
                raise
            # The error may be that of a deleted row.
            met = np.zeros(len(rows), np.bool_)
            met[wanted] = matching(self._filters, judged.batch.filter(pa.array(wanted)))
        if wanted is not None:
            met &= wanted
        count = int(np.count_nonzero(met))
        self._metrics.rows_filtered += live - count
        return (None if count == len(rows) else met), judged

    def _batches(self, window: Window, num_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a window; in pieces, if their blobs have more bytes than a window should."""
        if not self._blob_parts:
            yield self._batch(window, num_rows)
            return
        sizes = np.zeros(num_rows, np.int64)
        for part in self._blob_parts:
            sizes += self._loader(part.file).sizes(window[id(part)], part.field)
        start = 0
        ends = np.cumsum(sizes)
        while start < num_rows:
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + WINDOW_BYTES, side="right"))
            stop = max(stop, start + 1)
            piece = {part: array.slice(start, stop - start) for part, array in window.items()}
            yield self._batch(piece, stop - start)
            start = stop

    def _loader(self, number: int) -> BlobLoader:
        loader = self._loaders.get(number)
        if loader is None:
            file, source = self._fragment.files[number], self._file(number).source
            loader = self._loaders[number] = BlobLoader(
                self._paths, file, source, load_external=self._load_external
            )
        return loader

    def _stored_row_bytes(self) -> Sequence[float | None]:
        if self._stored_bytes is not None:
            return self._stored_bytes
        for reader, fields, column_of in self._stored():
            # The metadata of all columns is read and parsed at once.
            if isinstance(reader, FileReader):
                reader.column_metas(fields, column_of)
        stored: list[float | None] = []
        rows = max(self._physical_rows, 1)
        for parts in self._parts:
            held = [
                self._file(part.file).column_bytes([part.field], self._columns_of(part.file))
                for part in parts
                if part.file >= 0
            ]
            stored.append(sum(held) / rows if held else None)
        self._stored_bytes = stored
        return stored

    def _rows_in_pages(self) -> int:
        """Return how many rows the pages of a window have, by the column of variable width that has the fewest."""
        found = [
            self._file(part.file).full_page_rows([part.field], self._columns_of(part.file))
            for field, parts in zip(self._arrow, self._parts, strict=True)
            if fixed_width(field.type) is None
            for part in parts
            if part.file >= 0
        ]
        return _PAGES * min((rows for rows in found if rows), default=_FAR_ROWS)

    def _columns_of(self, number: int) -> dict[int, int]:
        """Return the column of each field in a file."""
        columns = self._columns.get(number)
        if columns is None:
            file = self._fragment.files[number]
            columns = dict(zip(file.fields, file.column_indices, strict=False))
            self._columns[number] = columns
        return columns

    def _file(self, number: int) -> DataFileReader:
        reader = self._files.get(number)
        if reader is None:
            file = self._fragment.files[number]
            if self._open_files is not None:
                reader = self._open_files.take_out(file.base_id, file.path)
            if reader is None:
                reader = open_file(self._paths.open_data_file(file), file.fields)
            check_row_count(reader, self._fragment)
            self._files[number] = reader
        return reader


def batches_of(piece: pa.RecordBatch, batch_size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch as batches of at most `batch_size` rows, and about `BATCH_BYTES`."""
    rows = min(batch_size, max(piece.num_rows * BATCH_BYTES // max(piece.nbytes, 1), 1))
    if rows >= piece.num_rows:
        if piece.num_rows:
            yield piece
        return
    for at in range(0, piece.num_rows, rows):
        yield piece.slice(at, rows)


def _rows_without_columns(num_rows: int) -> pa.RecordBatch:
    counted = pa.RecordBatch.from_arrays([pa.nulls(num_rows)], names=["_"])
    return counted.select([])
