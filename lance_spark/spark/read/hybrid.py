"""Hybrid search: rows that two searches find, by vectors and by text, in one order.

Each search finds candidates. A candidate of both searches is one row. Expressions in Spark's SQL
compute its relevance:

| reranker | `_relevance_score` |
| --- | --- |
| `rrf` | sum over the searches of 1 / (rank + `rrf_k`); the first row has the rank 0 |
| `linear` | `weight` * similarity + (1 - `weight`) * score |

For `linear`, the candidates of each search are scaled: 1 for the nearest row and for the greatest
score, 0 for the last candidate. A row that a search has not found has no part of it.

Rows of the table are matched by their addresses. Rows of a MemWAL have none, and are matched by the
primary key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment.row_meta import DISTANCE, ROW_ADDRESS, SCORE
from lance_spark.spark.quoting import quoted
from lance_spark.spark.read.projection import select, with_row_columns
from lance_spark.spark.read.search_steps import Step
from lance_spark.table.primary_key import primary_key

DEFAULT_RRF_K = 60.0
#: The column of relevance.
RELEVANCE = "_relevance_score"
#: The aliases of the searches.
VECTORS, TEXTS = "vectors", "texts"
#: The column of the candidates' ranks, or scaled distances or scores.
_PART = "__part"


@dataclass(frozen=True, slots=True)
class RowMatch:
    """How the rows of two searches are matched.

    Attributes
    ----------
    key : tuple of str
        The columns of the primary key in Spark's SQL, if rows of a MemWAL are searched.
    columns : tuple of str or None
        The columns that the searches read; all if None.
    added : tuple of str
        Those of them that are not wanted.
    """

    key: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    added: tuple[str, ...] = ()

    @classmethod
    def by_key(cls, schema: Schema, columns: Sequence[str] | None, table: str) -> Self:
        """RowMatch rows of a table and of its MemWAL.

        Raises
        ------
        InvalidInputError
            The table has no primary key whose columns are not nullable, or some children only of a
            struct are wanted that has a column of the key.
        InvalidOptionError
            A column is not found.
        """
        paths = primary_key(schema)
        if not paths or any(node.nullable for path in paths for node in path):
            raise InvalidInputError(
                f"table {table}: a hybrid search with fresh rows matches rows by the primary key, "
                "and the table has none whose columns are not nullable; search vectors and texts "
                "one after the other"
            )
        key = tuple(quoted(*(node.name for node in path)) for path in paths)
        if columns is None:
            return cls(key)
        wanted = select(with_row_columns(schema.to_arrow()), columns, table)
        read, added = [*columns], []
        for top, *children in paths:
            if top.name not in wanted.names:
                read.append(".".join(node.name for node in (top, *children)))
                added.append(top.name)
                continue
            dtype = wanted.field(top.name).type
            for child in children:
                if dtype.get_field_index(child.name) < 0:
                    raise InvalidInputError(
                        f"table {table}: column {top.name!r} has a column of the primary key, by "
                        "which a hybrid search with fresh rows matches rows; name the whole "
                        "column, and not its children"
                    )
                dtype = dtype.field(child.name).type
        return cls(key, tuple(read), tuple(dict.fromkeys(added)))

    @property
    def condition(self) -> str:
        """The condition of the full outer join of the rows."""
        first, second = (f"{side}.{ROW_ADDRESS.name}" for side in (VECTORS, TEXTS))
        if not self.key:
            return f"{first} = {second}"
        # A key can have several rows in a table where it is not enforced. A row that was compacted
        # between the two searches has an address in one of them.
        keys = (f"{VECTORS}.{column} = {TEXTS}.{column}" for column in self.key)
        return " AND ".join([*keys, f"coalesce({first} = {second}, true)"])

    @property
    def ties(self) -> tuple[str, ...]:
        """The columns that order rows that are equally relevant."""
        return ROW_ADDRESS.name, *self.key

    def last_steps(self, limit: int) -> list[Step]:
        """Return the steps from joined rows with their relevance to the most relevant rows."""
        order = [(RELEVANCE, True), *((name, False) for name in self.ties)]
        return [("order", order), ("limit", limit), *(("drop", name) for name in self.added)]


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
    match : RowMatch

    Raises
    ------
    InvalidInputError
        A value is out of range.
    """

    reranker: str = "rrf"
    rrf_k: float = DEFAULT_RRF_K
    weight: float = 0.7
    match: RowMatch = RowMatch()

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
            return self._ranked(distance, distance), self._ranked(score, f"{score} DESC")
        return _scaled(distance, f"-double({distance})"), _scaled(score, f"double({score})")

    def _ranked(self, column: str, order: str) -> str:
        ties = ", ".join(f"{name} NULLS LAST" for name in self.match.ties)
        return f"row_number() OVER ({_all(column)} ORDER BY {order}, {ties}) - 1 AS {_PART}"

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
        column = quoted(name)
        columns.append(f"coalesce({VECTORS}.{column}, {TEXTS}.{column}) AS {column}")
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


def num_candidates(candidates: int | None, wanted: int) -> int:
    """Return how many rows each search finds."""
    return wanted if candidates is None else max(candidates, wanted)


def _all(column: str) -> str:
    """Return a partition of all rows. Spark warns of windows without a partition."""
    return f"PARTITION BY isnull({column})"


def _scaled(column: str, value: str) -> str:
    low, high = (f"{bound}({value}) OVER ({_all(column)})" for bound in ("min", "max"))
    return f"if({high} = {low}, 1D, ({value} - {low}) / ({high} - {low})) AS {_PART}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
