"""A compaction from its plan to its commit, planned again after a conflict.

A commit fails if another client changed rows of a fragment while it was rewritten. Groups whose
fragments did not change are not rewritten again: their new fragments are reused, and committed
together with the new fragments of the next plan.

| input of a group | its new fragments are reused if |
| --- | --- |
| its fragments: files, deleted rows, row ids and versions | they are equal, byte by byte |
| the table's schema, file version, base paths | they are equal |
| indexes | each covers all fragments of the group, or none |

A group whose rows no file can hold together stays as it is, with a warning: the others are
rewritten.

Another client that changes a group again and again could delay the commit without end. So after
half of the attempts, a commit may omit groups that were changed since the plan: they stay as they
are until the next compaction.

`move_fragments` moves fragments to another base path, for example in another bucket, or to the
table itself: a compaction that rewrites each given fragment alone. Rows keep their ids in tables
with stable row ids. The old files stay, for older versions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Self, cast

from pyroaring import BitMap

from lance_spark import progress
from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    LanceError,
    UncertainCommitError,
)
from lance_spark.mutations.commits import at_version, retry_on_conflict
from lance_spark.mutations.compaction.options import CompactionKeywords, CompactionOptions
from lance_spark.mutations.compaction.task import (
    CompactionGroupTask,
    CompactionMetrics,
    CompactionResult,
    RefusedGroup,
    commit_compaction,
    committed_of,
    covered_fragments,
    plan_compaction,
)
from lance_spark.mutations.rewrite.writers import discard, undo
from lance_spark.runner import Runner, runner_for
from lance_spark.table.bases import TargetBases
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable

#: Groups that this process rewrites at the same time, where the store is remote. Each holds a
#: window of rows and the pages that are not full yet.
_REMOTE_THREADS = 4
_LOG = logging.getLogger(__name__)


class CompactionRun:
    """A compaction that reuses the fragments that it wrote if it is planned again.

    Use as a context: its end deletes files that were not committed.

    - `commit_options`: In the second half of its `conflict_retries` attempts, changed groups can be
      omitted.
    """

    def __init__(
        self, options: CompactionOptions, commit_options: CommitOptions | None = None
    ) -> None:
        self.options = options
        self._commit_options = commit_options or CommitOptions()
        self._attempts = 0
        self._patience = self._commit_options.conflict_retries // 2
        self._done: list[CompactionResult] = []
        self._refused: set[int] = set()
        self._table: OpenTable | None = None
        self._is_committed = False
        self._uncertain = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._table is not None and not self._is_committed and not self._uncertain:
            discard(self._table.paths, self._done)

    @property
    def metrics(self) -> CompactionMetrics:
        """What the commit did; zeros before it."""
        parts = [result.metrics for result in self._done] if self._is_committed else []
        return CompactionMetrics.sum(parts)

    def commit(
        self, table: OpenTable, *, runner: Runner | None = None, excluded: Collection[int] = ()
    ) -> Manifest:
        """Rewrite the groups that are not rewritten yet, and commit.

        See `plan_compaction` and `commit_compaction`.

        - `table`: The newest version.
        - `excluded`: Further fragments that stay, unless they are rewritten already.

        Returns the new version; that of `table` if no fragment needs a rewrite.
        """
        self._discard_changed(table)
        self._table = table
        options = self.options
        task_runner = runner_for(
            table,
            runner,
            options.values["num_threads"] or (1 if table.store.is_local else _REMOTE_THREADS),
        )
        tasks = self._missing(table, excluded, task_runner.tag)
        if tasks:
            rows = sum(task.num_rows for task in tasks)
            with progress.stage("rewrite", rows, "rows"):
                self._done += self._run(table, tasks, task_runner)
            self._done.sort(key=lambda result: result.old[0].id)
        if not self._done:
            return table.manifest
        # An interrupt, for example, can end the commit after it created the version.
        self._uncertain = True
        self._attempts += 1
        try:
            manifest = commit_compaction(
                table,
                self._done,
                defer_index_remap=options.values["defer_index_remap"],
                options=self._commit_options,
                in_part=self._attempts > self._patience + 1,
                runner=runner,
            )
        except UncertainCommitError:
            raise
        except BaseException as error:
            if isinstance(error, LanceError) or progress.raised(error):
                self._uncertain = False
            raise
        self._uncertain = False
        self._is_committed = True
        self._done, omitted = committed_of(self._done, manifest)
        discard(table.paths, omitted)
        return manifest

    def _run(
        self, table: OpenTable, tasks: Sequence[CompactionGroupTask], runner: Runner
    ) -> list[CompactionResult]:
        """Run tasks, and return the results of those that wrote fragments."""
        if self.options.moved_fragment_ids is not None:
            # A caller who moves fragments needs all of them.
            return runner.run(tasks, CompactionGroupTask.run, partial(undo, table.paths))
        results = runner.run(tasks, CompactionGroupTask.run_if_possible, partial(undo, table.paths))
        for refused in (result for result in results if isinstance(result, RefusedGroup)):
            self._refused.update(refused.ids)
            _LOG.warning(
                "%d fragments from %d on stay as they are: %s",
                len(refused.ids),
                refused.ids[0],
                refused.reason,
            )
        return [result for result in results if isinstance(result, CompactionResult)]

    def _missing(
        self, table: OpenTable, excluded: Collection[int], tag: bytes
    ) -> list[CompactionGroupTask]:
        """Return the tasks of the groups that are not rewritten yet."""
        options = self.options
        rewritten = [fragment for result in self._done for fragment in result.old]
        used_amounts = {
            "max_source_fragments": len(rewritten),
            "max_source_rows": sum(fragment.num_rows for fragment in rewritten),
            "max_source_bytes": sum(fragment.size_bytes for fragment in rewritten),
        }
        limits = {
            name: limit - amount
            for name, amount in used_amounts.items()
            if (limit := cast("int | None", options.values.get(name))) is not None
        }
        if any(remaining < 1 for remaining in limits.values()):
            return []
        all_excluded = {
            *options.excluded_fragment_ids,
            *excluded,
            *self._refused,
            *(fragment.id for fragment in rewritten),
        }
        changed = {**limits, "excluded_fragment_ids": all_excluded}
        remaining_options = options.replaced(**cast("CompactionKeywords", changed))
        return plan_compaction(table, remaining_options, tag=tag)

    def _discard_changed(self, table: OpenTable) -> None:
        """Delete the new fragments of groups that another client has changed."""
        if not self._done or self._table is None:
            return
        same_layout = _layout_of(self._table) == _layout_of(table)
        contents: dict[int, bytes] = {}
        covered: list[BitMap] = []
        if same_layout:
            fragments = counted_fragments(table.paths, table.manifest)
            ids = {fragment.id for result in self._done for fragment in result.old}
            contents = {
                fragment.id: _content_of(fragment) for fragment in fragments if fragment.id in ids
            }
            covered = covered_fragments(table)
        valid: list[CompactionResult] = []
        changed: list[CompactionResult] = []
        for result in self._done:
            is_valid = (
                same_layout
                and all(
                    contents.get(fragment.id) == _content_of(fragment) for fragment in result.old
                )
                and not _is_covered_in_part(result.old, covered)
            )
            (valid if is_valid else changed).append(result)
        self._done = valid
        discard(self._table.paths, changed)


def compact(
    table: OpenTable,
    options: CompactionOptions,
    commit_options: CommitOptions,
    runner: Runner | None = None,
) -> tuple[OpenTable, CompactionMetrics]:
    """Compact a table; see `Dataset.compact_files`. Tasks run in this process by default."""
    check_excluded(table, options)
    with CompactionRun(options, commit_options) as compaction:

        def change(current: OpenTable) -> Manifest:
            return compaction.commit(current, runner=runner)

        manifest = retry_on_conflict(table, change, commit_options)
        return at_version(table, manifest), compaction.metrics


def check_excluded(table: OpenTable, options: CompactionOptions) -> None:
    """Raise InvalidOptionError if a fragment to exclude does not exist: likely a mistake."""
    if not options.excluded_fragment_ids:
        return
    ids = {fragment.id for fragment in table.manifest.fragments}
    missing = sorted(options.excluded_fragment_ids - ids)
    if missing:
        raise InvalidOptionError(
            f"{table.store.display}: excluded_fragment_ids: version {table.version} of the table "
            f"has no fragment {missing[0]}; its fragments are those that Dataset.fragments lists"
        )


def _content_of(fragment: Fragment) -> bytes:
    """Return the stored form of a fragment, on which its rewritten form depends."""
    data: bytes = fragment.to_proto().SerializeToString(deterministic=True)
    return data


def _layout_of(table: OpenTable) -> tuple[object, ...]:
    """Return the properties of a table that determine how its files are written and located."""
    manifest = table.manifest
    return (
        manifest.schema,
        manifest.data_storage_version,
        manifest.flags.stable_row_ids,
        dict(manifest.base_paths),
    )


def _is_covered_in_part(fragments: Sequence[Fragment], covered: Sequence[BitMap]) -> bool:
    """Return whether an index covers some of the fragments, but not all."""
    ids = BitMap(fragment.id for fragment in fragments)
    return any(0 < len(ids & bitmap) < len(ids) for bitmap in covered)


def with_target(table: OpenTable, base: str) -> OpenTable:
    """Return a table whose mutations write their data files to a base path.

    - `base`: Name or path of the base path, or the path of the table itself.

    Raises InvalidInputError: the base path is empty, or not a string.
    """
    if not isinstance(base, str) or not base:
        raise InvalidInputError(
            f"{table.store.display}: the base path that fragments move to must be a name or a "
            "path, "
            f"not {base!r}"
        )
    return replace(table, target_bases=TargetBases((base,)))


def check_fragment_ids(table: OpenTable, fragment_ids: Collection[int]) -> frozenset[int]:
    """Return the ids of the fragments to move.

    Raises InvalidInputError: a fragment does not exist.
    """
    chosen = frozenset(fragment_ids)
    missing = sorted(
        chosen.difference(fragment.id for fragment in table.manifest.fragments), key=repr
    )
    if missing:
        raise InvalidInputError(
            f"{table.store.display}: version {table.version} has no fragment {missing[0]!r}; "
            "choose fragments that it has"
        )
    return chosen


def move_fragments(
    table: OpenTable,
    base: str,
    fragment_ids: Collection[int] | None,
    num_threads: int | None,
    options: CommitOptions,
) -> tuple[OpenTable, CompactionMetrics]:
    """Move fragments in this process; see `Dataset.move_fragments`."""
    chosen = (
        frozenset(fragment.id for fragment in table.manifest.fragments)
        if fragment_ids is None
        else check_fragment_ids(table, fragment_ids)
    )
    moved, metrics = compact(
        with_target(table, base),
        CompactionOptions(moved_fragment_ids=chosen, num_threads=num_threads),
        options,
    )
    return replace(moved, target_bases=table.target_bases), metrics
