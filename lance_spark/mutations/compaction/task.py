"""Compacting a table: few large fragments in the place of many small ones, without the rows that
are deleted.

| step | where | what |
| --- | --- | --- |
| `plan_compaction` | driver | tasks: groups of fragments (`compaction_plan`) |
| `CompactionTask.run` | workers | writes the live rows of a group, in order, to new fragments; nothing refers to them yet |
| `commit_compaction` | driver | reserves their ids (`ReserveFragments`), then puts them in the place of the old ones (`Rewrite`) |

Rows keep what they are: in tables with stable row ids their ids, and the versions that they were
created and last changed in. Without stable row ids they get new addresses, which the fragment reuse
index tells to those who use indexes of before.

A row that is deleted while its fragment is rewritten does not come back: the commit refuses, and
has to be planned anew (`lance_spark.mutations.compaction.run`). Rows that are appended meanwhile
are no obstacle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pyroaring import BitMap, BitMap64

from lance_spark.errors import (
    CorruptTableError,
    LanceError,
    StorageError,
    UncertainCommitError,
    UnsupportedFeatureError,
)
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import check_types
from lance_spark.mutations.compaction.plan import CompactionOptions, plan_groups
from lance_spark.mutations.retry import check_once, check_rows_writable
from lance_spark.mutations.rewrite.fragment_rows import live_values
from lance_spark.mutations.rewrite.row_reader import keeping_references
from lance_spark.table.bases import Target
from lance_spark.table.commit.commit import DEFAULT_MAX_RETRIES, commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.fragments.writer import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    FragmentWriter,
    delete_fragments,
)
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes.fragment_reuse import RemappedRows
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.data.rewrite import Rewrite, RewriteGroup, with_reuse
from lance_spark.table.operations.metadata.reserve_fragments import ReserveFragments
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.placement import placement_of
from lance_spark.table.rows.deletions import Offsets, read_deletions
from lance_spark.table.rows.ids import (
    created_versions_of,
    row_ids_of,
    store_lineage,
    updated_versions_of,
)
from lance_spark.table.rows.index import first_address
from lance_spark.table.rows.sequences import concatenate, without_deleted
from lance_spark.table.rows.u64_segments import UInt64Array

#: What rows without a noted version were created and changed in.
_NO_VERSION = 1


@dataclass(frozen=True, slots=True)
class CompactionMetrics:
    """What a compaction did.

    Attributes
    ----------
    fragments_removed, fragments_added : int
    files_removed : int
        Data files and deletion files that the new version does not refer to any more.
    files_added : int
    """

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a task wrote. Small, and can be pickled.

    Attributes
    ----------
    old : tuple of Fragment
    new : tuple of Fragment
        With the ids and versions of their rows, in tables with stable row ids; their own ids are
        not yet assigned.
    addresses : bytes
        Old addresses of their rows, a 64-bit Roaring bitmap: the n-th is the n-th row of the new
        fragments.
    """

    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]
    addresses: bytes

    @property
    def metrics(self) -> CompactionMetrics:
        """What making it part of the table does."""
        return CompactionMetrics(
            fragments_removed=len(self.old),
            fragments_added=len(self.new),
            files_removed=sum(
                len(item.files) + (item.deletion_file is not None) for item in self.old
            ),
            files_added=sum(len(item.files) for item in self.new),
        )


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """A group of fragments that one worker rewrites. Can be pickled; holds no manifest.

    Attributes
    ----------
    uri : str
        Root of the table.
    schema : Schema
        Of the table.
    file_version : tuple of int
    fragments : tuple of Fragment
        With increasing ids.
    stable_row_ids : bool
        Whether rows keep their ids.
    target_rows_per_fragment, max_bytes_per_file : int
    base_paths : mapping of int to BasePath
        Other roots that data files may stand in, by id.
    storage_options : mapping, not shown by `repr`
    tag : bytes
        Which the new files carry.
    targets : tuple of int or None
        Ids of the base paths that the new files go to in turns; None for the table itself.
    first : int
        Which of them comes first; see `FragmentWriter`.
    """

    uri: str = field(repr=False)
    schema: Schema
    file_version: tuple[int, int]
    fragments: tuple[Fragment, ...]
    stable_row_ids: bool = False
    target_rows_per_fragment: int = DEFAULT_MAX_ROWS_PER_FILE
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE
    base_paths: Mapping[int, BasePath] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tag: bytes = b""
    targets: tuple[Target, ...] = (None,)
    first: int = 0

    @property
    def num_rows(self) -> int:
        """Rows that it writes."""
        return sum(fragment.num_rows for fragment in self.fragments)

    def run(self) -> CompactionResult:
        """Write the new fragments; if that fails, delete them again.

        Raises
        ------
        CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
        """
        paths = TablePaths.open(self.uri, self.storage_options, self.base_paths)
        deleted = [read_deletions(paths, fragment) for fragment in self.fragments]
        writer = FragmentWriter(
            paths,
            self.schema,
            self.file_version,
            max_rows_per_file=self._rows_per_file(),
            max_bytes_per_file=self.max_bytes_per_file,
            blobs=keeping_references(self.base_paths),
            tag=self.tag,
            targets=self.targets,
            first=self.first,
        )
        try:
            fields, version = self.schema.fields, self.file_version
            for rows in live_values(paths, self.fragments, fields, version, self.base_paths):
                writer.write(rows)
            new = writer.finish()
            live = sum(
                fragment.physical_rows - len(gone)
                for fragment, gone in zip(self.fragments, deleted, strict=True)
            )
            if sum(item.physical_rows for item in new) != live:
                raise CorruptTableError(
                    f"{paths.store.display}: fragments {[item.id for item in self.fragments]} have "
                    f"{live} live rows, but "
                    f"{sum(item.physical_rows for item in new)} were read"
                )
            if self.stable_row_ids:
                new = self._with_lineage(paths, new, deleted)
        except BaseException:
            writer.abort()
            raise
        return CompactionResult(self.fragments, tuple(new), self._addresses(deleted))

    def _rows_per_file(self) -> int:
        """Return how many rows make fragments of about the same size, none of them smaller than
        wanted.
        """
        rows = self.num_rows
        files = max(rows // self.target_rows_per_fragment, 1)
        return max(-(-rows // files), 1)

    def _with_lineage(
        self, paths: TablePaths, new: Sequence[Fragment], deleted: Sequence[Offsets]
    ) -> list[Fragment]:
        ids, created, updated = [], [], []
        for fragment, gone in zip(self.fragments, deleted, strict=True):
            known = row_ids_of(fragment, paths)
            if known is None:
                raise CorruptTableError(f"{fragment.name}: no row ids, in a table with stable ones")
            ids.append(without_deleted(known, gone))
            created.append(
                without_deleted(_noted(created_versions_of(fragment, paths), fragment), gone)
            )
            updated.append(
                without_deleted(_noted(updated_versions_of(fragment, paths), fragment), gone)
            )
        sequences = [concatenate(parts) for parts in (ids, created, updated)]
        start = 0
        carrying = []
        for fragment in new:
            stop = start + fragment.physical_rows
            proto = fragment.to_proto()
            row_ids, born, changed = (values[start:stop] for values in sequences)
            store_lineage(proto, row_ids=row_ids, created=born, updated=changed)
            carrying.append(Fragment.from_proto(proto, "new fragment"))
            start = stop
        return carrying

    def _addresses(self, deleted: Sequence[Offsets]) -> bytes:
        result = BitMap64()
        for fragment, gone in zip(self.fragments, deleted, strict=True):
            first = first_address(fragment)
            result.add_range(first, first + fragment.physical_rows)
            result -= BitMap64(gone.astype(np.uint64) + np.uint64(first))
        result.run_optimize()
        data: bytes = result.serialize()
        return data


def plan_compaction(
    table: OpenTable, options: CompactionOptions | None = None, *, tag: bytes = b""
) -> list[CompactionTask]:
    """Cut a compaction into tasks; none, if there is nothing to do.

    Parameters
    ----------
    table : OpenTable
        At the version that it is planned on.
    options : CompactionOptions, optional
    tag : bytes
        Which the new files carry.

    Raises
    ------
    UnsupportedFeatureError, UnsupportedError
        The table needs more than this release does, or `defer_index_remap` is asked of a table with
        stable row ids.
    CorruptTableError, StorageError
    """
    options = options or CompactionOptions()
    check_rows_writable(table, data_files=True)
    manifest = table.manifest
    if options.defer_index_remap and manifest.flags.stable_row_ids:
        raise UnsupportedFeatureError(
            f"{table.store.display}: the table has stable row ids, which do not go together with a "
            "fragment reuse index; leave "
            "defer_index_remap out"
        )
    check_types(table.schema, manifest.data_storage_version)
    fragments = counted_fragments(table.paths, manifest)
    placement = placement_of(table)
    groups = plan_groups(fragments, covered_fragments(table), options, placement)
    return [
        CompactionTask(
            uri=table.store.uri,
            schema=table.schema,
            file_version=manifest.data_storage_version,
            fragments=group,
            stable_row_ids=manifest.flags.stable_row_ids,
            # A fragment that moves stays one.
            target_rows_per_fragment=max(
                options.target_rows(group), *(item.physical_rows for item in group)
            )
            if options.moved_fragment_ids is not None
            else options.target_rows(group),
            max_bytes_per_file=options.max_bytes_per_file,
            base_paths=manifest.base_paths,
            storage_options=table.store.options,
            tag=tag,
            targets=placement.of(group[0]),
            first=number,
        )
        for number, group in enumerate(groups)
    ]


def covered_fragments(table: OpenTable) -> list[BitMap]:
    """Return the fragments that each segment of an index covers, those that its own have become by
    a compaction.

    Raises
    ------
    UnsupportedFeatureError
        The fragment reuse index is of a kind that this release cannot follow.
    CorruptTableError, StorageError
    """
    section = indexes.section_of(table.manifest)
    entry = fragment_reuse.find_entry(section)
    content = None
    if entry is not None:
        fragment_reuse.check_untagged(entry, table.store.display)
        content = fragment_reuse.read_content(table.paths, entry)
    bitmaps = [
        indexes.fragment_bitmap(index) for index in section.indices if not indexes.is_system(index)
    ]
    known = [bitmap for bitmap in bitmaps if bitmap is not None]
    if content is None:
        return known
    return [fragment_reuse.remap_fragments(bitmap, content) for bitmap in known]


def commit_compaction(
    table: OpenTable,
    results: Iterable[CompactionResult],
    *,
    defer_index_remap: bool | None = None,
    properties: Mapping[str, str] | None = None,
    max_retries: int = DEFAULT_MAX_RETRIES,
    keep_new_fragments: bool = False,
    in_part: bool = False,
) -> Manifest:
    """Put the new fragments of all tasks in the place of the old ones.

    Parameters
    ----------
    table : OpenTable
        At the version that they were planned on.
    results : iterable of CompactionResult
    defer_index_remap : bool, optional
        See `CompactionOptions`.
    properties : mapping of str to str, optional
        Of the transaction.
    max_retries : int
        How often to start again after other writers were faster.
    keep_new_fragments : bool
        Whether the files of new fragments stay if they are not committed: what is planned anew may
        use them.
    in_part : bool
        Whether results whose fragments others have changed may be left out, and the others be
        committed; see `committed_of`.

    Returns
    -------
    Manifest
        The new version.

    Raises
    ------
    CommitConflictError
        Others changed the same fragments; the new files are deleted again, unless they are to be
        kept.
    InvalidInputError
        Two of them are about one fragment.
    UncertainCommitError, StorageError, CorruptTableError
    """
    results = list(results)
    check_once(table, (item.id for result in results for item in result.old))
    store = table.store
    written: list[str] = []
    try:
        count = sum(len(result.new) for result in results)
        reserve = Transaction.new(table.version, ReserveFragments(count))
        reserved = commit(store, reserve, table.manifest, max_retries=max_retries)
        paths = TablePaths(store, reserved.base_paths, store.options)
        moves = list(_with_ids(results, (reserved.max_fragment_id or 0) - count + 1))
        groups = tuple(RewriteGroup(move.old, move.new) for move in moves)
        operation = Rewrite(groups, in_part=in_part)
        if defer_index_remap or (defer_index_remap is None and _needs_reuse(reserved)):
            operation = with_reuse(operation, paths, reserved, moves)
            written.extend(operation.deletion_files)
        else:
            rewritten = _remapped(paths, reserved, moves, written)
            operation = replace(operation, rewritten_indices=tuple(rewritten))
        transaction = Transaction.new(table.version, operation, properties)
        return commit(store, transaction, table.manifest, max_retries=max_retries)
    except UncertainCommitError:
        raise
    except LanceError:
        if not keep_new_fragments:
            for result in results:
                undo(table, result)
        with suppress(StorageError):
            store.delete(written)
        raise


def committed_of(
    results: Iterable[CompactionResult], manifest: Manifest
) -> tuple[list[CompactionResult], list[CompactionResult]]:
    """Part the results that a version came of from those that were left out of it.

    Parameters
    ----------
    results : iterable of CompactionResult
    manifest : Manifest
        What `commit_compaction` returned for them.
    """
    ids = {item.id for item in manifest.fragments}
    paths = {file.path for item in manifest.fragments for file in item.files}
    done: list[CompactionResult] = []
    left: list[CompactionResult] = []
    for result in results:
        new = [file.path for item in result.new for file in item.files]
        is_there = paths.issuperset(new) if new else ids.isdisjoint(item.id for item in result.old)
        (done if is_there else left).append(result)
    return done, left


def undo(table: OpenTable, result: CompactionResult) -> None:
    """Delete the files of a task that is not committed; what cannot be deleted is left to
    cleanup.
    """
    with suppress(StorageError):
        delete_fragments(table.paths, result.new)


def _with_ids(results: Iterable[CompactionResult], first: int) -> Iterable[RemappedRows]:
    """Yield what the tasks moved, the new fragments with reserved ids."""
    number = first
    for result in results:
        new = []
        for fragment in result.new:
            proto = fragment.to_proto()
            proto.id = number
            new.append(Fragment.from_proto(proto, "new fragment"))
            number += 1
        yield RemappedRows(result.addresses, result.old, tuple(new))


def _needs_reuse(manifest: Manifest) -> bool:
    """Tell whether there are indexes that would not find rows that move."""
    if manifest.flags.stable_row_ids:
        return False
    section = indexes.section_of(manifest)
    # One that is there already tells where addresses lead, those of BTREE indexes too.
    told = fragment_reuse.find_entry(section) is not None
    return any(
        not indexes.is_system(index) and (told or indexes.type_of_index(index) != "BTREE")
        for index in section.indices
    )


def _remapped(
    paths: TablePaths, manifest: Manifest, moves: Sequence[RemappedRows], written: list[str]
) -> list[RewrittenIndex]:
    """Write indexes anew that hold addresses, if it is known how; note their files."""
    # Tables without such an index need none of it.
    from lance_spark.mutations.compaction.remap_btree import Moves, files_of, remap_btree

    section = indexes.section_of(manifest)
    stable = manifest.flags.stable_row_ids
    old = BitMap(item.id for move in moves for item in move.old)
    results: list[RewrittenIndex] = []
    places: Moves | None = None
    # With a reuse index the addresses that an index holds can be those of before an earlier
    # compaction.
    chosen = () if fragment_reuse.find_entry(section) is not None else section.indices
    for index in chosen:
        bitmap = indexes.fragment_bitmap(index)
        if bitmap is None or bitmap.isdisjoint(old) or indexes.type_of_index(index) != "BTREE":
            continue
        if indexes.holds_addresses(index, stable):
            places = places or Moves(paths, moves)
            remapped = remap_btree(paths, index, places)
            if remapped is not None:
                results.append(remapped)
                written.extend(files_of(remapped))
    return results


def _noted(versions: UInt64Array | None, fragment: Fragment) -> UInt64Array:
    if versions is not None:
        return versions
    return np.full(fragment.physical_rows, _NO_VERSION, np.uint64)
