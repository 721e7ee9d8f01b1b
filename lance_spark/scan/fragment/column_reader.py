"""The reader of some columns of a fragment: physical rows in, record batches out, no filter.

| step | where |
| --- | --- |
| find the data files that hold each column | `assemble.locate` |
| read the parts of a window from the files, and put overlays over them | `ColumnReader.window` |
| load blobs, and build one array of the parts of each column | `ColumnReader.batch` |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from lance_spark.encoding.blocks import nulls, with_kept_forms
from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.encoding.v2_1.leaf_columns import is_unscaled
from lance_spark.errors import UnsupportedEncodingError
from lance_spark.file.arrays import holds_matrices, without_slices
from lance_spark.file.blobs.fields import PLACE
from lance_spark.file.open import DataFileReader, open_file
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.reader import PAGE_BYTES, FileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.nested import Lengths
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.blobs import BlobDescriptors, BlobLoader
from lance_spark.scan.fragment.assemble import FieldPart, Overlays, assemble, files_of, locate
from lance_spark.scan.fragment.row_meta import COMPUTED, RowMeta
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.prefetch import StoredFields
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import check_row_count
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

# --------------------------------------------------------------------------------------------------
# The data files of one fragment, opened when they are first read and shared by its readers.

NO_READERS: Mapping[int, DataFileReader] = MappingProxyType({})


class FragmentFiles:
    """The open files of a fragment, and their overlays and other parts besides its columns.

    - `paths`: Opens the table's files.
    - `open_files`: Files that an earlier reader left open; `release` returns them.
    - `first_position`: Position of the fragment's first live row in the table's order; `_rowoffset`
      needs it.
    - `readers`: Data files that are open, by number; closed with this object.
    - `physical_rows`: Rows of the fragment, deleted rows included.
    - `file_of`: Number of the data file that holds a field, by the field's id.
    """

    def __init__(
        self,
        paths: TablePaths,
        fragment: Fragment,
        open_files: OpenFiles | None = None,
        first_position: int | None = None,
        readers: Mapping[int, DataFileReader] = NO_READERS,
    ) -> None:
        self.paths = paths
        self.fragment = fragment
        self.physical_rows = fragment.physical_rows
        self.file_of = files_of(fragment)
        self.meta = RowMeta(fragment, first_position, self.deleted, paths)
        self.overlays = Overlays(paths, fragment) if fragment.has_overlays else None
        self._open_files = open_files
        self._readers = dict(readers)
        self._columns: dict[int, dict[int, int]] = {}
        self._deleted: RowNumbers | None = None

    def expect(self, numbers: Iterable[int]) -> None:
        """Begin to read the ends of data files and the deletion file, if they are remote.

        Otherwise each would be requested after the one before has arrived.
        """
        if self.paths.store.is_local:
            return
        for number in numbers:
            if number >= 0 and number not in self._readers:
                self.paths.expect_data_file(self.fragment.files[number])
        if self.fragment.deletion_file is not None and self._deleted is None:
            self.paths.expect_deletion_file(self.fragment.deletion_file, self.fragment.id)

    def reader(self, number: int) -> DataFileReader:
        """Return the reader of a data file, by the file's number in the fragment.

        Raises CorruptTableError: the file has another number of rows than the manifest says.
        """
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = self._open(number)
        return reader

    def columns_of(self, number: int) -> dict[int, int]:
        """Return the column of each field in a data file, by the field's id."""
        columns = self._columns.get(number)
        if columns is None:
            file = self.fragment.files[number]
            columns = dict(zip(file.fields, file.column_indices, strict=False))
            self._columns[number] = columns
        return columns

    def deleted(self) -> RowNumbers:
        """Return the offsets of the deleted rows, increasing. They are read once."""
        if self._deleted is None:
            self._deleted = self._read_deleted()
        return self._deleted

    def close(self, metrics: ScanMetrics) -> None:
        """Close the files, and add the counts of their reads to `metrics`."""
        for reader in self._readers.values():
            metrics.add_source(reader.source)
            reader.close()
        self._readers.clear()
        if self.overlays is not None:
            self.overlays.close()

    def release(self, metrics: ScanMetrics) -> None:
        """Return the files to the `OpenFiles` that they came from, for the next reader.

        The counts of their reads are added to `metrics`.
        """
        if self._open_files is not None:
            for number, reader in self._readers.items():
                metrics.add_source(reader.source)
                file = self.fragment.files[number]
                self._open_files.give_back((file.base_id, file.path), reader)
            self._readers.clear()

    def _open(self, number: int) -> DataFileReader:
        file = self.fragment.files[number]
        reader = None
        if self._open_files is not None:
            reader = self._open_files.take_out((file.base_id, file.path))
        if reader is None:
            reader = open_file(self.paths.open_data_file(file), file.fields)
        check_row_count(reader, self.fragment)
        return reader

    def _read_deleted(self) -> RowNumbers:
        return read_deletions(self.paths, self.fragment)


