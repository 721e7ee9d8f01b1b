"""The rows of a table for which conditions can hold, by its indexes.

Rows of all fragments are numbered consecutively, in the table's order, so that a condition is
evaluated once for the whole table; `column_indexes` has the answer of each index. A scan evaluates
the conditions for all candidates again, so that an answer may have too many rows.

A driver does not search segments that leave many rows. Each task of a scan searches them for its
own fragments (`CandidateSearch`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.row_ranges import RowRanges, in_all
from lance_spark.file.schema.field import Field
from lance_spark.proto import table_pb2
from lance_spark.scan.plan import UsedIndex
from lance_spark.scan.predicates.conditions import (
    Condition,
    RangePruner,
    candidates_of_all,
)
from lance_spark.scan.pruning.column_indexes import (
    Answers,
    ColumnIndexes,
    Searcher,
    are_everywhere,
)
from lance_spark.scan.pruning.narrowing import narrowed_slices
from lance_spark.scan.pruning.table_rows import TableRows
from lance_spark.scan.task import FragmentSlice
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions
from lance_spark.table.rows.index import FindRows, RowIndex
from lance_spark.table.rows.u64_segments import UInt64Array

#: Tasks search segments that leave at least one row in this number of their fragments.
_MANY = 16


class Candidates(NamedTuple):
    """The rows for which conditions can hold.

    Attributes
    ----------
    rows : mapping of int to RowRanges
        Physical rows by the fragment's id. A fragment without rows may be missing.
    used : tuple of UsedIndex
        The indexes that decided.
    deferred_fragments : frozenset of int
        Ids of the fragments for which tasks are to search indexes.
    """

    rows: Mapping[int, RowRanges]
    used: tuple[UsedIndex, ...]
    deferred_fragments: frozenset[int] = frozenset()


class TableIndexes:
    """The indexes of a version, or of some of its fragments.

    Threads can share it: a search for candidates changes nothing but what is read once.

    Parameters
    ----------
    paths, section, stable_row_ids, fragments, find_rows
        As of `TableRows`.

    Raises
    ------
    CorruptTableError
    """

    def __init__(
        self,
        paths: TablePaths,
        section: table_pb2.IndexSection,
        stable_row_ids: bool,
        fragments: Sequence[Fragment],
        find_rows: FindRows,
    ) -> None:
        self._table = TableRows(paths, section, stable_row_ids, fragments, find_rows)
        self._segments: dict[int, list[table_pb2.IndexMetadata]] = {}
        for index in section.indices:
            # Computed columns have negative ids, and no index.
            if len(index.fields) == 1:
                self._segments.setdefault(index.fields[0], []).append(index)
        self._columns: dict[tuple[int, ...], ColumnIndexes] = {}

    def candidates(
        self, conditions: Sequence[Condition], searcher: Searcher = Searcher.ALONE
    ) -> Candidates | None:
        """Return the rows for which all conditions can hold.

        Parameters
        ----------
        conditions : sequence of Condition
        searcher : Searcher
            The process that asks. The rows for a driver may be all of a fragment for which tasks
            are to search.

        Returns
        -------
        Candidates or None
            None if no index decides, or if a scan of all rows costs less.

        Raises
        ------
        CorruptTableError, StorageError
        """
        answers = Answers(searcher)
        statistics = self._statistics(conditions, answers)
        if statistics is None:
            return None
        rows = candidates_of_all(conditions, statistics)
        if answers.deferred:
            return self._with_deferred(rows, answers)
        return None if rows is None else self._if_cheaper(rows, answers.used)

    def num_live_rows(self, conditions: Sequence[Condition]) -> tuple[int, list[int]] | None:
        """Return how many live rows meet all conditions, in fragments whose indexes know all.

        Returns
        -------
        tuple of int and list of int, or None
            The rows, and the ids of the other fragments. None if indexes know no fragment.

        Raises
        ------
        CorruptTableError, CorruptFileError, StorageError
        """
        answers = Answers(Searcher.DRIVER)
        ask = self._statistics(conditions, answers)
        if ask is None or not all(condition.is_decided for condition in conditions):
            return None
        questions = 0

        def statistics(field: Field, op: str, value: Any) -> RowRanges | None:
            nonlocal questions
            questions += 1
            return ask(field, op, value)

        rows = candidates_of_all(conditions, statistics)
        table = self._table
        if rows is None or len(answers.decided) != questions:
            return None
        decided = np.logical_and.reduce(answers.decided)
        if not decided.any():
            return None
        num_rows = 0
        for position, part in table.by_fragment(rows):
            if decided[position]:
                deleted = read_deletions(table.paths, table.fragments[position])
                num_rows += part.num_rows - part.count_of(deleted)
        others = [table.fragments[position].id for position in np.flatnonzero(~decided).tolist()]
        return num_rows, others

    def _statistics(self, conditions: Sequence[Condition], answers: Answers) -> RangePruner | None:
        """Return what answers questions of conditions by indexes; None if none can."""
        columns = {
            path[-1].id: self._column(path)
            for condition in conditions
            for path in condition.paths
            if path[-1].id in self._segments
        }
        table = self._table
        if not columns or not table.fragments or not table.has_unique_ids:
            return None

        def statistics(field: Field, op: str, value: Any) -> RowRanges | None:
            column = columns.get(field.id)
            return None if column is None else column.candidates(op, value, answers)

        return statistics

    def _by_id(self, rows: RowRanges) -> dict[int, RowRanges]:
        table = self._table
        return {table.fragments[position].id: part for position, part in table.by_fragment(rows)}

    def _if_cheaper(self, rows: RowRanges, used: Mapping[str, UsedIndex]) -> Candidates | None:
        table = self._table
        if are_everywhere(rows.num_rows, rows.num_decoded, int(table.starts[-1])):
            return None
        return Candidates(self._by_id(rows), tuple(used.values()))

    def _with_deferred(self, rows: RowRanges | None, answers: Answers) -> Candidates | None:
        """Return candidates with fragments for which tasks search."""
        table, starts = self._table, self._table.starts
        every = RowRanges.of_blocks(starts, np.ones(len(table.fragments), np.bool_))
        rows = every if rows is None else rows
        deferred = np.zeros(len(table.fragments), np.bool_)
        used = dict(answers.used)
        for index, covered in answers.deferred:
            # Other conditions may leave few rows.
            remaining = _within(rows, starts, covered).num_rows
            if remaining * _MANY > int(np.diff(starts)[covered].sum()):
                deferred |= covered
                description = used.get(index.name, index)
                used[index.name] = description._replace(deferred=description.deferred + 1)
        if not deferred.any():
            return self._if_cheaper(rows, answers.used)
        decided = _within(rows, starts, ~deferred)
        if are_everywhere(
            decided.num_rows, decided.num_decoded, int(np.diff(starts)[~deferred].sum())
        ):
            rows = every
        ids = {table.fragments[position].id for position in np.flatnonzero(deferred).tolist()}
        return Candidates(self._by_id(rows), tuple(used.values()), frozenset(ids))

    def search_by_task(
        self, conditions: Sequence[Condition], fragment_ids: Collection[int]
    ) -> CandidateSearch:
        """Return the search for the rows of some fragments.

        Parameters
        ----------
        conditions : sequence of Condition
        fragment_ids : collection of int
            Some of `Candidates.deferred_fragments`.
        """
        table = self._table
        positions = [
            position
            for position, fragment in enumerate(table.fragments)
            if fragment.id in fragment_ids
        ]
        section = table_pb2.IndexSection()
        reuse = fragment_reuse.find_entry(table.section)
        if reuse is not None:
            section.indices.append(reuse)
        for number in {path[-1].id for condition in conditions for path in condition.paths}:
            section.indices.extend(
                segment
                for segment in self._segments.get(number, ())
                if np.isin(positions, table.positions_of(segment)).any()
            )
        return CandidateSearch(
            section.SerializeToString(), table.stable_row_ids, frozenset(fragment_ids)
        )

    def _column(self, path: tuple[Field, ...]) -> ColumnIndexes:
        ids = tuple(node.id for node in path)
        column = self._columns.get(ids)
        if column is None:
            segments = self._segments[ids[-1]]
            column = self._columns[ids] = ColumnIndexes(self._table, path, segments)
        return column


@dataclass(frozen=True, slots=True)
class CandidateSearch:
    """The search of a task in indexes. Immutable, and can be pickled.

    Attributes
    ----------
    section : bytes
        The segments, as an `IndexSection`.
    stable_row_ids : bool
    fragments : frozenset of int
        Ids of the fragments whose rows are searched.
    """

    section: bytes
    stable_row_ids: bool
    fragments: frozenset[int]

    def narrowed(
        self,
        paths: TablePaths,
        slices: Sequence[FragmentSlice],
        conditions: Sequence[Condition],
    ) -> Sequence[FragmentSlice]:
        """Return slices without the rows that the indexes rule out.

        Raises
        ------
        CorruptTableError, CorruptFileError, StorageError
        """
        fragments = list(
            {
                piece.fragment.id: piece.fragment
                for piece in slices
                if piece.fragment.id in self.fragments
            }.values()
        )

        def find_rows(row_ids: UInt64Array) -> tuple[npt.NDArray[np.bool_], UInt64Array]:
            return RowIndex.build(paths, fragments).addresses(row_ids)

        section = table_pb2.IndexSection.FromString(self.section)
        indexes = TableIndexes(paths, section, self.stable_row_ids, fragments, find_rows)
        candidates = indexes.candidates(conditions, Searcher.TASK)
        if candidates is None:
            return slices
        result: list[FragmentSlice] = []
        for piece in slices:
            if piece.fragment.id in self.fragments:
                result += narrowed_slices(piece, candidates.rows)
            else:
                result.append(piece)
        return result


def _within(rows: RowRanges, starts: npt.NDArray[np.int64], chosen: Any) -> RowRanges:
    """Return the rows that are in the chosen fragments."""
    common = in_all((rows, RowRanges.of_blocks(starts, chosen)))
    assert common is not None
    return common
