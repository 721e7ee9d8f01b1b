"""Clauses of a merge, as users add them and as tasks receive them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

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
    rows : Rows
    action : Action
    condition : str or Column, optional
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
    action : Action
    names : tuple of str
        Columns of the table that the clause writes.
    conditional : bool
        Whether the clause has a condition.
    """

    action: Action
    names: tuple[str, ...]
    conditional: bool


def quoted(*path: str) -> str:
    """Return the path of a column or child in backticks, so that it can have any characters."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)
