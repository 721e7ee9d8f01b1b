"""Full-text search of the rows of a version: planned as a whole, evaluated as a whole or in shares.

| step | where | what it reads |
| --- | --- | --- |
| `plan_search` | driver | of each part of an index: its tokens, and how many documents have them |
| `TextSearch.shares` | driver | nothing |
| `TextSearch.hits` | driver or task | postings of the tokens, and texts that no index covers |

Rows that segments of an index cover are searched by the index, with statistics of the index. Other
rows are read, and searched with statistics of the index and of these rows. The plan has the
statistics of the whole index, so that rows have the same scores in a share. Rows that no index of a
column covers are in one share, because their statistics are known only after they are read. Rows
are identified by their addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.indexes.row_sets import MovedRows
from lance_spark.indexes.search_task import OpenedRows, SearchedVersion, SearchTask
from lance_spark.indexes.text.columns import (
    INVERTED,
    PLAIN,
    ColumnPlan,
    ColumnSearch,
    Leaf,
    TextRows,
    plan_column,
)
from lance_spark.indexes.text.parameters import TextParameters
from lance_spark.indexes.text.queries import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
    combined_queries,
    leaves,
)
from lance_spark.indexes.text.scoring import Hits, boolean, combined, combined_fields
from lance_spark.predicates.comparison import column_at
from lance_spark.predicates.conditions import Condition
from lance_spark.proto import table_pb2
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.fragment.row_meta import SCORE
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.plan import UsedIndex
from lance_spark.scan.take import take_addresses
from lance_spark.scan.task import READ_AHEAD, FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.rows.u64_segments import UInt64Array

#: To split a text takes about as long as to score so many postings.
_POSTINGS_OF_A_TEXT = 200


class _Unit(NamedTuple):
    """Rows that are searched together: parts of columns, and texts that no index covers.

    - `parts` (frozenset of (str, int, int)): Column, place of the segment, and number of the part.
    - `texts` (frozenset of (str, int)): Column and fragment.
    - `cost`: In postings.
    """

    parts: frozenset[tuple[str, int, int]]
    texts: frozenset[tuple[str, int]]
    cost: int


@dataclass(frozen=True, slots=True)
class TextSearch:
    """A planned search. Can be pickled.

    - `stable_row_ids`: Whether the table has them.
    """

    query: FullTextQuery
    columns: Mapping[str, ColumnPlan]
    moved: MovedRows
    stable_row_ids: bool

    @property
    def cost(self) -> int:
        """About how many postings take as long to score."""
        return sum(_cost(plan) for plan in self.columns.values())

    @property
    def most_rows(self) -> int:
        """Most rows that can match."""
        return sum(
            sum(sum(segment.parts.values()) for segment in plan.segments)
            + sum(plan.uncovered.values())
            for plan in self.columns.values()
        )

    @property
    def has_combined_fields(self) -> bool:
        """Whether columns are searched as one."""
        return any(True for _ in combined_queries(self.query))

    @property
    def reads_texts(self) -> bool:
        """Whether texts are read that no index covers."""
        return any(plan.uncovered for plan in self.columns.values())

    @property
    def fragments(self) -> BitMap:
        """The fragments that may have rows that match."""
        result = BitMap()
        for plan in self.columns.values():
            for segment in plan.segments:
                if segment.parts:
                    # Rows of several segments may have moved to one fragment.
                    own = plan.covered if self.moved else plan.covered & segment.fragments
                    result |= own
            result |= BitMap(plan.uncovered)
        return result

    @property
    def indexes(self) -> tuple[UsedIndex, ...]:
        """The indexes that are used, with the most rows that have a token of the query."""
        used: dict[str, UsedIndex] = {}
        for name, plan in self.columns.items():
            for segment in plan.segments:
                index = segment.metadata.name
                before = used[index].num_rows if index in used else 0
                rows = before + sum(segment.parts.values())
                used[index] = UsedIndex(index, INVERTED, name, rows)
        return tuple(used.values())

    def hits(self, rows: TextRows, best: int | None = None) -> Hits:
        """Return the live rows that match.

        - `rows`: At least the rows of the fragments of this search.
        - `best`: If set, rows that `Hits.best` leaves out with this limit and `keeps_ties` can be
          missing, or have lower scores.

        Raises CorruptFileError, CorruptTableError, MissingFileError, StorageError. Raises
        UnsupportedFeatureError: an index has no positions for a phrase.
        """
        columns = {name: ColumnSearch(rows, plan) for name, plan in self.columns.items()}
        return _hits(self.query, columns, best)

    def shares(self, target: int) -> list[TextSearch]:
        """Split the search into searches of different rows, which together have the same hits.

        - `target`: Cost that a share aims at.
        """
        if self.has_combined_fields and self.reads_texts:
            # The number of these texts changes the scores of all rows.
            return [self]
        shares: list[list[_Unit]] = []
        cost = target
        for unit in self._units():
            if cost >= target:
                shares.append([])
                cost = 0
            shares[-1].append(unit)
            cost += unit.cost
        return [self._share(units) for units in shares]

    def _units(self) -> list[_Unit]:
        units = []
        for name, plan in self.columns.items():
            for place, segment in enumerate(plan.segments):
                groups = [[number] for number in segment.parts]
                if self.stable_row_ids and groups:
                    # Parts are compared: an id that is in several has an old text in one.
                    groups = [list(segment.parts)]
                units += [
                    _Unit(
                        frozenset((name, place, number) for number in group),
                        frozenset(),
                        sum(segment.parts[number] for number in group),
                    )
                    for group in groups
                ]
        units += [
            _Unit(
                frozenset(),
                frozenset((name, number) for number in plan.uncovered),
                sum(plan.uncovered.values()) * _POSTINGS_OF_A_TEXT,
            )
            for name, plan in self.columns.items()
            if plan.uncovered
        ]
        # A row is in one part of the index of a column. A row has to be in one share for all
        # columns of the query.
        return units if len(self.columns) == 1 else _together(units, self._unit_fragments)

    def _unit_fragments(self, unit: _Unit) -> BitMap:
        return self._share([unit]).fragments

    def _share(self, units: Iterable[_Unit]) -> TextSearch:
        parts = frozenset().union(*(unit.parts for unit in units))
        texts = frozenset().union(*(unit.texts for unit in units))
        columns = {}
        for name, plan in self.columns.items():
            segments = tuple(
                replace(
                    segment,
                    parts={
                        number: postings
                        for number, postings in segment.parts.items()
                        if (name, place, number) in parts
                    },
                )
                for place, segment in enumerate(plan.segments)
            )
            uncovered = {
                number: rows for number, rows in plan.uncovered.items() if (name, number) in texts
            }
            columns[name] = replace(plan, segments=segments, uncovered=uncovered)
        return replace(self, columns=columns)


def plan_search(
    version: SearchedVersion,
    query: FullTextQuery,
    *,
    use_index: bool = True,
) -> TextSearch:
    """Plan a search over the rows of a version.

    - `use_index`: Whether indexes are searched. Otherwise only their parameters are used.

    Raises CorruptFileError, CorruptTableError, MissingFileError, StorageError. Raises
    InvalidInputError: a column does not exist, or is not of strings. Raises
    UnsupportedFeatureError: an index has another tokenizer or format.
    """
    moved = MovedRows.of(version.paths, version.section)
    queries: dict[str, list[Leaf]] = {}
    for leaf in leaves(query):
        queries.setdefault(leaf.column, []).append(leaf)

    def plan(name: str, without_index: TextParameters = PLAIN) -> ColumnPlan:
        return plan_column(
            version,
            version.field_path(name),
            moved,
            list(dict.fromkeys(queries[name])),
            use_index=use_index,
            without_index=without_index,
        )

    columns = {name: plan(name) for name in queries}
    all_combined = list(combined_queries(query))
    for combined_query in all_combined:
        parameters = _common_parameters(combined_query, columns)
        for name in combined_query.columns:
            if columns[name].has_index:
                continue
            if len(queries[name]) > sum(name in other.columns for other in all_combined):
                raise UnsupportedFeatureError(
                    f"column {name!r} has no INVERTED index, and a CombinedFieldsQuery is not its "
                    "only query; create an index"
                )
            columns[name] = plan(name, parameters)
    return TextSearch(query, columns, moved, version.stable_row_ids)


def _common_parameters(
    query: CombinedFieldsQuery, columns: Mapping[str, ColumnPlan]
) -> TextParameters:
    """Return how the texts of columns are split that are searched as one."""
    indexed = {
        name: replace(columns[name].parameters, with_position=False)
        for name in query.columns
        if columns[name].has_index
    }
    if not indexed:
        raise InvalidInputError(
            "a CombinedFieldsQuery needs an INVERTED index of one of the columns "
            f"{', '.join(map(repr, query.columns))}"
        )
    first, *others = indexed
    for other in others:
        if indexed[other] != indexed[first]:
            raise InvalidInputError(
                f"the indexes of columns {first!r} and {other!r} split text differently, which a "
                "CombinedFieldsQuery cannot combine; create one of them again"
            )
    return indexed[first]


def indexed_columns(
    segments: Sequence[table_pb2.IndexMetadata], names: Mapping[int, str]
) -> list[str]:
    """Return the columns with an INVERTED index, by the names of field ids."""
    ids = [
        index.fields[0]
        for index in segments
        if len(index.fields) == 1 and indexes.type_of_index(index) == INVERTED
    ]
    return [names[number] for number in dict.fromkeys(ids) if number in names]


def _hits(
    query: FullTextQuery, columns: Mapping[str, ColumnSearch], best: int | None = None
) -> Hits:
    match query:
        case MatchQuery() | PhraseQuery():
            return columns[query.column].hits(query, best)
        case MultiMatchQuery():
            # A row that is not among the best of the column of its score is not among the best.
            hits = [columns[match.column].hits(match, best) for match in query.matches]
            return combined(hits, np.maximum)
        case CombinedFieldsQuery():
            own = [columns[match.column] for match in query.matches]
            return combined_fields(
                [
                    column.field_rows(match)
                    for column, match in zip(own, query.matches, strict=True)
                ],
                query.boosts or (),
                BitMap.intersection(*(column.fragments for column in own)),
                needs_all=query.operator is FullTextOperator.AND,
            )
        case BoostQuery():
            positive = _hits(query.positive, columns)
            _, negative = _hits(query.negative, columns).at(positive.addresses)
            scores = positive.scores - query.negative_boost * negative
            return Hits(positive.addresses, scores)
        case BooleanQuery():
            must, should, must_not = (
                [_hits(clause, columns) for clause in query.of(occur)]
                for occur in (Occur.MUST, Occur.SHOULD, Occur.MUST_NOT)
            )
            return boolean(must, should, must_not)
    raise InvalidInputError(f"a query of type {type(query).__name__} is not supported")


def _cost(plan: ColumnPlan) -> int:
    postings = sum(sum(segment.parts.values()) for segment in plan.segments)
    return postings + sum(plan.uncovered.values()) * _POSTINGS_OF_A_TEXT


def _together(units: Sequence[_Unit], fragments_of: Callable[[_Unit], BitMap]) -> list[_Unit]:
    """Merge the units that have a fragment in common."""
    merged: list[tuple[BitMap, _Unit]] = []
    for unit in units:
        fragments = fragments_of(unit)
        own = [unit, *(other for numbers, other in merged if not numbers.isdisjoint(fragments))]
        others = [pair for pair in merged if pair[0].isdisjoint(fragments)]
        parts, texts, costs = zip(*own, strict=True)
        joined = _Unit(frozenset().union(*parts), frozenset().union(*texts), sum(costs))
        merged = [*others, (BitMap.union(*map(fragments_of, own)), joined)]
    return [unit for _, unit in merged]


# --------------------------------------------------------------------------------------------------
# The task of a full-text search: rows that match, with the column `_score`.

_ADDRESS = row_meta.ROW_ADDRESS
#: How many rows are read for each row of the limit, until so many meet the filters.
_TRIED = 16
#: By what factor more rows are read, if too few meet the filters.
_GROWTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TextScanTask(SearchTask):
    """A task that reads the rows of a search, in the order of their addresses.

    `slices` are all rows of the fragments of the search. `lance_schema` has `SCORE` if scores are
    wanted. Rows have to meet `filters`, as for each task.

    - `prefilter`: The filters that rows which no index covers must meet to count as documents:
      their number changes scores.
    - `limit`: Most rows: those with the greatest scores.
    - `keeps_ties`: Whether rows with the score of the last row are read, too.
    """

    search: TextSearch
    prefilter: tuple[Condition, ...] = ()
    limit: int | None = None
    keeps_ties: bool = False

    def hits(self, metrics: ScanMetrics, table: OpenedRows, best: int | None = None) -> Hits:
        """Return the rows, by their addresses.

        - `metrics`: Counts what is read of the table.
        - `table`: At least the rows of the fragments.
        - `best`: As in `TextSearch.hits`.

        Raises As `TextSearch.hits`..
        """
        rows = TextRows(
            paths=table.paths,
            fragments=self._searched_fragments,
            find_rows=table.find,
            read_texts=partial(self._read_texts, metrics, table),
            moved=self.search.moved,
            stable_row_ids=self.search.stable_row_ids,
        )
        return self.search.hits(rows, best)

    def best(self, metrics: ScanMetrics, table: OpenedRows) -> Hits:
        """Return the rows that meet the filters, those with the greatest scores first."""
        if not self.filters:
            hits = self.hits(metrics, table, self.limit)
            return hits.best(self.limit, keeps_ties=self.keeps_ties)
        if self.limit is not None and not self.search.reads_texts:
            # As a rule, enough of the best rows meet the filters.
            tried = _TRIED * (self.limit + 1)
            first = self.hits(metrics, table, tried).best(tried, keeps_ties=self.keeps_ties)
            kept = self._filtered(_by_address(first), metrics, table)
            if len(kept.addresses) >= self.limit or len(first.addresses) < tried:
                return kept.best(self.limit, keeps_ties=self.keeps_ties)
        hits = self.hits(metrics, table)
        if self.limit is None:
            return self._filtered(hits, metrics, table).best(None)
        tried = _TRIED * (self.limit + 1)
        while True:
            first = hits.best(tried, keeps_ties=self.keeps_ties)
            kept = self._filtered(_by_address(first), metrics, table)
            if len(kept.addresses) >= self.limit or len(first.addresses) == len(hits.addresses):
                return kept.best(self.limit, keeps_ties=self.keeps_ties)
            tried *= _GROWTH

    def best_rows(
        self, metrics: ScanMetrics, table: OpenedRows, filtering: TextScanTask | None = None
    ) -> pa.Table:
        """Return the rows of `best`, as far as they meet the filters of another task of the search.

        Parameters
        ----------
        metrics : ScanMetrics
        table : OpenedRows
        filtering : TextScanTask, optional
        """
        hits = self.best(metrics, table)
        if filtering is not None:
            hits = filtering._filtered(_by_address(hits), metrics, table).best(None)
        return self._rows(hits, metrics, table)

    def _rows(self, hits: Hits, metrics: ScanMetrics, table: OpenedRows) -> pa.Table:
        """Return the columns of rows, in their order."""
        return self._taken(hits, metrics, table)

    @property
    def _searched_fragments(self) -> list[Fragment]:
        """The fragments whose rows are searched."""
        return self._fragments

    def _taken(self, hits: Hits, metrics: ScanMetrics, table: OpenedRows) -> pa.Table:
        """Return the columns of rows, in their order."""
        scores = pa.array(hits.scores.astype(np.float32))
        fields = self.lance_schema.fields
        position = [field.id for field in fields].index(SCORE.id)
        schema = replace(self.lance_schema, fields=(*fields[:position], *fields[position + 1 :]))
        if not schema.fields:
            return pa.table([scores], schema=self.schema)
        rows = take_addresses(
            table.paths, self._fragments, schema, hits.addresses, table.open_files, metrics
        )
        return rows.add_column(position, SCORE.arrow_field, scores)

    def _filtered(self, hits: Hits, metrics: ScanMetrics, table: OpenedRows) -> Hits:
        """Return the rows that meet the filters."""
        read = self._plain((_ADDRESS,), hits, self.filters)
        batches = read._batches(table.paths, table.open_files, metrics)
        kept = [batch.column(0).to_numpy() for batch in batches]
        addresses = np.sort(np.concatenate([np.empty(0, np.uint64), *kept]))
        return Hits(addresses, hits.at(addresses)[1])

    def batches(
        self, metrics: ScanMetrics | None = None, *, prefetch: bool = READ_AHEAD
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `ScanTask.batches`."""
        metrics = ScanMetrics() if metrics is None else metrics
        filters, table = self.filters, self.opened()
        if self.limit is None:
            hits = self.hits(metrics, table)
        else:
            hits, filters = _by_address(self.best(metrics, table)), ()
        yield from self._batches_of(hits, filters, metrics, table, prefetch=prefetch)

    def _batches_of(
        self,
        hits: Hits,
        filters: tuple[Condition, ...],
        metrics: ScanMetrics,
        table: OpenedRows,
        *,
        prefetch: bool = READ_AHEAD,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of rows that meet filters."""
        fields = [field for field in self.lance_schema.fields if field.id != SCORE.id]
        read = fields if row_meta.needs(fields, row_meta.ROW_ADDRESS) else [*fields, _ADDRESS]
        ids = [field.id for field in read]
        # The scores are appended.
        order = [
            len(ids) if field.id == SCORE.id else ids.index(field.id)
            for field in self.lance_schema.fields
        ]
        task = self._plain(read, hits, filters)
        for batch in task._batches(table.paths, table.open_files, metrics, prefetch=prefetch):
            if len(ids) in order:
                addresses = batch.column(ids.index(_ADDRESS.id)).to_numpy()
                scores = hits.at(addresses)[1].astype(np.float32)
                scored = batch.append_column(SCORE.arrow_field, pa.array(scores))
                yield scored.select(order)
                continue
            # By number, because a batch without columns keeps its number of rows.
            yield batch.select(order)

    def _read_texts(
        self,
        metrics: ScanMetrics,
        table: OpenedRows,
        path: tuple[Field, ...],
        fragments: Sequence[Fragment],
        addresses: UInt64Array,
    ) -> Iterator[tuple[pa.Array, UInt64Array]]:
        fields = (*Schema.of_paths([path]).fields, _ADDRESS)
        names = [node.name for node in path]
        slices = [FragmentSlice(fragment, 0, fragment.physical_rows) for fragment in fragments]
        slices += self._slices(addresses)
        task = self._scan(fields, slices, self._document_filters())
        for batch in task._batches(table.paths, table.open_files, metrics):
            yield column_at(batch, names), batch.column(batch.num_columns - 1).to_numpy()

    def _document_filters(self) -> tuple[Condition, ...]:
        """Return the conditions that rows without an index must meet to count as documents."""
        if self.prefilter and self.search.has_combined_fields:
            if not isinstance(self.search.query, CombinedFieldsQuery):
                raise UnsupportedFeatureError(
                    "a CombinedFieldsQuery beside other queries, with a filter, needs an index of "
                    "all rows: extend it with optimize_indices"
                )
            # All rows count as documents.
            return ()
        return self.prefilter

    def _plain(
        self, fields: Sequence[Field], hits: Hits, filters: tuple[Condition, ...]
    ) -> ScanTask:
        """Return the task that reads columns of some rows."""
        return self._scan(fields, self._slices(hits.addresses), filters)


def _by_address(hits: Hits) -> Hits:
    order = np.argsort(hits.addresses)
    return Hits(hits.addresses[order], hits.scores[order])
