"""The reader of some columns of a fragment: physical rows in, record batches out, no filter.

| step | where |
| --- | --- |
| find the data files that hold each column | `assemble.locate` |
| read the parts of a window from the files, and put overlays over them | `ColumnReader.window` |
| load blobs, and build one array of the parts of each column | `ColumnReader.batch` |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import copy

import numpy as np
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import with_dictionaries
from lance_spark.encoding.nulls import nulls
from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.errors import UnsupportedEncodingError
from lance_spark.file.blobs.fields import PLACE
from lance_spark.file.matrices import holds_matrices, without_slices
from lance_spark.file.reader import PAGE_BYTES, FileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.nested import Lengths
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.blob_descriptors import BlobDescriptors
from lance_spark.scan.blob_loader import BlobLoader
from lance_spark.scan.fragment.assemble import FieldPart, assemble, locate
from lance_spark.scan.fragment.fragment_files import FragmentFiles
from lance_spark.scan.fragment.row_meta import COMPUTED
from lance_spark.scan.prefetch import StoredFields
from lance_spark.scan.row_size import estimate_row_bytes, fixed_width

#: Decoded bytes that a window aims at. Large enough that a decoder's fixed cost per call vanishes,
#: small enough for a worker's memory.
WINDOW_BYTES = 8 * 1024 * 1024
#: A window of more columns has more bytes, up to `_WIDE_WINDOW_BYTES`: each column has a fixed cost
#: in each window.
_MANY_COLUMNS = 64
_WIDE_WINDOW_BYTES = 64 * 1024 * 1024
#: Most rows of a window. Narrow columns would have too many chunks in a window otherwise.
MAX_WINDOW_ROWS = 512 * 1024
#: On a remote store, a window is larger by this factor: its requests run side by side.
_REMOTE_WINDOWS = 4
#: Most rows of a window on a remote store: a window of numbers has as many bytes as one of text.
_MAX_REMOTE_ROWS = 4 * 1024 * 1024
#: Ranges begin at multiples of this where they can. Chunks mostly hold a power of two of rows, so
#: that no two ranges share one.
ALIGNMENT = 4096
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
        columns = [
            window[-1 - position]
            if -1 - position in window
            else assemble(field, parts, [window[id(part)] for part in parts], num_rows)
            for position, (field, parts) in enumerate(zip(self.fields, self._parts, strict=True))
        ]
        if self._has_matrices:
            columns = list(map(without_slices, columns))
        return pa.RecordBatch.from_arrays(columns, schema=with_dictionaries(self.arrow, columns))

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
            many = min(WINDOW_BYTES * len(self.fields) / _MANY_COLUMNS, _WIDE_WINDOW_BYTES)
            rows = max(rows, min(int(many / estimate), full_pages))
            if rows >= ALIGNMENT * 2:
                rows -= rows % ALIGNMENT
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
