"""Compaction: the fragments that it rewrites, values and lineage of rows, concurrent changes."""

from __future__ import annotations

import glob
import pickle
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from pyroaring import BitMap, BitMap64

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import CommitConflictError, InvalidOptionError, UnsupportedFeatureError
from lance_spark.mutations.compaction import task
from lance_spark.mutations.compaction.options import CompactionOptions
from lance_spark.mutations.compaction.task import (
    CompactionGroupTask,
    CompactionMetrics,
    commit_compaction,
    plan_compaction,
    plan_groups,
)
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.files import DeletionFile, DeletionFileType
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.placement import Placement
from tests.support.tables.indexed import copy

LINEAGE = ["_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def fragment(number: int, rows: int, deleted: int = 0) -> Fragment:
    file = DeletionFile(DeletionFileType.ARROW, 1, 1, deleted) if deleted else None
    return Fragment(number, (), rows, file)


def groups(fragments: list[Fragment], *covered: list[int], **options: Any) -> list[list[int]]:
    planned = plan_groups(
        fragments, [BitMap(ids) for ids in covered], CompactionOptions(**options), Placement()
    )
    return [[fragment.id for fragment in group] for group in planned]


class TestPlan:
    def test_small_neighbours_are_one_group(self) -> None:
        small = [fragment(n, 10) for n in range(4)]
        assert groups(small, target_rows_per_fragment=100) == [[0, 1, 2, 3]]

    def test_a_small_fragment_alone_stays(self) -> None:
        mixed = [fragment(0, 100), fragment(1, 10), fragment(2, 100)]
        assert groups(mixed, target_rows_per_fragment=100) == []

    def test_a_large_fragment_parts_groups(self) -> None:
        sizes = [10, 10, 100, 10, 10]
        mixed = [fragment(n, size) for n, size in enumerate(sizes)]
        assert groups(mixed, target_rows_per_fragment=100) == [[0, 1], [3, 4]]

    def test_deleted_rows_are_a_reason(self) -> None:
        mixed = [fragment(0, 100, 10), fragment(1, 100, 11)]
        assert groups(mixed, target_rows_per_fragment=100) == [[1]]
        every = {"target_rows_per_fragment": 100, "materialize_deletions_threshold": 0.0}
        assert groups(mixed, **every) == [[0, 1]]
        assert groups(mixed, **every, materialize_deletions=False) == []
        assert groups(mixed, target_rows_per_fragment=100, materialize_deletions_threshold=1) == []

    def test_groups_are_cut_when_both_parts_are_large(self) -> None:
        sizes = [100, 400, 200, 200, 400, 300, 300, 100]
        dirty = [fragment(n, size * 2, size) for n, size in enumerate(sizes)]
        assert groups(dirty, target_rows_per_fragment=500) == [[0, 1], [2, 3, 4], [5, 6, 7]]

    def test_covered_and_other_fragments_are_not_mixed(self) -> None:
        small = [fragment(n, 10) for n in range(6)]
        planned = groups(small, [0, 1, 2, 3], [2, 3], target_rows_per_fragment=100)
        assert planned == [[0, 1], [2, 3], [4, 5]]

    def test_order_is_that_of_ids(self) -> None:
        small = [fragment(n, 10) for n in (3, 1, 2)]
        assert groups(small, target_rows_per_fragment=100) == [[1, 2, 3]]

    def test_excluded_fragments_part_groups(self) -> None:
        small = [fragment(n, 10) for n in range(5)]
        options = {"target_rows_per_fragment": 100, "excluded_fragment_ids": [2, 77]}
        assert groups(small, **options) == [[0, 1], [3, 4]]

    @pytest.mark.parametrize("limit", [{"max_source_fragments": 5}, {"max_source_rows": 59}])
    def test_limits(self, limit: dict[str, int]) -> None:
        small = [fragment(n, 10) for n in range(8)]
        assert groups(small, target_rows_per_fragment=25, **limit) == [[0, 1, 2]]

    def test_options_are_checked(self) -> None:
        with pytest.raises(InvalidOptionError, match="target_rows_per_fragment must be at least 1"):
            CompactionOptions(target_rows_per_fragment=0)


@pytest.mark.parametrize("target", [250, 400, 1000])
def test_same_fragments_as_pylance(tmp_path: Path, target: int) -> None:
    rng = np.random.default_rng(target)
    uri = str(tmp_path / "a")
    for size in rng.integers(1, 300, 12):
        lance.write_dataset(pa.table({"a": range(int(size))}), uri, mode="append")
    lance.dataset(uri).create_scalar_index("a", "BTREE")
    for size in rng.integers(1, 300, 6):
        lance.write_dataset(pa.table({"a": range(int(size))}), uri, mode="append")
    lance.dataset(uri).delete("a % 7 = 0 and a < 100")
    pylance_copy = copy(uri, tmp_path / "b")
    dataset, metrics = open_dataset(uri).compact_files(target_rows_per_fragment=target)
    theirs = lance.dataset(pylance_copy).optimize.compact_files(target_rows_per_fragment=target)
    expected = [fragment.physical_rows for fragment in lance.dataset(pylance_copy).get_fragments()]
    assert [fragment.physical_rows for fragment in dataset.fragments] == expected
    for name in ("fragments_removed", "fragments_added", "files_removed", "files_added"):
        assert getattr(metrics, name) == getattr(theirs, name)
    assert lance.dataset(uri).to_table() == lance.dataset(pylance_copy).to_table()
    again, metrics = dataset.compact_files(target_rows_per_fragment=target)
    if (
        lance.dataset(pylance_copy)
        .optimize.compact_files(target_rows_per_fragment=target)
        .fragments_added
    ):
        assert metrics.fragments_added
    else:
        assert again.version == dataset.version


def nested(first: int, count: int) -> pa.Table:
    numbers = list(range(first, first + count))
    return pa.table(
        {
            "a": numbers,
            "text": pa.array([None if n % 5 == 0 else f"text {n}" for n in numbers]),
            "list": pa.array([[{"x": n, "y": str(n)}] * (n % 4) for n in numbers]),
            "struct": pa.array([{"x": n, "z": {"w": n * 0.5}} for n in numbers]),
            "dictionary": pa.array([f"d{n % 3}" for n in numbers]).dictionary_encode(),
            "fixed": pa.array([[n, n + 1] for n in numbers], pa.list_(pa.float32(), 2)),
            "nothing": pa.nulls(count, pa.int32()),
        }
    )


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("stable", [False, True])
def test_rows_keep_values_and_lineage(tmp_path: Path, version: str, stable: bool) -> None:
    uri = str(tmp_path / "table")
    for at in range(6):
        lance.write_dataset(
            nested(at * 40, 40),
            uri,
            mode="append",
            data_storage_version=version,
            enable_stable_row_ids=stable,
        )
    lance.dataset(uri).delete("a % 3 = 0")
    lance.dataset(uri).update({"text": "'new'"}, where="a > 200")
    lance.dataset(uri).add_columns({"twice": "a * 2"})
    lance.dataset(uri).drop_columns(["nothing"])
    before = lance.dataset(uri).to_table()
    lineage = open_dataset(uri).to_table(["a", *LINEAGE]) if stable else None
    dataset, metrics = open_dataset(uri).compact_files()
    assert metrics.fragments_added == 1
    assert dataset.data_storage_version == version
    assert lance.dataset(uri).to_table().sort_by("a") == before.sort_by("a")
    assert dataset.to_table().sort_by("a") == before.sort_by("a")
    lance.dataset(uri).validate()
    if lineage is not None:
        assert dataset.to_table(["a", *LINEAGE]) == lineage
        scan = lance.dataset(uri).scanner(columns=["a", *LINEAGE[1:]], with_row_id=True)
        assert scan.to_table().select(["a", *LINEAGE]) == lineage
        ids = lineage["_rowid"].to_pylist()[:5]
        assert lance.dataset(uri)._take_rows(ids).num_rows == 5


def test_lineage_is_that_of_pylance(tmp_path: Path) -> None:
    uri = str(tmp_path / "a")
    for at in range(5):
        table = pa.table({"a": range(at * 100, at * 100 + 100)})
        lance.write_dataset(table, uri, mode="append", enable_stable_row_ids=True)
    lance.dataset(uri).delete("a % 3 = 0")
    lance.dataset(uri).update({"a": "a + 1000"}, where="a % 5 = 1")
    pylance_copy = copy(uri, tmp_path / "b")
    ours, _ = open_dataset(uri).compact_files(target_rows_per_fragment=200)
    lance.dataset(pylance_copy).optimize.compact_files(target_rows_per_fragment=200)
    columns = ["a", *LINEAGE]
    assert ours.to_table(columns) == open_dataset(pylance_copy).to_table(columns)
    theirs = lance.dataset(pylance_copy).scanner(columns=["a", *LINEAGE[1:]], with_row_id=True)
    assert ours.to_table(columns) == theirs.to_table().select(columns)
    next_ids = [open_table(table_uri).manifest.next_row_id for table_uri in (uri, pylance_copy)]
    assert next_ids[0] == next_ids[1] == 500


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs(tmp_path: Path, version: str) -> None:
    uri = str(tmp_path / "table")
    values = [b"", b"x" * 100, None, b"y" * 100_000, b"z" * 5_000_000]
    field = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("a", pa.int64()), field])
    for at in range(3):
        table = pa.table({"a": range(at * 5, at * 5 + 5), "blob": values}, schema)
        write_dataset(table, uri, "append" if at else "create", data_storage_version=version)
    dataset, _ = open_dataset(uri).delete([("a", "==", 6)]).compact_files()
    assert len(dataset.fragments) == 1
    expected = (values * 3)[:6] + (values * 3)[7:]
    assert dataset.to_table(["blob"], blob_handling="all_binary")["blob"].to_pylist() == expected
    blobs = lance.dataset(uri).take_blobs("blob", indices=[0, 2, 6, 13])
    values_read = [expected[at] for at in (0, 2, 6, 13)]
    assert [None if blob is None else blob.read() for blob in blobs] == values_read


