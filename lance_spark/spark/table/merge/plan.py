"""The joined frame of a merge: which clause applies to a row, and the values that it gives.

| column | what |
| --- | --- |
| address | of the row of the table; null for rows of the source alone |
| action | number of the first clause whose condition is true |
| values | by column of the table, new values of rows whose clause gives one; null elsewhere |

Which side a row has is said by marks of our own, never by nulls in columns of users. Only sides
that a clause needs are kept: a merge that inserts nothing is an inner join. Rows of one row of the
table are next to one another in one partition, and so are new ones of one key; how many partitions
there are Spark may choose while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.child_values import name_parts
from lance_spark.scan.fragment.row_meta import META_FIELDS
from lance_spark.spark.jobs.job import parallelism
from lance_spark.spark.read.projection import find_exactly, finder
from lance_spark.spark.table.dataframes import is_named, to_column
from lance_spark.spark.table.jobs.assigned_columns import assigned_columns
from lance_spark.spark.table.merge.clauses import TARGET, Action, Clause, Step
from lance_spark.spark.table.merge.join import ADDRESS, GIVEN, VALUE, Join, texts_of
from lance_spark.table.rows.addresses import OFFSET_BITS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableBase

_PLACE = "__merge_place"
#: Columns of a change feed, which are there to be asked for, not to be written.
_OF_FEEDS = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
_ADAPTIVE = ("spark.sql.adaptive.enabled", "spark.sql.adaptive.coalescePartitions.enabled")
#: Partitions for each task that can run at the same time, where Spark does not choose.
_WAVES = 2
#: Types that can be hashed, and tell rows from one another.
_SIMPLE_TYPES = frozenset(
    {
        *("boolean", "byte", "short", "integer", "long", "float", "double", "decimal"),
        *("string", "binary", "date", "timestamp", "timestamp_ntz"),
    }
)


@dataclass(frozen=True, slots=True)
class MergeFrame:
    """The joined frame.

    Attributes
    ----------
    rows : DataFrame
        Address, action, and the values of `names`.
    names : tuple of str
        Columns of the table.
    steps : tuple of Step
        By number of the action.
    """

    rows: DataFrame
    names: tuple[str, ...]
    steps: tuple[Step, ...]


def merge_frame(
    base: TableBase,
    dataset: Dataset,
    source: DataFrame,
    condition: str | Column,
    clauses: Sequence[Clause],
    key: Sequence[tuple[Field, ...]],
    kept: Sequence[str] = (),
) -> MergeFrame:
    """Return the joined frame of a merge into a version.

    Parameters
    ----------
    base : TableBase
    dataset : Dataset
        At the version.
    source : DataFrame
    condition : str or Column
        Of pairs of rows.
    clauses : sequence of Clause
        In the order that they are asked in.
    key : sequence of tuple of Field
        The primary key of the table; see `primary_key`.
    kept : sequence of str
        Columns that updates with all columns of the source leave as they are.

    Raises
    ------
    InvalidInputError
        Spark cannot make sense of a condition or expression.
    SchemaMismatchError
        The table has no such column; or one that must not be null gets no value.
    """
    schema = dataset._table.schema
    texts = texts_of(condition, clauses)
    taken = (
        _taken(schema, source, texts, finder(base.spark))
        if any(item.takes_all for item in clauses)
        else {}
    )
    alias = base.alias_name or TARGET
    found_by = finder(base.spark)
    given = [_values(schema, alias, clause, taken, kept, found_by) for clause in clauses]
    names = tuple(name for name in schema.names if any(name in item for item in given))
    places = sorted(taken.values())
    join = Join(base, dataset, source, condition, clauses, given, places)
    rows = _placed(base.spark, join.rows(names), clauses, names, key)
    steps = tuple(
        Step(clause.action, tuple(item), clause.condition is not None)
        for clause, item in zip(clauses, given, strict=True)
    )
    return MergeFrame(rows, names, steps)


def column_of(
    schema: Schema,
    name: str,
    what: str,
    find: Callable[[Sequence[str], str], int],
    alias: str | None = None,
) -> str:
    """Return the table's own name of a column, which can be given behind the alias of the table,
    and in backticks.

    Raises
    ------
    SchemaMismatchError
        There is none.
    """
    position = find(schema.names, name)
    if position < 0:
        parts = name_parts(name) or [name]
        if len(parts) > 1 and alias is not None and parts[0].lower() == alias.lower():
            del parts[0]
        position = find(schema.names, parts[0]) if len(parts) == 1 else -1
        hint = "; children of structs cannot be set in new rows" if len(parts) > 1 else ""
    if position < 0:
        raise SchemaMismatchError(
            f"{what}: the table has no column {name!r}, only {', '.join(schema.names)}{hint}"
        )
    return schema.names[position]


def _col(name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    return F.col(name)


def _taken(
    schema: Schema,
    source: DataFrame,
    texts: Sequence[str | Column],
    find: Callable[[Sequence[str], str], int],
) -> dict[str, int]:
    """Return the columns of the table that the source has, and where.

    Raises
    ------
    SchemaMismatchError
        The source has others, which no condition or expression names; or two for one.
    """
    results: dict[str, int] = {}
    text = "\n".join(map(str, texts)).lower()
    for number, name in enumerate(source.columns):
        position = find(schema.names, name)
        if position >= 0:
            if schema.names[position] in results:
                raise SchemaMismatchError(
                    f"the source has two columns for {schema.names[position]!r}: select one"
                )
            results[schema.names[position]] = number
            continue
        lower = name.lower()
        if lower in META_FIELDS or lower in _OF_FEEDS:
            continue
        if not is_named(lower, text):
            raise SchemaMismatchError(
                f"the source has a column {name!r}, and the table none of that name, only "
                f"{', '.join(schema.names)}; no condition "
                "names it either: drop it, add it to the table by addColumns, or give values "
                "column by column"
            )
    if not results:
        raise SchemaMismatchError(
            f"the source has none of the table's columns: {', '.join(schema.names)}"
        )
    return results


def _values(
    schema: Schema,
    alias: str,
    clause: Clause,
    taken: Mapping[str, int],
    kept: Sequence[str],
    find: Callable[[Sequence[str], str], int],
) -> dict[str, Column]:
    """Return what a clause gives, by the table's own names, in the table's order.

    Raises
    ------
    SchemaMismatchError
        There is no such column, or one that must not be null is not given.
    InvalidInputError
        One is given twice.
    """
    if clause.action is Action.DELETE:
        return {}
    what = f"{clause.rows.value}, {clause.action.value}"
    results: dict[str, Column] = {}
    if clause.values is None:
        left = kept if clause.action is Action.UPDATE else ()
        results = {
            name: _col(GIVEN.format(position))
            for name, position in taken.items()
            if name not in left
        }
    else:
        given: Mapping[str, str | Column] = clause.values
        if clause.action is Action.UPDATE:
            given = assigned_columns(
                schema, given, what, find=find, alias=alias, qualifier=(alias,)
            )
            # By the names of the table.
            find = find_exactly
        for name, value in given.items():
            column = column_of(schema, name, what, find, alias)
            if column in results:
                raise InvalidInputError(f"{what}: there are two values for column {column!r}")
            results[column] = to_column(value, f"{what}: {name}")
    if clause.action is Action.INSERT:
        missing = [
            field.name
            for field in schema.fields
            if not field.nullable and field.name not in results
        ]
        if missing:
            raise SchemaMismatchError(
                f"{what}: column {missing[0]!r} must not be null, and gets no value"
            )
    return {name: results[name] for name in schema.names if name in results}


def _placed(
    spark: SparkSession,
    rows: DataFrame,
    clauses: Sequence[Clause],
    names: Sequence[str],
    key: Sequence[tuple[Field, ...]],
) -> DataFrame:
    """Bring rows that must be compared to one partition, next to one another."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    there = _col(ADDRESS)
    place = F.shiftright(there, OFFSET_BITS)
    order = [there.asc_nulls_first()]
    if any(item.action is Action.INSERT for item in clauses):
        if key:
            parts = list(_key_columns(names, key))
            order += parts
        else:
            types = (item.dataType.typeName() for item in rows.schema.fields[2:])
            simple = [position for position, kind in enumerate(types) if kind in _SIMPLE_TYPES]
            parts = [_col(VALUE.format(position)) for position in simple]
        new = F.xxhash64(*parts) if parts else F.spark_partition_id().cast("bigint")
        place = F.when(there.isNotNull(), place).otherwise(new)
    placed = rows.select("*", place.alias(_PLACE))
    if all(str(spark.conf.get(name, "true")).lower() == "true" for name in _ADAPTIVE):
        # Spark puts small partitions together when it knows how large they are.
        placed = placed.repartition(_PLACE)
    else:
        placed = placed.repartition(_WAVES * parallelism(spark), _PLACE)
    return placed.sortWithinPartitions(*order).drop(_PLACE)


def _key_columns(names: Sequence[str], key: Sequence[tuple[Field, ...]]) -> Iterator[Column]:
    for top, *below in key:
        column = _col(VALUE.format(names.index(top.name)))
        for item in below:
            column = column.getField(item.name)
        yield column
