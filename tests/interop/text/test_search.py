"""Full-text search in indexes of pylance: the rows and scores of pylance."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark import query as q
from lance_spark.errors import InvalidInputError, LanceError, UnsupportedFeatureError
from tests.interop.text.tables import (
    change,
    of_oracle,
    oracle_scores,
    own_scores,
    random_query,
    rows,
    vocabulary,
)
from tests.support.cells import number_of

QUERIES = number_of(10, 25)
#: Stable row ids, file version, segments after a change (see `change`), options of the index.
CASES: list[tuple[bool, str, int | None, dict[str, Any]]] = [
    (False, "2.1", 0, {}),
    (True, "2.2", 0, {}),
    (False, "2.0", 1, {"stem": False, "remove_stop_words": False, "format_version": 1}),
    (True, "2.2", 1, {"format_version": 3, "block_size": 256}),
    (False, "2.2", None, {"base_tokenizer": "whitespace", "lower_case": False}),
    (False, "2.2", 0, {"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 3}),
    (False, "2.2", 0, {"base_tokenizer": "raw", "max_token_length": None}),
]


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_random_queries(case: tuple[bool, str, int | None, dict[str, Any]], tmp_path: Path) -> None:
    stable_row_ids, version, merge, options = case
    rng = random.Random(str(case))
    words, path = vocabulary(rng), tmp_path / "t.lance"
    dataset = lance.write_dataset(
        rows(rng, 0, 3000, words),
        str(path),
        max_rows_per_file=1000,
        data_storage_version=version,
        enable_stable_row_ids=stable_row_ids,
    )
    for column in "st":
        dataset.create_scalar_index(column, "INVERTED", with_position=True, **options)
    change(path, rng, words, merge)
    for _ in range(QUERIES):
        query = random_query(rng, words)
        arguments: dict[str, Any] = rng.choice(
            [{}, {}, {"filter": "id % 3 = 0"}, {"fast_search": True}]
        )
        expected = oracle_scores(path, query, **arguments)
        assert own_scores(path, query, **arguments) == pytest.approx(
            expected, rel=3e-6, abs=1e-5
        ), query


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "t.lance"
    table = pa.table(
        {
            "id": range(6),
            "a": ["hello world", "hello hello foo", None, "", "world of hello", "x y x y z"],
            "b": ["x", "hello world", "hello", "y", None, "z"],
            "c": ["hello"] * 6,
            "st": [{"text": f"hello w{number}"} for number in range(6)],
        }
    )
    dataset = lance.write_dataset(table, str(path), max_rows_per_file=3)
    dataset.create_scalar_index(
        "a", "INVERTED", with_position=True, stem=False, remove_stop_words=False
    )
    dataset.create_scalar_index("b", "INVERTED")
    return path


@pytest.mark.parametrize(
    "query",
    [
        "hello",
        "hello world",
        "nothing",
        "",
        "!?",
        {"query": "hello"},
        {"query": "hello", "columns": ["a"]},
        {"query": "hello", "columns": ["a", "c"]},
        {"query": '"hello world"', "columns": ["a"]},
        {"query": q.MatchQuery("hello", "b")},
        q.MatchQuery("hello", "c"),
        q.MatchQuery("HELLO", "c"),
        q.MatchQuery("w3 hello", "st.text"),
        q.PhraseQuery("hello w3", "st.text"),
        q.PhraseQuery("x y x", "a", slop=1),
        q.MatchQuery("hello", "a", boost=0.0),
        q.MatchQuery("hello", "a") & q.MatchQuery("world", "b"),
        q.MatchQuery("hello", "a") | q.MatchQuery("hello", "b"),
    ],
    ids=str,
)
def test_forms_of_queries(path: Path, query: Any) -> None:
    oracle_query = query
    if isinstance(query, dict) and isinstance(query["query"], q.FullTextQuery):
        oracle_query = query["query"]
    assert own_scores(path, query) == pytest.approx(oracle_scores(path, oracle_query), rel=1e-6)


def test_columns_and_limits(path: Path) -> None:
    dataset, oracle = lance_spark.open_dataset(str(path)), lance.dataset(str(path))
    for arguments in (
        {},
        {"with_row_id": True, "with_row_address": True},
        {"columns": ["_score", "id"]},
    ):
        read = dataset.to_table(full_text_query="hello", **arguments)
        assert (
            read.schema.names == oracle.to_table(full_text_query="hello", **arguments).schema.names
        )
    only = dataset.to_table(["_score"], full_text_query="hello")
    assert only.num_rows == 4
    assert dataset.to_table(["id"], full_text_query="nothing").schema.names == ["id", "_score"]
    for limit in (0, 1, 2, 100):
        best = own_scores(path, "hello world", limit=limit)
        assert len(best) == min(limit, 4)
        expected = sorted(oracle_scores(path, "hello world").values(), reverse=True)[:limit]
        assert list(best.values()) == pytest.approx(expected)
    batches = list(dataset.to_batches(["id"], batch_size=2, full_text_query="hello"))
    assert [batch.num_rows for batch in batches] == [2, 2]
    assert dataset.to_table(["id"], limit=4)["id"].to_pylist() == [0, 1, 2, 3]
    assert dataset.to_table(["id"], limit=0).num_rows == 0
    assert dataset.to_table(["id"], limit=2, filter="id > 1")["id"].to_pylist() == [2, 3]
    with pytest.raises(InvalidInputError, match="limit"):
        dataset.to_table(full_text_query="hello", limit=-1)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ('"hello world"', "name one of a, b"),
        ({"query": "x", "column": "a"}, "must have the keys query and columns"),
        ({"columns": ["a"]}, "must have the keys query and columns"),
        ({"query": "x", "columns": "a"}, "a list of columns, not a string"),
        (5, "query must be a string, not 5"),
        (q.MatchQuery("x", "id"), "column 'id' of type int64 is not text"),
        (q.MatchQuery("x", "nope"), "nope"),
        (q.PhraseQuery("hello world", "b"), "the index has no positions"),
    ],
)
def test_wrong_queries(path: Path, query: Any, message: str) -> None:
    with pytest.raises(LanceError, match=message):
        own_scores(path, query)


def test_a_table_without_indexes(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"id": [0, 1], "a": ["b c", "B"]}), str(path))
    with pytest.raises(InvalidInputError, match="no column has an INVERTED index"):
        own_scores(path, "b")
    assert own_scores(path, {"query": "b", "columns": ["a"]}) == pytest.approx(
        oracle_scores(path, {"query": "b", "columns": ["a"]})
    )
    assert own_scores(path, {"query": "b", "columns": ["a"]}, fast_search=True) == {}


@pytest.mark.parametrize("is_indexed", [False, True])
def test_filters_after_the_search(is_indexed: bool, tmp_path: Path) -> None:
    rng = random.Random(7)
    words, path = vocabulary(rng)[:200], tmp_path / "t.lance"
    dataset = lance.write_dataset(rows(rng, 0, 300, words), str(path), max_rows_per_file=100)
    if is_indexed:
        dataset.create_scalar_index("s", "INVERTED")
    dataset, oracle = lance_spark.open_dataset(str(path)), lance.dataset(str(path))
    query = q.MatchQuery(" ".join(words[::40]), "s")
    every = dataset.to_table(["id"], full_text_query=query)
    for limit, offset in ((None, 0), (40, 0), (30, 5)):
        options: dict[str, Any] = {"prefilter": False, "filter": "id % 3 = 0"}
        if limit is not None:
            options.update(limit=limit, offset=offset)
        table = dataset.to_table(["id"], full_text_query=query, **options)
        best = every.slice(0, None if limit is None else limit + offset)
        kept = [row for row in best.to_pylist() if row["id"] % 3 == 0][offset:]
        assert table.to_pylist() == kept
        expected = oracle.to_table(
            columns=["id", "_score"], full_text_query=of_oracle(query), **options
        )
        assert abs(expected.num_rows - len(kept)) <= 2  # Rows with equal scores.
        if limit is None:
            assert _scores_of(table) == pytest.approx(_scores_of(expected), rel=3e-6)


def _scores_of(table: pa.Table) -> dict[int, float]:
    return dict(zip(table["id"].to_pylist(), table["_score"].to_pylist(), strict=True))


@pytest.mark.parametrize("names", [("z", "a"), ("a", "z")])
@pytest.mark.parametrize("options", [{}, {"stem": False}], ids=str)
def test_several_indexes_of_a_column(
    names: tuple[str, str], options: dict[str, Any], tmp_path: Path
) -> None:
    """The first one is searched."""
    path = tmp_path / "t.lance"
    texts = ["running cats", "run", "a cat", "runs run", "cat and dog"]
    dataset = lance.write_dataset(pa.table({"id": range(5), "s": texts}), str(path))
    dataset.create_scalar_index("s", "INVERTED", name=names[0])
    lance.write_dataset(
        pa.table({"id": [5, 6], "s": ["run cat", "dogs"]}), str(path), mode="append"
    )
    dataset = lance_spark.open_dataset(str(path))
    dataset.create_scalar_index("s", "INVERTED", name=names[1], **options)
    for query in ("running", "cats dog"):
        for fast_search in (False, True):
            found = own_scores(path, query, fast_search=fast_search)
            expected = oracle_scores(path, query, fast_search=fast_search)
            assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("train", [True, False])
def test_tables_without_text(tmp_path: Path, train: bool) -> None:
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(
        pa.table({"id": [0, 1, 2], "a": pa.array([None, "", None], pa.string())}), str(path)
    )
    dataset.create_scalar_index("a", "INVERTED", train=train)
    assert own_scores(path, "b") == {}
    lance.write_dataset(pa.table({"id": [3], "a": ["b c"]}), str(path), mode="append")
    assert own_scores(path, "b") == pytest.approx(oracle_scores(path, "b"))


def test_other_tokenizers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    dataset = lance.write_dataset(pa.table({"id": [0], "a": ["b c"]}), str(path))
    dataset.create_scalar_index("a", "INVERTED", base_tokenizer="icu")
    with pytest.raises(UnsupportedFeatureError, match="the tokenizer 'icu' is not supported"):
        own_scores(path, "b")
