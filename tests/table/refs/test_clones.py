"""Shallow and deep clones of tables with deletions, indexes, blobs, branches and base paths."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from lance_spark import Dataset, open_dataset, write_dataset
from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    InvalidOptionError,
    MissingFileError,
    StorageError,
    TableExistsError,
    UncertainCommitError,
)
from lance_spark.proto import table_pb2
from lance_spark.storage import parallel
from lance_spark.storage.parallel import Copy, copy_files
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.write_job import WriteLimits
from lance_spark.table.commit.write_plan import BaseTargets, begin_write
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import decode, encode
from lance_spark.table.open import open_table
from lance_spark.table.paths import BasePath
from lance_spark.table.refs import clones
from tests.support.interop.blobs import extended, random_values, table
from tests.support.tables.damaged import files_below
from tests.support.tables.pylance_written import ids, rows
from tests.table.refs.test_branches import clean_manifest

#: Copies tables in each way.
pytestmark = pytest.mark.slow

Clone = Callable[[str, str, Any], Any]


def ours(kind: str) -> Clone:
    return lambda path, target, what: getattr(open_dataset(path), kind)(target, what)


def pylances(kind: str) -> Clone:
    return lambda path, target, what: getattr(lance.dataset(path), kind)(target, what)


SHALLOW = pytest.mark.parametrize("clone", [ours("shallow_clone"), pylances("shallow_clone")])
DEEP = pytest.mark.parametrize("clone", [ours("deep_clone"), pylances("deep_clone")])
BOTH = pytest.mark.parametrize("kind", ["shallow_clone", "deep_clone"])


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Ids 0 to 5 in version 1, an index in 2, without 1 in version 3, with 6 to 8 in version 4."""
    path = str(tmp_path / "t")
    dataset = lance.write_dataset(rows(0, 6), path, max_rows_per_file=3)
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id = 1")
    lance.write_dataset(rows(6), path, mode="append")
    lance.dataset(path).update_config({"some": "thing"})
    return path


def read_ids(path: str) -> list[int]:
    """Return the ids of a table; both clients must read the same ones, with and without an index."""
    mine, theirs = open_dataset(path), lance.dataset(path)
    theirs.validate()
    assert mine.version == theirs.version
    assert mine.to_table() == theirs.to_table()
    for item in mine.to_table()["id"].to_pylist():
        assert theirs.to_table(filter=f"id = {item}").num_rows == 1
    return sorted(mine.to_table()["id"].to_pylist())


def first_manifest(path: str) -> Any:
    (file,) = (Path(path) / "_versions").glob("*.manifest")
    return decode(file.read_bytes(), str(file))


@BOTH
def test_first_manifest_equals_that_of_pylance(path: str, kind: str) -> None:
    ours(kind)(path, path + "-a", 5)
    pylances(kind)(path, path + "-b", 5)
    mine, theirs = first_manifest(path + "-a"), first_manifest(path + "-b")
    assert clean_manifest(mine.to_proto()) == clean_manifest(theirs.to_proto())
    assert mine.index_section == theirs.index_section
    first = (open_dataset(path + "-a").read_transaction(5), open_dataset(path + "-b"))
    assert first[0] is not None
    assert first[0].operation == first[1].read_transaction(5).operation
    assert open_dataset(path + "-a").base_paths() == first[1].base_paths()
    assert lance.dataset(path + "-a").config() == {"some": "thing"}


