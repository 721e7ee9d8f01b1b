"""Moving fragments to another base path: other buckets, regions and tiers, or back to the table
itself.

The rows of each fragment that moves are written to the base path, without those that are deleted,
and the new fragment takes the place of the old one: a compaction
(`lance_spark.mutations.compaction.run`) of chosen fragments, each by itself. Rows keep their ids in
tables with stable row ids. The old files stay where they are, for older versions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.compaction.plan import CompactionOptions
from lance_spark.mutations.compaction.run import compact
from lance_spark.mutations.compaction.task import CompactionMetrics
from lance_spark.table.bases import TargetBases
from lance_spark.table.open import OpenTable


def moving_to(table: OpenTable, base: str) -> OpenTable:
    """Return a table whose changes write their data files to one base path.

    Parameters
    ----------
    table : OpenTable
    base : str
        Name or path of the base path, or the path of the table itself.

    Raises
    ------
    InvalidInputError
        It is empty, or no text.
    """
    if not isinstance(base, str) or not base:
        raise InvalidInputError(
            f"{table.store.display}: give the name or the path of the base path that fragments "
            f"move to, not {base!r}"
        )
    return replace(table, target_bases=TargetBases((base,)))


def check_fragment_ids(table: OpenTable, fragment_ids: Collection[int]) -> frozenset[int]:
    """Return the ids of fragments that move.

    Raises
    ------
    InvalidInputError
        The table has no fragment of such an id.
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
    *,
    num_threads: int | None,
    conflict_retries: int,
    max_retries: int,
    properties: Mapping[str, str] | None,
) -> tuple[OpenTable, CompactionMetrics]:
    """Move fragments on this machine; see `Dataset.move_fragments`."""
    chosen = (
        frozenset(fragment.id for fragment in table.manifest.fragments)
        if fragment_ids is None
        else check_fragment_ids(table, fragment_ids)
    )
    moved, metrics = compact(
        moving_to(table, base),
        CompactionOptions(moved_fragment_ids=chosen, num_threads=num_threads),
        conflict_retries=conflict_retries,
        max_retries=max_retries,
        properties=properties,
    )
    return replace(moved, target_bases=table.target_bases), metrics