def small_table(path: Path, fragments: int = 4, stable: bool = False) -> str:
    uri = str(path)
    for at in range(fragments):
        table = pa.table({"a": range(at * 10, at * 10 + 10), "b": range(10)})
        lance.write_dataset(table, uri, mode="append", enable_stable_row_ids=stable)
    return uri


def data_files(uri: str) -> set[str]:
    return set(glob.glob(f"{uri}/data/*")) | set(glob.glob(f"{uri}/_indices/*/*"))


def run(table: OpenTable) -> list[Any]:
    tasks = pickle.loads(pickle.dumps(plan_compaction(table)))
    assert all(isinstance(task, CompactionGroupTask) for task in tasks)
    return [pickle.loads(pickle.dumps(task.run())) for task in tasks]


DELETES = {
    "ours": lambda uri: open_dataset(uri).delete([("a", "==", 13)]),
    "pylance": lambda uri: lance.dataset(uri).delete("a = 13"),
    "update": lambda uri: lance.dataset(uri).update({"b": "77"}, where="a = 13"),
    "ours in place": lambda uri: open_dataset(uri).update(
        {"b": 1}, [("a", "==", 3)], mode="columns"
    ),
    "new column": lambda uri: lance.dataset(uri).add_columns({"c": "a * 2"}),
    "compaction": lambda uri: lance.dataset(uri).optimize.compact_files(),
}


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("name", DELETES)
def test_a_change_of_the_same_fragments_is_a_conflict(
    tmp_path: Path, name: str, stable: bool
) -> None:
    uri = small_table(tmp_path / "table", stable=stable)
    lance.dataset(uri).create_scalar_index("a", "BTREE")
    table = open_table(uri)
    results = run(table)
    DELETES[name](uri)
    expected = lance.dataset(uri).to_table()
    files = data_files(uri)
    with pytest.raises(CommitConflictError) as caught:
        commit_compaction(table, results)
    assert caught.value.retryable
    assert lance.dataset(uri).to_table() == expected
    # An earlier commit of the same results could refer to the new files.
    assert data_files(uri) == files


