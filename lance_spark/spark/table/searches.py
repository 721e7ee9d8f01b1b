"""Reads and searches of a table, as DataFrames."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from lance_spark.arguments import check_least
from lance_spark.errors import InvalidInputError
from lance_spark.keywords import checked, of_group, without_group
from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX, ROW_ADDRESS, ROW_ID, SCORE
from lance_spark.scan.search_keywords import (
    IndexSearchKeywords,
    NearestKeywords,
    VectorIndexKeywords,
)
from lance_spark.spark.job import job_group
from lance_spark.spark.options.declared import FULL_TEXT_LIMIT, NEAREST_SHARES, SearchReadKeywords
from lance_spark.spark.read import searches
from lance_spark.spark.read.searches import Step, after, last_steps, nearest_steps, text_steps
from lance_spark.spark.table.base import option_texts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.recall import IndexRecall
    from lance_spark.indexes.text.queries import QueryLike
    from lance_spark.spark.table.base import TableHandle


#: The option of a read that adds a column.
_ROW_OPTIONS = {ROW_ID.name: "with_row_id", ROW_ADDRESS.name: "with_row_address"}


class VectorSearchKeywords(NearestKeywords, SearchReadKeywords, total=False):
    """Keywords of `LanceTable.nearest`."""


def read_frame(
    handle: TableHandle, columns: Sequence[str] | None, options: Mapping[str, Any]
) -> DataFrame:
    """Return the rows of a table; see `LanceTable.toDF`."""
    if isinstance(columns, str):
        raise InvalidInputError(f"columns must be a list of names, not the string {columns!r}")
    read_options = {**handle.options, **options}
    if columns is not None:
        read_options["columns"] = json.dumps(list(columns))
    texts = option_texts(read_options)
    frame = handle.spark.read.format("lance").options(**texts).load(handle.path)
    return frame if handle.alias_name is None else frame.alias(handle.alias_name)


def text_search(
    handle: TableHandle,
    query: QueryLike,
    columns: Sequence[str] | None,
    limit: int | None,
    options: Mapping[str, Any],
) -> DataFrame:
    """Return the rows whose text matches a query; see `LanceTable.search`."""
    from lance_spark.indexes.text.queries import query_to_json

    if limit is not None:
        check_least("limit", limit, 0)
    wanted = _Wanted(columns, options)
    wanted.read["full_text_query"] = query_to_json(query)
    wanted.read[FULL_TEXT_LIMIT] = limit
    frame = wanted.frame(handle, ROW_ADDRESS.name)
    return after(frame, [*text_steps(limit), *wanted.last_steps(ROW_ADDRESS.name)])


def vector_search(
    handle: TableHandle,
    column: str,
    q: Any,
    k: int,
    columns: Sequence[str] | None,
    options: Mapping[str, Any],
) -> DataFrame:
    """Return the rows whose vectors are nearest to a vector; see `LanceTable.nearest`."""
    from lance_spark.indexes.vectors.query import parse_nearest

    search = {"column": column, "q": _numbers(q), "k": k, **nearest_keys(options)}
    parse_nearest(search)
    wanted = _Wanted(columns, without_group(NearestKeywords, options))
    wanted.read["nearest"] = json.dumps(search)
    wanted.read[NEAREST_SHARES] = True
    # Rows of a MemWAL have no row ids.
    added = ROW_ADDRESS.name if wanted.fresh else ROW_ID.name
    frame = wanted.frame(handle, added)
    steps = nearest_steps(k, is_batch=_is_batch(frame), ties=(added,))
    return after(frame, [*steps, *wanted.last_steps(added)])


def nearest_keys(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of a vector search as keys of `nearest`."""
    given: Mapping[str, Any] = of_group(NearestKeywords, keywords)
    keys = {name: value for name, value in given.items() if value is not None}
    if "distance_range" in keys:
        keys["distance_range"] = list(keys["distance_range"])
    return keys


