"""The fragments whose rows a segment of an index holds, as far as its bitmap names others, too.

Some clients let a bitmap name fragments whose rows the segment does not have. A reader that
believes it misses rows.

- A BTREE of version 1 holds row addresses, also in tables with stable row ids. pylance 12 and 13
  and LanceDB 0.40 do not read it, and take it for an index of row ids: their updates add the
  fragments of moved rows, and their compactions replace the old fragments by the new ones. A
  fragment that came after the segment was built must occur in the addresses of the segment.
- `merge_insert` of pylance 4 to 6 rewrites some columns in place. The bitmap of an index of a list
  keeps the fragment, because data files name the items of the list. The fragment must have the
  column in the same file as in the version that the segment was built on.

`dataset_version` alone decides nothing: pylance 14 keeps it when it extends a segment, and
compactions that write a segment again keep it as well. Neither do the versions of rows: a row id
stays right after an update of another column, and compactions keep the versions.

Tables without such an index cost no request. Otherwise the manifest of the version that the segment
was built on is read, and the addresses only if a fragment came later. Both are kept in the cache of
index files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyroaring import BitMap

from lance_spark.errors import CorruptError, UnsupportedError, VersionNotFoundError
from lance_spark.indexes import registry
from lance_spark.indexes.cache import CACHE
from lance_spark.indexes.files import INDEX_ERRORS, IndexFiles
from lance_spark.indexes.row_sets import MovedRows
from lance_spark.indexes.search import HeldFragments
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes.updates import paths_by_field
from lance_spark.table.manifest.codec import read_version
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.schema_changes import TOMBSTONE
from lance_spark.table.paths import INDICES, TablePaths
from lance_spark.table.rows.ids import updated_versions_of

_LOG = logging.getLogger(__name__)

#: Memory that a parsed manifest takes for each byte of its file.
_MANIFEST_FACTOR = 4


def checked_section(paths: TablePaths, manifest: Manifest) -> table_pb2.IndexSection:
    """Return the index section of a version; its bitmaps name only fragments of held rows.

    Names are not checked; see `sections.read_section`.

    Raises CorruptTableError, StorageError.
    """
    section = indexes.read_section(manifest)
    lists = _list_fields(manifest) if section.indices else frozenset()
    for segment in section.indices:
        if indexes.is_system(segment) or manifest.version <= segment.dataset_version + 1:
            continue
        named = indexes.fragment_bitmap(segment)
        if not named:
            continue
        missing = BitMap()
        if manifest.flags.stable_row_ids and _is_by_address(segment):
            missing |= _unknown_fragments(paths, manifest, section, segment, named)
        if not lists.isdisjoint(segment.fields):
            missing |= _rewritten_fragments(paths, manifest, segment, named)
        if missing:
            _LOG.info(
                "index %r: segment %s does not have the rows of %d fragments that its bitmap names",
                segment.name,
                indexes.uuid_of(segment),
                len(missing),
            )
            indexes.set_fragment_bitmap(segment, named - missing)
    return section


def _is_by_address(segment: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment holds the address of each row.

    Zone maps and Bloom filters name the fragments of their zones; see `zone_places`.
    """
    return indexes.holds_addresses(segment, True) and not indexes.is_zoned(segment)


def _list_fields(manifest: Manifest) -> frozenset[int]:
    """Return the ids of lists, whose data files name the items."""
    parents = {field.parent_id for field in manifest.message.fields}
    return frozenset(
        field.id
        for field in manifest.message.fields
        if field.id in parents and field.logical_type.startswith(("list", "large_list"))
    )


def _unknown_fragments(
    paths: TablePaths,
    manifest: Manifest,
    section: table_pb2.IndexSection,
    segment: table_pb2.IndexMetadata,
    named: BitMap,
) -> BitMap:
    """Return the fragments of a bitmap whose addresses a segment does not have."""
    later = named & BitMap(fragment.id for fragment in manifest.message.fragments)
    built_on = _built_on(paths, segment)
    if built_on is not None:
        later -= BitMap(fragment.id for fragment in built_on.message.fragments)
    if not later:
        return later
    try:
        read: HeldFragments | None = registry.part_of(
            indexes.type_of_index(segment), "held_fragments"
        )
        held = None if read is None else read(IndexFiles(paths, segment))
        return later if held is None else later - MovedRows.of(paths, section).fragments(held)
    except INDEX_ERRORS as error:
        _LOG.warning("index %r: %s", segment.name, error)
        return later


def _rewritten_fragments(
    paths: TablePaths, manifest: Manifest, segment: table_pb2.IndexMetadata, named: BitMap
) -> BitMap:
    """Return the fragments of a bitmap whose column was rewritten after a segment was built."""
    fields = indexes.related_fields(manifest.message.fields, segment.fields)
    doubtful = [
        fragment
        for fragment in manifest.message.fragments
        if len(fragment.files) > 1
        and fragment.id in named
        and fields.isdisjoint(fragment.files[0].fields)
    ]
    if not doubtful:
        return BitMap()
    built_on = _built_on(paths, segment)
    if built_on is not None:
        before = {fragment.id: fragment for fragment in built_on.message.fragments}
        return BitMap(
            fragment.id
            for fragment in doubtful
            if fragment.id in before
            and paths_by_field(before[fragment.id], fields) != paths_by_field(fragment, fields)
        )
    rewritten = BitMap(
        fragment.id
        for fragment in doubtful
        if any(TOMBSTONE in file.fields for file in fragment.files)
    )
    if not manifest.flags.stable_row_ids:
        return rewritten
    same = (fragment for fragment in manifest.fragments if fragment.id in rewritten)
    return rewritten - _unchanged(same, paths, segment.dataset_version)


def _unchanged(fragments: Iterable[Fragment], paths: TablePaths, version: int) -> BitMap:
    """Return the fragments whose rows are not newer than a version."""
    unchanged = BitMap()
    for fragment in fragments:
        versions = updated_versions_of(fragment, paths)
        if versions is not None and (not len(versions) or versions.max() <= version):
            unchanged.add(fragment.id)
    return unchanged


def _built_on(paths: TablePaths, segment: table_pb2.IndexMetadata) -> Manifest | None:
    """Return the version that a segment was built on; None if it does not exist any more."""
    # The versions of the table that a clone comes from have other numbers.
    if segment.HasField("base_id"):
        return None
    store, version = paths.store, segment.dataset_version
    # The id of the segment tells two tables apart, of which one was created after the other.
    key = (store.uri, f"{INDICES}/{indexes.uuid_of(segment)}", version)

    def read() -> Manifest | None:
        try:
            manifest = read_version(store, version)
        except (VersionNotFoundError, CorruptError, UnsupportedError):
            return None
        existing = indexes.parse_section(manifest.index_section, manifest.name).indices
        if any(other.uuid.uuid == segment.uuid.uuid for other in existing):
            return None
        return manifest

    return CACHE.get(
        key, read, lambda found: 64 if found is None else found.size_bytes * _MANIFEST_FACTOR
    )
