"""Updates of the index section by operations that change rows or columns.

| operation | functions that it calls |
| --- | --- |
| Append, ReserveFragments, UpdateConfig, UpdateBases | none |
| Delete | `retain_relevant` |
| Update | `prune_fields` with the updated fragments and `fields_modified`; `retain_relevant` |
| Update that moves rows, with stable row ids | `extend_to_moved_rows`, `retain_relevant` |
| Merge | `prune_rewritten_columns`, `retain_relevant` |
| Project | `retain_relevant` |
| DataReplacement | `prune_fields` with each fragment and the fields of its new file |
| DataOverlay | `prune_fields` with `unnamed_only`; readers compare versions with those of others |
| Overwrite | `ManifestBuilder.drop_content` |
| Rewrite | `follow_compaction`, `prune_stale_overlays` |

The functions change the section in place. If `ManifestBuilder.has_indices` is false, they need not
be called. Their `fields` are the field messages of a manifest (`ManifestBuilder.proto.fields`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyroaring import BitMap

from lance_spark.errors import CommitConflictError, CorruptTableError
from lance_spark.proto import file_pb2, table_pb2
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes.sections import (
    FRAGMENT_REUSE,
    SYSTEM_NAMES,
    fragment_bitmap,
    holds_addresses,
    is_system,
    is_zoned,
    names_rows,
    related_fields,
    set_fragment_bitmap,
)

_UNKNOWN_VERSION = 2**64


@dataclass(frozen=True, slots=True)
class FragmentGroup:
    """Old fragments, and the new fragments that hold their live rows in the same order.

    - `old`, `new`: Fragment ids.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RewrittenIndex:
    """A segment that was rewritten with the new row addresses.

    - `old_id`, `new_id`: UUIDs of the old and of the new segment.
    - `details`: `index_details`, `index_version` and `files` of the new segment. Must not be
      modified.
    """

    old_id: bytes
    new_id: bytes
    details: table_pb2.IndexMetadata


def prune_fields(
    section: table_pb2.IndexSection,
    fragment_ids: Iterable[int],
    modified: Collection[int],
    fields: Iterable[file_pb2.Field],
    *,
    unnamed_only: bool = False,
) -> None:
    """Remove fragments in which values changed from the bitmaps of the indexes on these fields.

    - `section`: Modified in place; the same in the other functions.
    - `fragment_ids`: Fragments with the same rows as before, but new values of some fields.
    - `modified`: Ids of these fields.
    - `fields`: All fields of the table; the same in the other functions.
    - `unnamed_only`: Whether indexes stay whose own fields are among `modified`. An index of a list
      is not one of them, as data files name the items.

    Raises CorruptTableError.
    """
    if not modified:
        return
    stale = BitMap(fragment_ids)
    changed = related_fields(fields, modified)
    for index in section.indices:
        if is_system(index) or changed.isdisjoint(index.fields):
            continue
        bitmap = fragment_bitmap(index)
        if bitmap is None or (unnamed_only and set(index.fields) <= set(modified)):
            continue
        covered = _covered_fragments(section, bitmap)
        if covered is None:
            # Any of the rows that the index has under old addresses may be in these fragments.
            set_fragment_bitmap(index, BitMap())
        elif not covered.isdisjoint(stale):
            set_fragment_bitmap(index, covered - stale)


def prune_rewritten_columns(
    section: table_pb2.IndexSection,
    before: Iterable[table_pb2.DataFragment],
    after: Iterable[table_pb2.DataFragment],
    fields: Sequence[file_pb2.Field],
) -> None:
    """Remove fragments from the bitmaps of indexes on fields that have another data file now.

    - `before`, `after`: All fragments of the table, before and after the change.

    Raises CorruptTableError.
    """
    indexed = {n for index in section.indices if not is_system(index) for n in index.fields}
    if not indexed:
        return
    field_ids = related_fields(fields, indexed)
    old_paths = {fragment.id: paths_by_field(fragment, field_ids) for fragment in before}
    changes: dict[frozenset[int], list[int]] = {}
    for fragment in after:
        old = old_paths.get(fragment.id)
        if old is None:
            continue
        new = paths_by_field(fragment, field_ids)
        # An all-null column had no file before: its first file counts as a change.
        changed = frozenset(number for number, path in new.items() if old.get(number) != path)
        if changed:
            changes.setdefault(changed, []).append(fragment.id)
    for modified, fragment_ids in changes.items():
        prune_fields(section, fragment_ids, modified, fields)


