"""Nearest-neighbour joins of a table, and the recall of its vector indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from lance_spark.keywords import checked, of_group
from lance_spark.scan.fragment.row_meta import QUERY_INDEX
from lance_spark.scan.search_keywords import (
    IndexSearchKeywords,
    NearestKeywords,
    VectorIndexKeywords,
)
from lance_spark.spark.job import job_group
from lance_spark.spark.table.searches import nearest_keys

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from lance_spark.dataset.recall import IndexRecall
    from lance_spark.spark.table.base import TableHandle

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
    """Return queries with the rows whose vectors are nearest; see `LanceTable.nearest_join`."""
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
