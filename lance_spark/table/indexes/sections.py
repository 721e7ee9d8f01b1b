"""Index sections: which indexes a version has, and what they cover.

An index section is the `IndexSection` message of a manifest (`Draft.indices`). One index is one or more segments, messages
`IndexMetadata` of the same name. What matters to other operations:

| field | content |
| --- | --- |
| `uuid` | the segment, and its folder below _indices/ |
| `fields` | ids of the fields whose values it holds |
| `fragment_bitmap` | ids of the fragments that it was built from, a 32-bit Roaring bitmap; empty bytes = unknown |
| `dataset_version` | the version that it was built on |
| `index_details` | `Any`; the last part of its type URL says what kind of index it is |

Readers search fragments that are not in the bitmap without the index, and pass over answers of the index about fragments that are
not in the table (any more). So a bitmap that says too little costs time, and one that says too much gives wrong answers. Where there
is a fragment reuse index (`fragment_reuse`), fragments that are gone stand for those that their rows are in now.

What operations do to them stands in `index_updates`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from lance_spark.errors import CorruptTableError
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.manifest.manifest import Manifest

FRAGMENT_REUSE = fragment_reuse.NAME
MEM_WAL = "__lance_mem_wal"
_MAX_FRAGMENTS = 2**23
#: Names of segments that are no index of a column.
SYSTEM_NAMES = frozenset({FRAGMENT_REUSE, MEM_WAL})

_KINDS = {
    "BTreeIndexDetails": "BTREE",
    "BitmapIndexDetails": "BITMAP",
    "LabelListIndexDetails": "LABEL_LIST",
    "NGramIndexDetails": "NGRAM",
    "ZoneMapIndexDetails": "ZONEMAP",
    "BloomFilterIndexDetails": "BLOOMFILTER",
    "InvertedIndexDetails": "INVERTED",
    "VectorIndexDetails": "VECTOR",
    "JsonIndexDetails": "JSON",
    "RTreeIndexDetails": "RTREE",
    "FMIndexDetails": "FM",
    "MinHashLshIndexDetails": "MINHASH_LSH",
    "FragmentReuseIndexDetails": "FRAGMENT_REUSE",
    "MemWalIndexDetails": "MEM_WAL",
}
#: Kinds that hold row addresses even in tables with stable row ids, and cannot be remapped.
_ZONED = frozenset({"ZONEMAP", "BLOOMFILTER"})
#: From this version on, a BTREE index of a table with stable row ids holds row addresses besides.
_BTREE_WITH_ADDRESSES = 1


def section_of(manifest: Manifest) -> table_pb2.IndexSection:
    """Parse the index section of a version; it is empty if there are no indexes.

    Raises
    ------
    CorruptTableError
        It cannot be read, or segments of one index are of different columns.
    """
    section = section_for_reading(manifest)
    check_names(section, manifest.name)
    return section


def section_for_reading(manifest: Manifest) -> table_pb2.IndexSection:
    """Parse the index section of a version for a reader, which looks at single segments and does not need their names.

    Raises
    ------
    CorruptTableError
    """
    section = table_pb2.IndexSection()
    try:
        section.ParseFromString(manifest.index_section or b"")
    except DecodeError as error:
        raise CorruptTableError(f"{manifest.name}: no readable index section: {error}") from None
    check_section(section, manifest.name)
    return section


def check_names(section: table_pb2.IndexSection, name: str) -> None:
    """Refuse segments of one name that are of different columns: they are one index, which has one list of columns.

    Parameters
    ----------
    section : table_pb2.IndexSection
    name : str
        What errors call the manifest.

    Raises
    ------
    CorruptTableError
    """
    fields_of: dict[str, list[int]] = {}
    for index in section.indices:
        fields = list(index.fields)
        if fields_of.setdefault(index.name, fields) != fields and not is_system(index):
            raise CorruptTableError(
                f"{name}: index {index.name!r} has a segment of the fields {fields_of[index.name]} and one of the fields {fields}; "
                "restore a version from before, or overwrite the table"
            )


def check_section(section: table_pb2.IndexSection, name: str) -> None:
    """Refuse indexes whose ids or bitmaps cannot be read, or cover more fragments than any table has.

    Parameters
    ----------
    section : table_pb2.IndexSection
    name : str
        What errors call the manifest.

    Raises
    ------
    CorruptTableError
    """
    for index in section.indices:
        try:
            uuid_of(index)
            bitmap = fragment_bitmap(index)
        except CorruptTableError as error:
            raise CorruptTableError(f"{name}: {error}") from None
        # Some hundred kilobytes can stand for four billion numbers, which nobody must list.
        if bitmap is not None and len(bitmap) > _MAX_FRAGMENTS:
            raise CorruptTableError(
                f"{name}: index {index.name!r}: it covers {len(bitmap)} fragments, {_MAX_FRAGMENTS} are the limit"
            )


def uuid_of(index: table_pb2.IndexMetadata) -> str:
    """Return the id of a segment as text, which is the name of its folder below _indices/.

    Raises
    ------
    CorruptTableError
    """
    data = index.uuid.uuid
    if len(data) != 16:
        raise CorruptTableError(f"index {index.name!r}: an id of {len(data)} bytes, not 16")
    return str(uuid.UUID(bytes=data))


def kind(index: table_pb2.IndexMetadata) -> str:
    """Return what kind of index it is, for example ``BTREE`` or ``VECTOR``; the type's own name, if it is not known."""
    name = index.index_details.type_url.rsplit("/", 1)[-1].rsplit(".", 1)[-1]
    return _KINDS.get(name, name or "UNKNOWN")