def test_conflicts_can_be_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = small_table(tmp_path / "table")
    deleted: list[int] = []
    original = CompactionGroupTask.run

    def slow(task: CompactionGroupTask) -> Any:
        result = original(task)
        if len(deleted) < 2:
            deleted.append(len(deleted))
            lance.dataset(uri).delete(f"a = {deleted[-1]}")
        return result

    monkeypatch.setattr(CompactionGroupTask, "run", slow)
    with pytest.raises(CommitConflictError):
        open_dataset(uri).compact_files(conflict_retries=0)
    dataset, _ = open_dataset(uri).compact_files(conflict_retries=3)
    assert sorted(dataset.to_table()["a"].to_pylist()) == list(range(2, 40))


APPENDS = {
    "ours": lambda uri: write_dataset(pa.table({"a": [99], "b": [1]}), uri, "append"),
    "pylance": lambda uri: lance.write_dataset(pa.table({"a": [99], "b": [1]}), uri, mode="append"),
}


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("name", APPENDS)
def test_appends_are_no_obstacle(tmp_path: Path, name: str, stable: bool, indexed: bool) -> None:
    uri = small_table(tmp_path / "table", stable=stable)
    if indexed:
        lance.dataset(uri).create_scalar_index("a", "BTREE")
        lance.dataset(uri).create_scalar_index("b", "BITMAP")
    table = open_table(uri)
    results = run(table)
    APPENDS[name](uri)
    commit_compaction(table, results)
    dataset = lance.dataset(uri)
    dataset.validate()
    assert sorted(dataset.to_table()["a"].to_pylist()) == [*range(40), 99]
    assert sorted(dataset.to_table(filter="a > 35")["a"].to_pylist()) == [36, 37, 38, 39, 99]
    assert sorted(dataset.to_table(filter="b = 1")["a"].to_pylist()) == [1, 11, 21, 31, 99]
    if stable:
        ids = dataset.scanner(with_row_id=True).to_table()["_rowid"].to_pylist()
        assert sorted(ids) == list(range(41))


