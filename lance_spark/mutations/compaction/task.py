"""Compaction: many small fragments are rewritten as few large fragments without deleted rows.

| step | where | what |
| --- | --- | --- |
| `plan_compaction` | driver | tasks: groups of fragments (`compaction.plan`) |
| `CompactionGroupTask.run` | task | writes the live rows of a group, in order, to new fragments |
| `commit_compaction` | driver | reserves ids (`ReserveFragments`), replaces fragments (`Rewrite`) |

In tables with stable row ids, rows keep their ids and the versions that created and last updated
them. In other tables rows get new addresses. The fragment reuse index maps the addresses in older
indexes to them.

The commit fails if another client deleted a row while its fragment was rewritten: the row would
come back. The compaction is planned again then (`lance_spark.mutations.compaction.run`). Appends of
another client are compatible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace

import numpy as np
from pyroaring import BitMap, BitMap64

from lance_spark.errors import CorruptTableError, StorageError, UnsupportedFeatureError
from lance_spark.file.checks import DistinctValuesError
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import check_types
from lance_spark.indexes.coverage import checked_section
from lance_spark.mutations.commits import (
    after_failure,
    at_version,
    check_rows_writable,
    commit_operation,
)
from lance_spark.mutations.compaction.options import CompactionOptions
from lance_spark.mutations.compaction.remap import files_of, remapped
from lance_spark.mutations.rewrite.readers import live_values
from lance_spark.mutations.rewrite.writers import (
    Written,
    rewrite_writer,
    with_lineage,
    with_reserved_ids,
)
from lance_spark.runner import FragmentTask, Runner, check_once, runner_for
from lance_spark.table.bases import Target
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.limits import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes.fragment_reuse import RemappedRows
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.rewrite import ReserveFragments, Rewrite, RewriteGroup, with_reuse
from lance_spark.table.paths import TablePaths
from lance_spark.table.placement import Placement, placement_of
from lance_spark.table.rows.addresses import first_address
from lance_spark.table.rows.deletions import Offsets, expect_deletions, read_deletions
from lance_spark.table.rows.ids import created_versions_of, row_ids_of, updated_versions_of
from lance_spark.table.rows.sequences import concatenate, without_deleted
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# The choice of the fragments that a compaction rewrites, and of the groups that it merges.
#
# The planner visits fragments in the order of their ids:
#
# | fragment | decision |
# | --- | --- |
# | more than `materialize_deletions_threshold` of its rows are deleted | rewritten, even alone |
# | more than `max_overlays_per_fragment` overlays | rewritten, even alone |
# | fewer than `target_rows_per_fragment` rows | rewritten with adjacent candidates; alone it stays
#     |
# | others | stay |
#
# Adjacent candidates that the same indexes cover form a group. A fragment that an index covers is
# not merged with a fragment that it does not cover: the index could not describe the new fragment.
# A group ends as soon as it has the target number of rows, if as many rows remain. These are the
# rules of pylance.
#
# A group holds only fragments whose files go to the same base paths
# (`lance_spark.table.placement`), and "adjacent" means adjacent among these fragments. pylance
# writes all new fragments to the table itself.


@dataclass(slots=True)
class _Bin:
    """Adjacent candidates."""

    covered_by: tuple[int, ...]
    fragments: list[Fragment]
    alone: bool

    def groups(self, options: CompactionOptions) -> Iterable[tuple[Fragment, ...]]:
        """Yield the groups to rewrite."""
        if len(self.fragments) == 1 and not self.alone:
            return
        target = options.target_rows(self.fragments)
        remaining_rows = sum(fragment.num_rows for fragment in self.fragments)
        group: list[Fragment] = []
        rows = 0
        for fragment in self.fragments:
            group.append(fragment)
            rows += fragment.num_rows
            remaining_rows -= fragment.num_rows
            if rows >= target and remaining_rows >= target:
                yield tuple(group)
                group, rows = [], 0
        yield tuple(group)


def plan_groups(
    fragments: Sequence[Fragment],
    covered: Sequence[BitMap],
    options: CompactionOptions,
    placement: Placement,
) -> list[tuple[Fragment, ...]]:
    """Return the groups of fragments to rewrite.

    - `fragments`: All fragments of the table, with their row counts.
    - `covered`: For each segment of an index, the fragments that it covers.

    In the order of their ids. The new files of a group have the same targets.
    """
    excluded = options.excluded_fragment_ids
    most_overlays = options.values["max_overlays_per_fragment"]
    if options.moved_fragment_ids is not None:
        chosen = frozenset(options.moved_fragment_ids) - excluded
        moved: list[tuple[Fragment, ...]] = [
            (fragment,)
            for fragment in sorted(fragments, key=lambda fragment: fragment.id)
            if fragment.id in chosen and not _is_in_targets(fragment, placement)
        ]
        return _within_limits(moved, options)
    bins: list[_Bin] = []
    open_bins: dict[tuple[Target, ...], _Bin | None] = {}
    for fragment in sorted(fragments, key=lambda fragment: fragment.id):
        is_worn = _has_many_deletions(fragment, options) or (
            fragment.has_overlays and len(fragment.overlays) > most_overlays
        )
        is_small = options.size(fragment) < 1
        targets = placement.of(fragment)
        if fragment.id in excluded or not (is_worn or is_small):
            open_bins[targets] = None
            continue
        indexes = tuple(index for index, bitmap in enumerate(covered) if fragment.id in bitmap)
        open_bin = open_bins.get(targets)
        if open_bin is None or open_bin.covered_by != indexes:
            open_bin = open_bins[targets] = _Bin(indexes, [], is_worn)
            bins.append(open_bin)
        open_bin.fragments.append(fragment)
    return _within_limits([group for bin_ in bins for group in bin_.groups(options)], options)


def _is_in_targets(fragment: Fragment, placement: Placement) -> bool:
    """Return whether all data files of a fragment are in the targets of its new files."""
    return {file.base_id for file in fragment.files} <= set(placement.of(fragment))


def _has_many_deletions(fragment: Fragment, options: CompactionOptions) -> bool:
    threshold = options.values["materialize_deletions_threshold"]
    if not options.values["materialize_deletions"] or threshold >= 1 or not fragment.physical_rows:
        return False
    return fragment.num_deleted_rows / fragment.physical_rows > threshold


def _within_limits(
    groups: list[tuple[Fragment, ...]], options: CompactionOptions
) -> list[tuple[Fragment, ...]]:
    values = options.values
    limits = (
        (values["max_source_fragments"], len),
        (values["max_source_rows"], lambda group: sum(fragment.num_rows for fragment in group)),
        (values["max_source_bytes"], lambda group: sum(fragment.size_bytes for fragment in group)),
    )
    count = len(groups)
    for limit, measure in limits:
        if limit is None:
            continue
        total = 0
        for index, group in enumerate(groups[:count]):
            total += measure(group)
            if total > limit:
                count = index
                break
    return groups[:count]


# --------------------------------------------------------------------------------------------------
# Compaction: many small fragments are rewritten as few large fragments without deleted rows.

#: Version of rows whose fragment records no versions.
_NO_VERSION = 1


@dataclass(frozen=True, slots=True)
class CompactionMetrics:
    """Counts of what a compaction did.

    Attributes
    ----------
    fragments_removed, fragments_added : int
    files_removed : int
        Data files and deletion files that the new version no longer refers to.
    files_added : int
    """

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0

    @classmethod
    def sum(cls, parts: Iterable[CompactionMetrics]) -> CompactionMetrics:
        """Return the counts of several compactions together."""
        counts = [astuple(part) for part in parts]
        return cls(*map(sum, zip(*counts, strict=True))) if counts else cls()


def metrics_of(old: Sequence[Fragment], new: Sequence[Fragment]) -> CompactionMetrics:
    """Return the counts of a commit that replaces fragments."""
    return CompactionMetrics(
        fragments_removed=len(old),
        fragments_added=len(new),
        files_removed=sum(
            len(fragment.files) + (fragment.deletion_file is not None) for fragment in old
        ),
        files_added=sum(len(fragment.files) for fragment in new),
    )


@dataclass(frozen=True, slots=True)
class CompactionResult(Written):
    """The result of a task. Small, and can be pickled.

    - `new`: With the lineage of their rows in tables with stable row ids. Their fragment ids are
      not assigned yet.
    - `addresses`: Old addresses of the rows, as a 64-bit Roaring bitmap. The n-th address is that
      of the n-th row of the new fragments.
    """

    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]
    addresses: bytes

    @property
    def new_data(self) -> Iterable[Fragment]:
        """The new fragments."""
        return self.new

    @property
    def metrics(self) -> CompactionMetrics:
        """Counts of what the commit of this result does."""
        return metrics_of(self.old, self.new)


@dataclass(frozen=True, slots=True)
class RefusedGroup(Written):
    """The result of a task whose rows no file can hold together. They stay in their fragments.

    - `ids`: The fragments.
    """

    ids: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionGroupTask(FragmentTask):
    """A group of fragments that one task rewrites. Can be pickled; holds no manifest.

    - `fragments`: With increasing ids.
    - `targets`: Targets of the new files, used in turn: ids of base paths, or None for the table
      itself.
    """

    schema: Schema
    file_version: tuple[int, int]
    stable_row_ids: bool = False
    target_rows_per_fragment: int = DEFAULT_MAX_ROWS_PER_FILE
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE
    targets: tuple[Target, ...] = (None,)
    first: int = 0

    @property
    def num_rows(self) -> int:
        """Number of rows that the task writes."""
        return sum(fragment.num_rows for fragment in self.fragments)

    def run(self) -> CompactionResult:
        """Write the new fragments; delete them after an error.

        Raises CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError.
        """
        paths = self.open_paths()
        writer = rewrite_writer(
            paths,
            self.schema,
            self.file_version,
            self.base_paths,
            max_rows_per_file=self._rows_per_file(),
            max_bytes_per_file=self.max_bytes_per_file,
            tag=self.tag,
            targets=self.targets,
            first=self.first,
        )
        try:
            fields, version = self.schema.fields, self.file_version
            for rows in live_values(paths, self.fragments, fields, version, self.base_paths):
                writer.write(rows)
            new = writer.finish()
            # Most were read together with the values.
            expect_deletions(paths, self.fragments)
            deleted = [read_deletions(paths, fragment) for fragment in self.fragments]
            live = sum(
                fragment.physical_rows - len(gone)
                for fragment, gone in zip(self.fragments, deleted, strict=True)
            )
            num_written = sum(fragment.physical_rows for fragment in new)
            if num_written != live:
                raise CorruptTableError(
                    f"{paths.store.display}: fragments "
                    f"{[fragment.id for fragment in self.fragments]} have {live} live rows, but "
                    f"{num_written} were read"
                )
            if self.stable_row_ids:
                new = self._with_lineage(paths, new, deleted)
        except BaseException:
            writer.abort()
            raise
        return CompactionResult(self.fragments, tuple(new), self._addresses(deleted))

    def run_if_possible(self) -> CompactionResult | RefusedGroup:
        """Do what `run` does; return the reason if no file can hold the rows together."""
        try:
            return self.run()
        except DistinctValuesError as error:
            return RefusedGroup(tuple(fragment.id for fragment in self.fragments), str(error))

    def _rows_per_file(self) -> int:
        """Return the rows of each new fragment: about equal, and at least the target."""
        rows = self.num_rows
        files = max(rows // self.target_rows_per_fragment, 1)
        return max(-(-rows // files), 1)

    def _with_lineage(
        self, paths: TablePaths, new: Sequence[Fragment], deleted: Sequence[Offsets]
    ) -> list[Fragment]:
        ids, created, updated = [], [], []
        for fragment, offsets in zip(self.fragments, deleted, strict=True):
            row_ids = row_ids_of(fragment, paths)
            if row_ids is None:
                raise CorruptTableError(
                    f"{fragment.name} has no row ids, but the table has stable row ids"
                )
            ids.append(without_deleted(row_ids, offsets))
            created.append(
                without_deleted(
                    _versions_or_first(created_versions_of(fragment, paths), fragment), offsets
                )
            )
            updated.append(
                without_deleted(
                    _versions_or_first(updated_versions_of(fragment, paths), fragment), offsets
                )
            )
        return with_lineage(new, *map(concatenate, (ids, created, updated)))

    def _addresses(self, deleted: Sequence[Offsets]) -> bytes:
        addresses = BitMap64()
        for fragment, offsets in zip(self.fragments, deleted, strict=True):
            first = first_address(fragment)
            addresses.add_range(first, first + fragment.physical_rows)
            addresses -= BitMap64(offsets.astype(np.uint64) + np.uint64(first))
        addresses.run_optimize()
        data: bytes = addresses.serialize()
        return data


def plan_compaction(
    table: OpenTable, options: CompactionOptions | None = None, *, tag: bytes = b""
) -> list[CompactionGroupTask]:
    """Return the tasks of a compaction; none if no fragment needs a rewrite.

    Raises CorruptTableError, StorageError. Raises UnsupportedFeatureError, UnsupportedError: the
    table needs a newer release, or `defer_index_remap` is true for a table with stable row ids.
    """
    options = options or CompactionOptions()
    check_rows_writable(table, data_files=True)
    manifest = table.manifest
    if options.values["defer_index_remap"] and manifest.flags.stable_row_ids:
        raise UnsupportedFeatureError(
            f"{table.store.display}: a table with stable row ids cannot have a fragment reuse "
            "index; leave defer_index_remap out"
        )
    check_types(table.schema, manifest.data_storage_version)
    fragments = counted_fragments(table.paths, manifest)
    placement = placement_of(table)
    groups = plan_groups(fragments, covered_fragments(table), options, placement)
    return [
        task_of(table, group, options, number, tag=tag, placement=placement)
        for number, group in enumerate(groups)
    ]


def task_of(
    table: OpenTable,
    group: Sequence[Fragment],
    options: CompactionOptions,
    number: int,
    *,
    tag: bytes = b"",
    placement: Placement | None = None,
) -> CompactionGroupTask:
    """Return the task of a group of fragments.

    - `number`: The place of the group in the plan.
    - `placement`: By default that of the table.
    """
    target_rows = options.target_rows(group)
    if options.moved_fragment_ids is not None:
        # A fragment that moves to another base path is not split.
        target_rows = max(target_rows, *(fragment.physical_rows for fragment in group))
    return CompactionGroupTask(
        uri=table.store.uri,
        schema=table.schema,
        file_version=table.manifest.data_storage_version,
        fragments=tuple(group),
        stable_row_ids=table.manifest.flags.stable_row_ids,
        target_rows_per_fragment=target_rows,
        max_bytes_per_file=options.max_bytes_per_file,
        base_paths=table.manifest.base_paths,
        storage_options=table.store.options,
        tag=tag,
        targets=(placement or placement_of(table)).of(group[0]),
        first=number,
    )


def covered_fragments(table: OpenTable) -> list[BitMap]:
    """Return the fragments that each segment of an index covers, after all compactions so far.

    Raises CorruptTableError, StorageError. Raises UnsupportedFeatureError: this release cannot read
    the fragment reuse index.
    """
    section = checked_section(table.paths, table.manifest)
    entry = fragment_reuse.find_entry(section)
    content = None
    if entry is not None:
        fragment_reuse.check_untagged(entry, table.store.display)
        content = fragment_reuse.read_content(table.paths, entry)
    bitmaps = [
        indexes.fragment_bitmap(index) for index in section.indices if not indexes.is_system(index)
    ]
    recorded = [bitmap for bitmap in bitmaps if bitmap is not None]
    if content is None:
        return recorded
    return [fragment_reuse.remap_fragments(bitmap, content) for bitmap in recorded]


def commit_compaction(
    table: OpenTable,
    results: Iterable[CompactionResult],
    *,
    defer_index_remap: bool | None = None,
    options: CommitOptions | None = None,
    in_part: bool = False,
    runner: Runner | None = None,
) -> Manifest:
    """Replace the old fragments by the new fragments of all tasks.

    After a failure, the files of the new fragments stay: an earlier commit of the same results, for
    example one without an answer, may have made them part of the table.

    - `defer_index_remap`: See `CompactionKeywords`.
    - `in_part`: Whether the commit may omit results whose fragments another client changed; see
      `committed_of`.
    - `runner`: Runs the tasks that write large indexes again; this process by default.

    Raises UncertainCommitError, StorageError, CorruptTableError. Raises CommitConflictError:
    another client changed the same fragments. Raises InvalidInputError: two results are for one
    fragment.
    """
    options = options or CommitOptions()
    results = list(results)
    check_once(table, (fragment.id for result in results for fragment in result.old))
    store = table.store
    written: list[str] = []

    def clean_up() -> None:
        with suppress(StorageError):
            store.delete(written)

    with after_failure(clean_up):
        count = sum(len(result.new) for result in results)
        reserved = reserve_fragment_ids(table, count, options)
        paths = TablePaths(store, reserved.base_paths, store.options)
        moves = list(_with_ids(results, (reserved.max_fragment_id or 0) - count + 1))
        groups = tuple(RewriteGroup(move.old, move.new) for move in moves)
        operation = Rewrite(groups, in_part=in_part)
        if defer_index_remap or (defer_index_remap is None and _needs_reuse(reserved)):
            operation = with_reuse(operation, paths, reserved, moves)
            written.extend(operation.deletion_files)
        else:
            rewritten = remapped(paths, reserved, moves, runner_for(table, runner))
            written.extend(path for index in rewritten for path in files_of(index))
            operation = replace(operation, rewritten_indices=tuple(rewritten))
        return commit_operation(after_reserving(table, reserved), operation, options)


def after_reserving(table: OpenTable, reserved: Manifest) -> OpenTable:
    """Return the table at the version that reserved ids, or as it was if others came between.

    A commit reads and checks the versions after that of its plan.
    """
    return at_version(table, reserved) if reserved.version == table.version + 1 else table


def reserve_fragment_ids(table: OpenTable, count: int, options: CommitOptions) -> Manifest:
    """Reserve fragment ids, and return the new version: they are the highest ids of it."""
    return commit_operation(table, ReserveFragments(count), replace(options, properties={}))


def committed_of(
    results: Iterable[CompactionResult], manifest: Manifest
) -> tuple[list[CompactionResult], list[CompactionResult]]:
    """Return the results that a version contains, and those that the commit omitted.

    - `manifest`: The version that `commit_compaction` returned for them.
    """
    ids = {fragment.id for fragment in manifest.fragments}
    paths = {file.path for fragment in manifest.fragments for file in fragment.files}
    committed: list[CompactionResult] = []
    omitted: list[CompactionResult] = []
    for result in results:
        new = [file.path for fragment in result.new for file in fragment.files]
        is_committed = (
            paths.issuperset(new) if new else ids.isdisjoint(fragment.id for fragment in result.old)
        )
        (committed if is_committed else omitted).append(result)
    return committed, omitted


def _with_ids(results: Iterable[CompactionResult], first: int) -> Iterable[RemappedRows]:
    """Yield the rows that the tasks moved; the new fragments get reserved ids."""
    next_id = first
    for result in results:
        new = with_reserved_ids(result.new, next_id)
        next_id += len(new)
        yield RemappedRows(result.addresses, result.old, new)


def _needs_reuse(manifest: Manifest) -> bool:
    """Return whether indexes of a table need its fragment reuse index to find moved rows."""
    if manifest.flags.stable_row_ids:
        return False
    section = indexes.section_of(manifest)
    if fragment_reuse.find_entry(section) is None:
        return False
    # It maps the addresses of indexes. Zones of moved rows do not exist any more, whether or not
    # the moves are recorded.
    return any(
        not (indexes.is_system(index) or indexes.is_zoned(index)) and indexes.names_rows(index)
        for index in section.indices
    )


def _versions_or_first(versions: UInt64Array | None, fragment: Fragment) -> UInt64Array:
    if versions is not None:
        return versions
    return np.full(fragment.physical_rows, _NO_VERSION, np.uint64)
