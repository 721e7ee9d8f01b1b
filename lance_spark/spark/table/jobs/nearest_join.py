"""Plans nearest-neighbour joins: the queries of a DataFrame against the vectors of a table.

| step (`join_steps`) | partitions by | what it does |
| --- | --- | --- |
| `AssignQueries` | the queries' own | sends each query to slots that may have its nearest rows |
| `SearchSlots` | slot (`nearest_slots`) | the nearest rows of each query in the slot |
| `ReadRows` | query | the nearest rows of all slots; reads their columns |

The columns of a query travel once through each step (`join_rows`), so that the DataFrame of the
queries is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lance_spark.errors import InvalidInputError
from lance_spark.scan.fragment.row_meta import DISTANCE, ROW_ID
from lance_spark.scan.vectors.columns import VectorType
from lance_spark.scan.vectors.query import parse_nearest
from lance_spark.spark.job import Job, parallelism
from lance_spark.spark.quoting import quoted
from lance_spark.spark.read.snapshot import snapshot_of
from lance_spark.spark.table.dataframes import analysis_errors
from lance_spark.spark.table.jobs import join_rows
from lance_spark.spark.table.jobs.find_rows import find_rows
from lance_spark.spark.table.jobs.join_rows import FIRST, NEIGHBORS, ROW, SECOND, SLOT, VECTOR
from lance_spark.spark.table.jobs.join_steps import (
    AssignQueries,
    NearestJoin,
    ReadRows,
    SearchSlots,
)
from lance_spark.spark.table.jobs.nearest_slots import Slots, ranges_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from lance_spark.scan.search_keywords import IndexSearchKeywords
    from lance_spark.spark.table.base import TableHandle

#: Tasks of a step for each task that runs at a time.
_WAVES = 2


def nearest_join(
    handle: TableHandle,
    queries: DataFrame,
    on: str | tuple[str, str],
    nearest: Mapping[str, Any],
    *,
    how: str,
    columns: Sequence[str] | None,
    aliases: Mapping[str, str],
    condition: str | Column | None,
    search: IndexSearchKeywords,
    with_row_id: bool,
    blob_handling: str,
) -> DataFrame:
    """Return the queries with their nearest rows; see `LanceTable.nearest_join`.

    Parameters
    ----------
    nearest : mapping
        Keys of `nearest` of `Dataset.to_table`, without the column and the query.
    search : IndexSearchKeywords
    """
    from pyspark.sql import functions

    if how not in ("inner", "left"):
        raise InvalidInputError(f"how must be one of 'inner', 'left', not {how!r}")
    query_column, column = (on, on) if isinstance(on, str) else on
    dataset = handle.dataset()
    dtype = VectorType.of(dataset._table.schema.path(column))
    if dtype.is_multi:
        raise InvalidInputError(f"column {column!r} has multivectors, which a join cannot compare")
    vector = functions.col(quoted(query_column))
    _check_vectors(queries, vector, query_column)
    any_query = [0] * dtype.dimension
    query = parse_nearest({**nearest, "column": column, "q": [any_query]})
    planned = dataset._reader.plan_nearest(query, **search)
    if columns is None:
        every = dataset._stored_schema(blob_handling=blob_handling).names
        columns = [name for name in every if name != column]
    read = [*columns, ROW_ID.name] if with_row_id else list(columns)
    # Paths of children of a struct are one column.
    read_names = dataset._stored_schema(read, blob_handling=blob_handling).names
    if unknown := aliases.keys() - set(read_names):
        raise InvalidInputError(
            f"aliases: {min(unknown)!r} is not a column of the result; the columns of the table in "
            f"it are {', '.join(read_names)}"
        )
    names = [aliases.get(name, name) for name in read_names]
    _check_names(queries, [*names, DISTANCE.name])
    allowed = None
    if condition is not None:
        with Job(handle.spark, dataset._table, "nearest join") as job:
            allowed = ranges_of(find_rows(handle, job, dataset, condition))
    join = NearestJoin(
        table=snapshot_of(dataset._table),
        slots=Slots.of(planned, dataset.fragments, _WAVES * parallelism(handle.spark), allowed),
        columns=tuple(read),
        names=tuple(names),
        blob_handling=blob_handling,
        keeps_all=how == "left",
        vectors=query_column,
    )
    return _joined(join, queries, vector)


def _joined(join: NearestJoin, queries: DataFrame, vector: Column) -> DataFrame:
    from pyspark.sql import functions
    from pyspark.sql.types import FloatType, StructField, StructType

    between = join_rows.joined_schema(queries.schema)
    table_fields = [
        StructField(name, field.dataType)
        for name, field in zip(join.names, join.table_columns(), strict=True)
    ]
    distance = StructField(DISTANCE.name, FloatType())
    schema = StructType([*queries.schema.fields, *table_fields, distance])
    query_rows = queries.select(functions.struct("*").alias(ROW), vector.alias(VECTOR))
    probes = query_rows.mapInArrow(AssignQueries(join), between)
    routed = probes.repartition(join.slots.num_partitions, SLOT)
    partial = routed.sortWithinPartitions(SLOT).mapInArrow(SearchSlots(join), between)
    # Partial results of a key come before its queries.
    is_query = functions.col(NEIGHBORS).isNull()
    keyed = partial.repartition(FIRST, SECOND)
    keyed = keyed.sortWithinPartitions(FIRST, SECOND, is_query)
    return keyed.mapInArrow(ReadRows(join, schema), schema)


def _check_vectors(queries: DataFrame, vector: Column, name: str) -> None:
    """Raise an error unless a column of queries has arrays of numbers."""
    from pyspark.sql.types import ArrayType, DecimalType, NumericType

    with analysis_errors("on"):
        dtype = queries.select(vector).schema[0].dataType
    items = dtype.elementType if isinstance(dtype, ArrayType) else None
    if not isinstance(items, NumericType) or isinstance(items, DecimalType):
        raise InvalidInputError(
            f"column {name} of the queries must have arrays of numbers, not {dtype.simpleString()}"
        )


def _check_names(queries: DataFrame, names: Sequence[str]) -> None:
    """Raise an error if columns of the table have names that are taken."""
    taken = {name.lower() for name in queries.columns}
    for name in names:
        if name.lower() in taken:
            raise InvalidInputError(
                f"column {name} is a column of the queries or of the result already; choose others "
                f"by columns, or give it another name, such as aliases={{{name!r}: 'found_{name}'}}"
            )
        taken.add(name.lower())
