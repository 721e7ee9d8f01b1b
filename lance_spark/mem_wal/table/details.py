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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from lance_spark.errors import CommitConflictError, CorruptTableError, InvalidInputError
from lance_spark.mem_wal.table.shard_manifest import ShardManifest
from lance_spark.proto import table_pb2
from lance_spark.table.indexes.sections import (
    MEM_WAL,
    fragment_bitmap,
    is_system,
    may_have_mem_wal,
    section_of,
)
from lance_spark.table.manifest.manifest import Manifest

if TYPE_CHECKING:
    from lance_spark.table.manifest.builder import ManifestBuilder


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


# --------------------------------------------------------------------------------------------------
# The progress of compactions, which operations record in the index `__lance_mem_wal`.
#
# | proposed generation of a shard | outcome |
# | --- | --- |
# | greater than the recorded one, also by more than 1 | recorded |
# | not greater | stale: the commit fails, and is not tried again |
#
# A stale commit has rows of SSTables that another client has brought into the table before, or
# older rows of the same keys.


def record_compacted(
    builder: ManifestBuilder, tables: Iterable[table_pb2.CompactedSsTable]
) -> None:
    """Record the newest generations that the next version has.

    Raises CorruptTableError. Raises InvalidInputError: the table has no MemWAL, or a shard is given
    twice. Raises CommitConflictError: a generation is stale; not retryable.
    """
    name = builder.base.name if builder.base is not None else "the new table"
    index = find_index(builder.indices)
    if index is None:
        raise InvalidInputError(
            f"{name}: the table has no index {MEM_WAL}, so the progress of a compaction cannot be "
            "recorded; initialize a MemWAL first (Dataset.initialize_mem_wal, "
            "LanceTable.initialize_mem_wal)"
        )
    details = decode(index, name)
    tables = list(tables)
    if len({table.shard_id.uuid for table in tables}) < len(tables):
        raise InvalidInputError(f"{name}: an operation has two generations of one shard")
    proposed = generations_of(tables, "the transaction")
    for shard, generation in proposed.items():
        if is_stale(shard, generation, details.compacted):
            raise CommitConflictError(
                f"{name}: generation {generation} of shard {shard} is stale: the table has the "
                f"rows up to generation {details.compacted[shard]} already; nothing is left to do",
                retryable=False,
            )
    details = replace(details, compacted={**details.compacted, **proposed})
    replace_details(index, details, builder.version)


def is_stale(shard: uuid.UUID, generation: int, recorded: Mapping[uuid.UUID, int]) -> bool:
    """Return whether a generation of a shard is not greater than the recorded one."""
    return generation <= recorded.get(shard, 0)


# --------------------------------------------------------------------------------------------------
# The last batch of each stream that a shard has, which only this package records.
#
# It is a part of shard manifests, so that it changes together with the rows. Other clients do not
# keep it in the versions that they write. Then it is searched in older versions.
#
# A batch that was written as an SSTable is recorded with the claim. As long as the shard has this
# claim, its log has no rows that are not flushed. A batch of the log is recorded without claim.

#: Properties of a WAL entry with the rows of a batch.
QUERY_ID, BATCH = "lance_spark.stream.query_id", "lance_spark.stream.batch"
#: Streams that a shard manifest remembers.
_MOST_STREAMS = 32


def progress_of(manifest: ShardManifest, query_id: str) -> table_pb2.StreamProgress | None:
    """Return the last batch of a stream that a version has; None if it does not know the stream."""
    for progress in manifest.message.stream_progress:
        if progress.query_id == query_id:
            return progress
    return None


def progress_in(properties: Mapping[str, str]) -> table_pb2.StreamProgress | None:
    """Return the batch whose rows a WAL entry has, by its properties; None for other entries.

    It has no claim: later entries of the log can have rows of the same claim that are not flushed.
    """
    query_id, number = properties.get(QUERY_ID), properties.get(BATCH, "")
    if not query_id or not (number.isascii() and number.isdecimal() and len(number) < 20):
        return None
    return table_pb2.StreamProgress(query_id=query_id, batch=int(number))


