"""Tokens, compared with those of pylance."""

from __future__ import annotations

import json
import random
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark.errors import (
    CorruptFileError,
    InvalidInputError,
    InvalidOptionError,
    UnsupportedFeatureError,
)
from lance_spark.indexes.text import tokenizer as module
from lance_spark.indexes.text.parameters import TextParameters, stop_words
from lance_spark.indexes.text.tokenizer import Tokenizer
from lance_spark.proto import index_old_pb2

WORDS = [
    "the",
    "Cats",
    "and",
    "Dogs",
    "were",
    "running",
    "quickly",
    "caña",
    "Straße",
    "ΑΣΣΑΣ",
    "d'été",
    "foo_bar",
    "İstanbul",
    "x1y2",
    "中文字",
    "क्षि",
    "½",
    "ﬁx",
    "getHTTPCode2",
    "a::b->c_d",
]


def oracle(text: str, options: dict[str, Any]) -> list[tuple[str, int]]:
    tokens = lance.tokenize(text, **options)
    return [(token.text, token.position) for token in tokens]


def split(
    tokenizer: Tokenizer, texts: list[str | None], dtype: pa.DataType
) -> list[list[tuple[str, int]]]:
    tokens = tokenizer.split(pa.array(texts, dtype))
    result: list[list[tuple[str, int]]] = [[] for _ in texts]
    for row, number, position in zip(
        tokens.rows.tolist(), tokens.ids.tolist(), tokens.positions.tolist(), strict=True
    ):
        first = result[row][0][1] if result[row] else None
        result[row].append((tokenizer.vocabulary[number], position))
        assert first is None or position >= first
    # The oracle counts from the first token that is kept.
    return [[(token, position - row[0][1]) for token, position in row] for row in result]


def random_text(rng: random.Random) -> str:
    parts = []
    for _ in range(rng.randrange(12)):
        choice = rng.random()
        if choice < 0.5:
            parts.append(rng.choice(WORDS))
        elif choice < 0.7:
            parts.append("".join(chr(rng.randrange(1, 0x300)) for _ in range(rng.randrange(1, 8))))
        elif choice < 0.8:
            code_points = [rng.randrange(1, 0x110000) for _ in range(rng.randrange(1, 50))]
            parts.append(
                "".join(chr(number) for number in code_points if not 0xD800 <= number < 0xE000)
            )
        elif choice < 0.9:
            parts.append(rng.choice("aé中") * rng.randrange(10, 45))
        else:
            parts.append(rng.choice([" ", "\t", "\u00a0", "\u2003", "-", ""]))
    return rng.choice([" ", "", "  "]).join(parts) if rng.random() < 0.2 else " ".join(parts)


