"""INVERTED indexes of lists of strings and of JSON: both clients search the index of the other."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from lance.query import DocumentGranularity, MatchQuery

import lance_spark
from lance_spark import query as own
from lance_spark.errors import (
    CorruptFileError,
    InvalidInputError,
    UnsupportedEncodingError,
    UnsupportedFeatureError,
    UnsupportedTypeError,
)
from lance_spark.json import jsonb
from lance_spark.json.search import Leaves
from tests.interop.text.tables import of_oracle

TABLES, QUERIES = 12, 12
WORDS = ["quick", "fox", "the", "dogs", "running", "Ünïcode", "a", "x-ray", "lazy", "3"]
TOKENIZERS = ["simple", "whitespace", "raw", "ngram"]


def _text(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(5)))


def _list(rng: random.Random) -> list[str | None] | None:
    if rng.random() < 0.1:
        return None
    return [None if rng.random() < 0.1 else _text(rng) for _ in range(rng.randrange(4))]


def _value(rng: random.Random, depth: int = 0) -> Any:
    match rng.randrange(8 if depth < 4 else 6):
        case 0:
            return None
        case 1:
            return rng.choice([True, False])
        case 2:
            return rng.choice([0, 1, -5, 2**40, 2**64 - 1, 1.5, 1e20, 1e-5, -0.0])
        case 3 | 4 | 5:
            return _text(rng)
        case 6:
            return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
        case _:
            keys = rng.sample(["a", "b", "c d", "ü", ""], rng.randrange(4))
            return {key: _value(rng, depth + 1) for key in keys}


def _document(rng: random.Random) -> str | None:
    if rng.random() < 0.1:
        return None
    value = {"a": _value(rng), "b": _value(rng)} if rng.random() < 0.8 else _value(rng)
    return json.dumps(value)


def _rows(rng: random.Random, first: int, count: int) -> pa.Table:
    list_type = rng.choice([pa.list_(pa.string()), pa.large_list(pa.large_string())])
    return pa.table(
        {
            "id": range(first, first + count),
            "l": pa.array([_list(rng) for _ in range(count)], list_type),
            "j": pa.array([_document(rng) for _ in range(count)], pa.json_()),
        }
    )


def _query(rng: random.Random, column: str) -> own.FullTextQuery:
    text = _text(rng) or "fox"
    if column == "j":
        parts = [
            f"{rng.choice(['a', 'b', 'a.a', 'b.ü', ''])},str,{text}",
            f"{rng.choice(['a', 'b.a'])},number,{rng.choice(['1', '1.5', '1e20', '-5', '0'])}",
            "a,bool,true",
            "b,null,null",
        ]
        text = ";".join(rng.sample(parts, rng.randrange(1, 3)))
    match rng.randrange(4):
        case 0:
            return own.PhraseQuery(text, column)
        case 1:
            return own.MatchQuery(text, column, fuzziness=1)
        case 2:
            return own.MatchQuery(text, column, operator=own.FullTextOperator.AND)
        case _:
            return own.MatchQuery(text, column)


def _scores(dataset: Any, query: Any) -> dict[int, float]:
    rows = dataset.to_table(columns=["id", "_score"], full_text_query=query)
    return dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True))


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", range(TABLES))
def test_random_documents(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    rows = _rows(rng, 0, rng.randrange(1, 60))
    # The second table is as the first.
    more = pa.Table.from_pylist(
        _rows(rng, 100, rng.randrange(1, 20)).to_pylist(), schema=rows.schema
    )
    version = rng.choice(["2.0", "2.1", "2.2"])
    options = {
        "with_position": True,
        "stem": rng.random() < 0.5,
        "remove_stop_words": rng.random() < 0.5,
        "base_tokenizer": rng.choice(TOKENIZERS),
    }
    paths = [str(tmp_path / "own.lance"), str(tmp_path / "oracle.lance")]
    for path, client in zip(paths, (lance_spark.open_dataset, lance.dataset), strict=True):
        lance.write_dataset(
            rows, path, data_storage_version=version, enable_stable_row_ids=seed % 3 == 0
        )
        for column in "lj":
            client(path).create_scalar_index(column, "INVERTED", **options)
        if seed % 4:
            lance.write_dataset(more, path, mode="append")
        lance.dataset(path).delete("id % 7 = 3")
    if seed % 4 == 1:
        lance_spark.open_dataset(paths[0]).optimize_indices()
        lance.dataset(paths[1]).optimize.optimize_indices()
    for column in "lj":
        assert lance_spark.open_dataset(paths[0]).check_index(f"{column}_idx").is_valid
    for _ in range(QUERIES):
        query = _query(rng, rng.choice("lj"))
        expected = pytest.approx(_scores(lance.dataset(paths[1]), of_oracle(query)), abs=2e-5)
        assert _scores(lance.dataset(paths[0]), of_oracle(query)) == expected, query
        for path in paths:
            assert _scores(lance_spark.open_dataset(path), query) == expected, query


@pytest.mark.parametrize("column", ["l", "j"])
def test_files_as_of_pylance(column: str, tmp_path: Path) -> None:
    """What a segment says about itself."""
    contents = []
    for name, client in (("own", lance_spark.open_dataset), ("oracle", lance.dataset)):
        path = tmp_path / name
        lance.write_dataset(_rows(random.Random(1), 0, 20), str(path))
        client(str(path)).create_scalar_index(column, "INVERTED")
        (details,) = lance.dataset(str(path)).describe_indices()
        (metadata,) = path.glob("_indices/*/metadata.lance")
        content = dict(LanceFileReader(str(metadata)).metadata().schema.metadata)
        parameters = json.loads(content.pop(b"params"))
        contents.append((details.type_url, details.details, parameters, content))
    assert contents[0] == contents[1]


def test_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    rows = _rows(random.Random(2), 0, 20)
    rows = rows.append_column("n", pa.array([[["a"]]] * 20, pa.list_(pa.list_(pa.string()))))
    lance.write_dataset(rows, path)
    dataset = lance_spark.open_dataset(path)
    with pytest.raises(UnsupportedTypeError, match="'n'"):
        dataset.create_scalar_index("n", "INVERTED")
    dataset = dataset.create_scalar_index("j", "INVERTED")
    for text in ("fox", "a,str", "a,text,fox", "a,str,fox;"):
        with pytest.raises(InvalidInputError, match="must be path,type,value"):
            dataset.to_table(full_text_query=own.MatchQuery(text, "j"))


def test_documents_of_items(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An index with a document for each item is neither searched nor merged."""
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"l": [["a fox", "dog"], ["fox"]]}), path)
    lance.dataset(path).create_scalar_index(
        "l", "INVERTED", name="of_items", document_granularity=DocumentGranularity.LIST_ELEMENT
    )
    lance.write_dataset(pa.table({"l": [["fox"]]}), path, mode="append")
    dataset = lance_spark.open_dataset(path)
    for change in (
        lambda: dataset.to_table(full_text_query=own.MatchQuery("fox", "l")),
        lambda: dataset.optimize_indices(["of_items"]),
        lambda: dataset.check_index("of_items"),
    ):
        with pytest.raises(UnsupportedFeatureError, match="'of_items' has a document for each"):
            change()
    assert dataset.optimize_indices().version == dataset.version
    assert "'of_items' stays as it is" in caplog.text
    theirs = lance.dataset(path)
    assert theirs.version == dataset.version
    assert theirs.to_table(full_text_query=MatchQuery("fox", "l")).num_rows == 3


