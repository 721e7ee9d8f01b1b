"""Reads and searches of `LanceTable`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lance_spark.arguments import check_least
from lance_spark.errors import InvalidInputError
from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX, ROW_ADDRESS, ROW_ID, SCORE
from lance_spark.spark.options.names import FULL_TEXT_LIMIT, NEAREST_SHARES
from lance_spark.spark.read import hybrid
from lance_spark.spark.read.search_steps import after, last_steps, nearest_steps, text_steps
from lance_spark.spark.table.base import TableBase, option_texts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from lance_spark.scan.text.queries import QueryLike


class SearchMethods(TableBase):
    """Methods of `LanceTable` that return its rows."""

    def toDF(  # noqa: N802 - as DeltaTable has it
        self,
        columns: Sequence[str] | None = None,
        *,
        with_row_id: bool = False,
        with_row_address: bool = False,
        filter: str | None = None,
        **options: Any,
    ) -> DataFrame:
        """Return the table as a DataFrame.

        Each query reads the version that is the newest when Spark plans it, unless the options
        name a version.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns to read, or dotted paths of children of structs; all columns by default.
        with_row_id, with_row_address : bool
            Whether to add the columns ``_rowid`` and ``_rowaddr``.
        filter : str, optional
            Predicate in Spark's SQL; only rows for which it is true are read.
        **options
            Other options of a read.
        """
        if isinstance(columns, str):
            raise InvalidInputError(f"columns must be a list of names, not the string {columns!r}")
        read_options: dict[str, Any] = {**self.options, **options}
        if columns is not None:
            read_options["columns"] = json.dumps(list(columns))
        if with_row_id:
            read_options["with_row_id"] = True
        if with_row_address:
            read_options["with_row_address"] = True
        if filter is not None:
            read_options["filter"] = filter
        texts = option_texts(read_options)
        frame = self.spark.read.format("lance").options(**texts).load(self.path)
        return frame if self.alias_name is None else frame.alias(self.alias_name)

    def search(
        self,
        query: QueryLike,
        columns: Sequence[str] | None = None,
        *,
        limit: int | None = None,
        k: int | None = None,
        filter: str | None = None,
        prefilter: bool = True,
        fast_search: bool = False,
        with_row_id: bool = False,
        with_row_address: bool = False,
        fresh: bool = False,
        **options: Any,
    ) -> DataFrame:
        """Return the rows whose text matches a query, those with the greatest scores first.

        The DataFrame has the columns and ``_score``. As for `toDF`, a query over it reads the
        newest version. Tasks search parts of the index, and each returns its best rows. Conditions
        on the DataFrame, such as ``where``, choose among its rows.

        Parameters
        ----------
        query : str, mapping or FullTextQuery
            Words, ``"a phrase"`` in quotation marks, a mapping with the keys ``query`` and
            ``columns``, or a query of `lance_spark.query`. Without columns, all columns with an
            INVERTED index are searched.
        columns : sequence of str, optional
            Columns to return, as in `toDF`. ``_score`` is added if it is not named.
        limit : int, optional
            Maximum number of rows; all that match by default. Of rows with equal scores, those with
            the least addresses are first.
        k : int, optional
            Another name of `limit`.
        filter : str, optional
            Predicate in Spark's SQL; only rows for which it is true are returned.
        prefilter : bool
            Whether the filter chooses rows before the first `limit` rows are chosen, or among
            these.
        fast_search : bool
            Whether rows that no index covers are left out.
        with_row_id, with_row_address : bool
            Whether to add the columns ``_rowid`` and ``_rowaddr``.
        fresh : bool
            Whether rows of the MemWAL of the table are searched, too. They have no row ids, and
            null as addresses; of rows with equal scores, they are last, in any order.
        **options
            Other options of a read.

        Raises
        ------
        InvalidInputError
            The query is malformed, the limit is negative, or the table has a column ``_score``.
            A column that does not exist, and an index that this release cannot search, are errors
            of queries over the DataFrame.

        Examples
        --------
        >>> table.search("quick fox", ["id", "text"], limit=10).show()  # doctest: +SKIP
        """
        from lance_spark.scan.text.query_json import query_to_json

        if k is not None:
            if limit is not None:
                raise InvalidInputError("give limit, and not k, which means the same, too")
            limit = k
        if limit is not None:
            check_least("limit", limit, 0)
        read: dict[str, Any] = {**options, "full_text_query": query_to_json(query)}
        if limit is not None:
            read[FULL_TEXT_LIMIT] = limit
        frame = self.toDF(
            columns,
            with_row_id=with_row_id,
            with_row_address=True,
            filter=filter if prefilter else None,
            fast_search=fast_search or None,
            fresh=fresh or None,
            **read,
        )
        wanted = [*(columns or ()), *([ROW_ADDRESS.name] if with_row_address else ())]
        last = last_steps(None if prefilter else filter, ROW_ADDRESS.name, wanted)
        return after(frame, [*text_steps(limit), *last])

    def nearest(
        self,
        column: str,
        q: Any,
        k: int = 10,
        *,
        metric: str | None = None,
        nprobes: int | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
        refine_factor: int | None = None,
        ef: int | None = None,
        use_index: bool = True,
        distance_range: tuple[float | None, float | None] | None = None,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        prefilter: bool = True,
        fast_search: bool = False,
        with_row_id: bool = False,
        with_row_address: bool = False,
        fresh: bool = False,
        **options: Any,
    ) -> DataFrame:
        """Return the rows whose vectors are nearest to a vector, the nearest first.

        The DataFrame has the columns and ``_distance``. An index of the column is searched, if
        there is one; rows that it does not cover are searched exactly. The driver answers a small
        search; tasks search parts of a large one. As for `toDF`, a query over the DataFrame reads
        the newest version, and conditions on it choose among its rows.

        Parameters
        ----------
        column : str
            Column of vectors.
        q : sequence of float, or array
            A vector; or several ones, as a sequence of vectors or an array of two dimensions. The
            column ``query_index`` is then first, and there are `k` rows for each vector.
        k : int
            Maximum number of rows. Of rows with equal distances, those with the least row ids are
            first.
        metric, nprobes, minimum_nprobes, maximum_nprobes, refine_factor, ef, use_index
            As in `nearest` of `Dataset.to_table`. Without `use_index`, the search is exact.
        distance_range : tuple, optional
            Least distance, and the distance that all rows are below; None for no bound.
        columns : sequence of str, optional
            Columns to return, as in `toDF`. ``_distance`` is added if it is not named.
        filter : str, optional
            Predicate in Spark's SQL; only rows for which it is true are returned.
        prefilter : bool
            Whether the filter chooses rows before the nearest ones are chosen, or among these; then
            it can only name columns that are returned.
        fast_search : bool
            Whether rows that no index covers are left out.
        with_row_id, with_row_address : bool
            Whether to add the columns ``_rowid`` and ``_rowaddr``.
        fresh : bool
            Whether rows of the MemWAL of the table are searched, too. They have no row ids, and
            null as addresses; of rows with equal distances, they are last, in any order.
        **options
            Other options of a read.

        Raises
        ------
        InvalidInputError
            An argument is invalid. A column that does not exist, or has vectors of another length,
            is an error of queries over the DataFrame.

        Examples
        --------
        >>> table.nearest("vector", [0.1, 0.7], k=5, columns=["id"]).show()  # doctest: +SKIP
        """
        from lance_spark.scan.vectors.query import parse_nearest

        parameters = {
            "column": column,
            "q": _numbers(q),
            "k": k,
            "metric": metric,
            "nprobes": nprobes,
            "minimum_nprobes": minimum_nprobes,
            "maximum_nprobes": maximum_nprobes,
            "refine_factor": refine_factor,
            "ef": ef,
            "use_index": use_index,
            "distance_range": None if distance_range is None else list(distance_range),
        }
        search = {name: value for name, value in parameters.items() if value is not None}
        parse_nearest(search)
        read: dict[str, Any] = {**options, "nearest": json.dumps(search), NEAREST_SHARES: True}
        frame = self.toDF(
            columns,
            with_row_id=with_row_id or not fresh,
            with_row_address=with_row_address or fresh,
            filter=filter if prefilter else None,
            fast_search=fast_search or None,
            fresh=fresh or None,
            **read,
        )
        added, is_wanted = (ROW_ADDRESS, with_row_address) if fresh else (ROW_ID, with_row_id)
        wanted = [*(columns or ()), *([added.name] if is_wanted else ())]
        last = last_steps(None if prefilter else filter, added.name, wanted)
        steps = nearest_steps(k, is_batch=_is_batch(frame), ties=(added.name,))
        return after(frame, [*steps, *last])

    def hybridSearch(  # noqa: N802 - Spark's habit
        self,
        text: QueryLike,
        q: Any,
        k: int = 10,
        *,
        column: str = "vector",
        reranker: str | Callable[[pa.Table], Any] = "rrf",
        candidates: int | None = None,
        rrf_k: float = 60.0,
        weight: float = 0.7,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        prefilter: bool = True,
        fast_search: bool = False,
        with_row_id: bool = False,
        with_row_address: bool = False,
        nearest: Mapping[str, Any] | None = None,
        fresh: bool = False,
        **options: Any,
    ) -> DataFrame:
        """Return rows that a vector search or a full-text search finds, the most relevant first.

        The DataFrame has the columns, ``_distance``, ``_score`` and ``_relevance_score``. The
        distance is null in rows that only the full-text search finds, and the score in rows that
        only the vector search finds.

        Parameters
        ----------
        text : str, mapping or FullTextQuery
            As in `search`.
        q : sequence of float, or array
            One vector.
        k : int
            Maximum number of rows.
        column : str
            Column of vectors.
        reranker : str or callable
            ``rrf`` (reciprocal rank fusion): the sum of 1 / (rank + `rrf_k`), with ranks from 0.
            ``linear``: `weight` parts of similarity and the rest of the score, each scaled to 0 to
            1 among the candidates. Or a function that gets a `pyarrow.Table` of all candidates,
            with ``_distance`` and ``_score``, and returns a number for each row, greater for rows
            that are more relevant. A task calls it once.
        candidates : int, optional
            How many rows each search finds; `k` by default, and at least.
        rrf_k, weight : float
        columns, filter, prefilter, fast_search, with_row_id, with_row_address
            As in `nearest`.
        nearest : mapping, optional
            More arguments of `nearest`: ``metric``, ``nprobes`` and others.
        fresh : bool
            Whether rows of the MemWAL of the table are searched, too. The table needs a primary
            key. Of rows that are equally relevant, rows of the MemWAL are last, ordered by the key.
        **options
            Other options of a read.

        Raises
        ------
        InvalidInputError
            An argument is invalid, or the table has no primary key for `fresh`.

        Examples
        --------
        >>> table.hybridSearch("quick fox", [0.1, 0.7], k=5).show()  # doctest: +SKIP
        """
        check_least("k", k, 1)
        if candidates is not None:
            check_least("candidates", candidates, 1)
        number = hybrid.num_candidates(candidates, k)
        shared: dict[str, Any] = {
            "filter": filter,
            "prefilter": prefilter,
            "fast_search": fast_search,
            "with_row_id": with_row_id,
            "with_row_address": True,
            "fresh": fresh,
            **options,
        }
        computed = (DISTANCE.name, SCORE.name, hybrid.RELEVANCE)
        read = None if columns is None else [name for name in columns if name not in computed]
        match = hybrid.Match()
        if fresh:
            opened = self.dataset()._table
            match = hybrid.Match.by_key(opened.schema, read, opened.store.display)
            read = None if match.columns is None else [*match.columns]
        vectors = self.nearest(column, q, number, columns=read, **(nearest or {}), **shared)
        if _is_batch(vectors):
            raise InvalidInputError(
                "hybridSearch takes one vector; search for each of several ones"
            )
        texts = self.search(text, read, limit=number, **shared)
        names = [name for name in texts.columns if name != SCORE.name]
        if callable(reranker):
            frame = _joined(vectors, texts, match.condition, hybrid.candidates(names))
            frame = _reranked(frame, reranker)
        else:
            combined = hybrid.Hybrid(reranker, rrf_k, weight, match)
            first, second = combined.parts
            vectors, texts = vectors.selectExpr("*", first), texts.selectExpr("*", second)
            frame = _joined(vectors, texts, match.condition, combined.columns(names))
        wanted = [*(columns or ()), *([ROW_ADDRESS.name] if with_row_address else ())]
        last = last_steps(None, ROW_ADDRESS.name, wanted)
        return after(frame, [*match.last_steps(k), *last])


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

    left, right = vectors.alias(hybrid.VECTORS), texts.alias(hybrid.TEXTS)
    joined = left.join(right, functions.expr(condition), "full_outer")
    return joined.selectExpr(*columns)


def _reranked(frame: DataFrame, reranker: Callable[[pa.Table], Any]) -> DataFrame:
    """Return candidates with the relevance that a function gives them."""
    from pyspark.sql.types import FloatType, StructField, StructType

    schema = StructType([*frame.schema.fields, StructField(hybrid.RELEVANCE, FloatType())])
    work = hybrid.Rerank(reranker, tuple(frame.columns))

    def reranked(rows: pa.Table) -> pa.Table:
        return work(rows)

    # One task gets all candidates. Spark would pass the group, too, to an object.
    return frame.groupBy().applyInArrow(reranked, schema)