@pytest.mark.parametrize("kind", ["shallow_clone", "deep_clone"])
@pytest.mark.parametrize("who", [ours, pylances])
def test_old_versions_tags_and_branches_can_be_cloned(
    path: str, kind: str, who: Callable[[str], Clone]
) -> None:
    lance.dataset(path).tags.create("deleted", 3)
    lance.write_dataset(rows(60), lance.dataset(path).create_branch("b", 2), mode="append")
    clone = who(kind)
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
    # A deep clone needs none of them.
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
@pytest.mark.parametrize("who", [ours, pylances])
def test_clones_have_the_blobs(tmp_path: Path, kind: str, who: Callable[[str], Clone]) -> None:
    values = random_values(60)
    data = table(extended(values))
    source, target = str(tmp_path / "t"), str(tmp_path / "c")
    lance.write_dataset(data, source, data_storage_version="2.2", max_rows_per_file=20)
    assert list((tmp_path / "t/data").glob("*/*.blob"))
    who(kind)(source, target, 1)
    if kind == "deep_clone":
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
    for kind in ("shallow_clone", "deep_clone"):
        target = f"{source}-{kind}"
        getattr(open_dataset(source), kind)(target)
        lance.write_dataset(rows(10), target, mode="append")
        theirs = lance.dataset(target).to_table(with_row_id=True)
        assert theirs["_rowid"].to_pylist() == [2, 3, 4, 5, 6, 7, 8]
        assert open_dataset(target).to_table(with_row_id=True) == theirs


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
    (own,) = (Path(path + "-c") / "data").iterdir()
    table = open_table(path + "-c")
    name = table.manifest.fragments[0].files[0].path
    proto = table.manifest.to_proto()
    proto.fragments[-1].files[0].path = name
    own.rename(own.with_name(name))
    file = Path(path + "-c") / versions.find(table.store, table.version).path
    file.write_bytes(encode(proto, table.manifest.index_section, None))
    dataset = open_dataset(path + "-c")
    assert read_ids(path + "-c") == [0, *range(2, 9), 50, 51, 52]
    dataset.deep_clone(path + "-d")
    shutil.rmtree(path)
    assert read_ids(path + "-d") == [0, *range(2, 9), 50, 51, 52]


class Killed(BaseException):
    pass


