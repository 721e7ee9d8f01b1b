"""What a type of index has that answers filters.

`lance_spark.indexes.registry` says where the searches of each type are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers, RowRanges
from lance_spark.file.schema.field import Field
from lance_spark.indexes import registry
from lance_spark.indexes.files import IndexFiles
from lance_spark.indexes.row_sets import Answer
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths


class SearchSegment(Protocol):
    """Searches a segment."""

    def __call__(
        self, files: IndexFiles, dtype: pa.DataType, op: str, value: Any, limit: int, /
    ) -> Answer:
        """Return the row ids or addresses of the rows for which a comparison holds.

        - `dtype`: Type of the column.
        - `op`, `value`: As of a `conditions.RangePruner`.
        - `limit`: The most rows of an answer that is worth its cost.

        Returns all rows in the segment for which the comparison holds, and maybe others; `TooMany`
        if they are more than the limit; None if the index does not decide.
        """


@dataclass(frozen=True, slots=True)
class IndexSearch:
    """The search of a type of index that finds rows.

    - `ops`: Comparisons that it answers.
    - `is_exact`: Whether an answer has no other rows than those for which the comparison holds.
    """

    ops: Collection[str]
    search: SearchSegment
    is_exact: bool = False


class ZonesOfColumn(Protocol):
    """The zones of one column, which together hold all rows of a table."""

    def candidates(self, op: str, value: Any) -> RowRanges | None:
        """Return the rows for which a comparison can hold; None if unknown."""


class ReadZonesOfColumn(Protocol):
    """Reads the zones of one column."""

    def __call__(
        self,
        paths: TablePaths,
        fragments: Sequence[Fragment],
        starts: RowNumbers,
        path: tuple[Field, ...],
        segments: Sequence[table_pb2.IndexMetadata],
        /,
    ) -> ZonesOfColumn | None:
        """Return the zones of a column; None if no segment has usable zones.

        A segment that is damaged is left out with a warning.

        - `fragments`: Of the version.
        - `starts` (int64 array): The result of `table_rows.starts_of` for the fragments.
        - `path`: The fields from the top-level field to the column.
        - `segments`: The segments of the column.

        Raises CorruptTableError, CorruptFileError, StorageError: a deletion file is damaged or
        missing.
        """


class HasValuesOf(Protocol):
    """Tells whether the values of a segment have a type."""

    def __call__(self, files: IndexFiles, dtype: pa.DataType, /) -> bool:
        """Return whether the file of a segment says that its values have a type.

        Raises CorruptFileError, StorageError.
        """


@dataclass(frozen=True, slots=True)
class ZoneSearch:
    """The search of a type of index that describes zones.

    - `ops`: Comparisons that it answers.
    - `has_values_of`: None if the zones of another type than the column's are not usable, so that
      nobody asks.
    """

    ops: Collection[str]
    read: ReadZonesOfColumn
    has_values_of: HasValuesOf | None = None


@dataclass(frozen=True, slots=True)
class DocumentTarget:
    """What a segment of an index of values in documents has.

    - `path`: The path of the values.
    - `segment`: The segment as one of the type of its files.
    """

    path: str
    segment: table_pb2.IndexMetadata

    @property
    def type_name(self) -> str:
        """The type of the files, such as ``BTREE``."""
        return indexes.type_of_index(self.segment)


class TargetOf(Protocol):
    """Describes a segment of an index of values in documents."""

    def __call__(self, segment: table_pb2.IndexMetadata, /) -> DocumentTarget:
        """Return the path of the values, and the segment as one of the type of its files.

        Raises CorruptFileError: the details cannot be parsed.
        """


class SearchedTarget(Protocol):
    """Chooses a segment of an index of values in documents."""

    def __call__(
        self, segment: table_pb2.IndexMetadata, keys: Sequence[Any], /
    ) -> table_pb2.IndexMetadata | None:
        """Return a segment as one of its target, if it has the values that keys find; else None.

        Raises CorruptFileError.
        """


class Extract(Protocol):
    """Finds the values at a path of documents."""

    def __call__(self, documents: pa.Array, path: str, /) -> pa.Array:
        """Return the values at a path.

        - `documents`: JSONB (large_binary), or JSON texts.

        Raises CorruptFileError: a document is damaged. Raises InvalidInputError: a value is an
        array or object, or the values have different types. Raises UnsupportedFeatureError: the
        path has something that only other clients support.
        """


@dataclass(frozen=True, slots=True)
class DocumentIndex:
    """A type of index of the values at a path of documents, with files of another type."""

    target_of: TargetOf
    searched_target: SearchedTarget
    extracted: Extract


def search_of(type_name: str) -> IndexSearch | None:
    """Return the search of a type; None if it finds no rows."""
    search: IndexSearch | None = registry.part_of(type_name, "search")
    return search


def zones_of(type_name: str) -> ZoneSearch | None:
    """Return the search of a type that describes zones; None if it does not."""
    search: ZoneSearch | None = registry.part_of(type_name, "zones")
    return search


def documents_of(type_name: str) -> DocumentIndex | None:
    """Return how to find values in documents; None if the type has no such values."""
    documents: DocumentIndex | None = registry.part_of(type_name, "documents")
    return documents


# --------------------------------------------------------------------------------------------------
# Bounds and counts of columns, as indexes have them.
#
# Minimum and maximum are in Spark's order: NaN is the greatest value, and nulls are skipped.

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

    - `minimum`, `maximum`: Of the column's type; NaN is the greatest value. Null if all values are
      null.
    """

    num_rows: int
    null_count: int
    minimum: pa.Scalar
    maximum: pa.Scalar


class ReadBounds(Protocol):
    """Reads the statistics of a segment that has each row."""

    def __call__(self, paths: TablePaths, index: table_pb2.IndexMetadata, /) -> Bounds | None:
        """Return the statistics of a segment; None if this release does not know its layout.

        Raises CorruptTableError, CorruptFileError, StorageError.
        """


@dataclass(frozen=True, slots=True, eq=False)
class ZoneStatistics:
    """Statistics of one column by zone. The zones together hold all rows of the table.

    - `bounds` (int64 array): First row of each zone, and the number of all rows.
    - `has_bounds` (bool array): Whether the zone has statistics.
    - `minimum`, `maximum`: Of the column's type. Null if unknown.
    - `comparable` (bool array): Whether there may be values other than null and NaN.
    - `null_count`, `nan_count` (int64 array): Of the rows that were live when the index was built.
    - `only_nulls`: Bool array.
    - `counted` (bool array): Whether `null_count` is exact if it is not 0.
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

        Raises CorruptTableError, CorruptFileError, StorageError.
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
