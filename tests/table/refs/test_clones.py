"""Shallow and deep clones of tables with deletions, indexes, blobs and stable row ids, by both
clients.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark import Dataset, open_dataset, write_dataset
from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    MissingFileError,
    TableExistsError,
    VersionNotFoundError,
)
from lance_spark.storage import copies
from lance_spark.storage.copies import Copy, copy_files
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import encode
from lance_spark.table.open import open_table
from lance_spark.table.paths import BasePath
from tests.support.interop.blobs import extended, random_values, table
from tests.support.tables.damaged import files_below
from tests.support.tables.pylance_written import ids, rows
from tests.table.refs.branch_calls import clean_manifest
from tests.table.refs.clone_calls import (
    BOTH,
    DEEP,
    SHALLOW,
    Clone,
    bases,
    first_manifest,
    ours,
    pylances,
    read_ids,
    source_table,
)

#: These tests copy tables in each way.
pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path: Path) -> str:
    return source_table(tmp_path)


@BOTH
def test_first_manifest_equals_that_of_pylance(path: str, method: str) -> None:
    ours(method)(path, path + "-a", 5)
    pylances(method)(path, path + "-b", 5)
    mine, theirs = first_manifest(path + "-a"), first_manifest(path + "-b")
    assert clean_manifest(mine.to_proto()) == clean_manifest(theirs.to_proto())
    assert mine.index_section == theirs.index_section
    first = (open_dataset(path + "-a").read_transaction(5), open_dataset(path + "-b"))
    assert first[0] is not None
    assert first[0].operation == first[1].read_transaction(5).operation
    assert open_dataset(path + "-a").base_paths() == first[1].base_paths()
    assert lance.dataset(path + "-a").config() == {"some": "thing"}


@pytest.mark.parametrize("method", ["shallow_clone", "deep_clone"])
@pytest.mark.parametrize("client", [ours, pylances])
def test_old_versions_tags_and_branches_can_be_cloned(
    path: str, method: str, client: Callable[[str], Clone]
) -> None:
    lance.dataset(path).tags.create("deleted", 3)
    lance.write_dataset(rows(60), lance.dataset(path).create_branch("b", 2), mode="append")
    clone = client(method)
    for at, (reference, expected) in enumerate(
        (
            (1, [*range(6)]),
            ("deleted", [0, *range(2, 6)]),
            (("b", None), [*range(6), 60, 61, 62]),
            (("main", 4), [0, *range(2, 9)]),
        )
    ):
        target = f"{path}-{at}"
        clone(path, target, reference)
        assert read_ids(target) == expected
        # The clone has its own history, and the table does not see it.
        version = open_dataset(target).version
        write_dataset(rows(90), target, "append")
        lance.dataset(target).delete("id = 0")
        assert read_ids(target) == [*expected[1:], 90, 91, 92]
        assert next(info.version for info in open_dataset(target).versions()) == version
        assert open_dataset(target).branch is None
    assert ids(Path(path)) == [0, *range(2, 9)]


@SHALLOW
def test_clones_of_clones(path: str, clone: Clone) -> None:
    source, expected = path, [0, *range(2, 9)]
    for depth in range(3):
        target = f"{path}-{depth}"
        clone(source, target, (None, None))
        write_dataset(rows(10 * depth + 10), target, "append")
        lance.dataset(target).delete(f"id = {10 * depth + 10}")
        expected += [10 * depth + 11, 10 * depth + 12]
        assert read_ids(target) == expected
        assert len(open_dataset(target).base_paths()) == depth + 1
        source = target
    # A deep clone needs none of these files.
    open_dataset(source).deep_clone(path + "-mine")
    lance.dataset(source).deep_clone(path + "-theirs", (None, None))
    for gone in (path, path + "-0", path + "-1", path + "-2"):
        shutil.rmtree(gone)
    assert read_ids(path + "-mine") == read_ids(path + "-theirs") == expected
    assert open_dataset(path + "-mine").base_paths() == {}


@DEEP
def test_a_deep_clone_does_not_need_its_source(path: str, clone: Clone) -> None:
    clone(path, path + "-c", 4)
    shutil.rmtree(path)
    assert read_ids(path + "-c") == [0, *range(2, 9)]
    dataset = lance.dataset(path + "-c")
    assert dataset.describe_indices()[0].num_rows_indexed == 5
    assert not [file for file in files_below(Path(path + "-c")) if ".tmp" in file]


@BOTH
@pytest.mark.parametrize("client", [ours, pylances])
def test_clones_have_the_blobs(tmp_path: Path, method: str, client: Callable[[str], Clone]) -> None:
    values = random_values(60)
    data = table(extended(values))
    source, target = str(tmp_path / "t"), str(tmp_path / "c")
    lance.write_dataset(data, source, data_storage_version="2.2", max_rows_per_file=20)
    assert list((tmp_path / "t/data").glob("*/*.blob"))
    client(method)(source, target, 1)
    if method == "deep_clone":
        shutil.rmtree(source)
    read = open_dataset(target).to_table(blob_handling="all_binary")
    assert read["b"].to_pylist() == values
    files = lance.dataset(target).take_blobs("b", indices=list(range(60)))
    assert [None if file is None else file.readall() for file in files] == values


def test_clones_of_all_file_versions(tmp_path: Path) -> None:
    for version in ("legacy", "2.0", "2.1", "2.3"):
        source = str(tmp_path / version)
        data = pa.table(
            {"id": range(5), "kind": pa.array(["a", "b", "a", "b", "a"]).dictionary_encode()}
        )
        lance.write_dataset(data, source, data_storage_version=version)
        shallow = open_dataset(source).shallow_clone(source + "-s")
        deep = open_dataset(source).deep_clone(source + "-d")
        assert lance.dataset(source + "-s").to_table() == shallow.to_table() == data
        shutil.rmtree(source)
        assert lance.dataset(source + "-d").to_table() == deep.to_table() == data


def test_clones_keep_stable_row_ids(tmp_path: Path) -> None:
    source = str(tmp_path / "t")
    lance.write_dataset(rows(0, 6), source, enable_stable_row_ids=True, max_rows_per_file=3)
    lance.dataset(source).delete("id < 2")
    for method in ("shallow_clone", "deep_clone"):
        target = f"{source}-{method}"
        getattr(open_dataset(source), method)(target)
        lance.write_dataset(rows(10), target, mode="append")
        theirs = lance.dataset(target).to_table(with_row_id=True)
        assert theirs["_rowid"].to_pylist() == [2, 3, 4, 5, 6, 7, 8]
        assert open_dataset(target).to_table(with_row_id=True) == theirs


@pytest.mark.parametrize("tagged", [True, False])
def test_a_clone_of_a_removed_version_is_refused(path: str, tagged: bool) -> None:
    dataset = open_dataset(path)
    if tagged:
        dataset.tags.create("kept")
    dataset.insert(dataset.to_table(), mode="overwrite")
    open_dataset(path).cleanup_old_versions(timedelta(), error_if_tagged_old_versions=False)
    if tagged:
        assert dataset.shallow_clone(path + "-c").to_table() == dataset.to_table()
    else:
        with pytest.raises(VersionNotFoundError, match=f"no version {dataset.version}"):
            dataset.shallow_clone(path + "-c")
        assert not Path(path + "-c").exists()


def test_a_clone_does_not_replace_a_table(path: str) -> None:
    dataset = open_dataset(path)
    lance.write_dataset(rows(0), path + "-c")
    before = files_below(Path(path + "-c"))
    for clone in (dataset.shallow_clone, dataset.deep_clone):
        for target in (path, path + "-c"):
            with pytest.raises(TableExistsError, match="the table already exists"):
                clone(target)
    assert files_below(Path(path + "-c")) == before


def test_a_deep_clone_renames_data_files_with_equal_names(path: str) -> None:
    """Files of different roots can have equal names; a deep clone stores them in one folder."""
    dataset = open_dataset(path).shallow_clone(path + "-c")
    write_dataset(rows(50), path + "-c", "append")
    (own_file,) = (Path(path + "-c") / "data").iterdir()
    table = open_table(path + "-c")
    name = table.manifest.fragments[0].files[0].path
    proto = table.manifest.to_proto()
    proto.fragments[-1].files[0].path = name
    own_file.rename(own_file.with_name(name))
    file = Path(path + "-c") / versions.find(table.store, table.version).path
    file.write_bytes(encode(proto, table.manifest.index_section, None))
    dataset = open_dataset(path + "-c")
    assert read_ids(path + "-c") == [0, *range(2, 9), 50, 51, 52]
    dataset.deep_clone(path + "-d")
    shutil.rmtree(path)
    assert read_ids(path + "-d") == [0, *range(2, 9), 50, 51, 52]


def test_copies_are_bounded_in_size_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = ObjectStore.from_uri(tmp_path / "a"), ObjectStore.from_uri(tmp_path / "b")
    content = {f"f{at}": bytes([at]) * (100 + at) for at in range(30)}
    for name, data in content.items():
        source.write_bytes(name, data)
    target.write_bytes("f3", b"left behind")
    monkeypatch.setattr(copies, "PIECE_BYTES", 32)
    running, most, taken = [0], [0], [0]
    lock = threading.Lock()
    copy = copies.copy_file

    def counted(file_copy: Copy) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        copy(file_copy)
        with lock:
            running[0] -= 1

    def wanted() -> Iterable[Copy]:
        for name in content:
            taken[0] += 1
            yield Copy(source, name, target, name)

    monkeypatch.setattr(copies, "copy_file", counted)
    started: list[Copy] = []
    copy_files(wanted(), started)
    assert {name: target.read_bytes(name) for name in content} == content
    assert [item.target_path for item in started] == list(content)
    assert most[0] <= copies.FILES_AT_ONCE
    # An error ends the copy: no new copies begin.
    taken[0] = 0
    source.delete(["f0"])
    with pytest.raises(MissingFileError):
        copy_files(wanted(), [])
    assert taken[0] <= 2 * copies.FILES_AT_ONCE + 1


def test_clones_work_in_the_memory_store(tmp_path: Path) -> None:
    uri = f"memory://{tmp_path.name}"
    data = pa.table({"id": range(5)})
    dataset: Dataset = write_dataset(data, f"{uri}/t")
    assert dataset.shallow_clone(f"{uri}/s").to_table() == data
    assert dataset.deep_clone(tmp_path / "d").to_table() == data
    assert lance.dataset(str(tmp_path / "d")).to_table() == data


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "append", "initial_bases": [BasePath(0, "/x", False)]}, "are for a new table"),
        (
            {"mode": "append", "target_bases": ["nope"]},
            "base path 'nope' not found; the table has 'folder', 'root'",
        ),
        ({"mode": "append", "target_bases": "folder"}, "must be a list"),
        (
            {"mode": "append", "target_bases": ["folder"], "target_all_bases": True},
            "not both",
        ),
    ],
)
def test_invalid_arguments_are_refused(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    path = str(tmp_path / "t")
    write_dataset(rows(0), path, initial_bases=bases(path))
    with pytest.raises((InvalidInputError, InvalidOptionError), match=message):
        write_dataset(rows(0), path, **arguments)