@BOTH
def test_a_deep_clone_can_be_repeated_after_a_kill_at_any_step(
    path: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the manifest exists, no table exists; a second attempt makes the clone."""
    target = Path(path + "-c")
    create = versions.create_manifest
    put = ObjectStore.write_bytes
    steps: list[int] = []

    def step() -> None:
        if not steps[0]:
            raise Killed
        steps[0] -= 1

    def put_dead(self: ObjectStore, *args: Any, **named: Any) -> None:
        step()
        put(self, *args, **named)

    def create_dead(*args: Any) -> bool:
        step()
        return create(*args)

    copy = parallel.copy_file

    def copy_dead(one: Copy) -> None:
        step()
        copy(one)

    for kill_at in range(40):
        steps[:] = [kill_at]
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "write_bytes", put_dead)
            patch.setattr(versions, "create_manifest", create_dead)
            patch.setattr(parallel, "copy_file", copy_dead)
            # What a process that is killed does not come to.
            patch.setattr(ObjectStore, "delete", lambda self, paths: None)
            try:
                getattr(open_dataset(path), kind)(str(target))
                done = True
            except Killed:
                done = False
        if done:
            assert kill_at >= (2 if kind == "shallow_clone" else 8)
            return
        if versions.list_manifests(ObjectStore.from_uri(target)):
            # The hint is the only step after the manifest.
            assert read_ids(str(target)) == [0, *range(2, 9)]
            shutil.rmtree(target)
            continue
        getattr(open_dataset(path), kind)(str(target))
        assert read_ids(str(target)) == [0, *range(2, 9)]
        shutil.rmtree(target)
    raise AssertionError("never done")


def test_a_missing_source_file_fails_the_clone(path: str) -> None:
    next((Path(path) / "data").iterdir()).unlink()
    with pytest.raises(MissingFileError, match="data/"):
        open_dataset(path).deep_clone(path + "-c")
    assert files_below(Path(path + "-c")) == set()


def test_a_store_that_fails_at_the_manifest(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create = versions.create_manifest

    def answer_is_lost(*args: Any) -> bool:
        create(*args)
        raise StorageError("lost")

    def refused(*args: Any) -> bool:
        raise StorageError("refused")

    monkeypatch.setattr(versions, "create_manifest", answer_is_lost)
    open_dataset(path).shallow_clone(path + "-c")
    assert read_ids(path + "-c") == [0, *range(2, 9)]
    monkeypatch.setattr(versions, "create_manifest", refused)
    with pytest.raises(StorageError, match="refused"):
        open_dataset(path).deep_clone(path + "-d")
    assert not [name for name in files_below(Path(path + "-d")) if name.endswith(".lance")]


@BOTH
def test_a_repeated_request_recognises_its_own_manifest(
    path: str, kind: str, repeat_puts: Callable[[], None]
) -> None:
    """The answer was lost: the existing manifest is our own."""
    repeat_puts()
    made = getattr(open_dataset(path), kind)(path + "-c")
    assert read_ids(made.uri) == [0, *range(2, 9)]
    assert made.read_transaction(made.version) is not None
    assert len(list((Path(path + "-c") / "_transactions").iterdir())) == 1


@pytest.mark.parametrize("failures", [1, 99])
def test_a_delayed_request_for_the_manifest_is_uncertain(
    path: str, failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files must stay as long as the request may still arrive."""
    put = ObjectStore.put_if_absent
    late: list[tuple[Any, ...]] = []

    def delayed(self: ObjectStore, *args: Any) -> bool:
        if len(late) < failures:
            late.append((self, *args))
            raise StorageError("no answer") from TimeoutError()
        return put(self, *args)

    monkeypatch.setattr(ObjectStore, "put_if_absent", delayed)
    if failures == 1:
        open_dataset(path).deep_clone(path + "-c")
    else:
        with pytest.raises(UncertainCommitError, match="no answer"):
            open_dataset(path).deep_clone(path + "-c")
    for request in late:
        put(*request)
    assert read_ids(path + "-c") == [0, *range(2, 9)]


def test_a_failing_clone_keeps_files_of_a_concurrent_one(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copies of both clones have the same names, and the failing clone deletes its own."""
    copy = parallel.copy_file
    target = Path(path + "-c")
    doomed = sorted((Path(path) / "data").iterdir())[-1]

    def fail(one: Copy) -> None:
        copy(one)
        if one.path.endswith(doomed.name):
            raise MissingFileError("broken off")

    def interleaved(one: Copy) -> None:
        copy(one)
        if one.path.endswith(doomed.name):
            monkeypatch.setattr(parallel, "copy_file", copy)
            # Not the temporary files: other threads are copying into them.
            for name in (target / "data").glob("[!.]*"):
                name.unlink()

    monkeypatch.setattr(parallel, "copy_file", interleaved)
    open_dataset(path).deep_clone(str(target))
    assert read_ids(str(target)) == [0, *range(2, 9)]

    # The one that fails stops once there is a table.
    delete = ObjectStore.delete

    def overtaken(self: ObjectStore, paths: Any) -> None:
        delete(self, paths)
        monkeypatch.setattr(ObjectStore, "delete", delete)
        monkeypatch.setattr(parallel, "copy_file", copy)
        open_dataset(path).deep_clone(str(target))

    shutil.rmtree(target)
    monkeypatch.setattr(parallel, "copy_file", fail)
    monkeypatch.setattr(ObjectStore, "delete", overtaken)
    with pytest.raises(MissingFileError, match="broken off"):
        open_dataset(path).deep_clone(str(target))
    assert read_ids(str(target)) == [0, *range(2, 9)]


def test_another_client_creates_a_table_at_the_target(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = versions.create_manifest

    def late(*args: Any) -> bool:
        lance.write_dataset(rows(0), path + "-c")
        return create(*args)

    monkeypatch.setattr(versions, "create_manifest", late)
    with pytest.raises(TableExistsError, match="another client"):
        open_dataset(path).deep_clone(path + "-c")
    monkeypatch.undo()
    assert ids(Path(path + "-c")) == [0, 1, 2]


def test_another_client_commits_to_the_clone_at_once(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit on the new version, before the check for other tables, is not another table."""
    create = versions.create_manifest

    def early(*args: Any) -> bool:
        monkeypatch.undo()
        created = create(*args)
        lance.write_dataset(rows(50), path + "-c", mode="append")
        return created

    def another(*args: Any) -> bool:
        monkeypatch.undo()
        created = create(*args)
        lance.dataset(path).shallow_clone(path + "-e", 4)
        # It had looked before.
        shutil.copytree(path + "-e", path + "-d", dirs_exist_ok=True)
        return created

    monkeypatch.setattr(versions, "create_manifest", early)
    open_dataset(path).shallow_clone(path + "-c", 4)
    assert read_ids(path + "-c") == [0, *range(2, 9), 50, 51, 52]
    assert [version.version for version in open_dataset(path + "-c").versions()] == [4, 5]

    monkeypatch.setattr(versions, "create_manifest", another)
    with pytest.raises(TableExistsError, match="another client"):
        open_dataset(path).shallow_clone(path + "-d", 3)
    assert [version.version for version in open_dataset(path + "-d").versions()] == [4]


def test_copies_are_bounded_in_size_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = ObjectStore.from_uri(tmp_path / "a"), ObjectStore.from_uri(tmp_path / "b")
    content = {f"f{at}": bytes([at]) * (100 + at) for at in range(30)}
    for name, data in content.items():
        source.write_bytes(name, data)
    target.write_bytes("f3", b"left behind")
    monkeypatch.setattr(parallel, "PIECE_BYTES", 32)
    running, most, taken = [0], [0], [0]
    lock = threading.Lock()
    copy = parallel.copy_file

    def counted(one: Copy) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        copy(one)
        with lock:
            running[0] -= 1

    def wanted() -> Iterable[Copy]:
        for name in content:
            taken[0] += 1
            yield Copy(source, name, target, name)

    monkeypatch.setattr(parallel, "copy_file", counted)
    started: list[Copy] = []
    copy_files(wanted(), started)
    assert {name: target.read_bytes(name) for name in content} == content
    assert [item.target_path for item in started] == list(content)
    assert most[0] <= parallel.FILES_AT_ONCE
    # An error ends it: no more are begun than are under way.
    taken[0] = 0
    source.delete(["f0"])
    with pytest.raises(MissingFileError):
        copy_files(wanted(), [])
    assert taken[0] <= 2 * parallel.FILES_AT_ONCE + 1


def test_clones_work_in_the_memory_store(tmp_path: Path) -> None:
    uri = f"memory://{tmp_path.name}"
    data = pa.table({"id": range(5)})
    dataset: Dataset = write_dataset(data, f"{uri}/t")
    assert dataset.shallow_clone(f"{uri}/s").to_table() == data
    assert dataset.deep_clone(tmp_path / "d").to_table() == data
    assert lance.dataset(str(tmp_path / "d")).to_table() == data


# Base paths.


def bases(path: str) -> list[BasePath]:
    return [BasePath(0, path + "-f", False, "folder"), BasePath(0, path + "-r", True, "root")]


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
    mine, other = first_manifest(path).to_proto(), first_manifest(path + "2").to_proto()
    for message in (mine, other):
        for fragment in message.fragments:
            fragment.files[0].ClearField("path")
    assert clean_manifest(mine) == clean_manifest(other)
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
    # Both clients write to them, and read what the other wrote.
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


@pytest.mark.parametrize(
    "given",
    [
        [BasePath(0, "/a", False, "n"), BasePath(0, "/b", False, "n")],
        [BasePath(0, "/a", False), BasePath(0, "/a", True)],
        [BasePath(1, "/a", False), BasePath(1, "/b", False)],
    ],
)
def test_initial_bases_must_be_unique(tmp_path: Path, given: list[BasePath]) -> None:
    with pytest.raises(InvalidInputError, match="two base paths have the"):
        write_dataset(rows(0), str(tmp_path / "t"), initial_bases=given)


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
    """The source's files stay, whichever error occurs."""
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


def test_a_failed_deep_clone_keeps_existing_files(path: str) -> None:
    """Another table that uses the folder can have files with the same names."""
    lost, kept = sorted((Path(path) / "data").iterdir())[:2]
    target = Path(path + "-c") / "data"
    target.mkdir(parents=True)
    shutil.copy(kept, target)
    lost.unlink()
    with pytest.raises(MissingFileError):
        open_dataset(path).deep_clone(path + "-c")
    assert files_below(Path(path + "-c")) == {f"data/{kept.name}"}


def test_a_copied_file_is_never_seen_in_part(tmp_path: Path) -> None:
    """A concurrent clone to the same path must never see a partly written file."""
    source, target = ObjectStore.from_uri(tmp_path / "a"), ObjectStore.from_uri(tmp_path / "b")
    source.write_bytes("x", b"new")
    target.write_bytes("x", b"old")
    output = target.open_output("x", replace=True)
    output.write(b"part")
    assert target.read_bytes("x") == b"old"
    output.abort()
    parallel.copy_file(Copy(source, "x", target, "x"))
    assert target.read_bytes("x") == b"new"
    assert target.list_names("") == ["x"]
