"""Full-text queries, with the names and arguments that pylance gives them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError

_MAX_FUZZINESS = 16
_MAX_BOOST = 1 << 20
_PHRASE_MARK = '"'


class FullTextOperator(Enum):
    """Whether a document must have all words of a query, or one of them."""

    AND = "AND"
    OR = "OR"


class DocumentGranularity(StrEnum):
    """What counts as one document."""

    ROW = "row"
    LIST_ELEMENT = "list_element"


class Occur(Enum):
    """What a clause of a `BooleanQuery` decides."""

    SHOULD = "SHOULD"
    MUST = "MUST"
    MUST_NOT = "MUST_NOT"


class FullTextQuery:
    """A full-text query. ``a & b`` and ``a | b`` combine queries."""

    __slots__ = ()

    def __and__(self, other: FullTextQuery) -> BooleanQuery:
        return BooleanQuery([(Occur.MUST, self), (Occur.MUST, other)])

    def __or__(self, other: FullTextQuery) -> BooleanQuery:
        return BooleanQuery([(Occur.SHOULD, self), (Occur.SHOULD, other)])


@dataclass(frozen=True, slots=True)
class MatchQuery(FullTextQuery):
    """Rows whose text has words of a query.

    Attributes
    ----------
    query : str
    column : str
    boost : float
        Factor of the scores.
    fuzziness : int or None
        Most changed, inserted and removed characters between a word of the query and one of the
        index; None for 0. If not 0, the words of the query are its runs of letters and digits, and
        are compared as they are with the tokens of the index. Rows that the index does not cover
        must have the tokens of the query themselves.
    max_expansions : int
        Most words that are searched instead of those of the query.
    operator : FullTextOperator
    prefix_length : int
        Characters at the beginning of a word that must be the same.
    document_granularity : DocumentGranularity or None
        None or `DocumentGranularity.ROW`: lists are not searched.
    """

    query: str
    column: str
    boost: float = 1.0
    fuzziness: int | None = 0
    max_expansions: int = 50
    operator: FullTextOperator = FullTextOperator.OR
    prefix_length: int = 0
    document_granularity: DocumentGranularity | None = None

    def __post_init__(self) -> None:
        _check_text("query", self.query)
        _check_text("column", self.column)
        _check_factor("boost", self.boost)
        _check_number("fuzziness", 0 if self.fuzziness is None else self.fuzziness, _MAX_FUZZINESS)
        _check_number("max_expansions", self.max_expansions)
        _check_number("prefix_length", self.prefix_length)
        object.__setattr__(self, "operator", _operator(self.operator))
        _check_granularity(self.document_granularity)
        # The same as rows.
        object.__setattr__(self, "document_granularity", None)


@dataclass(frozen=True, slots=True)
class PhraseQuery(FullTextQuery):
    """Rows whose text has all words of a query, one after the other. The index needs positions.

    Attributes
    ----------
    query : str
    column : str
    slop : int
        Most other words between two words.
    document_granularity : DocumentGranularity or None
        As for `MatchQuery`.
    """

    query: str
    column: str
    slop: int = 0
    document_granularity: DocumentGranularity | None = None

    def __post_init__(self) -> None:
        _check_text("query", self.query)
        _check_text("column", self.column)
        _check_number("slop", self.slop)
        _check_granularity(self.document_granularity)
        # The same as rows.
        object.__setattr__(self, "document_granularity", None)


@dataclass(frozen=True, slots=True)
class BoostQuery(FullTextQuery):
    """Rows of a query, with a smaller score if they are rows of another query as well.

    Attributes
    ----------
    positive, negative : FullTextQuery
    negative_boost : float
        Part of the score of `negative` that is subtracted.
    """

    positive: FullTextQuery
    negative: FullTextQuery
    negative_boost: float = 0.5

    def __post_init__(self) -> None:
        _check_query(self.positive)
        _check_query(self.negative)
        _check_factor("negative_boost", self.negative_boost)


@dataclass(frozen=True, slots=True)
class MultiMatchQuery(FullTextQuery):
    """Rows of a query in any of several columns, with the greatest score of a column.

    Attributes
    ----------
    query : str
    columns : sequence of str
    boosts : sequence of float or None
        Factor of the scores of each column.
    operator : FullTextOperator
        For the words in each column.
    """

    query: str
    columns: Sequence[str]
    boosts: Sequence[float] | None = None
    operator: FullTextOperator = FullTextOperator.OR

    def __post_init__(self) -> None:
        if isinstance(self.columns, str) or not self.columns:
            raise InvalidInputError("columns must be a list of one column or more")
        columns = tuple(self.columns)
        object.__setattr__(self, "columns", columns)
        if self.boosts is not None:
            object.__setattr__(self, "boosts", tuple(self.boosts))
            if len(self.boosts) != len(columns):
                raise InvalidInputError(
                    f"boosts must have a number for each of the {len(columns)} columns"
                )
        object.__setattr__(self, "operator", _operator(self.operator))
        # Checks the other values.
        _ = self.matches

    @property
    def matches(self) -> list[MatchQuery]:
        """The query of each column."""
        boosts = self.boosts or [1.0] * len(self.columns)
        return [
            MatchQuery(self.query, column, boost, operator=self.operator)
            for column, boost in zip(self.columns, boosts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class CombinedFieldsQuery(FullTextQuery):
    """Rows of a query in several columns that are searched as if they were one.

    The text of all columns with an index must be split in the same way. That of others, of which
    there is one less at most, is split like theirs.

    Attributes
    ----------
    query : str
    columns : sequence of str
    boosts : sequence of float or None
        Factor of each column, 1 or more: how often its words count.
    operator : FullTextOperator
        With AND, a row must have each word in one of the columns.
    """

    query: str
    columns: Sequence[str]
    boosts: Sequence[float] | None = None
    operator: FullTextOperator = FullTextOperator.OR

    def __post_init__(self) -> None:
        # Checks the query, the columns and the operator.
        checked = MultiMatchQuery(self.query, self.columns, self.boosts, self.operator)
        if len(set(checked.columns)) < len(checked.columns):
            raise InvalidInputError("the columns of a CombinedFieldsQuery must be distinct")
        boosts = checked.boosts or [1.0] * len(checked.columns)
        if not all(1 <= boost <= _MAX_BOOST for boost in boosts):
            raise InvalidInputError(
                f"boosts of a CombinedFieldsQuery must be from 1 to {_MAX_BOOST}, not {boosts!r}"
            )
        object.__setattr__(self, "columns", checked.columns)
        object.__setattr__(self, "boosts", tuple(map(float, boosts)))
        object.__setattr__(self, "operator", checked.operator)

    @property
    def matches(self) -> list[MatchQuery]:
        """The query of each column."""
        return [MatchQuery(self.query, column) for column in self.columns]


@dataclass(frozen=True, slots=True)
class BooleanQuery(FullTextQuery):
    """Rows that several queries decide.

    Rows must match each query with `Occur.MUST`, and none with `Occur.MUST_NOT`. Without
    `Occur.MUST`, they must match one with `Occur.SHOULD`. The scores are added.

    Attributes
    ----------
    queries : sequence of (Occur, FullTextQuery)
    """

    queries: Sequence[tuple[Occur, FullTextQuery]]

    def __post_init__(self) -> None:
        clauses = []
        for occur, query in self.queries:
            _check_query(query)
            clauses.append((_occur(occur), query))
        object.__setattr__(self, "queries", tuple(clauses))
        if all(occur is Occur.MUST_NOT for occur, _ in clauses):
            raise InvalidInputError("a BooleanQuery needs a query with SHOULD or MUST")

    def of(self, occur: Occur) -> list[FullTextQuery]:
        """Return the queries with an `Occur`."""
        return [query for own, query in self.queries if own is occur]


#: What callers pass as a full-text query.
QueryLike = str | Mapping[str, Any] | FullTextQuery


def parse_query(query: QueryLike, indexed: Sequence[str]) -> FullTextQuery:
    """Return the query that a caller passed.

    Parameters
    ----------
    query : str, mapping or FullTextQuery
        Words; ``"a phrase"`` in quotation marks; or a mapping with the keys ``query`` and
        ``columns``.
    indexed : sequence of str
        The columns to search if the caller names none.

    Raises
    ------
    InvalidInputError
    """
    columns: Sequence[str] | None = None
    if isinstance(query, Mapping):
        unknown = set(query) - {"query", "columns"}
        if unknown or "query" not in query:
            raise InvalidInputError(
                "a full-text query must have the keys query and columns, not "
                f"{', '.join(map(repr, query))}"
            )
        columns, query = query.get("columns"), query["query"]
        if isinstance(columns, str):
            raise InvalidInputError("columns must be a list of columns, not a string")
    if isinstance(query, FullTextQuery):
        return query
    _check_text("query", query)
    assert isinstance(query, str)
    names = tuple(columns or indexed)
    if not names:
        raise InvalidInputError(
            "no column has an INVERTED index: create one, or name the columns of the query"
        )
    is_phrase = len(query) > 1 and query[0] == query[-1] == _PHRASE_MARK
    if is_phrase and len(names) > 1:
        raise InvalidInputError(
            f"a phrase is searched in one column: name one of {', '.join(names)}"
        )
    if is_phrase:
        return PhraseQuery(query[1:-1], names[0])
    return MatchQuery(query, names[0]) if len(names) == 1 else MultiMatchQuery(query, names)


def leaves(query: FullTextQuery) -> Iterator[MatchQuery | PhraseQuery]:
    """Yield the queries of single columns that a query consists of."""
    match query:
        case MatchQuery() | PhraseQuery():
            yield query
        case MultiMatchQuery() | CombinedFieldsQuery():
            yield from query.matches
        case BoostQuery():
            yield from leaves(query.positive)
            yield from leaves(query.negative)
        case BooleanQuery():
            for _, clause in query.queries:
                yield from leaves(clause)


def combined_queries(query: FullTextQuery) -> Iterator[CombinedFieldsQuery]:
    """Yield the queries of columns that are searched as one."""
    match query:
        case CombinedFieldsQuery():
            yield query
        case BoostQuery():
            yield from combined_queries(query.positive)
            yield from combined_queries(query.negative)
        case BooleanQuery():
            for _, clause in query.queries:
                yield from combined_queries(clause)


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} must be a string, not {value!r}")


def _check_number(name: str, value: object, most: int = 2**31 - 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise InvalidInputError(f"{name} must be an integer from 0 to {most}, not {value!r}")


def _check_factor(name: str, value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:  # type: ignore[arg-type, operator]
        raise InvalidInputError(f"{name} must be a finite number from 0 on, not {value!r}")


def _check_query(value: object) -> None:
    if not isinstance(value, FullTextQuery):
        raise InvalidInputError(f"a query must be a FullTextQuery, not {value!r}")


def _operator(value: object) -> FullTextOperator:
    try:
        return FullTextOperator(value.upper() if isinstance(value, str) else value)
    except ValueError:
        raise InvalidInputError(f"operator must be one of AND, OR, not {value!r}") from None


def _occur(value: object) -> Occur:
    try:
        return Occur(value.upper() if isinstance(value, str) else value)
    except ValueError:
        raise InvalidInputError(
            f"a clause must be one of SHOULD, MUST, MUST_NOT, not {value!r}"
        ) from None


def _check_granularity(value: Any) -> None:
    try:
        granularity = None if value is None else DocumentGranularity(value)
    except ValueError:
        raise InvalidInputError(
            f"document_granularity must be one of row, list_element, not {value!r}"
        ) from None
    if granularity is DocumentGranularity.LIST_ELEMENT:
        raise UnsupportedFeatureError(
            "document_granularity list_element is not supported: columns of lists are not searched"
        )
