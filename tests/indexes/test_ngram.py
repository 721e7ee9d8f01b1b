"""NGRAM indexes have the bytes of pylance, and lose no matching row."""

from __future__ import annotations

import contextlib
import logging
import random
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import LanceError
from lance_spark.indexes.cache import CACHE
from lance_spark.indexes.ngram.files import TrigramFinder, trigrams_of_text
from tests.indexes.rewritten import content, index_file, rewrite
from tests.support.cells import number_of

CHARACTERS = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
#: Letters and signs that are folded in unusual ways.
UNUSUAL = "ÆßẞŒŁĸŋİıſŉΣK\u0301\u0307㏞ﬃⱽᴭ⑴⒈Ａ１🄰𝚤𝐀\U0001ccd6\ua7f1½ªⅣ"


def build(path: Path, texts: list[str | None] | pa.Array, who: str, **options: Any) -> None:
    table = pa.table({"i": np.arange(len(texts)), "s": texts})
    lance.write_dataset(table, str(path), **{"max_rows_per_file": 1 << 21, **options})
    if who == "own":
        lance_spark.open_dataset(str(path)).create_scalar_index("s", "ngram")
    else:
        lance.dataset(str(path)).create_scalar_index("s", "NGRAM")


def random_text(rng: random.Random) -> str:
    alphabets = ["abcXYZ019 _", "ab1", "naïve Straße ÆØ", UNUSUAL]
    chars = [
        chr(rng.choice(CHARACTERS)) if rng.random() < 0.03 else rng.choice(rng.choice(alphabets))
        for _ in range(rng.choice([0, 1, 2, 3, 4, 8, 60]))
    ]
    return "".join(chars)


def random_texts(seed: int, count: int) -> list[str | None]:
    rng = random.Random(seed)
    return [None if rng.random() < 0.05 else random_text(rng) for _ in range(count)]


def rows(path: Path, condition: str) -> list[int]:
    table = lance_spark.open_dataset(str(path)).to_table(["i"], filter=condition)
    return sorted(table["i"].to_pylist())


def same_files(tmp_path: Path, texts: list[str | None] | pa.Array, **options: Any) -> None:
    for who in ("own", "pylance"):
        build(tmp_path / who, texts, who, **options)
    own, other = content(tmp_path / "own"), content(tmp_path / "pylance")
    assert own.schema.equals(other.schema, check_metadata=True)
    assert own.equals(other)


def test_every_character_is_folded_as_by_pylance(tmp_path: Path) -> None:
    same_files(tmp_path, [f"q7{chr(point)}z9" for point in CHARACTERS])


@pytest.mark.sample(3)
@pytest.mark.parametrize(("chunk", "version"), [(5, "2.0"), (97, "2.1"), (1 << 22, "2.2")])
def test_files_are_those_of_pylance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, version: str
) -> None:
    monkeypatch.setattr("lance_spark.indexes.ngram.files.CHUNK_BYTES", chunk)
    texts = random_texts(chunk, 60 if chunk == 5 else 700)
    same_files(tmp_path, [*texts, "x" * 3000 + "é" * 3000], data_storage_version=version)


def test_other_columns(tmp_path: Path) -> None:
    texts = pa.array(["", "abc", None, "abcd"], pa.large_string())
    same_files(tmp_path / "large", texts)
    for name, nulls in (("nulls", pa.nulls(5, pa.string())), ("empty", pa.array([], pa.string()))):
        same_files(tmp_path / name, nulls)


