"""UpdateConfig: configuration of the table, and metadata of the table, its schema and its fields.

| field of `UpdateConfig` | content |
| --- | --- |
| upsert_values, delete_keys | configuration to set, and keys of it to delete, as older writers put it |
| schema_metadata | all metadata of the schema, as older writers put it |
| field_metadata | all metadata of some fields, by id, as older writers put it |
| config_updates | what becomes of the configuration |
| table_metadata_updates | what becomes of the table's metadata |
| schema_metadata_updates | what becomes of the schema's metadata |
| field_metadata_updates | what becomes of the metadata of some fields, by id |

Each update is a list of keys with their values, keys without a value to be deleted, and whether to
start from nothing. Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import set_keys
from lance_spark.proto import transaction_pb2
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import SCHEMA_METADATA, Conflict, Operation

KIND = "update_config"
_V = TypeVar("_V", str, bytes)


@dataclass(frozen=True, slots=True)
class MapUpdate:
    """What becomes of a map of strings.

    Attributes
    ----------
    entries : mapping of str to str or None
        Values to set; None deletes.
    replace : bool
        Whether to start from an empty map.
    """

    entries: Mapping[str, str | None]
    replace: bool = False

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.UpdateMap) -> MapUpdate:
        """Parse the message; of several values for a key the last one counts."""
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

    def apply_to(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the map after the update."""
        merged = {} if self.replace else dict(values)
        for key, value in self.entries.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = value
        return merged


