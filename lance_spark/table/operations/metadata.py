"""Operations that change no rows: configuration, base paths, restore, clone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar, TypeVar

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.schema.field import set_keys
from lance_spark.file.schema.rules import check_fields
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.storage.uri import parse_uri
from lance_spark.table.constraints import is_constraint
from lance_spark.table.manifest import manifest
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.codec import check_identity
from lance_spark.table.operations.base import SCHEMA_METADATA, Conflict, Operation
from lance_spark.table.paths import BasePath

# --------------------------------------------------------------------------------------------------
# UpdateConfig: changes of the configuration, and of table, schema and field metadata.
#
# | field of `UpdateConfig` | content |
# | --- | --- |
# | upsert_values, delete_keys | configuration to set, and keys to delete (older writers) |
# | schema_metadata | the new metadata of the schema (older writers) |
# | field_metadata | the new metadata of fields, by id (older writers) |
# | config_updates | update of the configuration |
# | table_metadata_updates | update of the table's metadata |
# | schema_metadata_updates | update of the schema's metadata |
# | field_metadata_updates | updates of the metadata of fields, by id |
#
# An update has keys and values, and a flag that deletes all other keys. A key without a value is
# deleted. Specification: table/commit/transaction.md.

_V = TypeVar("_V", str, bytes)
#: Operations after which a table has the same columns, and no other rows or values.
_NO_NEW_VALUES = frozenset(
    {"create_index", "delete", "reserve_fragments", "rewrite", "update_bases", "update_config"}
)


@dataclass(frozen=True, slots=True)
class MapUpdate:
    """An update of a map of strings.

    - `entries`: Values to set; None deletes the key.
    - `replace`: Whether all other keys are deleted.
    """

    entries: Mapping[str, str | None]
    replace: bool = False

    @property
    def updates(self) -> Mapping[str, str | None]:
        """The `entries`, by pylance's name."""
        return self.entries

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.UpdateMap) -> MapUpdate:
        """Parse the message; the last value of a key is used."""
        return cls(
            {
                entry.key: entry.value if entry.HasField("value") else None
                for entry in message.update_entries
            },
            message.replace,
        )

    def write_to(self, message: transaction_pb2.Transaction.UpdateMap) -> None:
        """Set the fields of a message."""
        message.SetInParent()
        for key, value in self.entries.items():
            entry = message.update_entries.add(key=key)
            if value is not None:
                entry.value = value
        message.replace = self.replace

    def apply_to(self, target: MutableMapping[str, _V], convert: Callable[[str], _V]) -> None:
        """Change a map of strings or bytes in place; `convert` makes its values."""
        for key in list(target) if self.replace else ():
            del target[key]
        for key, value in self.entries.items():
            if value is not None:
                target[key] = convert(value)
            elif key in target:
                del target[key]