CASES: list[dict[str, Any]] = [
    {},
    {"base_tokenizer": "whitespace"},
    {"base_tokenizer": "raw"},
    {"base_tokenizer": "code"},
    {"base_tokenizer": "code", "stem": True, "lower_case": False},
    {"analyzer": "code", "max_token_length": 7, "ascii_folding": False},
    {"base_tokenizer": "ngram"},
    {"base_tokenizer": "ngram", "min_ngram_length": 1, "max_ngram_length": 4},
    {"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 5, "prefix_only": True},
    {"base_tokenizer": "ngram", "stem": True, "remove_stop_words": True},
    {"lower_case": False},
    {"stem": False},
    {"remove_stop_words": False},
    {"ascii_folding": False},
    {"max_token_length": None},
    {"max_token_length": 5},
    {"max_token_length": 0},
    {"custom_stop_words": ["cat", "été", "Foo"]},
    {"custom_stop_words": [], "stem": False},
    {"custom_stop_words": ["the"], "remove_stop_words": False},
    *({"language": language} for language in sorted(stop_words())),
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("options", CASES, ids=str)
def test_tokens_are_those_of_pylance(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(7)
    texts: list[str | None] = [random_text(rng) for _ in range(150)]
    texts += ["", None, " ", "the", None, "a" * 39, "a" * 40, "é" * 20, "x"]
    tokenizer = Tokenizer(TextParameters.of_options(options))
    expected = [[] if text is None else oracle(text, options) for text in texts]
    assert split(tokenizer, texts, pa.string()) == expected
    monkeypatch.setattr(module, "STEP_BYTES", 50)
    monkeypatch.setattr(module, "_MAX_KNOWN", 10)
    assert split(Tokenizer(tokenizer.parameters), texts, pa.large_string()) == expected


def test_stop_words_are_those_of_pylance() -> None:
    every = sorted({word for words in stop_words().values() for word in words})
    for language, words in stop_words().items():
        kept = oracle(
            " ".join(every),
            {
                "base_tokenizer": "whitespace",
                "language": language,
                "stem": False,
                "ascii_folding": False,
                "max_token_length": None,
            },
        )
        assert {token for token, _ in kept} == {word for word in every if word.lower() not in words}


def test_every_character() -> None:
    # The planes from 0x32000 on have few characters, all of one class.
    points = [*range(1, 0xD800), *range(0xE000, 0x32000), *range(0x32000, 0x110000, 37)]
    for options, step in (
        ({"stem": False}, 1),
        ({"base_tokenizer": "code"}, 5),
        ({"stem": False, "base_tokenizer": "whitespace"}, 5),
    ):
        every = [chr(number) for number in (*points[:0x3000], *points[0x3000::step])]
        options |= {"remove_stop_words": False}
        tokenizer = Tokenizer(TextParameters.of_options(options))
        for start in range(0, len(every), 50_000):
            text = " ".join(every[start : start + 50_000])
            assert split(tokenizer, [text], pa.string()) == [oracle(text, options)]


def test_slices_and_empty_arrays() -> None:
    tokenizer = Tokenizer(TextParameters())
    array = pa.array(["skip", "Hello World", None, "cats"]).slice(1)
    tokens = tokenizer.split(array)
    assert tokens.rows.tolist() == [0, 0, 2]
    assert tokenizer.vocabulary == ["hello", "world", "cat"]
    for dtype in (pa.string(), pa.large_string()):
        for empty in (pa.array([], dtype), pa.nulls(3, dtype)):
            assert len(tokenizer.split(empty).ids) == 0
    with pytest.raises(InvalidInputError, match="must be strings, not int64"):
        tokenizer.split(pa.array([1]))
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        tokenizer.split(pa.array([b"\xff"]).view(pa.string()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"base_tokenizer": "icu"},
            "base_tokenizer must be one of simple, whitespace, raw, ngram, code, not 'icu'",
        ),
        ({"language": "Klingon"}, "language must be one of Arabic"),
        ({"stem": 1}, "stem must be True or False, not 1"),
        ({"max_token_length": -1}, "max_token_length must be None or"),
        ({"min_ngram_length": 4}, "in this order, not 4 and 3"),
        ({"min_ngram_length": 0}, "in this order, not 0 and 3"),
        ({"custom_stop_words": "abc"}, "custom_stop_words must be None or a list"),
        ({"zone_size": 5}, "option 'zone_size' is unknown"),
        ({"analyzer": "icu"}, "analyzer must be one of text, code"),
        ({"analyzer": "text", "base_tokenizer": "code"}, "does not go with base_tokenizer 'code'"),
        ({"analyzer": "code", "split_identifiers": True}, "split_identifiers must be False"),
        ({"analyzer": "code", "index_operators": True}, "index_operators must be False"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=message):
        TextParameters.of_options(options)


def test_parameters_are_recorded() -> None:
    parameters = TextParameters.of_options(
        {
            "custom_stop_words": ["é", "b"],
            "max_token_length": None,
            "language": "french",
            "with_position": True,
        }
    )
    assert TextParameters.of_json(parameters.to_json(), "f") == parameters
    details = index_old_pb2.InvertedIndexDetails.FromString(parameters.details(2))
    assert details.language == '"French"'
    assert not details.HasField("max_token_length")
    ngram = TextParameters.of_options({"base_tokenizer": "ngram"})
    assert not ngram.stem


def test_details_have_the_bytes_of_pylance() -> None:
    assert TextParameters().details(2).hex() == (
        "0a0673696d706c65120922456e676c6973682220282801300138014001480350036080017802"
    )


def test_damaged_parameters() -> None:
    for text in (
        "",
        "[]",
        "{",
        '{"stem": 3}',
        '{"language": []}',
        '{"custom_stop_words": [1]}',
        "[" * 100_000,
    ):
        with pytest.raises(CorruptFileError, match="rebuild the index"):
            TextParameters.of_json(text, "f")
    for content in (
        {"base_tokenizer": "icu"},
        {"lance_tokenizer": "xml"},
        {"lance_tokenizer": ["json"]},
        {"base_tokenizer": "code", "index_operators": True},
        {"base_tokenizer": ["simple"]},
    ):
        with pytest.raises(UnsupportedFeatureError, match="is not supported"):
            TextParameters.of_json(json.dumps(content), "f")
