"""What `Dataset` says about a version is what pylance says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark import Dataset, open_dataset, write_dataset
from lance_spark.errors import (
    InvalidInputError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("facts") / "t.lance")
    table = pa.table({"a": [3, 1, 2, 5], "b": ["x", "y", "z", None]})
    dataset = lance.write_dataset(table, root, max_rows_per_file=3)
    dataset = lance.write_dataset(pa.table({"a": [7], "b": ["x"]}), root, mode="append")
    dataset.create_scalar_index("a", "BTREE")
    dataset.delete("a = 1")
    return root


@pytest.fixture
def both(path: str) -> tuple[lance.LanceDataset, Dataset]:
    return lance.dataset(path), open_dataset(path)


@pytest.mark.parametrize("name", ["has_index", "has_stable_row_ids", "max_field_id"])
def test_properties(both: Any, name: str) -> None:
    theirs, ours = both
    assert getattr(ours, name) == getattr(theirs, name)
    first = [dataset.checkout_version(1) for dataset in both]
    assert getattr(first[1], name) == getattr(first[0], name)


def test_versions(both: Any) -> None:
    theirs, ours = both
    assert ours.version_refs() == theirs.version_refs()
    version = ours.get_version()
    expected = theirs.get_version()
    assert (version.version, version.metadata) == (expected["version"], expected["metadata"])
    assert version.operation == "delete"
    assert list(ours.fragment_ids()) == list(theirs.fragment_ids())
    first = ours.checkout_version(1)
    assert first.checkout_latest().version == ours.version
    assert first.version == 1


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 1024])
def test_dataset_stats(both: Any, rows: int) -> None:
    theirs, ours = both
    assert ours.stats.dataset_stats(rows) == theirs.stats.dataset_stats(rows)


def test_other_stats(both: Any) -> None:
    theirs, ours = both
    expected = [(field.id, field.bytes_on_disk) for field in theirs.stats.data_stats().fields]
    sizes = [(field.id, field.bytes_on_disk) for field in ours.stats.data_stats().fields]
    assert sizes == expected
    assert ours.stats.index_stats("a_idx") == ours.index_statistics("a_idx")


def test_files(both: Any) -> None:
    theirs, ours = both
    result, expected = ours.all_files().read_all(), theirs.all_files().read_all()
    columns = ["path", "size_bytes", "base_uri"]
    assert _sorted(result, columns) == _sorted(expected, columns)
    seconds = [abs(a - b) for a, b in zip(_times(result), _times(expected), strict=True)]
    assert max(seconds).total_seconds() < 1e-3
    columns = ["version", "path", "type", "base_uri"]
    tracked = ours.tracked_files().read_all()
    assert tracked.schema.types == theirs.tracked_files().schema.types
    assert _sorted(tracked, columns) == _sorted(theirs.tracked_files().read_all(), columns)
    calls: list[tuple[int, int | None]] = []
    later = ours.tracked_files(min_version=3, progress=lambda *args: calls.append(args)).read_all()
    assert set(later["version"].to_pylist()) == {3, 4}
    assert calls == [(1, 2), (2, 2)]


def _sorted(table: pa.Table, columns: list[str]) -> list[Any]:
    return sorted(map(str, table.select(columns).to_pylist()))


def _times(table: pa.Table) -> list[Any]:
    return table.sort_by("path")["last_modified"].to_pylist()


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> tuple[lance.LanceDataset, Dataset]:
    root = str(tmp_path_factory.mktemp("delta") / "t.lance")
    write_dataset(pa.table({"a": [1, 2, 3]}), root, enable_stable_row_ids=True)
    dataset = write_dataset(pa.table({"a": [4, 5]}), root, mode="append")
    dataset = dataset.update({"a": 10}, "a = 2").delete("a = 3").compact_files()[0]
    dataset.update({"a": 11}, "a = 4").delete("a = 5")
    return lance.dataset(root), open_dataset(root)


@pytest.mark.parametrize(("begin", "end"), [(1, 2), (1, 3), (2, 5), (1, 6), (1, 8), (6, 8), (3, 3)])
@pytest.mark.parametrize("name", ["get_inserted_rows", "get_updated_rows", "get_deleted_row_ids"])
def test_delta(changed: Any, begin: int, end: int, name: str) -> None:
    rows = [
        getattr(dataset.delta(begin_version=begin, end_version=end), name)().read_all()
        for dataset in changed
    ]
    assert rows[1].schema.names == rows[0].schema.names
    by_id = [table.sort_by("_rowid").to_pylist() for table in rows]
    assert by_id[1] == by_id[0]


@pytest.mark.parametrize(
    ("version", "versions"),
    [
        (2, {"compared_against": 8}),
        (8, {"compared_against": 0}),
        (8, {"begin_version": 0, "end_version": 3}),
        (8, {"begin_version": 6, "end_version": 2}),
        (8, {"begin_version": 2, "end_version": 1}),
    ],
)
def test_delta_of_versions_in_any_order(
    changed: Any, version: int, versions: dict[str, int]
) -> None:
    results: list[list[Any]] = []
    for dataset in changed:
        delta = dataset.checkout_version(version).delta(**versions)
        results.append([len(delta.list_transactions())])
        for name in ("get_inserted_rows", "get_updated_rows", "get_deleted_row_ids"):
            try:
                rows = getattr(delta, name)().read_all()["_rowid"].to_pylist()
                results[-1].append(sorted(rows))
            except ValueError:
                results[-1].append("refused")
    assert results[1] == results[0]
    is_reversed = versions.get("begin_version", 0) > versions.get("end_version", 9)
    assert (results[1][-1] == "refused") is is_reversed


def test_transactions_of_a_delta(changed: Any) -> None:
    theirs, ours = changed
    ids = [transaction.uuid for transaction in ours.delta(2).list_transactions()]
    assert ids == [transaction.uuid for transaction in theirs.delta(2).list_transactions()]
    for dataset in changed:
        with pytest.raises((ValueError, VersionNotFoundError)):
            dataset.delta(begin_version=1, end_version=99).list_transactions()
        for versions in ({}, {"begin_version": 1}, {"end_version": 2}):
            with pytest.raises(ValueError, match="version"):
                dataset.delta(**versions)
    with pytest.raises(InvalidInputError, match="not both"):
        ours.delta(1, begin_version=1)


def test_delta_needs_stable_row_ids(both: Any) -> None:
    """pylance returns no rows."""
    with pytest.raises(UnsupportedFeatureError, match="has no stable row ids"):
        both[1].delta(1).get_inserted_rows()


def test_truncate_and_insert(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    dataset = write_dataset(pa.table({"a": [1, 2]}), path)
    dataset.create_scalar_index("a", "BTREE")
    dataset = open_dataset(path).truncate_table()
    theirs = lance.dataset(str(path))
    assert theirs.count_rows() == dataset.count_rows() == 0
    assert theirs.version == 3
    assert dataset.has_index
    assert theirs.read_transaction(3).operation.predicate == "true"
    dataset = dataset.insert(pa.table({"a": [5]}))
    dataset = dataset.insert({"a": [6, 7]}).insert([{"a": 8}])
    dataset = dataset.insert(dataset.to_pandas())
    assert lance.dataset(str(path)).to_table()["a"].to_pylist() == [5, 6, 7, 8] * 2
    dataset = dataset.insert(open_dataset(path), mode="overwrite", commit_message="again")
    assert dataset.get_version().message == "again"
    assert dataset.count_rows() == 8


def test_drop(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    dataset = write_dataset(pa.table({"a": [1, 2]}), path)
    branch = dataset.create_branch("dev")
    (path / "notes.txt").write_text("x")
    with pytest.raises(InvalidInputError, match=r"branches\.delete"):
        Dataset.drop(branch.uri)
    with pytest.raises(InvalidInputError, match="not the root of a table"):
        Dataset.drop(path / "data")
    Dataset.drop(path)
    assert not path.exists()
    Dataset.drop(path, ignore_not_found=True)
    with pytest.raises(TableNotFoundError):
        Dataset.drop(path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file.lance").write_text("x")
    for drop in (Dataset.drop, lance.LanceDataset.drop):
        with pytest.raises(ValueError, match=r"."):
            drop(str(tmp_path / "other"))
    assert (tmp_path / "other" / "file.lance").exists()


def test_storage_options(path: str, both: Any) -> None:
    for dataset in both:
        assert dataset.initial_storage_options is None
        assert dataset.latest_storage_options() is None
    options = {"timeout": "60s"}
    theirs = lance.dataset(path, storage_options=options)
    ours = open_dataset(path, storage_options=options)
    assert ours.initial_storage_options == ours.latest_storage_options() == options
    assert theirs.initial_storage_options["timeout"] == "60s"
