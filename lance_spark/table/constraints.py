"""Constraints of a table: conditions that each row meets, and the name of the primary key.

A constraint is a key of the table's configuration, which other clients keep, and versions, branches
and copies have for themselves.

| key | value, as JSON |
| --- | --- |
| `spark.constraints.NAME` | `check`: the condition in SQL; `columns`: paths of what it names |
| `spark.constraints.NAME` | `primary_key`: true. The schema says which columns |

Names are compared without case. A value can have `rely`: true, which the statement said.

Only Spark evaluates the conditions. So a commit of new rows or values must name the conditions that
its rows were checked against (`CheckedConstraints`), and is refused otherwise: `check_enforced`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    UnsupportedFeatureError,
)

if TYPE_CHECKING:
    from lance_spark.proto import file_pb2

#: Start of the keys of the configuration.
PREFIX = "spark.constraints."
_CHECK, _COLUMNS, _PRIMARY_KEY, _RELY = "check", "columns", "primary_key", "rely"

#: Texts of the conditions that rows were checked against, by the names of the constraints.
CheckedConstraints = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint.

    - `check`: The condition in Spark's SQL; None for the primary key.
    - `columns`: The columns and fields that the condition names: names from the column down.
    - `rely`: Whether the statement said RELY.
    """

    name: str
    check: str | None = None
    columns: tuple[tuple[str, ...], ...] = ()
    rely: bool = False

    @property
    def key(self) -> str:
        """The key of the configuration."""
        return PREFIX + self.name

    def value(self) -> str:
        """Return the value of the key."""
        values: dict[str, object] = {_PRIMARY_KEY: True}
        if self.check is not None:
            values = {_CHECK: self.check, _COLUMNS: list(map(list, self.columns))}
        if self.rely:
            values[_RELY] = True
        return json.dumps(values)

    @classmethod
    def parse(cls, key: str, value: str, table: str) -> Constraint:
        """Parse a key of the configuration of a table. Raises CorruptTableError."""
        name = key.removeprefix(PREFIX)
        try:
            values = json.loads(value)
            check, columns = values.get(_CHECK), values.get(_COLUMNS, [])
            is_valid = isinstance(check, str) or (check is None and values.get(_PRIMARY_KEY))
            paths = tuple(tuple(map(str, path)) for path in columns)
            is_valid = is_valid and all(paths)
        except (ValueError, AttributeError, TypeError):
            is_valid = False
        if not (name and is_valid):
            raise CorruptTableError(
                f"{table}: the configuration {key!r} must be a constraint, not {value!r}; remove "
                "it, for example by Dataset.delete_config_keys"
            )
        return cls(name, check, paths, bool(values.get(_RELY)))

    def names(self, path: Sequence[str]) -> bool:
        """Return whether the condition names a column, a field above it or a field below it."""
        return any(
            all(mine == theirs for mine, theirs in zip(named, path, strict=False))
            for named in self.columns
        )


def is_constraint(key: str) -> bool:
    """Return whether a key of the configuration is a constraint."""
    return key.startswith(PREFIX)


def constraints_of(config: Mapping[str, str], table: str) -> list[Constraint]:
    """Return the constraints of a table by its configuration, in the order of their names.

    Raises CorruptTableError.
    """
    return [
        Constraint.parse(key, value, table)
        for key, value in sorted(config.items())
        if is_constraint(key)
    ]


def find_constraint(constraints: Iterable[Constraint], name: str) -> Constraint | None:
    """Return the constraint of a name, without regard to case."""
    wanted = name.lower()
    return next((found for found in constraints if found.name.lower() == wanted), None)


def check_enforced(
    config: Mapping[str, str],
    fields: Collection[file_pb2.Field],
    written: Collection[int] | None,
    checked: CheckedConstraints,
    table: str,
    planned: Mapping[str, str] | None = None,
) -> None:
    """Raise an error if new rows or values were not checked against a constraint.

    - `config`: Configuration of the table.
    - `fields`: Schema of the table.
    - `written`: Ids of the fields that get values in existing rows; None for new rows.
    - `checked`: The conditions that the rows were checked against.
    - `planned`: Configuration of the version that the change was planned on, if it is another one.

    Raises UnsupportedFeatureError. Raises CommitConflictError: another client added the constraint.
    Raises CorruptTableError.
    """
    if written is not None and not written:
        return
    if not any(map(is_constraint, config)):
        return
    columns = None if written is None else _columns_of(fields, written)
    for constraint in conditions_on(config, columns, table):
        if checked.get(constraint.name) == constraint.check:
            continue
        if planned is not None and planned.get(constraint.key) != config[constraint.key]:
            raise CommitConflictError(
                f"{table}: another client added the constraint {constraint.name} after the rows "
                "were checked; run the statement again",
                retryable=True,
            )
        raise _unchecked_error(constraint, table)


