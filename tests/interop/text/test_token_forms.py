"""Forms of token dictionaries: segments of both clients are searched and merged together."""

from __future__ import annotations

import dataclasses
import itertools
import random
import struct
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

import lance_spark
from lance_spark import query as q
from lance_spark.indexes.text import build
from lance_spark.indexes.text.fst import crc32c
from tests.interop.text.tables import oracle_scores, own_scores
from tests.support.cells import ALL_CELLS, number_of

PLAIN = {
    "base_tokenizer": "whitespace",
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
    "lower_case": False,
    "max_token_length": None,
}
_RANDOM = random.Random(7)
_ENDS = ["", "s", "ed", "ing", "ning", "é", "中"]
VOCABULARIES: dict[str, list[str]] = {
    "one": ["word"],
    "prefixes": ["abcdefgh"[:size] for size in range(1, 9)],
    "wide": [chr(number) + end for number in range(0x21, 0x200) for end in ("", "a", "ab", "b")],
    "long": ["x" * size for size in (1, 50, 3000)] + ["x" * 3000 + "y" * 3000, "y" * 100],
    "random": [
        "".join(_RANDOM.choice("abcdé") for _ in range(_RANDOM.randrange(1, 7)))
        + _RANDOM.choice(_ENDS)
        for _ in range(8000)
    ],
    "many": [f"{_RANDOM.getrandbits(40):x}" for _ in range(number_of(60_000, 200_000))],
}


def create(path: Path, who: str, **options: Any) -> None:
    dataset = (lance_spark.open_dataset if who == "own" else lance.dataset)(str(path))
    dataset.create_scalar_index("s", "INVERTED", **options)


def token_forms(path: Path) -> list[str]:
    """Return the form of the token dictionaries of each segment."""
    forms = []
    for segment in lance_spark.open_dataset(str(path)).describe_indices()[0].segments:
        file = path / "_indices" / segment.uuid / "metadata.lance"
        metadata = LanceFileReader(str(file)).metadata().schema.metadata
        forms.append(metadata[b"token_set_format"].decode())
    return forms


def close(scores: dict[int, float]) -> Any:
    return pytest.approx(scores, rel=3e-6, abs=1e-5)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", VOCABULARIES)
def test_pylance_finds_tokens(name: str, tmp_path: Path) -> None:
    words = sorted(set(VOCABULARIES[name]))
    rng = random.Random(name)
    texts = [" ".join(words[start : start + 20]) for start in range(0, len(words), 20)]
    texts += [" ".join(rng.choices(words, k=8)) for _ in range(300)]
    table = pa.table({"id": range(len(texts)), "s": texts})
    paths = {who: tmp_path / who for who in ("own", "pylance")}
    for who, path in paths.items():
        lance.write_dataset(table, str(path))
        create(path, who, **PLAIN)
    queries = [q.MatchQuery(rng.choice(words), "s") for _ in range(40)]
    queries += [q.MatchQuery(rng.choice(words) + "z", "s") for _ in range(3)]
    for fuzziness in (1, 2, None):
        for prefix_length in (0, 2):
            word = rng.choice([word for word in words if len(word) < 60])
            queries.append(
                q.MatchQuery(
                    word, "s", fuzziness=fuzziness, prefix_length=prefix_length, max_expansions=1000
                )
            )
    for query in queries:
        expected = oracle_scores(paths["pylance"], query)
        assert oracle_scores(paths["own"], query) == close(expected), query
        assert own_scores(paths["own"], query) == close(expected), query
    assert token_forms(paths["own"]) == token_forms(paths["pylance"]) == ["fst"]


