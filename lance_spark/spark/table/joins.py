"""Nearest-neighbour joins of `LanceTable`, and the recall of its vector indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lance_spark.scan.fragment.row_meta import QUERY_INDEX
from lance_spark.spark.job import job_group
from lance_spark.spark.table.base import TableBase

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.recall import IndexRecall

#: Column of the vectors of a measurement.
_QUERY = "query_vector"


class JoinMethods(TableBase):
    """Methods of `LanceTable` that find the nearest rows of many vectors."""

    def nearestJoin(  # noqa: N802 - Spark's habit
        self,
        queries: DataFrame,
        on: str | tuple[str, str],
        k: int = 10,
        *,
        how: str = "inner",
        columns: Sequence[str] | None = None,
        aliases: Mapping[str, str] | None = None,
        metric: str | None = None,
        nprobes: int | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
        refine_factor: int | None = None,
        ef: int | None = None,
        use_index: bool = True,
        distance_range: tuple[float | None, float | None] | None = None,
        filter: str | Column | None = None,
        fast_search: bool = False,
        with_row_id: bool = False,
        blob_handling: str | None = None,
    ) -> DataFrame:
        """Return the rows of a DataFrame, each with the rows whose vectors are nearest to its own.

        The DataFrame has the columns of `queries`, the columns of the table, and ``_distance``.
        There are up to `k` rows for each query, in any order. The join is planned for many queries:
        each part of the table is read once for all its queries. `queries` is computed once. The
        version of the table is the newest at the time of this call.

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
        metric, nprobes, minimum_nprobes, maximum_nprobes, refine_factor, ef, use_index
            As in `nearest`.
        distance_range, fast_search
            As in `nearest`.
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

        Examples
        --------
        >>> table.nearestJoin(users, ("taste", "vector"), k=5, columns=["id"])  # doctest: +SKIP
        """
        from lance_spark.spark.table.jobs.nearest_join import nearest_join

        options = {
            "metric": metric,
            "nprobes": nprobes,
            "minimum_nprobes": minimum_nprobes,
            "maximum_nprobes": maximum_nprobes,
            "refine_factor": refine_factor,
            "ef": ef,
            "use_index": use_index,
            "distance_range": None if distance_range is None else list(distance_range),
        }
        nearest = {"k": k, **{name: value for name, value in options.items() if value is not None}}
        return nearest_join(
            self,
            queries,
            on,
            nearest,
            how=how,
            columns=columns,
            aliases=aliases or {},
            condition=filter,
            fast_search=fast_search,
            with_row_id=with_row_id,
            blob_handling=blob_handling or self._read_options.blob_handling,
        )

    def indexRecall(  # noqa: N802 - as its siblings
        self, name: str, sample: int = 100, k: int = 10, *, seed: int = 0, **options: Any
    ) -> IndexRecall:
        """Measure how many of the nearest rows an index of vectors finds.

        The two searches, by the index and exact, are joins by tasks. See `Dataset.index_recall` for
        what is measured.

        Parameters
        ----------
        name : str
            Name of the index.
        sample : int
            Number of queries.
        k : int
            Rows for each query.
        seed : int
            Another seed chooses other rows.
        **options
            Arguments of `nearestJoin`, such as ``nprobes`` and ``refine_factor``.

        Raises
        ------
        InvalidInputError
            The index does not exist, or is not an index of vectors.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> table.indexRecall("vector_idx", nprobes=20).recall  # doctest: +SKIP
        0.97
        """
        from lance_spark.dataset.recall import plan_recall

        dataset = self.dataset()
        plan = plan_recall(dataset, name, sample, k, seed)
        vectors = plan.vectors.tolist()
        queries = self.spark.createDataFrame(
            list(enumerate(vectors)), f"{QUERY_INDEX.name} int, {_QUERY} array<double>"
        )

        def rows(columns: list[str], **others: Any) -> pa.Table:
            joined = self.nearestJoin(
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
        with job_group(self.spark, title + "search by the index"):
            by_index = rows([plan.column], **options)
        with job_group(self.spark, title + "search all rows"):
            nearest = rows([], use_index=False)
        return plan.compare(by_index, nearest)
