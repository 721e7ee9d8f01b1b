"""The rows of a table for which conditions can hold, by its indexes.

Rows of all fragments are numbered consecutively, in the table's order, so that a condition is
evaluated once for the whole table; `column_indexes` has the answer of each index. A scan evaluates
the conditions for all candidates again, so that an answer may have too many rows.

A driver does not search segments that leave many rows. Each task of a scan searches them for its
own fragments (`CandidateSearch`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import NO_ROWS, RowRanges, in_all, in_any
from lance_spark.file.schema.field import Field
from lance_spark.indexes import registry
from lance_spark.indexes.files import INDEX_ERRORS, IndexFiles
from lance_spark.indexes.row_sets import TooMany
from lance_spark.indexes.search import IndexSearch, ZonesOfColumn, documents_of, search_of, zones_of
from lance_spark.indexes.table_rows import TableRows, value_fields
from lance_spark.predicates.conditions import (
    Condition,
    JsonQuestion,
    RangePruner,
    candidates_of_all,
)
from lance_spark.proto import table_pb2
from lance_spark.scan.plan import UsedIndex
from lance_spark.scan.task import FragmentSlice
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.addresses import FindRows, RowIndex
from lance_spark.table.rows.deletions import read_deletions
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Comparisons of one column, answered by its indexes.
#
# | index | answer |
# | --- | --- |
# | of `lance_spark.indexes.search`, such as BTREE | the rows for which the comparison holds |
# | zone map | the zones that may have such rows |
# | Bloom filter | the zones that may have some values, or nulls |
# | JSON | those of its target, for the values at its path |
#
# The first index of `search` that can answer is the only one that is asked. Otherwise the answers
# of zone maps and Bloom filters are combined.
#
# An index answers for the fragments that its bitmap names. All rows of other fragments are
# candidates, and so are rows that overlays of the column cover, if these are newer than the index.
# An index that is damaged, or whose version is unknown, is left out with a warning.

_LOG = logging.getLogger(__name__)

#: An index is not used if it leaves more than one row in this number: reading a chosen row costs
#: as much as reading this many rows one after the other.
_SELECTIVE = 16
#: Rows that an index may always leave.
_FEW_ROWS = 64 * 1024
#: The same for rows in more than half of the chunks of the table, if a chunk has fewer than one in
#: `_DENSE` of its rows among them: all columns are decoded nearly whole.
_SELECTIVE_SCATTERED = 128
_FEW_SCATTERED = 16 * 1024
_DENSE = 4
#: Most rows that the segments of an index leave together, in one process. The rows of segments past
#: this number are scanned.
MAX_ROWS = 8 * 1024 * 1024
#: The same on the driver, if tasks can search other segments. The driver would send the rows to the
#: tasks: some thousand rows of a chunk take as long to send as to find.
MAX_ROWS_OF_DRIVER = 128 * 1024


class Searcher(Enum):
    """The process that searches indexes."""

    #: No task can search, as for a change of rows.
    ALONE = "alone"
    #: Searches what has few rows, and leaves other segments to tasks.
    DRIVER = "driver"
    #: Searches what the driver has left, for some of the fragments of a segment.
    TASK = "task"


@dataclass(slots=True)
class Answers:
    """What is noted of the answers of indexes.

    - `used`: The indexes that answer, by name.
    - `deferred` (list of (UsedIndex, bool array)): Segments that are left to tasks, and the
      fragments that each covers.
    - `decided` (list of bool array): For each comparison that indexes of exact values answer, the
      fragments of which the answer has just the rows for which it holds. Some of these rows may be
      deleted.
    """

    searcher: Searcher
    used: dict[str, UsedIndex] = field(default_factory=dict)
    deferred: list[tuple[UsedIndex, npt.NDArray[np.bool_]]] = field(default_factory=list)
    decided: list[npt.NDArray[np.bool_]] = field(default_factory=list)

    def note(self, index: UsedIndex) -> None:
        """Note that an index answers; of several answers, the one with the fewest rows."""
        existing = self.used.get(index.name)
        if existing is None or index.num_rows < existing.num_rows:
            self.used[index.name] = index

    def leave(self, index: UsedIndex, covered: npt.NDArray[np.bool_]) -> None:
        """Note that a segment is left to tasks, for the fragments that it covers."""
        self.deferred.append((index, covered))


class ColumnIndexes:
    """Answers comparisons of one column by its indexes."""

    def __init__(
        self,
        table: TableRows,
        path: tuple[Field, ...],
        segments: Sequence[table_pb2.IndexMetadata],
        type_name: str | None = None,
    ) -> None:
        self._table = table
        self._path = path
        #: The type that a query shows, if it is not that of the segments.
        self._type_name = type_name
        self._in_documents: dict[Any, ColumnIndexes] = {}
        dtype = path[-1].arrow_field.type
        self._dtype = dtype.value_type if pat.is_dictionary(dtype) else dtype
        self._segments = segments
        # By the identity of the segments, which this object keeps.
        self._coverage: dict[int, npt.NDArray[np.bool_]] = {}
        self._files: dict[int, IndexFiles] = {}
        self._zones: dict[str, tuple[list[table_pb2.IndexMetadata], ZonesOfColumn | None]] = {}
        self._by_type: dict[str, list[table_pb2.IndexMetadata]] = {}
        for index in segments:
            self._by_type.setdefault(indexes.type_of_index(index), []).append(index)

    def candidates(self, op: str, value: Any, answers: Answers) -> RowRanges | None:
        """Return the rows for which a comparison can hold; None if no index decides.

        Notes the indexes that answer.
        """
        if op == "json":
            return self._of_documents(value, answers)
        for name in self._types_with("search"):
            search = search_of(name)
            if search is not None and op in search.ops and self._table.moved is not None:
                rows = self._search(search, self._by_type[name], op, value, answers)
                if rows is not None:
                    return rows
        zoned = self._types_with("zones")
        return in_all([self._by_zones(name, op, value, answers) for name in zoned])

    def _types_with(self, part: str) -> Iterator[str]:
        """Yield the types of the segments that have a part, in the order of the registry."""
        return (kind.name for kind in registry.types_with(part) if kind.name in self._by_type)

    def _of_documents(self, question: JsonQuestion, answers: Answers) -> RowRanges | None:
        """Return the rows whose documents have values for which a comparison can hold."""
        key = (question.keys, question.dtype)
        column = self._in_documents.get(key)
        if column is None:
            leaf = self._path[-1]
            values = Field.from_arrow(pa.field(leaf.name, question.dtype), leaf.id)
            shown = next(self._types_with("documents"), None)
            segments = list(self._targets(question.keys, question.dtype))
            column = ColumnIndexes(self._table, (*self._path[:-1], values), segments, shown)
            self._in_documents[key] = column
        rows = column.candidates(question.op, question.value, answers)
        if question.op == "is_null" and pat.is_string(question.dtype):
            # Early releases recorded null in a document as this text.
            rows = in_any((rows, column.candidates("==", pa.scalar("null"), answers)))
        return rows

    def _targets(
        self, keys: Sequence[Any], dtype: pa.DataType
    ) -> Iterator[table_pb2.IndexMetadata]:
        """Yield the segments of JSON indexes that have the values of keys, as their targets.

        Bloom filters say nothing of values of other types. The files of other types of index have
        the type of their values.
        """
        for name in self._types_with("documents"):
            documents = documents_of(name)
            assert documents is not None, "the type has this part"
            for segment in filter(_is_known, self._by_type[name]):
                try:
                    target = documents.searched_target(segment, keys)
                    if target is not None and not self._is_of_type(target, dtype):
                        continue
                except INDEX_ERRORS as error:
                    _LOG.warning("index %r is ignored: %s", segment.name, error)
                    continue
                if target is not None:
                    yield target

    def _is_of_type(self, target: table_pb2.IndexMetadata, dtype: pa.DataType) -> bool:
        zones = zones_of(indexes.type_of_index(target))
        if zones is None or zones.has_values_of is None:
            return True
        return zones.has_values_of(IndexFiles(self._table.paths, target), dtype)

    def _by_zones(self, name: str, op: str, value: Any, answers: Answers) -> RowRanges | None:
        """Return the rows that the zones of one type leave; None if they do not decide."""
        search = zones_of(name)
        if search is None or op not in search.ops:
            return None
        if name not in self._zones:
            table, zones = self._table, None
            segments = list(filter(_is_known, self._by_type[name]))
            if segments:
                zones = search.read(
                    table.paths, table.fragments, table.starts, self._path, segments
                )
            self._zones[name] = segments, zones
        segments, zones = self._zones[name]
        rows = None if zones is None else zones.candidates(op, value)
        if rows is not None:
            answers.note(self._used(segments[0], rows.num_rows))
        return rows

    def _search(
        self,
        search: IndexSearch,
        segments: Sequence[table_pb2.IndexMetadata],
        op: str,
        value: Any,
        answers: Answers,
    ) -> RowRanges | None:
        """Return the rows that segments of one type leave; None if they do not decide."""
        table = self._table
        answered = np.zeros(len(table.fragments), np.bool_)
        decided = np.zeros(len(table.fragments), np.bool_)
        parts: list[RowRanges] = []
        remaining = MAX_ROWS_OF_DRIVER if answers.searcher is Searcher.DRIVER else MAX_ROWS
        for segment in segments:
            if not (_is_known(segment) and _has_all_rows(segment)):
                continue
            covered = self._covered(segment)
            if parts:
                covered = covered & ~answered
            if not covered.any():
                continue
            num_rows = int(np.diff(table.starts)[covered].sum())
            selective = MAX_ROWS
            if answers.searcher is not Searcher.TASK:
                selective = max(num_rows // _SELECTIVE, _FEW_ROWS)
            files = self._files.get(id(segment))
            if files is None:
                files = self._files[id(segment)] = IndexFiles(table.paths, segment)
            try:
                words = search.search(files, self._dtype, op, value, min(selective, remaining))
            except INDEX_ERRORS as error:
                _LOG.warning("index %r is ignored: %s", segment.name, error)
                continue
            if isinstance(words, TooMany):
                if answers.searcher is Searcher.DRIVER and self._is_worth_a_task(
                    segment, words, covered, min(selective, MAX_ROWS)
                ):
                    answers.leave(self._used(segment, 0), covered)
                continue
            if words is None:
                continue
            remaining -= len(words)
            parts.append(table.rows_of(segment, words, covered))
            overlaid = self._overlaid(segment, covered)
            if overlaid.num_ranges:
                parts.append(overlaid)
            answered |= covered
            if self._is_exact(search, segment) and not overlaid.num_ranges:
                decided |= covered
        if not parts:
            return None
        answers.decided.append(decided)
        answers.note(self._used(segments[0], sum(rows.num_rows for rows in parts)))
        if not answered.all():
            parts.append(RowRanges.of_blocks(table.starts, ~answered))
        return in_any(parts)

    def _is_exact(self, search: IndexSearch, segment: table_pb2.IndexMetadata) -> bool:
        """Return whether a segment leaves only rows for which a comparison holds."""
        # A row id can stay in a segment when the value of the row has changed, and conditions
        # differ in how they compare floats.
        return (
            search.is_exact
            and not self._table.stable_row_ids
            and not pat.is_nested(self._dtype)
            and not pat.is_floating(self._dtype)
        )

    def _is_worth_a_task(
        self,
        segment: table_pb2.IndexMetadata,
        count: TooMany,
        covered: npt.NDArray[np.bool_],
        limit: int,
    ) -> bool:
        """Return whether tasks that search a segment are likely to read less than a scan."""
        if count.num_rows > limit:
            return False
        if count.sample is None:
            return True
        table = self._table
        sample = table.rows_of(segment, count.sample, covered)
        share = count.num_rows / max(sample.num_rows, 1)
        num_rows = int(np.diff(table.starts)[covered].sum())
        return not are_everywhere(count.num_rows, int(sample.num_decoded * share), num_rows)

    def _covered(self, segment: table_pb2.IndexMetadata) -> npt.NDArray[np.bool_]:
        """Return the fragments that a segment covers."""
        covered = self._coverage.get(id(segment))
        if covered is None:
            covered = np.zeros(len(self._table.fragments), np.bool_)
            covered[self._table.positions_of(segment)] = True
            self._coverage[id(segment)] = covered
        return covered

    def _overlaid(
        self, segment: table_pb2.IndexMetadata, covered: npt.NDArray[np.bool_]
    ) -> RowRanges:
        """Return the rows of fragments for which a segment has the values before overlays."""
        table = self._table
        return table.overlaid_rows(
            np.flatnonzero(covered), value_fields(self._path), segment.dataset_version
        )

    def _used(self, index: table_pb2.IndexMetadata, num_rows: int) -> UsedIndex:
        column = ".".join(node.name for node in self._path)
        type_name = self._type_name or indexes.type_of_index(index)
        return UsedIndex(index.name, type_name, column, num_rows)


def are_everywhere(num_rows: int, num_decoded: int, table_rows: int) -> bool:
    """Return whether rows lie in most chunks of a table, so that to scan it costs less.

    - `num_decoded`: Rows of the chunks that have them.
    - `table_rows`: Rows of the table.
    """
    return num_rows > max(_FEW_SCATTERED, table_rows // _SELECTIVE_SCATTERED) and num_decoded > max(
        table_rows // 2, _DENSE * num_rows
    )


def _is_known(segment: table_pb2.IndexMetadata) -> bool:
    """Return whether the version of a segment is supported; warn if it is not."""
    if indexes.has_known_version(segment):
        return True
    _LOG.warning(
        "index %r is ignored: its version %d is unknown", segment.name, segment.index_version
    )
    return False


def _has_all_rows(segment: table_pb2.IndexMetadata) -> bool:
    """Return whether a segment has all rows of its fragments; warn if it may not."""
    if not indexes.may_lack_rows(segment):
        return True
    _LOG.warning(
        "index %r is ignored: an early release wrote it, and may have left out rows; rebuild it",
        segment.name,
    )
    return False


# --------------------------------------------------------------------------------------------------
# Slices of fragments without the rows that indexes rule out.

#: Each task searches whole segments, so that a task has many of their rows.
_LEFT_ROWS = 4


def narrowed(
    groups: Sequence[tuple[FragmentSlice, ...]],
    rows: Mapping[int, RowRanges],
    target_rows: int,
    deferred: Collection[int] = (),
) -> list[tuple[FragmentSlice, ...]]:
    """Return groups of slices without the rows that are ruled out.

    - `rows`: The rows to keep, by the fragment's id.
    - `target_rows`: Consecutive groups are joined up to this number of rows that are decoded.
    - `deferred`: Ids of the fragments for which the task searches indexes. It is expected to decode
      one row in `_LEFT_ROWS` of them.
    """
    result: list[tuple[FragmentSlice, ...]] = []
    current: list[FragmentSlice] = []
    size = 0
    for group in groups:
        remaining = [part for piece in group for part in narrowed_slices(piece, rows)]
        count = sum(
            piece.num_rows // (_LEFT_ROWS if piece.fragment.id in deferred else 1)
            if piece.rows is None
            else piece.rows.num_decoded
            for piece in remaining
        )
        if current and size + count > target_rows:
            result.append(tuple(current))
            current, size = [], 0
        current += remaining
        size += count
    if current:
        result.append(tuple(current))
    return result


def narrowed_slices(piece: FragmentSlice, rows: Mapping[int, RowRanges]) -> Iterator[FragmentSlice]:
    """Yield the slice of the rows that are kept, if there are any; see `narrowed`."""
    ranges = rows.get(piece.fragment.id, NO_ROWS)
    if piece.rows is not None:
        both = in_all((ranges, piece.rows))
        assert both is not None
        ranges = both
    if piece.num_rows < piece.fragment.physical_rows:
        ranges = ranges.within(piece.start, piece.stop)
    if ranges.num_ranges:
        start, stop = int(ranges.starts[0]), int(ranges.stops[-1])
        yield piece._replace(
            start=start, stop=stop, rows=None if ranges.num_ranges == 1 else ranges
        )


# --------------------------------------------------------------------------------------------------
# The rows of a table for which conditions can hold, by its indexes.

#: Tasks search segments that leave at least one row in this number of their fragments.
_MANY = 16


class Candidates(NamedTuple):
    """The rows for which conditions can hold.

    - `rows`: Physical rows by the fragment's id. A fragment without rows may be missing.
    - `used`: The indexes that decided.
    - `deferred_fragments`: Ids of the fragments for which tasks are to search indexes.
    """

    rows: Mapping[int, RowRanges]
    used: tuple[UsedIndex, ...]
    deferred_fragments: frozenset[int] = frozenset()


class TableIndexes:
    """The indexes of a version, or of some of its fragments.

    Threads can share it: a search for candidates changes nothing but what is read once.

    - `paths`, `section`, `stable_row_ids`, `fragments`, `find_rows`: As of `TableRows`.

    Raises CorruptTableError.
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

        - `searcher`: The process that asks. The rows for a driver may be all of a fragment for
          which tasks are to search.

        Returns None if no index decides, or if a scan of all rows costs less. Raises
        CorruptTableError, StorageError.
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

        - `fragment_ids`: Some of `Candidates.deferred_fragments`.
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

    - `section`: The segments, as an `IndexSection`.
    - `fragments`: Ids of the fragments whose rows are searched.
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

        Raises CorruptTableError, CorruptFileError, StorageError.
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
