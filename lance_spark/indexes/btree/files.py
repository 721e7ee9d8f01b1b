"""BTREE indexes: the values of a column in order, with the row of each.

| file | columns | content |
| --- | --- | --- |
| `page_data.lance` | values, ids (uint64) | a row for each row of the table, sorted, nulls first |
| `page_lookup.lance` | min, max, null_count, page_idx (uint32) | a row for each page |

A page is `batch_size` rows of `page_data.lance`; `batch_size` is in the schema metadata of
`page_lookup.lance`. `min` and `max` are the first and the last value of a page. So `min` is null if
nulls and values share a page. Floats are in the total order of IEEE 754: NaN of negative sign is
less, and NaN of positive sign is greater than all other values.

If `range_partitioned` is "true" in this metadata, several files have the pages in place of
`page_data.lance`: `part_<n>_page_data.lance` for each ``[n, pages]`` of the JSON list
`page_num_per_range_partition`. The last page of each file may be shorter. pylance 2 to 8 can write
such indexes; their values are not always in order.

If the schema metadata of `page_lookup.lance` lacks `range_partitioned`, a release before 2.0 wrote
the index. When such a release compacted a table, it left rows out of `page_data.lance`, but kept
`page_lookup.lance`. So the content of the pages is read from `page_data.lance` instead. In
releases of 2025, the column `ids` is named `row_ids`.

`ids` are row ids; from version 1 of the index on row addresses, also in tables with stable row ids.

Specification: table/index/scalar/btree.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers, Rows, distinct, split_rows
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.writer import FileWriter
from lance_spark.indexes.cache import all_rows
from lance_spark.indexes.files import IndexFiles, SegmentWriter, named, number_in, read_columns
from lance_spark.indexes.order import order_of

DATA_FILE, LOOKUP_FILE = "page_data.lance", "page_lookup.lance"
VALUES, IDS = "values", "ids"
DATA_COLUMNS = [VALUES, IDS]
_OLD_DATA_COLUMNS = [VALUES, "row_ids"]
LOOKUP_COLUMNS = ["min", "max", "null_count", "page_idx"]
#: Rows of a page, if the caller does not say.
DEFAULT_BATCH_SIZE = 4096
_MAX_BATCH_SIZE = 1 << 24
_PARTITIONED, _PART_PAGES = "range_partitioned", "page_num_per_range_partition"
_MAX_PARTS = 1 << 12
#: Most addresses of a segment that are read. Of a larger segment, runs of `_RUN` rows are: a
#: fragment that is in none of them has so few rows that a scan of them is cheap.
_MAX_ADDRESSES = 16 << 20
_RUN = 4096
#: The part of the file of addresses under which the cache has the fragments.
_FRAGMENTS = -1


@dataclass(frozen=True, slots=True)
class BTreePages:
    """The pages of an index, in the order of `page_data.lance`.

    - `low`, `high`: First and last value of each page.
    - `nulls` (int64 array): Nulls in each page.
    - `bounds` (int64 array): First row of each page, and the number of all rows.
    - `files`: The files with the pages.
    """

    low: pa.Array
    high: pa.Array
    nulls: RowNumbers
    bounds: RowNumbers
    files: tuple[str, ...] = (DATA_FILE,)

    @property
    def num_rows(self) -> int:
        """Rows of all pages."""
        return int(self.bounds[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.low.nbytes + self.high.nbytes + self.nulls.nbytes + self.bounds.nbytes)


def cached_pages(files: IndexFiles) -> BTreePages | None:
    """Return the pages of a segment; None if its files are missing, or have another layout.

    Raises CorruptTableError, CorruptFileError, StorageError.
    """
    return files.cached(
        LOOKUP_FILE, read_pages, lambda pages: 64 if pages is None else pages.nbytes
    )


def is_known_layout(lookup: DataFileReader) -> bool:
    """Return whether `page_lookup.lance` describes the pages of one `page_data.lance`."""
    partitioned = lookup.schema.metadata.get(_PARTITIONED, b"false")
    return lookup.schema.names == LOOKUP_COLUMNS and partitioned == b"false"


def rows_of_page(lookup: DataFileReader) -> int:
    """Return the rows of a page.

    Raises CorruptFileError.
    """
    rows = number_in(lookup, "batch_size")
    if not 0 < rows <= _MAX_BATCH_SIZE:
        raise CorruptFileError(
            f"{lookup.source.name}: batch_size={rows}, but a page has 1 to {_MAX_BATCH_SIZE} rows; "
            "rebuild the index"
        )
    return rows


def is_known_data(data: DataFileReader | DataParts) -> bool:
    """Return whether `page_data.lance` has values and row ids, with nulls as nulls."""
    # Files of version 0.1 have 0 in place of null.
    return data.version >= (2, 0) and data.schema.names in (DATA_COLUMNS, _OLD_DATA_COLUMNS)


def ids_field(data: DataFileReader | DataParts) -> Field:
    """Return the field of the row ids in `page_data.lance`.

    Raises CorruptFileError.
    """
    return named(data, data.schema.names[-1], pa.uint64())


def read_pages(files: IndexFiles) -> BTreePages | None:
    """Return the pages of a segment; None if its files have another layout.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    with closing(files.open(LOOKUP_FILE)) as lookup:
        parts = _parts(lookup)
        names = (DATA_FILE,) if parts is None else tuple(parts)
        if lookup.schema.names != LOOKUP_COLUMNS or not names:
            return None
        batch_size, name = rows_of_page(lookup), lookup.source.name
        with open_data(files, names) as data:
            if not is_known_data(data):
                return None
            if _PARTITIONED not in lookup.schema.metadata:
                assert not isinstance(data, DataParts)
                return _pages_of_data(data, batch_size)
            num_rows, value_type = data.num_rows, data.schema.fields[0].arrow_field.type
            lengths = data.lengths if isinstance(data, DataParts) else [num_rows]
        columns = read_columns(lookup, dict.fromkeys(LOOKUP_COLUMNS))
    low, high, *integers = columns.columns
    if any(array.null_count or not pat.is_integer(array.type) for array in integers):
        raise CorruptFileError(
            f"{name}: null_count and page_idx must be integers and not null; rebuild the index"
        )
    nulls, page = (array.to_numpy().astype(np.int64) for array in integers)
    order = np.argsort(page)
    low, high = (array.take(pa.array(order)) for array in (low, high))
    nulls, page = nulls[order], page[order]
    counts = [-(-length // batch_size) for length in lengths]
    error = CorruptFileError(
        f"{name}: its pages do not match the {num_rows} rows of {names[0]}; rebuild the index"
    )
    if (
        not low.type == high.type == value_type
        or not np.array_equal(page, np.arange(len(page)))
        or len(page) != sum(counts)
        or (parts is not None and counts != list(parts.values()))
    ):
        raise error
    firsts = np.append(0, np.cumsum(lengths))
    starts = [
        first + np.arange(count) * batch_size
        for first, count in zip(firsts[:-1], counts, strict=True)
    ]
    bounds = np.append(np.concatenate(starts), num_rows)
    if (nulls > np.diff(bounds)).any():
        raise error
    pages = BTreePages(low, high, nulls, bounds, names)
    return pages if parts is None or _is_in_order(pages) else None


def _parts(lookup: DataFileReader) -> dict[str, int] | None:
    """Return the files of an index of several files, with the pages of each; None for others.

    Raises CorruptFileError.
    """
    metadata = lookup.schema.metadata
    if metadata.get(_PARTITIONED, b"false") == b"false":
        return None
    try:
        parts = json.loads(metadata.get(_PART_PAGES, b"null"))
    except (ValueError, RecursionError):
        parts = None
    if not isinstance(parts, list) or len(parts) > _MAX_PARTS:
        parts = [None]
    names = {}
    for part in parts:
        if not (
            isinstance(part, list)
            and [type(number) for number in part] == [int, int]
            and min(part) >= 0
            and part[0] < 1 << 64
        ):
            raise CorruptFileError(
                f"{lookup.source.name}: {_PART_PAGES} must be a list of the pages of each file; "
                "rebuild the index"
            )
        names[f"part_{part[0]}_{DATA_FILE}"] = part[1]
    return names


def _is_in_order(pages: BTreePages) -> bool:
    """Return whether the pages of several files follow one another."""
    places = np.arange(2 * len(pages.low)).reshape(2, -1).T.ravel()
    edges = pa.concat_arrays([pages.low, pages.high]).take(pa.array(places))
    has_values = pages.nulls < np.diff(pages.bounds)
    in_order = np.array_equal(order_of(edges), np.arange(len(edges)))
    # Nulls come before all values.
    return bool(in_order and not pages.nulls[1:][np.logical_or.accumulate(has_values)[:-1]].any())


class DataParts:
    """Several files with pages, which are read as if they were one.

    - `files`: One or more, which the caller closes.

    Raises CorruptFileError: the files have other columns than the first one.
    """

    def __init__(self, files: Sequence[DataFileReader]) -> None:
        self._files = files
        self.schema, self.source, self.version = files[0].schema, files[0].source, files[0].version
        fields = [field.arrow_field for field in self.schema.fields]
        for file in files:
            if [field.arrow_field for field in file.schema.fields] != fields:
                raise CorruptFileError(
                    f"{file.source.name}: its columns are not those of {self.source.name}; rebuild "
                    "the index"
                )

    @property
    def lengths(self) -> list[int]:
        """Rows of each file."""
        return [file.num_rows for file in self._files]

    @property
    def num_rows(self) -> int:
        """Rows of all files."""
        return sum(self.lengths)

    def read(self, fields: Sequence[Field], rows: Rows) -> list[pa.Array]:
        """Return columns of some rows; see `FileReader.read`."""
        read = [
            self._files[number].read(fields, own) for number, own in split_rows(rows, self.lengths)
        ]
        if not read:
            return self._files[0].read(fields, range(0))
        return [pa.concat_arrays(columns) for columns in zip(*read, strict=True)]


@contextmanager
def open_data(files: IndexFiles, names: Sequence[str]) -> Iterator[DataFileReader | DataParts]:
    """Lend the files with the pages of an index, which can stay open for the next search.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(files.opened(name)) for name in names]
        yield opened[0] if len(opened) == 1 else DataParts(opened)


def _pages_of_data(data: DataFileReader, batch_size: int) -> BTreePages:
    """Return the pages by the first and the last value of each."""
    rows = all_rows(data)
    bounds = np.append(np.arange(0, len(rows), batch_size), len(rows))
    field = data.schema.fields[0]
    edges = distinct(np.concatenate([bounds[:-1], bounds[1:] - 1])) if rows else bounds[:0]
    (values,) = data.read([field], edges)
    first, last = (np.searchsorted(edges, row) for row in (bounds[:-1], bounds[1:] - 1))
    low, high = (values.take(pa.array(places)) for places in (first, last))
    begins, ends = (side.is_null().to_numpy(zero_copy_only=False) for side in (low, high))
    nulls = np.where(ends, np.diff(bounds), 0)
    mixed = np.flatnonzero(begins & ~ends)
    if len(mixed) > 1 or (~begins[:-1] & begins[1:]).any() or (~begins & ends).any():
        raise CorruptFileError(
            f"{data.source.name}: nulls must come before all values; rebuild the index"
        )
    for page in mixed.tolist():
        (values,) = data.read([field], range(*bounds[page : page + 2].tolist()))
        nulls[page] = values.null_count
    return BTreePages(low, high, nulls, bounds)


class BTreeWriter:
    """Writes the two files of an index; finish them with the segment.

    - `dtype`: Type of the column.
    - `batch_size`: Rows of a page.
    """

    def __init__(self, segment: SegmentWriter, dtype: pa.DataType, batch_size: int) -> None:
        self._batch_size = batch_size
        self._schema = pa.schema(
            [pa.field(VALUES, dtype), pa.field(IDS, pa.uint64(), nullable=False)]
        )
        types = [dtype, dtype, pa.uint32(), pa.uint32()]
        lookup_fields = [
            pa.field(name, column_type, nullable=column_type == dtype)
            for name, column_type in zip(LOOKUP_COLUMNS, types, strict=True)
        ]
        self._data: FileWriter = segment.create(DATA_FILE, self._schema)
        self._lookup_schema = pa.schema(lookup_fields)
        self._lookup: FileWriter = segment.create(LOOKUP_FILE, self._lookup_schema)
        self._lookup.set_metadata("batch_size", str(batch_size))
        self._lookup.set_metadata(_PARTITIONED, "false")
        self._waiting = self._schema.empty_table()
        self._num_pages = 0

    def write(self, values: pa.Array | pa.ChunkedArray, ids: pa.Array) -> None:
        """Add rows, which follow all rows so far in the order of the index."""
        added = pa.table([values, ids], schema=self._schema)
        self._waiting = pa.concat_tables([self._waiting, added]).combine_chunks()
        # The rows of an incomplete page wait for the next call.
        full = len(self._waiting) - len(self._waiting) % self._batch_size
        self._write_pages(self._waiting.slice(0, full))
        self._waiting = self._waiting.slice(full)

    def finish(self) -> None:
        """Write the last page."""
        self._write_pages(self._waiting)

    def _write_pages(self, rows: pa.Table) -> None:
        if not len(rows):
            return
        starts = np.arange(0, len(rows), self._batch_size)
        ends = np.minimum(starts + self._batch_size, len(rows)) - 1
        for batch in rows.to_batches():
            self._data.write(batch)
        values = rows.column(VALUES).combine_chunks()
        is_null = values.is_null().to_numpy(zero_copy_only=False).astype(np.uint32)
        columns: Sequence[pa.Array] = [
            values.take(pa.array(starts)),
            values.take(pa.array(ends)),
            pa.array(np.add.reduceat(is_null, starts), pa.uint32()),
            pa.array(np.arange(len(starts)) + self._num_pages, pa.uint32()),
        ]
        self._lookup.write(pa.RecordBatch.from_arrays(columns, schema=self._lookup_schema))
        self._num_pages += len(starts)


def held_fragments(files: IndexFiles) -> BitMap | None:
    """Return the fragments of the addresses of a segment; None if it cannot be read.

    Raises CorruptTableError, CorruptFileError, StorageError.
    """
    pages = cached_pages(files)
    if pages is None:
        return None

    def read(files: IndexFiles) -> BitMap:
        held = BitMap()
        with open_data(files, pages.files) as data:
            if not is_known_data(data):
                return held
            field = ids_field(data)
            for run in _runs(data.num_rows):
                (ids,) = data.read([field], run)
                numbers = ids.to_numpy(zero_copy_only=False) >> np.uint64(32)
                held |= BitMap(np.unique(numbers).astype(np.uint32))
        return held

    return files.cached(DATA_FILE, read, lambda held: 64 + 8 * len(held), _FRAGMENTS)


def _runs(num_rows: int) -> Iterable[range]:
    """Return the rows of a file that are read, in order: all if they are not too many."""
    if num_rows <= _MAX_ADDRESSES:
        step = length = 1 << 20
    else:
        length = _RUN
        step = num_rows * _RUN // _MAX_ADDRESSES
    return (range(start, min(start + length, num_rows)) for start in range(0, num_rows, step))
