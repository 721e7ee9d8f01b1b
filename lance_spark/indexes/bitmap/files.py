"""BITMAP indexes: a set of rows for each distinct value.

The only file, `bitmap_page_lookup.lance`, has a row for each value, null first, then ascending:

| column | content |
| --- | --- |
| keys | the value; NaN and both zeros are values of their own |
| bitmaps | binary; the rows with the value as a row address map (`row_sets`) |

The schema metadata `lance:index_stats` is the JSON ``{"num_bitmaps": n}``.

Specification: table/index/scalar/bitmap.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.writer import FileWriter
from lance_spark.indexes.files import IndexFiles, SegmentWriter, binary_values, read_columns
from lance_spark.indexes.order import matching, order_of, typed
from lance_spark.indexes.row_sets import Answer, RowSet, TooMany
from lance_spark.indexes.search import IndexSearch
from lance_spark.table.rows.u64_segments import UInt64Array

FILE = "bitmap_page_lookup.lance"
KEYS, BITMAPS = "keys", "bitmaps"
OPS = frozenset(
    {"==", "!=", "<", "<=", ">", ">=", "between", "in", "not_in", "is_null", "is_not_null"}
)
_STATISTICS = "lance:index_stats"
#: An index is not asked for more than one value in this number, if they are not few.
_SELECTIVE = 16
_FEW_KEYS = 64
#: Sets that are read before the others: if they have too many rows, the others are not read.
_FIRST_SETS = 8
#: Rows of a batch that is written.
_BATCH_ROWS = 4096


def search(files: IndexFiles, dtype: pa.DataType, op: str, value: Any, limit: int) -> Answer:
    """Return the row ids for which a comparison holds; see `search.Search`."""
    keys = cached_keys(files)
    if keys is None or keys.type != dtype:
        return None
    if op in ("is_null", "is_not_null"):
        matches = keys.is_null() if op == "is_null" else keys.is_valid()
    else:
        sides = typed(op, value, dtype)
        if sides is None:
            return None
        matches = matching(keys, op, sides)
    rows = np.flatnonzero(matches.fill_null(False).to_numpy(zero_copy_only=False))
    # Sets are read to be counted. A part of the values mostly has as large a part of the rows.
    if len(rows) > max(_FEW_KEYS, len(keys) // _SELECTIVE):
        return None
    sets: list[RowSet] = []
    for part in (rows[:_FIRST_SETS], rows[_FIRST_SETS:]):
        sets += read_sets(files, part)
        # Two values never have the same row.
        num_rows = sum(row_set.num_rows for row_set in sets)
        if num_rows > limit:
            return TooMany(num_rows)
    return RowSet.union(sets).row_keys()


def cached_keys(files: IndexFiles) -> pa.Array | None:
    """Return the distinct values of a segment; None if the file is missing."""
    return files.cached(FILE, read_keys, lambda keys: int(keys.nbytes))


def read_keys(files: IndexFiles) -> pa.Array:
    """Return the distinct values of a segment.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    with files.opened(FILE) as file:
        return read_columns(file, {KEYS: None}).column(0)


def read_sets(files: IndexFiles, rows: RowNumbers) -> Iterator[RowSet]:
    """Yield the sets of the values in some rows of the file, which increase.

    Raises CorruptFileError, UnsupportedFeatureError, StorageError.
    """
    for data, name in binary_values(files, FILE, BITMAPS, rows):
        yield RowSet.decode(data, name)


def write(segment: SegmentWriter, values: pa.Array, ids: UInt64Array) -> FileWriter:
    """Write the file of an index; return its writer, which the segment finishes.

    - `ids` (uint64 array): Row id or address of each value, increasing; equal for values of one
      row.
    """
    schema = schema_of(values.type)
    writer = segment.create(FILE, schema)
    is_float16 = pat.is_float16(values.type)
    # pyarrow 19 makes no dictionaries of float16.
    words = values.view(pa.uint16()) if is_float16 else values
    encoded = words.dictionary_encode(null_encoding="encode")
    keys = encoded.dictionary.view(values.type) if is_float16 else encoded.dictionary
    codes = encoded.indices.to_numpy()
    if len(keys) <= 1 << 16:
        # numpy sorts numbers of 16 bits several times as fast.
        codes = codes.astype(np.uint16)
    # A stable sort keeps the ids of each key in order.
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(keys) + 1))
    sorted_ids = ids[order]
    key_order = order_of(keys)
    for start in range(0, len(keys), _BATCH_ROWS):
        part = key_order[start : start + _BATCH_ROWS]
        sets = [
            RowSet.of(sorted_ids[bounds[key] : bounds[key + 1]]).encode() for key in part.tolist()
        ]
        columns = [keys.take(pa.array(part)), pa.array(sets, pa.binary())]
        writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
    set_statistics(writer, len(keys))
    return writer


def schema_of(dtype: pa.DataType) -> pa.Schema:
    """Return the schema of the file, given the type of the keys."""
    return pa.schema([pa.field(KEYS, dtype), pa.field(BITMAPS, pa.binary())])


def set_statistics(writer: FileWriter, num_keys: int) -> None:
    """Write the metadata of the file."""
    writer.set_metadata(_STATISTICS, json.dumps({"num_bitmaps": num_keys}, separators=(",", ":")))


SEARCH = IndexSearch(OPS, search, is_exact=True)
