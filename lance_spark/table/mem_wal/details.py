"""The details of the index `__lance_mem_wal`: settings of a MemWAL, and its progress.

The index is an entry of the index section without files and fields. Its details are the protobuf
message `MemWalIndexDetails`. Each change gives the index another id.

| field | content |
| --- | --- |
| num_shards | number of buckets; 1 without sharding, 0 if shards are made by hand or by value |
| sharding_specs | how the shard of a row follows from its columns |
| maintained_indexes, maintain_all_indexes | indexes of the table that SSTables have, too |
| writer_config_defaults | options of writers, as text; either none or all |
| compacted_sstables | for each shard, the newest generation whose rows are in the base table |
| index_catchup | for each index of the table, the generations whose rows the index has |

A table without this entry has no MemWAL, even if there are files below `_mem_wal/`.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptTableError
from lance_spark.proto import table_pb2
from lance_spark.table.indexes.sections import MEM_WAL, section_of
from lance_spark.table.manifest.manifest import Manifest

_TYPE_URL = "/lance.table.MemWalIndexDetails"


@dataclass(frozen=True)
class ShardingField:
    """A part of the key of a shard: a transform of columns.

    Attributes
    ----------
    field_id : str
        Name of the part.
    source_ids : sequence of int
        Ids of the fields of the table.
    transform : str, optional
        ``bucket``, ``identity`` or ``unsharded``; None if there is an expression.
    expression : str, optional
        No client evaluates expressions.
    result_type : str
        Arrow type of the value, for example ``int32``.
    parameters : mapping of str to str
        Of ``bucket``: ``num_buckets``.
    """

    field_id: str
    source_ids: tuple[int, ...]
    transform: str | None = None
    expression: str | None = None
    result_type: str = "int32"
    parameters: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "source_ids", tuple(self.source_ids))
        object.__setattr__(self, "parameters", dict(self.parameters or {}))


@dataclass(frozen=True)
class ShardingSpec:
    """How the shard of a row follows from its columns."""

    spec_id: int
    fields: tuple[ShardingField, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))


@dataclass(frozen=True)
class MemWalDetails:
    """The settings of a MemWAL, and its progress.

    - `compacted`: For each shard, the newest generation whose rows are in the base table.
    - `index_catchup`: For each index by name and each shard, the newest generation whose rows the
      index has. An index that is missing here may lack all of them.
    - `message`: As it was read, with fields that this release does not know. Must not be modified.
    """

    num_shards: int = 0
    sharding_specs: tuple[ShardingSpec, ...] = ()
    maintained_indexes: tuple[str, ...] = ()
    maintain_all_indexes: bool = False
    writer_defaults: Mapping[str, str] = field(default_factory=dict)
    compacted: Mapping[uuid.UUID, int] = field(default_factory=dict)
    index_catchup: Mapping[str, Mapping[uuid.UUID, int]] = field(default_factory=dict)
    message: table_pb2.MemWalIndexDetails = field(
        default_factory=table_pb2.MemWalIndexDetails, compare=False, repr=False
    )


def details_of(manifest: Manifest) -> MemWalDetails | None:
    """Return the details of the MemWAL of a version; None if it has no MemWAL.

    Raises CorruptTableError: the indexes of the version, or the details, cannot be read.
    """
    index = find_index(section_of(manifest))
    return None if index is None else decode(index, manifest.name)


def find_index(section: table_pb2.IndexSection) -> table_pb2.IndexMetadata | None:
    """Return the entry `__lance_mem_wal` of an index section; None without MemWAL."""
    return next((index for index in section.indices if index.name == MEM_WAL), None)


def decode(index: table_pb2.IndexMetadata, name: str) -> MemWalDetails:
    """Parse and check the details of the entry `__lance_mem_wal`.

    - `name`: Name of the manifest, for errors.

    Raises CorruptTableError.
    """
    try:
        message = table_pb2.MemWalIndexDetails.FromString(index.index_details.value)
    except DecodeError as error:
        raise CorruptTableError(
            f"{name}: the details of index {MEM_WAL} cannot be decoded: {error}"
        ) from None
    return MemWalDetails(
        num_shards=message.num_shards,
        sharding_specs=tuple(map(_spec, message.sharding_specs)),
        maintained_indexes=tuple(message.maintained_indexes),
        maintain_all_indexes=message.maintain_all_indexes,
        writer_defaults=dict(message.writer_config_defaults),
        compacted=generations_of(message.compacted_sstables, name),
        index_catchup={
            progress.index_name: generations_of(progress.caught_up_generations, name)
            for progress in message.index_catchup
        },
        message=message,
    )


def encode(details: MemWalDetails) -> bytes:
    """Return the bytes of the details."""
    message = table_pb2.MemWalIndexDetails()
    message.CopyFrom(details.message)
    message.num_shards = details.num_shards
    # Fields that this release does not know stay in specs that did not change.
    if tuple(map(_spec, message.sharding_specs)) != details.sharding_specs:
        message.ClearField("sharding_specs")
        message.sharding_specs.extend(map(_spec_message, details.sharding_specs))
    message.ClearField("maintained_indexes")
    message.maintained_indexes.extend(details.maintained_indexes)
    message.maintain_all_indexes = details.maintain_all_indexes
    message.writer_config_defaults.clear()
    message.writer_config_defaults.update(details.writer_defaults)
    message.ClearField("compacted_sstables")
    message.compacted_sstables.extend(compacted_messages(details.compacted))
    message.ClearField("index_catchup")
    for name, generations in details.index_catchup.items():
        message.index_catchup.add(
            index_name=name, caught_up_generations=compacted_messages(generations)
        )
    return message.SerializeToString()


def new_index(details: MemWalDetails, version: int) -> table_pb2.IndexMetadata:
    """Return a new entry `__lance_mem_wal`.

    - `version`: The version of the table that the change was planned on.
    """
    index = table_pb2.IndexMetadata(name=MEM_WAL, index_version=0)
    index.index_details.type_url = _TYPE_URL
    replace_details(index, details, version)
    return index


def replace_details(index: table_pb2.IndexMetadata, details: MemWalDetails, version: int) -> None:
    """Put other details into the entry `__lance_mem_wal`, and give it another id.

    - `version`: The version of the change.
    """
    index.index_details.value = encode(details)
    index.uuid.uuid = uuid.uuid4().bytes
    index.dataset_version = version
    index.created_at = time.time_ns() // 1_000_000


def generations_of(tables: Iterable[table_pb2.CompactedSsTable], name: str) -> dict[uuid.UUID, int]:
    """Return the generation of each shard in a list of messages.

    - `name`: Name of the file, for errors.

    Raises CorruptTableError: an id is not a UUID, or a shard is listed twice.
    """
    generations: dict[uuid.UUID, int] = {}
    for table in tables:
        if len(table.shard_id.uuid) != 16:
            raise CorruptTableError(
                f"{name}: a shard of the MemWAL has the id {table.shard_id.uuid.hex()!r}, which is "
                "not a UUID"
            )
        shard = uuid.UUID(bytes=table.shard_id.uuid)
        if shard in generations:
            raise CorruptTableError(f"{name}: shard {shard} of the MemWAL is listed twice")
        generations[shard] = table.generation
    return generations


def compacted_messages(
    generations: Mapping[uuid.UUID, int],
) -> list[table_pb2.CompactedSsTable]:
    """Return the messages for a generation of each shard."""
    return [
        table_pb2.CompactedSsTable(shard_id=table_pb2.UUID(uuid=shard.bytes), generation=generation)
        for shard, generation in generations.items()
    ]


def _spec(message: table_pb2.ShardingSpec) -> ShardingSpec:
    return ShardingSpec(
        message.spec_id,
        tuple(
            ShardingField(
                part.field_id,
                tuple(part.source_ids),
                part.transform if part.HasField("transform") else None,
                part.expression if part.HasField("expression") else None,
                part.result_type,
                dict(part.parameters),
            )
            for part in message.fields
        ),
    )


def _spec_message(spec: ShardingSpec) -> table_pb2.ShardingSpec:
    message = table_pb2.ShardingSpec(spec_id=spec.spec_id)
    for part in spec.fields:
        message.fields.add(
            field_id=part.field_id,
            source_ids=part.source_ids,
            transform=part.transform,
            expression=part.expression,
            result_type=part.result_type,
            parameters=part.parameters,
        )
    return message
