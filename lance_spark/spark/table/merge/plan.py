"""The joined frame of a merge: the clause that applies to each row, and its values.

| column | meaning |
| --- | --- |
| address | address of the row of the table; null for a row that is only in the source |
| clause | number of the first clause whose condition is true |
| values | by column of the table, the new value; null where the clause does not write the column |

Columns of this package mark the side of a row, since columns of users can be null on either side.
Only rows that a clause needs are kept: a merge without inserts is an inner join. Rows with the same
address are adjacent in one partition, and so are new rows with the same key. Spark may choose the
number of partitions at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lance_spark.errors import InvalidInputError, SchemaMismatchError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.assignments import name_parts
from lance_spark.scan.fragment.row_meta import META_FIELDS
from lance_spark.spark.job import parallelism
from lance_spark.spark.quoting import quoted
from lance_spark.spark.read.projection import find_exactly, finder
from lance_spark.spark.table.checks import checked_rows, checks_on, named_by
from lance_spark.spark.table.dataframes import default_of, is_named, null_of, to_column
from lance_spark.spark.table.merge.join import (
    ADDRESS,
    CLAUSE,
    SOURCE_COLUMN,
    TARGET,
    VALUE,
    Action,
    Clause,
    MergeJoin,
    Rows,
    TaskClause,
    assigned_columns,
    expressions_of,
    kept_source,
    key_tree,
)
from lance_spark.table.constraints import Constraint
from lance_spark.table.rows.addresses import OFFSET_BITS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.spark.table.base import TableHandle

_PARTITION_KEY = "__merge_place"
#: Columns of a change feed, which conditions can name, but which are not written.
_FEED_COLUMNS = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
_ADAPTIVE = ("spark.sql.adaptive.enabled", "spark.sql.adaptive.coalescePartitions.enabled")
#: Partitions per concurrent task, where Spark does not choose their number.
_WAVES = 2
#: Types by whose hash new rows without a key are distributed.
_SIMPLE_TYPES = frozenset(
    {
        *("boolean", "byte", "short", "integer", "long", "float", "double", "decimal"),
        *("string", "binary", "date", "timestamp", "timestamp_ntz"),
    }
)


@dataclass(frozen=True, slots=True)
class MergeFrame:
    """The joined frame of a merge.

    - `rows`: Address, number of the clause, and the values of `names`.
    - `names`: Columns of the table.
    - `clauses`: Indexed by their numbers.
    """

    rows: DataFrame
    names: tuple[str, ...]
    clauses: tuple[TaskClause, ...]


def merge_frame(
    handle: TableHandle,
    dataset: Dataset,
    source: DataFrame,
    condition: str | Column,
    clauses: Sequence[Clause],
    key: Sequence[tuple[Field, ...]],
    unchanged: Sequence[str] = (),
) -> MergeFrame:
    """Return the joined frame of a merge into a version.

    Its rows meet the conditions of the table, or raise an error.

    - `clauses`: In the order in which they are tried.
    - `key`: The primary key of the table; see `primary_key`.
    - `unchanged`: Columns that updates with all columns of the source do not write.

    Raises InvalidInputError: Spark cannot analyse a condition or expression. Raises
    SchemaMismatchError: a column is not found, or a column that is not nullable gets no value.
    """
    schema = dataset._table.schema
    find = finder(handle.spark)
    expressions = expressions_of(condition, clauses)
    source_indexes = (
        _source_indexes(schema, source, expressions, find)
        if any(clause.takes_all for clause in clauses)
        else {}
    )
    alias = handle.alias_name or TARGET
    values = [
        _clause_values(schema, alias, clause, source_indexes, unchanged, find) for clause in clauses
    ]
    written = [tuple(columns) for columns in values]
    names = tuple(name for name in schema.names if any(name in columns for columns in written))
    inserts = any(clause.action is Action.INSERT for clause in clauses)
    checks = checks_on(dataset._table, None if inserts else names)
    named = named_by(checks, schema.names)
    for clause, columns in zip(clauses, values, strict=True):
        if clause.action is not Action.DELETE:
            columns.update(_other_values(schema, alias, clause, set(named) - columns.keys()))
    read = (*names, *(name for name in named if name not in names))
    indexes = sorted(source_indexes.values())
    needs_all = any(clause.rows is Rows.NOT_MATCHED_BY_SOURCE for clause in clauses)
    kept = None if needs_all else kept_source(source, dataset)
    join = MergeJoin(handle, dataset, kept or source, condition, clauses, values, indexes)
    rows = join.rows(read)
    tree = None if kept is None else key_tree(rows, kept, dataset)
    if tree is not None:
        rows = replace(join, filter_tree=tree).rows(read)
    if checks:
        rows = _checked(rows, checks, clauses, read, len(names))
    rows = _distributed(handle.spark, rows, clauses, names, key)
    task_clauses = tuple(
        TaskClause(clause.action, columns, clause.condition is not None)
        for clause, columns in zip(clauses, written, strict=True)
    )
    return MergeFrame(rows, names, task_clauses)


def _other_values(
    schema: Schema, alias: str, clause: Clause, names: Collection[str]
) -> dict[str, Column]:
    """Return the values of columns that a clause does not write, for conditions that name them."""
    if clause.action is Action.UPDATE:
        return {name: _col(quoted(alias, name)) for name in names}
    fields = (field for field in schema.fields if field.name in names)
    return {field.name: null_of(field) for field in fields}


def _checked(
    rows: DataFrame,
    checks: Sequence[Constraint],
    clauses: Sequence[Clause],
    read: Sequence[str],
    num_written: int,
) -> DataFrame:
    """Return the rows that meet conditions, with the values that clauses write.

    - `read`: The columns of the values: those that clauses write, and others.
    """
    deletes = [number for number, clause in enumerate(clauses) if clause.action is Action.DELETE]
    named = (_col(VALUE.format(index)).alias(name) for index, name in enumerate(read))
    return checked_rows(
        rows.select("*", *named),
        checks,
        kept=rows.columns[: len(rows.columns) - len(read) + num_written],
        unless=_col(CLAUSE).isin(deletes) if deletes else None,
    )


def column_of(
    schema: Schema,
    name: str,
    label: str,
    find: Callable[[Sequence[str], str], int],
    alias: str | None = None,
) -> str:
    """Return the name of a column as the table spells it.

    - `name`: Name, which may follow the alias of the table and a dot, and may be in backticks.
    - `label`: Start of the error.
    - `find`: Returns the index of a name in a sequence; see `projection.finder`.

    Raises SchemaMismatchError: the column is not found.
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
            f"{label}: the table has no column {name!r}, only {', '.join(schema.names)}{hint}"
        )
    return schema.names[position]


