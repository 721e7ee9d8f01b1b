"""Hybrid search: rows that two searches find, by vectors and by text, in one order.

Each search finds candidates. A candidate of both searches is one row. Expressions in Spark's SQL
compute its relevance:

| reranker | `_relevance_score` |
| --- | --- |
| `rrf` | sum over the searches of 1 / (rank + `rrf_k`); the first row has the rank 0 |
| `linear` | `weight` * similarity + (1 - `weight`) * score |

For `linear`, the candidates of each search are scaled: 1 for the nearest row and for the greatest
score, 0 for the last candidate. A row that a search has not found has no part of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.scan.fragment.row_meta import DISTANCE, ROW_ADDRESS, SCORE
from lance_spark.spark.read.search_steps import Step

DEFAULT_RRF_K = 60.0
#: The column of relevance.
RELEVANCE = "_relevance_score"
#: The aliases of the searches.
VECTORS, TEXTS = "vectors", "texts"
#: The condition of the full outer join of their rows.
CONDITION = f"{VECTORS}.{ROW_ADDRESS.name} = {TEXTS}.{ROW_ADDRESS.name}"
#: The column of the candidates' ranks, or scaled distances or scores.
_PART = "__part"
#: All rows are one partition. Spark warns of windows without a partition.
_ALL = f"PARTITION BY isnull({ROW_ADDRESS.name})"


@dataclass(frozen=True, slots=True)
class Hybrid:
    """How two searches are combined.

    Attributes
    ----------
    reranker : str
        "rrf" or "linear".
    rrf_k : float
        More than 0.
    weight : float
        Of the vector search, from 0 to 1.

    Raises
    ------
    InvalidInputError
        A value is out of range.
    """

    reranker: str = "rrf"
    rrf_k: float = DEFAULT_RRF_K
    weight: float = 0.7

    def __post_init__(self) -> None:
        if self.reranker not in ("rrf", "linear"):
            raise InvalidInputError(
                f"reranker must be one of 'rrf', 'linear' or a function, not {self.reranker!r}"
            )
        if not (_is_number(self.rrf_k) and 0 < self.rrf_k < math.inf):
            raise InvalidInputError(f"rrf_k must be a number greater than 0, not {self.rrf_k!r}")
        if not (_is_number(self.weight) and 0 <= self.weight <= 1):
            raise InvalidInputError(f"weight must be a number from 0 to 1, not {self.weight!r}")

    @property
    def parts(self) -> tuple[str, str]:
        """Expressions to add to the rows of the vector search, and of the text search."""
        distance, score = DISTANCE.name, SCORE.name
        if self.reranker == "rrf":
            return tuple(
                f"row_number() OVER ({_ALL} ORDER BY {order}, {ROW_ADDRESS.name}) - 1 AS {_PART}"
                for order in (distance, f"{score} DESC")
            )  # type: ignore[return-value]
        return _scaled(f"-double({distance})"), _scaled(f"double({score})")

    def columns(self, names: Sequence[str]) -> list[str]:
        """Return the expressions of the columns of the joined rows.

        Parameters
        ----------
        names : sequence of str
            Columns that both searches return, `ROW_ADDRESS` among them.
        """
        columns = [*candidates(names)]
        values = [f"{side}.{_PART}" for side in (VECTORS, TEXTS)]
        if self.reranker == "rrf":
            values = [f"1D / ({value} + {float(self.rrf_k)!r}D)" for value in values]
        else:
            weights = self.weight, 1 - self.weight
            values = [
                f"{float(weight)!r}D * {value}"
                for weight, value in zip(weights, values, strict=True)
            ]
        total = " + ".join(f"coalesce({value}, 0D)" for value in values)
        return [*columns, f"float({total}) AS {RELEVANCE}"]


def candidates(names: Sequence[str]) -> list[str]:
    """Return the expressions of the columns of the joined rows, without relevance."""
    columns = []
    for name in names:
        quoted = "`" + name.replace("`", "``") + "`"
        columns.append(f"coalesce({VECTORS}.{quoted}, {TEXTS}.{quoted}) AS {quoted}")
    return [*columns, f"{VECTORS}.{DISTANCE.name}", f"{TEXTS}.{SCORE.name}"]


@dataclass(frozen=True)
class Rerank:
    """Work that adds the relevance to all candidates.

    Attributes
    ----------
    reranker : callable
        Gets a table, and returns a number for each row.
    names : tuple of str
        Columns of the candidates.
    """

    reranker: Callable[[pa.Table], Any]
    names: tuple[str, ...]

    def __call__(self, rows: pa.Table) -> pa.Table:
        """Return the candidates with their relevance.

        Raises
        ------
        InvalidInputError
            The function does not return a number for each row.
        """
        rows = rows.select(self.names)
        result = self.reranker(rows)
        try:
            if isinstance(result, pa.ChunkedArray):
                result = result.combine_chunks()
            values = result if isinstance(result, pa.Array) else pa.array(result)
            relevance = values.cast(pa.float32(), safe=False)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise InvalidInputError(
                f"the reranker must return a number for each row: {error}"
            ) from None
        if len(relevance) != rows.num_rows:
            raise InvalidInputError(
                f"the reranker returned {len(relevance)} numbers for {rows.num_rows} rows; it must "
                "return one for each row"
            )
        return rows.append_column(RELEVANCE, relevance)


def relevance_steps(limit: int) -> list[Step]:
    """Return the steps to the most relevant rows."""
    return [("order", [(RELEVANCE, True), (ROW_ADDRESS.name, False)]), ("limit", limit)]


def num_candidates(candidates: int | None, wanted: int) -> int:
    """Return how many rows each search finds."""
    return wanted if candidates is None else max(candidates, wanted)


def _scaled(value: str) -> str:
    low, high = f"min({value}) OVER ({_ALL})", f"max({value}) OVER ({_ALL})"
    return f"if({high} = {low}, 1D, ({value} - {low}) / ({high} - {low})) AS {_PART}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
