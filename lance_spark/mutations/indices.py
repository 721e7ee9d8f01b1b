"""The indexes of a table as its owner sees them: what there is, and taking one away.

Names, types and fields are those of pylance. An index has one or more segments, each built from
some fragments.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import table_pb2
from lance_spark.table.commit.commit import DEFAULT_MAX_RETRIES, commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.fragment_ids import FragmentIds
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.metadata.create_index import CreateIndex

#: As deep as schemas are nested.
_MAX_DEPTH = 64
_TYPES = {
    "BTREE": "BTree",
    "BITMAP": "Bitmap",
    "LABEL_LIST": "LabelList",
    "NGRAM": "NGram",
    "ZONEMAP": "ZoneMap",
    "BLOOMFILTER": "BloomFilter",
    "INVERTED": "Inverted",
    "RTREE": "RTree",
    "JSON": "Json",
    "FM": "Fm",
    "MINHASH_LSH": "MinHashLsh",
    "FRAGMENT_REUSE": "FragmentReuse",
    "MEM_WAL": "MemWal",
}
#: The name of a field that there is no more: its column was dropped or cast while the index was
#: built.
UNKNOWN = "<unknown>"


@dataclass(frozen=True, slots=True)
class IndexSegment:
    """A part of an index that was built at once.

    Attributes
    ----------
    uuid : str
        Names its folder below _indices/.
    dataset_version : int
        The version that it was built on.
    fragment_ids : set of int or None
        The fragments that it covers, some of which may be gone; None if nobody knows. It cannot be
        changed.
    index_version : int
    created_at : datetime or None
    size_bytes : int or None
        Of its files, if they are noted.
    base_id : int or None
        The base path it lies below, if not in the table itself.
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
        Ids of the fields that it is on.
    field_names : tuple of str
        Their names, dotted inside of structs.
    num_rows_indexed : int
        Live rows of the fragments that it covers.
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
        """Bytes of all files; None if some are not noted."""
        sizes = [segment.size_bytes for segment in self.segments]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def type_of(index: table_pb2.IndexMetadata) -> str:
    """Return the type of an index as pylance names it.

    Raises
    ------
    CorruptTableError
        Its details cannot be read.
    """
    kind = indexes.type_of_index(index)
    return _vector_type(index) if kind == "VECTOR" else _TYPES.get(kind, kind)


def list_indices(table: OpenTable) -> list[dict[str, Any]]:
    """Return what pylance tells of each segment; see `Dataset.list_indices`."""
    names = _field_names(table.manifest)
    content = _reuse_content(table)
    return [
        {
            "name": index.name,
            "type": type_of(index),
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
    rows = {item.id: item.num_rows for item in counted_fragments(table.paths, table.manifest)}
    live = BitMap(rows)
    results: dict[str, list[table_pb2.IndexMetadata]] = {}
    for index in _sorted(table):
        results.setdefault(index.name, []).append(index)
    described = []
    for name, segments in results.items():
        covered = BitMap()
        for segment in segments:
            covered |= (_covered(segment, content) or BitMap()) & live
        first = segments[0]
        described.append(
            IndexDescription(
                name=name,
                index_type=type_of(first),
                type_url=first.index_details.type_url,
                fields=tuple(first.fields),
                field_names=tuple(names.get(number, UNKNOWN) for number in first.fields),
                num_rows_indexed=sum(rows[number] for number in covered),
                segments=tuple(_segment(item, content) for item in segments),
            )
        )
    return described


def drop_index(
    table: OpenTable,
    name: str,
    *,
    properties: Mapping[str, str] | None = None,
    max_retries: int = DEFAULT_MAX_RETRIES,
) -> Manifest:
    """Take an index away, all its segments; its files stay until cleanup. See
    `Dataset.drop_index`.
    """
    segments = [index for index in indexes.section_of(table.manifest).indices if index.name == name]
    if not segments:
        known = sorted({index.name for index in indexes.section_of(table.manifest).indices})
        raise InvalidInputError(
            f"{table.store.display}: there is no index {name!r}; there are "
            f"{', '.join(known) or 'none'}"
        )
    if indexes.is_system(segments[0]):
        raise InvalidInputError(
            f"{table.store.display}: {name} is no index of a column, but what other indexes rely "
            "on; it cannot be dropped"
        )
    transaction = Transaction.new(table.version, CreateIndex((), tuple(segments)), properties)
    return commit(table.store, transaction, table.manifest, max_retries=max_retries)


def _sorted(table: OpenTable) -> list[table_pb2.IndexMetadata]:
    return sorted(indexes.section_of(table.manifest).indices, key=lambda index: index.name)


def _segment(
    index: table_pb2.IndexMetadata,
    content: table_pb2.FragmentReuseIndexDetails.InlineContent | None,
) -> IndexSegment:
    created = None
    if index.HasField("created_at"):
        # Before the epoch, or past what dates can be: damage that harms nobody.
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


def _reuse_content(
    table: OpenTable,
) -> table_pb2.FragmentReuseIndexDetails.InlineContent | None:
    entry = fragment_reuse.find_entry(indexes.section_of(table.manifest))
    if entry is None or fragment_reuse.is_tagged(entry):
        return None
    return fragment_reuse.read_content(table.paths, entry)


def _vector_type(index: table_pb2.IndexMetadata) -> str:
    # Readers of other tables need none of these messages.
    from lance_spark.proto import index_pb2

    details = index_pb2.VectorIndexDetails()
    try:
        details.ParseFromString(index.index_details.value)
    except DecodeError as error:
        raise CorruptTableError(f"index {index.name!r}: no readable details: {error}") from None
    compression = details.WhichOneof("compression")
    if compression is None and not index.index_details.value:
        # Early writers left it to the index's own files.
        return "Vector"
    hnsw = "HNSW_" if details.HasField("hnsw_index_config") else ""
    return f"IVF_{hnsw}{(compression or 'flat').upper()}"


def _field_names(manifest: Manifest) -> Mapping[int, str]:
    names: dict[int, str] = {}
    depths: dict[int, int] = {}
    for field in manifest.message.fields:
        above = names.get(field.parent_id)
        names[field.id] = field.name if above is None else f"{above}.{field.name}"
        depths[field.id] = depths.get(field.parent_id, 0) + 1
        # Names of thousands, each inside the one before, are gigabytes.
        if depths[field.id] > _MAX_DEPTH:
            raise CorruptTableError(
                f"{manifest.name}: field {field.name!r} is nested more than {_MAX_DEPTH} deep"
            )
    return names
