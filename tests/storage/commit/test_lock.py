"""Commits under a lock, where a store cannot create a file only if it is absent."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import lance.commit
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import lance_spark
from lance_spark.dataset import LanceOperation
from lance_spark.errors import CommitConflictError, InvalidOptionError, LanceError, StorageError
from lance_spark.storage.commit import version_of
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.store import ObjectStore
from tests.support.stores.table_suite import rows, values

LOCK = threading.Lock()
GRANTED: list[int] = []


@contextmanager
def lock(version: int) -> Iterator[None]:
    with LOCK:
        GRANTED.append(version)
        yield


class PlainFileSystem(MemoryFileSystem):
    """A store without safe commits, on which other clients write between a check and a put."""

    protocol = "plain"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        time.sleep(0.002)
        super().pipe_file(path, value, **kwargs)


@pytest.fixture(autouse=True)
def plain() -> Iterator[type[PlainFileSystem]]:
    fsspec.register_implementation("plain", PlainFileSystem, clobber=True)
    GRANTED.clear()
    yield PlainFileSystem
    PlainFileSystem.store.clear()
    PlainFileSystem.pseudo_dirs[:] = [""]


def test_a_table_without_a_lock_can_only_be_read() -> None:
    with pytest.raises(StorageError, match=r"plain://.*only be read.*commit_lock"):
        lance_spark.write_dataset(rows(1), "plain://t")
    assert PlainFileSystem.store == {}
    lance_spark.write_dataset(rows(1), "plain://t", storage_options={"commit_lock": lock})
    assert values(lance_spark.open_dataset("plain://t").to_table()) == [1]
    with pytest.raises(StorageError, match="only be read"):
        lance_spark.write_dataset(rows(2), "plain://t", "append")


@pytest.mark.parametrize("lock_option", [lock, f"{__name__}:lock"])
def test_the_lock_is_called_with_the_version(lock_option: Any) -> None:
    options = {"commit_lock": lock_option}
    for number in range(3):
        mode = "append" if number else "create"
        lance_spark.write_dataset(rows(number), "plain://t", mode, storage_options=options)  # type: ignore[arg-type]
    if not isinstance(lock_option, str):
        assert GRANTED == [1, 2, 3]
    dataset = lance_spark.open_dataset("plain://t", storage_options=options)
    assert values(dataset.to_table()) == [0, 1, 2]
    assert dataset.version == 3


def race(commit_lock: Any) -> tuple[list[int], list[int]]:
    """Return the acknowledged rows, and the stored rows."""
    options = {"commit_lock": commit_lock}
    lance_spark.write_dataset(rows(0), "plain://t", storage_options=options)
    done = [0]

    def append(number: int) -> None:
        # Overwritten versions can also be an error of other clients.
        with suppress(LanceError):
            lance_spark.write_dataset(rows(number), "plain://t", "append", storage_options=options)
            done.append(number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(1, 13)))
    return sorted(done), values(lance_spark.open_dataset("plain://t").to_table())


def test_nothing_is_lost_under_a_lock() -> None:
    done, stored = race(lock)
    assert done == stored == list(range(13))
    assert lance_spark.open_dataset("plain://t").version == 13


def test_a_lock_without_effect_loses_rows() -> None:
    """With a lock that locks nothing, acknowledged rows are lost."""
    done, stored = race(lambda _: nullcontext())
    assert not set(done) <= set(stored)


def test_the_stores_own_way_is_used_under_the_lock(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    options = {"commit_lock": lock}
    store = ObjectStore.from_uri(uri, options)
    assert store.put_if_absent("_versions/5.manifest", b"1")
    assert not store.put_if_absent("_versions/5.manifest", b"2")
    assert store.read_bytes("_versions/5.manifest") == b"1"
    assert GRANTED == [5, 5]


@pytest.mark.parametrize("error_class", [lance.commit.CommitConflictError, CommitConflictError])
def test_a_conflict_starts_the_commit_again(error_class: Any) -> None:
    failures = [error_class("taken", retryable=True) for _ in range(2)]

    def contended(version: int) -> Any:
        if failures:
            raise failures.pop()
        return lock(version)

    options = {"commit_lock": contended}
    written = lance_spark.write_dataset(rows(1), "plain://t", storage_options=options)
    assert written.version == 1
    assert GRANTED == [1]


@pytest.mark.parametrize("place", ["plain", "disk"])
def test_a_lock_that_stays_taken(place: str, tmp_path: Path) -> None:
    """Nothing was written, and the error says so."""
    taken = False

    def contended(version: int) -> Any:
        if taken:
            raise CommitConflictError("busy", retryable=True)
        return lock(version)

    uri = "plain://t" if place == "plain" else str(tmp_path / "t")
    dataset = lance_spark.write_dataset(rows(1), uri, commit_lock=contended)
    files = {file.path for file in ObjectStore.from_uri(uri).list_tree("_transactions")}
    taken = True
    operation = LanceOperation.Restore(1)
    with pytest.raises(CommitConflictError, match="other writers were faster 2 times"):
        lance_spark.Dataset.commit(
            uri, operation, read_version=1, commit_lock=contended, max_retries=1
        )
    for change in (lambda: dataset.tags.create("a", 1), lambda: dataset.create_branch("b")):
        with pytest.raises(StorageError, match="another client has the commit_lock") as caught:
            change()
        assert is_refusal(caught.value)
    taken = False
    dataset.tags.create("a", 1)
    assert {file.path for file in ObjectStore.from_uri(uri).list_tree("_transactions")} == files
    assert lance_spark.open_dataset(uri).version == 1


class Denied(Exception):
    """The packages of Azure and Google raise this error without permission."""

    status_code = 403


@contextmanager
def expiring(version: int) -> Iterator[None]:
    yield
    if version > 1:
        raise Denied("the token has expired")


@pytest.mark.parametrize("place", ["plain", "disk"])
def test_a_commit_is_valid_if_its_lock_cannot_be_released(place: str, tmp_path: Path) -> None:
    uri = "plain://t" if place == "plain" else str(tmp_path / "t")
    options = {"commit_lock": expiring}
    lance_spark.write_dataset(rows(0), uri, storage_options=options)
    written = lance_spark.write_dataset(rows(1), uri, "append", storage_options=options)
    assert written.version == 2
    assert values(lance_spark.open_dataset(uri).to_table()) == [0, 1]


def test_a_move_that_is_refused_afterwards_was_done(
    monkeypatch: pytest.MonkeyPatch, plain: type[PlainFileSystem]
) -> None:
    def mv(self: PlainFileSystem, source: str, target: str, **_: Any) -> None:
        self.store[self._strip_protocol(target)] = self.store.pop(self._strip_protocol(source))
        raise PermissionError(13, "the token has expired")

    options = {"commit_lock": lock}
    lance_spark.write_dataset(rows(0), "plain://t", storage_options=options)
    monkeypatch.setattr(plain, "mv", mv, raising=False)
    written = lance_spark.write_dataset(rows(1), "plain://t", "append", storage_options=options)
    assert written.version == 2
    assert values(lance_spark.open_dataset("plain://t").to_table()) == [0, 1]
    assert not [name for name in plain.store if name.endswith(".tmp")]


def test_a_lock_that_is_not_granted() -> None:
    @contextmanager
    def refused(version: int) -> Iterator[None]:
        raise TimeoutError(f"waited too long for hunter2-secret and {version}")
        yield

    options = {"commit_lock": refused, "lock_password": "hunter2-secret"}
    with pytest.raises(StorageError, match=r"not granted: TimeoutError: waited too long") as caught:
        lance_spark.write_dataset(rows(1), "plain://t", storage_options=options)
    assert is_refusal(caught.value)
    assert "hunter2" not in str(caught.value)
    left = [name for name in PlainFileSystem.store if "/_versions/" in name or "/_tran" in name]
    assert left == []


def test_a_lock_that_is_lost_on_the_way() -> None:
    """The version exists: the client recognises it as its own."""

    @contextmanager
    def lost(version: int) -> Iterator[None]:
        yield
        raise ConnectionResetError("the lease has expired")

    options = {"commit_lock": lost, "client_max_retries": "0"}
    written = lance_spark.write_dataset(rows(1), "plain://t", storage_options=options)
    assert written.version == 1
    assert values(lance_spark.open_dataset("plain://t").to_table()) == [1]


def test_the_lock_gets_the_error_of_the_commit() -> None:
    ends: list[object] = []

    class Lease:
        def __enter__(self) -> None: ...

        def __exit__(self, error_class: object, *_: object) -> None:
            ends.append(error_class)

    store = ObjectStore.from_uri("plain://t", {"commit_lock": lambda _: Lease()})
    store.put_if_absent("x", b"1")
    store.put_if_absent("x", b"2")
    assert ends == [None, CommitConflictError]


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("no_colon", "must be package.module:name"),
        ("no.such.module:lock", "cannot be imported"),
        (f"{__name__}:nothing", "cannot be imported"),
        (f"{__name__}:LOCK", "is not callable"),
        (7, "is not callable"),
    ],
)
def test_names_of_no_lock(named: object, problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        lance_spark.write_dataset(rows(1), "plain://t", storage_options={"commit_lock": named})


def test_the_lock_is_pickled_with_the_store() -> None:
    store = ObjectStore.from_uri("plain://t", {"commit_lock": f"{__name__}:lock"})
    assert pickle.loads(pickle.dumps(store)).put_if_absent("a", b"1")


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("bucket/t/_versions/7.manifest", 7),
        ("b/t/_versions/18446744073709551608.manifest", 7),
        ("b/t/_versions/d9223372036854775809.manifest", 0),
        ("b/_versions/7.manifest/x", 0),
        ("b/t/_refs/tags/7.json", 0),
    ],
)
def test_versions_of_files(path: str, version: int) -> None:
    assert version_of(path) == version
