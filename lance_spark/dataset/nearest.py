"""Vector search of a `Dataset`: the nearest rows, with the column `_distance`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.scan.fragment.row_meta import DISTANCE, QUERY_INDEX
from lance_spark.scan.indexes.files import INDEX_ERRORS
from lance_spark.scan.plan import UsedIndex
from lance_spark.scan.vectors.distances import normalized
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.probes import probed

if TYPE_CHECKING:
    from lance_spark.scan.vectors.search import VectorSearch
    from lance_spark.table.paths import TablePaths

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

    Returns
    -------
    tuple of pa.Field
        The number of the query, if there are several; and the distance.

    Raises
    ------
    InvalidInputError
        A column of the table has such a name.
    """
    for field in (QUERY_INDEX, DISTANCE) if is_batch else (DISTANCE,):
        if field.name in names:
            raise InvalidInputError(
                f"the table has a column {field.name!r}, which is a name of a column of a vector "
                "search; rename it"
            )
    return QUERY_INDEX.arrow_field if is_batch else None, DISTANCE.arrow_field
