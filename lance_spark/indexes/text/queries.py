"""Full-text queries, with the names and arguments that pylance gives them."""

from __future__ import annotations

import json
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

    - `query`: Words; ``"a phrase"`` in quotation marks; or a mapping with the keys ``query`` and
      ``columns``.
    - `indexed`: The columns to search if the caller names none.

    Raises InvalidInputError.
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


# --------------------------------------------------------------------------------------------------
# Full-text queries as JSON, for options and SQL. Other clients have the same objects for queries.
#
# | JSON | query |
# | --- | --- |
# | `{"query": "words", "columns": ["a"]}` | words, or a phrase in quotation marks; columns are |
# | | optional |
# | `{"match": {"column": "a", "terms": "words", "operator": "And"}}` | `MatchQuery` |
# | `{"phrase": {"column": "a", "terms": "words", "slop": 1}}` | `PhraseQuery` |
# | `{"multi_match": {"match_queries": [{"column": "a", "terms": "words", "boost": 2.0}]}}` | |
# | | `MultiMatchQuery`; the terms and the operator of all columns are the same |
# | `{"combined_fields": {"query": "words", "columns": ["a", "b"], "boost": [2.0, 1.0]}}` | |
# | | `CombinedFieldsQuery`; also `operator` |
# | `{"boost": {"positive": query, "negative": query, "negative_boost": 0.5}}` | `BoostQuery` |
# | `{"boolean": {"must": [query], "should": [query], "must_not": [query]}}` | `BooleanQuery` |
#
# A `match` also has `boost`, `fuzziness`, `max_expansions` and `prefix_length`. What is left out
# has the default of the class.

_MATCH = ("boost", "fuzziness", "max_expansions", "operator", "prefix_length")
#: The keys that the object of a query can have, by its name.
_KEYS = {
    "match": ("column", "terms", *_MATCH),
    "phrase": ("column", "terms", "slop"),
    "multi_match": ("match_queries",),
    "combined_fields": ("query", "columns", "boost", "operator"),
    "boost": ("positive", "negative", "negative_boost"),
    "boolean": ("must", "should", "must_not"),
}


def query_to_json(query: QueryLike) -> str:
    """Return a query as JSON.

    Raises InvalidInputError: the object is not a query.
    """
    if isinstance(query, Mapping) and isinstance(query.get("query"), FullTextQuery):
        query = parse_query(query, ())
    if isinstance(query, FullTextQuery):
        return json.dumps(_object(query))
    # Checks the query; the columns are known later.
    parse_query(query, ("",))
    return json.dumps({"query": query} if isinstance(query, str) else dict(query))


def query_of_json(text: str) -> QueryLike:
    """Return the query of a text: an object of JSON, or words.

    Raises InvalidInputError: the text begins with a brace, and is not the JSON of a query.
    """
    if not text.lstrip().startswith("{"):
        return text
    try:
        value = json.loads(text)
        if "query" in value:
            parse_query(value, ("",))
            return dict(value)
        return _query(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInputError(f"a full-text query must be words or JSON: {error}") from None


def _object(query: FullTextQuery) -> dict[str, Any]:
    match query:
        case MatchQuery():
            return {"match": _match_object(query)}
        case PhraseQuery():
            values = {"column": query.column, "terms": query.query, "slop": query.slop}
            return {"phrase": values}
        case MultiMatchQuery():
            return {"multi_match": {"match_queries": [_match_object(m) for m in query.matches]}}
        case CombinedFieldsQuery():
            values = {
                "query": query.query,
                "columns": list(query.columns),
                "boost": list(query.boosts or ()),
                "operator": query.operator.value.capitalize(),
            }
            return {"combined_fields": values}
        case BoostQuery():
            parts = {"positive": _object(query.positive), "negative": _object(query.negative)}
            return {"boost": {**parts, "negative_boost": query.negative_boost}}
        case BooleanQuery():
            return {
                "boolean": {
                    occur.value.lower(): [_object(clause) for clause in query.of(occur)]
                    for occur in Occur
                }
            }
    raise InvalidInputError(f"a query of type {type(query).__name__} is not supported")


def _match_object(query: MatchQuery) -> dict[str, Any]:
    values = {name: getattr(query, name) for name in _MATCH}
    operator = query.operator.value.capitalize()
    return {"column": query.column, "terms": query.query, **values, "operator": operator}


def _query(value: Any) -> FullTextQuery:
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in _KEYS:
        names = ", ".join(("query", *_KEYS))
        raise InvalidInputError(f"a full-text query in JSON must have one of the keys {names}")
    ((name, content),) = value.items()
    _check_keys(name, content)
    if name == "match":
        return _match(content)
    if name == "phrase":
        return PhraseQuery(query=content["terms"], column=content["column"], **_others(content))
    if name == "multi_match":
        return _multi_match(content.get("match_queries"))
    if name == "combined_fields":
        if missing := {"query", "columns"} - set(content):
            raise InvalidInputError(f"combined_fields has no {min(missing)}")
        operator = content.get("operator") or FullTextOperator.OR
        return CombinedFieldsQuery(
            content["query"], content["columns"], content.get("boost"), operator
        )
    if name == "boost":
        positive, negative = (_query(content.get(part)) for part in ("positive", "negative"))
        return BoostQuery(positive, negative, **_others(content, "positive", "negative"))
    clauses = []
    for occur in Occur:
        queries = content.get(occur.value.lower(), [])
        if not isinstance(queries, list):
            raise InvalidInputError(f"{occur.value.lower()} must be a list of queries")
        clauses += [(occur, _query(query)) for query in queries]
    return BooleanQuery(clauses)


def _match(content: dict[str, Any]) -> MatchQuery:
    return MatchQuery(query=content["terms"], column=content["column"], **_others(content))


def _multi_match(values: Any) -> MultiMatchQuery:
    if not isinstance(values, list) or not values:
        raise InvalidInputError("match_queries must be a list of one query or more")
    for value in values:
        _check_keys("match", value)
    matches = [_match(value) for value in values]
    first = matches[0]
    query = MultiMatchQuery(
        first.query,
        [match.column for match in matches],
        [match.boost for match in matches],
        first.operator,
    )
    if query.matches != matches:
        raise InvalidInputError(
            "the queries of multi_match must have the same terms and operator, and no fuzziness, "
            "max_expansions or prefix_length"
        )
    return query


def _others(content: dict[str, Any], *without: str) -> dict[str, Any]:
    return {
        name: value
        for name, value in content.items()
        if name not in ("terms", "column", *without) and value is not None
    }


def _check_keys(name: str, content: Any) -> None:
    known = _KEYS[name]
    required = ("column", "terms") if "terms" in known else ()
    if not isinstance(content, dict) or content.keys() - set(known):
        raise InvalidInputError(f"{name} must be an object with the keys {', '.join(known)}")
    if missing := [key for key in required if key not in content]:
        raise InvalidInputError(f"{name} has no {missing[0]}")
