from __future__ import annotations

import errno
import os
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptFileError, StorageError
from lance_spark.storage import commit, local
from lance_spark.storage.commit import rename_without_replace
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.local import LocalSource
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore
from tests.support.stores.store_suite import StoreSuite


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore.from_uri(tmp_path / "t")


class TestLocal(StoreSuite):
    def test_views_share_the_bytes_of_a_small_file(self, store: ObjectStore) -> None:
        store.write_bytes("f", bytes(range(200)))
        first, second = store.open("f").read([ByteRange(0, 100), ByteRange(50, 50)])
        assert first[50:].__array_interface__["data"] == second.__array_interface__["data"]

    def test_views_outlive_the_file(self, store: ObjectStore) -> None:
        store.write_bytes("f", b"abc")
        source = store.open("f")
        (view,) = source.read([ByteRange(0, 3)])
        source.close()
        store.delete(["f"])
        assert view.tobytes() == b"abc"

    def test_existing_data_files_are_not_overwritten(self, store: ObjectStore) -> None:
        store.write_bytes("data/a", b"abc")
        with pytest.raises(StorageError, match=r"data/a: File exists"):
            store.open_output("data/a")

    def test_names_of_two_parts(self, store: ObjectStore) -> None:
        assert store.name("data/a") == store.open_output("data/a").name

    def test_a_file_where_a_folder_should_be(self, store: ObjectStore, tmp_path: Path) -> None:
        (tmp_path / "t").write_text("no table")
        assert store.list("_versions") == []
        with pytest.raises(StorageError):
            store.write_bytes("_versions/1", b"")

    def test_disk_full(self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        output = store.open_output("data/a")
        output.write(b"1")
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match=r"data/a: No space left"):
            output.close()
        assert store.list("data") == []
        with pytest.raises(StorageError, match="No space left") as caught:
            store.put_if_absent("_versions/1", b"1")
        assert is_refusal(caught.value)
        assert store.list("_versions") == []

    def test_a_commit_on_a_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It certainly failed: no file is left."""
        uri = str(tmp_path / "table")
        dataset = lance_spark.write_dataset(pa.table({"id": [1]}), uri)
        before = sorted(tmp_path.rglob("*"))
        real = local.write_temporary

        def full(path: str, data: bytes, *, durable: bool) -> str:
            if path.endswith(".manifest"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(path, data, durable=durable)

        monkeypatch.setattr(local, "write_temporary", full)
        with pytest.raises(StorageError, match="No space left") as caught:
            dataset.insert(pa.table({"id": [2]}))
        assert type(caught.value) is StorageError
        assert [path for path in sorted(tmp_path.rglob("*")) if path.is_file()] == [
            path for path in before if path.is_file()
        ]


class TestWithoutHardLinks(StoreSuite):
    """File systems such as FAT: rename without replace instead."""

    @pytest.fixture(autouse=True)
    def _no_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: str) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", refuse)

    def test_refused_without_hard_links_and_rename_without_replace(
        self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: str) -> bool:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(commit, "rename_without_replace", refuse)
        with pytest.raises(StorageError, match=r"_versions/1: .*neither hard links") as caught:
            store.put_if_absent("_versions/1", b"1")
        assert is_refusal(caught.value)
        assert store.list("_versions") == []
        with pytest.raises(StorageError, match="neither hard links") as caught:
            lance_spark.write_dataset(pa.table({"id": [1]}), store.uri)
        assert type(caught.value) is StorageError
        assert store.list("_transactions") == store.list("data") == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_for_a_name(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: str) -> None:
        raise OSError(code, os.strerror(code))

    real = os.link
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match=os.strerror(code)) as caught:
        store.put_if_absent("_versions/1", b"1")
    assert is_refusal(caught.value)
    assert store.list("_versions") == []

    def link_and_refuse(source: str, target: str) -> None:
        real(source, target)
        refuse()

    monkeypatch.setattr(os, "link", link_and_refuse)
    assert store.put_if_absent("_versions/1", b"1")


def test_a_lost_answer_of_a_network_file_system(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def link_and_forget(source: str, target: str) -> None:
        real(source, target)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr(os, "link", link_and_forget)
    assert store.put_if_absent("_versions/1", b"1")


def test_rename_without_replace(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("a")
    assert rename_without_replace(str(a), str(b))
    a.write_text("new")
    assert not rename_without_replace(str(a), str(b))
    assert (a.read_text(), b.read_text()) == ("new", "a")
    with pytest.raises(OSError, match="No such file"):
        rename_without_replace(str(tmp_path / "none"), str(tmp_path / "c"))


@pytest.mark.parametrize("file_type", ["pipe", "device"])
def test_pipes_and_devices_are_not_waited_for(store: ObjectStore, file_type: str) -> None:
    os.makedirs(store.uri)
    path = os.path.join(store.uri, "x")
    if file_type == "pipe":
        os.mkfifo(path)
    else:
        os.symlink("/dev/zero", path)
    for read in (store.open, store.read_bytes, lambda name: store.read_bytes(name, 10)):
        with pytest.raises(StorageError, match="a pipe or device, not a file"):
            read("x")


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    numbers = np.random.default_rng(1).integers(0, 1 << 60, 300_000)
    lance.write_dataset(pa.table({"a": numbers, "b": numbers}), path)
    (file,) = (path / "data").iterdir()
    dataset = lance_spark.open_dataset(path)
    batches = dataset.to_batches(columns=["b"], batch_size=1000)
    first = next(batches)
    taken = dataset.take([7])
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(CorruptFileError, match=r"lost bytes while it was read.*restore it"):
        dataset.take([299_999])
    # Rows that were read before belong to the caller.
    file.write_bytes(bytes(file.stat().st_size))
    assert first.column("b").to_numpy().tolist() == numbers[:1000].tolist()
    assert taken["b"].to_pylist() == [numbers[7]]


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    lance.write_dataset(pa.table({"a": np.random.default_rng(1).random(50_000)}), tmp_path / "t")
    dataset = lance_spark.open_dataset(tmp_path / "t")

    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(local, "_read_into", fail)
    with pytest.raises(StorageError, match=rf"data/.*[.]lance: {os.strerror(code)}$"):
        dataset.to_table()


@pytest.mark.parametrize("mapped", ["0", "1"])
def test_ranges_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: str) -> None:
    monkeypatch.setenv(local.MAP_VARIABLE, mapped)
    content = np.random.default_rng(2).integers(0, 256, 300_000, np.uint8)
    (tmp_path / "f").write_bytes(content.tobytes())
    source = LocalSource(str(tmp_path / "f"))
    rng = np.random.default_rng(3)
    for _ in range(100):
        starts = rng.integers(0, 290_000, int(rng.integers(1, 20)))
        lengths = rng.choice([0, 1, 64, 5_000, 90_000], len(starts))
        ranges = [
            ByteRange(int(start), int(min(length, 300_000 - start)))
            for start, length in zip(starts, lengths, strict=True)
        ]
        for (start, length), data in zip(ranges, source.read(ranges), strict=True):
            assert np.array_equal(data, content[start : start + length])
            assert not data.flags.writeable
    for bad in (ByteRange(299_999, 2), ByteRange(-1, 1), ByteRange(0, -1)):
        with pytest.raises(CorruptFileError, match="lie outside"):
            source.read([ByteRange(0, 1), bad])
    first, second = (source.read([ByteRange(start, 200_000)])[0] for start in (0, 50_000))
    assert np.shares_memory(first, second) == (mapped == "1")
    source.close()
    assert np.array_equal(first, content[:200_000])
