"""Deletes: commits of this package compared with commits of pylance, alone and concurrent."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CommitConflictError, InvalidInputError, LanceError
from lance_spark.mutations.rows.delete import commit_deletes, deletion_effects, plan_delete
from lance_spark.proto import transaction_pb2
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction, read_transaction
from lance_spark.table.open import open_table
from lance_spark.table.operations.append import Append
from lance_spark.table.operations.base import Conflict
from lance_spark.table.operations.registry import operation_of
from lance_spark.table.operations.update import Delete
from tests.support.tables.pylance_written import ids, manifests

ROWS = 30


def new_table(path: Path, **options: object) -> lance.LanceDataset:
    """Write fragments of 10 rows, ids 0 to 29."""
    data = pa.table({"id": range(ROWS), "word": [f"w{i}" for i in range(ROWS)]})
    return lance.write_dataset(data, str(path), max_rows_per_file=10, **options)


def deletion_files(path: Path) -> set[str]:
    folder = path / "_deletions"
    return {file.name for file in folder.iterdir()} if folder.exists() else set()


def referred(path: Path) -> set[str]:
    """Return the names of the deletion files of all versions."""
    return {
        fragment.deletion_file.name(fragment.id)
        for manifest in manifests(path)
        for fragment in manifest.fragments
        if fragment.deletion_file is not None
    }


def shape(path: Path) -> list[tuple[object, ...]]:
    """Return the content of a version, without random parts."""
    last = manifests(path)[-1]
    return [
        (fragment.id, fragment.physical_rows, fragment.num_deleted_rows, len(fragment.files))
        for fragment in last.fragments
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([("id", "==", 3)], "id = 3"),
        ([("id", "<", 15)], "id < 15"),
        ([("id", "in", [0, 10, 20])], "id in (0, 10, 20)"),
        ([("word", "==", "w7"), ("id", ">", 3)], "word = 'w7' and id > 3"),
        ([("id", ">", 99)], "id > 99"),
        ([], "true"),
    ],
)
def test_deletes_equal_those_of_pylance(
    tmp_path: Path, version: str, stable: bool, ours: list[tuple[object, ...]], theirs: str
) -> None:
    options = {"data_storage_version": version, "enable_stable_row_ids": stable}
    for name in ("ours", "theirs"):
        new_table(tmp_path / name, **options).delete("id = 12")
    lance.dataset(str(tmp_path / "theirs")).delete(theirs)
    dataset = lance_spark.open_dataset(str(tmp_path / "ours")).delete(ours)
    assert dataset.version == 3
    expected = lance.dataset(str(tmp_path / "theirs")).to_table()
    assert dataset.to_table() == expected
    assert ids(tmp_path / "ours") == expected["id"].to_pylist()
    assert shape(tmp_path / "ours") == shape(tmp_path / "theirs")
    pair = [manifests(tmp_path / name)[-1] for name in ("ours", "theirs")]
    assert pair[0].flags == pair[1].flags
    assert pair[0].max_fragment_id == pair[1].max_fragment_id
    assert pair[0].next_row_id == pair[1].next_row_id
    operations = [read_transaction(open_table(str(tmp_path / "ours")).store, item) for item in pair]
    for transaction in operations:
        assert transaction is not None
        assert isinstance(transaction.operation, Delete)
    first, second = (operation.operation for operation in operations if operation)
    assert first.removed_fragments == second.removed_fragments
    assert first.updated_fragments.keys() == second.updated_fragments.keys()


def test_conditions_on_row_metadata(tmp_path: Path) -> None:
    new_table(tmp_path)
    dataset = lance_spark.open_dataset(str(tmp_path)).delete([("_rowaddr", ">=", 2 << 32)])
    assert dataset.to_table()["id"].to_pylist() == list(range(20))


def test_a_table_without_rows(tmp_path: Path) -> None:
    new_table(tmp_path).delete("true")
    dataset = lance_spark.open_dataset(str(tmp_path)).delete([("id", "==", 1)]).delete([])
    assert (dataset.version, dataset.count_rows(), dataset.fragments) == (4, 0, ())
    assert ids(tmp_path) == []
    lance.write_dataset(pa.table({"id": [5], "word": ["x"]}), str(tmp_path), mode="append")
    assert [fragment.id for fragment in manifests(tmp_path)[-1].fragments] == [3]


def test_old_versions_stay(tmp_path: Path) -> None:
    new_table(tmp_path)
    dataset = lance_spark.open_dataset(str(tmp_path))
    later = dataset.delete([("id", "<", 5)]).delete([("id", "<", 25)])
    assert [ids(tmp_path, n)[0] for n in (1, 2, 3)] == [0, 5, 25]
    assert dataset.count_rows() == 30
    assert later.version == 3


@pytest.mark.parametrize("stable", [False, True])
def test_rows_by_number(tmp_path: Path, stable: bool) -> None:
    new_table(tmp_path, enable_stable_row_ids=stable).delete("id = 11")
    dataset = lance_spark.open_dataset(str(tmp_path))
    numbers = dataset.to_table(["id", "_rowid", "_rowaddr"]).to_pylist()
    at = {row["id"]: row for row in numbers}
    gone = dataset.delete(ids=[at[3]["_rowid"], at[12]["_rowid"]])
    gone = gone.delete(addresses=np.array([at[4]["_rowaddr"], at[29]["_rowaddr"]], np.uint64))
    # Deleted rows do not count; rows that are deleted already are skipped.
    gone = gone.delete(indices=[0, 3]).delete(addresses=[at[3]["_rowaddr"]])
    gone = gone.delete([("id", ">", 20)], addresses=[at[20]["_rowaddr"], at[21]["_rowaddr"]])
    left = [i for i in range(ROWS) if i not in (0, 3, 4, 5, 11, 12, 21, 29)]
    assert gone.to_table()["id"].to_pylist() == left == ids(tmp_path)


def test_rows_that_do_not_exist(tmp_path: Path) -> None:
    new_table(tmp_path)
    dataset = lance_spark.open_dataset(str(tmp_path))
    with pytest.raises(InvalidInputError, match="row address 42 not found"):
        dataset.delete(addresses=[42])
    with pytest.raises(InvalidInputError, match=r"row address .* not found"):
        dataset.delete(addresses=[9 << 32])
    with pytest.raises(InvalidInputError, match="30 rows"):
        dataset.delete(indices=[30])
    with pytest.raises(InvalidInputError, match="not 2"):
        dataset.delete(indices=[3], ids=[3])
    with pytest.raises(InvalidInputError, match="no condition of the rows to delete"):
        dataset.delete()
    with pytest.raises(InvalidInputError, match="operator must be one of"):
        dataset.delete([("id", "~", 3)])
    assert lance.dataset(str(tmp_path)).version == 1
    assert not deletion_files(tmp_path)


def test_addresses_do_not_follow_rows_that_moved(tmp_path: Path) -> None:
    new_table(tmp_path)
    dataset = lance_spark.open_dataset(str(tmp_path))
    lance.dataset(str(tmp_path)).optimize.compact_files()
    with pytest.raises(CommitConflictError, match="moved or removed") as caught:
        dataset.delete(addresses=[3])
    assert not caught.value.retryable
    assert ids(tmp_path) == list(range(30))


def test_stable_row_ids_follow_rows_that_moved(tmp_path: Path) -> None:
    new_table(tmp_path, enable_stable_row_ids=True)
    dataset = lance_spark.open_dataset(str(tmp_path))
    lance.dataset(str(tmp_path)).optimize.compact_files()
    assert 3 not in dataset.delete(ids=[3]).to_table()["id"].to_pylist()
    assert ids(tmp_path) == [i for i in range(30) if i != 3]


def test_tasks_can_be_pickled(tmp_path: Path) -> None:
    new_table(tmp_path)
    table = open_table(str(tmp_path))
    tasks = plan_delete(table, [("id", ">", 12), ("word", "!=", "w20")], fragments_per_task=2)
    assert [len(task.fragments) for task in tasks] == [2, 1]
    results = [pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(task)).run())) for task in tasks]
    deletions = [item for part in results for item in part]
    assert [(deletion.fragment_id, deletion.num_rows) for deletion in deletions] == [(1, 7), (2, 9)]
    manifest = commit_deletes(table, deletions, "by tasks")
    assert manifest.version == 2
    assert ids(tmp_path) == [*range(13), 20]
    assert deletion_files(tmp_path) == referred(tmp_path)


@pytest.mark.parametrize("index_type", ["BTREE", "BITMAP", "ZONEMAP"])
@pytest.mark.parametrize("stable", [False, True])
def test_indexes_stay_right(tmp_path: Path, index_type: str, stable: bool) -> None:
    new_table(tmp_path, enable_stable_row_ids=stable).create_scalar_index("id", index_type)
    before = manifests(tmp_path)[-1].index_section
    lance_spark.open_dataset(str(tmp_path)).delete([("id", "in", [3, *range(10, 20)])])
    dataset = lance.dataset(str(tmp_path))
    dataset.validate()
    assert manifests(tmp_path)[-1].index_section == before
    for number in range(ROWS):
        table = dataset.to_table(filter=f"id = {number}").num_rows
        assert table == (number != 3 and not 10 <= number < 20)
    assert dataset.to_table(filter="id between 8 and 21")["id"].to_pylist() == [8, 9, 20, 21]


def test_a_segment_without_fragments_is_removed(tmp_path: Path) -> None:
    """Both clients drop a segment of an index if another segment of its name remains."""
    for name in ("ours", "theirs"):
        dataset = new_table(tmp_path / name)
        dataset.create_scalar_index("id", "BTREE")
        dataset = lance.write_dataset(
            pa.table({"id": [90], "word": ["x"]}), dataset.uri, mode="append"
        )
        dataset.optimize.optimize_indices(num_indices_to_merge=0)
    lance_spark.open_dataset(str(tmp_path / "ours")).delete([("id", "==", 90)])
    lance.dataset(str(tmp_path / "theirs")).delete("id = 90")
    result = []
    for name in ("ours", "theirs"):
        table = open_table(str(tmp_path / name))
        result.append(len(table.manifest.index_section or b"") > 0)
        stats = lance.dataset(str(tmp_path / name)).stats.index_stats("id_idx")
        result.append(stats["num_indices"])
    assert result[:2] == result[2:]


@pytest.mark.sample(3)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("order", ["ours after theirs", "theirs after ours", "both ours"])
@pytest.mark.parametrize(
    ("first_condition", "second_condition"),
    [
        ("id = 3", "id = 4"),
        ("id = 3", "id = 23"),
        ("id = 3", "id = 3"),
        ("id in (3, 13)", "id in (4, 14, 13)"),
        ("id < 5", "id >= 5"),
        ("id < 10", "id < 10"),
        ("id < 10", "id < 20"),
        ("id < 12", "id = 3"),
        ("id = 3", "id < 12"),
        ("id in (3, 4, 5)", "id in (0, 1, 2, 6, 7, 8, 9)"),
        ("id = 99", "id = 3"),
    ],
)
def test_concurrent_deletes(
    tmp_path: Path, stable: bool, order: str, first_condition: str, second_condition: str
) -> None:
    theirs = new_table(tmp_path, enable_stable_row_ids=stable)
    ours = lance_spark.open_dataset(str(tmp_path))
    by_them: Callable[[str], Callable[[], object]] = lambda text: lambda: theirs.delete(text)  # noqa: E731
    by_us: Callable[[str], Callable[[], object]] = lambda text: (  # noqa: E731
        lambda: ours.delete(parsed(text))
    )
    first = by_them if order == "ours after theirs" else by_us
    second = by_them if order == "theirs after ours" else by_us
    first(first_condition)()
    second(second_condition)()
    if order != "theirs after ours":
        # pylance leaves the deletion file that was not merged.
        assert deletion_files(tmp_path) == referred(tmp_path)
    assert ids(tmp_path) == [
        i for i in range(ROWS) if not meets(i, first_condition) and not meets(i, second_condition)
    ]
    assert len(manifests(tmp_path)) == 3


def parsed(text: str) -> list[tuple[object, ...]]:
    name, op, value = text.split(" ", 2)
    if op == "in":
        return [(name, "in", [int(part) for part in value.strip("()").split(",")])]
    return [(name, "==" if op == "=" else op, int(value))]


def meets(number: int, text: str) -> bool:
    return bool(eval(text.replace(" = ", " == ").replace("id ", f"{number} ")))


def test_merged_rows_are_a_bitmap_planned_on_the_newest_version(tmp_path: Path) -> None:
    theirs = new_table(tmp_path / "t")
    shutil.copytree(tmp_path / "t", tmp_path / "u")
    ours = lance_spark.open_dataset(str(tmp_path / "t"))
    theirs.delete("id = 3")
    ours.delete([("id", "==", 4)])
    stale = [lance.dataset(str(tmp_path / "u")) for _ in range(2)]
    stale[0].delete("id = 3")
    stale[1].delete("id = 4")
    result = []
    for name in ("t", "u"):
        last = manifests(tmp_path / name)[-1]
        transaction = read_transaction(open_table(str(tmp_path / name)).store, last)
        assert transaction is not None
        file = last.fragments[0].deletion_file
        assert file is not None
        result.append(
            (transaction.read_version, file.read_version, file.file_type, file.num_deleted_rows)
        )
        assert last.transaction_file == transaction.file_name
    assert result[0] == result[1]


def test_delete_without_row_offsets_cannot_be_rebased(tmp_path: Path) -> None:
    new_table(tmp_path)
    table = open_table(str(tmp_path))
    (task,) = plan_delete(table, [("id", "==", 4)], fragments_per_task=3)
    deletions = task.run()
    lance.dataset(str(tmp_path)).delete("id = 3")
    fragments = deletion_effects(table, deletions)[0]
    with pytest.raises(CommitConflictError) as caught:
        commit(table.store, Transaction.new(1, Delete(fragments)), table.manifest)
    assert caught.value.retryable
    # A change of another fragment is compatible.
    (task,) = plan_delete(table, [("id", "==", 24)], fragments_per_task=3)
    deletions = task.run()
    fragments = deletion_effects(table, deletions)[0]
    commit(table.store, Transaction.new(1, Delete(fragments)), table.manifest)
    assert ids(tmp_path) == [i for i in range(ROWS) if i not in (3, 24)]


def test_retries_end(tmp_path: Path) -> None:
    new_table(tmp_path)
    dataset = lance_spark.open_dataset(str(tmp_path))
    lance.dataset(str(tmp_path)).delete("id = 3")
    with pytest.raises(CommitConflictError) as caught:
        dataset.delete([("id", "<", 5)], conflict_retries=0)
    assert caught.value.retryable
    assert deletion_files(tmp_path) == referred(tmp_path)
    lance.dataset(str(tmp_path)).restore()
    with pytest.raises(CommitConflictError) as caught:
        dataset.delete([("id", "<", 5)])
    assert not caught.value.retryable
    assert deletion_files(tmp_path) == referred(tmp_path)


def test_a_failing_task_leaves_nothing_behind(tmp_path: Path) -> None:
    new_table(tmp_path)
    dataset = lance_spark.open_dataset(str(tmp_path))
    last = tmp_path / "data" / dataset.fragments[-1].files[0].path
    last.write_bytes(last.read_bytes()[:-40])
    with pytest.raises(LanceError):
        dataset.delete([("id", "in", [1, 11, 21])])
    assert not deletion_files(tmp_path)


def test_rows_appended_at_the_same_time_stay(tmp_path: Path) -> None:
    new_table(tmp_path)
    ours = lance_spark.open_dataset(str(tmp_path))
    lance.write_dataset(pa.table({"id": [3], "word": ["again"]}), str(tmp_path), mode="append")
    ours.delete([("id", "==", 3)])
    assert ids(tmp_path) == [*range(3), *range(4, 30), 3]


def test_tables_of_version_0_1(tmp_path: Path) -> None:
    new_table(tmp_path, data_storage_version="legacy")
    dataset = lance_spark.open_dataset(str(tmp_path)).delete([("id", ">", 12)])
    assert dataset.to_table()["id"].to_pylist() == ids(tmp_path) == list(range(13))


def test_message_round_trip() -> None:
    message = transaction_pb2.Transaction()
    message.delete.updated_fragments.add(id=3, physical_rows=5).deletion_file.num_deleted_rows = 2
    message.delete.deleted_fragment_ids.extend([1, 2])
    message.delete.predicate = "id < 3"
    operation = operation_of(message, "x")
    assert isinstance(operation, Delete)
    assert operation.touched_fragments == {1, 2, 3}
    again = transaction_pb2.Transaction()
    operation.write_to(again)
    assert again == message
    assert operation.conflict(operation) is Conflict.RETRYABLE
    assert operation.conflict(Append(())) is Conflict.COMPATIBLE
    assert operation.conflict(Delete((), (4,))) is Conflict.COMPATIBLE
