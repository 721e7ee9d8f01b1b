"""Which generations of a MemWAL each index has: `index_catchup`, computed at each commit.

An index that covers all fragments of a version has all rows of the generations that this version
has. A commit knows the version that it was planned on. So for each index of the new version:

| segments of the index, by uuid and fragments | they cover all fragments of the planned version | \
recorded generations |
| --- | --- | --- |
| unchanged | no | those of before |
| unchanged | yes | the greater of those of before and those of the planned version |
| changed | no | none |
| changed | yes | those of the planned version |

No generation is greater than the recorded progress of compactions. A restore keeps what the
restored version records. A read of the index alone needs the SSTables above these generations.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyroaring import BitMap

from lance_spark.proto import table_pb2
from lance_spark.table.indexes.sections import (
    fragment_bitmap,
    is_system,
    may_have_mem_wal,
    section_of,
)
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.mem_wal.details import decode, details_of, find_index, replace_details

if TYPE_CHECKING:
    from lance_spark.table.manifest.builder import ManifestBuilder

_Segments = dict[str, list[table_pb2.IndexMetadata]]


def catch_up_indexes(builder: ManifestBuilder, planned: Manifest) -> None:
    """Set the generations that the indexes of the next version have.

    Parameters
    ----------
    builder : ManifestBuilder
        The operation has been applied to it.
    planned : Manifest
        The version that the operation was planned on.

    Raises
    ------
    CorruptTableError
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
