"""Searches of texts and vectors: the rows that they find, and how they find them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, Unpack

import pyarrow as pa

from lance_spark.dataset.scan_keywords import SearchKeywords
from lance_spark.errors import CorruptError, MissingFileError
from lance_spark.keywords import of_group
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.search_keywords import IndexSearchKeywords

if TYPE_CHECKING:
    from lance_spark.dataset.reader import VersionReader
    from lance_spark.dataset.scan_request import ScanRequest
    from lance_spark.indexes.text.search import TextSearch
    from lance_spark.indexes.vectors.search import VectorSearch

_LOG = logging.getLogger(__name__)
_Search = TypeVar("_Search")


class _SearchSteps(NamedTuple, Generic[_Search]):
    """The steps of a search of texts or vectors.

    - `plan`: Plans the search; see `VersionReader.plan_text` and `plan_nearest`.
    - `rows`: Returns the rows that a planned search finds.
    - `can_ignore_indexes`: Whether a planned search uses indexes, and values can be searched in
      their place.
    - `warning`: What is logged if the indexes are ignored.
    """

    plan: Callable[..., _Search]
    rows: Callable[[_Search], pa.Table]
    can_ignore_indexes: Callable[[_Search], bool]
    warning: str


def searched_rows(reader: VersionReader, request: ScanRequest) -> pa.Table:
    """Return the rows that a search finds, in its order.

    If a file of an index is damaged or missing, the values of the table are searched instead,
    unless the request leaves out rows that no index covers.

    Raises CorruptFileError, CorruptTableError, StorageError. Raises InvalidInputError: the query is
    malformed, or does not fit its column.
    """
    steps = _steps(reader, request)
    search = steps.plan(**of_group(IndexSearchKeywords, request.options))
    try:
        table = steps.rows(search)
    except (CorruptError, MissingFileError) as error:
        if request.options["fast_search"] or not steps.can_ignore_indexes(search):
            raise
        _LOG.warning("%s: %s", steps.warning, error)
        table = steps.rows(steps.plan(use_index=False))
    added = "_distance" if request.nearest is not None else "_score"
    if request.options["disable_scoring_autoprojection"] and added not in (request.columns or ()):
        table = table.drop_columns([added])
    table = table.slice(request.offset)
    return table if request.children is None else request.children.of_table(table)


def _steps(reader: VersionReader, request: ScanRequest) -> _SearchSteps[Any]:
    """Return the steps of the search of a request."""
    limit = None if request.limit is None else request.offset + request.limit
    if request.nearest is not None:
        return _nearest_steps(reader, request, limit)
    return _text_steps(reader, request, limit)


def _nearest_steps(
    reader: VersionReader, request: ScanRequest, limit: int | None
) -> _SearchSteps[VectorSearch]:
    """Return the steps of a vector search, which finds rows by query and distance.

    Raises InvalidInputError: the query is malformed.
    """
    from lance_spark.indexes.vectors.query import parse_nearest

    nearest, conditions = request.nearest, request.conditions
    assert nearest is not None
    query = parse_nearest(nearest)
    if limit and nearest.get("k") is None:
        query = replace(query, k=limit)
    before, after = (conditions, ()) if request.options["prefilter"] else ((), conditions)
    opened = reader.opened_rows()

    def rows(search: VectorSearch) -> pa.Table:
        schema = reader.nearest_schema(
            request.columns, is_batch=search.query.is_batch, **request.projection
        )
        task = reader.nearest_task(search, schema, before, after, **request.indexes)
        return task.nearest_rows(ScanMetrics(), opened, limit)

    return _SearchSteps(
        partial(reader.plan_nearest, query),
        rows,
        lambda search: bool(search.segments),
        f"the vector index of column {query.column!r} is ignored",
    )


def _text_steps(
    reader: VersionReader, request: ScanRequest, limit: int | None
) -> _SearchSteps[TextSearch]:
    """Return the steps of a full-text search, which finds the rows with the greatest scores first.

    Raises InvalidInputError: a column does not exist.
    """
    from lance_spark.dataset.queries import can_ignore_indexes

    query, conditions = request.full_text_query, request.conditions
    assert query is not None
    schema = reader.text_schema(request.columns, **request.projection)
    filters_last = request.options["prefilter"] is False

    def rows(search: TextSearch) -> pa.Table:
        before = () if filters_last else conditions
        task = reader.text_task(search, schema, before, before, limit=limit)
        if not filters_last or not conditions:
            return task.best_rows(ScanMetrics(), reader.opened_rows())
        filtering = reader.text_task(search, schema, (), conditions)
        return task.best_rows(ScanMetrics(), reader.opened_rows(), filtering)

    return _SearchSteps(
        partial(reader.plan_text, query),
        rows,
        can_ignore_indexes,
        "the full-text indexes are ignored",
    )


def explained_search(
    reader: VersionReader,
    nearest: Mapping[str, Any],
    condition: str,
    **keywords: Unpack[SearchKeywords],
) -> str:
    """Describe a vector search; see `Dataset.explain`. The text of the conditions is given."""
    from lance_spark.dataset.queries import searched_indexes
    from lance_spark.indexes.vectors.query import parse_nearest

    search = reader.plan_nearest(parse_nearest(nearest), **of_group(IndexSearchKeywords, keywords))
    query = search.query
    of_batch = f", {len(query.vectors)} queries" if query.is_batch else ""
    lines = [
        f"Vector search of {reader.title}",
        f"  column: {query.column}, metric {search.metric.value}, k {query.k}{of_batch}",
    ]
    if condition:
        kind = "prefilter" if keywords.get("prefilter") else "filter of the rows found"
        lines.append(f"  {kind}: {condition}")
    lines += [f"  index: {index}" for index in searched_indexes(reader.table.paths, search)]
    if search.uncovered and not search.segments:
        lines.append(f"  no index: {sum(search.uncovered.values()):,} rows measured")
    return "\n".join(lines)
