"""INVERTED indexes of this package: pylance uses them, with the scores of its own indexes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

import lance_spark
from lance_spark import query as q
from lance_spark.errors import InvalidOptionError, UnsupportedTypeError
from lance_spark.indexes.text import build, tokenizer, writer
from tests.interop.text.tables import (
    change,
    of_oracle,
    oracle_scores,
    own_scores,
    random_query,
    rows,
    vocabulary,
)

QUERIES = 10
#: Stable row ids, file version, segments after a change, number of segments, options.
CASES: list[tuple[bool, str, int | None, int, dict[str, Any]]] = [
    (False, "2.1", 0, 1, {}),
    (True, "2.2", 1, 1, {"remove_stop_words": False}),
    (False, "2.0", None, 3, {"stem": False, "custom_stop_words": ["abc", "the"]}),
    (False, "2.2", None, 2, {"base_tokenizer": "whitespace", "lower_case": False}),
    (
        True,
        "2.2",
        None,
        1,
        {"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 3},
    ),
    (False, "2.2", None, 1, {"base_tokenizer": "raw", "max_token_length": None}),
    (False, "2.2", 1, 2, {"analyzer": "code"}),
]

#: Values of options of pylance that this release does not write.
REFUSED: list[dict[str, Any]] = [
    {"format_version": 1},
    {"format_version": "v4"},
    {"format_version": True},
    {"base_tokenizer": "code", "format_version": 2},
    {"block_size": 256},
    {"document_granularity": "list_element"},
    {"memory_limit": 0},
    {"num_workers": 1.5},
    {"skip_merge": True},
    {"lance_tokenizer": "json"},
]


def close(scores: dict[int, float]) -> Any:
    return pytest.approx(scores, rel=3e-6, abs=1e-5)


@pytest.mark.sample(6)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_both_clients_use_an_index(
    case: tuple[bool, str, int | None, int, dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stable_row_ids, version, merge, num_segments, options = case
    rng = random.Random(str(case))
    words, path, other = vocabulary(rng), tmp_path / "t.lance", tmp_path / "other.lance"
    table = rows(rng, 0, 1500, words)
    if num_segments > 1:
        monkeypatch.setattr(build, "DEFAULT_MEMORY", 50_000)
        monkeypatch.setattr(tokenizer, "STEP_BYTES", 5_000)
    for target in (path, other):
        lance.write_dataset(
            table,
            str(target),
            max_rows_per_file=500,
            data_storage_version=version,
            enable_stable_row_ids=stable_row_ids,
        )
    for column in "st":
        arguments = {"with_position": True, **options}
        lance_spark.open_dataset(str(path)).create_scalar_index(
            column, "INVERTED", num_segments=num_segments, **arguments
        )
        lance.dataset(str(other)).create_scalar_index(column, "INVERTED", **arguments)
    parts = list(path.glob("_indices/*/part_*_docs.lance"))
    assert len(parts) == 2 if num_segments == 1 else len(parts) > 2 * num_segments
    for _ in range(QUERIES):
        query = random_query(rng, words)
        if '"u"' not in str(query) and "'u'" not in str(query):
            assert oracle_scores(path, query) == close(oracle_scores(other, query)), query
            # The order of equal scores is not defined.
            best = sorted(oracle_scores(path, query, limit=5).values())
            assert best == pytest.approx(
                sorted(oracle_scores(other, query, limit=5).values()), rel=3e-6
            )
    plan = (
        lance.dataset(str(path))
        .scanner(full_text_query=of_oracle(q.MatchQuery("abc", "s")))
        .explain_plan()
    )
    assert "MatchQuery: column=s" in plan
    assert "FlatMatchQuery" not in plan
    state = rng.getstate()
    change(path, rng, words, merge)
    rng.setstate(state)
    for _ in range(QUERIES):
        query = random_query(rng, words)
        arguments = rng.choice([{}, {}, {"filter": "id % 3 = 0"}, {"fast_search": True}])
        assert own_scores(path, query, **arguments) == close(
            oracle_scores(path, query, **arguments)
        ), query


@pytest.mark.parametrize("with_position", [False, True])
def test_files_are_those_of_pylance(
    tmp_path: Path, with_position: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CHUNK_TOKENS", 10_000)
    rng = random.Random(4)
    # Frequent words, and texts of thousands of tokens: all kinds of blocks.
    words = [f"w{int(rng.paretovariate(1.0))}" for _ in range(60_000)]
    texts = [
        " ".join(rng.sample(words, 3000 if row % 100 == 0 else rng.randrange(40)))
        for row in range(1500)
    ]
    texts += ["same " * 700, *(["once"] * 128), "", None]
    contents = []
    for name in ("own", "pylance"):
        path = tmp_path / name
        dataset = lance.write_dataset(pa.table({"s": texts}), str(path))
        if name == "own":
            lance_spark.open_dataset(str(path)).create_scalar_index(
                "s", "INVERTED", with_position=with_position
            )
        else:
            dataset.create_scalar_index("s", "INVERTED", with_position=with_position)
        tables = {}
        for part in ("docs", "invert", "tokens", "metadata"):
            (file,) = path.glob(f"_indices/*/{'' if part == 'metadata' else 'part_0_'}{part}.lance")
            reader = LanceFileReader(str(file))
            tables[part] = reader.read_all().to_table(), reader.metadata().schema
        contents.append(tables)
    (own_docs, own_schema), (docs, schema) = (content["docs"] for content in contents)
    assert own_docs == docs
    assert own_schema.equals(schema, check_metadata=True)
    (own_tokens, own_schema), (tokens, schema) = (content["tokens"] for content in contents)
    assert own_schema.equals(schema, check_metadata=True)
    # The clients write different graphs of the same tokens.
    names = ["_token_next_id", "_token_total_length"]
    assert own_tokens.select(names) == tokens.select(names)
    (own_table, own_schema), (table, schema) = (content["metadata"] for content in contents)
    assert own_table == table
    own_metadata, metadata = dict(own_schema.metadata), dict(schema.metadata)
    assert json.loads(own_metadata.pop(b"params")) == json.loads(metadata.pop(b"params"))
    assert own_metadata == metadata
    (own_lists, own_schema), (lists, schema) = (content["invert"] for content in contents)
    assert own_schema.equals(schema)
    assert own_schema.metadata == schema.metadata
    # Clients number tokens in different orders.
    exact = [name for name in own_lists.column_names if name not in ("_posting", "_max_score")]

    def key(row: dict[str, Any]) -> Any:
        # The scores of blocks may differ in their last bits.
        return [row[name] for name in exact], [block[4:] for block in row["_posting"]]

    assert sorted(map(key, own_lists.to_pylist())) == sorted(map(key, lists.to_pylist()))
    assert sorted(own_lists["_max_score"].to_pylist()) == pytest.approx(
        sorted(lists["_max_score"].to_pylist())
    )


@pytest.mark.parametrize("train", [True, False])
def test_tables_without_text(tmp_path: Path, train: bool) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(
        pa.table({"id": [0, 1, 2], "a": pa.array([None, "", None], pa.string())}), str(path)
    )
    lance_spark.open_dataset(str(path)).create_scalar_index("a", "INVERTED", train=train)
    assert own_scores(path, "b") == oracle_scores(path, "b") == {}
    dataset = lance.write_dataset(pa.table({"id": [3], "a": ["B c"]}), str(path), mode="append")
    assert own_scores(path, "b") == pytest.approx(oracle_scores(path, "b"))
    dataset.optimize.optimize_indices()
    assert own_scores(path, "b") == pytest.approx(oracle_scores(path, "b"))


def test_wrong_columns_and_options(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(
        pa.table({"a": ["b"], "n": [1], "l": [[1]], "d": pa.array(["b"]).dictionary_encode()}),
        str(path),
    )
    dataset = lance_spark.open_dataset(str(path))
    for column in "nld":
        with pytest.raises(UnsupportedTypeError, match=f"does not take column '{column}'"):
            dataset.create_scalar_index(column, "INVERTED")
    for options in ({"base_tokenizer": "icu"}, {"zone_size": 1}, {"stem": "yes"}, *REFUSED):
        with pytest.raises(InvalidOptionError, match="INVERTED index"):
            dataset.create_scalar_index("a", "INVERTED", **options)
    assert not list((path / "_indices").glob("*"))
