"""A compaction from its plan to its commit, tried again where others were faster.

A commit fails if others changed rows of a fragment that was rewritten meanwhile. The groups whose
fragments are what they were need not be rewritten again: what was written of them is kept, and
committed together with what the next plan makes of the others.

| what a group was rewritten of | is kept if |
| --- | --- |
| its fragments: files, deleted rows, row ids and versions | they are the same, to the byte |
| the table's schema, version of files, base paths | they are the same |
| indexes | each covers all fragments of the group, or none |

Where others change some group again and again, that could go on for ever. So after some attempts a
commit may leave groups out that were changed while it was on its way: they stay as they are, for
the next compaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Self

from pyroaring import BitMap

from lance_spark.errors import InvalidOptionError, LanceError, UncertainCommitError
from lance_spark.mutations.compaction.plan import CompactionOptions
from lance_spark.mutations.compaction.task import (
    CompactionMetrics,
    CompactionResult,
    CompactionTask,
    commit_compaction,
    committed_of,
    covered_fragments,
    plan_compaction,
    undo,
)
from lance_spark.mutations.retry import DEFAULT_CONFLICT_RETRIES, retry_on_conflict
from lance_spark.mutations.runner import Runner, runner_for
from lance_spark.table.commit.commit import DEFAULT_MAX_RETRIES
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable

#: Groups that are rewritten here at the same time: each holds a window of rows, and the pages that
#: are not full yet.
_AT_ONCE = 4


class Compaction:
    """A compaction; what it wrote is used again if the commit has to be planned anew.

    Use as a context: files that were not committed are deleted at its end.

    Parameters
    ----------
    options : CompactionOptions
    conflict_retries : int
        How often it will be planned anew. In the second half of these attempts a part of it is
        enough.
    """

    def __init__(
        self, options: CompactionOptions, conflict_retries: int = DEFAULT_CONFLICT_RETRIES
    ) -> None:
        self.options = options
        self._attempts = 0
        self._patience = conflict_retries // 2
        self._done: list[CompactionResult] = []
        self._table: OpenTable | None = None
        self._is_committed = False
        self._uncertain = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._table is not None and not self._is_committed and not self._uncertain:
            for result in self._done:
                undo(self._table, result)

    @property
    def metrics(self) -> CompactionMetrics:
        """What was done, once it is committed."""
        parts = [result.metrics for result in self._done] if self._is_committed else []
        return CompactionMetrics(
            fragments_removed=sum(part.fragments_removed for part in parts),
            fragments_added=sum(part.fragments_added for part in parts),
            files_removed=sum(part.files_removed for part in parts),
            files_added=sum(part.files_added for part in parts),
        )

    def commit(
        self,
        table: OpenTable,
        *,
        runner: Runner | None = None,
        excluded: Collection[int] = (),
        properties: Mapping[str, str] | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
    ) -> Manifest:
        """Rewrite what has not been rewritten yet, and commit; see `plan_compaction` and
        `commit_compaction`.

        Parameters
        ----------
        table : OpenTable
            The newest version.
        runner : Runner, optional
            Runs the tasks; this machine by default.
        excluded : collection of int
            More fragments that stay, unless they have been rewritten.
        properties : mapping of str to str, optional
            Of the transaction.
        max_retries : int
            How often to start again after other writers were faster.

        Returns
        -------
        Manifest
            The new version; that of `table` if there is nothing to do.
        """
        self._keep(table)
        self._table = table
        options = self.options
        by = runner_for(
            table, runner, options.num_threads or (1 if table.store.is_local else _AT_ONCE)
        )
        tasks = self._missing(table, excluded, by.tag)
        if tasks:
            self._done += by.run(tasks, CompactionTask.run, lambda result: undo(table, result))
            self._done.sort(key=lambda result: result.old[0].id)
        if not self._done:
            return table.manifest
        # Whatever else ends a commit, an interrupt for example, the version may be there.
        self._uncertain = True
        self._attempts += 1
        try:
            manifest = commit_compaction(
                table,
                self._done,
                defer_index_remap=options.defer_index_remap,
                properties=properties,
                max_retries=max_retries,
                keep_new_fragments=True,
                in_part=self._attempts > self._patience + 1,
            )
        except UncertainCommitError:
            raise
        except LanceError:
            self._uncertain = False
            raise
        self._uncertain = False
        self._is_committed = True
        self._done, left = committed_of(self._done, manifest)
        for result in left:
            undo(table, result)
        return manifest

    def _missing(self, table: OpenTable, more: Collection[int], tag: bytes) -> list[CompactionTask]:
        """Return the tasks for what has not been rewritten."""
        options = self.options
        done = [fragment for result in self._done for fragment in result.old]
        # Of each limit, what is left of it.
        used = {
            "max_source_fragments": len(done),
            "max_source_rows": sum(item.num_rows for item in done),
            "max_source_bytes": sum(item.size_bytes for item in done),
        }
        limits = {
            name: getattr(options, name) - amount
            for name, amount in used.items()
            if getattr(options, name) is not None
        }
        if any(left < 1 for left in limits.values()):
            return []
        excluded = {*options.excluded_fragment_ids, *more, *(item.id for item in done)}
        rest = replace(options, excluded_fragment_ids=frozenset(excluded), **limits)
        return plan_compaction(table, rest, tag=tag)

    def _keep(self, table: OpenTable) -> None:
        """Throw away what was made of fragments that others have changed."""
        if not self._done or self._table is None:
            return
        same = _shape_of(self._table) == _shape_of(table)
        now: dict[int, bytes] = {}
        covered: list[BitMap] = []
        if same:
            fragments = counted_fragments(table.paths, table.manifest)
            wanted = {item.id for result in self._done for item in result.old}
            now = {item.id: _content_of(item) for item in fragments if item.id in wanted}
            covered = covered_fragments(table)
        kept: list[CompactionResult] = []
        gone: list[CompactionResult] = []
        for result in self._done:
            stays = (
                same
                and all(now.get(item.id) == _content_of(item) for item in result.old)
                and not _is_mixed(result.old, covered)
            )
            (kept if stays else gone).append(result)
        self._done = kept
        for result in gone:
            undo(self._table, result)


def compact(
    table: OpenTable,
    options: CompactionOptions,
    *,
    conflict_retries: int,
    max_retries: int,
    properties: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> tuple[OpenTable, CompactionMetrics]:
    """Compact a table; see `Dataset.compact_files`. The runner is this machine by default."""
    check_excluded(table, options)
    with Compaction(options, conflict_retries) as compaction:

        def change(current: OpenTable) -> Manifest:
            return compaction.commit(
                current, runner=runner, properties=properties, max_retries=max_retries
            )

        compacted = retry_on_conflict(table, change, conflict_retries)
        return compacted, compaction.metrics


def check_excluded(table: OpenTable, options: CompactionOptions) -> None:
    """Refuse to exclude fragments that a table does not have, which would hide a mistake.

    Raises
    ------
    InvalidOptionError
    """
    if not options.excluded_fragment_ids:
        return
    ids = {fragment.id for fragment in table.manifest.fragments}
    missing = sorted(set(options.excluded_fragment_ids) - ids)
    if missing:
        raise InvalidOptionError(
            f"{table.store.display}: excluded_fragment_ids: version {table.version} of the table "
            "has no fragment "
            f"{missing[0]}; its fragments are those that Dataset.fragments lists"
        )


def _content_of(fragment: Fragment) -> bytes:
    """Return what tells all that a new fragment is made of."""
    data: bytes = fragment.to_proto().SerializeToString(deterministic=True)
    return data


def _shape_of(table: OpenTable) -> tuple[object, ...]:
    """Return what tells how files of a table are written and found."""
    manifest = table.manifest
    return (
        manifest.schema,
        manifest.data_storage_version,
        manifest.flags.stable_row_ids,
        dict(manifest.base_paths),
    )


def _is_mixed(fragments: Sequence[Fragment], covered: Sequence[BitMap]) -> bool:
    """Tell whether an index covers some fragments and others not."""
    ids = BitMap(fragment.id for fragment in fragments)
    return any(0 < len(ids & bitmap) < len(ids) for bitmap in covered)