def is_of_column(index: table_pb2.IndexMetadata, wanted: str, versions: Collection[int]) -> bool:
    """Tell whether it is of one column, of a kind, and of one of some versions."""
    return kind(index) == wanted and len(index.fields) == 1 and index.index_version in versions


def is_system(index: table_pb2.IndexMetadata) -> bool:
    """Tell whether it is no index of a column, but a record of the table's own."""
    return index.name in SYSTEM_NAMES


def fragment_bitmap(index: table_pb2.IndexMetadata) -> BitMap | None:
    """Return the ids of the fragments that a segment was built from; None if nobody knows.

    Raises
    ------
    CorruptTableError
    """
    data = index.fragment_bitmap
    if not data:
        return None
    try:
        return BitMap.deserialize(data)
    except (ValueError, IndexError, MemoryError) as error:
        raise CorruptTableError(
            f"index {index.name!r}: no readable fragment bitmap: {error}"
        ) from None


def set_fragment_bitmap(index: table_pb2.IndexMetadata, bitmap: BitMap | None) -> None:
    """Set the ids of the fragments that a segment was built from."""
    index.fragment_bitmap = b"" if bitmap is None else bitmap.serialize()


def holds_addresses(index: table_pb2.IndexMetadata, stable_row_ids: bool) -> bool:
    """Tell whether a segment finds rows by their address, so that it cannot follow them when they move.

    Without stable row ids all do, but those that hold zones are never remapped. With them, these and the newer BTREE do.
    """
    name = kind(index)
    if name in _ZONED or not stable_row_ids:
        return True
    return name == "BTREE" and index.index_version >= _BTREE_WITH_ADDRESSES


def related_fields(fields: Iterable[file_pb2.Field], ids: Collection[int]) -> frozenset[int]:
    """Return ids of fields with those of all fields below and above them.

    A packed struct is one column whose file names the struct alone, an index on a child names the child.
    """
    parents = {field.id: field.parent_id for field in fields}
    wanted = set(ids)
    found = set(ids)
    for number in ids:
        seen: set[int] = set()
        parent = parents.get(number, -1)
        while parent >= 0 and parent not in seen:
            seen.add(parent)
            parent = parents.get(parent, -1)
        found |= seen
    # Parents come before their children.
    for number, parent in parents.items():
        if parent in wanted:
            wanted.add(number)
    return frozenset(found | wanted)