# --------------------------------------------------------------------------------------------------
# Estimates of the bytes of a decoded row, made before decoding.

#: Typical decoded bytes per stored byte of compressed strings, lists and dictionaries.
INFLATION = 3.0


def fixed_width(data_type: pa.DataType) -> float | None:
    """Return the bytes of one value, or None if values of the type differ in size."""
    if pa.types.is_null(data_type):
        return 0.0
    if pa.types.is_fixed_size_list(data_type):
        item = fixed_width(data_type.value_type)
        return None if item is None else item * data_type.list_size
    if pa.types.is_struct(data_type):
        widths = [fixed_width(field.type) for field in data_type]
        return None if None in widths else sum(w for w in widths if w is not None)
    if pa.types.is_fixed_size_binary(data_type):
        # Arrow counts its bits modulo 2^32.
        return float(data_type.byte_width)
    try:
        return float(data_type.bit_width) / 8
    except ValueError:
        return None


def estimate_row_bytes(schema: pa.Schema, stored: Sequence[float | None]) -> float:
    """Estimate the decoded bytes of one row.

    - `stored`: Bytes that a row of each column takes on storage; None where the column is not
      stored.
    """
    total = 0.0
    for field, stored_bytes in zip(schema, stored, strict=True):
        width = fixed_width(pa.int64() if is_unscaled(field) else field.type)
        if width is None:
            width = 16.0 + INFLATION * (stored_bytes or 0.0)
        total += width
    return total


# --------------------------------------------------------------------------------------------------
# The reader of some columns of a fragment: physical rows in, record batches out, no filter.

#: Decoded bytes that a window aims at. Large enough that a decoder's fixed cost per call vanishes,
#: small enough for a worker's memory.
WINDOW_BYTES = 8 * 1024 * 1024
#: A window has at least so many bytes for each column, because each column has a fixed cost in each
#: window: up to a maximum for some columns, and for many.
_COLUMN_BYTES = ((2 * 1024 * 1024, 32 * 1024 * 1024), (128 * 1024, 256 * 1024 * 1024))
#: Most rows of a window. Narrow columns would have too many chunks in a window otherwise.
MAX_WINDOW_ROWS = 512 * 1024
#: On a remote store, a window is larger by this factor: its requests run side by side.
_REMOTE_WINDOWS = 4
#: Most rows of a window on a remote store: a window of numbers has as many bytes as one of text.
_MAX_REMOTE_ROWS = 4 * 1024 * 1024
#: Ranges begin at multiples of this where they can. Chunks mostly hold a power of two of rows, so
#: that no two ranges share one.
ALIGNMENT = 4096
#: The same for windows of few rows: a chunk of integers has so many.
CHUNK_ROWS = 1024
#: Pages of a window: writers end a page at about 8 MiB of values.
_PAGES = WINDOW_BYTES // PAGE_BYTES

