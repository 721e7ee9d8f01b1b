"""Clones of tables with base paths, and base paths of new tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

from lance_spark import open_dataset, write_dataset
from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.write import BaseTargets, begin_write
from lance_spark.table.fragments.limits import WriteLimits
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import encode
from lance_spark.table.open import open_table
from lance_spark.table.paths import BasePath
from lance_spark.table.refs import clones
from tests.support.interop.blobs import extended, random_values, table
from tests.support.tables.damaged import files_below
from tests.support.tables.pylance_written import ids, rows
from tests.table.refs.branch_calls import clean_manifest
from tests.table.refs.clone_calls import bases, first_manifest, read_ids, source_table

#: These tests copy tables in each way.
pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path: Path) -> str:
    return source_table(tmp_path)


def test_clones_of_a_table_with_base_paths(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    theirs = [
        lance.DatasetBasePath(base.path, name=base.name, is_dataset_root=base.is_dataset_root)
        for base in bases(path)
    ]
    limits = {"max_rows_per_file": 3}
    dataset = write_dataset(
        rows(0, 12), path, initial_bases=bases(path), target_bases=["folder", path + "-r"], **limits
    )
    lance.write_dataset(
        rows(0, 12),
        path + "2",
        initial_bases=theirs,
        target_bases=["folder", path + "-r"],
        **limits,
    )
    assert dataset.base_paths() == open_dataset(path + "2").base_paths()
    our_message, their_message = (
        first_manifest(path).to_proto(),
        first_manifest(path + "2").to_proto(),
    )
    for message in (our_message, their_message):
        for fragment in message.fragments:
            fragment.files[0].ClearField("path")
    assert clean_manifest(our_message) == clean_manifest(their_message)
    first, second = (open_dataset(item).read_transaction(1) for item in (path, path + "2"))
    assert first is not None
    assert second is not None
    key = lambda base: base.id  # noqa: E731
    assert sorted(first.operation.initial_bases, key=key) == sorted(
        second.operation.initial_bases, key=key
    )
    assert len(list(Path(path + "-f").glob("*.lance"))) == 4  # two of each table
    assert len(list(Path(path + "-r/data").glob("*.lance"))) == 4
    assert not (Path(path) / "data").exists()
    # Both clients write to the clones, and read what the other client wrote.
    lance.write_dataset(rows(12), path, mode="append", target_bases=["root"])
    write_dataset(rows(15), path, "append", target_bases=["root"])
    write_dataset(rows(18, 9), path, "append", target_all_bases=True, **limits)
    write_dataset(rows(27, 6), path, "append", target_all_bases=False, **limits)
    lance.write_dataset(rows(33, 9), path, mode="append", target_all_bases=True, **limits)
    assert [fragment.files[0].base_id for fragment in open_dataset(path).fragments] == [
        *(
            1,
            2,
            1,
            2,
            2,
            2,
            None,
            1,
            2,
            1,
            2,
            *[f.files[0].base_id for f in open_dataset(path).fragments[-3:]],
        )
    ]
    lance.dataset(path).delete("id = 4")
    expected = [*range(4), *range(5, 42)]
    assert read_ids(path) == expected
    clone = open_dataset(path).shallow_clone(path + "-c")
    assert [base.id for base in clone.base_paths().values()].count(3) == 1
    assert read_ids(path + "-c") == expected
    open_dataset(path).deep_clone(path + "-d")
    for gone in (path, path + "-f", path + "-r"):
        shutil.rmtree(gone)
    assert read_ids(path + "-d") == expected


def test_overwritten_tables_keep_their_bases(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_dataset(rows(0), path, initial_bases=bases(path))
    write_dataset(rows(10), path, "overwrite", target_bases=["folder"])
    assert read_ids(path) == [10, 11, 12]
    lance.write_dataset(rows(20), path, mode="overwrite", target_bases=["folder"])
    assert read_ids(path) == [20, 21, 22]
    assert sorted(open_dataset(path).base_paths()) == [1, 2]


def test_failed_writes_leave_no_files_in_base_paths(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_dataset(rows(0), path, initial_bases=bases(path))

    def broken() -> Any:
        yield rows(0, 6).to_batches()[0]
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_dataset(broken(), path, "append", target_all_bases=False, max_rows_per_file=2)
    assert not list(tmp_path.glob("t-*/**/*.lance"))
    job = begin_write(
        path,
        rows(0).schema,
        limits=WriteLimits(1),
        bases=BaseTargets(names=["folder", "root"]),
    )
    writer = job.writer()
    writer.write(rows(0).to_batches()[0])
    fragments = writer.finish()
    assert len(list(tmp_path.glob("t-*/**/*.lance"))) == 3
    job.abort(fragments[:1])
    assert len(list(tmp_path.glob("t-*/**/*.lance"))) == 2
    job.abort_all()
    assert not list(tmp_path.glob("t-*/**/*.lance"))


def test_blobs_in_base_paths(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    values = random_values(40)
    data = table(extended(values))
    limits = {"data_storage_version": "2.2", "max_rows_per_file": 20}
    write_dataset(data, path, initial_bases=bases(path), target_all_bases=False, **limits)
    lance.write_dataset(data, path, mode="append", target_bases=["folder"])
    assert list(Path(path + "-f").glob("*/*.blob"))
    read = open_dataset(path).to_table(blob_handling="all_binary")
    assert read["b"].to_pylist() == values * 2
    files = lance.dataset(path).take_blobs("b", indices=list(range(80)))
    assert [None if file is None else file.readall() for file in files] == values * 2
    copy = open_dataset(path).deep_clone(path + "-c")
    assert copy.to_table(blob_handling="all_binary") == read


@pytest.mark.parametrize(
    "base_paths",
    [
        [BasePath(0, "/a", False, "n"), BasePath(0, "/b", False, "n")],
        [BasePath(0, "/a", False), BasePath(0, "/a", True)],
        [BasePath(1, "/a", False), BasePath(1, "/b", False)],
    ],
)
def test_initial_bases_must_be_unique(tmp_path: Path, base_paths: list[BasePath]) -> None:
    with pytest.raises(InvalidInputError, match="two base paths have the"):
        write_dataset(rows(0), str(tmp_path / "t"), initial_bases=base_paths)


def with_manifest(path: str, change: Callable[[table_pb2.Manifest], object]) -> None:
    table = open_table(path)
    proto = table.manifest.to_proto()
    change(proto)
    file = Path(path) / versions.find(table.store, table.version).path
    file.write_bytes(encode(proto, table.manifest.index_section, None))


def test_base_paths_that_are_the_table_itself(path: str) -> None:
    """Base paths that lead to the table itself are read as folders."""
    dataset = open_dataset(path).create_branch("b")
    root = dataset.uri
    with_manifest(root, lambda m: m.base_paths.add(id=7, path=root, is_dataset_root=True))
    assert read_ids(root) == [0, *range(2, 9)]
    with_manifest(path, lambda m: m.base_paths.add(id=8, path=root, is_dataset_root=True))
    with_manifest(path, lambda m: m.base_paths.add(id=9, path=path, is_dataset_root=True))
    assert ids(Path(path)) == [0, *range(2, 9)]
    open_dataset(path).deep_clone(path + "-c")
    assert read_ids(path + "-c") == [0, *range(2, 9)]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.base_paths.add(id=0, path="/elsewhere", is_dataset_root=True),
        lambda m: m.base_paths.add(id=5, path="", is_dataset_root=True),
        lambda m: m.base_paths.add(id=5, path="a\0b", is_dataset_root=True),
        lambda m: m.base_paths.add(id=5, path="", is_dataset_root=False),
        lambda m: m.ClearField("base_paths"),
        lambda m: setattr(m.fragments[0].files[0], "base_id", 2**32 - 1),
        lambda m: setattr(m.fragments[0].files[0], "path", "../../x.lance"),
        lambda m: setattr(m.fragments[0].files[0], "path", "/etc/passwd"),
        lambda m: setattr(m.fragments[0].deletion_file, "base_id", 3),
    ],
)
def test_hostile_base_paths_are_refused(path: str, change: Any) -> None:
    clone = open_dataset(path).shallow_clone(path + "-c")
    with_manifest(clone.uri, change)
    with pytest.raises(CorruptTableError):
        open_dataset(clone.uri).to_table()
    with pytest.raises(CorruptTableError):
        open_dataset(clone.uri).deep_clone(path + "-d")
    assert not [name for name in files_below(Path(path + "-d")) if "manifest" in name]


def test_an_index_with_an_invalid_uuid_is_refused(path: str) -> None:
    dataset = open_dataset(path)
    section = table_pb2.IndexSection()
    section.indices.add(name="i").uuid.uuid = b"../../../../x"
    table = open_table(path)
    file = Path(path) / versions.find(table.store, table.version).path
    file.write_bytes(encode(table.manifest.to_proto(), section.SerializeToString(), None))
    with pytest.raises(CorruptTableError, match="has 13 bytes, not 16"):
        dataset.checkout_version((None, None)).deep_clone(path + "-c")
    assert clones.find_clone(ObjectStore.from_uri(path + "-c"), table, "b") is None


def test_a_deep_clone_into_a_base_path_of_its_source_is_refused(tmp_path: Path) -> None:
    """The files of the source stay after any error."""
    path, tier, link = tmp_path / "t", tmp_path / "tier", tmp_path / "link"
    base = BasePath(1, str(tier), True, "tier")
    write_dataset(rows(0), str(path), initial_bases=[base], target_bases=["tier"])
    link.symlink_to(tier, target_is_directory=True)
    before = files_below(tier)
    for target in (tier, link):
        with pytest.raises(InvalidInputError, match="copied to itself"):
            open_dataset(str(path)).deep_clone(str(target))
        assert files_below(tier) == before
    assert read_ids(str(path)) == [0, 1, 2]
