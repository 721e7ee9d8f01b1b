"""Bounds and counts of columns, as indexes have them.

Minimum and maximum are in Spark's order: NaN is the greatest value, and nulls are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.schema.field import Field
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths

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
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Statistics of the rows in a segment.

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


class ReadBounds(Protocol):
    """Reads the statistics of a segment that has each row."""

    def __call__(self, paths: TablePaths, index: table_pb2.IndexMetadata, /) -> Bounds | None:
        """Return the statistics of a segment; None if this release does not know its layout.

        Raises
        ------
        CorruptTableError, CorruptFileError, StorageError
        """


@dataclass(frozen=True, slots=True, eq=False)
class ZoneStatistics:
    """Statistics of one column by zone. The zones together hold all rows of the table.

    Attributes
    ----------
    bounds : int64 array
        First row of each zone, and the number of all rows.
    has_bounds : bool array
        Whether the zone has statistics.
    minimum, maximum : pa.Array
        Of the column's type. Null if unknown.
    comparable : bool array
        Whether there may be values other than null and NaN.
    null_count, nan_count : int64 array
        Of the rows that were live when the index was built.
    only_nulls : bool array
    counted : bool array
        Whether `null_count` is exact if it is not 0.
    """

    bounds: RowNumbers
    has_bounds: _Flags
    minimum: pa.Array
    maximum: pa.Array
    comparable: _Flags
    null_count: RowNumbers
    nan_count: RowNumbers
    only_nulls: _Flags
    counted: _Flags


class ReadZones(Protocol):
    """Reads the statistics of the zones of a column."""

    def __call__(
        self,
        paths: TablePaths,
        fragments: Sequence[Fragment],
        starts: RowNumbers,
        path: tuple[Field, ...],
        segments: Sequence[table_pb2.IndexMetadata],
        /,
    ) -> ZoneStatistics | None:
        """Return the zones of a column; see `scan.indexes.search.ReadZonesOfColumn`."""


class HeldFragments(Protocol):
    """Reads of which fragments a segment has row addresses."""

    def __call__(self, files: IndexFiles, /) -> BitMap | None:
        """Return the fragments of the addresses of a segment; None if it cannot be read.

        Raises
        ------
        CorruptTableError, CorruptFileError, StorageError
        """


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