def hybrid_search(
    handle: TableHandle,
    text: QueryLike,
    q: Any,
    k: int,
    column: str,
    columns: Sequence[str] | None,
    candidates: int | None,
    reranker: str | Callable[[pa.Table], Any],
    rrf_k: float,
    weight: float,
    nearest: Mapping[str, Any],
    options: Mapping[str, Any],
) -> DataFrame:
    """Return rows that two searches find; see `LanceTable.hybrid_search`."""
    check_least("k", k, 1)
    if candidates is not None:
        check_least("candidates", candidates, 1)
    number = searches.num_candidates(candidates, k)
    shared = {**options, "with_row_address": True}
    computed = (DISTANCE.name, SCORE.name, searches.RELEVANCE)
    read = None if columns is None else [name for name in columns if name not in computed]
    match = searches.RowMatch()
    if options.get("fresh"):
        opened = handle.dataset()._table
        match = searches.RowMatch.by_key(opened.schema, read, opened.store.display)
        read = None if match.columns is None else [*match.columns]
    vectors = vector_search(handle, column, q, number, read, {**nearest, **shared})
    if _is_batch(vectors):
        raise InvalidInputError("hybrid_search takes one vector; search for each of several ones")
    texts = text_search(handle, text, read, number, shared)
    names = [name for name in texts.columns if name != SCORE.name]
    if callable(reranker):
        frame = _joined(vectors, texts, match.condition, searches.candidates(names))
        frame = _reranked(frame, reranker)
    else:
        combined = searches.Hybrid(reranker, rrf_k, weight, match)
        first, second = combined.parts
        vectors, texts = vectors.selectExpr("*", first), texts.selectExpr("*", second)
        frame = _joined(vectors, texts, match.condition, combined.columns(names))
    named = [*(columns or ()), *_named_row_columns(options)]
    return after(frame, [*match.last_steps(k), *last_steps(None, ROW_ADDRESS.name, named)])


class _Wanted:
    """What a search reads, and which of it is returned.

    Attributes
    ----------
    read : dict
        Options of the read.
    fresh : bool
        Whether rows of the MemWAL are read, too.
    """

    def __init__(self, columns: Sequence[str] | None, options: Mapping[str, Any]) -> None:
        self.read = dict(options)
        self._columns = columns
        self._named = [*(columns or ()), *_named_row_columns(options)]
        # Otherwise the filter chooses among the rows that the search finds.
        is_first = self.read.pop("prefilter", True)
        self._where = None if is_first else self.read.pop("filter", None)
        self.fresh = bool(self.read.get("fresh"))
        if not self.fresh:
            # A read without the option warns of rows that it leaves out.
            self.read.pop("fresh", None)

    def frame(self, handle: TableHandle, added: str) -> DataFrame:
        """Return the rows that are read, with another column, which orders equally good rows."""
        self.read[_ROW_OPTIONS[added]] = True
        return read_frame(handle, self._columns, self.read)

    def last_steps(self, added: str) -> list[Step]:
        """Return the steps after the best rows are chosen; see `search_steps.last_steps`."""
        return last_steps(self._where, added, self._named)


def _named_row_columns(options: Mapping[str, Any]) -> list[str]:
    """Return the columns of rows that options add."""
    return [name for name, option in _ROW_OPTIONS.items() if options.get(option)]


def _is_batch(frame: DataFrame) -> bool:
    """Return whether a search is for several vectors: a multivector is one query."""
    return frame.columns[0] == QUERY_INDEX.name


def _numbers(q: Any) -> Any:
    """Return vectors as lists of numbers."""
    for method in ("tolist", "to_pylist"):
        if hasattr(q, method):
            return getattr(q, method)()
    if isinstance(q, Sequence) and not isinstance(q, str):
        return [_numbers(item) if hasattr(item, "__len__") else _number(item) for item in q]
    return q


def _number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _joined(
    vectors: DataFrame, texts: DataFrame, condition: str, columns: Sequence[str]
) -> DataFrame:
    """Return the candidates of two searches."""
    from pyspark.sql import functions

    left, right = vectors.alias(searches.VECTORS), texts.alias(searches.TEXTS)
    joined = left.join(right, functions.expr(condition), "full_outer")
    return joined.selectExpr(*columns)