@pytest.mark.parametrize("indexed", [False, True])
def test_an_index_made_meanwhile(tmp_path: Path, indexed: bool) -> None:
    """The index holds the old row addresses; the commit writes it again with the new ones."""
    uri = small_table(tmp_path / "table")
    if indexed:
        lance.dataset(uri).create_scalar_index("a", "BTREE")
    table = open_table(uri)
    results = run(table)
    lance.dataset(uri).create_scalar_index("b", "BITMAP")
    commit_compaction(table, results)
    scan = lance.dataset(uri).scanner(filter="b = 1")
    assert "ScalarIndex" in scan.explain_plan()
    assert scan.to_table().num_rows == 4


def test_an_index_made_after_the_others_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = small_table(tmp_path / "table")
    table = open_table(uri)
    results = run(table)
    reserve = task.reserve_fragment_ids

    def reserve_before_the_index(*args: Any) -> Any:
        reserved = reserve(*args)
        lance.dataset(uri).create_scalar_index("b", "BITMAP")
        return reserved

    monkeypatch.setattr(task, "reserve_fragment_ids", reserve_before_the_index)
    with pytest.raises(CommitConflictError):
        commit_compaction(table, results)


def test_pylance_reports_a_conflict_with_a_compaction_of_this_package(tmp_path: Path) -> None:
    uri = small_table(tmp_path / "table")
    before = lance.dataset(uri)
    open_dataset(uri).compact_files()
    operation = lance.LanceOperation.Append(
        [lance.LanceFragment.create(uri, pa.table({"a": [99], "b": [1]}))]
    )
    lance.LanceDataset.commit(uri, operation, read_version=before.version)
    with pytest.raises(OSError, match="conflict"):
        before.optimize.compact_files()
    ids = sorted(lance.dataset(uri).to_table()["a"].to_pylist())
    assert ids == [*range(40), 99]


