"""Rewrite: unchanged rows move to new fragments, as in a compaction.

| field of `Rewrite` | content |
| --- | --- |
| groups | old fragments, and new fragments with their live rows in the same order |
| rewritten_indices | index segments whose files were rewritten with the new row addresses |
| old_fragments, new_fragments | the single group of early writers |

New fragments have reserved ids (`reserve_fragments`), or the id 0; the commit gives the latter the
next ids. A manifest lists fragments in the order of their ids, so the reserved ids set the position
of the rows. A group cannot be committed if another
client has changed its fragments since their rows were read. A rewrite with `in_part` leaves such
groups out, and fails only if no group remains.

In a table with stable row ids, new fragments contain the row ids and versions of their rows.

Indexes that are not rewritten refer to rows by their old addresses. A rewrite can add an entry of
the fragment reuse index that translates these addresses (`fragment_reuse`); the entry is not part
of the transaction. Without an entry and without stable row ids, such indexes no longer cover these
rows, because their bitmaps name removed fragments.

Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pyroaring import BitMap

from lance_spark.errors import CommitConflictError, CorruptTableError, InvalidInputError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table import sort_order
from lance_spark.table.fragments.fragment import Fragment, with_id
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.indexes.fragment_reuse import RemappedRows
from lance_spark.table.indexes.updates import FragmentGroup, RewrittenIndex
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.operations.base import Conflict, Operation, Rebase
from lance_spark.table.paths import TablePaths
from lance_spark.table.sort_order import SortedColumn

#: It is a signed 32-bit number in manifests, but an unsigned one in transactions.
_MAX_INDEX_VERSION = 2**31 - 1
_FRAGMENT_CHANGES = frozenset({"delete", "update", "rewrite", "data_replacement", "data_overlay"})


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Old fragments, and the new fragments that replace them.

    - `old`: The fragments as they were when their rows were read.
    - `new`: Fragments with reserved ids.
    """

    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]

    @property
    def old_fragments(self) -> tuple[Fragment, ...]:
        """The `old` fragments, by pylance's name."""
        return self.old

    @property
    def new_fragments(self) -> tuple[Fragment, ...]:
        """The `new` fragments, by pylance's name."""
        return self.new

    @property
    def ids(self) -> FragmentGroup:
        """The ids of the old and the new fragments."""
        return FragmentGroup(tuple(f.id for f in self.old), tuple(f.id for f in self.new))


@dataclass(frozen=True, slots=True)
class ReuseEntry:
    """The entry of the fragment reuse index that a rewrite adds.

    - `moves`: The rows that the rewrite moves.
    - `entry`: `moves`, merged with the existing entry of the version that it was built for.
    - `path`: The file of the entry, below the table's root; None if the entry has no file.
    """

    moves: tuple[RemappedRows, ...]
    entry: table_pb2.IndexMetadata
    path: str | None


