from __future__ import annotations

from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lance_spark.errors import CorruptFileError, MissingFileError, StorageError
from lance_spark.storage import retry
from lance_spark.storage.commit import ConditionalPut, handler_for
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.remote import MAX_GAP, MAX_READ, coalesce
from lance_spark.storage.retry import Retries
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore
from tests.support.stores.store_suite import StoreSuite


@pytest.fixture
def store(request: pytest.FixtureRequest) -> ObjectStore:
    root = f"memory://{abs(hash(request.node.nodeid))}/t"
    yield ObjectStore.from_uri(root)
    fs = fsspec.filesystem("memory")
    if fs.exists(root):
        fs.rm(root, recursive=True)


class TestMemory(StoreSuite):
    pass


def test_coalesce() -> None:
    ranges = [
        ByteRange(5_000_000, 10),
        ByteRange(0, 100),
        ByteRange(100 + MAX_GAP, 50),
        ByteRange(10, 0),
        ByteRange(50, 10),
        ByteRange(151 + 2 * MAX_GAP, 9),
    ]
    assert [tuple(read) for read in coalesce(ranges)] == [
        (0, 150 + MAX_GAP, [1, 4, 2]),
        (151 + 2 * MAX_GAP, 160 + 2 * MAX_GAP, [5]),
        (5_000_000, 5_000_010, [0]),
    ]


def test_merged_reads_are_bounded() -> None:
    size = MAX_READ // 4
    reads = coalesce(
        [ByteRange(i * size, size) for i in range(6)] + [ByteRange(9 * size, 5 * size)]
    )
    assert [(r.start, r.stop) for r in reads] == [
        (0, 4 * size),
        (4 * size, 6 * size),
        (9 * size, 14 * size),
    ]


def test_unknown_scheme() -> None:
    with pytest.raises(StorageError, match=r"nope://x/t: unknown scheme 'nope'"):
        ObjectStore.from_uri("nope://x/t")


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "filesystem", refuse)
    with pytest.raises(StorageError, match="pip install s3fs"):
        ObjectStore.from_uri("s3://bucket/t")


class LeakyFileSystem(MemoryFileSystem):
    protocol = "leaky"

    def __init__(self, secret_key: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.secret_key = secret_key

    def cat_file(self, path: str, **kwargs: Any) -> bytes:
        raise RuntimeError(f"signature of {self.secret_key} is wrong")


def test_secrets_are_never_shown() -> None:
    fsspec.register_implementation("leaky", LeakyFileSystem, clobber=True)
    store = ObjectStore.from_uri("leaky://me:hunter2@t", {"secret_key": "abcd-efgh"})
    with pytest.raises(StorageError) as caught:
        store.read_bytes("x")
    for text in (repr(store), str(store), str(caught.value), repr(caught.value.__cause__)):
        assert "abcd-efgh" not in text
        assert "hunter2" not in text
    assert "signature of *** is wrong" in str(caught.value)


def test_no_safe_commit_no_commit() -> None:
    with pytest.raises(StorageError, match="can only be read"):
        handler_for("sftp", object())


class CloudFileSystem:
    """Replaces s3fs: refuses existing files, may lose answers."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
        if mode == "create" and path in self.files:
            raise FileExistsError(path)
        self.files[path] = data


class OldCloudFileSystem:
    def pipe_file(self, path: str, data: bytes, chunksize: int = 1) -> None: ...


def test_conditional_put() -> None:
    fs = CloudFileSystem()
    for scheme in ("s3", "s3a", "gs"):
        handler = handler_for(scheme, fs)
        assert isinstance(handler, ConditionalPut)
        assert handler.put_if_absent(scheme, b"1")
        assert not handler.put_if_absent(scheme, b"2")
        assert fs.files[scheme] == b"1"


@pytest.mark.parametrize("arrived", [False, True])
@pytest.mark.parametrize("readable", [False, True])
def test_rights_that_expire_while_a_put_is_repeated(arrived: bool, readable: bool) -> None:
    """Without a check, the first request whose answer was lost is unknown."""

    class Expiring(CloudFileSystem):
        def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
            if arrived:
                super().pipe_file(path, data, mode)
            raise PermissionError("expired")

        def cat_file(self, path: str) -> bytes:
            if not readable:
                raise PermissionError("expired")
            if path not in self.files:
                raise FileNotFoundError(path)
            return self.files[path]

    handler = ConditionalPut(Expiring(), {"mode": "create"})
    if arrived and readable:
        assert handler.put_if_absent("x", b"1")
        return
    with pytest.raises(StorageError, match="permission denied") as caught:
        handler.put_if_absent("x", b"1")
    assert is_refusal(caught.value) is readable


def test_the_look_after_a_refusal_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_WAIT", 0.001)

    class Shaky(CloudFileSystem):
        faults = 2

        def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
            super().pipe_file(path, data, mode)
            raise PermissionError("expired")

        def cat_file(self, path: str) -> bytes:
            self.faults -= 1
            if self.faults >= 0:
                raise ConnectionResetError
            return self.files[path]

    assert handler_for("s3", Shaky(), None, Retries(2)).put_if_absent("x", b"1")
    with pytest.raises(StorageError) as caught:
        handler_for("s3", Shaky(), None, Retries(1)).put_if_absent("x", b"1")
    assert not is_refusal(caught.value)


def test_a_check_after_a_refusal_reads_the_whole_file() -> None:
    class Short(CloudFileSystem):
        answers = 0

        def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
            super().pipe_file(path, data, mode)
            raise PermissionError("expired")

        def cat_file(self, path: str) -> bytes:
            self.answers += 1
            return self.files[path][: self.answers]

    assert handler_for("s3", Short()).put_if_absent("x", b"own")
    with pytest.raises(StorageError) as caught:
        handler_for("s3", Short()).put_if_absent("x", b"much longer")
    assert not is_refusal(caught.value)


def test_file_systems_that_cannot_are_refused() -> None:
    with pytest.raises(StorageError, match="pip install --upgrade s3fs"):
        handler_for("s3", OldCloudFileSystem())


def test_ranged_reads_that_fail_or_fall_short(store: ObjectStore) -> None:
    store.write_bytes("f", b"x" * 200_000)
    source = store.open("f")
    ranges = [ByteRange(0, 10), ByteRange(199_990, 10)]
    store.write_bytes("f", b"x" * 100)
    with pytest.raises(CorruptFileError, match="/f"):
        source.read(ranges)
    store.delete(["f"])
    with pytest.raises(MissingFileError, match="/f"):
        source.read(ranges)


def test_folders_that_cannot_be_listed_are_not_passed_over(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in HDFS, FTP and other stores.
    monkeypatch.setattr(MemoryFileSystem, "find", fsspec.AbstractFileSystem.find)
    for path in ("d/a", "d/e/b", "d/e/f/c", "dd/x", "x"):
        store.write_bytes(path, b"1")
    assert {info.path for info in store.list_tree("d")} == {"d/a", "d/e/b", "d/e/f/c"}
    assert {info.path for info in store.list_tree("d/e/f")} == {"d/e/f/c"}
    assert not store.list_tree("d/a/z")
    assert not store.list_tree("nowhere")
    listing = MemoryFileSystem.ls

    def failing(self: MemoryFileSystem, path: str, *args: Any, **kwargs: Any) -> Any:
        if path.endswith("e/f"):
            raise OSError("the line is dead")
        return listing(self, path, *args, **kwargs)

    monkeypatch.setattr(MemoryFileSystem, "ls", failing)
    with pytest.raises(StorageError, match="the line is dead"):
        store.list_tree("d")
