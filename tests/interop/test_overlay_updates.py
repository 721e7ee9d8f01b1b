"""Updates that write overlays: both clients read the new values, also by indexes of every type."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.change_feed.diff import changes_between
from lance_spark.change_feed.tasks import FeedColumns, plan_changes
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    UnsupportedError,
    UnsupportedFeatureError,
)
from lance_spark.table.open import open_table
from tests.support.cells import cells

ROWS = 60
POINT = pa.struct([("x", pa.int32()), ("label", pa.string())])


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without this variable, pylance refuses such tables, because they are experimental.
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")


def rows(num_rows: int = ROWS) -> pa.Table:
    ids = range(num_rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "number": pa.array([None if i % 7 == 3 else i * 10 for i in ids], pa.int32()),
            "word": pa.array([f"word{i % 5} text{i}" for i in ids]),
            "point": pa.array(
                [None if i % 11 == 5 else {"x": i, "label": str(i)} for i in ids], POINT
            ),
            "tags": pa.array([[f"t{i % 4}", "all"] for i in ids], pa.list_(pa.string())),
            "points": pa.array([[{"x": i, "label": "a"}] for i in ids], pa.list_(POINT)),
            "vector": pa.array([[float(i), 1.0] for i in ids], pa.list_(pa.float32(), 2)),
            "choice": pa.array([f"c{i % 3}" for i in ids]).dictionary_encode(),
        }
    )


def written(path: Path, version: str = "2.2", *, stable: bool = False) -> lance_spark.Dataset:
    data = rows()
    if version == "2.0":
        # This version cannot store structs that are null.
        index = data.schema.get_field_index("point")
        data = data.set_column(index, "point", pa.array([{"x": 1, "label": "a"}] * ROWS, POINT))
    lance.write_dataset(
        data,
        str(path),
        data_storage_version=version,
        enable_stable_row_ids=stable,
        max_rows_per_file=25,
    )
    return lance_spark.open_dataset(str(path))


def num_overlays(path: Path) -> list[int]:
    return [len(f.metadata.overlays) for f in lance.dataset(str(path)).get_fragments()]


def same(path: Path) -> list[dict[str, Any]]:
    """Return the rows, which both clients read."""
    oracle = lance.dataset(str(path))
    oracle.validate()
    ours = lance_spark.open_dataset(str(path))
    ours.validate()
    result: list[dict[str, Any]] = ours.to_table().to_pylist()
    assert result == oracle.to_table().to_pylist()
    return result


UPDATES: dict[str, dict[str, Any]] = {
    "number": {"number": lambda batch: pa.array(batch["id"].to_numpy() * 3, pa.int32())},
    "null": {"number": None},
    "word": {"word": "new", "number": 5},
    "child": {"point.x": -1},
    "struct": {"point": lambda batch: [v and {"x": None, "label": "n"} for v in points(batch)]},
    "list": {
        "tags": ["new", "all"],
        "points": [{"x": None, "label": "q"}, {"x": 1, "label": None}],
    },
    "vector": {"vector": [7.0, 8.0]},
    "dictionary": {"choice": "other"},
}


def points(batch: pa.RecordBatch) -> list[Any]:
    return batch["point"].to_pylist()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("version", "stable", "name"),
    cells(["2.0", "2.1", "2.2"], [False, True], list(UPDATES)),
)
def test_values(tmp_path: Path, version: str, stable: bool, name: str) -> None:
    path, other = tmp_path / "t", tmp_path / "other"
    dataset = written(path, version, stable=stable).delete("id IN (2, 30)")
    same_rows = written(other, version, stable=stable).delete("id IN (2, 30)")
    text = "id < 40 AND id % 3 = 0 AND point IS NOT NULL"
    changed = dataset.update(UPDATES[name], text, mode="overlay")
    assert changed.version == dataset.version + 1
    assert num_overlays(path) == [1, 1, 0]
    expected = same_rows.update(UPDATES[name], text, mode="columns").to_table().to_pylist()
    assert same(path) == expected
    # The later overlay wins; rows of the earlier one that it does not cover keep their values.
    changed.update(UPDATES["number"], "id IN (3, 4, 50)", mode="overlay")
    for row in expected:
        if row["id"] in (3, 4, 50):
            row["number"] = row["id"] * 3
    assert same(path) == expected
    lance.dataset(str(path)).delete("id = 4")
    assert same(path) == [row for row in expected if row["id"] != 4]
    if stable:
        table = lance_spark.open_dataset(str(path)).to_table(["id", "_row_last_updated_at_version"])
        versions = dict(zip(*table.to_pydict().values(), strict=True))
        assert [versions[number] for number in (0, 1, 3)] == [3, 1, 4]


def test_a_struct_stays_null(tmp_path: Path) -> None:
    path = tmp_path / "t"
    dataset = written(path)
    for updates in ({"point.x": 1}, {"point": None}, {"point": {"x": 1, "label": "a"}}):
        with pytest.raises(InvalidInputError, match="whether a struct is null"):
            dataset.update(updates, "id < 10", mode="overlay")
    assert len(list(path.joinpath("data").iterdir())) == 3
    dataset.update({"point.x": 1}, "point IS NOT NULL AND id < 10", mode="overlay")
    same(path)


def test_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "t"
    dataset = written(path)
    assert dataset.update({"number": 1}, "id < 0", mode="overlay").version == 2
    assert num_overlays(path) == [0, 0, 0]
    same(path)


def test_refused_tables(tmp_path: Path) -> None:
    data = pa.table({"a": [1, 2]})
    lance.write_dataset(data, str(tmp_path / "old"), data_storage_version="legacy")
    with pytest.raises(UnsupportedError, match=r"version 2\.0 or later"):
        lance_spark.open_dataset(str(tmp_path / "old")).update({"a": 1}, mode="overlay")
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    blobs = pa.table([pa.array([b"1"], pa.large_binary())], schema=pa.schema([blob]))
    lance.write_dataset(blobs, str(tmp_path / "blobs"))
    with pytest.raises(UnsupportedError, match="blobs of column 'b'"):
        lance_spark.open_dataset(str(tmp_path / "blobs")).update({"b": b"2"}, mode="overlay")


PACKED = {"lance-encoding:packed": "true"}
PAIR = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.float64(), False)])


@pytest.mark.parametrize(
    "field",
    [
        pa.field("c", PAIR, metadata=PACKED),
        pa.field("c", pa.list_(pa.field("item", PAIR, metadata=PACKED))),
        pa.field("c", pa.struct([pa.field("p", PAIR, metadata=PACKED)])),
    ],
    ids=["struct", "list", "child"],
)
def test_packed_structs_are_refused(tmp_path: Path, field: pa.Field) -> None:
    """pylance looks for overlays of their fields, and reads the old values."""
    pair = {"x": 1, "y": 1.0}
    value = {"struct": pair, "list": [pair], "child": {"p": pair}}
    name = "list" if pa.types.is_list(field.type) else "struct" if field.metadata else "child"
    data = pa.table([pa.array([value[name]] * 3, field.type)], schema=pa.schema([field]))
    dataset = lance_spark.write_dataset(data, str(tmp_path / "t"), data_storage_version="2.2")
    with pytest.raises(UnsupportedError, match="packed struct"):
        dataset.update({"c": lambda batch: batch["c"]}, mode="overlay")


TRIPLE = pa.struct([(name, pa.int64()) for name in "abc"])


@pytest.mark.parametrize(
    ("dtype", "inside"),
    [(TRIPLE, ""), (pa.list_(TRIPLE), "item."), (pa.struct([("s", TRIPLE)]), "s.")],
    ids=["struct", "list", "child"],
)
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_overlays_beside_casts(tmp_path: Path, dtype: pa.DataType, inside: str, name: str) -> None:
    """pylance puts the fields of a struct together file by file, and applies overlays by place."""
    path = str(tmp_path / "t")

    def values(first: int, count: int) -> pa.Array:
        triples = [dict.fromkeys("abc", i) | {"c": -i} for i in range(first, first + count)]
        nested = {"": triples, "item.": [[t] for t in triples], "s.": [{"s": t} for t in triples]}
        return pa.array(nested[inside], dtype)

    data = pa.table({"id": pa.array(range(6), pa.int64()), "v": values(0, 6)})
    lance_spark.write_dataset(data, path, data_storage_version="2.2")

    def overlay() -> None:
        new = {"v": lambda batch: values(100, batch.num_rows)}
        lance_spark.open_dataset(path).update(new, "id IN (2, 3)", mode="overlay")

    def cast() -> None:
        for number in (pa.int32(), pa.int64()):
            column = {"path": f"v.{inside}{name}", "data_type": number}
            lance_spark.open_dataset(path).alter_columns(column)

    overlay()
    with pytest.raises(UnsupportedFeatureError, match="max_overlays_per_fragment=0"):
        cast()
    lance_spark.open_dataset(path).compact_files(max_overlays_per_fragment=0)
    cast()
    if name == "c":
        # The fields are in the order of the struct.
        overlay()
    else:
        with pytest.raises(UnsupportedError, match="different data files"):
            overlay()
        new = {"v": lambda batch: values(200, batch.num_rows)}
        lance_spark.open_dataset(path).update(new, "id = 4", mode="columns")
        overlay()
    own = lance_spark.open_dataset(path).to_table()
    assert own["v"].to_pylist()[2:4] == values(100, 2).to_pylist()
    assert own.equals(lance.dataset(path).to_table())


def test_an_overlay_beside_a_field_without_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    data = pa.table({"id": [1], "v": pa.array([dict.fromkeys("abc", 1)], TRIPLE)})
    lance_spark.write_dataset(data, path, data_storage_version="2.2")
    part = pa.struct([("c", pa.int64()), ("b", pa.int64())])
    more = pa.table({"id": [2], "v": pa.array([{"c": 4, "b": 5}], part)})
    dataset = lance_spark.write_dataset(more, path, mode="append")
    new = {"v": lambda batch: pa.array([{"a": 6, "b": 7, "c": 8}] * batch.num_rows, TRIPLE)}
    with pytest.raises(UnsupportedError, match="fragment 1, or in none"):
        dataset.update(new, "id = 2", mode="overlay")
    dataset.update(new, "id = 2", mode="rows")
    assert lance.dataset(path).to_table().equals(lance_spark.open_dataset(path).to_table())


INDEXES = {
    "BTREE": ("number", ["number = 777", "number = 50", "number IS NULL", "number > 300"]),
    "BITMAP": ("number", ["number = 777", "number = 50", "number IS NULL"]),
    "ZONEMAP": ("number", ["number = 777", "number = 50", "number IS NULL", "number > 700"]),
    "BLOOMFILTER": ("number", ["number = 777", "number = 50", "number IN (777, 80)"]),
    "NGRAM": ("word", ["contains(word, 'changed')", "contains(word, 'text12')"]),
    "LABEL_LIST": ("tags", ["array_has(tags, 'changed')", "array_has(tags, 't1')"]),
}
CHANGED = {"number": 777, "word": "changed", "tags": ["changed"]}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("index_type", "who", "stable"), cells(list(INDEXES), ["own", "pylance"], [False, True])
)
def test_scalar_indexes(tmp_path: Path, index_type: str, who: str, stable: bool) -> None:
    """An overlay before the index is in its files, one after it is not."""
    path = tmp_path / "t"
    column, conditions = INDEXES[index_type]
    dataset = written(path, stable=stable)
    dataset = dataset.update({column: CHANGED[column]}, "id IN (8, 40)", mode="overlay")
    if who == "own":
        dataset = dataset.create_scalar_index(column, index_type)
    else:
        lance.dataset(str(path)).create_scalar_index(column, index_type)
        dataset = lance_spark.open_dataset(str(path))
    dataset.update({column: CHANGED[column]}, "id IN (5, 6, 30)", mode="overlay")
    lance.dataset(str(path)).delete("id = 6")
    compare(path, conditions)
    # Fragments with overlays of other columns only.
    lance_spark.open_dataset(str(path)).update({"choice": "x"}, mode="overlay")
    compare(path, conditions)
    lance_spark.open_dataset(str(path)).optimize_indices()
    compare(path, conditions)
    lance_spark.open_dataset(str(path)).compact_files(max_overlays_per_fragment=0)
    assert sum(num_overlays(path)) == 0
    compare(path, conditions)


def compare(path: Path, conditions: list[str]) -> None:
    oracle, ours = lance.dataset(str(path)), lance_spark.open_dataset(str(path))
    for text in conditions:
        expected = oracle.to_table(["id"], filter=text, use_scalar_index=False)["id"].to_pylist()
        # pylance yields the rows that it evaluates again in another place.
        assert sorted(oracle.to_table(["id"], filter=text)["id"].to_pylist()) == expected, text
        assert ours.to_table(["id"], filter=text)["id"].to_pylist() == expected, text
        assert ours.count_rows(text) == len(expected), text


def test_an_index_is_used_beside_overlays(tmp_path: Path) -> None:
    """Of the fragments with overlays, only the covered rows are read beside those of the index."""
    path = tmp_path / "t"
    lance.write_dataset(pa.table({"id": range(200_000)}), str(path))
    dataset = lance_spark.open_dataset(str(path)).create_scalar_index("id", "BTREE")
    dataset = dataset.update({"id": -1}, "id IN (5, 100000, 199999)", mode="overlay")
    plan = dataset.explain(filter="id = 77")
    assert "BTREE" in plan, plan
    assert "4 rows" in plan, plan
    assert dataset.to_table(filter="id = 77").num_rows == 1
    assert dataset.to_table(filter="id = -1").num_rows == 3
    assert dataset.to_table(filter="id = 5").num_rows == 0


@pytest.mark.parametrize("who", ["own", "pylance"])
def test_full_text_search(tmp_path: Path, who: str) -> None:
    path = tmp_path / "t"
    dataset = written(path)
    dataset = dataset.update({"word": "early"}, "id IN (8, 40)", mode="overlay")
    if who == "own":
        dataset = dataset.create_scalar_index("word", "INVERTED")
    else:
        lance.dataset(str(path)).create_scalar_index("word", "INVERTED")
        dataset = lance_spark.open_dataset(str(path))
    dataset = dataset.update({"word": "late word1"}, "id IN (5, 6, 30)", mode="overlay")
    for query in ("early", "late", "word1", "text5", "text12"):
        expected = lance.dataset(str(path)).to_table(["id"], full_text_query=query)
        table = dataset.to_table(["id"], full_text_query=query)
        assert sorted(table["id"].to_pylist()) == sorted(expected["id"].to_pylist()), query
        words = [row["id"] for row in same(path) if query in row["word"].split()]
        assert sorted(table["id"].to_pylist()) == words, query


VECTOR_INDEXES = {
    "IVF_FLAT": {"num_partitions": 2},
    "IVF_PQ": {"num_partitions": 2, "num_sub_vectors": 4},
    "IVF_HNSW_SQ": {"num_partitions": 2},
}


@pytest.mark.parametrize("index_type", VECTOR_INDEXES)
def test_vector_search(tmp_path: Path, index_type: str) -> None:
    path = tmp_path / "t"
    rng = np.random.default_rng(5)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(600 * 8, np.float32)), 8)
    lance.write_dataset(
        pa.table({"id": range(600), "vector": vectors}), path, max_rows_per_file=300
    )
    dataset = lance_spark.open_dataset(str(path)).update(
        {"vector": [9.0] * 8}, "id = 100", mode="overlay"
    )
    dataset = dataset.create_index("vector", index_type, **VECTOR_INDEXES[index_type])
    dataset = dataset.update({"vector": [-9.0] * 8}, "id IN (7, 400)", mode="overlay")
    oracle = lance.dataset(str(path))
    for query, wanted in (([9.0] * 8, {100}), ([-9.0] * 8, {7, 400})):
        nearest = {"column": "vector", "q": query, "k": len(wanted), "nprobes": 2}
        for client in (dataset, oracle):
            assert set(client.to_table(["id"], nearest=nearest)["id"].to_pylist()) == wanted
    old = vectors[7].as_py()
    nearest = {"column": "vector", "q": old, "k": 600, "nprobes": 2, "refine_factor": 1}
    table = dataset.to_table(["id", "_distance"], nearest=nearest)
    assert table["id"].to_pylist().count(7) == 1
    assert table["_distance"][table["id"].to_pylist().index(7)].as_py() > 100


def test_compaction_folds_above_a_limit(tmp_path: Path) -> None:
    """As pylance does: more than ten overlays by default."""
    for who, number in itertools.product(("own", "pylance"), (10, 11)):
        path = tmp_path / f"{who}{number}"
        lance.write_dataset(pa.table({"id": range(10), "number": [0] * 10}), str(path))
        dataset = lance_spark.open_dataset(str(path))
        for value in range(number):
            dataset = dataset.update({"number": value}, f"id = {value % 7}", mode="overlay")
        expected = same(path)
        options = {"target_rows_per_fragment": 5}
        if who == "own":
            dataset.compact_files(**options)
        else:
            lance.dataset(str(path)).optimize.compact_files(**options)
        assert num_overlays(path) == ([10] if number == 10 else [0, 0][: len(num_overlays(path))])
        assert same(path) == expected
        if number == 11:
            assert lance_spark.open_dataset(str(path)).version > dataset.version
    # Flag 64 goes with the last overlay, and every client opens the table.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES")
        lance.dataset(str(tmp_path / "own11")).to_table()
        with pytest.raises(Exception, match=r"64|overlay"):
            lance.dataset(str(tmp_path / "own10")).to_table()


def test_change_feed(tmp_path: Path) -> None:
    path = tmp_path / "t"
    dataset = written(path, stable=True)
    dataset.update({"number": 1}, "id IN (5, 30)", mode="overlay")
    lance_spark.open_dataset(path).update({"number": 2}, "id = 5", mode="overlay")
    lance_spark.open_dataset(path).compact_files(max_overlays_per_fragment=0)
    table = open_table(str(path))
    columns = FeedColumns.of(table.manifest, ["id", "number"])
    changes = list(changes_between(table, 2, table.version))
    tasks = plan_changes(str(path), changes, columns)
    result = [row for task in tasks for batch in task.batches() for row in batch.to_pylist()]
    assert [
        (row["id"], row["number"], row["_change_type"], row["_commit_version"])
        for row in sorted(result, key=lambda r: (r["_commit_version"], r["id"], r["_change_type"]))
    ] == [
        (5, 1, "update_postimage", 2),
        (5, 50, "update_preimage", 2),
        (30, 1, "update_postimage", 2),
        (30, 300, "update_preimage", 2),
        (5, 2, "update_postimage", 3),
        (5, 1, "update_preimage", 3),
    ]


Change = Any
MEANWHILE: dict[str, tuple[Change, bool]] = {
    "append": (lambda d: lance_spark.write_dataset(rows(3), d.uri, mode="append"), True),
    "delete of the row": (lambda d: d.delete("id = 5"), True),
    "update of the row": (lambda d: d.update({"word": "u"}, "id = 5"), False),
    "update of another row": (lambda d: d.update({"word": "u"}, "id = 6"), True),
    "overlay of the row": (lambda d: d.update({"word": "u"}, "id = 5", mode="overlay"), False),
    "overlay of another row": (lambda d: d.update({"number": 8}, "id = 6", mode="overlay"), True),
    "column rewrite": (lambda d: d.update({"number": 9}, "id = 5", mode="columns"), False),
    "column rewrite, other row": (
        lambda d: d.update({"number": 9}, "id = 6", mode="columns"),
        True,
    ),
    "compaction": (lambda d: d.compact_files(), False),
    "index": (lambda d: d.create_scalar_index("number", "BTREE"), True),
    "new column": (lambda d: d.add_columns({"n": "id + 1"}), False),
}


def test_updates_that_move_rows_beside_overlays(tmp_path: Path) -> None:
    path = tmp_path / "t"
    stale = written(path, stable=True)
    lance_spark.open_dataset(str(path)).update({"number": 8}, "id IN (5, 6)", mode="overlay")
    before = {row["id"]: row for row in same(path)}
    stale.update({"word": "moved"}, "id IN (7, 8, 40)", conflict_retries=0)
    with pytest.raises(CommitConflictError):
        stale.update({"word": "lost"}, "id = 6", conflict_retries=0)
    for row_id in (7, 8, 40):
        before[row_id]["word"] = "moved"
    assert {row["id"]: row for row in same(path)} == before
    compare(path, ["number = 8", "word = 'moved'"])


@pytest.mark.parametrize("name", MEANWHILE)
def test_changes_meanwhile(tmp_path: Path, name: str) -> None:
    """An update of the same row is planned again, or refused without attempts; nothing is lost."""
    path = tmp_path / "t"
    stale = written(path)
    change, is_kept = MEANWHILE[name]
    change(lance_spark.open_dataset(str(path)))
    values = {"number": lambda batch: pa.array(batch["number"].to_numpy() + 1, pa.int32())}
    if not is_kept:
        with pytest.raises(CommitConflictError):
            stale.update(values, "id = 5", mode="overlay", conflict_retries=0)
    before = {row["id"]: row for row in same(path)}
    stale.update(values, "id = 5", mode="overlay", conflict_retries=1 - is_kept)
    after = {row["id"]: row for row in same(path)}
    if 5 in before:
        before[5]["number"] += 1
    assert after == before
    compare(path, ["number = 51", "number = 50", "number = 10"])
