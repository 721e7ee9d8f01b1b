"""What each operation does to the indexes of a table whose rows or columns it changes.

| operation | what it calls |
| --- | --- |
| Append, ReserveFragments, UpdateConfig, UpdateBases | nothing |
| Delete | `retain_relevant` |
| Update | `prune_fields` with the updated fragments and `fields_modified`; with stable row ids and rewritten rows \
`extend_to_moved_rows`; `retain_relevant` |
| Merge | `prune_rewritten_columns`, `retain_relevant` |
| Project | `retain_relevant` |
| DataReplacement | `prune_fields` with each fragment and the fields of its new file |
| DataOverlay | nothing: readers compare the overlay's version with the index's |
| Overwrite | `Draft.drop_content` |
| Rewrite | `follow_rewrite`, `prune_stale_overlays` |

All of them change the section in place; a caller that finds `Draft.has_indices` false can skip them. Fields are the messages of a
manifest (`Draft.proto.fields`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
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
    related_fields,
    set_fragment_bitmap,
)


@dataclass(frozen=True, slots=True)
class FragmentGroup:
    """Fragments whose live rows, in order, are those of other fragments now.

    Attributes
    ----------
    old, new : tuple of int
        Ids of fragments.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RewrittenIndex:
    """A segment whose files were written anew with the addresses that rows have now.

    Attributes
    ----------
    old_id, new_id : bytes
        UUIDs of the segment before and now.
    details : table_pb2.IndexMetadata
        Its `index_details`, `index_version` and `files`; nobody changes it any more.
    """

    old_id: bytes
    new_id: bytes
    details: table_pb2.IndexMetadata


def prune_fields(
    section: table_pb2.IndexSection,
    fragment_ids: Iterable[int],
    modified: Collection[int],
    fields: Iterable[file_pb2.Field],
) -> None:
    """Take fragments out of the bitmaps of indexes that depend on fields whose values changed there.

    Parameters
    ----------
    section : table_pb2.IndexSection
        Changed.
    fragment_ids : iterable of int
        Fragments that keep their rows, some of whose columns have new values.
    modified : collection of int
        Ids of these fields.
    fields : iterable of Field
        All fields of the table.

    Raises
    ------
    CorruptTableError
    """
    if not modified:
        return
    gone = BitMap(fragment_ids)
    changed = related_fields(fields, modified)
    for index in section.indices:
        if is_system(index) or changed.isdisjoint(index.fields):
            continue
        bitmap = fragment_bitmap(index)
        if bitmap is None:
            continue
        live = _translated(section, bitmap)
        if live is None:
            # The fragments could have any of the rows that it has under addresses of before.
            set_fragment_bitmap(index, BitMap())
        elif not live.isdisjoint(gone):
            set_fragment_bitmap(index, live - gone)


def prune_rewritten_columns(
    section: table_pb2.IndexSection,
    before: Iterable[table_pb2.DataFragment],
    after: Iterable[table_pb2.DataFragment],
    fields: Sequence[file_pb2.Field],
) -> None:
    """Take fragments out of the bitmaps of indexes on fields whose data file is another one now.

    Parameters
    ----------
    section : table_pb2.IndexSection
        Changed.
    before, after : iterable of DataFragment
        All fragments of the table.
    fields : sequence of Field
        All fields of the table.

    Raises
    ------
    CorruptTableError
    """
    indexed = {n for index in section.indices if not is_system(index) for n in index.fields}
    if not indexed:
        return
    wanted = related_fields(fields, indexed)
    known = {one.id: _paths(one, wanted) for one in before}
    changes: dict[frozenset[int], list[int]] = {}
    for fragment in after:
        old = known.get(fragment.id)
        if old is None:
            continue
        new = _paths(fragment, wanted)
        # A column that no file had, all null, gets its first values, too.
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
    """Let indexes cover the new fragments of rows that moved and kept their row ids and the indexed values.

    For tables with stable row ids only. An index stays away if it holds addresses, depends on a field that changed, or was not
    built from all the fragments that the rows are from.

    Parameters
    ----------
    section : table_pb2.IndexSection
        Changed.
    new_fragment_ids : iterable of int
        New fragments that have nothing but such rows.
    original_fragment_ids : iterable of int
        Fragments that the rows were in; none of them with data overlays.
    modified : collection of int
        Ids of the fields that got new values (`Update.fields_for_preserving_frag_bitmap`).
    fields : iterable of Field
        All fields of the table.

    Raises
    ------
    CorruptTableError
    """
    added, originals = BitMap(new_fragment_ids), BitMap(original_fragment_ids)
    if not added:
        return
    changed = related_fields(fields, modified)
    for index in section.indices:
        if is_system(index) or holds_addresses(index, True) or not changed.isdisjoint(index.fields):
            continue
        bitmap = fragment_bitmap(index)
        if bitmap is not None and originals.issubset(bitmap):
            set_fragment_bitmap(index, bitmap | added)


