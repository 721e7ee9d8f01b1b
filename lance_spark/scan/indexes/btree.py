"""BTREE indexes: the values of a column in order, with the row of each.

| file | columns | content |
| --- | --- | --- |
| `page_data.lance` | values, ids (uint64) | a row for each row of the table, sorted, nulls first |
| `page_lookup.lance` | min, max, null_count, page_idx (uint32) | a row for each page |

A page is `batch_size` rows of `page_data.lance`; `batch_size` is in the schema metadata of
`page_lookup.lance`. `min` and `max` are the first and the last value of a page. So `min` is null if
nulls and values share a page. Floats are in the total order of IEEE 754: NaN of negative sign is
less, and NaN of positive sign is greater than all other values. An index whose schema says
`range_partitioned` has other files.

If the schema metadata of `page_lookup.lance` lacks `range_partitioned`, a release before 2.0 wrote
the index. When such a release compacted a table, it left rows out of `page_data.lance`, but kept
`page_lookup.lance`. So the content of the pages is read from `page_data.lance` instead. In
releases of 2025, the column `ids` is named `row_ids`.

`ids` are row ids; from version 1 of the index on row addresses, also in tables with stable row ids.

Specification: table/index/scalar/btree.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers, distinct
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.writer import FileWriter
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.cache import all_rows
from lance_spark.scan.indexes.files import (
    IndexFiles,
    SegmentWriter,
    named,
    number_in,
    read_columns,
)
from lance_spark.table.indexes import sections as indexes

KIND = "BTREE"
#: Supported versions of the index.
_VERSIONS = (0, 1)
DATA_FILE, LOOKUP_FILE = "page_data.lance", "page_lookup.lance"
VALUES, IDS = "values", "ids"
DATA_COLUMNS = [VALUES, IDS]
_OLD_DATA_COLUMNS = [VALUES, "row_ids"]
LOOKUP_COLUMNS = ["min", "max", "null_count", "page_idx"]
#: Rows of a page, if the caller does not say.
DEFAULT_BATCH_SIZE = 4096
_MAX_BATCH_SIZE = 1 << 24
_PARTITIONED = "range_partitioned"


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of an index, in the order of `page_data.lance`.

    Attributes
    ----------
    low, high : pa.Array
        First and last value of each page.
    nulls : int64 array
        Nulls in each page.
    bounds : int64 array
        First row of each page, and the number of all rows.
    """

    low: pa.Array
    high: pa.Array
    nulls: RowNumbers
    bounds: RowNumbers

    @property
    def num_rows(self) -> int:
        """Rows of all pages."""
        return int(self.bounds[-1])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self.low.nbytes + self.high.nbytes + self.nulls.nbytes + self.bounds.nbytes)


def is_btree(index: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment is a BTREE of a supported version that has all rows."""
    return indexes.is_single_column_index(index, KIND, _VERSIONS) and not indexes.may_lack_rows(
        index
    )


def cached_pages(files: IndexFiles) -> Pages | None:
    """Return the pages of a segment; None if its files are missing, or have another layout.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
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

    Raises
    ------
    CorruptFileError
    """
    rows = number_in(lookup, "batch_size")
    if not 0 < rows <= _MAX_BATCH_SIZE:
        raise CorruptFileError(
            f"{lookup.source.name}: batch_size={rows}, but a page has 1 to {_MAX_BATCH_SIZE} rows; "
            "rebuild the index"
        )
    return rows


def is_known_data(data: DataFileReader) -> bool:
    """Return whether `page_data.lance` has values and row ids, with nulls as nulls."""
    # Files of version 0.1 have 0 in place of null.
    return data.version >= (2, 0) and data.schema.names in (DATA_COLUMNS, _OLD_DATA_COLUMNS)


def ids_field(data: DataFileReader) -> Field:
    """Return the field of the row ids in `page_data.lance`.

    Raises
    ------
    CorruptFileError
    """
    return named(data, data.schema.names[-1], pa.uint64())


def read_pages(files: IndexFiles) -> Pages | None:
    """Return the pages of a segment; None if its files have another layout.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    """
    with closing(files.open(LOOKUP_FILE)) as lookup, files.opened(DATA_FILE) as data:
        if not is_known_layout(lookup) or not is_known_data(data):
            return None
        batch_size = rows_of_page(lookup)
        if _PARTITIONED not in lookup.schema.metadata:
            return _pages_of_data(data, batch_size)
        columns, name = read_columns(lookup, dict.fromkeys(LOOKUP_COLUMNS)), lookup.source.name
        num_rows, value_type = data.num_rows, data.schema.fields[0].arrow_field.type
    low, high, *integers = columns.columns
    if any(array.null_count or not pat.is_integer(array.type) for array in integers):
        raise CorruptFileError(
            f"{name}: null_count and page_idx must be integers and not null; rebuild the index"
        )
    nulls, page = (array.to_numpy().astype(np.int64) for array in integers)
    order = np.argsort(page)
    low, high = (array.take(pa.array(order)) for array in (low, high))
    nulls, page = nulls[order], page[order]
    bounds = np.minimum(np.arange(len(page) + 1) * batch_size, num_rows)
    if (
        not low.type == high.type == value_type
        or not np.array_equal(page, np.arange(len(page)))
        or len(page) != -(-num_rows // batch_size)
        or (nulls > np.diff(bounds)).any()
    ):
        raise CorruptFileError(
            f"{name}: its pages do not match the {num_rows} rows of {DATA_FILE}; rebuild the index"
        )
    return Pages(low, high, nulls, bounds)


def _pages_of_data(data: DataFileReader, batch_size: int) -> Pages:
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
    return Pages(low, high, nulls, bounds)


class BTreeWriter:
    """Writes the two files of an index; finish them with the segment.

    Parameters
    ----------
    segment : SegmentWriter
    dtype : pa.DataType
        Type of the column.
    batch_size : int
        Rows of a page.
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
