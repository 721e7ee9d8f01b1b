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

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from pyroaring import BitMap

from lance_spark.errors import InvalidOptionError
from lance_spark.table.bases import Target
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.writer import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE
from lance_spark.table.placement import Placement


@dataclass(frozen=True, slots=True)
class CompactionOptions:
    """How a table is compacted; names and values are as in pylance.

    Attributes
    ----------
    target_rows_per_fragment : int
        Fragments with fewer rows are candidates. New fragments have at least as many rows, if
        their group has.
    max_bytes_per_file : int
        A new data file is closed once it has this number of bytes.
    materialize_deletions : bool
        Whether deleted rows are a reason to rewrite a fragment.
    materialize_deletions_threshold : float
        Fraction of deleted rows, 0 to 1, above which a fragment is rewritten.
    max_overlays_per_fragment : int
        Number of overlays above which a fragment is rewritten. The new fragment has their values,
        and no overlays.
    num_threads : int, optional
        Groups that are rewritten at the same time; by default 1 in a local store, 4 in others.
    defer_index_remap : bool, optional
        Whether the fragment reuse index records the new addresses of rows. By default it does if
        the table has indexes that need it.
    max_source_fragments, max_source_rows, max_source_bytes : int, optional
        Limits of one compaction. It ends before the first group that would exceed one of them.
    excluded_fragment_ids : collection of int
        Fragments that stay, regardless of their size.
    target_bytes_per_fragment : int, optional
        Used in place of `target_rows_per_fragment`: fragments whose data files have fewer bytes are
        candidates, and new fragments get the number of rows that have these bytes in the old
        fragments. Fragments whose file sizes are not recorded are judged by their rows.
    moved_fragment_ids : collection of int, optional
        If given, only these fragments are rewritten, each into one fragment, unless all of their
        data files are in the target already.

    Raises
    ------
    InvalidOptionError
        A number is out of range.
    """

    target_rows_per_fragment: int = DEFAULT_MAX_ROWS_PER_FILE
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE
    materialize_deletions: bool = True
    materialize_deletions_threshold: float = 0.1
    max_overlays_per_fragment: int = 10
    num_threads: int | None = None
    defer_index_remap: bool | None = None
    max_source_fragments: int | None = None
    max_source_rows: int | None = None
    max_source_bytes: int | None = None
    excluded_fragment_ids: Collection[int] = field(default=())
    target_bytes_per_fragment: int | None = None
    moved_fragment_ids: Collection[int] | None = None

    def __post_init__(self) -> None:
        for name in (
            "target_rows_per_fragment",
            "max_bytes_per_file",
            "num_threads",
            "max_source_fragments",
            "max_source_rows",
            "max_source_bytes",
            "target_bytes_per_fragment",
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int) or value < 1:
                raise InvalidOptionError(f"{name} must be at least 1, not {value!r}")
        number = self.max_overlays_per_fragment
        if not isinstance(number, int) or number < 0:
            raise InvalidOptionError(
                f"max_overlays_per_fragment must be at least 0, not {number!r}"
            )

    def size(self, fragment: Fragment) -> float:
        """Return the size of a fragment relative to the target, deleted rows included."""
        if self.target_bytes_per_fragment is None or not fragment.size_bytes:
            return fragment.physical_rows / self.target_rows_per_fragment
        return fragment.size_bytes / self.target_bytes_per_fragment

    def target_rows(self, group: Sequence[Fragment]) -> int:
        """Return the minimum number of rows of the new fragments of a group."""
        rows = sum(fragment.physical_rows for fragment in group)
        size = sum(fragment.size_bytes for fragment in group)
        if (
            self.target_bytes_per_fragment is None
            or not rows
            or not all(fragment.size_bytes for fragment in group)
        ):
            return self.target_rows_per_fragment
        return max(self.target_bytes_per_fragment * rows // size, 1)


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

    Parameters
    ----------
    fragments : sequence of Fragment
        All fragments of the table, with their row counts.
    covered : sequence of BitMap
        For each segment of an index, the fragments that it covers.

    Returns
    -------
    list of tuple of Fragment
        In the order of their ids. The new files of a group have the same targets.
    """
    excluded = frozenset(options.excluded_fragment_ids)
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
            fragment.has_overlays and len(fragment.overlays) > options.max_overlays_per_fragment
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
    threshold = options.materialize_deletions_threshold
    if not options.materialize_deletions or threshold >= 1 or not fragment.physical_rows:
        return False
    return fragment.num_deleted_rows / fragment.physical_rows > threshold


def _within_limits(
    groups: list[tuple[Fragment, ...]], options: CompactionOptions
) -> list[tuple[Fragment, ...]]:
    limits = (
        (options.max_source_fragments, len),
        (options.max_source_rows, lambda group: sum(fragment.num_rows for fragment in group)),
        (options.max_source_bytes, lambda group: sum(fragment.size_bytes for fragment in group)),
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
