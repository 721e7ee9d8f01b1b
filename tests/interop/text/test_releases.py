"""INVERTED indexes of old releases of pylance, which also compacted and extended them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import lance
import lance.query as oracle
import pytest

import lance_spark
from lance_spark import query as q
from tests.fixtures.tables import Fixture, Unpack, fixtures, unpack

INDEXED = [fixture for fixture in fixtures() if fixture.name.startswith("indexed")]
#: Releases whose indexes do not name their type, and those whose indexes have the first format.
UNKNOWN = ("0.4.21", "0.8.21", "0.10.18", "0.12.3", "0.15.0", "0.17.0")
FIRST = ("0.20.0", "0.23.2", "0.27.2")


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Unpack:
    return cache(lambda release: unpack(release, tmp_path_factory.mktemp(release)))


def scores(dataset: Any, **options: Any) -> list[float]:
    query = {"query": "word3 other1", "columns": ["words"]}
    table = dataset.to_table(columns=["_score"], full_text_query=query, **options)
    values: list[float] = table["_score"].to_pylist()
    return values


@pytest.mark.sample(5)
@pytest.mark.parametrize("fixture", INDEXED, ids=str)
def test_indexes_of_releases(fixture: Fixture, releases: Unpack) -> None:
    path = fixture.path(releases)
    dataset = lance_spark.open_dataset(path)
    result = scores(dataset)
    # Each fifth row has word3, and each third row other1.
    texts = dataset.to_table(["words"])["words"].to_pylist()
    assert len(result) == sum("word3" in text or "other1" in text for text in texts) == 136
    if fixture.release in UNKNOWN:
        assert not scores(dataset, fast_search=True)
        return
    assert result == pytest.approx(scores(lance.dataset(path)), rel=1e-6)
    fast = scores(dataset, fast_search=True)
    assert fast == pytest.approx(scores(lance.dataset(path), fast_search=True), rel=1e-6)
    names = [index.name for index in dataset.describe_indices() if index.index_type == "Inverted"]
    assert [dataset.check_index(name).is_valid for name in names] == [True]


@pytest.mark.parametrize(
    "fixture", [fixture for fixture in INDEXED if fixture.release in FIRST], ids=str
)
def test_first_format(fixture: Fixture, tmp_path: Path) -> None:
    """An index of the first format has phrases, and is extended in the present format."""
    path = fixture.path(lambda release: unpack(release, tmp_path))
    phrase = "word3 other1"
    dataset = lance_spark.open_dataset(path)
    # pylance does not use these positions.
    rows = rows_of(dataset, q.PhraseQuery(phrase, "words"))
    texts = dataset.to_table(["words"])["words"].to_pylist()
    assert rows == sorted(text for text in texts if phrase in text) != []
    dataset = lance_spark.write_dataset(dataset.to_table(limit=20), path, mode="append")
    before = scores(dataset)
    dataset = dataset.optimize_indices()
    assert len(scores(lance.dataset(path), fast_search=True)) == len(before)
    assert scores(dataset) == pytest.approx(scores(lance.dataset(path)), rel=1e-6)
    names = [index.name for index in dataset.describe_indices() if index.index_type == "Inverted"]
    assert [dataset.check_index(name).is_valid for name in names] == [True]
    query = oracle.PhraseQuery(phrase, "words")
    texts = dataset.to_table(["words"])["words"].to_pylist()
    assert rows_of(lance.dataset(path), query) == sorted(text for text in texts if phrase in text)


def rows_of(dataset: Any, query: Any) -> list[str]:
    texts: list[str] = dataset.to_table(["words"], full_text_query=query)["words"].to_pylist()
    return sorted(texts)