def retain_relevant(
    section: table_pb2.IndexSection,
    fields: Iterable[file_pb2.Field],
    fragment_ids: Iterable[int],
) -> None:
    """Drop indexes on fields that are gone, and segments that cover nothing any more while another of the same name does.

    The last segment of an index stays even if it covers nothing: it says what there is to be built.

    Parameters
    ----------
    section : table_pb2.IndexSection
        Changed.
    fields : iterable of Field
        All fields of the table as they are now.
    fragment_ids : iterable of int
        All fragments of the table as they are now.

    Raises
    ------
    CorruptTableError
    """
    present = {field.id for field in fields}
    kept = [one for one in section.indices if is_system(one) or present.issuperset(one.fields)]
    segments: dict[str, list[table_pb2.IndexMetadata]] = {}
    for index in kept:
        segments.setdefault(index.name, []).append(index)
    live = BitMap(fragment_ids)
    dropped: set[int] = set()
    # With a reuse index the bitmaps name fragments that are gone, and stand for those in their place.
    deferred = FRAGMENT_REUSE in segments
    for name, same in segments.items():
        if name in SYSTEM_NAMES or len(same) == 1 or deferred:
            continue
        bitmaps = [(one, fragment_bitmap(one)) for one in same]
        empty = [one for one, bitmap in bitmaps if bitmap is not None and bitmap.isdisjoint(live)]
        if len(empty) == len(same):
            empty.remove(min(empty, key=lambda one: one.dataset_version))
        dropped.update(id(one) for one in empty)
    replace_segments(section, [one for one in kept if id(one) not in dropped])


def replace_segments(
    section: table_pb2.IndexSection, segments: Sequence[table_pb2.IndexMetadata]
) -> None:
    """Put other segments in the place of all; some can be the same."""
    kept = table_pb2.IndexSection(indices=segments)
    section.ClearField("indices")
    section.MergeFrom(kept)


def follow_rewrite(
    section: table_pb2.IndexSection,
    groups: Sequence[FragmentGroup],
    *,
    stable_row_ids: bool,
    rewritten: Iterable[RewrittenIndex] = (),
) -> None:
    """Put new fragments in the place of old ones, where the index knows the rows still.

    Parameters
    ----------
    section : table_pb2.IndexSection
        Changed.
    groups : sequence of FragmentGroup
    stable_row_ids : bool
        Whether the table has them: then what an index holds stays right when rows move.
    rewritten : iterable of RewrittenIndex
        Those of segments that are gone meanwhile are passed over.

    Raises
    ------
    CommitConflictError
        An index covers some fragments of a group and not the others.
    CorruptTableError
    """
    by_id = {one.old_id: one for one in rewritten}
    for index in section.indices:
        if is_system(index):
            continue
        bitmap = fragment_bitmap(index)
        new = by_id.get(index.uuid.uuid)
        if new is not None:
            if bitmap is None:
                raise CorruptTableError(
                    f"index {index.name!r}: it was remapped, but has no fragment bitmap"
                )
            set_fragment_bitmap(index, moved(bitmap, groups, index.name))
            index.uuid.uuid = new.new_id
            index.ClearField("files")
            index.files.extend(new.details.files)
            # The new files are in the table itself.
            index.ClearField("base_id")
        elif stable_row_ids and bitmap is not None:
            if holds_addresses(index, True):
                bitmap -= BitMap(number for group in groups for number in group.old)
            else:
                bitmap = moved(bitmap, groups, index.name)
            set_fragment_bitmap(index, bitmap)


def prune_stale_overlays(
    section: table_pb2.IndexSection,
    old: Iterable[table_pb2.DataFragment],
    group: FragmentGroup,
    fields: Iterable[file_pb2.Field],
) -> None:
    """Take a group of fragments out of the bitmaps of indexes that are older than an overlay that became part of the rows.

    Parameters
    ----------
    section : table_pb2.IndexSection
        Changed.
    old : iterable of DataFragment
        The old fragments of the group.
    group : FragmentGroup
    fields : iterable of Field
        All fields of the table.

    Raises
    ------
    CorruptTableError
    """
    newest: dict[int, int] = {}
    for fragment in old:
        for overlay in fragment.overlays:
            for number in overlay.data_file.fields:
                if number >= 0:
                    newest[number] = max(newest.get(number, 0), overlay.committed_version)
    fields = list(fields) if newest else []
    for number, version in newest.items():
        changed = related_fields(fields, [number])
        for index in section.indices:
            if is_system(index) or index.dataset_version >= version:
                continue
            bitmap = fragment_bitmap(index)
            if bitmap is not None and not changed.isdisjoint(index.fields):
                set_fragment_bitmap(index, bitmap - BitMap([*group.old, *group.new]))


def moved(bitmap: BitMap, groups: Iterable[FragmentGroup], name: str) -> BitMap:
    """Return the bitmap of an index after its rows have moved.

    Raises
    ------
    CommitConflictError
        It has some fragments of a group and not the others.
    """
    moved_bitmap = bitmap.copy()
    for group in groups:
        old = BitMap(group.old)
        if bitmap.isdisjoint(old):
            continue
        if not old.issubset(bitmap):
            raise CommitConflictError(
                f"index {name!r} covers some of the fragments {list(group.old)} and not the others; they cannot be made one "
                "before it covers all of them; plan again on the newest version",
                retryable=True,
            )
        moved_bitmap -= old
        moved_bitmap |= BitMap(group.new)
    return moved_bitmap


def _translated(section: table_pb2.IndexSection, bitmap: BitMap) -> BitMap | None:
    """Return the fragments that a bitmap stands for; None if that cannot be told without reading files."""
    entry = fragment_reuse.find(section)
    if entry is None:
        return bitmap
    content = None if fragment_reuse.is_tagged(entry) else fragment_reuse.inline_content(entry)
    return None if content is None else fragment_reuse.translate(bitmap, content)


def _paths(fragment: table_pb2.DataFragment, wanted: frozenset[int]) -> dict[int, str]:
    return {n: file.path for file in fragment.files for n in wanted.intersection(file.fields)}
