"""Append: new fragments behind the fragments of the newest version.

| field of `Append` | content |
| --- | --- |
| fragments | the new fragments; their ids are 0 until the commit assigns ids |

An append is compatible with every change that does not change the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pyarrow as pa

from lance_spark.errors import CommitConflictError, InvalidInputError
from lance_spark.proto import file_pb2, table_pb2, transaction_pb2
from lance_spark.table.constraints import is_constraint
from lance_spark.table.fragments import files
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment, check_new
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import Conflict, Operation, Rebase

#: Field ids, by path.
FieldPaths = Mapping[tuple[str, ...], int]


@dataclass(frozen=True, slots=True)
class Append(Operation):
    """Add fragments.

    - `planned_fields`: Paths and ids of the fields of the new rows; by default the ids that their
      files name. Not part of the transaction. If another client changes the type of a column, the
      column gets a new id. Without these paths, the values of the new rows would be lost, as in
      pylance.
    - `dropped_fields`: Ids of planned fields that another client dropped. The append fails if a new
      column has such an id, because the column would show the values of the dropped one. Not part
      of the transaction.
    """

    name: ClassVar[str] = "append"

    fragments: tuple[Fragment, ...]
    planned_fields: FieldPaths | None = field(default=None, compare=False)
    dropped_fields: frozenset[int] = field(default=frozenset(), compare=False)

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Append, source: str) -> Append:
        return cls(tuple(Fragment.from_proto(proto, source) for proto in message.fragments))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.append.SetInParent()
        transaction.append.fragments.extend(fragment.to_proto() for fragment in self.fragments)

    def written_fields(self, base: table_pb2.Manifest) -> frozenset[int] | None:
        return None if self.fragments else frozenset()

    def conflict(self, committed: Operation) -> Conflict:
        if committed.can_add_required_columns:
            return Conflict.RETRYABLE
        outcome = self.conflict_by_matrix(committed)
        if outcome is Conflict.COMPATIBLE and self._dropped_by(committed):
            return Conflict.REBASE
        return outcome

    def _dropped_by(self, committed: Operation) -> frozenset[int]:
        if committed.remaining_fields is None:
            return frozenset()
        return self._written_fields() - committed.remaining_fields

    def _written_fields(self) -> frozenset[int]:
        if self.planned_fields is not None:
            return frozenset(self.planned_fields.values())
        files = (file for fragment in self.fragments for file in fragment.files)
        return frozenset(number for file in files for number in file.fields if number >= 0)

    def rebase(self, rebase: Rebase) -> Append:
        """Record the columns that other clients have dropped.

        Raises CommitConflictError: the type of a column was changed.
        """
        dropped = self.dropped_fields
        for committed in rebase.committed:
            missing = self._dropped_by(committed) - dropped
            # A merge does not drop columns. If it lacks a field id, it changed the type of the
            # column, whose values have a new id.
            if missing and committed.name == "merge":
                raise self._type_changed(missing)
            dropped |= missing
        return replace(self, dropped_fields=dropped)

    def _type_changed(self, ids: frozenset[int]) -> CommitConflictError:
        paths = [path for path, planned in (self.planned_fields or {}).items() if planned in ids]
        column = f"column {'.'.join(min(paths))!r}" if paths else f"the column of field {min(ids)}"
        return CommitConflictError(
            f"the type of {column} was changed after the rows were written; write them again",
            retryable=True,
        )

    def apply(self, builder: ManifestBuilder) -> None:
        """Add the fragments.

        Raises InvalidInputError. Raises CommitConflictError: the type of a column was changed, or a
        new column has the id of a dropped one.
        """
        if self.planned_fields is not None:
            current = field_paths(builder.proto.fields)
            for path, planned in self.planned_fields.items():
                if current.get(path, planned) != planned:
                    raise self._type_changed(frozenset([planned]))
        reused = self.dropped_fields.intersection(field.id for field in builder.proto.fields)
        if reused:
            raise CommitConflictError(
                f"columns with the field ids {sorted(reused)} were dropped after the rows were "
                "written, and other columns have these ids now; write the rows again",
                retryable=True,
            )
        self._check_row_ids(builder)
        builder.add_fragments(self.fragments)

    def _check_row_ids(self, builder: ManifestBuilder) -> None:
        """Refuse rows that have row ids of live rows, or row ids that no row has had yet.

        Only fragments that a user takes from an older version have row ids. Raises
        InvalidInputError, CorruptTableError, CorruptFileError, MissingFileError, StorageError.
        """
        old = [fragment for fragment in self.fragments if fragment.has_lineage(Lineage.ROW_IDS)]
        if not old or not builder.stable_row_ids or builder.paths is None:
            return
        # Imported here because it imports numpy, which other appends do not need.
        from lance_spark.table.rows.addresses import RowIndex
        from lance_spark.table.rows.ids import row_ids_of

        for fragment in old:
            check_new(fragment, builder.proto.fragments)
        existing = Fragment.from_protos(builder.proto.fragments, "the table")
        index = RowIndex.build(builder.paths, existing)
        for fragment in old:
            ids = row_ids_of(fragment, builder.paths)
            if ids is None or not len(ids):
                continue
            is_live, _ = index.addresses(ids)
            if is_live.any() or int(ids.max()) >= builder.proto.next_row_id:
                raise InvalidInputError(
                    f"an append has fragment {fragment.id} of an older version, whose row ids "
                    f"belong to live rows, such as {int(ids[is_live.argmax()])}; write copies of "
                    "the rows with write_fragments"
                    if is_live.any()
                    else f"an append has the row id {int(ids.max())}, which the table has not "
                    "assigned; write copies of the rows with write_fragments"
                )


def field_paths(fields: Iterable[file_pb2.Field]) -> dict[tuple[str, ...], int]:
    """Return the ids of fields by path, from their messages in depth-first order."""
    paths: dict[int, tuple[str, ...]] = {}
    for proto in fields:
        paths[proto.id] = (*paths.get(proto.parent_id, ()), proto.name)
    return {path: field_id for field_id, path in paths.items()}


# --------------------------------------------------------------------------------------------------
# Overwrite: a new schema and new fragments replace all existing fragments, or create a table.
#
# | field of `Overwrite` | content |
# | --- | --- |
# | fragments | the new fragments; their ids are 0 until the commit assigns ids |
# | schema | the new fields; ids start from 0, or after the greatest one (writer flag 32768) |
# | schema_metadata | replaces the metadata of the schema |
# | config_upsert_values | keys to set in the configuration |
# | initial_bases | base paths of a new table |
#
# New fragment ids and row ids follow the greatest ids ever used. Configuration, table metadata and
# base paths stay. All indexes are removed.

#: Operations after which a table has the same rows and columns.
KEEP_ROWS_AND_COLUMNS = frozenset(
    {"create_index", "reserve_fragments", "rewrite", "update_bases", "update_config"}
)


@dataclass(frozen=True, slots=True)
class Overwrite(Operation):
    """Replace the schema and all rows.

    - `schema`: The messages must not be modified.
    - `data_storage_version`: File version of the table; by default it stays, and a new table gets
      the version of the files. This and the attributes below are not part of the transaction.
    - `table_metadata`: Keys to set in the metadata of the table; those with None are removed.
    - `drops_constraints`: Whether the table loses its constraints.
    - `dictionaries`: Dictionary values of file version 0.1, to which the fields refer.
    - `exactly_next`: Whether the overwrite must become the version after the version on which it
      was planned: it has all rows of that version which it does not change. Each other version is a
      conflict.
    - `kept_columns`: The columns of the table, if the overwrite replaces the rows alone: a table
      that has other columns by the time of the commit is a conflict.
    - `reads_rows`: Whether the new rows were made of the rows of the version on which the overwrite
      was planned: a version that changes rows or columns is a conflict.
    """

    name: ClassVar[str] = "overwrite"

    fragments: tuple[Fragment, ...]
    schema: tuple[file_pb2.Field, ...]
    schema_metadata: Mapping[str, bytes] = field(default_factory=dict)
    config_upsert_values: Mapping[str, str] = field(default_factory=dict)
    initial_bases: tuple[table_pb2.BasePath, ...] = ()
    data_storage_version: tuple[int, int] | None = field(default=None, compare=False)
    table_metadata: Mapping[str, str | None] = field(default_factory=dict, compare=False)
    drops_constraints: bool = field(default=False, compare=False)
    dictionaries: bytes = field(default=b"", repr=False, compare=False)
    exactly_next: bool = field(default=False, compare=False)
    kept_columns: pa.Schema | None = field(default=None, repr=False, compare=False)
    reads_rows: bool = field(default=False, compare=False)

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Overwrite, source: str) -> Overwrite:
        return cls(
            fragments=tuple(Fragment.from_proto(proto, source) for proto in message.fragments),
            schema=tuple(message.schema),
            schema_metadata=dict(message.schema_metadata),
            config_upsert_values=dict(message.config_upsert_values),
            initial_bases=tuple(message.initial_bases),
        )

    @property
    def config_keys(self) -> frozenset[str]:
        return frozenset(self.config_upsert_values)

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        message = transaction.overwrite
        message.SetInParent()
        message.fragments.extend(fragment.to_proto() for fragment in self.fragments)
        message.schema.extend(self.schema)
        message.schema_metadata.update(self.schema_metadata)
        message.config_upsert_values.update(self.config_upsert_values)
        message.initial_bases.extend(self.initial_bases)

    def written_fields(self, base: table_pb2.Manifest) -> frozenset[int] | None:
        return None if self.fragments else frozenset()

    def conflict(self, committed: Operation) -> Conflict:
        if self.exactly_next or (self.reads_rows and committed.name not in KEEP_ROWS_AND_COLUMNS):
            return Conflict.RETRYABLE
        if self.config_keys & committed.config_keys:
            return Conflict.INCOMPATIBLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Replace the schema and the fragments.

        Raises InvalidInputError: the fields are not a tree, or the fragments do not fit the table,
        or an existing table would get base paths. Raises CommitConflictError: the table never
        reuses field ids, and another client has used ids of the new fields; or it has changed
        columns that the overwrite keeps.
        """
        if (
            self.kept_columns is not None
            and builder.base is not None
            and not builder.base.schema.to_arrow().equals(self.kept_columns, check_metadata=True)
        ):
            raise CommitConflictError(
                "another client changed the columns of the table while its rows were overwritten; "
                "write the rows again",
                retryable=True,
            )
        if self.initial_bases and not builder.is_new_table:
            raise InvalidInputError(
                "an overwrite of an existing table cannot add base paths (initial_bases), so its "
                "files below them could not be read; add them first with Dataset.add_bases"
            )
        first = builder.base.first_new_field_id if builder.base is not None else 0
        if any(field.id < first for field in self.schema):
            raise CommitConflictError(
                f"the table never reuses field ids, and ids up to {first - 1} are in use; write "
                "the rows again",
                retryable=True,
            )
        proto = builder.proto
        builder.drop_content()
        builder.dictionaries = self.dictionaries
        # A clustering names columns by field ids, which start from 0 again.
        proto.ClearField("clustering")
        # No values of the columns before are left.
        proto.ClearField("fields")
        builder.set_fields(self.schema)
        proto.ClearField("schema_metadata")
        proto.schema_metadata.update(self.schema_metadata)
        if self.data_storage_version is not None:
            builder.set_data_storage_version(self.data_storage_version)
        elif builder.is_new_table:
            # A user who builds the operation does not state a version.
            builder.set_data_storage_version(_version_of(self.fragments))
        if builder.is_new_table:
            proto.base_paths.extend(self.initial_bases)
        for key in list(filter(is_constraint, proto.config)) if self.drops_constraints else ():
            del proto.config[key]
        proto.config.update(self.config_upsert_values)
        for key, value in self.table_metadata.items():
            if value is None:
                proto.table_metadata.pop(key, None)
            else:
                proto.table_metadata[key] = value
        builder.add_fragments(self.fragments)


def _version_of(fragments: Iterable[Fragment]) -> tuple[int, int]:
    """Return the file version of a new table: that of its files, as in pylance."""
    versions = (file.version for fragment in fragments for file in fragment.files)
    # The commit refuses files of other versions.
    return next(versions, files.DEFAULT)
