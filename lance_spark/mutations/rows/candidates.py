"""The rows that a change looks at: those that indexes of the table do not rule out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lance_spark.encoding.row_ranges import RowRanges
from lance_spark.scan.predicates.conditions import Condition
from lance_spark.scan.pruning.candidates import TableIndexes
from lance_spark.scan.pruning.coverage import checked_section
from lance_spark.scan.take import RowFinder
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable

#: Physical rows by the id of the fragment; None for all rows.
CandidateRows = Mapping[int, RowRanges] | None


def candidate_rows(
    table: OpenTable, fragments: Sequence[Fragment], conditions: Sequence[Condition]
) -> CandidateRows:
    """Return the rows of a version for which all conditions can hold, by its indexes.

    - `fragments`: Of the version.
    """
    if not conditions or table.manifest.index_section is None:
        return None
    indexes = TableIndexes(
        table.paths,
        checked_section(table.paths, table.manifest),
        table.manifest.flags.stable_row_ids,
        fragments,
        lambda row_ids: RowFinder(table, fragments).find(row_ids),
    )
    candidates = indexes.candidates(conditions)
    return None if candidates is None else candidates.rows


def with_candidates(
    fragments: Iterable[Fragment], candidates: CandidateRows
) -> tuple[Fragment, ...]:
    """Return the fragments that have candidates."""
    return tuple(
        fragment for fragment in fragments if candidates is None or fragment.id in candidates
    )


def candidates_of(fragments: Iterable[Fragment], candidates: CandidateRows) -> CandidateRows:
    """Return the candidates of some fragments, which have some."""
    if candidates is None:
        return None
    return {fragment.id: candidates[fragment.id] for fragment in fragments}