@dataclass(frozen=True, slots=True)
class UpdateConfig(Operation):
    """Change configuration and metadata.

    Attributes
    ----------
    config, table_metadata, schema_metadata : MapUpdate, optional
    field_metadata : mapping of int to MapUpdate
        By field id.
    """

    conflicts: ClassVar[Mapping[str, Conflict]] = {
        "append": Conflict.COMPATIBLE,
        "delete": Conflict.COMPATIBLE,
        "overwrite": Conflict.COMPATIBLE,
        "create_index": Conflict.COMPATIBLE,
        "rewrite": Conflict.COMPATIBLE,
        "merge": Conflict.COMPATIBLE,
        "restore": Conflict.COMPATIBLE,
        "reserve_fragments": Conflict.COMPATIBLE,
        "update": Conflict.COMPATIBLE,
        "project": Conflict.COMPATIBLE,
        "update_config": Conflict.COMPATIBLE,
        "data_replacement": Conflict.COMPATIBLE,
        "update_mem_wal_state": Conflict.COMPATIBLE,
        "clone": Conflict.COMPATIBLE,
        "update_bases": Conflict.COMPATIBLE,
        "data_overlay": Conflict.COMPATIBLE,
    }

    config: MapUpdate | None = None
    table_metadata: MapUpdate | None = None
    schema_metadata: MapUpdate | None = None
    field_metadata: Mapping[int, MapUpdate] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @property
    def config_keys(self) -> frozenset[str]:
        """Keys of the table's configuration that are set or deleted."""
        return frozenset(self.config.entries if self.config else ())

    @property
    def deleted_config_keys(self) -> frozenset[str]:
        """Those of them that are deleted."""
        entries = self.config.entries if self.config else {}
        return frozenset(key for key, value in entries.items() if value is None)

    @property
    def table_metadata_keys(self) -> frozenset[str]:
        """Keys of the table's metadata that are set or deleted."""
        return frozenset(self.table_metadata.entries if self.table_metadata else ())

    @property
    def replaces_table_metadata(self) -> bool:
        """Whether all other keys of the table's metadata go."""
        return self.table_metadata is not None and self.table_metadata.replace

    @property
    def metadata_targets(self) -> frozenset[int]:
        """Ids of the fields whose metadata it changes, and `SCHEMA_METADATA` if it is the
        schema's.
        """
        of_schema = () if self.schema_metadata is None else (SCHEMA_METADATA,)
        return frozenset((*of_schema, *self.field_metadata))

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.UpdateConfig, source: str
    ) -> UpdateConfig:
        """Parse the message; `source` is what errors call its file.

        What older writers put into fields of their own counts where the newer field is not there.
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
            number: MapUpdate.from_proto(update)
            for number, update in message.field_metadata_updates.items()
        } or {
            number: MapUpdate(dict(update.metadata), replace=True)
            for number, update in message.field_metadata.items()
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
        """Set the operation of a transaction's message."""
        message = transaction.update_config
        message.SetInParent()
        if self.config is not None:
            self.config.write_to(message.config_updates)
        if self.table_metadata is not None:
            self.table_metadata.write_to(message.table_metadata_updates)
        if self.schema_metadata is not None:
            self.schema_metadata.write_to(message.schema_metadata_updates)
        for number, update in self.field_metadata.items():
            update.write_to(message.field_metadata_updates[number])

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        if self._same_key_as(committed) or self._same_table_metadata_as(committed):
            return Conflict.INCOMPATIBLE
        targets = self.metadata_targets
        if committed.kind in ("overwrite", "restore") and targets:
            return Conflict.INCOMPATIBLE
        if committed.kind == KIND and targets & committed.metadata_targets:
            return Conflict.INCOMPATIBLE
        if committed.kind == "merge" and targets:
            # Its schema may have been planned with the metadata of before.
            return Conflict.RETRYABLE
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)

    def apply(self, draft: ManifestBuilder) -> None:
        """Change the maps.

        Raises
        ------
        InvalidInputError
            A field is not there.
        """
        proto = draft.proto
        if self.config is not None:
            _replace(proto.config, self.config)
        if self.table_metadata is not None:
            _replace(proto.table_metadata, self.table_metadata)
        if self.schema_metadata is not None:
            _replace_bytes(proto.schema_metadata, self.schema_metadata)
        if not self.field_metadata:
            return
        fields = {one.id: one for one in proto.fields}
        for number, update in self.field_metadata.items():
            if number not in fields:
                raise InvalidInputError(f"the table has no field of the id {number}")
            _replace_bytes(fields[number].metadata, update)
            if not fields[number].unenforced_primary_key:
                # A key that is set stays.
                set_keys(fields[number], dict(fields[number].metadata))

    def _same_key_as(self, committed: Operation) -> bool:
        """Tell whether both name a key of the configuration, and not only to delete it."""
        return bool(
            (self.config_keys & committed.config_keys)
            - (self.deleted_config_keys & committed.deleted_config_keys)
        )

    def _same_table_metadata_as(self, committed: Operation) -> bool:
        """Tell whether both change the table's metadata, and one of them all of it, or both the
        same key.
        """
        mine, theirs = self.table_metadata_keys, committed.table_metadata_keys
        if mine & theirs:
            return True
        replaces, replaced = self.replaces_table_metadata, committed.replaces_table_metadata
        return (replaces and (replaced or bool(theirs))) or (replaced and bool(mine))


def map_update(values: Mapping[str, str | None], *, replace: bool, what: str) -> MapUpdate:
    """Check values that a user gives, and return the update.

    Raises
    ------
    InvalidInputError
        A key or a value is no string.
    """
    if not isinstance(values, Mapping):
        raise InvalidInputError(f"{what} must be a mapping, not {type(values).__name__}")
    for key, value in values.items():
        if not isinstance(key, str) or not (value is None or isinstance(value, str)):
            raise InvalidInputError(
                f"{what}: {key!r}: {value!r} is no string with a string, or None to delete it"
            )
    return MapUpdate(dict(values), replace)


def _replace(target: MutableMapping[str, str], update: MapUpdate) -> None:
    merged = update.apply_to(target)
    _clear(target)
    target.update(merged)


def _replace_bytes(target: MutableMapping[str, bytes], update: MapUpdate) -> None:
    """Change a map of bytes, whose other values need not be text."""
    kept = {} if update.replace else dict(target)
    _clear(target)
    for key, value in kept.items():
        if key not in update.entries:
            target[key] = value
    for key, text in update.entries.items():
        if text is not None:
            target[key] = text.encode()


def _clear(target: MutableMapping[str, _V]) -> None:
    for key in list(target):
        del target[key]
