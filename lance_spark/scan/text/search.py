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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.scan.plan import UsedIndex
from lance_spark.scan.search_task import SearchedVersion
from lance_spark.scan.text.column_search import ColumnSearch
from lance_spark.scan.text.columns import INVERTED, PLAIN, ColumnPlan, Leaf, TextRows, plan_column
from lance_spark.scan.text.parameters import TextParameters
from lance_spark.scan.text.queries import (
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
from lance_spark.scan.text.ranking.combined_fields import combined_fields
from lance_spark.scan.text.ranking.hits import Hits, boolean, combined
from lance_spark.table.indexes import sections as indexes

#: To split a text takes about as long as to score so many postings.
_POSTINGS_OF_A_TEXT = 200


class _Unit(NamedTuple):
    """Rows that are searched together: parts of columns, and texts that no index covers.

    Attributes
    ----------
    parts : frozenset of (str, int, int)
        Column, place of the segment, and number of the part.
    texts : frozenset of (str, int)
        Column and fragment.
    cost : int
        In postings.
    """

    parts: frozenset[tuple[str, int, int]]
    texts: frozenset[tuple[str, int]]
    cost: int


@dataclass(frozen=True, slots=True)
class TextSearch:
    """A planned search. Can be pickled.

    Attributes
    ----------
    query : FullTextQuery
    columns : mapping of str to ColumnPlan
    moved : MovedRows
    stable_row_ids : bool
        Whether the table has them.
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

        Parameters
        ----------
        rows : TextRows
            At least the rows of the fragments of this search.
        best : int, optional
            If set, rows that `Hits.best` leaves out with this limit and `keeps_ties` can be
            missing, or have lower scores.

        Raises
        ------
        UnsupportedFeatureError
            An index has no positions for a phrase.
        CorruptFileError, CorruptTableError, MissingFileError, StorageError
        """
        columns = {name: ColumnSearch(rows, plan) for name, plan in self.columns.items()}
        return _hits(self.query, columns, best)

    def shares(self, target: int) -> list[TextSearch]:
        """Split the search into searches of different rows, which together have the same hits.

        Parameters
        ----------
        target : int
            Cost that a share aims at.
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

    Parameters
    ----------
    version : SearchedVersion
    query : FullTextQuery
    use_index : bool
        Whether indexes are searched. Otherwise only their parameters are used.

    Raises
    ------
    InvalidInputError
        A column does not exist, or is not of strings.
    UnsupportedFeatureError
        An index has another tokenizer or format.
    CorruptFileError, CorruptTableError, MissingFileError, StorageError
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