def with_progress(
    manifest: ShardManifest, progress: Sequence[table_pb2.StreamProgress]
) -> ShardManifest:
    """Return a version that knows newer batches of some streams."""
    if not progress:
        return manifest
    newer = {part.query_id: part for part in progress}
    kept = [part for part in manifest.message.stream_progress if part.query_id not in newer] + list(
        newer.values()
    )
    message = table_pb2.ShardManifest()
    message.CopyFrom(manifest.message)
    message.ClearField("stream_progress")
    message.stream_progress.extend(kept[-_MOST_STREAMS:])
    return replace(manifest, message=message)


# --------------------------------------------------------------------------------------------------
# Which generations of a MemWAL each index has: `index_catchup`, computed at each commit.
#
# An index that covers all fragments of a version has all rows of the generations that this version
# has. A commit knows the version that it was planned on. So for each index of the new version:
#
# | segments of the index, by uuid and fragments | they cover all fragments of the planned version |
#     recorded generations |
# | --- | --- | --- |
# | unchanged | no | those of before |
# | unchanged | yes | the greater of those of before and those of the planned version |
# | changed | no | none |
# | changed | yes | those of the planned version |
#
# No generation is greater than the recorded progress of compactions. A restore keeps what the
# restored version records. A read of the index alone needs the SSTables above these generations.

_Segments = dict[str, list[table_pb2.IndexMetadata]]


def catch_up_indexes(builder: ManifestBuilder, planned: Manifest) -> None:
    """Set the generations that the indexes of the next version have.

    - `builder`: The operation has been applied to it.
    - `planned`: The version that the operation was planned on.

    Raises CorruptTableError.
    """
    # Most tables have no MemWAL: their index section is not parsed.
    base = builder.base
    if base is None or not may_have_mem_wal(builder.index_section):
        return
    index = find_index(builder.indices)
    planned_details = details_of(planned)
    if index is None or planned_details is None:
        return
    details = decode(index, base.name)
    proved = _at_most(planned_details.compacted, details.compacted)
    live = BitMap([fragment.id for fragment in planned.message.fragments])
    before = _segments(section_of(base))
    catchup = {}
    for name, segments in _segments(builder.indices).items():
        recorded = details.index_catchup.get(name, {})
        if not _is_same(before.get(name, []), segments):
            recorded = {}
        if live.issubset(_covered(segments)):
            recorded = {
                **recorded,
                **{shard: max(recorded.get(shard, 0), proved[shard]) for shard in proved},
            }
        if recorded:
            catchup[name] = recorded
    if catchup != details.index_catchup:
        replace_details(index, replace(details, index_catchup=catchup), builder.version)


def _at_most(
    generations: Mapping[uuid.UUID, int], limits: Mapping[uuid.UUID, int]
) -> dict[uuid.UUID, int]:
    limited = {
        shard: min(generation, limits.get(shard, 0)) for shard, generation in generations.items()
    }
    return {shard: generation for shard, generation in limited.items() if generation}


def _segments(section: table_pb2.IndexSection) -> _Segments:
    segments: _Segments = {}
    for index in section.indices:
        if not is_system(index):
            segments.setdefault(index.name, []).append(index)
    return segments


def _is_same(before: list[table_pb2.IndexMetadata], after: list[table_pb2.IndexMetadata]) -> bool:
    first, second = (
        {(segment.uuid.uuid, segment.fragment_bitmap) for segment in segments}
        for segments in (before, after)
    )
    return first == second


def _covered(segments: list[table_pb2.IndexMetadata]) -> BitMap:
    covered = BitMap()
    for segment in segments:
        covered |= fragment_bitmap(segment) or BitMap()
    return covered
