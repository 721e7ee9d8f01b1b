"""The queries of searches: parsed, with the columns that a search adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.indexes.files import INDEX_ERRORS
from lance_spark.indexes.text.columns import needs_index
from lance_spark.indexes.text.queries import FullTextQuery, QueryLike, leaves, parse_query
from lance_spark.indexes.text.search import TextSearch, indexed_columns
from lance_spark.indexes.vectors.columns import Metric
from lance_spark.indexes.vectors.distances import normalized
from lance_spark.indexes.vectors.index_search import probed
from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX, SCORE
from lance_spark.scan.plan import UsedIndex
from lance_spark.table.indexes import sections as indexes

if TYPE_CHECKING:
    from lance_spark.indexes.vectors.search import VectorSearch
    from lance_spark.table.open import OpenTable
    from lance_spark.table.paths import TablePaths


# --------------------------------------------------------------------------------------------------
# Full-text search of a `Dataset`: rows in the order of their scores, with the column `_score`.


def parsed_query(table: OpenTable, query: QueryLike) -> FullTextQuery:
    """Return a query, which searches all indexed columns if it names none.

    Raises CorruptTableError. Raises InvalidInputError: the query is malformed, or names a column
    that does not exist.
    """
    section = indexes.read_section(table.manifest)
    names = dict(_names(table.schema.fields))
    parsed = parse_query(query, indexed_columns(section.indices, names))
    for leaf in leaves(parsed):
        table.schema.path(leaf.column)
    return parsed


def can_ignore_indexes(search: TextSearch) -> bool:
    """Return whether texts can be read in place of indexes, if there are any."""
    uses_index = any(plan.segments for plan in search.columns.values())
    return uses_index and not needs_index(list(leaves(search.query)))


def score_field(names: Sequence[str]) -> pa.Field:
    """Return the column of scores, for a table with columns of some names.

    Raises InvalidInputError: a column of the table has its name.
    """
    if SCORE.name in names:
        raise InvalidInputError(
            f"the table has a column {SCORE.name!r}, which is the name of the scores of a "
            "full-text query; rename it"
        )
    return SCORE.arrow_field


def _names(fields: Sequence[Field], parent: str = "") -> Iterator[tuple[int, str]]:
    """Yield the id of each field with its name; a child of a struct has a path with dots."""
    for node in fields:
        yield node.id, parent + node.name
        if node.logical_type == "struct":
            yield from _names(node.children, f"{parent}{node.name}.")


# --------------------------------------------------------------------------------------------------
# Vector search of a `Dataset`: the nearest rows, with the column `_distance`.

#: Queries of a batch whose partitions are counted.
_EXPLAINED = 100


def searched_indexes(paths: TablePaths, search: VectorSearch) -> tuple[UsedIndex, ...]:
    """Return the indexes of a search, with the partitions that are searched first."""
    vectors = search.dtype.query(search.query.vectors[:_EXPLAINED], search.metric)
    if search.metric is Metric.COSINE:
        vectors = normalized(vectors)
    num_probed = num_partitions = num_measured = 0
    if not search.segments:
        return ()
    try:
        for segment in search.segments:
            opened = segment.open(paths)
            numbers = probed(opened.ivf, opened.metric, search.query, vectors)
            num_probed += len(numbers)
            num_partitions += segment.num_partitions
            num_measured += int(opened.ivf.lengths[numbers].sum())
    except INDEX_ERRORS:
        # The search itself says what is wrong.
        return search.indexes
    parts = [
        f"{opened.index_type} {search.metric.value}",
        f"{num_probed:,} of {num_partitions:,} partitions",
        f"{num_measured:,} rows measured",
    ]
    if search.measures_again:
        factor = search.query.refine_factor or 1
        parts.append(f"{factor * search.query.k:,} of them again by their vectors")
    if search.uncovered:
        parts.append(f"{sum(search.uncovered.values()):,} rows without an index")
    return tuple(index._replace(search=", ".join(parts)) for index in search.indexes)


def search_fields(names: Sequence[str], *, is_batch: bool) -> tuple[pa.Field | None, pa.Field]:
    """Return the columns that a search adds to a table with columns of some names.

    Returns the number of the query, if there are several; and the distance. Raises
    InvalidInputError: a column of the table has such a name.
    """
    for field in (QUERY_INDEX, DISTANCE) if is_batch else (DISTANCE,):
        if field.name in names:
            raise InvalidInputError(
                f"the table has a column {field.name!r}, which is a name of a column of a vector "
                "search; rename it"
            )
    return QUERY_INDEX.arrow_field if is_batch else None, DISTANCE.arrow_field
