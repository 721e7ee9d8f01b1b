"""Collection of the facts about indexes: coverage, size, age and stale entries.

Reads the manifest, and of vector indexes how many rows each partition has. A segment names the
fragments that it covers. Rows of them that were deleted, fragments that were removed, and old
addresses of rows that a deferred compaction moved, stay in the files of the segment until the index
is extended or created again.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from pyroaring import BitMap

from lance_spark.dataset.dataset import Dataset
from lance_spark.errors import LanceError
from lance_spark.inspect.report import (
    FragmentFacts,
    IndexFacts,
    PartitionFacts,
    SegmentFacts,
    VersionFacts,
)
from lance_spark.mutations.indexes.described import described_of
from lance_spark.mutations.indexes.existing import IndexDescription, IndexSegment
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.pruning.coverage import checked_section
from lance_spark.table.indexes import sections
from lance_spark.table.indexes.sections import FragmentIds


def index_facts(
    dataset: Dataset, version: VersionFacts, problems: list[str]
) -> tuple[IndexFacts, ...]:
    """Return the facts about the indexes of a version.

    Parameters
    ----------
    dataset : Dataset
    version : VersionFacts
    problems : list of str
        Gets a text for each file that cannot be read.

    Raises
    ------
    CorruptTableError, MissingFileError, StorageError
    """
    fragments = {fragment.id: fragment for fragment in version.fragments}
    now = datetime.datetime.now(datetime.UTC)
    named = {
        sections.uuid_of(index): sections.fragment_bitmap(index) or BitMap()
        for index in checked_section(dataset._table.paths, dataset._table.manifest).indices
    }
    partitions = _partitions(dataset, problems)
    return tuple(
        _index(description, fragments, named, partitions, now)
        for description in dataset.describe_indices()
    )


def _partitions(dataset: Dataset, problems: list[str]) -> dict[str, PartitionFacts]:
    """Return the partitions of segments of vector indexes, by the uuid of the segment."""
    facts = {}
    for index in sections.read_section(dataset._table.manifest).indices:
        described = described_of(index)
        if described is None or described.statistics is None:
            continue
        try:
            numbers = described.statistics(IndexFiles(dataset._table.paths, index))
        except LanceError as error:
            problems.append(f"index {index.name}: {error}")
            continue
        if numbers:
            rows = tuple(part["size"] for part in numbers["partitions"])
            facts[sections.uuid_of(index)] = PartitionFacts(
                numbers["metric_type"], rows, numbers["loss"]
            )
    return facts


def _index(
    description: IndexDescription,
    fragments: Mapping[int, FragmentFacts],
    named: Mapping[str, BitMap],
    partitions: Mapping[str, PartitionFacts],
    now: datetime.datetime,
) -> IndexFacts:
    segments = tuple(
        _segment(segment, fragments, named[segment.uuid], partitions.get(segment.uuid), now)
        for segment in description.segments
    )
    live = BitMap(fragments)
    covered = BitMap()
    for segment in description.segments:
        covered |= _covered(segment) & live
    # The records of a table, such as the fragment reuse index, are about no column.
    others = [
        fragment
        for fragment in fragments.values()
        if fragment.id not in covered and description.fields
    ]
    return IndexFacts(
        description.name,
        description.index_type,
        description.field_names,
        description.num_rows_indexed,
        len(segments),
        description.total_size_bytes,
        num_fragments=len(covered),
        num_uncovered_fragments=len(others),
        num_uncovered_rows=sum(item.num_rows - item.num_deleted_rows for item in others),
        num_deleted_rows=sum(fragments[number].num_deleted_rows for number in covered),
        num_removed_fragments=sum(segment.num_removed_fragments for segment in segments),
        num_moved_fragments=sum(segment.num_moved_fragments for segment in segments),
        segments=segments,
    )


def _segment(
    segment: IndexSegment,
    fragments: Mapping[int, FragmentFacts],
    named: BitMap,
    partitions: PartitionFacts | None,
    now: datetime.datetime,
) -> SegmentFacts:
    # A bitmap of few bytes can have millions of ids, most of which no fragment has.
    covered, live = _covered(segment), BitMap(fragments)
    existing = [fragments[number] for number in covered & live]
    created = segment.created_at
    return SegmentFacts(
        segment.uuid,
        segment.dataset_version,
        segment.index_version,
        created,
        None if created is None else max(now - created, datetime.timedelta()),
        segment.size_bytes,
        num_fragments=len(existing),
        num_rows=sum(fragment.num_rows - fragment.num_deleted_rows for fragment in existing),
        num_removed_fragments=len((named & covered) - live),
        num_moved_fragments=len(named - covered),
        partitions=partitions,
    )


def _covered(segment: IndexSegment) -> BitMap:
    """Return the fragments with the rows of a segment."""
    ids = segment.fragment_ids
    return ids.bitmap if isinstance(ids, FragmentIds) else BitMap()
