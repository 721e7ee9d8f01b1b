"""What a vector search asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.indexes.vectors.columns import METRIC_KEYS, Metric, Vectors, given_metric

_DEFAULT_K = 10
#: The key of each number, and the least value.
_NUMBERS = {
    "k": 1,
    "nprobes": 1,
    "minimum_nprobes": 1,
    "maximum_nprobes": 1,
    "refine_factor": 1,
    "ef": 1,
    "query_parallelism": -1,
}
_OTHERS = (
    "column",
    "q",
    *METRIC_KEYS,
    "use_index",
    "approx_mode",
    "distance_range",
    "search_effort",
)
_MODES = ("fast", "normal", "accurate")


@dataclass(frozen=True, slots=True)
class NearestQuery:
    """Queries of one search, as `nearest` of `Dataset.to_table` gives them. Can be pickled.

    - `column`: Dotted path of a column of vectors.
    - `vectors` (array of shape (queries, dimension)): float16, float32 or float64. For a column of
      multivectors, the vectors of one query.
    - `k`: Most rows for each query.
    - `is_batch`: Whether there are several queries: rows have the column `query_index`.
    - `metric`: None for that of the index, or `l2` without an index.
    - `minimum_nprobes`: Least number of partitions that are searched in each segment.
    - `maximum_nprobes`: Most partitions; None for all, if fewer have less than `k` rows.
    - `refine_factor`: If set, `k` times as many rows are found by their codes, and measured by
      their vectors.
    - `ef`: Rows that a graph search keeps; `k` and half of it by default.
    - `search_effort`: Part of the partitions that are searched at first, in place of their number:
      0 for the least number, 0.5 for the number by default, 1 for all.
    - `lower_bound`, `upper_bound`: Only rows with `lower_bound` <= `_distance` < `upper_bound`.
    """

    column: str
    vectors: Vectors
    k: int = 10
    is_batch: bool = False
    metric: Metric | None = None
    minimum_nprobes: int = 1
    maximum_nprobes: int | None = None
    refine_factor: int | None = None
    ef: int | None = None
    search_effort: float | None = None
    use_index: bool = True
    lower_bound: float | None = None
    upper_bound: float | None = None

    @property
    def num_queries(self) -> int:
        """Number of queries, if the column has no multivectors."""
        return len(self.vectors)


def parse_nearest(nearest: Mapping[str, Any]) -> NearestQuery:
    """Return the query of the parameter `nearest`, with the keys of pylance.

    Parameters
    ----------
    nearest : mapping
        `column` and `q` are required. `distance_type` and `metric_type` are other names of
        `metric`. `approx_mode` and `query_parallelism` are checked; they do not change the rows.

    Raises
    ------
    InvalidInputError
        A key is unknown or missing, or its value is not valid.

    Examples
    --------
    >>> query = parse_nearest({"column": "v", "q": [0.5, 1.0], "k": 3, "nprobes": 8})
    >>> query.k, query.minimum_nprobes, query.maximum_nprobes
    (3, 8, 8)
    """
    if not isinstance(nearest, Mapping):
        raise InvalidInputError(f"nearest must be a mapping, not {type(nearest).__name__}")
    unknown = nearest.keys() - _NUMBERS.keys() - set(_OTHERS)
    if unknown:
        names = ", ".join(sorted({*_NUMBERS, *_OTHERS}))
        raise InvalidInputError(f"nearest has the unknown key {min(unknown)!r}; known are {names}")
    for key in ("column", "q"):
        if nearest.get(key) is None:
            raise InvalidInputError(f"nearest must have the key {key!r}")
    column = nearest["column"]
    if not isinstance(column, str):
        raise InvalidInputError(f"column must be a name, not {type(column).__name__}")
    numbers = {key: _number(nearest, key, least) for key, least in _NUMBERS.items()}
    effort = _effort(nearest.get("search_effort"))
    minimum, maximum = numbers["minimum_nprobes"], numbers["maximum_nprobes"]
    if numbers["nprobes"] is not None and effort is None:
        minimum = numbers["nprobes"] if minimum is None else minimum
        maximum = numbers["nprobes"] if maximum is None else maximum
    minimum = 1 if minimum is None else minimum
    if maximum is not None and minimum > maximum:
        raise InvalidInputError(
            f"minimum_nprobes ({minimum}) must not be more than maximum_nprobes ({maximum})"
        )
    mode = nearest.get("approx_mode")
    if mode is not None and mode not in _MODES:
        raise InvalidInputError(f"approx_mode must be one of {', '.join(_MODES)}, not {mode!r}")
    use_index = nearest.get("use_index")
    if use_index is not None and not isinstance(use_index, bool):
        raise InvalidInputError(f"use_index must be True or False, not {use_index!r}")
    lower, upper = _bounds(nearest.get("distance_range"))
    vectors = query_vectors(nearest["q"])
    return NearestQuery(
        column=column,
        vectors=np.atleast_2d(vectors),
        k=_DEFAULT_K if numbers["k"] is None else numbers["k"],
        is_batch=vectors.ndim == 2,
        metric=given_metric(nearest),
        minimum_nprobes=minimum,
        maximum_nprobes=maximum,
        refine_factor=numbers["refine_factor"],
        ef=numbers["ef"],
        search_effort=effort,
        use_index=use_index is not False,
        lower_bound=lower,
        upper_bound=upper,
    )


def query_vectors(data: Any) -> Vectors:
    """Return one vector, or several ones, that a caller passed, as floats.

    Lists and numpy arrays become float32, as in pylance. Arrow arrays keep the type of their
    floats.

    Raises InvalidInputError: they are not numbers, or not of one length.
    """
    if isinstance(data, pa.Scalar):
        data = data.value if isinstance(data, pa.ExtensionScalar) else data
        data = getattr(data, "values", None)
    if isinstance(data, pa.ChunkedArray):
        data = data.combine_chunks()
    try:
        vectors = _of_arrow(data) if isinstance(data, pa.Array) else _of_lists(data)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"q must be a vector of numbers, or vectors of one length: {error}"
        ) from None
    if vectors.ndim not in (1, 2) or not vectors.size:
        raise InvalidInputError(
            f"q must be a vector, or a list of vectors, not an array of shape {vectors.shape}"
        )
    return vectors


def _of_lists(data: Any) -> Vectors:
    if isinstance(data, list | tuple) and data and isinstance(data[0], pa.Array):
        return np.stack([_of_arrow(vector) for vector in data])
    array = np.asarray(data)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"they are of type {array.dtype}")
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _of_arrow(array: pa.Array) -> Vectors:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    shape: tuple[int, ...] = (-1,)
    while pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type):
        shape = (len(array), -1)
        array = array.flatten()
    if array.null_count:
        raise ValueError("an item is null")
    values: Vectors = array.to_numpy(zero_copy_only=False).reshape(shape)
    if values.dtype.kind == "f":
        return values
    return _of_lists(values)


def _number(nearest: Mapping[str, Any], key: str, least: int) -> int | None:
    value = nearest.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidInputError(f"{key} must be a whole number, not {value!r}")
    if value < least:
        raise InvalidInputError(f"{key} must be at least {least}, not {value}")
    return int(value)


def _effort(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise InvalidInputError(f"search_effort must be a number, not {value!r}")
    if not 0 <= value <= 1:
        raise InvalidInputError(f"search_effort must be from 0 to 1, not {value}")
    return float(value)


def _bounds(value: Any) -> tuple[float | None, float | None]:
    if value is None:
        return None, None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InvalidInputError("distance_range must be a pair: lower and upper bound, or None")
    for bound in value:
        is_number = isinstance(bound, int | float | np.number) and not isinstance(bound, bool)
        if bound is not None and not is_number:
            raise InvalidInputError(f"a bound of distance_range must be a number, not {bound!r}")
    lower, upper = value
    return None if lower is None else float(lower), None if upper is None else float(upper)
