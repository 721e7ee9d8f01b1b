"""Rewrite: rows move to other fragments as they are; a compaction.

| field of `Rewrite` | content |
| --- | --- |
| groups | old fragments, and the new ones that have their live rows in the same order |
| rewritten_indices | segments of indexes whose files were written anew with the new addresses |
| old_fragments, new_fragments | the one group of early writers |

New fragments have reserved ids (`reserve_fragments`), and fragments are in the order of their ids,
so that the rows go where these say. A group that others have changed since its rows were read
cannot be committed. A rewrite that may be done in part leaves such groups out, and is overtaken
only if there are no others.

Where rows have stable ids, new fragments bring these along, with the versions of their rows.

Indexes that are not rewritten find rows under their old addresses. A rewrite can bring an entry of
the fragment reuse index that translates these (`fragment_reuse`); the transaction does not show it.
Without one, and without stable row ids, nothing is left of such indexes for these rows: their
bitmaps name fragments that are gone.

Specification: table/commit/transaction.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pyroaring import BitMap

from lance_spark.errors import CommitConflictError, CorruptTableError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes import updates as index_updates
from lance_spark.table.indexes.fragment_reuse import RemappedRows
from lance_spark.table.indexes.updates import FragmentGroup, RewrittenIndex
from lance_spark.table.manifest.builder import ManifestBuilder
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.operations.base import Conflict, Operation, Rebase
from lance_spark.table.paths import TablePaths

KIND = "rewrite"
#: Manifests have signed numbers of 32 bits for it, transactions unsigned ones.
_MAX_INDEX_VERSION = 2**31 - 1
_FRAGMENT_CHANGES = frozenset({"delete", "update", "rewrite", "data_replacement", "data_overlay"})


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Fragments that take the place of others.

    Attributes
    ----------
    old : tuple of Fragment
        As they were when their rows were read.
    new : tuple of Fragment
        With reserved ids.
    """

    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]

    @property
    def ids(self) -> FragmentGroup:
        """The ids of both."""
        return FragmentGroup(tuple(f.id for f in self.old), tuple(f.id for f in self.new))


@dataclass(frozen=True, slots=True)
class ReuseEntry:
    """The entry of the fragment reuse index that a rewrite brings.

    Attributes
    ----------
    moves : tuple of MovedRows
        What it adds.
    entry : table_pb2.IndexMetadata
        What it adds, together with the entry of the version that it was made for.
    path : str or None
        The file that was written for it, below the table's root.
    """

    moves: tuple[RemappedRows, ...]
    entry: table_pb2.IndexMetadata
    path: str | None


