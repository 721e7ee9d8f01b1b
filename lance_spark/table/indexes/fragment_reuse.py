"""The fragment reuse index: where rows went that a compaction moved, for indexes that still hold their old addresses.

It is an entry `__lance_frag_reuse` of the index section, without fields and files. Its details are a message
`FragmentReuseIndexDetails`:

| field | content |
| --- | --- |
| `inline` | an `InlineContent`, or |
| `external` | a file below _indices/{uuid of the entry}/ with the bytes of one, when it has more than 200 KiB |

An `InlineContent` has a version for each rewrite (`legacy_versions`), oldest first:

| field | content |
| --- | --- |
| `dataset_version` | indexes built before this version hold the old addresses |
| `groups.changed_row_addrs` | old addresses of the rows that live on, a 64-bit Roaring bitmap |
| `groups.old_fragments`, `groups.new_fragments` | id, rows, deleted rows of each |

The n-th address of `changed_row_addrs` is the n-th row of the group's new fragments now; rows of old fragments that are not in it are
gone. A fragment bitmap that names old fragments of a group stands for its new ones. Entries of index version 1 or later ("tagged") hold
other transitions besides, and are not changed here.

Specification: table/index/system/frag_reuse.md.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from lance_spark.errors import CorruptTableError, InvalidInputError, UnsupportedFeatureError
from lance_spark.proto import table_pb2
from lance_spark.storage.uri import check_relative
from lance_spark.table.fragments.fragment import MAX_ID, Fragment
from lance_spark.table.paths import INDICES, TablePaths

NAME = "__lance_frag_reuse"
TYPE_URL = "/lance.table.FragmentReuseIndexDetails"
#: Content of more bytes goes to a file of its own.
INLINE_BYTES = 200 * 1024
DETAILS_FILE = "details.binpb"

_Content = table_pb2.FragmentReuseIndexDetails.InlineContent


@dataclass(frozen=True, slots=True)
class RemappedRows:
    """Rows of some fragments that are in others now.

    Attributes
    ----------
    addresses : bytes
        Their old addresses, a 64-bit Roaring bitmap.
    old, new : tuple of Fragment
        The new ones with their ids.
    """

    addresses: bytes
    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]


def find(section: table_pb2.IndexSection) -> table_pb2.IndexMetadata | None:
    """Return the entry, if there is one."""
    return next((one for one in section.indices if one.name == NAME), None)


def is_tagged(entry: table_pb2.IndexMetadata) -> bool:
    """Tell whether it holds transitions that this release only carries along."""
    return entry.index_version > 0


def check_plain(entry: table_pb2.IndexMetadata, table: str) -> None:
    """Refuse an entry that this release cannot follow; `table` is what errors call the table.

    Raises
    ------
    UnsupportedFeatureError
    """
    if is_tagged(entry):
        raise UnsupportedFeatureError(
            f"{table}: its fragment reuse index is of version {entry.index_version}, which this release keeps but does not "
            "extend; compact the table with pylance"
        )


def inline_content(entry: table_pb2.IndexMetadata) -> _Content | None:
    """Return the content of an entry; None if it stands in a file.

    Raises
    ------
    CorruptTableError
    """
    details = _details(entry)
    if details.WhichOneof("content") != "inline":
        return None
    return _checked(details.inline, "the fragment reuse index")


def read_content(paths: TablePaths, entry: table_pb2.IndexMetadata) -> _Content:
    """Return the content of an entry, wherever it stands.

    Raises
    ------
    CorruptTableError, MissingFileError, StorageError
    """
    details = _details(entry)
    if details.WhichOneof("content") == "inline":
        return _checked(details.inline, "the fragment reuse index")
    file = details.external
    try:
        check_relative(file.path)
    except InvalidInputError as error:
        raise CorruptTableError(f"the fragment reuse index: file {file.path!r}: {error}") from None
    base = entry.base_id if entry.HasField("base_id") else None
    folder = uuid.UUID(bytes=entry.uuid.uuid) if len(entry.uuid.uuid) == 16 else None
    data, name = paths.read_index_file(f"{folder}/{file.path}", base)
    if file.offset + file.size > len(data):
        raise CorruptTableError(
            f"{name}: {len(data)} bytes, but the fragment reuse index has {file.size} at {file.offset}"
        )
    return _parse(data[file.offset : file.offset + file.size], name)


def translate(bitmap: BitMap, content: _Content) -> BitMap:
    """Return the fragments that a fragment bitmap stands for.

    Fragments of a group that the bitmap does not have all of are left out.
    """
    found = bitmap.copy()
    for version in content.legacy_versions:
        for group in version.groups:
            old = BitMap(digest.id for digest in group.old_fragments)
            if found.isdisjoint(old):
                continue
            if old.issubset(found):
                found |= BitMap(digest.id for digest in group.new_fragments)
            found -= old
    return found


def build(
    paths: TablePaths, section: table_pb2.IndexSection, moves: Sequence[RemappedRows], version: int
) -> tuple[table_pb2.IndexMetadata, str | None]:
    """Make the entry of a version in which rows have moved; what the entry before holds is kept.

    Parameters
    ----------
    paths : TablePaths
        Of the newest version.
    section : table_pb2.IndexSection
        The newest version's.
    moves : sequence of MovedRows
    version : int
        Number of the newest version.

    Returns
    -------
    (table_pb2.IndexMetadata, str or None)
        The entry, and the file that was written for it, below the table's root.

    Raises
    ------
    UnsupportedFeatureError
        The entry is tagged.
    CorruptTableError, StorageError
    """
    before = find(section)
    content = _Content()
    if before is not None:
        check_plain(before, paths.store.display)
        content.CopyFrom(read_content(paths, before))
    added = content.legacy_versions.add(dataset_version=version + 1)
    for move in moves:
        group = added.groups.add(changed_row_addrs=move.addresses)
        group.old_fragments.extend(_digests(move.old))
        group.new_fragments.extend(_digests(move.new))
    covered = BitMap(
        digest.id
        for one in content.legacy_versions
        for group in one.groups
        for digest in group.new_fragments
    )
    identity = uuid.uuid4()
    entry = table_pb2.IndexMetadata(
        name=NAME,
        dataset_version=version,
        fragment_bitmap=covered.serialize(),
        index_version=0,
        created_at=time.time_ns() // 1_000_000,
    )
    entry.uuid.uuid = identity.bytes
    details = table_pb2.FragmentReuseIndexDetails()
    data: bytes = content.SerializeToString()
    path = None
    if len(data) <= INLINE_BYTES:
        details.inline.CopyFrom(content)
    else:
        path = f"{INDICES}/{identity}/{DETAILS_FILE}"
        paths.store.write_bytes(path, data)
        details.external.path = DETAILS_FILE
        details.external.size = len(data)
    entry.index_details.type_url = TYPE_URL
    entry.index_details.value = details.SerializeToString()
    return entry, path


def _digests(
    fragments: Iterable[Fragment],
) -> list[table_pb2.FragmentReuseIndexDetails.FragmentDigest]:
    return [
        table_pb2.FragmentReuseIndexDetails.FragmentDigest(
            id=one.id, physical_rows=one.physical_rows, num_deleted_rows=one.num_deleted_rows
        )
        for one in fragments
    ]


def _details(entry: table_pb2.IndexMetadata) -> table_pb2.FragmentReuseIndexDetails:
    details = table_pb2.FragmentReuseIndexDetails()
    try:
        details.ParseFromString(entry.index_details.value)
    except DecodeError as error:
        raise CorruptTableError(f"the fragment reuse index cannot be read: {error}") from None
    return details


def _parse(data: bytes, name: str) -> _Content:
    content = _Content()
    try:
        content.ParseFromString(data)
    except DecodeError as error:
        raise CorruptTableError(f"{name}: no content of a fragment reuse index: {error}") from None
    return _checked(content, name)


def _checked(content: _Content, name: str) -> _Content:
    for version in content.legacy_versions:
        for group in version.groups:
            for digest in (*group.old_fragments, *group.new_fragments):
                if digest.id > MAX_ID:
                    raise CorruptTableError(f"{name}: {digest.id} is no id of a fragment")
    return content
