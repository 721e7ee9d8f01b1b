"""The content of a table, as the checker records it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import lance_spark

Row = Mapping[str, Any]


@dataclass(frozen=True)
class State:
    """The content of a version.

    Attributes
    ----------
    rows : mapping of int to Row
        By the id that each row is written with, and no other ever is.
    columns : mapping of str to str
        Names and types.
    config : mapping of str to str
    row_ids : mapping of int to int
        The stable row id of each row, if the table has such.
    """

    rows: Mapping[int, Row] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    row_ids: Mapping[int, int] = field(default_factory=dict, compare=False)

    def with_rows(self, rows: Mapping[int, Row]) -> State:
        return replace(self, rows=rows)


class TwiceError(Exception):
    """A row occurs more than once."""


#: Takes the state before, and the older versions of the branch.
Effect = Callable[[State, Mapping[int, State]], State]


def read(dataset: lance_spark.Dataset) -> State:
    """Read all of a version.

    Raises
    ------
    TwiceError
    LanceError
    """
    stable = dataset._table.manifest.flags.stable_row_ids
    table = dataset.to_table(with_row_id=stable)
    rows: dict[int, Row] = {}
    row_ids: dict[int, int] = {}
    for row in table.to_pylist():
        if row["id"] in rows:
            raise TwiceError(f"version {dataset.version} has row {row['id']} twice")
        if stable:
            row_ids[row["id"]] = row.pop("_rowid")
        rows[row["id"]] = row
    if len(set(row_ids.values())) != len(row_ids):
        raise TwiceError(f"version {dataset.version} has row ids twice: {row_ids}")
    columns = {field.name: str(field.type) for field in table.schema if field.name != "_rowid"}
    config = {key: value for key, value in dataset.config().items() if key.startswith("test.")}
    return State(rows, columns, config, row_ids)
