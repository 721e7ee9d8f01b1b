"""Updates: commits of this package compared with commits of pylance."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, InvalidOptionError, SchemaMismatchError
from lance_spark.mutations.columns.assignments import parse_assignments
from lance_spark.mutations.rows.delete import deletion_effects
from lance_spark.mutations.rows.update import UpdateTask, commit_updates, plan_update
from lance_spark.proto import transaction_pb2
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction, read_transaction
from lance_spark.table.open import open_table
from lance_spark.table.operations.update import Update
from tests.support.tables.pylance_written import manifests, written_by_pylance
from tests.table.operations.word_tables import (
    LINEAGE,
    ROWS,
    content,
    data_files,
    last_update,
    new_table,
    referred,
    rows,
    shapes,
    words,
)


@pytest.mark.sample(5)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([("id", "==", 3)], "id = 3"),
        ([("id", "<", 15)], "id < 15"),
        ([("id", "in", [0, 10, 20])], "id in (0, 10, 20)"),
        ([("id", ">", 99)], "id > 99"),
        ([], None),
    ],
)
def test_updates_equal_those_of_pylance(
    tmp_path: Path,
    version: str,
    stable: bool,
    ours: list[tuple[object, ...]],
    theirs: str | None,
) -> None:
    options = {"data_storage_version": version, "enable_stable_row_ids": stable}
    for name in ("ours", "theirs"):
        new_table(tmp_path / name, **options).delete("id = 12")
    lance.dataset(str(tmp_path / "theirs")).update({"word": "'new'"}, where=theirs)
    dataset = lance_spark.open_dataset(str(tmp_path / "ours")).update({"word": "new"}, ours)
    assert dataset.version == 3
    assert content(tmp_path / "ours", lineage=stable) == content(
        tmp_path / "theirs", lineage=stable
    )
    assert shapes(tmp_path / "ours") == shapes(tmp_path / "theirs")
    pair = [manifests(tmp_path / name)[-1] for name in ("ours", "theirs")]
    for name in ("flags", "max_fragment_id", "next_row_id"):
        assert getattr(pair[0], name) == getattr(pair[1], name)
    messages = []
    for name in ("ours", "theirs"):
        message = transaction_pb2.Transaction()
        last_update(tmp_path / name).write_to(message)
        for fragment in (*message.update.updated_fragments, *message.update.new_fragments):
            fragment.ClearField("files")
            fragment.deletion_file.id = 0
            if stable:
                fragment.inline_row_ids = b""
        message.update.updated_fragments.sort(key=lambda fragment: fragment.id)
        messages.append(message)
    assert messages[0] == messages[1]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("stable", [False, True])
def test_column_updates_equal_those_of_pylance(tmp_path: Path, version: str, stable: bool) -> None:
    options = {"data_storage_version": version, "enable_stable_row_ids": stable}
    for name in ("ours", "theirs"):
        new_table(tmp_path / name, **options).delete("id = 12")
    theirs = lance.dataset(str(tmp_path / "theirs"))
    for wanted, fragment_id in (([3, 4], 0), ([11, 15], 1)):
        fragment = theirs.get_fragment(fragment_id)
        new = pa.table({"id": wanted, "word": ["new"] * 2})
        metadata, fields, offsets = fragment.update_columns(new, left_on="id", with_offsets=True)
        operation = lance.LanceOperation.Update(
            updated_fragments=[metadata],
            fields_modified=fields,
            update_mode="rewrite_columns",
            updated_fragment_offsets={fragment_id: offsets},
        )
        theirs = lance.LanceDataset.commit(theirs.uri, operation, read_version=theirs.version)
    dataset = lance_spark.open_dataset(str(tmp_path / "ours"))
    for wanted in ([3, 4], [11, 15]):
        dataset = dataset.update({"word": "new"}, [("id", "in", wanted)], mode="columns")
        if wanted == [3, 4]:
            assert shapes(tmp_path / "ours") == shapes(tmp_path / "theirs", 2)
    assert shapes(tmp_path / "ours") == shapes(tmp_path / "theirs")
    assert content(tmp_path / "ours", lineage=stable) == content(
        tmp_path / "theirs", lineage=stable
    )
    messages = []
    for name in ("ours", "theirs"):
        message = transaction_pb2.Transaction()
        last_update(tmp_path / name).write_to(message)
        for item in message.update.updated_fragments:
            item.deletion_file.id = 0
            for file in item.files:
                file.path, file.file_size_bytes = "", 0
        messages.append(message)
    assert messages[0] == messages[1]


def test_a_file_without_columns_is_removed(tmp_path: Path) -> None:
    new_table(tmp_path)
    dataset = lance_spark.open_dataset(str(tmp_path))
    dataset = dataset.update({"word": "a"}, [("id", "<", 5)], mode="columns")
    dataset = dataset.update({"word": "b"}, [("id", "<", 3)], mode="columns")
    assert [file.fields for file in dataset.fragments[0].files] == [(0, -2), (1,)]
    dataset = dataset.update({"id": lambda r: pc.add(r["id"], 100)}, [], mode="columns")
    assert [file.fields for file in dataset.fragments[0].files] == [(1,), (0,)]
    assert [file.fields for file in dataset.fragments[1].files] == [(-2, 1), (0,)]
    expected = ["b"] * 3 + ["a"] * 2 + [f"w{i}" for i in range(5, 30)]
    assert list(words(tmp_path).values()) == expected


@pytest.mark.parametrize("mode", ["rows", "columns"])
@pytest.mark.parametrize("stable", [False, True])
def test_lineage_is_kept(tmp_path: Path, mode: str, stable: bool) -> None:
    new_table(tmp_path, enable_stable_row_ids=stable)
    lance.write_dataset(rows(30, 5), str(tmp_path), mode="append")
    dataset = lance_spark.open_dataset(str(tmp_path))
    dataset = dataset.update({"word": "x"}, [("id", "in", [29, 2, 31])], mode=mode)
    dataset = dataset.update({"word": "y"}, [("id", "in", [31, 4])], mode=mode)
    lance.write_dataset(rows(40, 1), str(tmp_path), mode="append")
    if not stable:
        assert len(words(tmp_path)) == 36
        return
    result = {row["id"]: row for row in content(tmp_path, lineage=True)}
    assert [row["_rowid"] for row in result.values()] == list(range(36))
    versions = {i: tuple(result[i][name] for name in LINEAGE[1:]) for i in result}
    assert {i for i, lineage in versions.items() if lineage != (1, 1)} == {2, 4, *range(29, 35), 40}
    assert versions[2] == versions[29] == (1, 3)
    assert versions[4] == (1, 4)
    assert versions[31] == (2, 4)
    assert versions[30] == (2, 2)
    assert versions[40] == (5, 5)
    assert manifests(tmp_path)[-1].next_row_id == 36


def test_new_rows_beside_moved_ones_get_ids_with_each_attempt(tmp_path: Path) -> None:
    """As merges commit them: ids of moved rows come first, other rows get ids at the commit."""
    new_table(tmp_path, enable_stable_row_ids=True)
    table = open_table(str(tmp_path))
    (task,) = plan_update(table, {"word": "x"}, [("id", "in", [3, 13])])
    result = task.run()
    proto = result.new_fragments[0].to_proto()
    fresh = written_by_pylance(
        tmp_path, rows(3, 1).append_column("more", [[1]]).select(["id", "word"])
    )
    whole = written_by_pylance(tmp_path, pa.concat_tables([rows(3, 1), rows(13, 1), rows(50, 2)]))
    mixed = whole[0].to_proto()
    mixed.inline_row_ids = proto.inline_row_ids
    mixed.inline_created_at_versions = proto.inline_created_at_versions
    mixed = type(whole[0]).from_proto(mixed, "x")
    lance.write_dataset(rows(30, 2), str(tmp_path), mode="append")
    fragments, _, affected = deletion_effects(table, result.deletions)
    operation = Update(
        fragments=fragments,
        new_fragments=(mixed, *fresh),
        affected=affected,
    )
    commit(table.store, Transaction.new(1, operation), table.manifest)
    rows_after = content(tmp_path, lineage=True)
    assert [
        (row["id"], row["_rowid"], row["_row_created_at_version"]) for row in rows_after[-4:]
    ] == [
        (30, 30, 2),
        (31, 31, 2),
        (50, 32, 3),
        (51, 33, 3),
    ]
    moved = [
        row for row in rows_after if row["_row_last_updated_at_version"] == 3 and row["id"] < 20
    ]
    assert [tuple(row[n] for n in ("id", *LINEAGE[:2])) for row in moved] == [
        (3, 3, 1),
        (3, 34, 3),
        (13, 13, 1),
    ]
    transaction = read_transaction(table.store, manifests(tmp_path)[-1])
    assert transaction is not None
    for item in transaction.operation.new_fragments:  # type: ignore[attr-defined]
        assert not item.to_proto().inline_created_at_versions


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["rows", "columns"])
@pytest.mark.parametrize("index_type", ["BTREE", "BITMAP", "ZONEMAP"])
@pytest.mark.parametrize("stable", [False, True])
def test_indexes_stay_right(tmp_path: Path, mode: str, index_type: str, stable: bool) -> None:
    dataset = new_table(tmp_path, enable_stable_row_ids=stable)
    dataset.create_scalar_index("id", index_type)
    dataset.create_scalar_index("word", index_type)
    ours = lance_spark.open_dataset(str(tmp_path))
    ours = ours.update({"word": "x"}, [("id", "in", [3, 4])], mode=mode)
    ours = ours.update({"id": lambda r: pc.add(r["id"], 100)}, [("id", "in", [4, 14])], mode=mode)
    expected = words(tmp_path)
    assert expected[104] == "x"
    theirs = lance.dataset(str(tmp_path))
    for number in (*range(ROWS), 104, 114):
        result = theirs.to_table(filter=f"id = {number}")["word"].to_pylist()
        assert result == ([expected[number]] if number in expected else [])
    for word in ("x", *(f"w{i}" for i in range(ROWS))):
        result = theirs.to_table(filter=f"word = '{word}'")["id"].to_pylist()
        assert sorted(result) == [i for i, text in expected.items() if text == word]
    theirs.optimize.optimize_indices()
    assert theirs.to_table(filter="id = 14").num_rows == 0
    assert theirs.to_table(filter="id = 114").num_rows == 1


def test_an_index_covers_what_it_finds_by_row_id(tmp_path: Path) -> None:
    """With stable row ids, an index on another column still finds moved rows."""
    dataset = new_table(tmp_path, enable_stable_row_ids=True)
    dataset.create_scalar_index("id", "BITMAP")
    dataset.create_scalar_index("word", "BITMAP")
    lance_spark.open_dataset(str(tmp_path)).update({"word": "x"}, [("id", "<", 12)])
    dataset = lance.dataset(str(tmp_path))
    covered = {index["name"]: index["fragment_ids"] for index in dataset.list_indices()}
    assert covered["id_idx"] - {0} == {1, 2, 3}
    assert 3 not in covered["word_idx"]
    assert dataset.to_table(filter="id in (3, 11, 12)")["word"].to_pylist() == ["w12", "x", "x"]


NESTED = {
    "none": pa.array([None] * 6, pa.int32()),
    "struct": pa.array([{"a": 1, "b": ["x"]}, {"a": None, "b": []}, {"a": 3, "b": [None]}] * 2),
    "list": pa.array([[1, None], [], None, [2], [3], [4]]),
    "vector": pa.FixedSizeListArray.from_arrays(pa.array(range(12), pa.float32()), 2),
    "category": pa.array(["a", None, "b", "a", "c", "c"]).dictionary_encode(),
    "bytes": pa.array([b"", None, b"\x00", b"abc", b"d", b"e"], pa.large_binary()),
    "flag": pa.array([True, None, False] * 2),
    "price": pa.array([1, 2, None, 4, 5, 6], pa.decimal128(10, 2)),
    "time": pa.array([1, None, 3, 4, 5, 6], pa.timestamp("us", "UTC")),
}


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_other_columns_do_not_change(tmp_path: Path, version: str, mode: str) -> None:
    data = pa.table({"id": range(6), **NESTED})
    lance.write_dataset(data, str(tmp_path), max_rows_per_file=4, data_storage_version=version)
    dataset = lance_spark.open_dataset(str(tmp_path))
    for filters in ([("id", "in", [1, 2])], []):
        dataset = dataset.update({"id": lambda r: pc.multiply(r["id"], 1)}, filters, mode=mode)
        theirs = lance.dataset(str(tmp_path))
        theirs.validate()
        result = theirs.to_table().to_pylist()
        assert result == dataset.to_table().to_pylist()
        assert sorted(result, key=lambda row: row["id"]) == data.to_pylist()
        if filters:
            # The first fragment has four rows. Rows that move get positions after all others.
            order = [0, 3, 4, 5, 1, 2] if mode == "rows" else list(range(6))
            assert [row["id"] for row in result] == order


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_new_values_of_every_type(tmp_path: Path, mode: str, version: str) -> None:
    data = pa.table({"id": range(6), **NESTED})
    lance.write_dataset(data, str(tmp_path), max_rows_per_file=4, data_storage_version=version)
    values = {
        "none": 7,
        "struct": {"a": 9, "b": ["y", None]},
        "list": [5, None],
        "vector": [0.5, 1.5],
        "category": "new",
        "bytes": b"zz",
        "flag": None,
        "price": pa.scalar(7, pa.decimal128(10, 2)),
        "time": pa.scalar(5, pa.timestamp("us", "UTC")),
    }
    dataset = lance_spark.open_dataset(str(tmp_path))
    dataset.update(values, [("id", "in", [1, 4])], mode=mode)
    result = by_id(tmp_path)
    plain = {n: v.as_py() if isinstance(v, pa.Scalar) else v for n, v in values.items()}
    for at, (row, old) in enumerate(zip(result, data.to_pylist(), strict=True)):
        assert row == ({"id": at, **plain} if at in (1, 4) else old)
    again = {n: (lambda r, n=n: r.column(r.schema.get_field_index(n))) for n in NESTED}
    lance_spark.open_dataset(str(tmp_path)).update(again, [("id", ">", 2)], mode=mode)
    assert by_id(tmp_path) == result


def by_id(path: Path) -> list[dict[str, Any]]:
    return sorted(lance.dataset(str(path)).to_table().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("mode", ["rows", "columns"])
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_blobs_are_carried(tmp_path: Path, mode: str, version: str) -> None:
    values = [b"abc", None, b"", b"z" * 100_000, b"y" * 5_000_000, b"e"]
    field = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), field])
    data = pa.table([pa.array(range(6)), pa.array(values, pa.large_binary())], schema=schema)
    lance.write_dataset(data, str(tmp_path), max_rows_per_file=4, data_storage_version=version)
    dataset = lance_spark.open_dataset(str(tmp_path))
    dataset = dataset.update({"id": lambda r: pc.add(r["id"], 10)}, [("id", ">", 0)], mode=mode)
    dataset = dataset.update({"blob": b"new"}, [("id", "==", 15)], mode=mode)
    lance.dataset(str(tmp_path)).validate()
    result = dataset.to_table(blob_handling="all_binary").sort_by("id").to_pylist()
    expected = [(0, values[0]), *((10 + i, values[i]) for i in range(1, 5)), (15, b"new")]
    assert [(row["id"], row["blob"]) for row in result] == expected
    theirs = lance.dataset(str(tmp_path))
    for number, value in expected:
        at = theirs.to_table(columns=["id"])["id"].to_pylist().index(number)
        (blob,) = theirs.take_blobs("blob", indices=[at])
        assert (blob.readall() if blob is not None else None) == value


@pytest.mark.parametrize("mode", ["rows", "columns"])
def test_references_stay_references(tmp_path: Path, mode: str) -> None:
    target = tmp_path / "x.bin"
    target.write_bytes(b"0123456789" * 10)
    uri = target.as_uri()
    values = [b"abc", uri, None, b"", b"z" * 100_000, lance.Blob(uri=uri, position=5, size=7)]
    data = pa.table(
        [pa.array(range(6)), lance.blob_array(values)],
        schema=pa.schema([pa.field("id", pa.int64()), lance.blob_field("blob")]),
    )
    path = str(tmp_path / "t")
    options = {"allow_external_blob_outside_bases": True, "data_storage_version": "2.2"}
    lance.write_dataset(data, path, **options)
    before = lance.dataset(path).to_table()["blob"].to_pylist()
    # The object is not read.
    target.rename(tmp_path / "y.bin")
    dataset = lance_spark.open_dataset(path)
    dataset = dataset.update({"id": lambda r: pc.add(r["id"], 10)}, mode=mode)
    dataset = dataset.update({"blob": b"new"}, [("id", "==", 13)], mode=mode)
    (tmp_path / "y.bin").rename(target)
    after = dataset.to_table().sort_by("id")["blob"].to_pylist()
    for at in (1, 5):
        assert after[at] == before[at]
    theirs = lance.dataset(path)
    theirs.validate()
    order = theirs.to_table(columns=["id"])["id"].to_pylist()
    blobs = theirs.take_blobs("blob", indices=[order.index(10 + i) for i in range(6)])
    expected = [b"abc", target.read_bytes(), None, b"new", b"z" * 100_000, b"5678901"]
    assert [None if item is None else item.readall() for item in blobs] == expected


def test_json_stays_json(tmp_path: Path) -> None:
    array = pa.array(['{"a": 1}', None, "[2, 3]"], pa.json_())
    lance.write_dataset(pa.table({"id": range(3), "doc": array}), str(tmp_path))
    dataset = lance_spark.open_dataset(str(tmp_path))
    dataset = dataset.update({"id": 7}, [("id", "<", 2)])
    dataset = dataset.update({"doc": '{"b":null}'}, [("id", "==", 2)], mode="columns")
    table = lance.dataset(str(tmp_path)).to_table()
    assert table.schema.field("doc").type == pa.json_() or "json" in str(table.schema.field("doc"))
    assert sorted(map(str, table["doc"].to_pylist())) == sorted(
        map(str, lance_spark.open_dataset(str(tmp_path)).to_table()["doc"].to_pylist())
    )
    assert '{"b":null}' in table["doc"].to_pylist()


def test_update_of_a_column_without_values(tmp_path: Path) -> None:
    new_table(tmp_path).add_columns(pa.field("more", pa.int32()))
    dataset = lance_spark.open_dataset(str(tmp_path))
    dataset = dataset.update({"more": 1}, [("id", "<", 3)])
    dataset = dataset.update({"more": 2}, [("id", "in", [5, 15])], mode="columns")
    theirs = lance.dataset(str(tmp_path))
    theirs.validate()
    result = {row["id"]: row["more"] for row in theirs.to_table().to_pylist()}
    assert result == {i: 1 if i < 3 else 2 if i in (5, 15) else None for i in range(ROWS)}


def test_invalid_updates_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("word", pa.string())])
    lance.write_dataset(rows().cast(schema), str(tmp_path))
    dataset = lance_spark.open_dataset(str(tmp_path))
    for updates, text in (
        ({}, "at least"),
        ({"id": "x"}, "is not a valid int64"),
        ({"id": None}, "must not be null"),
        ({"_rowid": 3}, "metadata column"),
        ({"word": lambda r: [1] * r.num_rows}, "must return string"),
        ({"word": lambda r: ["x"]}, "returns 1 values for 30"),
        ({"id": lambda r: pa.nulls(r.num_rows, pa.int64())}, "must not be null"),
    ):
        for mode in ("rows", "columns"):
            with pytest.raises(InvalidInputError, match=text):
                dataset.update(updates, mode=mode)
    with pytest.raises(SchemaMismatchError, match="no column 'x'"):
        dataset.update({"x": 1})
    with pytest.raises(InvalidOptionError, match="cells"):
        dataset.update({"word": "x"}, mode="cells")
    assert len(manifests(tmp_path)) == 1
    assert data_files(tmp_path) == referred(tmp_path)
    assert not (tmp_path / "_deletions").exists() or not list((tmp_path / "_deletions").iterdir())


def test_version_2_3_is_written(tmp_path: Path) -> None:
    new_table(tmp_path, data_storage_version="2.3")
    dataset = lance_spark.open_dataset(str(tmp_path)).update({"word": "x"})
    assert set(dataset.to_table()["word"].to_pylist()) == {"x"}
    assert lance.dataset(str(tmp_path)).to_table().equals(dataset.to_table())


def test_tasks_can_be_pickled(tmp_path: Path) -> None:
    new_table(tmp_path, enable_stable_row_ids=True)
    table = open_table(str(tmp_path))
    updates = {"word": "x", "id": upper}
    tasks = plan_update(table, updates, [("id", ">", 7)], fragments_per_task=1)
    results = [
        pickle.loads(pickle.dumps(UpdateTask.run(pickle.loads(pickle.dumps(t))))) for t in tasks
    ]
    assert [result.num_rows for result in results] == [2, 10, 10]
    commit_updates(table, results, parse_assignments(updates, table.schema))
    assert list(words(tmp_path)) == [*range(8), *range(1008, 1030)]
    assert [fragment.id for fragment in manifests(tmp_path)[-1].fragments] == [0, 3, 4, 5]
    result = content(tmp_path, lineage=True)
    assert [row["_rowid"] for row in result] == list(range(30))


def upper(batch: pa.RecordBatch) -> pa.Array:
    return pc.add(batch["id"], 1000)