def _reranked(frame: DataFrame, reranker: Callable[[pa.Table], Any]) -> DataFrame:
    """Return candidates with the relevance that a function gives them."""
    from pyspark.sql.types import FloatType, StructField, StructType

    schema = StructType([*frame.schema.fields, StructField(searches.RELEVANCE, FloatType())])
    work = searches.Rerank(reranker, tuple(frame.columns))

    def reranked(rows: pa.Table) -> pa.Table:
        return work(rows)

    # One task gets all candidates. Spark would pass the group, too, to an object.
    return frame.groupBy().applyInArrow(reranked, schema)


# --------------------------------------------------------------------------------------------------
# Nearest-neighbour joins of a table, and the recall of its vector indexes.

#: Column of the vectors of a measurement.
_QUERY = "query_vector"


class JoinKeywords(NearestKeywords, IndexSearchKeywords, total=False):
    """Keywords of `LanceTable.nearest_join`."""


class RecallKeywords(VectorIndexKeywords, IndexSearchKeywords, total=False):
    """Keywords of `LanceTable.index_recall`, which searches by the metric of the index."""


def nearest_join(
    handle: TableHandle,
    queries: DataFrame,
    on: str | tuple[str, str],
    k: int = 10,
    *,
    how: str = "inner",
    columns: Sequence[str] | None = None,
    aliases: Mapping[str, str] | None = None,
    filter: str | Column | None = None,
    with_row_id: bool = False,
    blob_handling: str | None = None,
    **keywords: Unpack[JoinKeywords],
) -> DataFrame:
    """Return queries with the rows whose vectors are nearest.

    `LanceTable.nearest_join` has the parameters of this function.

    Parameters
    ----------
    queries : DataFrame
    on : str or tuple of str
        Name of the column of vectors in `queries` and in the table; or both names. In `queries`
        vectors are arrays of numbers. A null vector, or one with a null or NaN, has no nearest
        rows.
    k : int
        Maximum number of rows for each query.
    how : str
        ``inner``, or ``left`` to keep queries without a row.
    columns : sequence of str, optional
        Columns of the table to return; all but the column of `on` by default.
    aliases : mapping of str to str, optional
        Names of these columns in the result. `queries` must not have a column of such a name.
    filter : str or Column, optional
        Condition; only rows of the table for which it is true are found. Spark evaluates it
        once, in this call.
    with_row_id : bool
        Whether to add the column ``_rowid`` of the table.
    blob_handling : str, optional
        Content of blob columns, as the option of that name; that of the table by default.

    Raises
    ------
    InvalidInputError
        An argument is invalid, or a name occurs in both.
    """
    from lance_spark.spark.table.jobs.nearest_join import nearest_join as join

    return join(
        handle,
        queries,
        on,
        {"k": k, **nearest_keys(keywords)},
        how=how,
        columns=columns,
        aliases=aliases or {},
        condition=filter,
        search=checked(IndexSearchKeywords, of_group(IndexSearchKeywords, keywords)),
        with_row_id=with_row_id,
        blob_handling=blob_handling or handle.read_options.blob_handling,
    )


def index_recall(
    handle: TableHandle, name: str, sample: int, k: int, seed: int, keywords: RecallKeywords
) -> IndexRecall:
    """Measure how many of the nearest rows an index finds; see `LanceTable.index_recall`."""
    from lance_spark.dataset.recall import plan_recall

    dataset = handle.dataset()
    plan = plan_recall(dataset, name, sample, k, seed)
    vectors = plan.vectors.tolist()
    queries = handle.spark.createDataFrame(
        list(enumerate(vectors)), f"{QUERY_INDEX.name} int, {_QUERY} array<double>"
    )

    def rows(columns: list[str], **others: Any) -> pa.Table:
        joined = nearest_join(
            handle,
            queries,
            (_QUERY, plan.column),
            plan.k + 1,
            columns=columns,
            metric=plan.metric.value,
            with_row_id=True,
            **others,
        )
        return joined.drop(_QUERY).toArrow()

    title = f"lance index recall {dataset._table.store.display}: "
    with job_group(handle.spark, title + "search by the index"):
        by_index = rows([plan.column], **keywords)
    with job_group(handle.spark, title + "search all rows"):
        nearest = rows([], use_index=False)
    return plan.compare(by_index, nearest)
