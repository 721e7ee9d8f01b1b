"""Columns are added, dropped and altered as by pylance, with the same field ids."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    StorageError,
    UnsupportedFeatureError,
)
from lance_spark.proto import transaction_pb2
from lance_spark.scan.fragment import column_reader as fragment_module
from lance_spark.storage.store import ObjectStore
from lance_spark.table.fragments import files as file_versions
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.manifest import Manifest, max_field_id
from lance_spark.table.open import read_latest

VERSIONS = [f"{major}.{minor}" for major, minor in file_versions.WRITABLE]


def data(count: int = 10) -> pa.Table:
    ids = range(count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "word": [f"w{i}" for i in ids],
            "st": pa.array([{"a": i, "b": float(i)} for i in ids]),
            "l": pa.array([[i] * (i % 3) for i in ids], pa.list_(pa.int64())),
        }
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t"


def make(path: Path, version: str = "2.2", **options: Any) -> lance.LanceDataset:
    """Write three fragments of up to four rows, some of them deleted."""
    dataset = lance.write_dataset(
        data(), str(path), max_rows_per_file=4, data_storage_version=version, **options
    )
    dataset.delete("id in (0, 5, 6)")
    return dataset


def newest(path: Path) -> Manifest:
    return read_latest(ObjectStore.from_uri(path))


def fields(path: Path) -> list[tuple[str, int, int, str, bool]]:
    return [
        (field.name, field.id, field.parent_id, field.logical_type, field.nullable)
        for field in newest(path).to_proto().fields
    ]


def layout(path: Path) -> list[list[tuple[list[int], list[int]]]]:
    """Return the fields and columns of the files of each fragment."""
    proto = newest(path).to_proto()
    return [
        [(list(file.fields), list(file.column_indices)) for file in fragment.files]
        for fragment in proto.fragments
    ]


def transaction(path: Path) -> transaction_pb2.Transaction:
    return transaction_pb2.Transaction.FromString(newest(path).transaction_section or b"")


def checked(path: Path, changed: Dataset) -> pa.Table:
    """Return the rows; pylance must read the same."""
    theirs = lance.dataset(str(path))
    theirs.validate()
    table = changed.to_table()
    assert theirs.version == changed.version
    assert theirs.to_table() == table
    return table


Step = tuple[Callable[[lance.LanceDataset], object], Callable[[Dataset], Dataset]]


def _double(rows: pa.RecordBatch) -> pa.Array:
    return pc.multiply(rows["id"], 2)


def _same(name: str, *args: Any) -> Step:
    return (lambda d: getattr(d, name)(*args), lambda d: getattr(d, name)(*args))


STEPS: list[Step] = [
    (lambda d: d.add_columns({"x": "id * 2"}), lambda d: d.add_columns({"x": _double})),
    _same("add_columns", pa.field("n", pa.int32())),
    _same("add_columns", [pa.field("p", pa.string()), pa.field("q", pa.list_(pa.int8()))]),
    _same("drop_columns", ["x"]),
    (lambda d: d.add_columns({"y": "id * 2"}), lambda d: d.add_columns({"y": _double})),
    _same("alter_columns", {"path": "word", "name": "text"}),
    _same("alter_columns", {"path": "id", "nullable": False}),
    _same("alter_columns", {"path": "id", "data_type": pa.int32()}),
    _same("alter_columns", {"path": "text", "data_type": pa.large_string(), "name": "word"}),
    _same("alter_columns", {"path": "l", "data_type": pa.large_list(pa.int16())}),
    _same("alter_columns", {"path": "st", "name": "s"}, {"path": "y", "name": "z"}),
    _same("drop_columns", ["s.b", "n"]),
    _same("drop_columns", ["s.a"]),
    _same("add_columns", pa.field("m", pa.int32())),
]
#: Files of version 0.1 have all columns, so that none can be added without values.
STEPS_0_1: list[Step] = [STEPS[0], *STEPS[3:11], _same("drop_columns", ["s.b"]), STEPS[12]]
NESTED: list[Step] = [
    _same("alter_columns", {"path": "st.a", "data_type": pa.int16()}),
    _same("alter_columns", {"path": "st.a", "name": "aa", "data_type": pa.int32()}),
    _same("drop_columns", ["st.b"]),
]
CHILD = pa.schema([pa.field("st", pa.struct([pa.field("c", pa.int32())]))])


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_as_pylance(tmp_path: Path, version: str, stable: bool) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    make(theirs, version, enable_stable_row_ids=stable)
    shutil.copytree(theirs, ours)
    nested = NESTED if version > "2.0" else []
    children = [_same("add_columns", CHILD)] if version > "2.1" else []
    steps = STEPS if version > "0.1" else STEPS_0_1
    for number, (by_pylance, by_us) in enumerate([*steps, *nested, *children]):
        if number == len(steps):
            lance.dataset(str(theirs), version=2).restore()
            open_dataset(str(ours), 2).restore()
        by_pylance(lance.dataset(str(theirs)))
        changed = by_us(open_dataset(str(ours)))
        assert fields(ours) == fields(theirs), number
        assert layout(ours) == layout(theirs), number
        our_transaction, their_transaction = transaction(ours), transaction(theirs)
        operation = our_transaction.WhichOneof("operation")
        assert operation == their_transaction.WhichOneof("operation")
        nullability = [
            getattr(message, operation).preserves_nullability
            for message in (our_transaction, their_transaction)
        ]
        assert nullability[0] == nullability[1], number
        assert checked(ours, changed) == lance.dataset(str(theirs)).to_table(), number
        assert open_dataset(str(theirs)).to_table() == changed.to_table()
        if stable:
            lineage = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
            table = lance.dataset(str(theirs)).to_table(columns=lineage)
            assert lance.dataset(str(ours)).to_table(columns=lineage) == table, number


@pytest.mark.parametrize("version", VERSIONS)
def test_constants_and_functions(path: Path, version: str) -> None:
    make(path, version)
    seen: list[pa.RecordBatch] = []

    def keep(rows: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(rows)
        return pa.RecordBatch.from_pydict({"c": rows["id"], "d": rows["word"]})

    changed = open_dataset(str(path)).add_columns(
        {
            "one": 1,
            "half": pa.scalar(0.5, pa.float32()),
            "text": "same",
            "list": pa.scalar([1, 2], pa.list_(pa.int64())),
            "len": lambda rows: pc.utf8_length(rows["word"]),
            "python": lambda rows: [f"<{word}>" for word in rows["word"].to_pylist()],
        }
    )
    changed = changed.add_columns(keep, ["word", "id"], batch_size=2, commit_message="why")
    table = checked(path, changed)
    ids = table["id"].to_pylist()
    assert ids == [1, 2, 3, 4, 7, 8, 9]
    assert table["one"].to_pylist() == [1] * 7
    assert table["half"].type == pa.float32()
    assert set(table["text"].to_pylist()) == {"same"}
    assert table["list"].to_pylist() == [[1, 2]] * 7
    assert table["len"].to_pylist() == [2] * 7
    assert table["python"].to_pylist() == [f"<w{i}>" for i in ids]
    assert (table["c"].to_pylist(), table["d"]) == (ids, table["word"])
    assert all(rows.schema.names == ["word", "id"] for rows in seen)
    assert max(rows.num_rows for rows in seen[1:]) == 2
    assert not {0, 5, 6} & {i for rows in seen for i in rows["id"].to_pylist()}
    assert transaction(path).transaction_properties == {"__lance_commit_message": "why"}


def test_columns_that_must_not_be_null(path: Path) -> None:
    make(path)
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False)])
    changed = open_dataset(str(path)).add_columns({"k": _double}, output_schema=schema)
    table = checked(path, changed)
    assert table["k"].to_pylist() == [2 * i for i in table["id"].to_pylist()]
    assert not transaction(path).merge.preserves_nullability
    nulls = {"z": lambda rows: pa.nulls(rows.num_rows, pa.int64())}
    schema = pa.schema([pa.field("z", pa.int64(), nullable=False)])
    with pytest.raises(InvalidInputError, match="z"):
        changed.add_columns(nulls, output_schema=schema)
    assert changed.latest_version == changed.version


@pytest.mark.parametrize("nullable", [True, False])
def test_deleted_rows_in_many_windows(
    path: Path, monkeypatch: pytest.MonkeyPatch, nullable: bool
) -> None:
    count = 5_000
    rows = pa.table({"id": pa.array(range(count), pa.int64())})
    dataset = lance.write_dataset(rows, str(path))
    dataset.delete("id < 1200 or (id >= 2000 and id < 3100) or id % 7 = 0 or id >= 4900")
    monkeypatch.setattr(fragment_module, "MAX_WINDOW_ROWS", 100)
    sizes: list[int] = []

    def double(batch: pa.RecordBatch) -> pa.Array:
        sizes.append(batch.num_rows)
        return _double(batch)

    schema = pa.schema([pa.field("x", pa.int64(), nullable=nullable)])
    changed = open_dataset(str(path)).add_columns({"x": double}, output_schema=schema)
    table = checked(path, changed)
    assert table["x"].to_pylist() == [2 * i for i in table["id"].to_pylist()]
    assert max(sizes) <= 100
    file = newest(path).fragments[0].files[-1]
    stored = lance.file.LanceFileReader(str(path / "data" / file.path)).read_all().to_table()["x"]
    deleted = np.setdiff1d(np.arange(count), table["id"].to_numpy())
    if nullable:
        assert stored.take(deleted).null_count == len(deleted)
    else:
        assert stored.null_count == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.add_columns({"id": 1}), "already"),
        (lambda d: d.add_columns(pa.field("id", pa.int32())), "already"),
        (lambda d: d.add_columns(pa.field("st", pa.struct([("a", pa.int8())]))), "already"),
        (lambda d: d.add_columns(pa.field("q", pa.int32(), nullable=False)), "must not be null"),
        (lambda d: d.add_columns({}), "transforms"),
        (lambda d: d.add_columns({"x": None}), "inferred from nulls"),
        (lambda d: d.add_columns({"x.y": 1}), "dot"),
        (lambda d: d.add_columns({"x": lambda rows: [1]}), "1 values for"),
        (lambda d: d.add_columns(lambda rows: 7), "int"),
        (lambda d: d.add_columns({"x": _double}, ["nope"]), "nope"),
        (lambda d: d.add_columns({"x": 1}, batch_size=0), "batch_size"),
        (lambda d: d.drop_columns(["nope"]), "nope"),
        (lambda d: d.drop_columns("id"), "list of names"),
        (lambda d: d.drop_columns(["id", "word", "st", "l", "some", "big"]), "at least one"),
        (lambda d: d.alter_columns(), "must not be empty"),
        (lambda d: d.alter_columns({"path": "id"}), "changes nothing"),
        (lambda d: d.alter_columns({"path": "id", "type": pa.int8()}), "alteration"),
        (lambda d: d.alter_columns({"path": "nope", "name": "x"}), "nope"),
        (lambda d: d.alter_columns({"path": "id", "name": "word"}), "two columns"),
        (lambda d: d.alter_columns({"path": "id", "name": "a.b"}), "renamed"),
        (
            lambda d: d.alter_columns({"path": "id", "data_type": pa.string()}),
            "size or precision of the same type",
        ),
        (
            lambda d: d.alter_columns({"path": "id", "data_type": pa.float64()}),
            "size or precision of the same type",
        ),
        (
            lambda d: d.alter_columns({"path": "st", "data_type": pa.struct([])}),
            "size or precision of the same type",
        ),
        (lambda d: d.alter_columns({"path": "some", "nullable": False}), "has nulls"),
        (lambda d: d.alter_columns({"path": "big", "data_type": pa.int8()}), "big"),
    ],
)
def test_refused(path: Path, change: Callable[[Dataset], object], message: str) -> None:
    table = data().append_column("some", pa.array([None, *range(9)], pa.int64()))
    lance.write_dataset(table.append_column("big", pa.array([300] * 10)), str(path))
    dataset = open_dataset(str(path))
    files = sorted((path / "data").iterdir())
    with pytest.raises(InvalidInputError, match=message):
        change(dataset)
    assert dataset.latest_version == 1
    assert sorted((path / "data").iterdir()) == files
    assert len(list((path / "_transactions").iterdir())) == 1


def test_a_failure_leaves_no_files(path: Path) -> None:
    make(path)
    files = sorted((path / "data").iterdir())

    def fail(rows: pa.RecordBatch) -> pa.Array:
        if 9 in rows["id"].to_pylist():
            raise RuntimeError("at the end")
        return rows["id"]

    with pytest.raises(RuntimeError, match="at the end"):
        open_dataset(str(path)).add_columns({"x": fail})
    assert sorted((path / "data").iterdir()) == files


def test_columns_without_values_in_version_0_1(path: Path) -> None:
    lance.write_dataset(data(), str(path), data_storage_version="legacy")
    dataset = open_dataset(str(path))
    with pytest.raises(UnsupportedFeatureError, match="must have all columns"):
        dataset.add_columns(pa.field("n", pa.int32()))
    changed = dataset.alter_columns({"path": "word", "name": "text"}).drop_columns(["id"])
    assert checked(path, changed).column_names == ["text", "st", "l"]


def test_children_of_structs_in_version_2_0(path: Path) -> None:
    make(path, "2.0")
    with pytest.raises(UnsupportedFeatureError, match="children of structs"):
        open_dataset(str(path)).alter_columns({"path": "st.a", "data_type": pa.int16()})
    with pytest.raises(UnsupportedFeatureError, match="cannot get new children"):
        open_dataset(str(path)).add_columns(CHILD)


def test_indexes(path: Path) -> None:
    dataset = make(path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("word", "BITMAP")
    ours = open_dataset(str(path))
    with pytest.raises(InvalidInputError, match="id_idx"):
        ours.alter_columns({"path": "id", "data_type": pa.int32()})
    changed = ours.alter_columns({"path": "id", "name": "key"}).add_columns({"x": 1})
    changed = changed.drop_columns(["word"])
    read = lance.dataset(str(path))
    assert [index.name for index in read.describe_indices()] == ["id_idx"]
    assert "ScalarIndexQuery" in read.scanner(filter="key = 4").explain_plan()
    assert read.to_table(filter="key = 4")["x"].to_pylist() == [1]
    assert checked(path, changed).num_rows == 7


def test_only_changed_fragments_are_computed_again(path: Path) -> None:
    """Values are computed again only in fragments whose rows changed."""
    make(path)
    seen: list[list[int]] = []
    stale = open_dataset(str(path))

    def double(rows: pa.RecordBatch) -> pa.Array:
        ids = rows["id"].to_pylist()
        seen.append(ids)
        if len(seen) == 2:
            lance.write_dataset(data(1), str(path), mode="append")
            lance.dataset(str(path)).delete("id = 8")
        return _double(rows)

    files = {file.name for file in (path / "data").iterdir()}
    changed = stale.add_columns({"x": double}, ["id"])
    table = checked(path, changed)
    assert table["x"].to_pylist() == [2 * i for i in table["id"].to_pylist()]
    assert table["id"].to_pylist() == [1, 2, 3, 4, 7, 9, 0]
    # A sample, three fragments, a sample again, and the fragment that is new.
    assert seen == [[1, 2, 3], [1, 2, 3], [4, 7], [8, 9], [1, 2, 3], [0]]
    assert len({file.name for file in (path / "data").iterdir()} - files) == 1 + 4


def test_retries_can_be_forbidden(path: Path) -> None:
    make(path)
    stale = open_dataset(str(path))
    lance.write_dataset(data(1), str(path), mode="append")
    files = sorted((path / "data").iterdir())
    with pytest.raises(CommitConflictError) as raised:
        stale.add_columns({"x": 1}, conflict_retries=0)
    assert raised.value.retryable
    assert sorted((path / "data").iterdir()) == files


def test_metadata_that_another_client_sets_meanwhile(path: Path) -> None:
    make(path)
    stale = open_dataset(str(path))
    lance.dataset(str(path)).update_field_metadata({"id": {"k": "v"}})
    lance.dataset(str(path)).update_schema_metadata({"s": "1"})
    changed = stale.alter_columns({"path": "word", "name": "text"}, conflict_retries=0)
    assert changed.schema.field("id").metadata == {b"k": b"v"}
    assert changed.schema.metadata == {b"s": b"1"}
    assert checked(path, changed).num_rows == 7


def test_rows_appended_without_the_new_columns(path: Path) -> None:
    make(path)
    stale = lance.dataset(str(path))
    changed = open_dataset(str(path)).add_columns({"x": 1})
    lance.write_dataset(data(1), stale, mode="append")
    table = checked(path, open_dataset(str(path)))
    assert table["x"].to_pylist() == [1] * 7 + [None]
    required = pa.schema([pa.field("y", pa.int64(), nullable=False)])
    stale = lance.dataset(str(path))
    open_dataset(str(path)).add_columns({"y": 1}, output_schema=required)
    with pytest.raises(OSError, match="Retryable"):
        lance.write_dataset(data(1), stale, mode="append")
    assert changed.version == 3


def test_an_empty_table(path: Path) -> None:
    write_dataset(data().slice(0, 0), str(path))
    changed = open_dataset(str(path)).add_columns({"x": _double, "y": 1})
    table = checked(path, changed)
    assert table.schema.field("x").type == pa.int64()
    assert max_field_id(newest(path).to_proto()) == 8


def test_the_store_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(path)
    files = sorted((path / "data").iterdir())

    def fail(*_: object, **__: object) -> None:
        raise StorageError("no")

    monkeypatch.setattr("lance_spark.mutations.commits.commit", fail)
    with pytest.raises(StorageError, match="no"):
        open_dataset(str(path)).add_columns({"x": 1})
    assert sorted((path / "data").iterdir()) == files


def test_an_interrupt_after_the_commit_deletes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    dataset = open_dataset(path)
    monkeypatch.setattr(versions, "write_hint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dataset.add_columns({"twice": lambda batch: pc.multiply(batch["id"], 2)})
    columns = lance.dataset(str(path)).to_table(["id", "twice"]).to_pydict()
    assert columns["twice"] == [2 * number for number in columns["id"]]


@pytest.mark.parametrize("version", ["2.0", "2.1"])
@pytest.mark.parametrize("deleted", ["id < 2", "id in (1, 3)", "id > 3", "id < 5"])
def test_structs_beside_deleted_rows(path: Path, version: str, deleted: str) -> None:
    """Files of version 2.0 cannot have null structs, also in deleted rows."""
    data = pa.table({"id": pa.array(range(10), pa.int64())})
    lance.write_dataset(data, str(path), data_storage_version=version, max_rows_per_file=5).delete(
        deleted
    )
    dtype = pa.struct([("x", pa.int64()), ("y", pa.string())])

    def pair(batch: pa.RecordBatch) -> pa.Array:
        return pa.array([{"x": value, "y": str(value)} for value in batch["id"].to_pylist()], dtype)

    new = open_dataset(str(path)).add_columns({"pair": pair})
    rows = lance.dataset(str(path)).to_table()
    assert new.to_table() == rows
    assert rows["pair"].to_pylist() == [{"x": n, "y": str(n)} for n in rows["id"].to_pylist()]
