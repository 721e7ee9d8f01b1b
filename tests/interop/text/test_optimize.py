"""INVERTED indexes extended by this package: parts of old segments become parts of new ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import pytest

import lance_spark
from lance_spark.indexes.text import build, writer
from lance_spark.indexes.text.tokenizer import Tokenizer
from tests.interop.text.tables import (
    flat_plan,
    oracle_scores,
    own_scores,
    random_query,
    rows,
    vocabulary,
)
from tests.support.cells import number_of

QUERIES = number_of(2, 4)
#: Memory of a part, such that the parts of the test are large.
SMALL = 120_000
#: Who builds the index, stable row ids, memory of a part, options.
CASES: list[tuple[str, bool, int, dict[str, Any]]] = [
    ("own", False, build.DEFAULT_MEMORY, {}),
    # Parts that are copied.
    ("own", False, SMALL, {"remove_stop_words": False}),
    ("pylance", False, SMALL, {}),
    ("pylance", False, SMALL, {"with_position": False}),
    ("pylance", True, 80_000, {"stem": False}),
    ("own", True, build.DEFAULT_MEMORY, {}),
    ("pylance", False, SMALL, {"format_version": 3}),
    # Forms that are written again.
    ("pylance", False, SMALL, {"format_version": 1}),
    ("pylance", True, SMALL, {"format_version": 3, "block_size": 256}),
    ("pylance", False, build.DEFAULT_MEMORY, {"base_tokenizer": "ngram", "max_ngram_length": 4}),
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_segments_become_one(
    case: tuple[str, bool, int, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    who, stable_row_ids, memory, options = case
    rng = random.Random(str(case))
    words, path = vocabulary(rng), tmp_path / "t.lance"
    options = {"with_position": True, **options}
    monkeypatch.setattr(build, "DEFAULT_MEMORY", memory)
    lance.write_dataset(
        rows(rng, 0, 900, words),
        str(path),
        max_rows_per_file=300,
        enable_stable_row_ids=stable_row_ids,
    )
    for column in "st":
        if who == "own":
            dataset = lance_spark.open_dataset(str(path))
            dataset.create_scalar_index(column, "INVERTED", **options)
        else:
            lance.dataset(str(path)).create_scalar_index(column, "INVERTED", **options)

    def compare() -> None:
        for _ in range(QUERIES):
            query = random_query(rng, words, phrases=options["with_position"])
            arguments = rng.choice([{}, {"filter": "id % 3 = 0"}, {"fast_search": True}])
            assert own_scores(path, query, **arguments) == pytest.approx(
                oracle_scores(path, query, **arguments), rel=3e-6, abs=1e-5
            ), query

    def append(first: int) -> None:
        lance.write_dataset(rows(rng, first, 250, words), str(path), mode="append")

    def optimize(**arguments: Any) -> None:
        lance_spark.open_dataset(str(path)).optimize_indices(**arguments)
        assert not flat_plan(path, "s")
        compare()

    append(900)
    optimize(num_indices_to_merge=0)
    # Blocks of another size, and those of format 1, are replaced.
    is_replaced = "block_size" in options or options.get("format_version") == 1
    assert segments(path) == ([1, 1] if is_replaced else [2, 2])
    lance.dataset(str(path)).delete("id % 7 = 3")
    lance.dataset(str(path)).update({"s": "'abc the updated cats'"}, where="id % 10 = 5")
    # pylance finds updated rows with stable ids by their old texts, if another segment has them.
    optimize(num_indices_to_merge=9 if stable_row_ids else 1)
    count = 1 if stable_row_ids or is_replaced else 2
    assert segments(path) == [count] * 2
    lance.dataset(str(path)).delete("id < 300 AND id % 5 > 1")
    lance_spark.open_dataset(str(path)).compact_files(target_rows_per_fragment=700)
    compare()
    append(1150)
    optimize(num_indices_to_merge=9)
    assert segments(path) == [1, 1]
    lance.dataset(str(path)).delete("id = 1160")
    lance.dataset(str(path)).optimize.compact_files(target_rows_per_fragment=5000)
    optimize(num_indices_to_merge=1)
    assert segments(path) == [1, 1]
    lance.dataset(str(path)).optimize.optimize_indices()
    compare()


def segments(path: Path) -> list[int]:
    described = lance_spark.open_dataset(str(path)).describe_indices()
    names = [index for index in described if index.index_type == "Inverted"]
    return [index.num_segments for index in names]


def test_text_is_split_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    words, path = vocabulary(rng), tmp_path / "t.lance"
    lance.write_dataset(rows(rng, 0, 500, words), str(path))
    dataset = lance_spark.open_dataset(str(path)).create_scalar_index("s", "INVERTED")
    lance.write_dataset(rows(rng, 500, 30, words), str(path), mode="append")
    lengths = []
    split = Tokenizer.split

    def counted(self: Tokenizer, texts: Any) -> Any:
        lengths.append(len(texts))
        return split(self, texts)

    monkeypatch.setattr(Tokenizer, "split", counted)
    dataset = lance_spark.open_dataset(str(path)).optimize_indices()
    assert sum(lengths) == 30
    assert segments(path) == [1]
    assert len(list(path.glob("_indices/*/part_*_docs.lance"))) == 2
    monkeypatch.setattr(writer, "CHUNK_TOKENS", 50)
    lance.write_dataset(rows(rng, 530, 5, words), str(path), mode="append")
    dataset = lance_spark.open_dataset(str(path)).optimize_indices()
    monkeypatch.setattr(Tokenizer, "split", split)
    query = words[0]
    assert own_scores(path, query) == pytest.approx(oracle_scores(path, query), rel=1e-6)
    assert dataset.optimize_indices().version == dataset.version


def test_damaged_segments_are_not_merged(tmp_path: Path) -> None:
    rng = random.Random(3)
    words, path = vocabulary(rng), tmp_path / "t.lance"
    lance.write_dataset(rows(rng, 0, 50, words), str(path))
    lance_spark.open_dataset(str(path)).create_scalar_index("s", "INVERTED")
    (file,) = path.glob("_indices/*/part_0_invert.lance")
    file.unlink()
    lance.write_dataset(rows(rng, 50, 30, words), str(path), mode="append")
    dataset = lance_spark.open_dataset(str(path))
    with pytest.raises(lance_spark.errors.MissingFileError):
        dataset.optimize_indices()
    assert len(list((path / "_indices").glob("*/*"))) == 3
    dataset = dataset.optimize_indices(retrain=True)
    assert own_scores(path, words[0]) == pytest.approx(oracle_scores(path, words[0]), rel=1e-6)