#: The `FieldPart.file` of a field that no data file holds, only overlays.
_OVERLAID = -2

#: Arrays of the parts of some rows, by the part's identity. Columns that a filter has read already
#: stand whole under -1, -2, ...: -1 minus the column's position in the schema.
Window = dict[int, pa.Array]


class ColumnReader:
    """Reads physical rows of a fragment in the shape of a schema, deleted rows included.

    - `schema`: The columns, with the table's field ids. Fields that no file holds are null.
    - `load_external`: Whether to read blobs that are references to other objects. They are empty
      otherwise.
    - `arrow`: Of the batches.
    """

    def __init__(self, files: FragmentFiles, schema: Schema, *, load_external: bool = True) -> None:
        self.arrow = schema.to_arrow()
        self.fields = schema.fields
        self._files = files
        self._load_external = load_external
        self._parts = [self._locate(field) for field in self.fields]
        self._blob_parts = [
            part
            for parts in self._parts
            for part in parts
            if any(node.is_blob and not node.children for node in part.field.walk())
        ]
        self._has_matrices = any(holds_matrices(field.type) for field in self.arrow)
        self._loaders: dict[int, BlobLoader] = {}
        self._row_bytes: list[float | None] | None = None
        self._window_rows: int | None = None

    def over(self, files: FragmentFiles) -> ColumnReader:
        """Return a reader of the same columns of other files, which have the same layout."""
        reader = copy(self)
        reader._files = files
        reader._loaders = {}
        reader._row_bytes = reader._window_rows = None
        return reader

    def close(self) -> None:
        """Forget the loaders of blobs, which read from the open files."""
        self._loaders.clear()

    @property
    def has_blobs(self) -> bool:
        """Whether a data file holds a blob column of the schema."""
        return bool(self._blob_parts)

    @property
    def is_all_null(self) -> bool:
        """Whether no file holds any of the columns, so that all rows are equal."""
        return not any(self._parts)

    @property
    def file_numbers(self) -> set[int]:
        """The numbers of the data files that hold the columns."""
        return {part.file for parts in self._parts for part in parts if part.file >= 0}

    def read(self, rows: Rows) -> pa.RecordBatch:
        """Return some rows."""
        return self.batch(self.window(rows), len(rows))

    def window(self, rows: Rows, without: Collection[int] = ()) -> Window:
        """Read the parts of some rows. Blobs are still descriptors.

        - `without`: Positions in the schema of columns that are not read.
        """
        parts = [
            part
            for position, parts_of_field in enumerate(self._parts)
            if position not in without
            for part in parts_of_field
        ]
        by_file: dict[int, list[FieldPart]] = {}
        for part in parts:
            by_file.setdefault(part.file, []).append(part)
        window: Window = {}
        for part in by_file.pop(COMPUTED, ()):
            window[id(part)] = self._files.meta.array(part.field, rows)
        for part in by_file.pop(_OVERLAID, ()):
            window[id(part)] = nulls(len(rows), part.field.to_arrow())
        for number, of_file in by_file.items():
            fields = [part.field for part in of_file]
            arrays = self._files.reader(number).read(fields, rows, self._files.columns_of(number))
            window.update({id(part): array for part, array in zip(of_file, arrays, strict=True)})
        overlays = self._files.overlays
        if overlays is not None:
            for part in parts:
                window[id(part)] = overlays.apply(part.field, window[id(part)], rows)
        if self._has_matrices:
            window = {number: without_slices(array) for number, array in window.items()}
        return window

    def batch(self, window: Window, num_rows: int) -> pa.RecordBatch:
        """Build the batch of a window, blobs included."""
        if not self.fields:
            return rows_without_columns(num_rows)
        for part in self._blob_parts:
            loader = self._loader(part.file)
            window = {**window, id(part): loader.load(window[id(part)], part.field)}
        columns = self._assembled(window, num_rows, range(len(self.fields)))
        return pa.RecordBatch.from_arrays(columns, schema=with_kept_forms(self.arrow, columns))

    def some(self, window: Window, num_rows: int, positions: Sequence[int]) -> pa.RecordBatch:
        """Build a batch of some columns of a window, which are no blobs."""
        columns = self._assembled(window, num_rows, positions)
        return pa.RecordBatch.from_arrays(columns, [self.fields[item].name for item in positions])

    def _assembled(self, window: Window, num_rows: int, positions: Iterable[int]) -> list[pa.Array]:
        columns = []
        for position in positions:
            column = window.get(-1 - position)
            if column is None:
                parts = self._parts[position]
                arrays = [window[id(part)] for part in parts]
                column = assemble(self.fields[position], parts, arrays, num_rows)
            columns.append(column)
        return list(map(without_slices, columns)) if self._has_matrices else columns

    def batches(self, window: Window, num_rows: int) -> Iterator[pa.RecordBatch]:
        """Build the batches of a window: several if its blobs have more than `WINDOW_BYTES`."""
        if not self._blob_parts:
            yield self.batch(window, num_rows)
            return
        sizes = np.zeros(num_rows, np.int64)
        for part in self._blob_parts:
            sizes += self._loader(part.file).sizes(window[id(part)], part.field)
        for rows in cuts(sizes):
            count = rows.stop - rows.start
            piece = {part: array.slice(rows.start, count) for part, array in window.items()}
            yield self.batch(piece, count)

    def blob_descriptors(self, rows: RowNumbers) -> tuple[BlobLoader, BlobDescriptors]:
        """Return the descriptors of the blobs of some rows, and the loader that opens them.

        The schema has one column: a blob, or structs with one child each around a blob.
        """
        (parts,) = self._parts
        if not parts:
            loader = self._loader(0)
            return loader, BlobDescriptors.of(pa.nulls(len(rows), PLACE), loader.name)
        (part,) = parts
        array = self.window(rows)[id(part)]
        while array.type.num_fields == 1:
            (array,) = array.flatten()
        loader = self._loader(part.file)
        return loader, BlobDescriptors.of(array, loader.name)

    def window_rows(self) -> int:
        """Return the rows of a window: its bytes over the estimated decoded bytes of a row."""
        if self._window_rows is None:
            estimate = max(estimate_row_bytes(self.arrow, self.stored_row_bytes()), 1.0)
            full_pages = self._rows_of_full_pages()
            rows = min(int(WINDOW_BYTES / estimate), full_pages)
            max_rows = MAX_WINDOW_ROWS
            if not self._files.paths.store.is_local:
                rows, max_rows = rows * _REMOTE_WINDOWS, _MAX_REMOTE_ROWS
            least = max(min(size * len(self.fields), most) for size, most in _COLUMN_BYTES)
            rows = max(rows, min(int(least / estimate), full_pages))
            if rows >= ALIGNMENT * 2:
                rows -= rows % ALIGNMENT
            elif rows >= CHUNK_ROWS:
                rows -= rows % CHUNK_ROWS
            self._window_rows = min(max(rows, 1), max_rows)
        return self._window_rows

    def row_bytes(self) -> float:
        """Return about how many decoded bytes a row has; at least one."""
        estimate = estimate_row_bytes(self.arrow, self.stored_row_bytes())
        return max(estimate, WINDOW_BYTES / max(self._rows_of_full_pages(), 1), 1.0)

    def stored_row_bytes(self) -> Sequence[float | None]:
        """Return the stored bytes of a row for each column; None where no data file holds it."""
        if self._row_bytes is None:
            self._row_bytes = self._read_row_bytes()
        return self._row_bytes

    def stored_fields(self) -> list[StoredFields]:
        """Return the data files that hold some of the columns, each with the fields it holds."""
        fields: dict[int, list[Field]] = {}
        for part in (part for parts in self._parts for part in parts if part.file >= 0):
            fields.setdefault(part.file, []).append(part.field)
        return [
            StoredFields(self._files.reader(number), of_file, self._files.columns_of(number))
            for number, of_file in fields.items()
        ]

    def _locate(self, field: Field) -> list[FieldPart]:
        parts = self._files.meta.locate(field) or locate(field, self._files.file_of)
        overlays = self._files.overlays
        if overlays is None or not overlays.cover(field):
            return parts
        if not parts:
            return [FieldPart(_OVERLAID, field)]
        # A struct of this part is null in all rows, so that it does not say which structs are.
        unstored = overlays.unstored(field, {n.id for part in parts for n in part.field.walk()})
        return parts if unstored is None else [*parts, FieldPart(_OVERLAID, unstored)]

    def _loader(self, number: int) -> BlobLoader:
        loader = self._loaders.get(number)
        if loader is None:
            loader = self._loaders[number] = BlobLoader(
                self._files.paths,
                self._files.fragment.files[number],
                self._files.reader(number).source,
                load_external=self._load_external,
            )
        return loader

    def _read_row_bytes(self) -> list[float | None]:
        for reader, fields, column_of in self.stored_fields():
            # One call reads and parses the metadata of all columns of a file.
            if isinstance(reader, FileReader):
                reader.column_metas(fields, column_of)
        files = self._files
        rows = max(files.physical_rows, 1)
        row_bytes: list[float | None] = []
        for parts in self._parts:
            sizes = [
                files.reader(part.file).column_bytes([part.field], files.columns_of(part.file))
                for part in parts
                if part.file >= 0
            ]
            row_bytes.append(sum(sizes) / rows if sizes else None)
        return row_bytes

    def _rows_of_full_pages(self) -> int:
        """Return the rows of as many full pages as a window has.

        The column of variable width with the fewest rows per page counts. Values that were
        compressed a hundred times over decode to far more than their stored bytes suggest, but the
        writer ended their pages by decoded bytes.
        """
        counts = [
            self._files.reader(part.file).full_page_rows(
                [part.field], self._files.columns_of(part.file)
            )
            for field, parts in zip(self.arrow, self._parts, strict=True)
            if fixed_width(field.type) is None
            for part in parts
            if part.file >= 0
        ]
        return _PAGES * min((rows for rows in counts if rows), default=_MAX_REMOTE_ROWS)


