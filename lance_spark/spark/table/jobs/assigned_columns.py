"""New values of columns and of children of structs, as expressions of Spark for whole columns.

A struct with a new child is put together of all its children. It is not null then, even where it
was: as in Delta Lake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.child_values import Path, check_disjoint_paths, names_of, path_to
from lance_spark.spark.table.dataframes import cast_to, to_column
from lance_spark.spark.table.merge.clauses import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column


def assigned_columns(
    schema: Schema,
    values: Mapping[str, str | Column],
    what: str,
    *,
    find: Callable[[Sequence[str], str], int],
    alias: str | None = None,
    qualifier: Sequence[str] = (),
) -> dict[str, str | Column]:
    """Return an expression for each column that gets new values, by the table's own names.

    Parameters
    ----------
    schema : Schema
        Of the table.
    values : mapping of str to str or Column
        By column, or by child of a struct, behind dots; names with other characters have backticks
        around them.
    what : str
        What errors call `values`.
    find : callable
        Finds a name among others, as the session does; see `projection.finder`.
    alias : str, optional
        Of the table, which may stand before the names.
    qualifier : sequence of str
        What expressions name the columns of the table by.

    Raises
    ------
    InvalidInputError
        There are two values for one column, or an expression is not one.
    SchemaMismatchError
        There is no such column.
    UnsupportedError
        A struct that has blobs gets a new child.
    """
    results: dict[Path, str | Column] = {}
    tops: dict[str, Field] = {}
    for name, value in values.items():
        path = path_to(schema, name, find, alias)
        names = names_of(path)
        check_disjoint_paths(names, list(results), what)
        results[names] = to_column(value, f"{what}[{name!r}]") if len(names) > 1 else value
        tops[names[0]] = path[0]
    return {
        name: results[(name,)]
        if (name,) in results
        else _struct(field, (name,), results, qualifier)
        for name, field in tops.items()
    }


def _struct(
    field: Field, path: Path, given: Mapping[Path, str | Column], qualifier: Sequence[str]
) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    children = []
    for child in field.children:
        below = (*path, child.name)
        if below in given:
            value = cast_to(to_column(given[below], ".".join(below)), child)
        elif any(item[: len(below)] == below for item in given):
            value = _struct(child, below, given, qualifier)
        else:
            value = F.col(quoted(*qualifier, *below))
        children.append(value.alias(child.name))
    return F.struct(*children)
