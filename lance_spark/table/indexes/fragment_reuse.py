"""The fragment reuse index: it maps old row addresses to new row addresses after a compaction.

Indexes that were not remapped still hold the old addresses. The fragment reuse index is an entry
`__lance_frag_reuse` of the index section, without fields and files. Its details are a message
`FragmentReuseIndexDetails`:

| field | content |
| --- | --- |
| `inline` | an `InlineContent`, or |
| `external` | if longer than 200 KiB: a file below _indices/{uuid of the entry}/ with its bytes |

An `InlineContent` has one entry per compaction (`legacy_versions`), oldest first:

| field | content |
| --- | --- |
| `dataset_version` | indexes built before this version hold the old addresses |
| `groups.changed_row_addrs` | old addresses of the moved rows, a 64-bit Roaring bitmap |
| `groups.old_fragments`, `groups.new_fragments` | id, rows, deleted rows of each fragment |

The row at the n-th address of `changed_row_addrs` is now the n-th row of the group's new fragments.
Rows of old fragments whose address is missing are deleted. In the fragment bitmap of an index, the
old fragments of a group represent its new fragments. Entries of index version 1 or later ("tagged")
also hold other transitions; this release does not change them.

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
#: Longer content goes to a separate file.
INLINE_BYTES = 200 * 1024
DETAILS_FILE = "details.binpb"

_Content = table_pb2.FragmentReuseIndexDetails.InlineContent
_Group = table_pb2.FragmentReuseIndexDetails.Group


@dataclass(frozen=True, slots=True)
class RemappedRows:
    """Rows that a compaction moved from old fragments to new fragments.

    - `addresses`: The old row addresses, a 64-bit Roaring bitmap.
    - `old`, `new`: The new fragments have ids already.
    """

    addresses: bytes
    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]


def find_entry(section: table_pb2.IndexSection) -> table_pb2.IndexMetadata | None:
    """Return the fragment reuse entry of an index section, or None."""
    return next((entry for entry in section.indices if entry.name == NAME), None)


def is_tagged(entry: table_pb2.IndexMetadata) -> bool:
    """Return whether an entry holds transitions that this release keeps but cannot extend."""
    return entry.index_version > 0


def check_untagged(entry: table_pb2.IndexMetadata, table: str) -> None:
    """Raise an error if an entry is tagged; `table` is the name of the table in errors.

    Raises UnsupportedFeatureError.
    """
    if is_tagged(entry):
        raise UnsupportedFeatureError(
            f"{table}: this release cannot extend version {entry.index_version} of the fragment "
            "reuse index; compact the table with pylance"
        )


def inline_content(entry: table_pb2.IndexMetadata) -> _Content | None:
    """Return the inline content of an entry; None if the content is in a file.

    Raises CorruptTableError.
    """
    details = _details(entry)
    if details.WhichOneof("content") != "inline":
        return None
    return _checked(details.inline, "the fragment reuse index")


def read_content(paths: TablePaths, entry: table_pb2.IndexMetadata) -> _Content:
    """Return the content of an entry, inline or from its file.

    Raises CorruptTableError, MissingFileError, StorageError.
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
            f"{name}: the file has {len(data)} bytes, but the content of the fragment reuse index "
            f"ends at byte {file.offset + file.size}"
        )
    return _parse(data[file.offset : file.offset + file.size], name)


def remap_fragments(bitmap: BitMap, content: _Content) -> BitMap:
    """Replace the old fragments in a fragment bitmap by the new fragments that hold their rows.

    A group of which the bitmap has only some old fragments is left out: the index covers only a
    part of the new fragments.
    """
    covered = bitmap.copy()
    for version in content.legacy_versions:
        for group in version.groups:
            old = BitMap(digest.id for digest in group.old_fragments)
            if covered.isdisjoint(old):
                continue
            if old.issubset(covered):
                covered |= BitMap(digest.id for digest in group.new_fragments)
            covered -= old
    return covered


def build_entry(
    paths: TablePaths, section: table_pb2.IndexSection, moves: Sequence[RemappedRows], version: int
) -> tuple[table_pb2.IndexMetadata, str | None]:
    """Build the entry of a new version from the previous entry and the rows that moved.

    - `paths`: Paths of the newest version.
    - `section`: Index section of the newest version.
    - `version`: Number of the newest version.

    Returns the entry, and the path of the file that was written for it, if any, relative to the
    table's root. Raises CorruptTableError, StorageError. Raises UnsupportedFeatureError: the
    previous entry is tagged.
    """
    previous = find_entry(section)
    content = _Content()
    if previous is not None:
        check_untagged(previous, paths.store.display)
        content.CopyFrom(read_content(paths, previous))
    added = content.legacy_versions.add(dataset_version=version + 1)
    for move in moves:
        group = added.groups.add(changed_row_addrs=move.addresses)
        group.old_fragments.extend(_digests(move.old))
        group.new_fragments.extend(_digests(move.new))
    covered = BitMap(
        digest.id
        for rewrite in content.legacy_versions
        for group in rewrite.groups
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
            id=fragment.id,
            physical_rows=fragment.physical_rows,
            num_deleted_rows=fragment.num_deleted_rows,
        )
        for fragment in fragments
    ]


def _details(entry: table_pb2.IndexMetadata) -> table_pb2.FragmentReuseIndexDetails:
    details = table_pb2.FragmentReuseIndexDetails()
    try:
        details.ParseFromString(entry.index_details.value)
    except DecodeError as error:
        raise CorruptTableError(f"the fragment reuse index cannot be parsed: {error}") from None
    return details


def _parse(data: bytes, name: str) -> _Content:
    content = _Content()
    try:
        content.ParseFromString(data)
    except DecodeError as error:
        raise CorruptTableError(
            f"{name}: the content of the fragment reuse index cannot be parsed: {error}"
        ) from None
    return _checked(content, name)


def _checked(content: _Content, name: str) -> _Content:
    for version in content.legacy_versions:
        for group in version.groups:
            for digest in (*group.old_fragments, *group.new_fragments):
                if digest.id > MAX_ID:
                    raise CorruptTableError(
                        f"{name}: fragment id {digest.id} is out of range, the maximum is {MAX_ID}"
                    )
            _check_rows(group, name)
    return content


def _check_rows(group: _Group, name: str) -> None:
    """Raise CorruptTableError if new fragments have rows that no old fragment had."""
    old_ids = {digest.id for digest in group.old_fragments}
    if len(old_ids) < len(group.old_fragments):
        raise CorruptTableError(f"{name}: a compaction replaced a fragment twice")
    old_rows = [digest.physical_rows for digest in group.old_fragments]
    num_old, num_new = sum(old_rows), sum(digest.physical_rows for digest in group.new_fragments)
    # Fragments of old releases of pylance may lack their number of rows.
    if num_new > num_old and 0 not in old_rows:
        raise CorruptTableError(
            f"{name}: a compaction made fragments of {num_new} rows from fragments of {num_old}"
        )
