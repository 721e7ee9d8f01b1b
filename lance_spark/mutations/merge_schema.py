"""Appends with new columns: one version adds rows and changes the schema.

| part of the `Merge` | content |
| --- | --- |
| schema | the table's columns, then the new columns, nullable, with ids that were never used |
| fragments | the table's fragments, with nulls in the new columns, then the new fragments |

The new rows can lack nullable columns of the table. New columns can also be children of structs,
from file version 2.2 on. If another client commits first, the `Merge` is planned again on the
newest version, provided that its columns are those that the write was planned on: the data files
hold the ids of these fields. Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lance_spark.errors import CommitConflictError, InvalidOptionError
from lance_spark.file.blobs.fields import new_schema
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.columns.add import check_new_children, renumbered
from lance_spark.mutations.commits import commit_operation, retry_on_conflict
from lance_spark.storage.uri import parse_uri
from lance_spark.table.align import filled_by
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.commit.write import WriteJob, WriteStrategy, begin_write
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.manifest import Manifest, max_field_id
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.columns import Merge
from lance_spark.table.rows.ids import check_names


@dataclass(frozen=True, slots=True)
class MergeSchema(WriteStrategy):
    """Append rows with new columns.

    - `schema`: All columns of the table after the append.
    """

    schema: Schema

    def commit(
        self, job: WriteJob, fragments: Sequence[Fragment], options: CommitOptions
    ) -> Manifest:
        """Commit the new fragments and columns.

        Raises CommitConflictError: another client changed the columns of the table, or base paths
        of the new rows. Raises LanceError: errors of `commit`.
        """
        table = job.base_table()
        columns = _columns(table.manifest)

        def change(current: OpenTable) -> Manifest:
            if _columns(current.manifest) != columns or not job.has_targets(current.manifest):
                raise _SchemaChangedError(current.version)
            operation = Merge(
                fragments=(*counted_fragments(current.paths, current.manifest), *fragments),
                schema=tuple(self.schema.to_protos()),
                preserves_nullability=True,
            )
            return commit_operation(current, operation, options)

        try:
            return retry_on_conflict(
                table, change, replace(options, conflict_retries=job.commit_retries)
            )
        except _SchemaChangedError as changed:
            raise CommitConflictError(
                f"{table.store.display}: version {changed.version} has other columns or "
                f"base paths than version {table.version}, which this append with new columns was "
                "planned on; write again",
                retryable=True,
            ) from None


class _SchemaChangedError(Exception):
    """Another client changed the columns, or the base paths of the new rows."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


def begin_merging_write(uri: str, schema: pa.Schema, **options: Any) -> WriteJob:
    """Plan an append of data that can have new columns.

    - `uri`: Root of the table, or of one of its branches.
    - `**options`: Options of `begin_write`.

    The job has the strategy `MergeSchema` if the data has new columns. Raises SchemaMismatchError:
    a column of the table has another type in the data, or is missing and must not be null. Raises
    UnsupportedFeatureError, UnsupportedTypeError: the files of the table cannot have such columns.
    Raises LanceError: errors of `begin_write`.
    """
    if options.get("mode", "append") != "append":
        raise InvalidOptionError(
            f"{parse_uri(uri).display}: only an append can merge the schema; an overwrite replaces "
            "it"
        )
    chooser = _SchemaMerger(schema)
    job = begin_write(uri, schema, choose_schema=chooser, **options)
    if chooser.merged is None:
        return job
    return job.with_strategy(MergeSchema(chooser.merged))


class _SchemaMerger:
    """Fits data to a table, and adds the new columns of the data to the table's schema.

    - `merged`: All columns of the table after the append, if the data has new columns.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.merged: Schema | None = None

    def __call__(self, base: Manifest, data: Schema, name: str) -> Schema:
        """Return the fields of the data files."""
        version = base.data_storage_version
        data_schema = new_schema(self._schema, version)
        first = max_field_id(base.to_proto()) + 1
        merged, next_id = _with_new(base.schema.fields, data_schema.fields, -1, first)
        table = base.schema
        if next_id > first:
            check_names(field.name for field in merged)
            extended = [
                field.name
                for field, old in zip(merged, table.fields, strict=False)
                if len(list(field.walk())) != len(list(old.walk()))
            ]
            check_new_children(name, extended, version)
            table = self.merged = replace(table, fields=merged)
        return filled_by(table, data, name)


def _with_new(
    existing: Sequence[Field], data_fields: Sequence[Field], parent_id: int, next_id: int
) -> tuple[tuple[Field, ...], int]:
    """Return the existing fields, then the new fields of the data, and the next free field id."""
    positions = {field.name: position for position, field in enumerate(existing)}
    merged = list(existing)
    for field in data_fields:
        position = positions.get(field.name)
        if position is None:
            added, next_id = renumbered(replace(field, nullable=True), next_id, parent_id)
            merged.append(added)
            continue
        old = merged[position]
        if old.logical_type == field.logical_type == "struct" and not old.is_packed:
            children, next_id = _with_new(old.children, field.children, old.id, next_id)
            if children != tuple(old.children):
                merged[position] = replace(old, children=children)
    return tuple(merged), next_id


def _columns(manifest: Manifest) -> tuple[list[bytes], int]:
    """Return the stored fields of a version, and its highest field id."""
    proto = manifest.to_proto()
    fields = [field.SerializeToString(deterministic=True) for field in proto.fields]
    return fields, max_field_id(proto)
