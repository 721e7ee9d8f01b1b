"""The minimum, maximum and null count of the rows in a BTREE index.

They come from the pages of the index (`lance_spark.scan.indexes.btree`). The first value of a page
is not its minimum if nulls and values share the page, or if it is a NaN of negative sign. The
values of such a page are read.

Minimum and maximum are in Spark's order: NaN is the greatest value, and nulls are skipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.btree import DATA_FILE, VALUES, cached_pages, open_data
from lance_spark.scan.indexes.files import IndexFiles, named
from lance_spark.table.paths import TablePaths

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


def read_bounds(paths: TablePaths, index: table_pb2.IndexMetadata) -> BTreeBounds | None:
    """Return the statistics of a segment; None if this release does not know its layout.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    return IndexFiles(paths, index).cached(DATA_FILE, _read, _size)


def _read(files: IndexFiles) -> BTreeBounds | None:
    pages = cached_pages(files)
    if pages is None:
        return None
    low, high, rows = pages.low, pages.high, np.diff(pages.bounds)
    # Pages that have values, but whose first value is null or a NaN of negative sign.
    is_null = low.is_null().to_numpy(zero_copy_only=False)
    mixed = np.flatnonzero(is_null & (pages.nulls < rows) | _is_negative_nan(low))
    if rows[mixed].sum() > _MAX_ROWS:
        return None
    arrays = [low, high]
    if len(mixed):
        with open_data(files, pages.files) as data:
            values = named(data, VALUES, low.type)
            for index in mixed.tolist():
                arrays += data.read([values], range(*pages.bounds[index : index + 2].tolist()))
    bounds = min_max(pa.chunked_array(arrays, low.type))
    if bounds is None:
        return None
    return BTreeBounds(pages.num_rows, int(pages.nulls.sum()), *bounds)


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