@dataclass(frozen=True, slots=True)
class Rewrite(Operation):
    """Put fragments in the place of others.

    Attributes
    ----------
    groups : tuple of RewriteGroup
    rewritten_indices : tuple of RewrittenIndex
    reuse : ReuseEntry, optional
        Not part of the transaction.
    in_part : bool
        Whether groups may be left out. Indexes that are written anew know the rows of all of them:
        with such it is done as a whole.
    """

    conflicts: ClassVar[Mapping[str, Conflict]] = {
        "append": Conflict.COMPATIBLE,
        "delete": Conflict.RETRYABLE,
        "overwrite": Conflict.INCOMPATIBLE,
        "create_index": Conflict.RETRYABLE,
        "rewrite": Conflict.RETRYABLE,
        "merge": Conflict.RETRYABLE,
        "restore": Conflict.INCOMPATIBLE,
        "reserve_fragments": Conflict.COMPATIBLE,
        "update": Conflict.RETRYABLE,
        "project": Conflict.COMPATIBLE,
        "update_config": Conflict.COMPATIBLE,
        "data_replacement": Conflict.RETRYABLE,
        "update_mem_wal_state": Conflict.COMPATIBLE,
        "clone": Conflict.COMPATIBLE,
        "update_bases": Conflict.COMPATIBLE,
        "data_overlay": Conflict.RETRYABLE,
    }

    groups: tuple[RewriteGroup, ...]
    rewritten_indices: tuple[RewrittenIndex, ...] = ()
    reuse: ReuseEntry | None = field(default=None, compare=False)
    in_part: bool = field(default=False, compare=False)

    @property
    def kind(self) -> str:
        """Name of the field of `Transaction.operation`."""
        return KIND

    @property
    def removed_fragments(self) -> frozenset[int]:
        """Ids of fragments that go."""
        return frozenset(item.id for group in self.groups for item in group.old)

    @property
    def moves_rows(self) -> bool:
        """Whether rows of the fragments that it touches live on in others."""
        return True

    @property
    def deletion_files(self) -> Iterable[str]:
        """Paths below the table's root of the files beside data files that it brings along."""
        return () if self.reuse is None or self.reuse.path is None else (self.reuse.path,)

    @classmethod
    def from_proto(cls, message: transaction_pb2.Transaction.Rewrite, source: str) -> Rewrite:
        """Parse the message; `source` is what errors call its file.

        Raises
        ------
        CorruptTableError
        """
        pairs = [(group.old_fragments, group.new_fragments) for group in message.groups]
        if not pairs and message.old_fragments:
            pairs = [(message.old_fragments, message.new_fragments)]
        return cls(
            tuple(RewriteGroup(_parsed(old, source), _parsed(new, source)) for old, new in pairs),
            tuple(_rewritten(index, source) for index in message.rewritten_indices),
        )

    def write_to(self, transaction: transaction_pb2.Transaction) -> None:
        """Set the operation of a transaction's message."""
        message = transaction.rewrite
        message.SetInParent()
        for group in self.groups:
            message.groups.add(
                old_fragments=[item.to_proto() for item in group.old],
                new_fragments=[item.to_proto() for item in group.new],
            )
        for index in self.rewritten_indices:
            added = message.rewritten_indices.add(
                new_index_version=index.details.index_version, new_index_files=index.details.files
            )
            added.old_id.uuid, added.new_id.uuid = index.old_id, index.new_id
            added.new_index_details.CopyFrom(index.details.index_details)

    def conflict(self, committed: Operation) -> Conflict:
        """Tell what a committed operation means for this one."""
        if committed.kind in _FRAGMENT_CHANGES:
            if not self.removed_fragments.isdisjoint(committed.touched_fragments):
                rest = self.in_part and not self.rewritten_indices and self._apart([committed])
                return Conflict.REBASE if rest else Conflict.RETRYABLE
            # It may have brought an entry of the reuse index, which ours must not take the place
            # of.
            deferred = committed.kind == KIND and self.reuse is not None
            return Conflict.REBASE if deferred else Conflict.COMPATIBLE
        if committed.kind == "create_index":
            return self._conflict_with_indexes(committed.new_indexes)
        return self.conflicts.get(committed.kind, Conflict.RETRYABLE)

    def _conflict_with_indexes(self, created: Sequence[table_pb2.IndexMetadata]) -> Conflict:
        for index in created:
            if index.name == fragment_reuse.NAME:
                continue
            covered = indexes.fragment_bitmap(index)
            if covered is None or not self._fits(covered):
                return Conflict.RETRYABLE
        return Conflict.COMPATIBLE if self.reuse is None else Conflict.REBASE

    def _fits(self, covered: BitMap) -> bool:
        """Tell whether an index stays right that was made meanwhile."""
        if self.reuse is None:
            return covered.isdisjoint(BitMap(self.removed_fragments))
        sets = (BitMap(group.ids.old) for group in self.groups)
        return all(old.issubset(covered) or old.isdisjoint(covered) for old in sets)

    def _apart(self, committed: Iterable[Operation]) -> tuple[RewriteGroup, ...]:
        """Return the groups that others did not change."""
        changes = (item for item in committed if item.kind in _FRAGMENT_CHANGES)
        touched = frozenset[int]().union(*(item.touched_fragments for item in changes))
        return tuple(item for item in self.groups if touched.isdisjoint(item.ids.old))

    def rebase(self, rebase: Rebase) -> Rewrite:
        """Leave out what others have changed, and add what the reuse index is to know to the entry
        of the newest version.

        Raises
        ------
        CommitConflictError
            Nothing is left.
        UnsupportedFeatureError, CorruptTableError, StorageError
        """
        kept = self._without_changed(rebase.committed)
        if kept.reuse is None:
            return kept
        made = with_reuse(kept, rebase.paths, rebase.newest)
        rebase.written.extend(made.deletion_files)
        rebase.written.extend(self.deletion_files)
        return made

    def _without_changed(self, committed: Iterable[Operation]) -> Rewrite:
        groups = self._apart(committed)
        if len(groups) == len(self.groups):
            return self
        if not groups:
            raise CommitConflictError(
                "others have changed all fragments that were rewritten; compact again",
                retryable=True,
            )
        reuse = self.reuse
        if reuse is not None:
            old = frozenset(item.id for group in groups for item in group.old)
            moves = tuple(item for item in reuse.moves if item.old[0].id in old)
            reuse = replace(reuse, moves=moves)
        return replace(self, groups=groups, reuse=reuse)

    def apply(self, draft: ManifestBuilder) -> None:
        """Make the change.

        Raises
        ------
        CommitConflictError
            A fragment is not there any more, or has changed since its rows were read.
        InvalidInputError, CorruptTableError
        """
        before = []
        columns = {column.id for column in draft.proto.fields}
        for group in self.groups:
            result = [draft.fragment(item.id) for item in group.old]
            for fragment, now in zip(group.old, result, strict=True):
                if now is None or not _same_rows(fragment, now, columns):
                    raise CommitConflictError(
                        f"fragment {fragment.id} was changed since its rows were read; compact "
                        "again",
                        retryable=True,
                    )
            before.append([_copy(item) for item in result if item is not None])
        ids = [group.ids for group in self.groups]
        draft.remove_fragments(self.removed_fragments)
        draft.insert_fragments(item for group in self.groups for item in group.new)
        if draft.has_indices:
            section, fields = draft.indices, draft.proto.fields
            index_updates.follow_compaction(
                section,
                ids,
                stable_row_ids=draft.stable_row_ids,
                rewritten=self.rewritten_indices,
            )
            for old, group_ids in zip(before, ids, strict=True):
                index_updates.prune_stale_overlays(section, old, group_ids, fields)
        if self.reuse is not None:
            entry = fragment_reuse.find_entry(draft.indices)
            if entry is None:
                entry = draft.indices.indices.add()
            entry.CopyFrom(self.reuse.entry)


