"""Arguments of full-text queries."""

from __future__ import annotations

import math
import sys
from typing import Any

import lance.query
import pyarrow as pa
import pytest

from lance_spark import query as q
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.indexes.text.parameters import TextParameters
from lance_spark.indexes.text.queries import leaves, parse_query
from lance_spark.indexes.text.tokenizer import Tokenizer

MATCH = q.MatchQuery("x", "a")


def test_names_are_those_of_pylance() -> None:
    for name in q.__all__:
        assert hasattr(lance.query, name) or hasattr(lance, name), name
    for enum in ("Occur", "FullTextOperator"):
        assert {item.name: item.value for item in getattr(q, enum)} == {
            item.name: item.value for item in getattr(lance.query, enum)
        }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: q.MatchQuery(3, "a"), "query must be a string, not 3"),
        (lambda: q.MatchQuery("x", None), "column must be a string, not None"),
        (
            lambda: q.MatchQuery("x", "a", boost=-1),
            "boost must be a finite number from 0 on, not -1",
        ),
        (lambda: q.MatchQuery("x", "a", boost=math.nan), "boost must be a finite number"),
        (lambda: q.MatchQuery("x", "a", fuzziness=-1), "fuzziness must be an integer from 0 to"),
        (lambda: q.MatchQuery("x", "a", fuzziness=True), "fuzziness must be an integer from 0 to"),
        (lambda: q.MatchQuery("x", "a", max_expansions=1.5), "max_expansions must be an integer"),
        (lambda: q.MatchQuery("x", "a", prefix_length="1"), "prefix_length must be an integer"),
        (
            lambda: q.MatchQuery("x", "a", operator="XOR"),
            "operator must be one of AND, OR, not 'XOR'",
        ),
        (lambda: q.PhraseQuery("x", "a", slop=-1), "slop must be an integer"),
        (lambda: q.BoostQuery(MATCH, "x"), "a query must be a FullTextQuery, not 'x'"),
        (
            lambda: q.BoostQuery(MATCH, MATCH, negative_boost=math.inf),
            "negative_boost must be a finite",
        ),
        (lambda: q.MultiMatchQuery("x", []), "columns must be a list of one column or more"),
        (lambda: q.MultiMatchQuery("x", "ab"), "columns must be a list of one column or more"),
        (
            lambda: q.MultiMatchQuery("x", ["a"], boosts=[1.0, 2.0]),
            "boosts must have a number for each of the 1",
        ),
        (lambda: q.MultiMatchQuery("x", ["a"], boosts=["y"]), "boost must be a finite number"),
        (lambda: q.BooleanQuery([]), "needs a query with SHOULD or MUST"),
        (lambda: q.BooleanQuery([(q.Occur.MUST_NOT, MATCH)]), "needs a query with SHOULD or MUST"),
        (
            lambda: q.BooleanQuery([("MAY", MATCH)]),
            "a clause must be one of SHOULD, MUST, MUST_NOT",
        ),
        (
            lambda: q.BooleanQuery([(q.Occur.MUST, None)]),
            "a query must be a FullTextQuery, not None",
        ),
    ],
)
def test_wrong_arguments(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_texts_of_operators() -> None:
    assert q.MatchQuery("x", "a", operator="and").operator is q.FullTextOperator.AND
    assert (
        q.MultiMatchQuery("x", ["a"], operator="AND").matches[0].operator is q.FullTextOperator.AND
    )
    assert q.BooleanQuery([("must", MATCH)]).of(q.Occur.MUST) == [MATCH]


def test_forms_of_queries() -> None:
    assert parse_query("x", ["a"]) == MATCH
    assert parse_query("x", ["a", "b"]) == q.MultiMatchQuery("x", ["a", "b"])
    assert parse_query({"query": "x", "columns": ["a"]}, ["b", "c"]) == MATCH
    assert parse_query('"x y"', ["a"]) == q.PhraseQuery("x y", "a")
    assert parse_query('"', ["a"]) == q.MatchQuery('"', "a")
    both = MATCH & q.BoostQuery(MATCH, q.PhraseQuery("y", "b"))
    assert list(leaves(both | q.MultiMatchQuery("z", ["c"]))) == [
        MATCH,
        MATCH,
        q.PhraseQuery("y", "b"),
        q.MatchQuery("z", "c"),
    ]


def test_stems_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with pytest.raises(UnsupportedFeatureError, match="install lance-spark\\[text\\]"):
        Tokenizer(TextParameters())
    tokenizer = Tokenizer(TextParameters(stem=False))
    tokenizer.split(pa.array(["Running cats"]))
    assert tokenizer.vocabulary == ["running", "cats"]
