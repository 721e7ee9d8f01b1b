"""Commits and other creations of files are made once, although their requests fail."""

from __future__ import annotations

import errno
from typing import Any

import lance
import pytest

from lance_spark import Dataset
from lance_spark.errors import (
    InvalidInputError,
    StorageError,
    TableExistsError,
    UncertainCommitError,
)
from lance_spark.storage import retry
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.retry import Retries, create_once
from lance_spark.storage.store import ObjectStore
from lance_spark.table.operations.metadata import MapUpdate, UpdateConfig
from tests.storage.retry.tables import MANIFEST, Table, every_kind, rows, some_kinds
from tests.support.stores import proxy as faults
from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.proxy import Fault, FaultProxy


# -- files that are created only if there is none --------------------------------------------------
@every_kind
def test_creating_is_done_once(store: ObjectStore, proxy: FaultProxy, fault: Fault) -> None:
    proxy.fail("^PUT", fault, fault)
    assert store.put_if_absent("mine", b"mine")
    assert store.read_bytes("mine") == b"mine"
    proxy.clear()
    proxy.fail("^PUT", fault)
    assert not store.put_if_absent("mine", b"other")
    assert store.read_bytes("mine") == b"mine"


def test_between_two_tries_somebody_else_is_faster(
    aws: Aws, store: ObjectStore, key: str, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slept(_seconds: float) -> None:
        aws.s3.put_object(Bucket=BUCKET, Key=f"{key}/theirs", Body=b"theirs")

    monkeypatch.setattr(retry.time, "sleep", slept)
    proxy.fail("^PUT .*/theirs", faults.RESET)
    assert not store.put_if_absent("theirs", b"ours")
    assert store.read_bytes("theirs") == b"theirs"


class Script:
    """Puts and heads with prepared answers."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    def __call__(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def failed(cause: Exception | None) -> StorageError:
    error = StorageError(f"failed: {cause!r}")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("puts", "looks", "expected"),
    [
        ([True], [], True),
        ([False], [], False),
        # The client of the store found its own file: the first put was done.
        ([failed(TimeoutError()), False], [None, b"own"], True),
        ([failed(TimeoutError()), False], [None, b"other"], False),
        ([failed(TimeoutError())], [b"own"], True),
        # Answers that are cut short.
        ([failed(TimeoutError())], [b"ow", b"", b"own"], True),
        ([failed(TimeoutError())], [b"o", b"other"], False),
        # A store whose error for an existing file is unknown.
        ([failed(OSError(errno.EINVAL, "precondition"))], [b"own"], True),
        ([failed(OSError(errno.EINVAL, "precondition"))], [b"other"], False),
    ],
)
def test_create_once_returns_whether_this_client_created_the_file(
    puts: list[Any], looks: list[Any], expected: bool
) -> None:
    put, look = Script(*puts), Script(*looks)
    assert create_once(put, look, b"own", Retries(3, 60)) is expected
    assert not put.answers
    assert not look.answers


@pytest.mark.parametrize("theirs", [b"other", b"own, and more", b"a longer file"])
def test_after_a_lost_answer_the_file_of_another_client_is_known(
    monkeypatch: pytest.MonkeyPatch, theirs: bytes
) -> None:
    class Lost:
        def put_if_absent(self, path: str, data: bytes) -> bool:
            raise failed(TimeoutError())

    store = ObjectStore.from_uri(f"memory://lost/{len(theirs)}", {"client_max_retries": "0"})
    monkeypatch.setattr(store, "_handler", Lost())
    store.write_bytes("file", theirs)
    assert store.put_if_absent("file", b"own") is False
    with pytest.raises(StorageError) as caught:
        store.put_if_absent("missing", b"own")
    assert not is_refusal(caught.value)


@pytest.mark.parametrize(
    ("puts", "looks", "refused"),
    [
        ([failed(PermissionError())], [], True),
        # A request that may still arrive is not refused, whatever follows it.
        ([failed(TimeoutError()), failed(PermissionError())], [None], False),
        ([failed(TimeoutError())], [failed(PermissionError())], False),
        ([failed(OSError(errno.ENOSPC, "full"))], [None], False),
        ([failed(TimeoutError())] * 4, [None] * 4, False),
        ([failed(TimeoutError())], [b"ow"] * 4, False),
    ],
)
def test_create_once_distinguishes_refusals_from_unknown_outcomes(
    monkeypatch: pytest.MonkeyPatch, puts: list[Any], looks: list[Any], refused: bool
) -> None:
    monkeypatch.setattr(retry, "_FIRST_WAIT", 0.001)
    put, look = Script(*puts), Script(*looks)
    with pytest.raises(StorageError) as caught:
        create_once(put, look, b"own", Retries(3, 60))
    assert is_refusal(caught.value) is refused
    assert not put.answers
    assert not look.answers


# -- tables ----------------------------------------------------------------------------------------
@some_kinds
def test_a_commit_is_made_once(table: Table, proxy: FaultProxy, fault: Fault) -> None:
    proxy.fail(MANIFEST, fault)
    assert table.write(1).version == 2
    assert proxy.left == 0
    assert table.seen() == (2, [0, 1])


@some_kinds
def test_every_request_of_a_commit_fails_once(
    table: Table, proxy: FaultProxy, fault: Fault
) -> None:
    """The requests of a commit without faults are counted. Then each of them fails once, in a
    commit of its own.
    """
    proxy.clear()
    table.write(1)
    patterns = dict.fromkeys(_kind(request) for request in proxy.requests)
    assert len(patterns) == 5
    for turn, pattern in enumerate(patterns, 2):
        proxy.clear()
        proxy.fail(pattern, fault)
        assert table.write(turn).version == turn + 1
        assert proxy.left == 0, pattern
    assert table.seen() == (len(patterns) + 2, [*range(len(patterns) + 2)])
    # Files of failed attempts must be deleted: one file and one transaction for each version
    # remain.
    names = table.aws.names(f"{table.key}/")
    assert sum(name.startswith("data/") for name in names) == len(patterns) + 2


def _kind(request: str) -> str:
    method, target = request.split()
    folder = next(
        (item for item in ("data", "_versions", "_transactions") if f"/{item}" in target), ""
    )
    listed = r"\?.*list-type" if "list-type" in target else ""
    return f"^{method} .*{listed}" if listed else f"^{method} .*/{folder}"


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("mode", ["append", "create"])
def test_a_store_that_dies_leaves_a_commit_uncertain(
    aws: Aws, options: dict[str, Any], key: str, proxy: FaultProxy, arrives: bool, mode: str
) -> None:
    """The version may exist or not. If it exists, its files exist."""
    table = Table(aws, options, key)
    before = 0
    if mode == "append":
        before = table.write(0, mode="create").version
    proxy.fail(MANIFEST, Fault(arrives=arrives, resets=True, dies=True))
    with pytest.raises(UncertainCommitError, match="check whether"):
        table.write(1, mode=mode)
    proxy.clear()
    names = aws.names(f"{key}/")
    assert sum(name.startswith("data/") for name in names) == before + 1
    assert sum(name.startswith("_versions/") for name in names) == before + arrives
    if arrives:
        assert table.seen() == (before + 1, [0, 1][1 - before :])
    assert (
        table.write(2, mode="append" if before + arrives else "create").version
        == before + arrives + 1
    )


@some_kinds
def test_creating_a_table(
    aws: Aws, options: dict[str, Any], key: str, proxy: FaultProxy, fault: Fault
) -> None:
    table = Table(aws, options, key)
    proxy.fail(MANIFEST, fault, fault)
    assert table.write(7, mode="create").version == 1
    assert table.seen() == (1, [7])
    proxy.fail(MANIFEST, fault)
    with pytest.raises(TableExistsError):
        table.write(8, mode="create")
    assert table.seen() == (1, [7])


@some_kinds
def test_tags_and_branches(table: Table, proxy: FaultProxy, fault: Fault) -> None:
    handle = table.open()
    proxy.fail("^PUT .*_refs/tags", fault)
    handle.tags.create("one", 1)
    proxy.fail("^PUT .*_refs/tags", fault)
    with pytest.raises(InvalidInputError, match="one"):
        handle.tags.create("one", 1)
    proxy.fail("^PUT", fault, fault)
    handle.create_branch("side")
    assert lance.dataset(table.uri, storage_options=table.aws.theirs).tags.get_version("one") == 1
    theirs = lance.dataset(table.uri, storage_options=table.aws.theirs)
    assert list(theirs.branches.list()) == ["side"]
    assert theirs.checkout_version(("side", None)).to_table()["x"].to_pylist() == [0]


@some_kinds
def test_a_detached_version(table: Table, proxy: FaultProxy, fault: Fault) -> None:
    dataset = table.open()
    change = UpdateConfig(config=MapUpdate({"a": "b"}))
    proxy.fail(r"^PUT .*_versions/d\d+", fault)
    made = Dataset.commit(dataset, change, 1, detached=True)
    assert proxy.left == 0
    names = table.aws.names(f"{table.key}/_versions/d")
    assert names == [f"{made.version}.manifest"]
    assert table.seen() == (1, [0])


@some_kinds
def test_migration_of_names(
    aws: Aws, options: dict[str, Any], key: str, proxy: FaultProxy, fault: Fault
) -> None:
    table = Table(aws, options, key)
    for value in range(2):
        lance.write_dataset(
            rows(value),
            table.uri,
            mode="append" if value else "create",
            enable_v2_manifest_paths=False,
            storage_options=aws.theirs,
        )
    proxy.fail(MANIFEST, fault, fault)
    table.open().migrate_manifest_paths_v2()
    assert proxy.left == 0
    assert {len(name) for name in aws.names(f"{key}/_versions/")} == {len(f"{2**64}.manifest")}
    assert table.seen() == (2, [0, 1])


@pytest.mark.parametrize("seed", range(3))
def test_many_changes_through_a_bad_line(table: Table, proxy: FaultProxy, seed: int) -> None:
    """A tenth of all requests fails in some way."""
    proxy.schedule(seed, 0.1)
    expected = [0]
    for value in range(1, 9):
        table.write(value)
        expected.append(value)
    proxy.clear()
    assert table.seen() == (9, expected)