def extend_to_moved_rows(
    section: table_pb2.IndexSection,
    new_fragment_ids: Iterable[int],
    original_fragment_ids: Iterable[int],
    modified: Collection[int],
    fields: Iterable[file_pb2.Field],
) -> None:
    """Add fragments of moved rows to the bitmaps of indexes that are still right for them.

    For tables with stable row ids only. An index is not extended if it holds addresses, if one of
    its fields changed, or if it does not cover all fragments that the rows come from.

    - `new_fragment_ids`: New fragments that contain only moved rows.
    - `original_fragment_ids`: Fragments that the rows come from; none has data overlays.
    - `modified`: Ids of the fields with new values (`Update.fields_for_preserving_frag_bitmap`).

    Raises CorruptTableError.
    """
    added, originals = BitMap(new_fragment_ids), BitMap(original_fragment_ids)
    if not added:
        return
    changed = related_fields(fields, modified)
    for index in section.indices:
        if is_system(index) or holds_addresses(index, True) or not changed.isdisjoint(index.fields):
            continue
        if not names_rows(index):
            continue
        bitmap = fragment_bitmap(index)
        if bitmap is not None and originals.issubset(bitmap):
            set_fragment_bitmap(index, bitmap | added)


def retain_relevant(
    section: table_pb2.IndexSection,
    fields: Iterable[file_pb2.Field],
    fragment_ids: Iterable[int],
) -> None:
    """Drop indexes on removed fields, and segments that cover no fragment of the table any more.

    One segment of each index stays even if it covers no fragment, as the definition of the index.

    - `fields`: All fields of the table after the change.
    - `fragment_ids`: All fragments of the table after the change.

    Raises CorruptTableError.
    """
    present = {field.id for field in fields}
    kept = [
        index for index in section.indices if is_system(index) or present.issuperset(index.fields)
    ]
    segments: dict[str, list[table_pb2.IndexMetadata]] = {}
    for index in kept:
        segments.setdefault(index.name, []).append(index)
    live = BitMap(fragment_ids)
    dropped: set[int] = set()
    # With a fragment reuse index, removed fragments in a bitmap represent other fragments.
    has_reuse_index = FRAGMENT_REUSE in segments
    for name, members in segments.items():
        if name in SYSTEM_NAMES or len(members) == 1 or has_reuse_index:
            continue
        bitmaps = [(index, fragment_bitmap(index)) for index in members]
        unused = [
            index for index, bitmap in bitmaps if bitmap is not None and bitmap.isdisjoint(live)
        ]
        if len(unused) == len(members):
            unused.remove(min(unused, key=lambda index: index.dataset_version))
        dropped.update(id(index) for index in unused)
    replace_segments(section, [index for index in kept if id(index) not in dropped])


def replace_segments(
    section: table_pb2.IndexSection, segments: Sequence[table_pb2.IndexMetadata]
) -> None:
    """Replace all segments of a section. The new segments may belong to the section already."""
    # Copied first: clearing the section would empty them.
    copies = table_pb2.IndexSection(indices=segments)
    section.ClearField("indices")
    section.MergeFrom(copies)


def follow_compaction(
    section: table_pb2.IndexSection,
    groups: Sequence[FragmentGroup],
    *,
    stable_row_ids: bool,
    rewritten: Iterable[RewrittenIndex] = (),
    moves_recorded: bool = False,
) -> None:
    """Replace old fragments by new fragments in the bitmaps of indexes that follow a compaction.

    - `stable_row_ids`: Whether the table has stable row ids: then the content of most indexes stays
      right when rows move.
    - `rewritten`: Segments that were rewritten. Those that the section no longer has are ignored.
    - `moves_recorded`: Whether the fragment reuse index gets the moves. Then old fragments in a
      bitmap stand for the new ones, of which zone maps and Bloom filters know nothing: pylance
      before 14 finds no rows of them.

    Raises CorruptTableError. Raises CommitConflictError: an index covers only some fragments of a
    group.
    """
    rewritten_by_id = {segment.old_id: segment for segment in rewritten}
    for index in section.indices:
        if is_system(index):
            continue
        bitmap = fragment_bitmap(index)
        segment = rewritten_by_id.get(index.uuid.uuid)
        if segment is not None:
            if bitmap is None:
                raise CorruptTableError(
                    f"index {index.name!r} was remapped, but has no fragment bitmap"
                )
            set_fragment_bitmap(index, replace_fragments(bitmap, groups, index.name))
            index.uuid.uuid = segment.new_id
            index.ClearField("files")
            index.files.extend(segment.details.files)
            if segment.details.HasField("index_details"):
                index.index_details.CopyFrom(segment.details.index_details)
                index.index_version = segment.details.index_version
            # The new files are below the table's root, not in a base path.
            index.ClearField("base_id")
        elif bitmap is not None and not names_rows(index):
            removed = BitMap(number for group in groups for number in group.old)
            set_fragment_bitmap(index, bitmap - removed)
        elif stable_row_ids and bitmap is not None:
            if holds_addresses(index, True):
                bitmap -= BitMap(number for group in groups for number in group.old)
            else:
                bitmap = replace_fragments(bitmap, groups, index.name)
            set_fragment_bitmap(index, bitmap)
        elif moves_recorded and bitmap is not None and is_zoned(index):
            old = BitMap(number for group in groups for number in group.old)
            set_fragment_bitmap(index, bitmap - old)


