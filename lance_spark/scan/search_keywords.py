"""Keywords of searches, by text and by vectors, declared once for all that search."""

from __future__ import annotations

from typing import Annotated, TypedDict

from lance_spark.keywords import Keyword


class IndexSearchKeywords(TypedDict, total=False):
    """Keywords of searches by indexes."""

    fast_search: Annotated[
        bool, Keyword("Whether a search leaves out rows that no index covers.", False)
    ]


class VectorIndexKeywords(TypedDict, total=False):
    """How an index of vectors is searched."""

    nprobes: Annotated[
        int | None,
        Keyword("How many partitions of an index are searched: the least and the most number."),
    ]
    minimum_nprobes: Annotated[
        int | None, Keyword("Least number of partitions of an index that are searched.")
    ]
    maximum_nprobes: Annotated[
        int | None, Keyword("Most partitions of an index that are searched; all by default.")
    ]
    refine_factor: Annotated[
        int | None,
        Keyword("How many times as many rows are found by their codes, and measured exactly."),
    ]
    ef: Annotated[int | None, Keyword("Rows that the search of a graph keeps.")]


class NearestKeywords(VectorIndexKeywords, total=False):
    """How a search finds the nearest vectors: keys of the mapping `nearest`, too."""

    metric: Annotated[
        str | None,
        Keyword("``l2``, ``cosine``, ``dot`` or ``hamming``; by default that of the index."),
    ]
    use_index: Annotated[
        bool, Keyword("Whether an index is searched. Without it, the search is exact.", True)
    ]
    distance_range: Annotated[
        tuple[float | None, float | None] | None,
        Keyword("Least distance, and the distance that all rows are below; None for no bound."),
    ]
