"""Checks of INVERTED indexes against their columns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import UnsupportedFeatureError
from tests.interop.text.tables import change, rows, vocabulary

CASES: list[tuple[str, bool, dict[str, Any]]] = [
    ("own", False, {}),
    ("own", True, {"with_position": True}),
    ("pylance", False, {"with_position": True, "format_version": 1}),
    ("pylance", True, {"with_position": True, "block_size": 256}),
    ("pylance", False, {"base_tokenizer": "ngram"}),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_right_indexes(case: tuple[str, bool, dict[str, Any]], tmp_path: Path) -> None:
    who, stable_row_ids, options = case
    rng = random.Random(str(case))
    words, path = vocabulary(rng), tmp_path / "t.lance"
    lance.write_dataset(
        rows(rng, 0, 600, words),
        str(path),
        max_rows_per_file=300,
        enable_stable_row_ids=stable_row_ids,
    )
    if who == "own":
        dataset = lance_spark.open_dataset(str(path))
        dataset.create_scalar_index("s", "INVERTED", num_segments=2, **options)
    else:
        lance.dataset(str(path)).create_scalar_index("s", "INVERTED", **options)
    change(path, rng, words, None)
    dataset = lance_spark.open_dataset(str(path))
    result = dataset.check_index("s_idx")
    assert result.is_valid, result.problems
    assert result.stale > 0
    dataset, _ = dataset.optimize_indices().compact_files(target_rows_per_fragment=10_000)
    result = dataset.check_index("s_idx")
    assert result.is_valid, result.problems
    assert result.num_rows == dataset.count_rows()


def indexed(path: Path, texts: list[str | None]) -> lance_spark.Dataset:
    lance.write_dataset(pa.table({"s": texts}), str(path))
    return lance_spark.open_dataset(str(path)).create_scalar_index(
        "s", "INVERTED", with_position=True, stem=False, remove_stop_words=False
    )


@pytest.mark.parametrize(
    ("stored", "missing", "wrong"),
    [
        (["a b", "c d", None, "e"], 0, 0),
        (["a c", "c d", None, "e"], 0, 1),
        # Another order, and another frequency.
        (["b a", "c d", None, "e e"], 0, 2),
        ([None, "c d", None, ""], 2, 0),
        (["a b", "c d", "more", "e"], 0, 1),
    ],
)
def test_other_texts_are_found(
    stored: list[str | None], missing: int, wrong: int, tmp_path: Path
) -> None:
    dataset = indexed(tmp_path / "t", ["a b", "c d", None, "e"])
    indexed(tmp_path / "other", stored)
    (folder,) = (tmp_path / "t" / "_indices").iterdir()
    for file in (tmp_path / "other").glob("_indices/*/*"):
        (folder / file.name).write_bytes(file.read_bytes())
    result = dataset.check_index("s_idx")
    assert (result.missing, result.wrong, result.stale) == (missing, wrong, 0)
    assert len(result.problems) == missing + wrong
    assert not result.problems or "row address" in result.problems[0]


def test_indexes_that_cannot_be_checked(tmp_path: Path) -> None:
    dataset = indexed(tmp_path / "t", ["a b"])
    (file,) = (tmp_path / "t").glob("_indices/*/part_0_docs.lance")
    file.unlink()
    result = dataset.check_index("s_idx")
    assert result.missing == 1
    assert "cannot be read" in result.problems[0]
    lance.dataset(str(tmp_path / "t")).create_scalar_index("s", "INVERTED", base_tokenizer="icu")
    with pytest.raises(UnsupportedFeatureError, match="'icu' is not supported"):
        lance_spark.open_dataset(str(tmp_path / "t")).check_index("s_idx")
