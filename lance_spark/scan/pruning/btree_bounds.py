"""The minimum, maximum and null count of the rows in a BTREE index.

They come from the pages of the index (`lance_spark.scan.indexes.btree`). The first value of a page
is not its minimum if nulls and values share the page, or if it is a NaN of negative sign. The
values of such a page are read.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.btree import DATA_FILE, VALUES, cached_pages, open_data
from lance_spark.scan.indexes.files import IndexFiles, named
from lance_spark.scan.pruning.bounds import Bounds, min_max
from lance_spark.table.paths import TablePaths

#: Most rows that are read of pages whose first value is not their minimum.
_MAX_ROWS = 1 << 18


def read_bounds(paths: TablePaths, index: table_pb2.IndexMetadata) -> Bounds | None:
    """Return the statistics of a segment; None if this release does not know its layout.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    return IndexFiles(paths, index).cached(DATA_FILE, _read, _size)


def _read(files: IndexFiles) -> Bounds | None:
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
    return Bounds(pages.num_rows, int(pages.nulls.sum()), *bounds)


def _is_negative_nan(values: pa.Array) -> npt.NDArray[np.bool_]:
    if not pat.is_floating(values.type):
        return np.zeros(len(values), np.bool_)
    numbers = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    is_negative: npt.NDArray[np.bool_] = np.isnan(numbers) & np.signbit(numbers)
    return is_negative


def _size(bounds: Bounds | None) -> int:
    if bounds is None:
        return 64
    arrays = [pa.array([value], value.type) for value in (bounds.minimum, bounds.maximum)]
    return 256 + sum(int(array.nbytes) for array in arrays)