def test_reuse_index_in_a_separate_file(tmp_path: Path) -> None:
    """Scattered deletions make its bitmaps large; both clients read them, and extend them."""
    uri = str(tmp_path / "table")
    count = 3_000_000
    numbers = np.arange(count)
    lance.write_dataset(pa.table({"a": numbers}), uri, max_rows_per_file=count // 4)
    lance.dataset(uri).create_scalar_index("a", "BTREE")
    lance.dataset(uri).delete("a % 2 = 0")
    open_dataset(uri).compact_files(defer_index_remap=True)
    files = glob.glob(f"{uri}/_indices/*/details.binpb")
    assert len(files) == 1
    assert Path(files[0]).stat().st_size > 200 * 1024
    scan = lance.dataset(uri).scanner(filter="a >= 1000000 and a < 1000010")
    assert "ScalarIndex" in scan.explain_plan()
    assert sorted(scan.to_table()["a"].to_pylist()) == [1000001 + 2 * n for n in range(5)]
    # A column written anew: what is covered stands in a file that the commit does not read.
    open_dataset(uri).update({"a": 5}, [("a", "==", 1000001)], mode="columns")
    assert lance.dataset(uri).count_rows("a = 5") == 2
    assert lance.dataset(uri).count_rows("a = 1000001") == 0
    pylance_copy = copy(uri, tmp_path / "other")
    lance.dataset(uri).delete("a % 3 = 0")
    open_dataset(uri).compact_files(target_rows_per_fragment=10_000_000)
    lance.dataset(pylance_copy).delete("a % 3 = 0")
    lance.dataset(pylance_copy).optimize.compact_files(
        target_rows_per_fragment=10_000_000, defer_index_remap=True
    )
    for table_uri in (uri, pylance_copy):
        assert lance.dataset(table_uri).count_rows("a > 5 and a < 20") == 5


def test_reuse_entry_is_that_of_pylance(tmp_path: Path) -> None:
    uri = small_table(tmp_path / "a")
    lance.dataset(uri).create_scalar_index("a", "BTREE")
    lance.dataset(uri).delete("a = 3 or a = 15")
    pylance_copy = copy(uri, tmp_path / "b")
    open_dataset(uri).compact_files(defer_index_remap=True)
    lance.dataset(pylance_copy).optimize.compact_files(defer_index_remap=True)
    ours, theirs = (reuse_content(table_uri) for table_uri in (uri, pylance_copy))
    assert len(ours.legacy_versions) == len(theirs.legacy_versions) == 1
    (our_group,), (their_group,) = (content.legacy_versions[0].groups for content in (ours, theirs))
    assert list(our_group.old_fragments) == list(their_group.old_fragments)
    assert list(our_group.new_fragments) == list(their_group.new_fragments)
    addresses = [BitMap64.deserialize(g.changed_row_addrs) for g in (our_group, their_group)]
    assert addresses[0] == addresses[1]
    assert our_group.changed_row_addrs == their_group.changed_row_addrs


@pytest.mark.parametrize("index_types", [["BTREE"], ["BITMAP"], ["BTREE", "BITMAP"], []])
def test_btree_addresses_are_rewritten(tmp_path: Path, index_types: list[str]) -> None:
    """Pylance's own compaction makes a BTREE index empty if there is a reuse index."""
    uri = small_table(tmp_path / "t")
    for column, index_type in zip("ab", index_types, strict=False):
        lance.dataset(uri).create_scalar_index(column, index_type)
    open_dataset(uri).compact_files(target_rows_per_fragment=20)
    names = {index["name"] for index in lance.dataset(uri).list_indices()}
    assert "__lance_frag_reuse" not in names
    lance.dataset(uri).optimize.compact_files()
    for value in (3, 15, 39):
        assert lance.dataset(uri).count_rows(f"a = {value}") == 1


def reuse_content(uri: str) -> table_pb2.FragmentReuseIndexDetails.InlineContent:
    section = table_pb2.IndexSection.FromString(open_table(uri).manifest.index_section or b"")
    (entry,) = (index for index in section.indices if index.name == "__lance_frag_reuse")
    return table_pb2.FragmentReuseIndexDetails.FromString(entry.index_details.value).inline


@pytest.mark.parametrize("dtype", ["int", "string", "float"])
def test_btree_remapped_as_by_pylance(tmp_path: Path, dtype: str) -> None:
    uri = str(tmp_path / "a")
    rng = np.random.default_rng(1)
    numbers = rng.permutation(20_000)
    values: dict[str, pa.Array] = {
        "int": pa.array(numbers, mask=numbers % 11 == 0),
        "string": pa.array([f"{n:06}" for n in numbers], mask=numbers % 4 == 0),
        "float": pa.array(np.where(numbers % 13 == 0, np.nan, numbers / 3)),
    }
    table = pa.table({"v": values[dtype], "n": numbers})
    lance.write_dataset(table, uri, max_rows_per_file=3000, enable_stable_row_ids=True)
    lance.dataset(uri).create_scalar_index("v", "BTREE")
    lance.dataset(uri).delete("n % 5 = 0 or n < 300")
    lance.write_dataset(table.slice(0, 100), uri, mode="append")
    pylance_copy = copy(uri, tmp_path / "b")
    open_dataset(uri).compact_files()
    lance.dataset(pylance_copy).optimize.compact_files()
    for name in ("page_data.lance", "page_lookup.lance"):
        assert newest(uri, name) == newest(pylance_copy, name)
    assert "ScalarIndex" in lance.dataset(uri).scanner(filter="v is null").explain_plan()


def newest(uri: str, name: str) -> pa.Table:
    (index,) = lance.dataset(uri).list_indices()
    table = LanceFileReader(f"{uri}/_indices/{index['uuid']}/{name}").read_all().to_table()
    # NaN is not equal to itself.
    return pa.table([column.cast(pa.string()) for column in table.columns], table.schema.names)


def test_nothing_to_do_commits_nothing(tmp_path: Path) -> None:
    uri = small_table(tmp_path / "table", fragments=1)
    dataset, metrics = open_dataset(uri).compact_files()
    assert dataset.version == 1
    assert metrics == CompactionMetrics()
    assert isinstance(dataset, Dataset)


def test_message_and_properties(tmp_path: Path) -> None:
    uri = small_table(tmp_path / "table")
    open_dataset(uri).compact_files(commit_message="tidy", transaction_properties={"k": "v"})
    transaction = lance.dataset(uri).read_transaction(lance.dataset(uri).version)
    assert transaction.transaction_properties == {"__lance_commit_message": "tidy", "k": "v"}


def test_refusals(tmp_path: Path) -> None:
    uri = small_table(tmp_path / "stable", stable=True)
    with pytest.raises(UnsupportedFeatureError, match="defer_index_remap"):
        open_dataset(uri).compact_files(defer_index_remap=True)


def test_memory_is_bounded_by_a_window(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    rng = np.random.default_rng(0)
    ends = pa.array(np.arange(30_001, dtype=np.int32) * 1000).buffers()[1]
    for _ in range(4):
        content = pa.py_buffer(rng.bytes(30_000_000))
        payload = pa.Array.from_buffers(pa.binary(), 30_000, [None, ends, content])
        lance.write_dataset(pa.table({"payload": payload}), uri, mode="append")
    del content, payload
    before = pa.total_allocated_bytes()
    pool = pa.default_memory_pool()
    (task,) = plan_compaction(open_table(uri))
    peak = pool.max_memory()
    task.run()
    assert pool.max_memory() - max(peak, before) < 60 * 1024 * 1024