def _flattened(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of a value, with their paths."""
    if isinstance(value, list):
        return [leaf for item in value for leaf in _flattened(item, path)]
    if isinstance(value, dict):
        keys = sorted(value, key=str.encode)
        return [
            leaf
            for key in keys
            for leaf in _flattened(value[key], f"{path}.{key}" if path else key)
        ]
    return [(path, value)]


def test_leaves() -> None:
    rng = random.Random(3)
    texts = [_document(rng) for _ in range(2000)]
    documents = jsonb.to_jsonb(pa.array(texts, pa.string()))
    expected = [
        (row, path, value if isinstance(value, str) else jsonb.value_text(value))
        for row, text in enumerate(texts)
        if text is not None
        for path, value in _flattened(json.loads(text))
    ]
    for first in (0, 7):
        leaves = Leaves.of(documents.slice(first))
        values = zip(leaves.strings().to_pylist(), leaves.texts().to_pylist(), strict=True)
        assert [
            (row + first, leaves.names[path], text if other is None else other)
            for row, path, (text, other) in zip(
                leaves.rows.tolist(), leaves.paths.tolist(), values, strict=True
            )
        ] == [leaf for leaf in expected if leaf[0] >= first]


def test_damaged_leaves() -> None:
    """Leaves of changed bytes are those of the text, or an error."""
    rng = random.Random(4)
    document = jsonb.encode(json.dumps({"a": [1, "x", {"b": 2.5}], "c": None, "d": [[], {}]}))
    errors = 0
    for _ in range(2000):
        changed = bytearray(document)
        for _ in range(rng.randrange(1, 3)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        data = bytes(changed[: rng.choice([len(changed), rng.randrange(len(changed) + 1)])])
        try:
            text = jsonb.decode(data)
            value = json.loads(text)
        except (CorruptFileError, UnsupportedEncodingError):
            text = None
        try:
            leaves = Leaves.of(pa.array([data], pa.large_binary()))
            strings, others = leaves.strings().to_pylist(), leaves.texts().to_pylist()
        except (CorruptFileError, UnsupportedEncodingError):
            errors += 1
            assert text is None
            continue
        assert text is not None
        paths = [leaves.names[path] for path in leaves.paths.tolist()]
        result = [
            text if other is None else other for text, other in zip(strings, others, strict=True)
        ]
        assert sorted(zip(paths, result, strict=True)) == sorted(
            (path, leaf if isinstance(leaf, str) else jsonb.value_text(leaf))
            for path, leaf in _flattened(value)
        )
    assert 100 < errors < 2000
