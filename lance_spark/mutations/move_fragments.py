"""Move fragments to another base path, for example in another bucket, or to the table itself.

The live rows of each fragment are written to the target, and the new fragment replaces the old one:
a compaction (`lance_spark.mutations.compaction.run`) that rewrites each given fragment alone. Rows
keep their ids in tables with stable row ids. The old files stay, for older versions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.compaction.plan import CompactionOptions
from lance_spark.mutations.compaction.run import compact
from lance_spark.mutations.compaction.task import CompactionMetrics
from lance_spark.table.bases import TargetBases
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.open import OpenTable


def with_target(table: OpenTable, base: str) -> OpenTable:
    """Return a table whose mutations write their data files to a base path.

    Parameters
    ----------
    table : OpenTable
    base : str
        Name or path of the base path, or the path of the table itself.

    Raises
    ------
    InvalidInputError
        The base path is empty, or not a string.
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

    Raises
    ------
    InvalidInputError
        A fragment does not exist.
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
