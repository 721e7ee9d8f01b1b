"""Columns that are searched as one: the rows and scores of pylance."""

from __future__ import annotations

import inspect
import random
from enum import Enum
from pathlib import Path
from typing import Any

import lance
import lance.query
import pyarrow as pa
import pytest

import lance_spark
import lance_spark.query as query_module
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.indexes.text.queries import (
    BooleanQuery,
    CombinedFieldsQuery,
    MatchQuery,
    Occur,
    PhraseQuery,
    query_of_json,
    query_to_json,
)
from tests.interop.text.tables import (
    change,
    oracle_scores,
    own_scores,
    read_tasks,
    rows,
    tasks_of,
    vocabulary,
    write_indexed,
)

QUERIES = 12


def random_query(rng: random.Random, words: list[str], columns: list[str]) -> CombinedFieldsQuery:
    return CombinedFieldsQuery(
        " ".join(rng.choice(words) for _ in range(rng.randrange(1, 5))),
        rng.sample(columns, rng.randrange(1, len(columns) + 1)),
        boosts=None,
        operator=rng.choice(["AND", "OR"]),  # type: ignore[arg-type]
    )


def check(path: Path, query: Any, **options: Any) -> None:
    expected, scores = oracle_scores(path, query, **options), own_scores(path, query, **options)
    assert scores.keys() == expected.keys(), query
    assert scores == pytest.approx(expected, rel=3e-6, abs=1e-5)


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("stable_row_ids", "merge", "compacted"),
    [(False, None, False), (False, 0, True), (True, 0, False), (True, 1, True)],
)
def test_scores(stable_row_ids: bool, merge: int | None, compacted: bool, tmp_path: Path) -> None:
    rng = random.Random(str((stable_row_ids, merge, compacted)))
    words, path = vocabulary(rng), tmp_path / "t.lance"
    write_indexed(path, rng, words, stable_row_ids=stable_row_ids)
    dataset = lance_spark.open_dataset(str(path))
    for number in range(QUERIES):
        if number == 4 and stable_row_ids:
            # pylance finds updated rows with stable row ids by their old texts, too.
            lance.write_dataset(rows(rng, 3000, 900, words), str(path), mode="append")
        elif number == 4:
            change(path, rng, words, merge)
        if number == 8 and compacted:
            lance.dataset(str(path)).optimize.compact_files(target_rows_per_fragment=900)
        query = random_query(rng, words, ["s", "t"])
        boosts = [rng.choice([1, 1.5, 3.0]) for _ in query.columns]
        query = CombinedFieldsQuery(query.query, query.columns, boosts, query.operator)
        for options in ({}, {"filter": "id % 3 = 0"}, {"fast_search": True}):
            check(path, query, **options)
        assert query_of_json(query_to_json(query)) == query
        # Scores of the shares of a search by tasks.
        dataset = lance_spark.open_dataset(str(path))
        expected = own_scores(path, query)
        assert read_tasks(tasks_of(dataset, query, 1)) == pytest.approx(expected, rel=1e-6)


def test_columns_without_an_index(tmp_path: Path) -> None:
    rng = random.Random(4)
    words, path = vocabulary(rng), tmp_path / "t.lance"
    write_indexed(path, rng, words, stable_row_ids=False)
    for _ in range(QUERIES):
        query = random_query(rng, words, ["s", "t", "u"])
        if set(query.columns) == {"u"}:
            with pytest.raises(InvalidInputError, match="needs an INVERTED index of one of"):
                own_scores(path, query)
            continue
        check(path, query)
        check(path, query, fast_search=True)
    # The indexes cover other fragments.
    lance.write_dataset(rows(rng, 3000, 400, words), str(path), mode="append")
    lance.dataset(str(path)).optimize.optimize_indices(index_names=["s_idx"])
    for _ in range(QUERIES):
        query = random_query(rng, words, ["s", "t"])
        check(path, query)
        check(path, query, fast_search=True)
    query = CombinedFieldsQuery("the cats", ["s", "t"])
    both = BooleanQuery([(Occur.SHOULD, query), (Occur.SHOULD, MatchQuery("the", "s"))])
    check(path, both)
    with pytest.raises(UnsupportedFeatureError, match="needs an index of all rows"):
        own_scores(path, both, filter="id > 7")


def test_queries_that_are_refused(tmp_path: Path) -> None:
    table = pa.table({"a": ["x y"], "b": ["x z"], "c": ["x"]})
    dataset = lance_spark.write_dataset(table, str(tmp_path / "t"), mode="create")
    dataset = dataset.create_scalar_index("a", "INVERTED")
    dataset = dataset.create_scalar_index("b", "INVERTED", lower_case=False)
    with pytest.raises(InvalidInputError, match="'a' and 'b' split text differently"):
        dataset.to_table(full_text_query=CombinedFieldsQuery("x", ["a", "b"]))
    query = BooleanQuery(
        [(Occur.MUST, CombinedFieldsQuery("x", ["a", "c"])), (Occur.MUST, MatchQuery("x", "c"))]
    )
    with pytest.raises(UnsupportedFeatureError, match="'c' has no INVERTED index"):
        dataset.to_table(full_text_query=query)
    for boosts in ([0.5, 1], [1], [1, 2e9]):
        with pytest.raises(InvalidInputError, match="boost"):
            CombinedFieldsQuery("x", ["a", "b"], boosts)
    with pytest.raises(InvalidInputError, match="must be distinct"):
        CombinedFieldsQuery("x", ["a", "a"])


def test_the_classes_and_parameters_of_pylance() -> None:
    """Each class of queries and parameter of pylance is here, but for those of other searches."""
    for name, oracle in vars(lance.query).items():
        if not isinstance(oracle, type) or oracle.__module__ != lance.query.__name__:
            continue
        if name in ("FullTextQueryType", "MinHashQuery"):
            continue
        own = getattr(query_module, name)
        if issubclass(own, Enum):
            assert [member.value for member in own] == [member.value for member in oracle], name
        elif name != "FullTextQuery":
            expected = list(inspect.signature(oracle).parameters)
            assert list(inspect.signature(own).parameters) == expected, name
    for make in (MatchQuery, PhraseQuery):
        assert make("x", "a", document_granularity="row") == make("x", "a")  # type: ignore[operator]
        with pytest.raises(UnsupportedFeatureError, match="columns of lists are not searched"):
            make("x", "a", document_granularity="list_element")  # type: ignore[operator]
        with pytest.raises(InvalidInputError, match="document_granularity must be one of"):
            make("x", "a", document_granularity="word")  # type: ignore[operator]
