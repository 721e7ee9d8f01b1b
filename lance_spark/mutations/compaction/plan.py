"""The choice of the fragments that a compaction rewrites, and of the groups that it merges.

The planner visits fragments in the order of their ids:

| fragment | decision |
| --- | --- |
| more than `materialize_deletions_threshold` of its rows are deleted | rewritten, even alone |
| more than `max_overlays_per_fragment` overlays | rewritten, even alone |
| fewer than `target_rows_per_fragment` rows | rewritten with adjacent candidates; alone it stays |
| others | stay |

Adjacent candidates that the same indexes cover form a group. A fragment that an index covers is not
merged with a fragment that it does not cover: the index could not describe the new fragment. A
group ends as soon as it has the target number of rows, if as many rows remain. These are the rules
of pylance.

A group holds only fragments whose files go to the same base paths (`lance_spark.table.placement`),
and "adjacent" means adjacent among these fragments. pylance writes all new fragments to the table
itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyroaring import BitMap

from lance_spark.mutations.compaction.options import CompactionOptions
from lance_spark.table.bases import Target
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.placement import Placement


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
