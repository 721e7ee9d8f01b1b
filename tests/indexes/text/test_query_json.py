"""Full-text queries as JSON, and back."""

from __future__ import annotations

import json

import pytest

from lance_spark import query as q
from lance_spark.errors import InvalidInputError
from lance_spark.indexes.text.queries import query_of_json, query_to_json

QUERIES = [
    q.MatchQuery("a", "s"),
    q.MatchQuery(
        "a b", "s.t", 2.5, 1, max_expansions=7, operator=q.FullTextOperator.AND, prefix_length=2
    ),
    q.PhraseQuery("a b", "s", slop=3),
    q.MultiMatchQuery("a b", ["s", "t"], [1.0, 2.0], q.FullTextOperator.AND),
    q.CombinedFieldsQuery("a b", ["s", "t"], [1.0, 2.0], q.FullTextOperator.AND),
    q.BoostQuery(q.MatchQuery("a", "s"), q.PhraseQuery("b", "t"), 0.25),
    q.BooleanQuery(
        [
            (q.Occur.SHOULD, q.MatchQuery("a", "s")),
            (q.Occur.MUST, q.MatchQuery("b", "s") | q.MatchQuery("c", "s")),
            (q.Occur.MUST_NOT, q.MatchQuery("d", "s")),
        ]
    ),
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: type(query).__name__)
def test_queries_come_back(query: q.FullTextQuery) -> None:
    assert query_of_json(query_to_json(query)) == query
    assert query_of_json(query_to_json({"query": query})) == query


def test_words() -> None:
    assert query_of_json("quick fox") == "quick fox"
    for text in ("quick", '"a phrase"', '{"match": 3}', ""):
        assert query_of_json(query_to_json(text)) == {"query": text}
    words = {"query": "x", "columns": ["s"]}
    assert query_of_json(query_to_json(words)) == words


def test_defaults() -> None:
    """What is left out, or is null, has the default of the class."""
    text = '{"match": {"column": "s", "terms": "a", "fuzziness": null, "operator": "or"}}'
    assert query_of_json(text) == q.MatchQuery("a", "s")
    assert query_of_json('{"phrase": {"column": "s", "terms": "a"}}') == q.PhraseQuery("a", "s")
    match = {"column": "s", "terms": "a"}
    text = json.dumps({"multi_match": {"match_queries": [match, {**match, "column": "t"}]}})
    assert query_of_json(text) == q.MultiMatchQuery("a", ["s", "t"], [1.0, 1.0])
    text = '{"combined_fields": {"query": "a", "columns": ["s"]}}'
    assert query_of_json(text) == q.CombinedFieldsQuery("a", ["s"])


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"match": {}}',
        '{"match": {"terms": "a"}}',
        '{"match": {"column": "s", "terms": "a", "slop": 1}}',
        '{"match": {"column": "s", "terms": "a", "fuzziness": "auto"}}',
        '{"match": {"column": "s", "terms": 3}}',
        '{"phrase": {"column": "s", "terms": "a", "slop": -1}}',
        '{"multi_match": {"match_queries": []}}',
        '{"multi_match": {"match_queries": [{"column": "s", "terms": "a", "fuzziness": 1}]}}',
        '{"multi_match": {"match_queries": 3}}',
        '{"boost": {"positive": {"match": {"column": "s", "terms": "a"}}}}',
        '{"boolean": {"must": 3}}',
        '{"boolean": {"must_not": [{"match": {"column": "s", "terms": "a"}}]}}',
        '{"boolean": {"must": [], "should": []}}',
        '{"combined_fields": {"query": "a"}}',
        '{"combined_fields": {"query": "a", "columns": "s"}}',
        '{"combined_fields": {"query": "a", "columns": ["s"], "boost": ["x"]}}',
        '{"combined_fields": {"query": "a", "columns": ["s"], "boosts": [1]}}',
        '{"match": {"column": "s", "terms": "a"}, "phrase": {}}',
        '{"query": 3}',
        '{"query": "a", "column": "s"}',
        '{"boolean": {"must": [' * 10_000,
        '{"boolean":{"must":[' * 5_000 + "]}}" * 5_000,
    ],
)
def test_wrong_texts(text: str) -> None:
    with pytest.raises(InvalidInputError):
        query_of_json(text)