@dataclass(frozen=True, slots=True)
class Rewrite(Operation):
    """Replace groups of fragments.

    - `reuse`: Not part of the transaction.
    - `in_part`: Whether groups may be left out. Rewritten indexes have the new addresses of all
      groups, so a rewrite with rewritten indexes is never committed in part.
    - `sorted_by`: The columns by which the rows of all new fragments together are sorted. Recorded
      if the new version has no other fragments. Not part of the transaction.
    """

    name: ClassVar[str] = "rewrite"

    groups: tuple[RewriteGroup, ...]
    rewritten_indices: tuple[RewrittenIndex, ...] = ()
    reuse: ReuseEntry | None = field(default=None, compare=False)
    in_part: bool = field(default=False, compare=False)
    sorted_by: tuple[SortedColumn, ...] = field(default=(), compare=False)

    @property
    def removed_fragments(self) -> frozenset[int]:
        return frozenset(fragment.id for group in self.groups for fragment in group.old)

    @property
    def moves_rows(self) -> bool:
        return True

    @property
    def deletion_files(self) -> Iterable[str]:
        """Path below the table's root of the new file of the fragment reuse index."""
        return () if self.reuse is None or self.reuse.path is None else (self.reuse.path,)

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Rewrite, source: str) -> Rewrite:
        pairs = [(group.old_fragments, group.new_fragments) for group in message.groups]
        if not pairs and message.old_fragments:
            pairs = [(message.old_fragments, message.new_fragments)]
        return cls(
            tuple(RewriteGroup(_parsed(old, source), _parsed(new, source)) for old, new in pairs),
            tuple(_rewritten(index, source) for index in message.rewritten_indices),
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        message = transaction.rewrite
        message.SetInParent()
        for group in self.groups:
            message.groups.add(
                old_fragments=[fragment.to_proto() for fragment in group.old],
                new_fragments=[fragment.to_proto() for fragment in group.new],
            )
        for index in self.rewritten_indices:
            added = message.rewritten_indices.add(
                new_index_version=index.details.index_version, new_index_files=index.details.files
            )
            added.old_id.uuid, added.new_id.uuid = index.old_id, index.new_id
            added.new_index_details.CopyFrom(index.details.index_details)

    def conflict(self, committed: Operation) -> Conflict:
        if committed.name in _FRAGMENT_CHANGES:
            if not self.removed_fragments.isdisjoint(committed.touched_fragments):
                partial = self.in_part and not self.rewritten_indices
                remaining = partial and self._unchanged_groups([committed])
                return Conflict.REBASE if remaining else Conflict.RETRYABLE
            # The other rewrite may have added an entry of the reuse index. The entry of this one
            # must include it.
            merges_entry = committed.name == self.name and self.reuse is not None
            return Conflict.REBASE if merges_entry else Conflict.COMPATIBLE
        if committed.name == "create_index":
            return self._conflict_with_indexes(committed.new_indexes)
        return self.conflict_by_matrix(committed)

    def _conflict_with_indexes(self, created: Sequence[table_pb2.IndexMetadata]) -> Conflict:
        rewritten = {segment.old_id for segment in self.rewritten_indices}
        for index in created:
            # A segment that was created before this rewrite was committed can be written again.
            if index.name == fragment_reuse.NAME or index.uuid.uuid in rewritten:
                continue
            covered = indexes.fragment_bitmap(index)
            if covered is None or not self._index_stays_valid(covered):
                return Conflict.RETRYABLE
        return Conflict.COMPATIBLE if self.reuse is None else Conflict.REBASE

    def _index_stays_valid(self, covered: BitMap) -> bool:
        """Return whether a new index of another client, with this coverage, stays valid."""
        if self.reuse is None:
            return covered.isdisjoint(BitMap(self.removed_fragments))
        groups = (BitMap(group.ids.old) for group in self.groups)
        return all(old.issubset(covered) or old.isdisjoint(covered) for old in groups)

    def _unchanged_groups(self, committed: Iterable[Operation]) -> tuple[RewriteGroup, ...]:
        """Return the groups that the committed operations did not change."""
        changes = (operation for operation in committed if operation.name in _FRAGMENT_CHANGES)
        touched = frozenset[int]().union(*(change.touched_fragments for change in changes))
        return tuple(group for group in self.groups if touched.isdisjoint(group.ids.old))

    def rebase(self, rebase: Rebase) -> Rewrite:
        """Leave out changed groups, and merge the reuse entry with the entry of the newest version.

        Raises UnsupportedFeatureError, CorruptTableError, StorageError. Raises CommitConflictError:
        no group remains, or an index covers some fragments of a group, but not all.
        """
        remaining = self._without_changed_groups(rebase.committed)
        if remaining.reuse is None:
            return remaining
        _check_covered_groups(remaining.groups, rebase)
        rebased = with_reuse(remaining, rebase.paths, rebase.newest)
        rebase.written.extend(rebased.deletion_files)
        rebase.written.extend(self.deletion_files)
        return rebased

    def _without_changed_groups(self, committed: Iterable[Operation]) -> Rewrite:
        groups = self._unchanged_groups(committed)
        if len(groups) == len(self.groups):
            return self
        if not groups:
            raise CommitConflictError(
                "other clients have changed all fragments that were rewritten; compact again",
                retryable=True,
            )
        reuse = self.reuse
        if reuse is not None:
            old = frozenset(fragment.id for group in groups for fragment in group.old)
            moves = tuple(move for move in reuse.moves if move.old[0].id in old)
            reuse = replace(reuse, moves=moves)
        return replace(self, groups=groups, reuse=reuse)

    def apply(self, builder: ManifestBuilder) -> None:
        """Replace the fragments, and update the indexes.

        Raises InvalidInputError, CorruptTableError. Raises CommitConflictError: a fragment was
        removed, or was changed after its rows were read.
        """
        replaced = []
        columns = {column.id for column in builder.proto.fields}
        groups = self._with_new_ids(builder)
        for group in groups:
            current = [builder.fragment(fragment.id) for fragment in group.old]
            for fragment, proto in zip(group.old, current, strict=True):
                if proto is None or not _same_rows(fragment, proto, columns):
                    raise CommitConflictError(
                        f"fragment {fragment.id} was changed after its rows were read; compact "
                        "again",
                        retryable=True,
                    )
            replaced.append([_copy(proto) for proto in current if proto is not None])
        ids = [group.ids for group in groups]
        builder.remove_fragments(self.removed_fragments)
        builder.insert_fragments(fragment for group in groups for fragment in group.new)
        if builder.has_indices:
            section, fields = builder.indices, builder.proto.fields
            index_updates.follow_compaction(
                section,
                ids,
                stable_row_ids=builder.stable_row_ids,
                rewritten=self.rewritten_indices,
                moves_recorded=self.reuse is not None,
            )
            for old, group_ids in zip(replaced, ids, strict=True):
                index_updates.prune_stale_overlays(section, old, group_ids, fields)
        if self.reuse is not None:
            entry = fragment_reuse.find_entry(builder.indices)
            if entry is None:
                entry = builder.indices.indices.add()
            entry.CopyFrom(self.reuse.entry)
        if self.sorted_by:
            new = {fragment.id for group in groups for fragment in group.new}
            is_whole = all(fragment.id in new for fragment in builder.proto.fragments)
            sort_order.record(builder.proto, self.sorted_by if is_whole else ())

    def _with_new_ids(self, builder: ManifestBuilder) -> tuple[RewriteGroup, ...]:
        """Return the groups, with the next fragment ids in the place of ids 0.

        Raises InvalidInputError: a new fragment has the id of a replaced one. Indexes and other
        clients would take its rows for those of the replaced fragment.
        """
        new_ids = [fragment.id for group in self.groups for fragment in group.new]
        reused = self.removed_fragments.intersection(new_ids) - {0}
        if reused:
            raise InvalidInputError(
                f"a new fragment has the id {min(reused)}, which is that of a replaced fragment; "
                "give it the id 0, and the commit assigns one"
            )
        count = new_ids.count(0)
        if not count:
            return self.groups
        builder.reserve_fragments(count)
        next_ids = iter(range(builder.proto.max_fragment_id - count + 1, 1 << 32))
        return tuple(
            replace(
                group,
                new=tuple(
                    fragment if fragment.id else with_id(fragment, next(next_ids))
                    for fragment in group.new
                ),
            )
            for group in self.groups
        )


def with_reuse(
    rewrite: Rewrite,
    paths: TablePaths,
    newest: Manifest,
    moves: Sequence[RemappedRows] | None = None,
) -> Rewrite:
    """Return a rewrite with a reuse entry that includes the existing entry of a version.

    - `paths`: The paths of that version.
    - `newest`: The version.
    - `moves`: The rows that the rewrite moves; by default the moves of its present entry.

    Raises UnsupportedFeatureError, CorruptTableError, StorageError.
    """
    if moves is None:
        moves = () if rewrite.reuse is None else rewrite.reuse.moves
    section = indexes.section_of(newest)
    entry, path = fragment_reuse.build_entry(paths, section, moves, newest.version)
    return replace(rewrite, reuse=ReuseEntry(tuple(moves), entry, path))


def _check_covered_groups(groups: Iterable[RewriteGroup], rebase: Rebase) -> None:
    """Raise an error if an index covers some fragments of a group, but not all.

    The bitmap of an index that was created meanwhile can name the fragments from before an earlier
    compaction. Raises CommitConflictError, CorruptTableError, StorageError.
    """
    section = indexes.section_of(rebase.newest)
    entry = fragment_reuse.find_entry(section)
    if entry is None or fragment_reuse.is_tagged(entry):
        # `with_reuse` refuses an entry with transitions, which this release cannot extend.
        return
    content = fragment_reuse.read_content(rebase.paths, entry)
    moved = [group.ids for group in groups]
    for index in section.indices:
        bitmap = None if indexes.is_system(index) else indexes.fragment_bitmap(index)
        if bitmap is not None:
            covered = fragment_reuse.remap_fragments(bitmap, content)
            index_updates.replace_fragments(covered, moved, index.name)


def _same_rows(fragment: Fragment, current: table_pb2.DataFragment, columns: Set[int]) -> bool:
    """Return whether a fragment still has the rows and values that were read."""
    read = fragment.to_proto()
    return (
        _deletion(read) == _deletion(current)
        and _used_files(read, columns) == _used_files(current, columns)
        and list(read.overlays) == list(current.overlays)
    )


def _used_files(fragment: table_pb2.DataFragment, columns: Set[int]) -> list[tuple[str, list[int]]]:
    # Commits remove files without a column of the schema (`repairs.drop_unused_files`).
    return [
        (file.path, list(file.fields))
        for file in fragment.files
        if not columns.isdisjoint(file.fields)
    ]


def _deletion(fragment: table_pb2.DataFragment) -> tuple[int, int] | None:
    file = fragment.deletion_file
    return (file.read_version, file.id) if fragment.HasField("deletion_file") else None


def _copy(fragment: table_pb2.DataFragment) -> table_pb2.DataFragment:
    copy = table_pb2.DataFragment()
    copy.CopyFrom(fragment)
    return copy


def _parsed(protos: Iterable[table_pb2.DataFragment], source: str) -> tuple[Fragment, ...]:
    return tuple(Fragment.from_proto(proto, source) for proto in protos)


def _rewritten(
    message: transaction_pb2.Transaction.Rewrite.RewrittenIndex, source: str
) -> RewrittenIndex:
    old, new = message.old_id.uuid, message.new_id.uuid
    if len(old) != 16 or len(new) != 16:
        raise CorruptTableError(f"{source}: the id of a rewritten index is not a UUID")
    if message.new_index_version > _MAX_INDEX_VERSION:
        raise CorruptTableError(
            f"{source}: the version of a rewritten index is {message.new_index_version}, which is "
            f"greater than {_MAX_INDEX_VERSION}"
        )
    details = table_pb2.IndexMetadata(index_version=message.new_index_version)
    details.index_details.CopyFrom(message.new_index_details)
    details.files.extend(message.new_index_files)
    return RewrittenIndex(old, new, details)


# --------------------------------------------------------------------------------------------------
# ReserveFragments: fragment ids are reserved for a later commit.
#
# | field of `ReserveFragments` | content |
# | --- | --- |
# | num_fragments | the number of ids |
#
# The greatest fragment id of the table grows by this number; the new ids are reserved. A compaction
# needs the ids of its fragments before its commit, because indexes contain the new row addresses.


@dataclass(frozen=True, slots=True)
class ReserveFragments(Operation):
    """Reserve fragment ids."""

    name: ClassVar[str] = "reserve_fragments"

    num_fragments: int

    @classmethod
    def from_proto(
        cls, message: transaction_pb2.Transaction.ReserveFragments, source: str
    ) -> ReserveFragments:
        return cls(message.num_fragments)

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        transaction.reserve_fragments.SetInParent()
        transaction.reserve_fragments.num_fragments = self.num_fragments

    def apply(self, builder: ManifestBuilder) -> None:
        """Reserve the ids.

        Raises InvalidInputError: the table does not have that many unused ids.
        """
        builder.reserve_fragments(self.num_fragments)