def _col(name: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    return F.col(name)


def _source_indexes(
    schema: Schema,
    source: DataFrame,
    expressions: Sequence[str | Column],
    find: Callable[[Sequence[str], str], int],
) -> dict[str, int]:
    """Return the indexes of the source's columns by the names of the table's columns.

    Raises SchemaMismatchError: the source has a column that neither the table has nor an expression
    names, or two columns for one of the table.
    """
    indexes: dict[str, int] = {}
    text = "\n".join(map(str, expressions)).lower()
    for index, source_name in enumerate(source.columns):
        position = find(schema.names, source_name)
        if position >= 0:
            name = schema.names[position]
            if name in indexes:
                raise SchemaMismatchError(f"the source has two columns for {name!r}: select one")
            indexes[name] = index
            continue
        lower = source_name.lower()
        if lower in META_FIELDS or lower in _FEED_COLUMNS:
            continue
        if not is_named(lower, text):
            raise SchemaMismatchError(
                f"the source has a column {source_name!r} that the table does not have and no "
                f"condition names; the table has {', '.join(schema.names)}; drop the column, add "
                "it to the table by add_columns, or set values column by column"
            )
    if not indexes:
        raise SchemaMismatchError(
            f"the source has no column of the table; the table has {', '.join(schema.names)}"
        )
    return indexes


def _clause_values(
    schema: Schema,
    alias: str,
    clause: Clause,
    source_indexes: Mapping[str, int],
    unchanged: Sequence[str],
    find: Callable[[Sequence[str], str], int],
) -> dict[str, Column]:
    """Return the values that a clause writes, by column of the table, in the table's order.

    Raises SchemaMismatchError: a column is not found, or a column that is not nullable gets no
    value. Raises InvalidInputError: a column gets two values.
    """
    if clause.action is Action.DELETE:
        return {}
    label = f"{clause.rows.value}, {clause.action.value}"
    columns: dict[str, Column] = {}
    if clause.values is None:
        omitted = unchanged if clause.action is Action.UPDATE else ()
        columns = {
            name: _col(SOURCE_COLUMN.format(index))
            for name, index in source_indexes.items()
            if name not in omitted
        }
    else:
        values: Mapping[str, str | Column] = clause.values
        if clause.action is Action.UPDATE:
            values = assigned_columns(
                schema, values, label, find=find, alias=alias, qualifier=(alias,)
            )
            # Their names are spelled as in the table.
            find = find_exactly
        for name, value in values.items():
            column = column_of(schema, name, label, find, alias)
            if column in columns:
                raise InvalidInputError(f"{label}: column {column!r} gets two values")
            columns[column] = to_column(value, f"{label}: {name}")
    if clause.action is Action.INSERT:
        for field in schema.fields:
            if field.name not in columns and (default := default_of(field)) is not None:
                columns[field.name] = default
        missing = [
            field.name
            for field in schema.fields
            if not field.nullable and field.name not in columns
        ]
        if missing:
            raise SchemaMismatchError(
                f"{label}: column {missing[0]!r} must not be null, but gets no value"
            )
    return {name: columns[name] for name in schema.names if name in columns}


def _distributed(
    spark: SparkSession,
    rows: DataFrame,
    clauses: Sequence[Clause],
    names: Sequence[str],
    key: Sequence[tuple[Field, ...]],
) -> DataFrame:
    """Make rows that tasks must compare adjacent in one partition."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    address = _col(ADDRESS)
    partition_key = F.shiftright(address, OFFSET_BITS)
    order = [address.asc_nulls_first()]
    if any(clause.action is Action.INSERT for clause in clauses):
        if key:
            hashed = list(_key_columns(names, key))
            order += hashed
        else:
            types = [field.dataType.typeName() for field in rows.schema.fields[2:]]
            simple = [index for index, name in enumerate(types) if name in _SIMPLE_TYPES]
            # A hash of blobs would be the only expression that needs their bytes.
            short = [index for index in simple if types[index] != "binary"]
            hashed = [_col(VALUE.format(index)) for index in short or simple]
        new = F.xxhash64(*hashed) if hashed else F.spark_partition_id().cast("bigint")
        partition_key = F.when(address.isNotNull(), partition_key).otherwise(new)
    rows = rows.select("*", partition_key.alias(_PARTITION_KEY))
    if all(str(spark.conf.get(name, "true")).lower() == "true" for name in _ADAPTIVE):
        # Spark joins small partitions at run time, when it knows their sizes.
        rows = rows.repartition(_PARTITION_KEY)
    else:
        rows = rows.repartition(_WAVES * parallelism(spark), _PARTITION_KEY)
    return rows.sortWithinPartitions(*order).drop(_PARTITION_KEY)


def _key_columns(names: Sequence[str], key: Sequence[tuple[Field, ...]]) -> Iterator[Column]:
    for top, *children in key:
        column = _col(VALUE.format(names.index(top.name)))
        for child in children:
            column = column.getField(child.name)
        yield column