def conditions_on(
    config: Mapping[str, str], columns: Collection[str] | None, table: str
) -> list[Constraint]:
    """Return the conditions that new values of columns may not meet.

    - `columns`: Columns that get values in existing rows; None for new rows.

    Raises CorruptTableError.
    """
    return [
        constraint
        for constraint in constraints_of(config, table)
        if constraint.check is not None and (columns is None or _concerns(constraint, columns))
    ]


def unaffected(
    config: Mapping[str, str],
    fields: Collection[file_pb2.Field],
    written: Collection[int],
    table: str,
) -> dict[str, str]:
    """Return the conditions that name none of the fields that get new values.

    Rows that move with the values of all other fields meet them as before. Raises
    CorruptTableError.
    """
    if not any(map(is_constraint, config)):
        return {}
    columns = _columns_of(fields, written)
    return {
        constraint.name: constraint.check
        for constraint in constraints_of(config, table)
        if constraint.check is not None and not _concerns(constraint, columns)
    }


def _concerns(constraint: Constraint, columns: Collection[str]) -> bool:
    """Return whether a condition may name one of some columns."""
    named = {path[0] for path in constraint.columns}
    return not named or not named.isdisjoint(columns)


def check_no_conditions(config: Mapping[str, str], table: str) -> None:
    """Refuse a MemWAL for a table with conditions: its rows would not be checked.

    Raises UnsupportedFeatureError, CorruptTableError.
    """
    for constraint in constraints_of(config, table):
        if constraint.check is not None:
            raise UnsupportedFeatureError(
                f"{table}: a table with a CHECK constraint cannot have a MemWAL, whose rows are "
                f"not checked; drop the constraint {constraint.name} first"
            )


def _unchecked_error(constraint: Constraint, table: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{table}: new rows and values must be checked against the constraint {constraint.name} "
        f"(CHECK {constraint.check}), which only Spark does: write by SQL or a DataFrame with "
        "Spark 4.1 or later, in a session with lance_spark.enable, or by update, merge or "
        "replace_where of LanceTable; or drop the constraint"
    )


def _columns_of(fields: Collection[file_pb2.Field], ids: Collection[int]) -> set[str]:
    """Return the names of the columns that have some fields."""
    by_id = {field.id: field for field in fields}
    columns = set()
    for number in ids:
        field = by_id.get(number)
        # A damaged schema may have a cycle.
        for _ in by_id:
            if field is None or field.parent_id not in by_id:
                break
            field = by_id[field.parent_id]
        if field is not None:
            columns.add(field.name)
    return columns


def check_columns_stay(
    config: Mapping[str, str],
    before: Collection[file_pb2.Field],
    after: Collection[file_pb2.Field],
    table: str,
) -> None:
    """Raise an error if a column or field that a condition names has gone, or has another name.

    - `before`, `after`: The schema.

    Raises InvalidInputError, CorruptTableError.
    """
    gone = _paths_of(before) - _paths_of(after)
    for constraint in constraints_of(config, table) if gone else ():
        if lost := sorted(gone.intersection(constraint.columns)):
            raise InvalidInputError(
                f"{table}: column {'.'.join(lost[0])!r} cannot be dropped or renamed, because the "
                f"constraint {constraint.name} (CHECK {constraint.check}) names it; drop the "
                "constraint first"
            )


def _paths_of(fields: Collection[file_pb2.Field]) -> set[tuple[str, ...]]:
    """Return the paths of fields; a parent stands before its children."""
    paths: dict[int, tuple[str, ...]] = {}
    for field in fields:
        paths[field.id] = (*paths.get(field.parent_id, ()), field.name)
    return set(paths.values())
