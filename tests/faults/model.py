"""What a table holds, as the checker has it."""

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
    """

    rows: Mapping[int, Row] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)

    def with_rows(self, rows: Mapping[int, Row]) -> State:
        return replace(self, rows=rows)


class TwiceError(Exception):
    """A row is there more than once."""


#: Gets what there is before, and the older versions of the branch.
Effect = Callable[[State, Mapping[int, State]], State]


def read(dataset: lance_spark.Dataset) -> State:
    """Read all of a version.

    Raises
    ------
    TwiceError
    LanceError
    """
    table = dataset.to_table()
    rows: dict[int, Row] = {}
    for row in table.to_pylist():
        if row["id"] in rows:
            raise TwiceError(f"version {dataset.version} has row {row['id']} twice")
        rows[row["id"]] = row
    columns = {one.name: str(one.type) for one in table.schema}
    config = {key: value for key, value in dataset.config().items() if key.startswith("test.")}
    return State(rows, columns, config)
