"""Least and greatest value of a BTREE index, and how many nulls it has.

| file of the index | columns | content |
| --- | --- | --- |
| `page_data.lance` | values, ids (uint64) | a row for each row of the table, by value, nulls first |
| `page_lookup.lance` | min, max, null_count (uint32), page_idx (uint32) | a row for each page: `batch_size` rows of the other file |

`min` and `max` are the first and the last value of a page. So `min` is null where nulls and values share a page, and the values of such a
page are looked at. So are those of a page that begins with NaN of negative sign, which comes before all other values. An index whose schema says `range_partitioned` has
other files.

Specification: table/index/scalar/btree.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader, open_file
from lance_spark.proto import table_pb2
from lance_spark.scan.pruning.index_cache import all_rows, cached
from lance_spark.scan.pruning.min_max import min_max
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths

_KIND = "BTREE"
#: Versions of the index that are known.
_VERSIONS = (0, 1)
_LOOKUP_FILE, _DATA_FILE = "page_lookup.lance", "page_data.lance"
_LOOKUP_COLUMNS = ["min", "max", "null_count", "page_idx"]
_DATA_COLUMNS = ["values", "ids"]
_MAX_BATCH_SIZE = 1 << 24
_MAX_DIGITS = 20
#: Rows that are looked at of pages whose first value says nothing.
_MOST_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class BTreeBounds:
    """What a BTREE index has of its rows.

    Attributes
    ----------
    num_rows, null_count : int
    least, greatest : pa.Scalar
        Of the column's type, NaN greater than all; null if there are only nulls.
    """

    num_rows: int
    null_count: int
    least: pa.Scalar
    greatest: pa.Scalar


def is_btree(index: table_pb2.IndexMetadata) -> bool:
    """Tell whether a segment is a BTREE of a version that is known."""
    return indexes.is_of_column(index, _KIND, _VERSIONS)


def read_bounds(paths: TablePaths, index: table_pb2.IndexMetadata) -> BTreeBounds | None:
    """Return what a segment has of its rows; None if it is laid out in another way than this release knows.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    return cached(paths, index, _LOOKUP_FILE, _read, _size)


def _read(paths: TablePaths, base: int | None, folder: str) -> BTreeBounds | None:
    lookup = open_file(paths.open_index_file(f"{folder}/{_LOOKUP_FILE}", base))
    try:
        name, metadata = lookup.source.name, lookup.schema.metadata
        if (
            lookup.schema.names != _LOOKUP_COLUMNS
            or metadata.get("range_partitioned", b"false") != b"false"
        ):
            return None
        pages = lookup.read(lookup.schema.fields, all_rows(lookup))
    finally:
        lookup.close()
    batch_size = rows_of_page(metadata, name)
    data = open_file(paths.open_index_file(f"{folder}/{_DATA_FILE}", base))
    try:
        if data.schema.names != _DATA_COLUMNS:
            return None
        return _bounds(data, pages, batch_size, name)
    finally:
        data.close()


def rows_of_page(metadata: Mapping[str, bytes], name: str) -> int:
    """Return how many rows make a page.

    Parameters
    ----------
    metadata : mapping of str to bytes
        Of the schema of `page_lookup.lance`.
    name : str
        What errors call that file.

    Raises
    ------
    CorruptFileError
    """
    text = metadata.get("batch_size", b"")
    if len(text) > _MAX_DIGITS or not text.isdigit() or not 0 < int(text) <= _MAX_BATCH_SIZE:
        raise CorruptFileError(
            f"{name}: batch_size={text[:40]!r}, but a page has 1 to {_MAX_BATCH_SIZE} rows; rebuild the index"
        )
    return int(text)


def _bounds(
    data: DataFileReader, pages: list[pa.Array], batch_size: int, name: str
) -> BTreeBounds | None:
    low, high, counts, places = pages
    kind = low.type
    if any(one.null_count or not pat.is_integer(one.type) for one in (counts, places)):
        raise CorruptFileError(f"{name}: a page without a number or a count of nulls")
    nulls, place = (one.to_numpy().astype(np.int64) for one in (counts, places))
    first = place * batch_size
    rows = np.minimum(data.num_rows - first, batch_size)
    if (
        high.type != kind
        or (rows <= 0).any()
        or (nulls > rows).any()
        or rows.sum() != data.num_rows
    ):
        raise CorruptFileError(f"{name}: pages of {data.num_rows} rows are expected")
    unknown = low.is_null().to_numpy(zero_copy_only=False) & (nulls < rows) | _is_negative_nan(low)
    mixed = np.flatnonzero(unknown)
    if rows[mixed].sum() > _MOST_ROWS:
        return None
    values = data.schema.fields[0]
    if values.arrow_field.type != kind:
        return None
    found = [low, high]
    for at in mixed.tolist():
        start = int(first[at])
        (array,) = data.read([values], range(start, start + int(rows[at])))
        found.append(array)
    known = min_max(pa.chunked_array(found, kind))
    if known is None:
        return None
    return BTreeBounds(data.num_rows, int(nulls.sum()), *known)


def _is_negative_nan(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Tell which values are the NaN that comes before all others."""
    if not pat.is_floating(values.type):
        return np.zeros(len(values), np.bool_)
    numbers = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    found: npt.NDArray[np.bool_] = np.isnan(numbers) & np.signbit(numbers)
    return found


def _size(bounds: BTreeBounds | None) -> int:
    if bounds is None:
        return 64
    ends = [pa.array([one], one.type) for one in (bounds.least, bounds.greatest)]
    return 256 + sum(int(array.nbytes) for array in ends)
