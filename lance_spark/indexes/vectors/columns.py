"""Columns of vectors, and their values as matrices.

| type of the items | measured as |
| --- | --- |
| float16, bfloat16, float32, int8 | float32 |
| float64 | float64 |
| uint8 | bits with `hamming`; float32 with other metrics |

A value is one vector: a fixed-size list. A value of a column of *multivectors* is a list of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.types import BFLOAT16

# --------------------------------------------------------------------------------------------------
# How the distance of two vectors is measured.
#
# | metric | distance | rows without a distance |
# | --- | --- | --- |
# | `l2` | sum of the squares of the differences | null vectors, vectors with NaN |
# | `cosine` | 1 - cosine of the angle | the same, and vectors of length 0 |
# | `dot` | 1 - sum of the products | as `l2` |
# | `hamming` | number of different bits | null vectors |

#: Names of the parameter: of pylance, of its searches, and of the index files and LanceDB.
METRIC_KEYS = ("metric", "distance_type", "metric_type")
#: Other names of metrics.
_ALIASES = {"euclidean": "l2"}


class Metric(Enum):
    """How the distance of two vectors is measured. Values are the names in index files."""

    L2 = "l2"
    COSINE = "cosine"
    DOT = "dot"
    HAMMING = "hamming"


def parse_metric(name: object) -> Metric:
    """Return the metric of a name, in any case.

    Raises InvalidInputError: no metric has the name.
    """
    lower = name.lower() if isinstance(name, str) else ""
    try:
        return Metric(_ALIASES.get(lower, lower))
    except ValueError:
        names = ", ".join(metric.value for metric in Metric)
        raise InvalidInputError(f"metric must be one of {names}, not {name!r}") from None


def given_metric(parameters: Mapping[str, Any]) -> Metric | None:
    """Return the metric that parameters name by one of `METRIC_KEYS`; None if none does.

    Raises InvalidInputError: no metric has the name, or two names differ.
    """
    names = [parameters[key] for key in METRIC_KEYS if parameters.get(key) is not None]
    metrics = {parse_metric(name) for name in names}
    if len(metrics) > 1:
        raise InvalidInputError(
            f"{', '.join(METRIC_KEYS)} are names of one parameter: give one metric"
        )
    return metrics.pop() if metrics else None


# --------------------------------------------------------------------------------------------------
# The partitions of a vector index (inverted file): each vector is in one of them.
#
# A partition has a centroid. A vector is in the partition of the centroid that is nearest to it;
# with `dot`, of the centroid that has the greatest product with it. With `cosine`, vectors and
# centroids have the length 1.

#: Vectors in the rows of a matrix; float16, float32, float64 or uint8.
Vectors = npt.NDArray[Any]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ivf:
    """The partitions of one segment.

    - `centroids` (array of shape (partitions, dimension)): In the type of the column.
    - `offsets`, `lengths` (int64 arrays): First row, and number of rows, of each partition in the
      file of codes.
    - `loss`: Sum of the distances of vectors from their centroids.
    """

    centroids: Vectors
    offsets: Int64Array
    lengths: Int64Array
    loss: float | None = None

    @classmethod
    def without_rows(cls, centroids: Vectors) -> Ivf:
        """Return partitions that have no rows yet."""
        zeros = np.zeros(len(centroids), np.int64)
        return cls(centroids, zeros, zeros)

    @property
    def num_partitions(self) -> int:
        """Number of partitions, empty ones included."""
        return len(self.lengths)


# --------------------------------------------------------------------------------------------------
# Columns of vectors, and their values as matrices.

#: Types of items by their names, and the types in which numpy has them.
_ITEMS: dict[str, type[np.generic]] = {
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "int8": np.int8,
    "uint8": np.uint8,
    "bfloat16": np.uint16,
}


@dataclass(frozen=True, slots=True)
class VectorType:
    """The type of a column of vectors.

    - `items`: The type of the items: `float16`, `bfloat16`, `float32`, `float64`, `int8` or
      `uint8`.
    - `is_multi`: Whether a value is a list of vectors.
    """

    items: str
    dimension: int
    is_multi: bool = False

    @classmethod
    def of(cls, path: Sequence[Field]) -> VectorType:
        """Return the type of a column.

        - `path`: The fields from the top-level field to the column.

        Raises InvalidInputError: the column has no vectors.
        """
        dtype = path[-1].to_arrow().type
        is_multi = pat.is_list(dtype) or pat.is_large_list(dtype)
        vector = dtype.value_type if is_multi else dtype
        items = _items(vector)
        if items is None or not vector.list_size:
            name = ".".join(node.name for node in path)
            raise InvalidInputError(
                f"column {name!r} of type {dtype} has no vectors: a vector is a fixed-size list of "
                f"{', '.join(_ITEMS)}"
            )
        return cls(items, vector.list_size, is_multi)

    @property
    def default_metric(self) -> Metric:
        """The metric without an index, if a query names none."""
        return Metric.HAMMING if self.items == "uint8" else Metric.L2

    @property
    def stored_bytes(self) -> int:
        """Bytes of a vector."""
        return self.dimension * np.dtype(_ITEMS[self.items]).itemsize

    def check_metric(self, metric: Metric) -> None:
        """Check that vectors of this type can be measured.

        Raises InvalidInputError.
        """
        if metric is Metric.HAMMING and self.items != "uint8":
            raise InvalidInputError(
                f"metric hamming needs vectors of uint8, not {self.items}; use l2, cosine or dot"
            )

    def query(self, vectors: Vectors, metric: Metric) -> Vectors:
        """Return query vectors as they are measured: rounded to the precision of the column.

        Raises InvalidInputError: they have another dimension, or are not of bytes.
        """
        if vectors.shape[1] != self.dimension:
            raise InvalidInputError(
                f"q must have {self.dimension} items, as the vectors of the column, not "
                f"{vectors.shape[1]}"
            )
        if metric is Metric.HAMMING:
            return _as_bytes(vectors)
        if self.items == "float64":
            return vectors.astype(np.float64)
        if self.items == "float16":
            with np.errstate(over="ignore"):
                vectors = vectors.astype(np.float16)
        return vectors.astype(np.float32)


@dataclass(frozen=True, slots=True)
class ColumnVectors:
    """The vectors of some rows.

    - `values` (array of shape (vectors, dimension)): In the type of the file. bfloat16 is there as
      uint16.
    - `missing` (bool array or None): Rows without a vector, or with a null item; None if there is
      none.
    - `starts` (int64 array or None): For multivectors, the first vector of each row, and the number
      of vectors.
    """

    values: Vectors
    missing: npt.NDArray[np.bool_] | None = None
    starts: Int64Array | None = None

    @classmethod
    def of(cls, array: pa.Array, dtype: VectorType) -> ColumnVectors:
        """Return the vectors of a column of this type."""
        if not dtype.is_multi:
            values, missing = _matrix(array, dtype)
            return cls(values, missing)
        ends = array.offsets.to_numpy().astype(np.int64)
        inner = array.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
        values, missing_vectors = _matrix(inner, dtype)
        starts = ends - ends[0]
        empty = np.diff(starts) == 0
        if array.null_count:
            empty |= array.is_null().to_numpy(zero_copy_only=False)
        if missing_vectors is not None:
            count = np.concatenate([[0], np.cumsum(missing_vectors)])
            empty |= np.diff(count[starts]) > 0
        return cls(values, empty if empty.any() else None, starts)

    def floats(self, rows: slice) -> Vectors:
        """Return some vectors as float32, or float64 if the file has these."""
        return as_floats(self.values[rows])


def as_floats(values: Vectors) -> Vectors:
    """Return vectors of a column as float32, or float64 if it has these."""
    if values.dtype in (np.float32, np.float64):
        return values
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32)


def _items(vector: pa.DataType) -> str | None:
    """Return the name of the type of the items of a vector; None for other types."""
    if not pat.is_fixed_size_list(vector):
        return None
    item = vector.value_type
    name = getattr(item, "extension_name", None) or vector.value_field.metadata
    if name == BFLOAT16 or (
        isinstance(name, dict) and name.get(b"ARROW:extension:name") == BFLOAT16.encode()
    ):
        return "bfloat16"
    names = {"halffloat": "float16", "float": "float32", "double": "float64"}
    text = names.get(str(item), str(item))
    return text if text in _ITEMS and text != "bfloat16" else None


def _matrix(array: pa.Array, dtype: VectorType) -> tuple[Vectors, npt.NDArray[np.bool_] | None]:
    """Return vectors without copying them, and which are null or have a null item."""
    size = dtype.dimension
    items = array.values.slice(array.offset * size, len(array) * size)
    if isinstance(items, pa.ExtensionArray):
        items = items.storage
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if items.null_count:
        nulls = items.is_null().to_numpy(zero_copy_only=False).reshape(-1, size).any(axis=1)
        missing = nulls if missing is None else missing | nulls
    data = items.buffers()[1]
    numpy_type = np.dtype(_ITEMS[dtype.items])
    if data is None:
        return np.empty((len(array), size), numpy_type), missing
    if items.type.bit_width != numpy_type.itemsize * 8:
        raise UnsupportedTypeError(f"vectors of {items.type} cannot be measured")
    values = np.frombuffer(data, numpy_type, len(items), items.offset * numpy_type.itemsize)
    return values.reshape(-1, size), missing


def _as_bytes(vectors: Vectors) -> npt.NDArray[np.uint8]:
    with np.errstate(invalid="ignore"):
        result: npt.NDArray[Any] = vectors.astype(np.uint8)
    if not np.array_equal(result.astype(np.float64), vectors.astype(np.float64)):
        raise InvalidInputError("q must have whole numbers from 0 to 255 for vectors of uint8")
    return result
