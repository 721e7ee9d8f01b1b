"""JSON indexes: built here and used by pylance, built by pylance and used here."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.indices import IndexConfig

import lance_spark
from lance_spark.errors import InvalidInputError, InvalidOptionError, UnsupportedFeatureError
from lance_spark.indexes import builds
from lance_spark.mutations.commits import commit_operation
from lance_spark.proto import table_pb2
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.indexes.sections import section_of
from lance_spark.table.operations.indexes import CreateIndex
from tests.support.cells import every_other

ROWS = 900
#: Path and target of each index, and the conditions that it answers.
CASES: dict[tuple[str, str], list[str]] = {
    ("i", "BTREE"): ["json_get_int(js, 'i') = 3", "json_get_int(js, 'i') BETWEEN 3 AND 4"],
    ("$.i", "BITMAP"): ["json_get_int(js, 'i') IN (3, 4, 99)", "json_get_int(js, 'i') <> 7"],
    ("i", "ZONEMAP"): ["json_get_int(js, 'i') > 1000", "1000 < json_get_int(js, 'i')"],
    ("s", "BTREE"): [
        "json_get_string(js, 's') = 'word 7'",
        "json_get_string(js, 's') LIKE 'word 9%'",
    ],
    ("s", "NGRAM"): ["contains(json_get_string(js, 's'), 'word 77')"],
    ("f", "BTREE"): ["json_get_float(js, 'f') > 90.5", "json_get_float(js, 'f') = 0"],
    ("b", "BITMAP"): ["json_get_bool(js, 'b')", "json_get_bool(js, 'b') = true"],
    ("$.user.id", "BTREE"): ["json_get_int(json_get(js, 'user'), 'id') = 325"],
}
#: Conditions that have the same answers with every index.
OTHERS = [
    *("json_get_int(js, 'i') IS NULL", "json_get_int(js, 'i') IS NOT NULL AND id < 50"),
    *(
        "json_get_string(js, 's') IS NULL",
        "NOT json_get_bool(js, 'b')",
        "json_get_float(js, 'i') > 6",
    ),
    *("json_get_string(js, 'i') = '3'", "json_get_int(js, 'i') = 3 OR json_get_bool(js, 'b')"),
    *("json_extract(js, '$.i') = '3'", "json_get_int(js, '$.i') = 3"),
]


def document(k: int, rng: random.Random) -> str | None:
    if k % 17 == 3:
        return None
    if k % 17 == 4:
        return rng.choice(["{}", '{"i":null,"s":null,"f":null,"b":null,"user":null}', "[]"])
    number = 7 if k % 10 else rng.randint(-9, 9)
    return json.dumps(
        {
            "i": 5000 if k == 100 else number,
            "s": f"word {rng.randint(0, 99)}",
            "f": rng.choice([-0.0, 2.5, 0.5 * k / 4.5, float(k)]),
            "b": rng.random() < 0.02,
            "user": {"id": k, "tags": ["a"]},
        }
    )


def write(path: Path, **options: Any) -> None:
    rng = random.Random(4)
    rows = pa.table(
        {"id": range(ROWS), "js": pa.array([document(k, rng) for k in range(ROWS)], pa.json_())}
    )
    lance.write_dataset(rows, str(path), max_rows_per_file=300, **options)
    lance.dataset(str(path)).delete("id % 10 = 1")


def ids(table: pa.Table) -> list[int]:
    result: list[int] = sorted(table["id"].to_pylist())
    return result


def ours(path: Path, text: str, **options: Any) -> list[int]:
    return ids(lance_spark.open_dataset(str(path)).to_table(["id"], filter=text, **options))


def theirs(path: Path, text: str, **options: Any) -> list[int]:
    return ids(lance.dataset(str(path)).to_table(["id"], filter=text, **options))


def config(path: str, target: str) -> IndexConfig:
    return IndexConfig("json", {"path": path, "target_index_type": target.lower()})


def is_used(path: Path, text: str) -> bool:
    return "js_idx (JSON)" in lance_spark.open_dataset(str(path)).explain(filter=text)


@pytest.mark.sample(8)
@pytest.mark.parametrize("who", ["own", "pylance"])
@pytest.mark.parametrize(("json_path", "target"), CASES)
def test_answers(tmp_path: Path, who: str, json_path: str, target: str) -> None:
    path = tmp_path / "t.lance"
    write(path, data_storage_version="2.2" if target == "BTREE" else "2.0")
    if who == "own":
        lance_spark.open_dataset(str(path)).create_scalar_index(
            "js", lance_spark.IndexConfig("JSON", {"path": json_path, "target_index_type": target}),
            num_segments=2,
        )  # fmt: skip
    else:
        lance.dataset(str(path)).create_scalar_index("js", config(json_path, target))
    lance.dataset(str(path)).delete("id % 10 = 2")
    for step in range(3):
        for text in CASES[json_path, target]:
            rows = ours(path, text, use_scalar_index=False)
            assert theirs(path, text, use_scalar_index=False) == rows
            assert ours(path, text) == rows, text
            assert is_used(path, text), text
            # In pylance, the column is on the left, and the key is the text of the path.
            if json_path == "i" and text.startswith("json_"):
                assert theirs(path, text) == rows
                plan = lance.dataset(str(path)).scanner(filter=text).explain_plan()
                assert "ScalarIndexQuery" in plan
        for text in every_other(OTHERS, step):
            assert ours(path, text) == theirs(path, text, use_scalar_index=False), text
        check = lance_spark.open_dataset(str(path)).check_index("js_idx")
        assert check.is_valid, check.problems
        assert check.index_type == "Json"
        if step == 0:
            rows = lance.dataset(str(path)).to_table(limit=200)
            lance.write_dataset(rows, str(path), mode="append")
        else:
            lance_spark.open_dataset(str(path)).optimize_indices()
            (description,) = lance_spark.open_dataset(str(path)).describe_indices()
            assert description.num_rows_indexed == lance.dataset(str(path)).count_rows()


@pytest.mark.parametrize("target", ["BITMAP", "NGRAM", "ZONEMAP", "BLOOMFILTER", "BTREE"])
def test_details_are_those_of_pylance(tmp_path: Path, target: str) -> None:
    path = tmp_path / "t.lance"
    write(path)
    details = []
    for create in (lance.dataset, lance_spark.open_dataset):
        create(str(path)).create_scalar_index("js", config("s", target))
        (index,) = lance.dataset(str(path)).describe_indices()
        segment = lance_spark.open_dataset(str(path))._table
        details.append((index.type_url, index.details))
        assert segment.manifest.index_section is not None
    assert details[0] == details[1]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("json_path", "texts", "others"),
    [
        (
            "i",
            ["json_get_int(js, 'i') = 5000", "json_get_int(js, 'i') IN (5000, 12345678)"],
            ["json_get_string(js, 'i') = '5000'", "json_get_float(js, 'i') = 5000"],
        ),
        ("f", ["json_get_float(js, 'f') = 2.5", "json_get_float(js, 'f') = 0"], []),
        ("s", ["json_get_string(js, 's') = 'word 7'"], []),
        ("$.user.id", ["json_get_int(json_get(js, 'user'), 'id') = 325"], []),
    ],
)
def test_bloom_filters(tmp_path: Path, json_path: str, texts: list[str], others: list[str]) -> None:
    path = tmp_path / "t.lance"
    write(path)
    lance_spark.open_dataset(str(path)).create_scalar_index(
        "js",
        lance_spark.IndexConfig(
            "JSON",
            {
                "path": json_path,
                "target_index_type": "BLOOMFILTER",
                "target_index_parameters": {"number_of_items": 50},
            },
        ),
        num_segments=2,
    )
    lance.dataset(str(path)).delete("id % 10 = 2")
    for step in range(3):
        for text in texts:
            assert is_used(path, text), text
        for text in others:
            # Values of other types have other bytes.
            assert not is_used(path, text), text
        for text in (*texts, *others, *OTHERS):
            rows = theirs(path, text, use_scalar_index=False)
            assert ours(path, text) == rows, text
        assert lance_spark.open_dataset(str(path)).check_index("js_idx").is_valid
        if step == 0:
            rows = lance.dataset(str(path)).to_table(limit=200)
            lance.write_dataset(rows, str(path), mode="append")
        else:
            lance_spark.open_dataset(str(path)).optimize_indices()


def test_a_bloom_filter_of_pylance_is_not_asked(tmp_path: Path) -> None:
    # The file does not say whether the values were texts or numbers.
    path = tmp_path / "t.lance"
    write(path)
    lance.dataset(str(path)).create_scalar_index("js", config("i", "BLOOMFILTER"))
    text = "json_get_string(js, 'i') = '3'"
    rows = theirs(path, text, use_scalar_index=False)
    assert rows
    assert ours(path, text) == rows
    assert not is_used(path, text)


def test_several_paths(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    write(path)
    for name, json_path in (("by_i", "i"), ("by_id", "$.user.id"), ("by_s", "s")):
        lance_spark.open_dataset(str(path)).create_scalar_index(
            "js", "JSON", name, path=json_path, target_index_type="btree"
        )
    text = "json_get_int(js, 'i') = 3 OR json_get_int(json_get(js, 'user'), 'id') = 325"
    explained = lance_spark.open_dataset(str(path)).explain(filter=text)
    assert "by_i (JSON)" in explained
    assert "by_id (JSON)" in explained
    assert "by_s" not in explained
    assert ours(path, text) == theirs(path, text, use_scalar_index=False)


@pytest.mark.parametrize("who", ["own", "pylance"])
@pytest.mark.parametrize("target", ["BTREE", "BITMAP"])
def test_after_a_compaction(tmp_path: Path, who: str, target: str) -> None:
    path = tmp_path / "t.lance"
    write(path)
    lance.dataset(str(path)).create_scalar_index("js", config("i", target))
    if who == "own":
        lance_spark.open_dataset(str(path)).compact_files()
    else:
        lance.dataset(str(path)).optimize.compact_files()
    for text in (*CASES["i", "BTREE"], *OTHERS):
        rows = theirs(path, text, use_scalar_index=False)
        assert ours(path, text) == rows, text
    assert theirs(path, "json_get_int(js, 'i') = 3") == ours(path, "json_get_int(js, 'i') = 3")
    lance_spark.open_dataset(str(path)).optimize_indices()
    assert is_used(path, "json_get_int(js, 'i') = 3")
    assert lance_spark.open_dataset(str(path)).check_index("js_idx").is_valid


@pytest.mark.parametrize("target", ["BITMAP", "NGRAM"])
def test_stable_row_ids(tmp_path: Path, target: str) -> None:
    path = tmp_path / "t.lance"
    write(path, enable_stable_row_ids=True)
    lance_spark.open_dataset(str(path)).create_scalar_index("js", config("s", target))
    lance.dataset(str(path)).optimize.compact_files()
    for text in (*CASES["s", "BTREE"], *CASES["s", "NGRAM"], *OTHERS[:3]):
        rows = theirs(path, text, use_scalar_index=False)
        assert ours(path, text) == rows, text
        assert theirs(path, text) == rows, text


@pytest.mark.parametrize("target", ["BTREE", "ZONEMAP", "BLOOMFILTER"])
def test_stable_row_ids_and_addresses(tmp_path: Path, target: str) -> None:
    path = tmp_path / "t.lance"
    write(path, enable_stable_row_ids=True)
    with pytest.raises(UnsupportedFeatureError, match="stable row ids"):
        lance_spark.open_dataset(str(path)).create_scalar_index("js", config("i", target))


@pytest.mark.parametrize("who", ["own", "pylance"])
def test_zone_maps_with_stable_row_ids_after_a_compaction(tmp_path: Path, who: str) -> None:
    path = tmp_path / "t.lance"
    write(path, enable_stable_row_ids=True)
    lance.dataset(str(path)).create_scalar_index("js", config("i", "ZONEMAP"))
    if who == "own":
        lance_spark.open_dataset(str(path)).compact_files()
        # Not after a compaction by pylance: it takes the zones for those of the new fragment.
        text = CASES["i", "ZONEMAP"][0]
        assert theirs(path, text) == theirs(path, text, use_scalar_index=False)
    else:
        lance.dataset(str(path)).optimize.compact_files()
    for text in (*CASES["i", "ZONEMAP"], *CASES["i", "BTREE"], *OTHERS):
        assert ours(path, text) == theirs(path, text, use_scalar_index=False), text


@pytest.mark.parametrize(
    ("documents", "json_path"),
    [
        (['{"a":1}', '{"a":"x"}'], "a"),
        (['{"a":true}', '{"a":1}'], "a"),
        (['{"a":[1]}'], "a"),
        (['{"a":{"b":1}}'], "a"),
        (['{"a":"x"}', '{"a":1}'], "$.a"),
    ],
)
def test_values_that_are_not_indexed(tmp_path: Path, documents: list[str], json_path: str) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"js": pa.array(documents, pa.json_())}), path)
    with pytest.raises(InvalidInputError, match="JSON index of path"):
        lance_spark.open_dataset(path).create_scalar_index("js", config(json_path, "btree"))
    with pytest.raises(ValueError, match="JSON"):
        lance.dataset(path).create_scalar_index("js", config(json_path, "btree"))


@pytest.mark.parametrize(
    "documents",
    [
        [None, "{}", '{"a":null}'],
        ['{"a":1}', "{}", None],
        ['{"a":2.5}', '{"a":1}', '{"a":18446744073709551615}'],
        ['{"a":"é"}', '{"a":""}'],
        [],
    ],
)
def test_types_of_values(tmp_path: Path, documents: list[str]) -> None:
    path = str(tmp_path / "t.lance")
    rows = pa.table({"js": pa.array(documents, pa.json_()), "id": range(len(documents))})
    lance.write_dataset(rows, path)
    lance_spark.open_dataset(path).create_scalar_index("js", config("a", "btree"))
    for text in (
        *(
            "json_get_int(js, 'a') = 1",
            "json_get_float(js, 'a') = 1",
            "json_get_int(js, 'a') IS NULL",
        ),
        *("json_get_string(js, 'a') = '1'", "json_get_float(js, 'a') > 1e19"),
    ):
        try:
            expected = theirs(Path(path), text, use_scalar_index=False)
        except (ValueError, OSError):
            continue
        assert ours(Path(path), text) == expected, text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "path must be"),
        ({"path": 3}, "path must be"),
        ({"path": "$.a[*]"}, "path must be"),
        ({"path": "a", "target_index_type": "FM"}, "target_index_type must be one of"),
        ({"path": "a", "zone_size": 10}, "option 'zone_size' is unknown"),
        ({"path": "a", "target_index_parameters": "x"}, "target_index_parameters must be"),
        ({"path": "a", "target_index_parameters": {"size": 1}}, "option 'size' is unknown"),
    ],
)
def test_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    path = tmp_path / "t.lance"
    write(path)
    with pytest.raises(InvalidOptionError, match=message):
        lance_spark.open_dataset(str(path)).create_scalar_index("js", "JSON", **options)


def test_parameters_of_the_target(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    write(path)
    for parameters in ('{"zone_size": 100}', {"zone_size": 100}):
        dataset = lance_spark.open_dataset(str(path)).create_scalar_index(
            "js", "JSON", path="i", target_index_parameters=parameters
        )
        dataset = dataset.optimize_indices(retrain=True)
    assert ours(path, "json_get_int(js, 'i') = 3") == theirs(path, "json_get_int(js, 'i') = 3")


def test_other_types_do_not_take_json(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    write(path)
    dataset = lance_spark.open_dataset(str(path))
    for name, index_type in (("js", "BTREE"), ("js", "NGRAM"), ("id", "JSON")):
        options = {"path": "a"} if index_type == "JSON" else {}
        with pytest.raises(lance_spark.errors.UnsupportedTypeError, match="does not take"):
            dataset.create_scalar_index(name, index_type, **options)
    with pytest.raises(InvalidInputError, match="IndexConfig"):
        dataset.create_scalar_index("js", config("a", "btree"), path="a")
    with pytest.raises(InvalidInputError, match="IndexConfig"):
        dataset.create_scalar_index("js", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "details",
    [
        b"",
        b"\xff\xff",
        b"\x0a\x01i",
        b"\x0a\x06$.i[*]\x12\x20\x0a\x1e/lance.table.BTreeIndexDetails",
    ],
    ids=["empty", "damaged", "no target", "other path"],
)
def test_details_that_do_not_help(tmp_path: Path, details: bytes) -> None:
    path = tmp_path / "t.lance"
    write(path)
    dataset = lance_spark.open_dataset(str(path)).create_scalar_index("js", config("i", "BTREE"))
    (segment,) = section_of(dataset._table.manifest).indices
    changed = table_pb2.IndexMetadata()
    changed.CopyFrom(segment)
    changed.index_details.value = details
    changed.uuid.uuid = bytes(16)
    # pylance does not read such a table.
    expected = [theirs(path, text) for text in CASES["i", "BTREE"]]
    commit_operation(dataset._table, CreateIndex((changed,), (segment,)), CommitOptions())
    for text, rows in zip(CASES["i", "BTREE"], expected, strict=True):
        assert ours(path, text) == rows
        assert not is_used(path, text)


def test_many_values(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    write(path)
    lance_spark.open_dataset(str(path)).create_scalar_index("js", config("$.user.id", "BTREE"))
    numbers = ", ".join(map(str, range(0, 900, 7)))
    for text in (f"IN ({numbers})", f"NOT IN ({numbers})", "IN (3, 5, NULL)", "NOT IN (3, NULL)"):
        condition = f"json_get_int(json_get(js, 'user'), 'id') {text}"
        assert ours(path, condition) == theirs(path, condition, use_scalar_index=False)


@pytest.mark.parametrize("target", ["BTREE", "BITMAP", "NGRAM", "ZONEMAP", "BLOOMFILTER"])
def test_values_in_parts(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "PART_BYTES", 3_000)
    monkeypatch.setattr(builds, "_BATCH_ROWS", 100)
    # Batches of nulls, of integers and of other numbers.
    values = [
        None if n < 150 else f"text{n % 40:03}" if target == "NGRAM" else n for n in range(900)
    ]
    numbers = [n + 0.5 if n == 700 and isinstance(n, int) else n for n in values]
    chosen = values if target == "NGRAM" else numbers
    texts = [json.dumps({} if n is None else {"a": n}) for n in chosen]
    rows = pa.table({"id": range(900), "js": pa.array(texts, pa.json_())})
    path = str(tmp_path / "t.lance")
    dataset = lance_spark.write_dataset(rows, path, mode="create", max_rows_per_file=300)
    dataset = dataset.create_scalar_index("js", config("a", target))
    get = "json_get_string(js, 'a')" if target == "NGRAM" else "json_get_float(js, 'a')"
    text = f"contains({get}, 't017')" if target == "NGRAM" else f"{get} = 700.5"
    expected = dataset.to_table(["id"], filter=text, use_scalar_index=False)
    assert dataset.to_table(["id"], filter=text) == expected
    assert expected.num_rows == (19 if target == "NGRAM" else 1)
    # Scans ask no Bloom filter for numbers with fractions.
    assert ("js_idx" in dataset.explain(filter=text)) == (target != "BLOOMFILTER")
    assert dataset.check_index("js_idx").is_valid


def test_values_of_other_types_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "_BATCH_ROWS", 2)
    texts = ['{"a":1}', "{}", '{"a":2}', '{"a":"x"}', '{"a":"y"}']
    path = str(tmp_path / "t.lance")
    dataset = lance_spark.write_dataset(
        pa.table({"js": pa.array(texts, pa.json_())}), path, mode="create", max_rows_per_file=2
    )
    with pytest.raises(InvalidInputError, match='has "x" there, but the other values are int64'):
        dataset.create_scalar_index("js", config("a", "BTREE"))