def with_reuse(
    rewrite: Rewrite,
    paths: TablePaths,
    newest: Manifest,
    moves: Sequence[RemappedRows] | None = None,
) -> Rewrite:
    """Return a rewrite with an entry of the fragment reuse index, as it follows on that of a
    version.

    Parameters
    ----------
    rewrite : Rewrite
    paths : TablePaths
        Of that version.
    newest : Manifest
    moves : sequence of MovedRows, optional
        What the entry says; by default what it said before.

    Raises
    ------
    UnsupportedFeatureError, CorruptTableError, StorageError
    """
    if moves is None:
        moves = () if rewrite.reuse is None else rewrite.reuse.moves
    section = indexes.section_of(newest)
    entry, path = fragment_reuse.build_entry(paths, section, moves, newest.version)
    return replace(rewrite, reuse=ReuseEntry(tuple(moves), entry, path))


def _same_rows(fragment: Fragment, now: table_pb2.DataFragment, columns: Set[int]) -> bool:
    """Tell whether a fragment has the rows and values that it had.

    Files without any of the columns have no values. They do not count: commits take them out
    (`early_releases.drop_unused_files`).
    """
    then = fragment.to_proto()
    return (
        _deletion(then) == _deletion(now)
        and _used_files(then, columns) == _used_files(now, columns)
        and list(then.overlays) == list(now.overlays)
    )


def _used_files(fragment: table_pb2.DataFragment, columns: Set[int]) -> list[tuple[str, list[int]]]:
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
        raise CorruptTableError(f"{source}: an index is rewritten whose id is no UUID")
    if message.new_index_version > _MAX_INDEX_VERSION:
        raise CorruptTableError(
            f"{source}: an index is rewritten with version {message.new_index_version}"
        )
    details = table_pb2.IndexMetadata(index_version=message.new_index_version)
    details.index_details.CopyFrom(message.new_index_details)
    details.files.extend(message.new_index_files)
    return RewrittenIndex(old, new, details)