def cuts(
    sizes: Lengths, most_bytes: int | None = None, most_rows: int | None = None
) -> Iterator[slice]:
    """Yield slices of rows that have at most so many bytes together, or of one row.

    - `sizes`: The bytes of each row.
    - `most_bytes`: `WINDOW_BYTES` by default.
    - `most_rows`: The most rows of a slice.
    """
    most_bytes = WINDOW_BYTES if most_bytes is None else most_bytes
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + most_bytes, side="right"))
        stop = max(stop, start + 1)
        if most_rows is not None:
            stop = min(stop, start + most_rows)
        yield slice(start, stop)
        start = stop


def halved(take: Callable[[slice], pa.Table], rows: slice) -> Iterator[tuple[int, pa.Table]]:
    """Yield rows at once, or in parts if they are more than an array of their type holds.

    - `take`: Returns the rows of a slice. It raises an error of Arrow if they are too many.

    Yields the number of the first row, and the rows.
    """
    try:
        table = take(rows)
    except (pa.ArrowInvalid, UnsupportedEncodingError):
        # The sizes of rows, by which callers cut them, are only estimated.
        if rows.stop - rows.start < 2:
            raise
    else:
        yield rows.start, table
        return
    middle = (rows.start + rows.stop) // 2
    yield from halved(take, slice(rows.start, middle))
    yield from halved(take, slice(middle, rows.stop))


def rows_without_columns(num_rows: int) -> pa.RecordBatch:
    """Return a batch that has rows but no columns."""
    counted = pa.RecordBatch.from_arrays([pa.nulls(num_rows)], names=["_"])
    return counted.select([])
