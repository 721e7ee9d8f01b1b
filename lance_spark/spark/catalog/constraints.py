"""Constraints of tables as Spark has them, since 4.1 (`Constraints.java`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    UnsupportedError,
    VersionNotFoundError,
)
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.constraints import (
    add_check,
    add_primary_key,
    drop_constraint,
    key_metadata,
)
from lance_spark.spark.read.projection import find
from lance_spark.spark.read.snapshot import identity_text
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.constraints import Constraint, constraints_of
from lance_spark.table.primary_key import primary_key

if TYPE_CHECKING:
    from lance_spark.file.schema.field import Field
    from lance_spark.namespace import TableEntry
    from lance_spark.table.manifest.manifest import Manifest

_CHECK, _PRIMARY_KEY = "Check", "PrimaryKey"
#: What Spark calls the classes of other constraints.
_OTHERS = {"Unique": "UNIQUE", "ForeignKey": "FOREIGN KEY"}

#: A constraint of a statement: its ``name``, its ``kind``, which is the name of Spark's class,
#: ``rely``, the text of a ``check``, and ``columns``, each with the parts of its name.
Described = Mapping[str, Any]


def described(manifest: Manifest) -> list[dict[str, Any]]:
    """Return the constraints of a version of a table for the JVM.

    A damaged constraint is left out: reads go on, and the commit of a write refuses it. The name of
    a primary key can be None: the JVM gives it the name that Spark would have chosen.
    """
    known = []
    for name, value in manifest.message.config.items():
        try:
            known += constraints_of({name: value}, manifest.name)
        except CorruptTableError:
            continue
    checks = [
        {"name": constraint.name, "check": constraint.check, "rely": constraint.rely}
        for constraint in sorted(known, key=lambda constraint: constraint.name)
        if constraint.check is not None
    ]
    names = [constraint.name for constraint in known if constraint.check is None]
    key = [".".join(node.name for node in path) for path in primary_key(manifest.schema)]
    if not key:
        return checks
    return [{"name": names[0] if names else None, "columns": key}, *checks]


def of_new_table(
    described: Sequence[Described], schema: pa.Schema, table: str
) -> tuple[pa.Schema, list[Constraint]]:
    """Return the columns of a new table, with marks of its primary key, and its constraints.

    Columns of the key become NOT NULL, as in SQL.

    Raises InvalidInputError: a column is not found, or the table would have two primary keys.
    Raises UnsupportedError: a constraint is neither a condition nor a primary key.
    """
    constraints = []
    for one in described:
        _check_kind(one, table)
        if one["kind"] == _CHECK:
            constraints.append(_condition(one, Schema.from_arrow(schema)))
            continue
        names = [schema.names[_index(schema.names, path, table)] for path in one["columns"]]
        for position, name in enumerate(names, 1):
            index = schema.names.index(name)
            field = schema.field(index)
            marks = {key: str(value) for key, value in key_metadata(position).items()}
            metadata = {**(field.metadata or {}), **{k: v.encode() for k, v in marks.items()}}
            schema = schema.set(index, field.with_nullable(False).with_metadata(metadata))
        constraints.append(Constraint(one["name"], rely=one["rely"]))
    return schema, constraints


def change(entry: TableEntry, change: Mapping[str, Any], table: str) -> None:
    """Add or drop a constraint: `ALTER TABLE ... ADD CONSTRAINT`, `DROP CONSTRAINT`.

    - `change`: The form of the change; see `Constraints.java`.
    - `table`: Name of the table.

    Raises InvalidInputError, UnsupportedError, CommitConflictError.
    """
    storage = dict(entry.storage_options) or None
    options = CommitOptions()
    if change["op"] == "DropConstraint":
        current = open_dataset(entry.location, storage_options=storage)._table
        drop_constraint(
            current,
            change["name"],
            options,
            if_exists=change["if_exists"],
            key_name=change["key_name"],
        )
        return
    one = change["constraint"]
    _check_kind(one, table)
    if one["kind"] == _PRIMARY_KEY:
        current = open_dataset(entry.location, storage_options=storage)._table
        names = [field.name for field in current.schema.fields]
        columns = [names[_index(names, path, table)] for path in one["columns"]]
        add_primary_key(current, one["name"], columns, options)
        return
    version = change.get("version")
    if version is None:
        raise UnsupportedError(
            f"table {table}: the constraint {one['name']} cannot be added, because the version "
            "whose rows Spark has checked is not known; run ALTER TABLE by spark.sql"
        )
    try:
        dataset = open_dataset(entry.location, version=int(version), storage_options=storage)
        if identity_text(dataset._table.manifest) != change["identity"]:
            raise VersionNotFoundError(f"table {table} was created again")
    except VersionNotFoundError as error:
        raise CommitConflictError(
            f"table {table}: the version {version}, whose rows were checked against the constraint "
            f"{one['name']}, was removed by another client; run the statement again",
            retryable=True,
        ) from error
    add_check(dataset._table, _condition(one, dataset._table.schema), options)


def _check_kind(one: Described, table: str) -> None:
    if one["kind"] not in (_CHECK, _PRIMARY_KEY):
        raise UnsupportedError(
            f"table {table}: Lance tables have no constraints of the kind "
            f"{_OTHERS.get(one['kind'], one['kind'])}; remove {one['name']}, or use CHECK or "
            "PRIMARY KEY"
        )


def _condition(one: Described, schema: Schema) -> Constraint:
    paths = (_path(parts, schema.fields) for parts in one["columns"])
    columns = tuple(dict.fromkeys(path for path in paths if path))
    return Constraint(one["name"], one["check"], columns, one["rely"])


def _path(parts: Sequence[str], columns: Sequence[Field]) -> tuple[str, ...]:
    """Return the path of the column or field that a name of a condition means, as it is spelled.

    Names can start with that of the table. Only fields of structs are followed.
    """
    for start in range(len(parts)):
        path: list[str] = []
        fields: Sequence[Field] = columns
        for part in parts[start:]:
            index = find([field.name for field in fields], part)
            if index < 0:
                break
            path.append(fields[index].name)
            fields = fields[index].children if fields[index].logical_type == "struct" else ()
        if path:
            return tuple(path)
    return ()


def _index(names: Sequence[str], path: Sequence[str], table: str) -> int:
    index = find(names, path[0]) if len(path) == 1 else -1
    if index < 0:
        raise InvalidInputError(
            f"table {table}: column {'.'.join(path)!r} of the primary key was not found; the "
            f"columns are {', '.join(names)}"
        )
    return index
