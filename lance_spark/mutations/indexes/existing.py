"""List, describe and drop the indexes of a table.

Names, types and attributes are as in pylance. An index has one or more segments, each built from
some fragments.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.indexes.coverage import checked_section
from lance_spark.indexes.details import described_of, index_type_of
from lance_spark.indexes.files import IndexFiles
from lance_spark.mutations.commits import at_version, commit_operation
from lance_spark.proto import table_pb2
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes.sections import FragmentIds
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.indexes import CreateIndex

#: Maximum depth of nested fields, as for schemas.
_MAX_DEPTH = 64
#: Name of a missing field: its column was dropped or cast while the index was built.
UNKNOWN = "<unknown>"


@dataclass(frozen=True, slots=True)
class IndexSegment:
    """A segment of an index.

    Attributes
    ----------
    uuid : str
        Name of its folder below _indices/.
    dataset_version : int
        The version that the segment was built on.
    fragment_ids : set of int or None
        The fragments that it covers, some of which may be removed; None if not recorded. The set
        is immutable.
    index_version : int
    created_at : datetime or None
    size_bytes : int or None
        Size of its files, if recorded.
    base_id : int or None
        Id of the base path of its files; None for the table itself.
    """

    uuid: str
    dataset_version: int
    fragment_ids: Set[int] | None
    index_version: int
    created_at: datetime.datetime | None
    size_bytes: int | None
    base_id: int | None


@dataclass(frozen=True, slots=True)
class IndexDescription:
    """An index.

    Attributes
    ----------
    name : str
    index_type : str
        For example ``BTree`` or ``IVF_PQ``.
    type_url : str
    fields : tuple of int
        Ids of the indexed fields.
    field_names : tuple of str
        Their names; a child of a struct has a path with dots.
    num_rows_indexed : int
        Number of live rows of the covered fragments.
    segments : tuple of IndexSegment
    """

    name: str
    index_type: str
    type_url: str
    fields: tuple[int, ...]
    field_names: tuple[str, ...]
    num_rows_indexed: int
    segments: tuple[IndexSegment, ...]

    @property
    def num_segments(self) -> int:
        """Number of segments."""
        return len(self.segments)

    @property
    def total_size_bytes(self) -> int | None:
        """Size of all files in bytes; None if a size is not recorded."""
        sizes = [segment.size_bytes for segment in self.segments]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def list_indices(table: OpenTable) -> list[dict[str, Any]]:
    """Return the segments as pylance describes them; see `Dataset.list_indices`."""
    names = _field_names(table.manifest)
    content = _reuse_content(table)
    return [
        {
            "name": index.name,
            "type": index_type_of(index),
            "uuid": indexes.uuid_of(index),
            "fields": [names.get(number, UNKNOWN) for number in index.fields],
            "version": index.dataset_version,
            "fragment_ids": _fragment_ids(index, content),
            "base_id": index.base_id if index.HasField("base_id") else None,
        }
        for index in _sorted(table)
    ]


def describe_indices(table: OpenTable) -> list[IndexDescription]:
    """Return the indexes; see `Dataset.describe_indices`."""
    names = _field_names(table.manifest)
    content = _reuse_content(table)
    fragments = counted_fragments(table.paths, table.manifest)
    rows = {fragment.id: fragment.num_rows for fragment in fragments}
    live = BitMap(rows)
    by_name: dict[str, list[table_pb2.IndexMetadata]] = {}
    for index in _sorted(table):
        by_name.setdefault(index.name, []).append(index)
    described = []
    for name, segments in by_name.items():
        covered = BitMap()
        for segment in segments:
            covered |= (_covered(segment, content) or BitMap()) & live
        first = segments[0]
        described.append(
            IndexDescription(
                name=name,
                index_type=index_type_of(first),
                type_url=first.index_details.type_url,
                fields=tuple(first.fields),
                field_names=tuple(names.get(number, UNKNOWN) for number in first.fields),
                num_rows_indexed=sum(rows[number] for number in covered),
                segments=tuple(_segment(index, content) for index in segments),
            )
        )
    return described


def drop_index(table: OpenTable, name: str, options: CommitOptions) -> OpenTable:
    """Drop an index; its files stay until cleanup. See `Dataset.drop_index`."""
    segments = [index for index in indexes.section_of(table.manifest).indices if index.name == name]
    if not segments:
        existing = sorted({index.name for index in indexes.section_of(table.manifest).indices})
        raise InvalidInputError(
            f"{table.store.display}: index {name!r} not found; the indexes are "
            f"{', '.join(existing) or 'none'}"
        )
    if indexes.is_system(segments[0]):
        raise InvalidInputError(
            f"{table.store.display}: index {name} cannot be dropped: it is not an index of a "
            "column, "
            "and other indexes need it"
        )
    return at_version(table, commit_operation(table, CreateIndex((), tuple(segments)), options))


def _sorted(table: OpenTable) -> list[table_pb2.IndexMetadata]:
    section = checked_section(table.paths, table.manifest)
    indexes.check_names(section, table.manifest.name)
    return sorted(section.indices, key=lambda index: index.name)


def _segment(
    index: table_pb2.IndexMetadata,
    content: table_pb2.FragmentReuseIndexDetails.InlineContent | None,
) -> IndexSegment:
    created = None
    if index.HasField("created_at"):
        # A time out of the range of dates is harmless damage.
        try:
            created = datetime.datetime.fromtimestamp(index.created_at / 1000, datetime.UTC)
        except (OverflowError, ValueError, OSError):
            created = None
    return IndexSegment(
        uuid=indexes.uuid_of(index),
        dataset_version=index.dataset_version,
        fragment_ids=_fragment_ids(index, content),
        index_version=index.index_version,
        created_at=created,
        size_bytes=sum(file.size_bytes for file in index.files) if index.files else None,
        base_id=index.base_id if index.HasField("base_id") else None,
    )


def _fragment_ids(
    index: table_pb2.IndexMetadata,
    content: table_pb2.FragmentReuseIndexDetails.InlineContent | None,
) -> FragmentIds | None:
    covered = _covered(index, content)
    return None if covered is None else FragmentIds(covered)


def _covered(
    index: table_pb2.IndexMetadata,
    content: table_pb2.FragmentReuseIndexDetails.InlineContent | None,
) -> BitMap | None:
    bitmap = indexes.fragment_bitmap(index)
    if bitmap is None or content is None:
        return bitmap
    return fragment_reuse.remap_fragments(bitmap, content)


def _reuse_content(table: OpenTable) -> table_pb2.FragmentReuseIndexDetails.InlineContent | None:
    entry = fragment_reuse.find_entry(indexes.section_of(table.manifest))
    if entry is None or fragment_reuse.is_tagged(entry):
        return None
    return fragment_reuse.read_content(table.paths, entry)


def _field_names(manifest: Manifest) -> Mapping[int, str]:
    names: dict[int, str] = {}
    depths: dict[int, int] = {}
    for field in manifest.message.fields:
        parent = names.get(field.parent_id)
        names[field.id] = field.name if parent is None else f"{parent}.{field.name}"
        depths[field.id] = depths.get(field.parent_id, 0) + 1
        # The names of thousands of nested fields would take gigabytes.
        if depths[field.id] > _MAX_DEPTH:
            raise CorruptTableError(
                f"{manifest.name}: field {field.name!r} is nested more than {_MAX_DEPTH} deep"
            )
    return names


# --------------------------------------------------------------------------------------------------
# Numbers about an index, in the form of pylance.


def index_statistics(table: OpenTable, name: str) -> dict[str, Any]:
    """Return numbers about an index; see `Dataset.index_statistics`.

    Raises CorruptTableError, CorruptFileError, StorageError. Raises InvalidInputError: the index
    does not exist.
    """
    described = [index for index in describe_indices(table) if index.name == name]
    if not described:
        existing = sorted(index.name for index in describe_indices(table))
        raise InvalidInputError(
            f"{table.store.display}: index {name!r} not found; the indexes are "
            f"{', '.join(existing) or 'none'}"
        )
    (index,) = described
    rows = {item.id: item.num_rows for item in counted_fragments(table.paths, table.manifest)}
    covered = {number for part in index.segments for number in part.fragment_ids or ()}
    covered &= rows.keys()
    return {
        "index_type": index.index_type,
        "name": name,
        "num_indices": index.num_segments,
        "num_indexed_fragments": len(covered),
        "num_indexed_rows": index.num_rows_indexed,
        "num_unindexed_fragments": len(rows) - len(covered),
        "num_unindexed_rows": sum(rows.values()) - index.num_rows_indexed,
        "indices": [
            _of_segment(table, index, segment)
            for segment in indexes.section_of(table.manifest).indices
            if segment.name == name
        ],
    }


def _of_segment(
    table: OpenTable, index: IndexDescription, segment: table_pb2.IndexMetadata
) -> dict[str, Any]:
    result: dict[str, Any] = {"index_type": index.index_type, "uuid": indexes.uuid_of(segment)}
    described = described_of(segment)
    if (
        described is None
        or described.statistics is None
        or not (segment.files and indexes.has_known_version(segment))
    ):
        return result
    return {**result, **described.statistics(IndexFiles(table.paths, segment))}
