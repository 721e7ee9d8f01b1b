"""Clauses of a merge, and new values of columns as Spark expressions.

If a child of a struct gets a new value, the struct is built from all its children. So a null struct
becomes non-null, as in Delta Lake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.assignments import Path, check_disjoint_paths, names_of, path_to
from lance_spark.spark.quoting import quoted
from lance_spark.spark.table.dataframes import to_column

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Default aliases of the two sides, as in pylance.
TARGET, SOURCE = "target", "source"


class Rows(Enum):
    """The kinds of rows to which a clause can apply."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


class Action(Enum):
    """The change that a clause makes."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of a merge.

    Attributes
    ----------
    values : mapping of str to str or Column, optional
        Expressions of an update or insert by column. None: all columns of the source.
    """

    rows: Rows
    action: Action
    condition: str | Column | None = None
    values: Mapping[str, str | Column] | None = None

    @property
    def takes_all(self) -> bool:
        """Whether the clause writes all columns of the source."""
        return self.values is None and self.action is not Action.DELETE


@dataclass(frozen=True, slots=True)
class TaskClause:
    """A clause as tasks need it.

    Attributes
    ----------
    names : tuple of str
        Columns of the table that the clause writes.
    """

    action: Action
    names: tuple[str, ...]
    conditional: bool


def assigned_columns(
    schema: Schema,
    values: Mapping[str, str | Column],
    label: str,
    *,
    find: Callable[[Sequence[str], str], int],
    alias: str | None = None,
    qualifier: Sequence[str] = (),
) -> dict[str, str | Column]:
    """Return an expression for each column that gets new values, by its name in the table.

    Parameters
    ----------
    values : mapping of str to str or Column
        New values by the name of a column, or the dotted path of a child of a struct. Names with
        special characters are in backticks.
    label : str
        Name of `values` in errors.
    find : callable
        Returns the index of a name in a sequence, as the session resolves names; see
        `projection.finder`.
    alias : str, optional
        Alias of the table, which can precede the names.
    qualifier : sequence of str
        Qualifier of the columns of the table in the returned expressions.

    Raises
    ------
    InvalidInputError
        A column gets two values, or a value is not an expression.
    SchemaMismatchError
        A column is not found.
    UnsupportedError
        A child of a struct with blobs gets a new value.
    """
    by_path: dict[Path, str | Column] = {}
    columns: dict[str, Field] = {}
    for name, value in values.items():
        fields = path_to(schema, name, find, alias)
        path = names_of(fields)
        check_disjoint_paths(path, list(by_path), label)
        by_path[path] = to_column(value, f"{label}[{name!r}]") if len(path) > 1 else value
        columns[path[0]] = fields[0]
    return {
        name: by_path[(name,)]
        if (name,) in by_path
        else _struct(field, (name,), by_path, qualifier)
        for name, field in columns.items()
    }


def _struct(
    field: Field, path: Path, values: Mapping[Path, str | Column], qualifier: Sequence[str]
) -> Column:
    """Return a struct of its children, with new values for some of them."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    children = []
    for child in field.children:
        child_path = (*path, child.name)
        if child_path in values:
            # The caller casts the struct. This cast matches the children of the value by name.
            value = to_column(values[child_path], ".".join(child_path))
        elif any(path_with_value[: len(child_path)] == child_path for path_with_value in values):
            value = _struct(child, child_path, values, qualifier)
        else:
            value = F.col(quoted(*qualifier, *child_path))
        children.append(value.alias(child.name))
    return F.struct(*children)
