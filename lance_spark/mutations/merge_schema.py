"""Appends that bring new columns: rows and schema change in one version.

| part of the `Merge` | content |
| --- | --- |
| schema | the table's columns, then the new ones, nullable, with ids that no field ever had |
| fragments | those of the table, whose rows are null in the new columns, then the new ones |

The new rows may lack columns of the table that are nullable. New columns can be children of structs
too, from files of version 2.2 on. If others commit first, the `Merge` is planned anew on the newest
version, as long as its columns are the ones that the write was planned with: the data files name
the ids of their fields. Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lance_spark.errors import (
    CommitConflictError,
    InvalidOptionError,
    UnsupportedFeatureError,
)
from lance_spark.file.blobs.fields import new_schema
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.add import renumbered
from lance_spark.mutations.commits import commit_operation
from lance_spark.mutations.retry import retry_on_conflict
from lance_spark.storage.uri import parse_uri
from lance_spark.table.append_schema import filled_by
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.commit.write_job import WriteJob, WriteStrategy
from lance_spark.table.commit.write_plan import begin_write
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.schema_changes import max_field_id
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.merge import Merge
from lance_spark.table.rows.ids import check_names

#: pylance reads tables whose structs have children that files lack from this version on.
_FIRST_WITH_NEW_CHILDREN = (2, 2)


@dataclass(frozen=True, slots=True)
class MergeSchema(WriteStrategy):
    """Append rows with new columns.

    Attributes
    ----------
    schema : Schema
        All columns of the table afterwards.
    """

    schema: Schema

    def commit(
        self, job: WriteJob, fragments: Sequence[Fragment], options: CommitOptions
    ) -> Manifest:
        """Make the fragments and their columns part of the table.

        Raises
        ------
        CommitConflictError
            Another client changed the columns.
        LanceError
            Errors of `commit`.
        """
        table = job.base_table()
        columns = _columns(table.manifest)

        def change(current: OpenTable) -> Manifest:
            if _columns(current.manifest) != columns:
                raise _OvertakenError(current.version)
            operation = Merge(
                fragments=(*counted_fragments(current.paths, current.manifest), *fragments),
                schema=tuple(self.schema.to_protos()),
                preserves_nullability=True,
            )
            return commit_operation(current, operation, options)

        try:
            return retry_on_conflict(table, change, job.commit_retries)
        except _OvertakenError as overtaken:
            raise CommitConflictError(
                f"{table.store.display}: version {overtaken.version} has other columns than "
                f"version {table.version}, which this append with new columns was planned on; "
                "write again",
                retryable=True,
            ) from None


class _OvertakenError(Exception):
    """Others changed the columns."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


def begin_merging_write(uri: str, schema: pa.Schema, **options: Any) -> WriteJob:
    """Plan an append of data that may have columns which the table does not have.

    Parameters
    ----------
    uri : str
        Root of the table, or of one of its branches.
    schema : pa.Schema
        Of the data.
    **options
        Of `begin_write`.

    Returns
    -------
    WriteJob
        With the strategy `MergeSchema`, if there are new columns.

    Raises
    ------
    SchemaMismatchError
        Columns that the table has are of other types, or must not be null and are missing.
    UnsupportedFeatureError, UnsupportedTypeError
        The files of the table cannot have such columns.
    LanceError
        What `begin_write` raises.
    """
    if options.get("mode", "append") != "append":
        raise InvalidOptionError(
            f"{parse_uri(uri).display}: schemas are merged by appends; an overwrite replaces them"
        )
    chooser = _SchemaMerger(schema)
    job = begin_write(uri, schema, choose_schema=chooser, **options)
    if chooser.merged is None:
        return job
    return job.with_strategy(MergeSchema(chooser.merged))


class _SchemaMerger:
    """Fits data to a table that gets the data's new columns.

    Attributes
    ----------
    merged : Schema or None
        All columns of the table afterwards, if there are new ones.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.merged: Schema | None = None

    def __call__(self, base: Manifest, data: Schema, name: str) -> Schema:
        """Return the fields of the data files."""
        version = base.data_storage_version
        given = new_schema(self._schema, version)
        first = max_field_id(base.to_proto()) + 1
        merged, after = _with_new(base.schema.fields, given.fields, -1, first)
        table = base.schema
        if after > first:
            check_names(item.name for item in merged)
            inside = [
                item.name
                for item, old in zip(merged, table.fields, strict=False)
                if len(list(item.walk())) != len(list(old.walk()))
            ]
            if inside and version < _FIRST_WITH_NEW_CHILDREN:
                raise UnsupportedFeatureError(
                    f"{name}: column {inside[0]!r} gets no new children in data files of version "
                    f"{version[0]}.{version[1]}; "
                    "overwrite the table with data storage version 2.2"
                )
            table = self.merged = replace(table, fields=merged)
        return filled_by(table, data, name)


def _with_new(
    there: Sequence[Field], given: Sequence[Field], parent_id: int, next_id: int
) -> tuple[tuple[Field, ...], int]:
    """Return fields with those that only the data has behind them, and the id that the next new one
    gets.
    """
    places = {item.name: position for position, item in enumerate(there)}
    result = list(there)
    for item in given:
        position = places.get(item.name)
        if position is None:
            added, next_id = renumbered(replace(item, nullable=True), next_id, parent_id)
            result.append(added)
            continue
        old = result[position]
        if old.logical_type == item.logical_type == "struct" and not old.is_packed:
            children, next_id = _with_new(old.children, item.children, old.id, next_id)
            if children != tuple(old.children):
                result[position] = replace(old, children=children)
    return tuple(result), next_id


def _columns(manifest: Manifest) -> tuple[list[bytes], int]:
    """Return what tells the columns of a version, and the ids that are free."""
    proto = manifest.to_proto()
    described = [one.SerializeToString(deterministic=True) for one in proto.fields]
    return described, max_field_id(proto)
