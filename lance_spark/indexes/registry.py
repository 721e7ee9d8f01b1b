"""The types of indexes, and where the parts of each are.

This module imports nothing of the types: a part is a dotted path, imported when it is first asked
for. The docstring of `lance_spark.indexes` has the class of each part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lance_spark.subjects import load


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexType:
    """A type of index.

    - `name`: Such as ``BTREE``.
    - `title`: The name that pylance shows.
    - `type_url`: Of the message in `index_details`.
    - `versions`: The index versions that this release reads; none if it reads no index of the type.
      Segments of other versions stay as they are: they are not read, and not written again, and
      cover no new fragment.
    - `is_zoned`: Whether segments describe zones as a whole. They hold row addresses even in tables
      with stable row ids, and cannot be remapped.
    - `addresses_since`: The index version from which on segments hold row addresses in tables with
      stable row ids.
    - `adds_answers`: Whether pylance uses the answers of all segments of row ids, also for rows
      that a newer segment has.
    - `keeps_deleted`: Whether an entry of a deleted row does no harm, if it is an address: no new
      row gets its address. But a row that was updated keeps its row id.
    - `in_documents`: Whether the values at a path of JSON documents can have an index of the type.
    - `in_stable_documents`: Whether other clients read such an index in tables with stable row ids.
    - `search`, `zones`, `documents`, `bounds`, `zone_statistics`, `held_fragments`: Dotted paths of
      what scans use.
    - `builders`: Dotted paths of what creates indexes, by the name for which users ask.
    - `remapping`, `check`, `described`, `prewarm`: Dotted paths of what maintenance uses.
    """

    name: str
    title: str
    type_url: str
    versions: tuple[int, ...] = ()
    is_zoned: bool = False
    addresses_since: int | None = None
    adds_answers: bool = False
    keeps_deleted: bool = False
    in_documents: bool = False
    in_stable_documents: bool = False
    search: str | None = None
    zones: str | None = None
    documents: str | None = None
    bounds: str | None = None
    zone_statistics: str | None = None
    held_fragments: str | None = None
    builders: Mapping[str, str] = field(default_factory=dict)
    remapping: str | None = None
    check: str | None = None
    described: str | None = None
    prewarm: str | None = None


#: By name, in the order in which the indexes of a column are asked.
TYPES: Mapping[str, IndexType] = {
    index_type.name: index_type
    for index_type in (
        IndexType(
            name="BTREE",
            title="BTree",
            type_url="/lance.table.BTreeIndexDetails",
            versions=(0, 1),
            addresses_since=1,
            adds_answers=True,
            keeps_deleted=True,
            in_documents=True,
            search="lance_spark.indexes.btree.search.SEARCH",
            bounds="lance_spark.indexes.btree.search.read_bounds",
            held_fragments="lance_spark.indexes.btree.files.held_fragments",
            builders={"BTREE": "lance_spark.indexes.btree.build.BUILDER"},
            remapping="lance_spark.indexes.btree.build.REMAPPING",
            check="lance_spark.indexes.btree.build.CHECK",
            prewarm="lance_spark.indexes.btree.search.prewarm",
        ),
        IndexType(
            name="BITMAP",
            title="Bitmap",
            type_url="/lance.table.BitmapIndexDetails",
            versions=(0,),
            adds_answers=True,
            in_documents=True,
            in_stable_documents=True,
            search="lance_spark.indexes.bitmap.files.SEARCH",
            builders={"BITMAP": "lance_spark.indexes.bitmap.build.BUILDER"},
            remapping="lance_spark.indexes.bitmap.build.REMAPPING",
            check="lance_spark.indexes.bitmap.build.CHECK",
            prewarm="lance_spark.indexes.bitmap.files.cached_keys",
        ),
        IndexType(
            name="LABEL_LIST",
            title="LabelList",
            type_url="/lance.table.LabelListIndexDetails",
            versions=(0, 1),
            adds_answers=True,
            search="lance_spark.indexes.label_list.files.SEARCH",
            builders={"LABEL_LIST": "lance_spark.indexes.label_list.build.BUILDER"},
            remapping="lance_spark.indexes.label_list.build.REMAPPING",
            check="lance_spark.indexes.label_list.build.CHECK",
            prewarm="lance_spark.indexes.bitmap.files.cached_keys",
        ),
        IndexType(
            name="NGRAM",
            title="NGram",
            type_url="/lance.table.NGramIndexDetails",
            versions=(0,),
            in_documents=True,
            in_stable_documents=True,
            search="lance_spark.indexes.ngram.files.SEARCH",
            builders={"NGRAM": "lance_spark.indexes.ngram.build.BUILDER"},
            remapping="lance_spark.indexes.ngram.build.REMAPPING",
            check="lance_spark.indexes.ngram.build.CHECK",
            prewarm="lance_spark.indexes.ngram.files.cached_trigrams",
        ),
        IndexType(
            name="ZONEMAP",
            title="ZoneMap",
            type_url="/lance.table.ZoneMapIndexDetails",
            versions=(0,),
            is_zoned=True,
            keeps_deleted=True,
            in_documents=True,
            zones="lance_spark.indexes.zone_map.files.SEARCH",
            zone_statistics="lance_spark.indexes.zone_map.files.read_zones",
            builders={"ZONEMAP": "lance_spark.indexes.zone_map.build.BUILDER"},
            check="lance_spark.indexes.zone_map.build.CHECK",
            prewarm="lance_spark.indexes.zone_map.files.cached_zones",
        ),
        IndexType(
            name="BLOOMFILTER",
            title="BloomFilter",
            type_url="/lance.index.pb.BloomFilterIndexDetails",
            versions=(0,),
            is_zoned=True,
            keeps_deleted=True,
            in_documents=True,
            zones="lance_spark.indexes.bloom_filter.files.SEARCH",
            builders={"BLOOMFILTER": "lance_spark.indexes.bloom_filter.build.BUILDER"},
            check="lance_spark.indexes.bloom_filter.build.CHECK",
            prewarm="lance_spark.indexes.bloom_filter.files.cached_file",
        ),
        IndexType(
            name="INVERTED",
            title="Inverted",
            type_url="/lance.table.InvertedIndexDetails",
            versions=(0, 1, 2, 3),
            adds_answers=True,
            builders={"INVERTED": "lance_spark.indexes.text.build.BUILDER"},
            remapping="lance_spark.indexes.text.build.REMAPPING",
            check="lance_spark.indexes.text.build.CHECK",
            described="lance_spark.indexes.text.build.DESCRIBED",
            prewarm="lance_spark.indexes.text.build.prewarm",
        ),
        IndexType(
            name="JSON",
            title="Json",
            type_url="/lance.index.pb.JsonIndexDetails",
            versions=(0,),
            adds_answers=True,
            documents="lance_spark.indexes.json.files.DOCUMENTS",
            builders={"JSON": "lance_spark.indexes.json.build.BUILDER"},
            described="lance_spark.indexes.json.build.DESCRIBED",
        ),
        IndexType(
            name="RTREE",
            title="RTree",
            type_url="/lance.index.pb.RTreeIndexDetails",
            versions=(0,),
            adds_answers=True,
            search="lance_spark.indexes.rtree.files.SEARCH",
            builders={"RTREE": "lance_spark.indexes.rtree.build.BUILDER"},
            remapping="lance_spark.indexes.rtree.build.REMAPPING",
            check="lance_spark.indexes.rtree.build.CHECK",
            prewarm="lance_spark.indexes.rtree.files.cached_pages",
        ),
        IndexType(
            name="VECTOR",
            title="Vector",
            type_url="/lance.index.pb.VectorIndexDetails",
            versions=(0, 1, 2),
            builders={
                name: f"lance_spark.indexes.vectors.build.{name}"
                for name in (
                    "IVF_FLAT",
                    "IVF_SQ",
                    "IVF_PQ",
                    "IVF_RQ",
                    "IVF_HNSW_FLAT",
                    "IVF_HNSW_SQ",
                    "IVF_HNSW_PQ",
                )
            },
            remapping="lance_spark.indexes.vectors.maintenance.REMAPPING",
            check="lance_spark.indexes.vectors.maintenance.CHECK",
            described="lance_spark.indexes.vectors.maintenance.DESCRIBED",
            prewarm="lance_spark.indexes.vectors.maintenance.prewarm",
        ),
        # This release knows the names of these, and reads none of them.
        IndexType(name="FM", title="Fm", type_url="/lance.index.pb.FMIndexDetails"),
        IndexType(
            name="MINHASH_LSH",
            title="MinHashLsh",
            type_url="/lance.index.pb.MinHashLshIndexDetails",
        ),
        # Records of the table, and no indexes of columns.
        IndexType(
            name="FRAGMENT_REUSE",
            title="FragmentReuse",
            type_url="/lance.table.FragmentReuseIndexDetails",
        ),
        IndexType(name="MEM_WAL", title="MemWal", type_url="/lance.table.MemWalIndexDetails"),
    )
}


def _message_of(type_url: str) -> str:
    return type_url.rsplit("/", 1)[-1].rsplit(".", 1)[-1]


#: By the name of the message, in lower case: type URLs are compared without case.
_BY_MESSAGE = {_message_of(part.type_url).lower(): part.name for part in TYPES.values()}
#: Other names for which users may ask.
_ALIASES = {"FTS": "INVERTED"}
_BUILT = {name: part for part in TYPES.values() for name in part.builders}
#: The names of indexes that can be created.
CREATED = tuple(_BUILT)
#: Those of which the values at a path of JSON documents can have an index.
CREATED_IN_DOCUMENTS = tuple(part.name for part in TYPES.values() if part.in_documents)


def name_of(type_url: str) -> str:
    """Return the name of the type with a type URL; the name of the message if it is unknown."""
    message = _message_of(type_url)
    return _BY_MESSAGE.get(message.lower(), message or "UNKNOWN")


def part_of(type_name: str, part: str) -> Any:
    """Return a part of a type, such as its ``search``; None if the type is unknown or has none."""
    index_type = TYPES.get(type_name)
    path = None if index_type is None else getattr(index_type, part)
    return None if path is None else load(path)


def builder_named(name: str) -> Any:
    """Return the builder of the indexes with a name, in upper case; None if there is none."""
    name = _ALIASES.get(name, name)
    return load(_BUILT[name].builders[name]) if name in _BUILT else None


def type_built_as(name: str) -> IndexType:
    """Return the type of the indexes that are created by a name."""
    return _BUILT[name]


def types_with(part: str) -> Iterator[IndexType]:
    """Yield the types that have a part, in the order in which they are asked."""
    return (index_type for index_type in TYPES.values() if getattr(index_type, part))