@dataclass(frozen=True, slots=True)
class UpdateConfig(Operation):
    """Change the configuration and metadata.

    - `field_metadata`: By field id.
    - `exact_rows`: Whether the change holds for the rows and columns of the version on which it was
      planned, or fewer rows: each other version is a conflict. Not part of the transaction.
    """

    name: ClassVar[str] = "update_config"

    config: MapUpdate | None = None
    table_metadata: MapUpdate | None = None
    schema_metadata: MapUpdate | None = None
    field_metadata: Mapping[int, MapUpdate] = field(default_factory=dict)
    exact_rows: bool = field(default=False, compare=False)

    @property
    def config_keys(self) -> frozenset[str]:
        return frozenset(self.config.entries if self.config else ())

    @property
    def deleted_config_keys(self) -> frozenset[str]:
        entries = self.config.entries if self.config else {}
        return frozenset(key for key, value in entries.items() if value is None)

    @property
    def table_metadata_keys(self) -> frozenset[str]:
        return frozenset(self.table_metadata.entries if self.table_metadata else ())

    @property
    def replaces_table_metadata(self) -> bool:
        return self.table_metadata is not None and self.table_metadata.replace

    @property
    def metadata_targets(self) -> frozenset[int]:
        schema = () if self.schema_metadata is None else (SCHEMA_METADATA,)
        return frozenset((*schema, *self.field_metadata))

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.UpdateConfig, source: str
    ) -> UpdateConfig:
        """Parse the message; errors call its file `source`.

        The fields of older writers are used where the newer fields are missing.
        """
        config = None
        if message.HasField("config_updates"):
            config = MapUpdate.from_proto(message.config_updates)
        elif message.upsert_values or message.delete_keys:
            deleted: dict[str, str | None] = dict.fromkeys(message.delete_keys)
            config = MapUpdate({**message.upsert_values, **deleted})
        schema = None
        if message.HasField("schema_metadata_updates"):
            schema = MapUpdate.from_proto(message.schema_metadata_updates)
        elif message.schema_metadata:
            schema = MapUpdate(dict(message.schema_metadata), replace=True)
        fields = {
            field_id: MapUpdate.from_proto(update)
            for field_id, update in message.field_metadata_updates.items()
        } or {
            field_id: MapUpdate(dict(update.metadata), replace=True)
            for field_id, update in message.field_metadata.items()
        }
        return cls(
            config=config,
            table_metadata=MapUpdate.from_proto(message.table_metadata_updates)
            if message.HasField("table_metadata_updates")
            else None,
            schema_metadata=schema,
            field_metadata=fields,
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        message = transaction.update_config
        message.SetInParent()
        if self.config is not None:
            self.config.write_to(message.config_updates)
        if self.table_metadata is not None:
            self.table_metadata.write_to(message.table_metadata_updates)
        if self.schema_metadata is not None:
            self.schema_metadata.write_to(message.schema_metadata_updates)
        for field_id, update in self.field_metadata.items():
            update.write_to(message.field_metadata_updates[field_id])

    def conflict(self, committed: Operation) -> Conflict:
        if self.exact_rows and (
            committed.name not in _NO_NEW_VALUES
            or committed.changes_mem_wal
            or any(map(is_constraint, committed.config_keys))
        ):
            return Conflict.RETRYABLE
        # Both may delete one key of the configuration.
        deleted = self.deleted_config_keys & committed.deleted_config_keys
        if (self.config_keys & committed.config_keys) - deleted:
            return Conflict.INCOMPATIBLE
        if self._changes_same_table_metadata(committed):
            return Conflict.INCOMPATIBLE
        targets = self.metadata_targets
        if committed.name in ("overwrite", "restore") and targets:
            return Conflict.INCOMPATIBLE
        if committed.name == self.name and targets & committed.metadata_targets:
            return Conflict.INCOMPATIBLE
        if committed.name == "merge" and targets:
            # The schema of the merge may have the older metadata.
            return Conflict.RETRYABLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Update the maps.

        Raises InvalidInputError: the table does not have one of the fields, or breaks a rule of
        `file.schema.rules`.
        """
        proto = builder.proto
        if self.config is not None:
            self.config.apply_to(proto.config, str)
        if self.table_metadata is not None:
            self.table_metadata.apply_to(proto.table_metadata, str)
        if self.schema_metadata is not None:
            self.schema_metadata.apply_to(proto.schema_metadata, str.encode)
        if not self.field_metadata:
            return
        fields = {field.id: field for field in proto.fields}
        for field_id, update in self.field_metadata.items():
            if field_id not in fields:
                raise InvalidInputError(f"the table has no field with the id {field_id}")
            update.apply_to(fields[field_id].metadata, str.encode)
            # A primary key cannot be changed once it is set.
            if not fields[field_id].unenforced_primary_key:
                set_keys(fields[field_id], dict(fields[field_id].metadata))
        existing = builder.base.message.fields if builder.base is not None else ()
        check_fields(proto.fields, existing)

    def _changes_same_table_metadata(self, committed: Operation) -> bool:
        """Return whether both change one key of the table's metadata."""
        mine, theirs = self.table_metadata_keys, committed.table_metadata_keys
        if mine & theirs:
            return True
        replaces, replaced = self.replaces_table_metadata, committed.replaces_table_metadata
        return (replaces and (replaced or bool(theirs))) or (replaced and bool(mine))


def map_update(values: Mapping[str, str | None], *, replace: bool, label: str) -> MapUpdate:
    """Return an update with values from a user; errors call it `label`.

    Raises InvalidInputError: a key is not a string, or a value is neither a string nor None.
    """
    if not isinstance(values, Mapping):
        raise InvalidInputError(f"{label} must be a mapping, not {type(values).__name__}")
    for key, value in values.items():
        if not isinstance(key, str) or not (value is None or isinstance(value, str)):
            raise InvalidInputError(
                f"{label}: a key must be a string and a value a string or None, which deletes the "
                f"key; not {key!r}: {value!r}"
            )
    return MapUpdate(dict(values), replace)


# --------------------------------------------------------------------------------------------------
# UpdateBases: base paths are added to the table, or get other paths.
#
# | field of `UpdateBases` | content |
# | --- | --- |
# | new_bases | the base paths; a base path with id 0 gets the first unused id from 1 on |
#
# Ids, names and paths are unique within a table. Specification: table/commit/transaction.md.
#
# The message does not say whether a base path is new. In pylance, a base path with an existing id
# replaces the existing one. This package gives a base path another path by the same message
# (`replaces`). Older versions keep the old path. The conflict matrix, like pylance, has no conflict
# for this change. But a change that was planned with the old path is planned again
# (`lance_spark.table.commit.commit`), and so is a replacement after any other change.


@dataclass(frozen=True, slots=True)
class UpdateBases(Operation):
    """Add or replace base paths.

    - `replaces`: Whether they replace the base paths with the same ids. Not part of the
      transaction.
    """

    name: ClassVar[str] = "update_bases"

    new_bases: tuple[BasePath, ...]
    replaces: bool = False

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.UpdateBases, source: str
    ) -> UpdateBases:
        return cls(tuple(BasePath.from_proto(proto) for proto in message.new_bases))

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.update_bases.SetInParent()
        transaction.update_bases.new_bases.extend(base.to_proto() for base in self.new_bases)

    def conflict(self, committed: Operation) -> Conflict:
        if isinstance(committed, UpdateBases) and any(
            _is_duplicate(mine, theirs) for mine in self.new_bases for theirs in committed.new_bases
        ):
            return Conflict.INCOMPATIBLE
        if self.replaces:
            # The plan has checked that the files of an older version exist below the new path.
            return Conflict.RETRYABLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Add or replace the base paths.

        Raises InvalidInputError: the table has a base path with the same name, path or id.
        """
        if self.replaces:
            self._replace_bases(builder)
            return
        existing = [BasePath.from_proto(proto) for proto in builder.proto.base_paths]
        for base in self.new_bases:
            for other in existing:
                if _is_duplicate(base, other):
                    raise InvalidInputError(
                        f"base path {base.name or parse_uri(base.path).display!r}: the table "
                        "already has one with the same name, path or id: "
                        f"{other.id}, {other.name!r}, {parse_uri(other.path).display}"
                    )
            added = base.to_proto()
            if not added.id:
                used = {other.id for other in existing}
                added.id = next(base_id for base_id in count(1) if base_id not in used)
            builder.proto.base_paths.append(added)
            existing.append(BasePath.from_proto(added))

    def _replace_bases(self, builder: ManifestBuilder) -> None:
        protos = {proto.id: proto for proto in builder.proto.base_paths}
        for base in self.new_bases:
            proto = protos.get(base.id)
            if proto is None:
                raise InvalidInputError(f"the table has no base path with the id {base.id}")
            others = [
                BasePath.from_proto(other_proto)
                for other_proto in protos.values()
                if other_proto.id != base.id
            ]
            for other in others:
                if _is_duplicate(base, other):
                    raise InvalidInputError(
                        f"base path {base.id}: the table has another one with the same name or "
                        f"path: {other.id}, {other.name!r}"
                    )
            proto.CopyFrom(base.to_proto())


def _is_duplicate(base: BasePath, other: BasePath) -> bool:
    return bool(
        (base.id and base.id == other.id)
        or (base.name is not None and base.name == other.name)
        or base.path == other.path
    )


# --------------------------------------------------------------------------------------------------
# Restore: the content of an older version becomes the newest version.
#
# | field of `Restore` | content |
# | --- | --- |
# | version | the version to restore |
#
# Schema, fragments, indexes, configuration, metadata and base paths are restored. The counters of
# fragment ids, row ids and field ids are not: new ids still follow the greatest ids ever used.
# Specification: table/commit/transaction.md.


@dataclass(frozen=True, slots=True)
class Restore(Operation):
    """Make an older version the newest.

    - `identity`: `Manifest.identity` of that version, to detect that another version has its number
      now. Not part of the transaction.
    """

    name: ClassVar[str] = "restore"

    version: int
    identity: tuple[int, str | None] | None = field(default=None, compare=False)

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Restore, source: str) -> Restore:
        return cls(message.version)

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.restore.version = self.version
        transaction.restore.SetInParent()

    def conflict(self, committed: Operation) -> Conflict:
        if committed.metadata_targets:
            # The restore would silently undo the change of the metadata.
            return Conflict.INCOMPATIBLE
        return self.conflict_by_matrix(committed)

    def apply(self, builder: ManifestBuilder) -> None:
        """Replace the content of the table with the content of the version.

        Raises CorruptTableError, StorageError. Raises VersionNotFoundError: the version was removed
        by cleanup, or never existed, or another version has its number. Raises
        UnsupportedFeatureError: the version needs a feature that this release does not have, or
        lacks a feature that the table cannot give up.
        """
        restored = builder.read_version(self.version)
        check_identity(restored.name, restored, self.identity)
        restored.check_writable(restored.name)
        lost = 0 if builder.base is None else builder.base.flags.writer & ~restored.flags.writer
        if lost & manifest.STABLE_FIELD_IDS:
            raise UnsupportedFeatureError(
                f"{restored.name}: version {self.version} cannot be restored: the table now never "
                "reuses a field id, and that version does not record which field ids were used; "
                "restore a version with writer flag 32768"
            )
        builder.restore(restored)


# --------------------------------------------------------------------------------------------------
# Clone: the first version of a table or branch, made from a version of another table or branch.
#
# | field of `Clone` | content |
# | --- | --- |
# | is_shallow | whether the clone refers to the files of the source |
# | ref_name | branch of the source; none for the main branch |
# | ref_version | version of the source; the clone's first version has the same number |
# | ref_path | root of the source |
# | branch_name | the new branch; none for a table |
#
# A shallow clone has the root of its source as one more base path, and data files, deletion files
# and indexes without a base path get this base path. A deep clone has copies of all files, which
# have no base path. Schema, indexes, row ids and configuration are copied from the source. A clone
# has no conflicts. Specification: table/commit/transaction.md, table/layout.md.


@dataclass(frozen=True, slots=True)
class Clone(Operation):
    """Create the first version of a table or branch.

    - `renamed`: New names of copied data files whose names were not unique. This and the attribute
      below are not part of the transaction.
    - `kept_bases`: Ids of the base paths that a deep clone keeps, because its data refers to files
      below them.
    """

    name: ClassVar[str] = "clone"

    is_shallow: bool
    ref_version: int
    ref_path: str
    ref_name: str | None = None
    branch_name: str | None = None
    renamed: Mapping[tuple[int | None, str], str] = field(default_factory=dict, compare=False)
    kept_bases: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def is_table(self) -> bool:
        """Whether the clone is a table that shares the files of its source."""
        return self.is_shallow and self.branch_name is None

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Clone, source: str) -> Clone:
        return cls(
            message.is_shallow,
            message.ref_version,
            message.ref_path,
            message.ref_name if message.HasField("ref_name") else None,
            message.branch_name if message.HasField("branch_name") else None,
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        message = transaction.clone
        message.SetInParent()
        message.is_shallow = self.is_shallow
        message.ref_version = self.ref_version
        message.ref_path = self.ref_path
        if self.ref_name is not None:
            message.ref_name = self.ref_name
        if self.branch_name is not None:
            message.branch_name = self.branch_name

    def conflict(self, committed: Operation) -> Conflict:
        """Return that a clone, which reads one version, has no conflicts."""
        return Conflict.COMPATIBLE

    def apply(self, builder: ManifestBuilder) -> None:
        """Raise an error: a clone does not change a table. Raises InvalidInputError."""
        raise InvalidInputError(
            "a clone is the first version of another table and cannot be committed to this one; "
            "use Dataset.shallow_clone, deep_clone or create_branch"
        )

    def apply_to_source(self, builder: ManifestBuilder) -> None:
        """Change the manifest of the source version into the first manifest of the clone."""
        proto = builder.proto
        proto.version = self.ref_version
        if self.branch_name is None:
            proto.ClearField("branch")
        else:
            proto.branch = self.branch_name
        if self.is_shallow:
            self._set_base_ids(builder, self._add_source_base(proto))
        else:
            self._clear_base_ids(builder)

    def _add_source_base(self, proto: table_pb2.Manifest) -> int:
        base_id = max((base.id + 1 for base in proto.base_paths), default=0)
        proto.base_paths.add(
            id=base_id, path=self.ref_path, is_dataset_root=True, name=self.ref_name
        )
        return base_id

    def _set_base_ids(self, builder: ManifestBuilder, base_id: int) -> None:
        """Set the base path of data files, deletion files and indexes that have none."""
        for fragment in builder.proto.fragments:
            for file in _data_files(fragment):
                if not file.HasField("base_id"):
                    file.base_id = base_id
            if fragment.HasField("deletion_file") and not fragment.deletion_file.HasField(
                "base_id"
            ):
                fragment.deletion_file.base_id = base_id
        if builder.has_indices:
            for index in builder.indices.indices:
                if not index.HasField("base_id"):
                    index.base_id = base_id

    def _clear_base_ids(self, builder: ManifestBuilder) -> None:
        proto = builder.proto
        for fragment in proto.fragments:
            for file in _data_files(fragment):
                key = (file.base_id if file.HasField("base_id") else None, file.path)
                file.path = self.renamed.get(key, file.path)
                file.ClearField("base_id")
            if fragment.HasField("deletion_file"):
                fragment.deletion_file.ClearField("base_id")
        if builder.has_indices:
            for index in builder.indices.indices:
                index.ClearField("base_id")
        kept = [base for base in proto.base_paths if base.id in self.kept_bases]
        bases = table_pb2.Manifest(base_paths=kept)
        proto.ClearField("base_paths")
        proto.MergeFrom(bases)


def _data_files(fragment: table_pb2.DataFragment) -> list[table_pb2.DataFile]:
    return [*fragment.files, *(overlay.data_file for overlay in fragment.overlays)]