def test_slices_of_arrays() -> None:
    values = pa.array(["abc", None, "ünabc", "xyz", "abcabc"]).slice(1, 3)
    ((trigrams, texts),) = TrigramFinder().trigrams(values)
    expected = {(trigram, 1) for trigram in trigrams_of_text("unabc")}
    expected |= {(trigram, 2) for trigram in trigrams_of_text("xyz")}
    assert set(zip(trigrams.tolist(), texts.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("text", "count"),
    [("abc", 1), ("ab", 0), ("a-bc", 0), ("ABC", 1), ("abcabc", 3), ("Über", 2), ("½ab", 0)],
)
def test_trigrams_of_parts(text: str, count: int) -> None:
    assert len(trigrams_of_text(text)) == count


def test_the_tokens_of_a_part_are_tokens_of_the_text() -> None:
    texts = [f"q7{chr(point)}z9" for point in CHARACTERS[:0x10000]]
    ((trigrams, numbers),) = TrigramFinder().trigrams(pa.array(texts))
    pairs = set((trigrams.astype(np.int64) << 32 | numbers).tolist())
    for number, text in enumerate(texts):
        assert pairs.issuperset(trigram << 32 | number for trigram in trigrams_of_text(text)), text


@pytest.mark.parametrize("who", ["own", "pylance"])
def test_no_matching_row_is_lost(tmp_path: Path, who: str) -> None:
    texts = random_texts(7, 4000)
    build(tmp_path / "t", texts, who)
    rng = random.Random(8)
    chosen = [text for text in texts if text and len(text) > 7]
    used = 0
    for _ in range(number_of(12, 25)):
        text = rng.choice(chosen)
        start = rng.randrange(len(text) - 3)
        part = text[start : start + rng.randint(3, 12)].replace("_", "").replace("'", "")
        expected = [at for at, value in enumerate(texts) if value is not None and part in value]
        condition = f"contains(s, '{part}')"
        assert rows(tmp_path / "t", condition) == expected
        assert rows(tmp_path / "t", f"s LIKE '%{part}%'") == expected
        used += "  index: " in lance_spark.open_dataset(str(tmp_path / "t")).explain(
            filter=condition
        )
        starts = [at for at in expected if texts[at].startswith(part)]  # type: ignore[union-attr]
        ends = [at for at in expected if texts[at].endswith(part)]  # type: ignore[union-attr]
        assert rows(tmp_path / "t", f"startswith(s, '{part}')") == starts
        assert rows(tmp_path / "t", f"s LIKE '%{part}'") == ends
    assert used > 4


@pytest.fixture(
    scope="module",
    params=[(who, stable) for who in ("own", "pylance") for stable in (False, True)],
    ids=str,
)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that was changed after its index was made."""
    who, stable = request.param
    path = tmp_path_factory.mktemp("ngram") / "t.lance"
    words = ["apple", "Banana", "crème brûlée", "d-e-f", ""]
    texts = [
        None if number % 17 == 3 else f"{words[number % 5]} {number % 800} {words[number % 3]}"
        for number in range(6000)
    ]
    build(path, texts, who, max_rows_per_file=2500, enable_stable_row_ids=stable)
    lance_spark.open_dataset(str(path)).delete("i % 31 = 5")
    dataset = lance.dataset(str(path))
    dataset.insert(pa.table({"i": np.arange(20), "s": ["apple 799"] * 20}))
    dataset.update({"s": "'BANANA 798'"}, where="i % 1000 = 1")
    return path


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "condition",
    [
        "contains(s, '799')",
        "s LIKE '%na 798%'",
        "contains(s, 'NANA 798')",
        "contains(s, 'brûlée 12')",
        "contains(s, '799') AND i < 3000",
        "contains(s, '799') OR contains(s, '121')",
        "contains(s, 'nothing')",
        "s LIKE 'apple 795%'",
        "s LIKE '% 799 apple'",
        "s LIKE 'apple%79_ %nana'",
        "s LIKE '%crème%brûlée 32%'",
    ],
)
def test_both_clients_use_an_index(table: Path, condition: str) -> None:
    dataset, oracle = lance_spark.open_dataset(str(table)), lance.dataset(str(table))
    unindexed = dataset.to_table(["i"], filter=condition, use_scalar_index=False)
    expected = sorted(unindexed["i"].to_pylist())
    assert rows(table, condition) == expected
    assert sorted(oracle.to_table(["i"], filter=condition)["i"].to_pylist()) == expected
    assert "  index: s_idx (NGRAM)" in dataset.explain(filter=condition)
    assert "ScalarIndexQuery" in oracle.scanner(filter=condition).explain_plan()


def test_a_long_part(tmp_path: Path) -> None:
    text = "".join(f"{number:04}" for number in range(500))
    build(tmp_path / "t", [text, text[:-1], "0000"], "own")
    assert rows(tmp_path / "t", f"contains(s, '{text[1:]}')") == [0]


def damaged(path: Path, change: str) -> None:
    table = content(path)
    trigrams, lists = (table[name].combine_chunks() for name in ("tokens", "posting_list"))
    if change == "order":
        trigrams = trigrams[::-1]
    elif change == "null trigram":
        trigrams = pa.array([None, *trigrams.to_pylist()[1:]], pa.uint32())
    elif change == "type":
        trigrams = trigrams.cast(pa.uint64())
    elif change == "list":
        lists = pa.array([item[:-3] for item in lists.to_pylist()], pa.binary())
    elif change == "empty list":
        lists = pa.array([b""] * len(lists), pa.binary())
    elif change == "null list":
        lists = pa.nulls(len(lists), pa.binary())
    names = ["tokens", "other" if change == "name" else "posting_list"]
    rewrite(path, pa.table([trigrams, lists], names=names))


@pytest.mark.parametrize(
    "change", ["order", "null trigram", "type", "list", "empty list", "null list", "name"]
)
def test_damaged_files_are_ignored(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t"
    build(path, ["some text", "other text", None], "pylance")
    damaged(path, change)
    with caplog.at_level(logging.WARNING):
        assert rows(path, "contains(s, 'some')") == [0]
    assert "is ignored" in caplog.text


def test_damaged_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    build(path, random_texts(3, 300), "pylance")
    file = index_file(path)
    data = file.read_bytes()
    rng = random.Random(1)
    for _ in range(60):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(changed[: rng.choice([len(data), len(data), rng.randrange(len(data))])])
        CACHE.clear()
        with contextlib.suppress(LanceError):
            rows(path, "contains(s, 'abc')")