def prune_stale_overlays(
    section: table_pb2.IndexSection,
    old: Iterable[table_pb2.DataFragment],
    group: FragmentGroup,
    fields: Iterable[file_pb2.Field],
) -> None:
    """Remove a compacted group from the bitmaps of indexes without its overlays' values.

    Compaction writes overlays into the data files. An index that is older than an overlay has the
    values before it.

    - `old`: The old fragments of the group.

    Raises CorruptTableError.
    """
    newest = newest_overlays(old)
    fields = list(fields) if newest else []
    removed, added = BitMap(group.old), BitMap(group.new)
    for index in section.indices:
        if not has_old_values(index, newest, fields):
            continue
        bitmap = fragment_bitmap(index)
        if bitmap is None:
            continue
        if not removed.issubset(bitmap) and not added.issubset(bitmap):
            # The bitmap may have fragments that an earlier compaction replaced by old ones.
            bitmap = _covered_fragments(section, bitmap)
        set_fragment_bitmap(index, BitMap() if bitmap is None else bitmap - removed - added)


def newest_overlays(fragments: Iterable[table_pb2.DataFragment]) -> dict[int, int]:
    """Return the version of the newest overlay of each field that fragments have overlays of."""
    newest: dict[int, int] = {}
    for fragment in fragments:
        for overlay in fragment.overlays:
            # A version of 0 is not recorded.
            version = overlay.committed_version or _UNKNOWN_VERSION
            for number in overlay.data_file.fields:
                if number >= 0:
                    newest[number] = max(newest.get(number, 0), version)
    return newest


def has_old_values(
    index: table_pb2.IndexMetadata, overlays: Mapping[int, int], fields: Iterable[file_pb2.Field]
) -> bool:
    """Return whether an index is older than overlays of its fields.

    - `overlays`: As `newest_overlays` returns them.
    - `fields`: All fields of the table.
    """
    newer = [number for number, version in overlays.items() if version > index.dataset_version]
    if not newer or is_system(index):
        return False
    return not related_fields(fields, newer).isdisjoint(index.fields)


def replace_fragments(bitmap: BitMap, groups: Iterable[FragmentGroup], name: str) -> BitMap:
    """Return a bitmap with the old fragments of groups replaced by the new fragments.

    Raises CommitConflictError: the bitmap has only some fragments of a group.
    """
    moved_bitmap = bitmap.copy()
    for group in groups:
        old = BitMap(group.old)
        if bitmap.isdisjoint(old):
            continue
        if not old.issubset(bitmap):
            raise CommitConflictError(
                f"index {name!r} covers only some of the fragments {list(group.old)}, so they "
                "cannot be compacted into one; plan again on the newest version",
                retryable=True,
            )
        moved_bitmap -= old
        moved_bitmap |= BitMap(group.new)
    return moved_bitmap


def _covered_fragments(section: table_pb2.IndexSection, bitmap: BitMap) -> BitMap | None:
    """Apply the fragment reuse index to a bitmap; None if its content is tagged or in a file."""
    entry = fragment_reuse.find_entry(section)
    if entry is None:
        return bitmap
    content = None if fragment_reuse.is_tagged(entry) else fragment_reuse.inline_content(entry)
    return None if content is None else fragment_reuse.remap_fragments(bitmap, content)


def paths_by_field(fragment: table_pb2.DataFragment, field_ids: frozenset[int]) -> dict[int, str]:
    """Return the path of the data file of each of some fields that a fragment has files of."""
    return {n: file.path for file in fragment.files for n in field_ids.intersection(file.fields)}
