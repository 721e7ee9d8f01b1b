"""The rows of a table after changes of `run.py`, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path

#: Rows of an append, and rows that a merge adds.
ROWS = 400
MERGED = 50
CHANGES = ("append", "update", "merge", "optimize", "delete")
#: The same changes by SQL statements.
STATEMENTS = tuple(f"sql_{change}" for change in CHANGES)
#: The batch and the number of a row, by id.
Rows = dict[int, tuple[int, int]]


def changed(rows: Rows, change: str, number: int) -> Rows:
    """Return the rows after a change."""
    change = change.removeprefix("sql_")
    batches = {batch for batch, _ in rows.values()}
    new = {number * 1000 + i: (number, 0) for i in range(ROWS)}
    if change == "append":
        return {**rows, **new}
    if change == "update":
        return {i: (batch, n + (i % 2 == 0)) for i, (batch, n) in rows.items()}
    if change == "delete":
        return {i: row for i, row in rows.items() if row[0] != min(batches) and i % 7 != 3}
    if change == "merge":
        last = max(batches)
        more = {i: new[i] for i in list(new)[:MERGED]}
        return {**{i: (b, n + 10 * (b == last)) for i, (b, n) in rows.items()}, **more}
    assert change == "optimize", change
    return deepcopy(rows)


class Log:
    """The log of a run and of the runs before.

    Attributes
    ----------
    begun : dict of int to str
        The change of each number.
    answers : dict of int to str
        "done", or the type of an error; nothing for the change at which the driver, or the process
        that commits a statement, was killed.
    """

    def __init__(self, path: Path) -> None:
        self.begun: dict[int, str] = {}
        self.answers: dict[int, str] = {}
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if "begun" in entry:
                self.begun[entry["begun"]] = entry["change"]
            elif "done" in entry:
                self.answers[entry["done"]] = "done"
            elif "failed" in entry:
                self.answers[entry["failed"]] = entry["error"]


def outcome(log: Log, numbers: Iterable[int], before: Rows) -> list[Rows]:
    """Return the possible rows after some changes: with and without the last change, if it was not
    acknowledged.

    A change that failed has done nothing.
    """
    rows = [before]
    for number in numbers:
        answer = log.answers.get(number)
        after = [changed(earlier, log.begun[number], number) for earlier in rows]
        if answer == "done":
            rows = after
        elif answer is None:
            rows = [*rows, *after]
    return rows
