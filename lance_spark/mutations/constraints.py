"""Constraints are added and dropped: a key of the configuration, and marks of the primary key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    UnsupportedError,
    UnsupportedFeatureError,
)
from lance_spark.file.schema.field import PRIMARY_KEY
from lance_spark.mutations.commits import change_schema, check_writable, commit_operation
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.constraints import Constraint, constraints_of, find_constraint, is_constraint
from lance_spark.table.indexes.sections import has_mem_wal, section_of
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.metadata import MapUpdate, UpdateConfig
from lance_spark.table.primary_key import primary_key


def add_check(table: OpenTable, constraint: Constraint, options: CommitOptions) -> Manifest:
    """Add a condition that the rows of a version meet.

    - `table`: Open at that version.

    Raises CommitConflictError: another client changed rows or columns since, or added a constraint.
    Raises InvalidInputError: the table has a constraint of this name. Raises
    UnsupportedFeatureError: the table has a MemWAL. Raises LanceError: errors of `commit`.
    """
    display = table.store.display
    check_writable(table)
    _check_new(table, constraint.name)
    if has_mem_wal(section_of(table.manifest)):
        raise UnsupportedFeatureError(
            f"{display}: a table with a MemWAL cannot have a CHECK constraint, because rows of the "
            "MemWAL are not checked; disable it before (LanceTable.disable_mem_wal)"
        )
    config = MapUpdate({constraint.key: constraint.value()})
    operation = UpdateConfig(config=config, exact_rows=True)
    try:
        return commit_operation(table, operation, options)
    except CommitConflictError as error:
        raise CommitConflictError(
            f"{display}: another client changed the table after its rows were checked against the "
            f"constraint {constraint.name}; run the statement again",
            retryable=True,
        ) from error


def add_primary_key(
    table: OpenTable, name: str | None, columns: Sequence[str], options: CommitOptions
) -> OpenTable:
    """Mark the columns of the primary key, which no client enforces.

    - `name`: Name of the constraint, if it has one.
    - `columns`: In the order of the key.

    Raises InvalidInputError: the table has a primary key or a constraint of this name, or a column
    cannot be in a key. Raises LanceError: errors of `commit`.
    """

    def plan(current: OpenTable) -> UpdateConfig:
        if name is not None:
            _check_new(current, name)
        marks = key_marks(current, columns)
        fields = {number: MapUpdate(mark) for number, mark in marks}
        if name is None:
            return UpdateConfig(field_metadata=fields)
        constraint = Constraint(name)
        config = MapUpdate({constraint.key: constraint.value()})
        return UpdateConfig(config=config, field_metadata=fields)

    return change_schema(table, plan, options)


def key_marks(table: OpenTable, columns: Sequence[str]) -> list[tuple[int, dict[str, str | None]]]:
    """Return the metadata of each field of a new primary key, by field id.

    Raises InvalidInputError: the table has a primary key, or a column cannot be in one.
    """
    label = f"table {table.store.display}"
    current = [".".join(node.name for node in path) for path in primary_key(table.schema)]
    if current:
        raise InvalidInputError(
            f"{label}: the primary key is {', '.join(current)} already; it cannot be changed"
        )
    if not columns or len(set(columns)) < len(columns):
        raise InvalidInputError(
            f"{label}: columns must name at least one column, and none twice, not {list(columns)}"
        )
    by_name = {field.name: field for field in table.schema.fields}
    marks: list[tuple[int, dict[str, str | None]]] = []
    for position, name in enumerate(columns, 1):
        field = by_name.get(name)
        if field is None:
            raise InvalidInputError(
                f"{label}: column {name!r} was not found; the columns are {', '.join(by_name)}"
            )
        dtype = field.arrow_field.type
        if pa.types.is_nested(dtype):
            raise InvalidInputError(
                f"{label}: column {name!r} is of type {dtype}; columns of a primary key have no "
                "children"
            )
        marks.append((field.id, key_metadata(position)))
    return marks


def key_metadata(position: int) -> dict[str, str | None]:
    """Return the metadata of a column of the primary key; positions start at 1."""
    return {PRIMARY_KEY: "true", f"{PRIMARY_KEY}:position": str(position)}


def drop_constraint(
    table: OpenTable, name: str, options: CommitOptions, *, if_exists: bool, key_name: str
) -> OpenTable:
    """Drop a condition.

    - `key_name`: Name of a primary key that has no name of its own.

    Raises InvalidInputError: the constraint was not found. Raises UnsupportedError: it is the
    primary key. Raises LanceError: errors of `commit`.
    """
    display = table.store.display
    config = table.manifest.message.config
    existing = constraints_of(config, display)
    found = find_constraint(existing, name)
    is_key = found is not None and found.check is None
    has_name = any(constraint.check is None for constraint in existing)
    if not has_name and primary_key(table.schema) and name.lower() == key_name.lower():
        is_key = True
    if is_key:
        raise UnsupportedError(
            f"{display}: the primary key {name} cannot be dropped or changed once it is set, as "
            "in all Lance clients; create the table again without it"
        )
    if found is None:
        if if_exists:
            return table
        names = ", ".join(constraint.name for constraint in existing) or "none"
        raise InvalidInputError(
            f"{display}: constraint {name!r} was not found; the constraints are: {names}"
        )
    update = UpdateConfig(config=MapUpdate({found.key: None}))
    return change_schema(table, lambda _: update, options)


def check_config_update(
    config: Mapping[str, str], values: Mapping[str, str | None], replace: bool, table: str
) -> None:
    """Refuse to set constraints as keys of the configuration, and to lose them with other keys.

    - `config`: Configuration of the table.
    - `values`: New values; None deletes the key, which drops the constraint.

    Raises InvalidInputError.
    """
    new = [key for key, value in values.items() if is_constraint(str(key)) and value is not None]
    if new:
        raise InvalidInputError(
            f"{table}: the configuration {new[0]!r} is a constraint, which Spark checks when it is "
            "added; use ALTER TABLE ... ADD CONSTRAINT"
        )
    lost = [key for key in config if is_constraint(key) and key not in values]
    if replace and lost:
        raise InvalidInputError(
            f"{table}: the configuration {lost[0]!r} is a constraint, which replace=True would "
            "drop; drop the constraint first, by Dataset.delete_config_keys or ALTER TABLE ... "
            "DROP CONSTRAINT"
        )


def _check_new(table: OpenTable, name: str) -> None:
    existing = constraints_of(table.manifest.message.config, table.store.display)
    if find_constraint(existing, name) is not None:
        raise InvalidInputError(
            f"{table.store.display}: the constraint {name} exists already; drop it first, or "
            "choose another name"
        )
