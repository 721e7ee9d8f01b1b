"""How many of the nearest rows a vector index finds, measured with vectors of the table.

The queries are vectors of rows that are chosen at random. The nearest other rows are found twice:
by the index, and exactly. A row that the index finds counts if it is as near as the exact rows are:
of rows with equal distances, the index may find others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.arguments import check_least
from lance_spark.errors import InvalidInputError
from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX, ROW_ID

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.indexes.vectors.columns import Metric, Vectors, VectorType

_Bools = npt.NDArray[np.bool_]

#: Distances of one pair that differ by a smaller part are equal: they are rounded to 32 bits.
_ROUNDING = 1e-5


@dataclass(frozen=True, slots=True)
class IndexRecall:
    """The result of `Dataset.index_recall`.

    - `name`: Name of the index.
    - `k`: Rows for each query.
    - `recall`: The part of the nearest rows that the index finds, from 0 to 1, over all queries.
      NaN without queries.
    - `lowest`: The same part for the query for which it is least.
    """

    name: str
    k: int
    num_queries: int
    recall: float
    lowest: float


@dataclass(frozen=True, slots=True)
class RecallPlan:
    """The queries of a measurement.

    - `name`: Name of the index.
    - `names`: The names of the column and of the structs that it is in, from the top-level column
      down.
    - `ids` (uint64 array): Row ids of the queries.
    - `vectors`: Array of shape (queries, dimension).
    """

    name: str
    column: str
    names: tuple[str, ...]
    dtype: VectorType
    metric: Metric
    k: int
    ids: npt.NDArray[np.uint64]
    vectors: Vectors

    def compare(self, by_index: pa.Table, nearest: pa.Table) -> IndexRecall:
        """Return the recall of a search.

        - `by_index`, `nearest`: Rows by the index, and exact ones: `k` and one more for each query,
          in any order, with the columns `query_index`, `_rowid` and `_distance`. `by_index` also
          has the column of vectors.
        """
        from lance_spark.indexes.vectors.distances import exact

        count = len(self.ids)
        queries, own = self._others(nearest)
        distances = nearest.column(DISTANCE.name).to_numpy()[own]
        order = np.lexsort((distances, queries))
        queries, distances = queries[order], distances[order]
        starts = np.searchsorted(queries, np.arange(count + 1))
        sizes = np.minimum(np.diff(starts), self.k)
        # The distance of the last row that is wanted; no row is nearer than none.
        farthest = np.full(count, -np.inf)
        has_rows = sizes > 0
        farthest[has_rows] = distances[(starts[:-1] + sizes - 1)[has_rows]]
        queries, own = self._others(by_index)
        vectors = _column(by_index, self.names).filter(pa.array(own)).flatten()
        # Spark has other types of numbers.
        matrix = vectors.to_numpy().astype(self.vectors.dtype).reshape(-1, self.dtype.dimension)
        measured = exact(self.metric, self.vectors, matrix, (queries, np.arange(len(queries))))
        limit = farthest[queries]
        is_near = measured <= limit + _ROUNDING * np.maximum(np.abs(limit), 1e-30)
        hits = np.minimum(np.bincount(queries[is_near], minlength=count), sizes)
        parts = hits[has_rows] / sizes[has_rows]
        recall = float(hits.sum() / sizes.sum()) if has_rows.any() else float("nan")
        lowest = float(parts.min()) if has_rows.any() else float("nan")
        return IndexRecall(self.name, self.k, int(has_rows.sum()), recall, lowest)

    def _others(self, rows: pa.Table) -> tuple[npt.NDArray[np.int64], _Bools]:
        """Return the query of each row that is not its own row, and which rows these are."""
        queries = rows.column(QUERY_INDEX.name).to_numpy().astype(np.int64)
        is_other: _Bools = rows.column(ROW_ID.name).to_numpy() != self.ids[queries]
        return queries[is_other], is_other


def measure_recall(
    dataset: Dataset, name: str, sample: int, k: int, seed: int, options: Mapping[str, Any]
) -> IndexRecall:
    """Measure how many of the nearest rows an index finds; see `Dataset.index_recall`."""
    plan = plan_recall(dataset, name, sample, k, seed)
    query = {
        "column": plan.column,
        "q": plan.vectors,
        "k": plan.k + 1,
        "metric": plan.metric.value,
    }

    def rows(**others: Any) -> pa.Table:
        nearest = {**query, **others}
        return dataset.to_table([plan.names[0]], nearest=nearest, with_row_id=True)

    if not len(plan.ids):
        return IndexRecall(name, plan.k, 0, float("nan"), float("nan"))
    return plan.compare(rows(**options), rows(use_index=False))


def plan_recall(dataset: Dataset, name: str, sample: int, k: int, seed: int) -> RecallPlan:
    """Choose the queries of a measurement.

    Raises CorruptFileError, CorruptTableError, MissingFileError, StorageError. Raises
    InvalidInputError: the index does not exist, or has no vectors, or a number is not positive.
    """
    from lance_spark.indexes.files import IndexFiles
    from lance_spark.indexes.vectors.columns import ColumnVectors, VectorType
    from lance_spark.indexes.vectors.distances import exact
    from lance_spark.indexes.vectors.query import parse_nearest
    from lance_spark.indexes.vectors.segment import open_segment
    from lance_spark.mutations.indexes.existing import describe_indices
    from lance_spark.table.indexes.sections import read_section

    check_least("sample", sample, 1)
    check_least("k", k, 1)
    table = dataset._table
    segments = [index for index in read_section(table.manifest).indices if index.name == name]
    described = {index.name: index for index in describe_indices(table)}
    if not segments:
        raise InvalidInputError(
            f"{table.store.display}: index {name!r} not found; the indexes are "
            f"{', '.join(described) or 'none'}"
        )
    opened = open_segment(IndexFiles(table.paths, segments[0]))
    if opened is None:
        raise InvalidInputError(
            f"{table.store.display}: index {name!r} cannot be searched: it is not an index of "
            "vectors, or its files are missing"
        )
    (column,) = described[name].field_names
    path = table.schema.path(column)
    names, dtype = tuple(node.name for node in path), VectorType.of(path)
    if dtype.is_multi:
        raise InvalidInputError(
            f"{table.store.display}: index {name!r}: recall is not measured for multivectors"
        )
    query = {"column": column, "q": np.zeros(dtype.dimension), "metric": opened.metric.value}
    used = dataset._reader.plan_nearest(parse_nearest(query)).indexes
    if [index.name for index in used] != [name]:
        reason = (
            f"index {used[0].name!r} of the same column and metric is; drop that to measure it"
            if used
            else "it covers no rows, or cannot be read; run optimize_indices or check_index"
        )
        raise InvalidInputError(f"{table.store.display}: index {name!r} is not searched: {reason}")
    count = dataset.count_rows()
    # Memory follows the rows that exist, not the numbers that are asked for.
    k = min(k, max(count - 1, 1))
    positions = _positions(count, sample, seed)
    rows = dataset.take(positions.tolist(), [ROW_ID.name, column])
    vectors = ColumnVectors.of(_column(rows, names), dtype)
    ids = rows.column(ROW_ID.name).to_numpy()
    is_measured = ~np.isnan(exact(opened.metric, vectors.values, vectors.values, _same(len(ids))))
    if vectors.missing is not None:
        is_measured &= ~vectors.missing
    return RecallPlan(
        name, column, names, dtype, opened.metric, k, ids[is_measured], vectors.values[is_measured]
    )


def _column(rows: pa.Table, names: tuple[str, ...]) -> pa.Array:
    """Return a column, or a child of structs."""
    import pyarrow.compute as pc

    array = rows.column(names[0]).combine_chunks()
    return pc.struct_field(array, list(names[1:])) if len(names) > 1 else array


def _positions(count: int, sample: int, seed: int) -> npt.NDArray[np.int64]:
    generator = np.random.default_rng(seed)
    if sample >= count:
        return np.arange(count)
    # Distinct numbers without a permutation of all.
    drawn = np.unique(generator.integers(0, count, min(2 * sample, count)))
    return np.sort(generator.permutation(drawn)[:sample])


def _same(count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return np.arange(count), np.arange(count)
