"""Full-text queries as JSON, for options and SQL. Other clients have the same objects for queries.

| JSON | query |
| --- | --- |
| `{"query": "words", "columns": ["a"]}` | words, or a phrase in quotation marks; columns are |
| | optional |
| `{"match": {"column": "a", "terms": "words", "operator": "And"}}` | `MatchQuery` |
| `{"phrase": {"column": "a", "terms": "words", "slop": 1}}` | `PhraseQuery` |
| `{"multi_match": {"match_queries": [{"column": "a", "terms": "words", "boost": 2.0}]}}` | |
| | `MultiMatchQuery`; the terms and the operator of all columns are the same |
| `{"combined_fields": {"query": "words", "columns": ["a", "b"], "boost": [2.0, 1.0]}}` | |
| | `CombinedFieldsQuery`; also `operator` |
| `{"boost": {"positive": query, "negative": query, "negative_boost": 0.5}}` | `BoostQuery` |
| `{"boolean": {"must": [query], "should": [query], "must_not": [query]}}` | `BooleanQuery` |

A `match` also has `boost`, `fuzziness`, `max_expansions` and `prefix_length`. What is left out has
the default of the class.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lance_spark.errors import InvalidInputError
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
    QueryLike,
    parse_query,
)

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

    Raises
    ------
    InvalidInputError
        The object is not a query.
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

    Raises
    ------
    InvalidInputError
        The text begins with a brace, and is not the JSON of a query.
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
