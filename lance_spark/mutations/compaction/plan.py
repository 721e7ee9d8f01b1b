"""Which fragments a compaction makes one of, and which it leaves alone.

Fragments are looked at in the order of their ids:

| fragment | what becomes of it |
| --- | --- |
| more than `materialize_deletions_threshold` of its rows are deleted | rewritten, even alone |
| fewer than `target_rows_per_fragment` rows | rewritten with candidates next to it; alone it stays |
| others | stay |

Candidates next to each other that the same indexes cover are a group. What an index covers and what
it does not never get mixed: the new fragment would be neither. A group is cut as soon as it has the
wanted rows, if as many are left. These are the rules of pylance.

Fragments whose files go to different base paths (`lance_spark.table.placement`) are not put
together either: what is next to one another is told among the fragments of one base path. pylance
writes all of them to the table itself.
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
    """How a table is compacted; names and values are those of pylance.

    Attributes
    ----------
    target_rows_per_fragment : int
        Fragments with fewer rows are candidates; new ones have at least as many, if there are.
    max_bytes_per_file : int
        A new data file is closed once it has so many bytes.
    materialize_deletions : bool
        Whether deleted rows are a reason to rewrite a fragment.
    materialize_deletions_threshold : float
        Part of the rows of a fragment that has to be deleted for that, 0 to 1.
    num_threads : int, optional
        Groups that are rewritten at the same time; by default 1 in a local store, 4 in others.
    defer_index_remap : bool, optional
        Whether the fragment reuse index says where rows have gone. By default it does if there are
        indexes that need it.
    max_source_fragments, max_source_rows, max_source_bytes : int, optional
        Groups are left for another time from the one on with which there would be more.
    excluded_fragment_ids : collection of int
        Fragments that stay, whatever their size.
    target_bytes_per_fragment : int, optional
        Counts in the place of rows: fragments with fewer bytes in data files are candidates, and
        new ones get as many rows as have so many bytes in the old ones. Fragments whose bytes are
        not noted go by their rows.
    moved_fragment_ids : collection of int, optional
        Only these fragments are rewritten, each by itself, unless all of their data files are where
        new ones go already.

    Raises
    ------
    InvalidOptionError
        A number is out of range.
    """

    target_rows_per_fragment: int = DEFAULT_MAX_ROWS_PER_FILE
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE
    materialize_deletions: bool = True
    materialize_deletions_threshold: float = 0.1
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

    def size(self, fragment: Fragment) -> float:
        """Return how large a fragment is, deleted rows included; 1 is what is wanted."""
        if self.target_bytes_per_fragment is None or not fragment.size_bytes:
            return fragment.physical_rows / self.target_rows_per_fragment
        return fragment.size_bytes / self.target_bytes_per_fragment

    def target_rows(self, group: Sequence[Fragment]) -> int:
        """Return the rows of the new fragments of a group, at least."""
        rows = sum(item.physical_rows for item in group)
        size = sum(item.size_bytes for item in group)
        if (
            self.target_bytes_per_fragment is None
            or not rows
            or not all(item.size_bytes for item in group)
        ):
            return self.target_rows_per_fragment
        return max(self.target_bytes_per_fragment * rows // size, 1)


@dataclass(slots=True)
class _Bin:
    """Candidates next to each other."""

    covered_by: tuple[int, ...]
    fragments: list[Fragment]
    alone: bool

    def groups(self, options: CompactionOptions) -> Iterable[tuple[Fragment, ...]]:
        """Yield the parts that are worth a rewrite."""
        if len(self.fragments) == 1 and not self.alone:
            return
        target = options.target_rows(self.fragments)
        left = sum(item.num_rows for item in self.fragments)
        part: list[Fragment] = []
        rows = 0
        for fragment in self.fragments:
            part.append(fragment)
            rows += fragment.num_rows
            left -= fragment.num_rows
            if rows >= target and left >= target:
                yield tuple(part)
                part, rows = [], 0
        yield tuple(part)


def plan_groups(
    fragments: Sequence[Fragment],
    covered: Sequence[BitMap],
    options: CompactionOptions,
    placement: Placement,
) -> list[tuple[Fragment, ...]]:
    """Return the groups of fragments that are rewritten.

    Parameters
    ----------
    fragments : sequence of Fragment
        All of the table, with their rows counted.
    covered : sequence of BitMap
        The fragments that each segment of an index covers.
    options : CompactionOptions
    placement : Placement
        Where new files go.

    Returns
    -------
    list of tuple of Fragment
        In the order of their ids; the files of all fragments of a group go to the same places.
    """
    excluded = frozenset(options.excluded_fragment_ids)
    if options.moved_fragment_ids is not None:
        chosen = frozenset(options.moved_fragment_ids) - excluded
        moved: list[tuple[Fragment, ...]] = [
            (item,)
            for item in sorted(fragments, key=lambda item: item.id)
            if item.id in chosen and not _is_at(item, placement)
        ]
        return _within_limits(moved, options)
    bins: list[_Bin] = []
    open_bins: dict[tuple[Target, ...], _Bin | None] = {}
    for fragment in sorted(fragments, key=lambda item: item.id):
        dirty = _is_dirty(fragment, options)
        small = options.size(fragment) < 1
        places = placement.of(fragment)
        if fragment.id in excluded or not (dirty or small):
            open_bins[places] = None
            continue
        indexes = tuple(index for index, bitmap in enumerate(covered) if fragment.id in bitmap)
        open_bin = open_bins.get(places)
        if open_bin is None or open_bin.covered_by != indexes:
            open_bin = open_bins[places] = _Bin(indexes, [], dirty)
            bins.append(open_bin)
        open_bin.fragments.append(fragment)
    return _within_limits([group for item in bins for group in item.groups(options)], options)


def _is_at(fragment: Fragment, placement: Placement) -> bool:
    """Tell whether all data files of a fragment lie in places that new ones of it go to."""
    return {file.base_id for file in fragment.files} <= set(placement.of(fragment))


def _is_dirty(fragment: Fragment, options: CompactionOptions) -> bool:
    threshold = options.materialize_deletions_threshold
    if not options.materialize_deletions or threshold >= 1 or not fragment.physical_rows:
        return False
    return fragment.num_deleted_rows / fragment.physical_rows > threshold


def _within_limits(
    groups: list[tuple[Fragment, ...]], options: CompactionOptions
) -> list[tuple[Fragment, ...]]:
    limits = (
        (options.max_source_fragments, len),
        (options.max_source_rows, lambda group: sum(item.num_rows for item in group)),
        (options.max_source_bytes, lambda group: sum(item.size_bytes for item in group)),
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
