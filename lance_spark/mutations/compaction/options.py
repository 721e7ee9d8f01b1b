"""The options of a compaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, TypedDict, Unpack

from lance_spark.keywords import Keyword, checked
from lance_spark.table.commit.options import RetryProgressKeywords
from lance_spark.table.fragments.limits import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE

if TYPE_CHECKING:
    from lance_spark.table.fragments.fragment import Fragment


class CompactionKeywords(TypedDict, total=False):
    """How a table is compacted; names and values are as in pylance, if pylance has them."""

    target_rows_per_fragment: Annotated[
        int,
        Keyword(
            "Adjacent fragments with fewer rows are merged. New fragments have at least as many "
            "rows, if their group has.",
            DEFAULT_MAX_ROWS_PER_FILE,
            minimum=1,
        ),
    ]
    target_bytes_per_fragment: Annotated[
        int | None,
        Keyword(
            "Used in place of `target_rows_per_fragment`: fragments whose data files have fewer "
            "bytes are merged, and new fragments get the number of rows that have these bytes in "
            "the old fragments. Fragments whose file sizes are not recorded are judged by their "
            "rows.",
            minimum=1,
        ),
    ]
    max_bytes_per_file: Annotated[
        int | None,
        Keyword("Size in bytes at which a new data file is closed; 90 GiB by default.", minimum=1),
    ]
    materialize_deletions: Annotated[
        bool, Keyword("Whether to rewrite fragments because of their deleted rows.", True)
    ]
    materialize_deletions_threshold: Annotated[
        float,
        Keyword(
            "Fraction of deleted rows, 0 to 1, above which a fragment is rewritten for that "
            "reason.",
            0.1,
        ),
    ]
    max_overlays_per_fragment: Annotated[
        int,
        Keyword(
            "Number of overlays above which a fragment is rewritten: 0 removes all overlays.",
            10,
            minimum=0,
        ),
    ]
    num_threads: Annotated[
        int | None,
        Keyword(
            "Number of groups of fragments that are rewritten at the same time in this process; "
            "by default 1 in local stores, 4 in others. No effect in Spark, whose tasks rewrite.",
            minimum=1,
        ),
    ]
    defer_index_remap: Annotated[
        bool | None,
        Keyword(
            "Whether to record the new row addresses in a fragment reuse index; by default, if the "
            "table has one. Otherwise indexes are written again with the new addresses. Zone maps, "
            "Bloom filters and indexes that cannot be written again no longer cover the moved "
            "rows, so that these are searched without the index. Not used in tables with stable "
            "row ids."
        ),
    ]
    max_source_fragments: Annotated[
        int | None,
        Keyword("Most fragments that one call rewrites. The rest remains.", minimum=1),
    ]
    max_source_rows: Annotated[
        int | None, Keyword("Most rows that one call rewrites. The rest remains.", minimum=1)
    ]
    max_source_bytes: Annotated[
        int | None, Keyword("Most bytes that one call rewrites. The rest remains.", minimum=1)
    ]
    excluded_fragment_ids: Annotated[
        Collection[int],
        Keyword(
            "Ids of fragments that are not rewritten. An id that the table does not have is an "
            "error, unlike in pylance.",
            (),
        ),
    ]


class CompactKeywords(CompactionKeywords, RetryProgressKeywords, total=False):
    """Keywords of calls that compact a table."""


class CompactionOptions:
    """The options of a compaction, checked, and the sizes of fragments by them.

    - `moved_fragment_ids`: If given, only these fragments are rewritten, each into one fragment,
      unless all of their data files are in the target already.
    - `**keywords`: Of `CompactionKeywords`.

    Raises InvalidOptionError: an option is unknown or out of range.
    """

    __slots__ = ("excluded_fragment_ids", "max_bytes_per_file", "moved_fragment_ids", "values")

    def __init__(
        self,
        *,
        moved_fragment_ids: Collection[int] | None = None,
        **keywords: Unpack[CompactionKeywords],
    ) -> None:
        self.values: CompactionKeywords = checked(CompactionKeywords, keywords)
        self.max_bytes_per_file = self.values["max_bytes_per_file"] or DEFAULT_MAX_BYTES_PER_FILE
        self.excluded_fragment_ids = frozenset(self.values["excluded_fragment_ids"])
        self.moved_fragment_ids = moved_fragment_ids

    def replaced(
        self,
        *,
        moved_fragment_ids: Collection[int] | None = None,
        **keywords: Unpack[CompactionKeywords],
    ) -> CompactionOptions:
        """Return options of which some are others."""
        values: CompactionKeywords = {**self.values, **keywords}
        moved = self.moved_fragment_ids if moved_fragment_ids is None else moved_fragment_ids
        return CompactionOptions(moved_fragment_ids=moved, **values)

    def size(self, fragment: Fragment) -> float:
        """Return the size of a fragment relative to the target, deleted rows included."""
        target = self.values["target_bytes_per_fragment"]
        if target is None or not fragment.size_bytes:
            return fragment.physical_rows / self.values["target_rows_per_fragment"]
        return fragment.size_bytes / target

    def target_rows(self, group: Sequence[Fragment]) -> int:
        """Return the minimum number of rows of the new fragments of a group."""
        rows = sum(fragment.physical_rows for fragment in group)
        size = sum(fragment.size_bytes for fragment in group)
        target = self.values["target_bytes_per_fragment"]
        if target is None or not rows or not all(fragment.size_bytes for fragment in group):
            return self.values["target_rows_per_fragment"]
        return max(target * rows // size, 1)
