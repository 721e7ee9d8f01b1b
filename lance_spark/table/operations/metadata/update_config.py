"""UpdateConfig: changes of the configuration, and of table, schema and field metadata.

| field of `UpdateConfig` | content |
| --- | --- |
| upsert_values, delete_keys | configuration to set, and keys to delete (older writers) |
| schema_metadata | the new metadata of the schema (older writers) |
| field_metadata | the new metadata of fields, by id (older writers) |
| config_updates | update of the configuration |
| table_metadata_updates | update of the table's metadata |
| schema_metadata_updates | update of the schema's metadata |
| field_metadata_updates | updates of the metadata of fields, by id |

An update has keys and values, and a flag that deletes all other keys. A key without a value is
deleted. Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.keys import set_keys
from lance_spark.file.schema.rules import check_fields
from lance_spark.proto import transaction_pb2
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.operations.base import SCHEMA_METADATA, Conflict, Operation

_V = TypeVar("_V", str, bytes)


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
    """

    name: ClassVar[str] = "update_config"

    config: MapUpdate | None = None
    table_metadata: MapUpdate | None = None
    schema_metadata: MapUpdate | None = None
    field_metadata: Mapping[int, MapUpdate] = field(default_factory=dict)

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
