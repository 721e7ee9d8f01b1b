"""Possible outcomes of a change of a random history, and its conflicts."""

from __future__ import annotations

from collections.abc import Iterator

from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    LanceError,
    SchemaMismatchError,
)
from tests.support.histories.model import Change, State


def possible_outcomes(
    change: Change, planned: State, current: State, stale: bool
) -> Iterator[State]:
    """Yield the possible results of a change: planned again, or committed as it was planned."""
    for base in (current, planned) if stale else (current,):
        if base is planned and not _untouched(change, planned, current):
            continue
        try:
            yield change.effect(base, current)
        except (KeyError, AttributeError):
            continue


def _untouched(change: Change, planned: State, current: State) -> bool:
    numbers = {column.number for column in planned.columns} & {
        column.number for column in current.columns
    }
    for key in change.looks_at:
        old, new = planned.rows[key], current.rows.get(key)
        if new is None or any(old.values.get(n) != new.values.get(n) for n in numbers):
            return False
    return True


def was_cast(planned: State, current: State) -> bool:
    types = {column.number: column.type for column in planned.columns}
    return any(types.get(column.number, column.type) != column.type for column in current.columns)


def is_conflict(error: Exception, planned: State, current: State) -> bool:
    if isinstance(error, CommitConflictError):
        return True
    other_columns = planned.columns != current.columns
    if isinstance(error, LanceError):
        return other_columns and isinstance(error, InvalidInputError | SchemaMismatchError)
    text = str(error).lower()
    return other_columns or any(
        word in text for word in ("conflict", "preempted", "incompatible", "contention")
    )