def test_checksums_are_those_of_pylance(tmp_path: Path) -> None:
    words = VOCABULARIES["random"]
    for who in ("own", "pylance"):
        path = tmp_path / who
        lance.write_dataset(pa.table({"s": [" ".join(words)]}), str(path))
        create(path, who, **PLAIN)
        (file,) = path.glob("_indices/*/part_0_tokens.lance")
        column = LanceFileReader(str(file)).read_all().to_table()["_token_fst_bytes"]
        data = np.frombuffer(column[0].as_py(), np.uint8)
        checksum = crc32c(data[:-4])
        turned = (checksum >> 15 | checksum << 17) & 0xFFFF_FFFF
        (stored,) = struct.unpack("<I", data[-4:].tobytes())
        assert stored == (turned + 0xA282_EAD8) & 0xFFFF_FFFF, who


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    texts = [f"word{number % 37} alpha beta{number}" for number in numbers]
    return pa.table({"id": list(numbers), "s": texts})


def check_scores(path: Path) -> None:
    for query in ("word5", "beta77", q.MatchQuery("wrd5", "s", fuzziness=1)):
        scores = own_scores(path, query)
        assert scores == close(oracle_scores(path, query))
        assert scores


#: Who writes the first segment, and its options; this package does not write format 1.
WRITTEN: list[tuple[str, dict[str, Any]]] = [
    ("own", {}),
    ("pylance", {}),
    ("own", {"format_version": 3}),
    ("pylance", {"format_version": 3}),
    ("pylance", {"format_version": 1}),
]


@pytest.mark.sample(6)
@pytest.mark.parametrize("number", range(len(WRITTEN)), ids=lambda number: str(WRITTEN[number]))
def test_both_clients_merge_segments(number: int, tmp_path: Path) -> None:
    """Merge with every other number of segments; `make test-long` tries all of them."""
    who, options = WRITTEN[number]
    start = tmp_path / "t.lance"
    lance.write_dataset(rows(0, 300), str(start))
    create(start, who, with_position=True, **options)
    # Of each number, half of the cases merge with it; the next case merges with the others.
    for own_merge, merge in itertools.product((0, 1), range(4)):
        if not ALL_CELLS and (own_merge + merge + number) % 2:
            continue
        path = tmp_path / f"{own_merge}_{merge}"
        lance.dataset(str(start)).deep_clone(str(path), None)
        lance.write_dataset(rows(300, 100), str(path), mode="append")
        lance_spark.open_dataset(str(path)).optimize_indices(num_indices_to_merge=own_merge)
        lance.write_dataset(rows(400, 100), str(path), mode="append")
        lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=merge)
        check_scores(path)
        lance.write_dataset(rows(500, 100), str(path), mode="append")
        lance_spark.open_dataset(str(path)).optimize_indices(num_indices_to_merge=merge)
        check_scores(path)
        lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=9)
        check_scores(path)
        assert token_forms(path) == ["fst"]


def test_segments_of_the_other_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(rows(0, 300), str(path))
    with monkeypatch.context() as patch:
        patch.setattr(build, "FST", "arrow")
        create(path, "own")
    assert token_forms(path) == ["arrow"]
    for first in (300, 400):
        lance.write_dataset(rows(first, 100), str(path), mode="append")
        lance_spark.open_dataset(str(path)).optimize_indices(num_indices_to_merge=0)
    assert token_forms(path) == ["arrow"] * 3
    lance.dataset(str(path)).optimize.optimize_indices(num_indices_to_merge=2)
    check_scores(path)
    lance.write_dataset(rows(500, 100), str(path), mode="append")
    # A segment of another form, as releases before wrote it.
    with monkeypatch.context() as patch:
        older = {"existing": lambda files: build.parse({}), "replaces_all": None}
        patch.setattr(build, "BUILDER", dataclasses.replace(build.BUILDER, **older))
        lance_spark.open_dataset(str(path)).optimize_indices(num_indices_to_merge=0)
    forms = token_forms(path)
    assert sorted(set(forms)) == ["arrow", "fst"]
    lance.write_dataset(rows(600, 100), str(path), mode="append")
    # All of them become one.
    lance_spark.open_dataset(str(path)).optimize_indices(num_indices_to_merge=0)
    assert len(token_forms(path)) == 1
    check_scores(path)
