"""Clauses of a merge, and what tasks are told of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

#: Names of the two sides where users give none: those of pylance.
TARGET, SOURCE = "target", "source"


class Rows(Enum):
    """Rows that a clause is about."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


class Action(Enum):
    """What a clause does to them."""

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
        By column, of updates and inserts; None for all columns that the source has.
    """

    rows: Rows
    action: Action
    condition: str | Column | None = None
    values: Mapping[str, str | Column] | None = None

    @property
    def takes_all(self) -> bool:
        """Whether it writes what the source has."""
        return self.values is None and self.action is not Action.DELETE


@dataclass(frozen=True, slots=True)
class Step:
    """What a task does with rows whose action is this clause.

    Attributes
    ----------
    action : Action
    names : tuple of str
        Columns of the table that it gives values for.
    conditional : bool
    """

    action: Action
    names: tuple[str, ...]
    conditional: bool


def quoted(*path: str) -> str:
    """Return the name of a column, or of a child of one, whatever characters are in it."""
    return ".".join("`" + item.replace("`", "``") + "`" for item in path)
