"""The minimum, maximum and null count of the rows in a BTREE index.

| file of the index | columns | content |
| --- | --- | --- |
| `page_data.lance` | values, ids (uint64) | a row for each row of the table, sorted, nulls first |
| `page_lookup.lance` | min, max, null_count, page_idx (uint32) | a row for each page |

A page is `batch_size` rows of `page_data.lance`; `batch_size` is in the schema metadata of
`page_lookup.lance`. `min` and `max` are the first and the last value of a page. So `min` is null if
nulls and values share a page; the values of such a page are read. So are the values of a page that
begins with a NaN of negative sign, which sorts before all other values. An index whose schema says
`range_partitioned` has other files.

Minimum and maximum are in Spark's order: NaN is the greatest value, and nulls are skipped.

Specification: table/index/scalar/btree.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader, open_file
from lance_spark.proto import table_pb2
from lance_spark.scan.pruning.index_cache import all_rows, cached
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths

_KIND = "BTREE"
#: Supported versions of the index.
_VERSIONS = (0, 1)
_LOOKUP_FILE, _DATA_FILE = "page_lookup.lance", "page_data.lance"
_LOOKUP_COLUMNS = ["min", "max", "null_count", "page_idx"]
_DATA_COLUMNS = ["values", "ids"]
_MAX_BATCH_SIZE = 1 << 24
_MAX_DIGITS = 20
#: Most rows that are read of pages whose first value is not their minimum.
_MAX_ROWS = 1 << 18
_ORDERED = (
    pat.is_integer,
    pat.is_float32,
    pat.is_float64,
    pat.is_decimal,
    pat.is_boolean,
    pat.is_date,
    pat.is_time,
    pat.is_timestamp,
    pat.is_string,
    pat.is_large_string,
    pat.is_binary,
    pat.is_large_binary,
    pat.is_fixed_size_binary,
)


@dataclass(frozen=True, slots=True)
class BTreeBounds:
    """Statistics of the rows in a BTREE index.

    Attributes
    ----------
    num_rows, null_count : int
    minimum, maximum : pa.Scalar
        Of the column's type; NaN is the greatest value. Null if all values are null.
    """

    num_rows: int
    null_count: int
    minimum: pa.Scalar
    maximum: pa.Scalar


def is_btree(index: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment is a BTREE of a supported version."""
    return indexes.is_single_column_index(index, _KIND, _VERSIONS)


def read_bounds(paths: TablePaths, index: table_pb2.IndexMetadata) -> BTreeBounds | None:
    """Return the statistics of a segment; None if this release does not know its layout.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    return cached(paths, index, _LOOKUP_FILE, _read, _size)


def _read(paths: TablePaths, base: int | None, folder: str) -> BTreeBounds | None:
    with closing(open_file(paths.open_index_file(f"{folder}/{_LOOKUP_FILE}", base))) as lookup:
        name, metadata = lookup.source.name, lookup.schema.metadata
        if (
            lookup.schema.names != _LOOKUP_COLUMNS
            or metadata.get("range_partitioned", b"false") != b"false"
        ):
            return None
        pages = lookup.read(lookup.schema.fields, all_rows(lookup))
    batch_size = rows_of_page(metadata, name)
    with closing(open_file(paths.open_index_file(f"{folder}/{_DATA_FILE}", base))) as data:
        if data.schema.names != _DATA_COLUMNS:
            return None
        return _bounds(data, pages, batch_size, name)


def rows_of_page(metadata: Mapping[str, bytes], name: str) -> int:
    """Return the rows of a page, from the schema metadata of `page_lookup.lance`.

    Parameters
    ----------
    metadata : mapping of str to bytes
    name : str
        What errors call the file.

    Raises
    ------
    CorruptFileError
    """
    text = metadata.get("batch_size", b"")
    if len(text) > _MAX_DIGITS or not text.isdigit() or not 0 < int(text) <= _MAX_BATCH_SIZE:
        raise CorruptFileError(
            f"{name}: batch_size={text[:40]!r}, but a page has 1 to {_MAX_BATCH_SIZE} rows; "
            "rebuild the index"
        )
    return int(text)


def _bounds(
    data: DataFileReader, pages: list[pa.Array], batch_size: int, name: str
) -> BTreeBounds | None:
    low, high, *integers = pages
    dtype = low.type
    if any(array.null_count or not pat.is_integer(array.type) for array in integers):
        raise CorruptFileError(
            f"{name}: null_count and page_idx must be integers and not null; rebuild the index"
        )
    nulls, page = (array.to_numpy().astype(np.int64) for array in integers)
    first = page * batch_size
    rows = np.minimum(data.num_rows - first, batch_size)
    if (
        high.type != dtype
        or (rows <= 0).any()
        or (nulls > rows).any()
        or rows.sum() != data.num_rows
    ):
        raise CorruptFileError(
            f"{name}: its pages do not match the {data.num_rows} rows of {_DATA_FILE}; rebuild the "
            "index"
        )
    # Pages that have values, but whose first value is null or a NaN of negative sign.
    unknown = low.is_null().to_numpy(zero_copy_only=False) & (nulls < rows) | _is_negative_nan(low)
    mixed = np.flatnonzero(unknown)
    if rows[mixed].sum() > _MAX_ROWS:
        return None
    values = data.schema.fields[0]
    if values.arrow_field.type != dtype:
        return None
    arrays = [low, high]
    for index in mixed.tolist():
        start = int(first[index])
        (array,) = data.read([values], range(start, start + int(rows[index])))
        arrays.append(array)
    bounds = min_max(pa.chunked_array(arrays, dtype))
    if bounds is None:
        return None
    return BTreeBounds(data.num_rows, int(nulls.sum()), *bounds)


def _is_negative_nan(values: pa.Array) -> npt.NDArray[np.bool_]:
    if not pat.is_floating(values.type):
        return np.zeros(len(values), np.bool_)
    numbers = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    is_negative: npt.NDArray[np.bool_] = np.isnan(numbers) & np.signbit(numbers)
    return is_negative


def _size(bounds: BTreeBounds | None) -> int:
    if bounds is None:
        return 64
    arrays = [pa.array([value], value.type) for value in (bounds.minimum, bounds.maximum)]
    return 256 + sum(int(array.nbytes) for array in arrays)


def is_ordered(dtype: pa.DataType) -> bool:
    """Return whether `min_max` supports a type. It does not support float16 and nested types."""
    return any(test(dtype) for test in _ORDERED)


def min_max(values: pa.ChunkedArray) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return the minimum and the maximum, both null if all values are null.

    Returns None if the type is not ordered.
    """
    import pyarrow.compute as pc

    dtype = values.type
    if not is_ordered(dtype):
        return None
    # The kernel skips NaN if there are other values.
    bounds = pc.min_max(values)
    low, high = bounds["min"], bounds["max"]
    if pat.is_floating(dtype) and pc.any(pc.is_nan(values)).as_py():
        high = pa.scalar(math.nan, dtype)
        numbers = values.filter(pc.invert(pc.is_nan(values)))
        low = pc.min_max(numbers)["min"]
        if not low.is_valid:
            low = high
    return low, high


def is_less(left: pa.Scalar, right: pa.Scalar) -> bool:
    """Return whether `left` is less than `right`. Both have one type, and neither is null."""
    import pyarrow.compute as pc

    if pat.is_floating(left.type):
        if math.isnan(left.as_py()):
            return False
        if math.isnan(right.as_py()):
            return True
    return bool(pc.less(left, right).as_py())
