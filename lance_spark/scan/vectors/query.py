"""What a vector search asks for."""

from __future__ import annotations

from dataclasses import dataclass

from lance_spark.scan.vectors.ivf import Vectors
from lance_spark.scan.vectors.metric import Metric


@dataclass(frozen=True, slots=True)
class NearestQuery:
    """Queries of one search, as `nearest` of `Dataset.to_table` gives them. Can be pickled.

    Attributes
    ----------
    column : str
        Dotted path of a column of vectors.
    vectors : array of shape (queries, dimension)
        For a column of multivectors, the vectors of one query.
    k : int
        Most rows for each query.
    is_batch : bool
        Whether there are several queries: rows have the column `query_index`.
    metric : Metric or None
        None for that of the index, or `l2` without an index.
    minimum_nprobes : int
        Least number of partitions that are searched in each segment.
    maximum_nprobes : int or None
        Most partitions; None for all, if fewer have less than `k` rows.
    refine_factor : int or None
        If set, `k` times as many rows are found by their codes, and measured by their vectors.
    ef : int or None
        Rows that a graph search keeps; `k` and half of it by default.
    use_index : bool
    lower_bound, upper_bound : float or None
        Only rows with `lower_bound` <= `_distance` < `upper_bound`.
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
    use_index: bool = True
    lower_bound: float | None = None
    upper_bound: float | None = None
