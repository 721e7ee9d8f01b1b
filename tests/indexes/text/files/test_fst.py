"""Token dictionaries of pylance."""

from __future__ import annotations

import random

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from lance_spark.errors import CorruptFileError
from lance_spark.indexes.text.fst import TokenGraph

ALPHABET = "abcdefghijklmnopqrstuvwxyzABC0123456789éß中ф\U00010400'"


@pytest.fixture(scope="module")
def words() -> list[str]:
    rng = random.Random(1)
    chosen = {
        "".join(rng.choice(ALPHABET) for _ in range(rng.randrange(1, 9))) for _ in range(5000)
    }
    return sorted({*chosen, *(chr(number) for number in range(33, 200)), "a" * 300})


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> bytes:
    path = tmp_path_factory.mktemp("fst") / "t.lance"
    texts = [" ".join(words[start : start + 50]) for start in range(0, len(words), 50)]
    dataset = lance.write_dataset(pa.table({"s": texts}), str(path))
    dataset.create_scalar_index(
        "s",
        "INVERTED",
        base_tokenizer="whitespace",
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
        lower_case=False,
        max_token_length=None,
    )
    (file,) = path.glob("_indices/*/part_0_tokens.lance")
    return LanceFileReader(str(file)).read_all().to_table()["_token_fst_bytes"][0].as_py()


def test_all_tokens_are_found(content: bytes, words: list[str]) -> None:
    graph = TokenGraph.parse(content, len(words), "f")
    tokens, numbers = graph.starting_with(b"", 1000)
    assert sorted(tokens) == sorted(word.encode() for word in words)
    assert sorted(numbers.tolist()) == list(range(len(words)))
    for token, number in random.Random(2).sample(
        list(zip(tokens, numbers.tolist(), strict=True)), 200
    ):
        assert graph.find(token) == number
    for token in (b"", b"missing word", b"\xff", "a" * 299):
        assert graph.find(token if isinstance(token, bytes) else token.encode()) is None


@pytest.mark.parametrize("prefix", ["a", "é", "ab", "zzzzz", "a" * 10])
@pytest.mark.parametrize("most", [2, 5, 1000])
def test_tokens_that_start_with_others(
    content: bytes, words: list[str], prefix: str, most: int
) -> None:
    tokens, _ = TokenGraph.parse(content, len(words), "f").starting_with(prefix.encode(), most)
    limit = max(most, len(prefix.encode()))
    expected = [
        word.encode() for word in words if word.startswith(prefix) and len(word.encode()) <= limit
    ]
    assert sorted(tokens) == sorted(expected)


def test_damaged_graphs(content: bytes, words: list[str]) -> None:
    rng = random.Random(3)
    for damaged in (b"", content[:30], b"\2" + content[1:]):
        with pytest.raises(CorruptFileError):
            TokenGraph.parse(damaged, len(words), "f")
    with pytest.raises(CorruptFileError):
        TokenGraph.parse(content, len(words) + 1, "f")
    for _ in range(300):
        data = bytearray(content)
        for _ in range(rng.randrange(1, 20)):
            data[rng.randrange(len(data) - 20)] = rng.randrange(256)
        try:
            graph = TokenGraph.parse(bytes(data), len(words), "f")
            graph.starting_with(b"", 60)
            for token in (b"abc", b"z9", *map(str.encode, rng.sample(words, 10))):
                assert graph.find(token) in (None, *range(len(words)))
        except CorruptFileError:
            pass
