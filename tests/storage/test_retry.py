"""Requests that fail on their way, against a server behind a proxy that spoils them: sent again, and done once."""

from __future__ import annotations

import asyncio
import errno
import itertools
import time
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest
from google.auth.exceptions import RefreshError
from requests.exceptions import ProxyError

import lance_spark
from lance_spark import Dataset
from lance_spark.errors import (
    InvalidInputError,
    InvalidOptionError,
    LanceError,
    StorageError,
    TableExistsError,
    UncertainCommitError,
)
from lance_spark.storage import retry
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.remote import PART
from lance_spark.storage.retry import Retries, Tries, create_once, is_transient
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore
from lance_spark.table.operations.metadata.update_config import MapUpdate, UpdateConfig
from tests.support.stores import proxy as faults
from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.proxy import Fault, FaultProxy

NUMBERS = itertools.count()
KINDS = {
    "slow down": faults.SLOW_DOWN,
    "internal error": faults.INTERNAL_ERROR,
    "too many": faults.TOO_MANY,
    "reset": faults.RESET,
    "lost answer": faults.LOST,
    "denied after": faults.DENIED_AFTER,
    "truncated": faults.TRUNCATED,
}
every_kind = pytest.mark.parametrize("fault", KINDS.values(), ids=KINDS)
#: Of each sort one: refused, refused though done, never heard, done and not answered.
_SOME = ("slow down", "denied after", "reset", "lost answer")
some_kinds = pytest.mark.parametrize("fault", [KINDS[name] for name in _SOME], ids=_SOME)
#: The manifest, whichever version it is of.
MANIFEST = r"^PUT .*/_versions/[0-9d]+\.manifest"


@pytest.fixture
def options(aws: Aws, proxy: FaultProxy) -> dict[str, Any]:
    return {**aws.ours, "endpoint_url": proxy.endpoint, "client_max_retries": 4}


@pytest.fixture
def key() -> str:
    return f"t{next(NUMBERS)}"


@pytest.fixture
def store(options: dict[str, Any], key: str) -> ObjectStore:
    return ObjectStore.from_uri(f"s3://{BUCKET}/{key}", options)


def rows(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


class Table:
    """A table behind the proxy, which pylance looks at past it."""

    def __init__(self, aws: Aws, options: dict[str, Any], key: str) -> None:
        self.uri = f"s3://{BUCKET}/{key}"
        self.aws, self.options, self.key = aws, options, key

    def write(self, *values: int, mode: str = "append") -> lance_spark.Dataset:
        return lance_spark.write_dataset(
            rows(*values),
            self.uri,
            mode,
            storage_options=self.options,  # type: ignore[arg-type]
        )

    def open(self) -> lance_spark.Dataset:
        return lance_spark.open_dataset(self.uri, storage_options=self.options)

    def seen(self) -> tuple[int, list[int]]:
        """What pylance finds: the number of the newest version, and all rows of it."""
        dataset = lance.dataset(self.uri, storage_options=self.aws.theirs)
        assert [version["version"] for version in dataset.versions()] == [
            *range(1, dataset.version + 1)
        ]
        return dataset.version, sorted(dataset.to_table()["x"].to_pylist())


@pytest.fixture
def table(aws: Aws, options: dict[str, Any], key: str) -> Table:
    made = Table(aws, options, key)
    made.write(0, mode="create")
    return made


# -- requests that can be repeated ------------------------------------------------------------------------------------------------


@every_kind
def test_each_request_is_sent_again(store: ObjectStore, proxy: FaultProxy, fault: Fault) -> None:
    store.write_bytes("d/a", b"x" * 1000)
    store.write_bytes("d/b", b"y")
    actions: dict[str, Callable[[], object]] = {
        "read_bytes": lambda: store.read_bytes("d/a") == b"x" * 1000,
        "limited": lambda: store.read_bytes("d/a", 2000) == b"x" * 1000,
        "size": lambda: store.open("d/a").size == 1000,
        "range": lambda: (
            store.open("d/a", 1000).read([ByteRange(10, 900)])[0].tobytes() == b"x" * 900
        ),
        "write_bytes": lambda: store.write_bytes("d/a", b"x" * 1000) is None,
        "list": lambda: sorted(store.list("d")) == [("a", 1000), ("b", 1)],
        "list_first": lambda: store.list_first("d", 1) == ["a"],
        "list_folders": lambda: store.list_folders("") == ["d"],
        "list_tree": lambda: len(store.list_tree("d")) == 2,
        "exists": lambda: store.exists("d/a"),
        "absent": lambda: not store.exists("d/c"),
        "delete": lambda: store.delete(["d/b"]) is None and store.list_names("d") == ["a"],
    }
    for name, action in actions.items():
        if fault.keeps is not None and name in (
            "size",
            "exists",
            "absent",
            "write_bytes",
            "delete",
        ):
            # Their answers have nothing that could be cut.
            continue
        proxy.clear()
        proxy.fail(BUCKET, fault, fault)
        assert action(), name
        assert proxy.left == 0, name


@every_kind
def test_only_the_parts_that_failed_are_read_again(
    store: ObjectStore, proxy: FaultProxy, fault: Fault
) -> None:
    data = bytes(range(256)) * (5 * PART // 256)
    store.write_bytes("big", data)
    proxy.clear()
    proxy.fail("^GET", fault, fault)
    (result,) = store.open("big", len(data)).read([ByteRange(0, len(data))])
    assert result.tobytes() == data
    assert len(proxy.matching("^GET")) == 5 + 2


def test_nothing_is_repeated_for_ever(
    aws: Aws, options: dict[str, Any], proxy: FaultProxy, key: str
) -> None:
    broken = Fault(keeps=0.9)
    for retries in (0, 3):
        store = ObjectStore.from_uri(
            f"s3://{BUCKET}/{key}", {**options, "client_max_retries": str(retries)}
        )
        for fault in (faults.SLOW_DOWN, faults.TOO_MANY, faults.DENIED_AFTER, broken):
            proxy.clear()
            proxy.fail(BUCKET, *[fault] * 30)
            with pytest.raises(StorageError, match=key):
                store.list("")
            # What s3fs and botocore repeat by themselves would come on top.
            assert len(proxy.requests) == retries + 1
    hurried = ObjectStore.from_uri(
        f"s3://{BUCKET}/{key}", {**options, "client_retry_timeout": "0s"}
    )
    proxy.clear()
    proxy.fail(BUCKET, faults.SLOW_DOWN)
    with pytest.raises(StorageError, match="SlowDown"):
        hurried.list("")


def test_what_will_not_change_is_not_asked_again(
    aws: Aws, options: dict[str, Any], proxy: FaultProxy, store: ObjectStore
) -> None:
    assert not store.exists("nothing")
    assert len(proxy.requests) == 1
    elsewhere = ObjectStore.from_uri("s3://no-such-bucket/t", options)
    proxy.clear()
    with pytest.raises(LanceError):
        elsewhere.read_bytes("x")
    assert len(proxy.requests) == 1


def test_a_file_that_is_shorter_is_asked_for_twice(store: ObjectStore, proxy: FaultProxy) -> None:
    store.write_bytes("short", b"12345")
    proxy.clear()
    with pytest.raises(LanceError, match=r"short.*truncated"):
        store.open("short", 100).read([ByteRange(0, 100)])
    assert len(proxy.requests) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("client_max_retries", "many"),
        ("client_max_retries", -1),
        ("client_max_retries", float("inf")),
        ("client_retry_timeout", "soon"),
    ],
)
def test_options(name: str, value: object) -> None:
    with pytest.raises(InvalidOptionError, match=name):
        Retries.of({name.upper(): value})
    assert Retries.of({}) == Retries(10, 180.0)
    assert Retries.of({"Client_Max_Retries": "2", "client_retry_timeout": "5s"}) == Retries(2, 5.0)


class _AsGcsfs(Exception):
    def __init__(self, code: object) -> None:
        self.code = code


def _of_token(retryable: bool) -> Exception:
    error = RefreshError("no token")
    error._retryable = retryable
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        # What gcsfs makes of 502.
        (ProxyError(), True),
        (_of_token(True), True),
        (_of_token(False), False),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (OSError(errno.EPIPE, "broken pipe"), True),
        (_AsGcsfs("503"), True),
        (_AsGcsfs(429), True),
        (_AsGcsfs(403), False),
        (FileNotFoundError(), False),
        (FileExistsError(), False),
        (PermissionError(), False),
        (OSError(errno.ENOSPC, "no space"), False),
        (ValueError("404"), False),
    ],
)
def test_what_may_pass(error: Exception, expected: bool) -> None:
    assert is_transient(error) is expected
    wrapped = StorageError("x")
    wrapped.__cause__ = error
    assert is_transient(wrapped) is expected


def test_what_the_package_below_repeats_is_not_repeated_again() -> None:
    class Google:
        protocol = ("gs", "gcs")

    calls = []

    def failing(error: Exception) -> None:
        calls.append(error)
        raise error

    retries = Retries.of({}, Google())
    with pytest.raises(_AsGcsfs):
        retries.call(failing, _AsGcsfs(503))
    assert len(calls) == 1


def test_the_store_says_when_to_come_again(
    store: ObjectStore, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_bytes("x", b"x")
    waits: list[float] = []
    wait_after = Tries.wait_after

    def noted(tries: Tries, error: BaseException) -> float | None:
        wait = wait_after(tries, error)
        waits.extend([] if wait is None else [wait])
        return None if wait is None else 0.001

    monkeypatch.setattr(Tries, "wait_after", noted)
    for status in (429, 503):
        proxy.fail("^GET", Fault(status=status, arrives=False, retry_after="12"))
        assert store.read_bytes("x") == b"x"
        proxy.fail("^PUT", Fault(status=status, arrives=False, retry_after="7"))
        assert store.put_if_absent(f"new {status}", b"x")
    assert waits == [12, 7, 12, 7]


def _with_headers(text: str) -> Exception:
    error = _AsGcsfs(503)
    error.headers = {"retry-after": text}  # type: ignore[attr-defined]
    return error


def test_how_long_is_waited_at_most() -> None:
    tries = Retries(3, 20).tries()
    # The last try is made when the time is over, and not after it.
    for said in ("3600", "Fri, 31 Dec 2099 23:59:59 GMT"):
        wait = tries.wait_after(_with_headers(said))
        assert wait is not None
        assert 19 < wait <= 20
    for said in ("0", "Thu, 01 Jan 1970 00:00:00 GMT", "soon", "-5"):
        wait = Retries(3, 20).tries().wait_after(_with_headers(said))
        assert wait is not None
        assert 0 < wait <= 0.1
    assert Retries(3, 0).tries().wait_after(_with_headers("1")) is None


# -- files that are created only if there is none ---------------------------------------------------------------------------------


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
    """Puts and looks with answers that are written down."""

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
        # The store's client has met its own file: the first put was carried out after all.
        ([failed(TimeoutError()), False], [None, b"own"], True),
        ([failed(TimeoutError()), False], [None, b"other"], False),
        ([failed(TimeoutError())], [b"own"], True),
        # Answers that are cut short.
        ([failed(TimeoutError())], [b"ow", b"", b"own"], True),
        ([failed(TimeoutError())], [b"o", b"other"], False),
        # A store that says "there is one" by an error that nobody knows.
        ([failed(OSError(errno.EINVAL, "precondition"))], [b"own"], True),
        ([failed(OSError(errno.EINVAL, "precondition"))], [b"other"], False),
    ],
)
def test_who_created_it(puts: list[Any], looks: list[Any], expected: bool) -> None:
    put, look = Script(*puts), Script(*looks)
    assert create_once(put, look, b"own", Retries(3, 60)) is expected
    assert not put.answers
    assert not look.answers


@pytest.mark.parametrize(
    ("puts", "looks", "refused"),
    [
        ([failed(PermissionError())], [], True),
        # What may still arrive is no refusal, whatever comes after it.
        ([failed(TimeoutError()), failed(PermissionError())], [None], False),
        ([failed(TimeoutError())], [failed(PermissionError())], False),
        ([failed(OSError(errno.ENOSPC, "full"))], [None], False),
        ([failed(TimeoutError())] * 4, [None] * 4, False),
        ([failed(TimeoutError())], [b"ow"] * 4, False),
    ],
)
def test_when_nobody_knows(
    monkeypatch: pytest.MonkeyPatch, puts: list[Any], looks: list[Any], refused: bool
) -> None:
    monkeypatch.setattr(retry, "_FIRST_WAIT", 0.001)
    put, look = Script(*puts), Script(*looks)
    with pytest.raises(StorageError) as caught:
        create_once(put, look, b"own", Retries(3, 60))
    assert is_refusal(caught.value) is refused
    assert not put.answers
    assert not look.answers


# -- tables -----------------------------------------------------------------------------------------------------------------------


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
    """First the requests of one that meets nothing are counted, then each of them is spoilt in a commit of its own."""
    proxy.clear()
    table.write(1)
    kinds = dict.fromkeys(_kind(request) for request in proxy.requests)
    assert len(kinds) == 5
    for turn, kind in enumerate(kinds, 2):
        proxy.clear()
        proxy.fail(kind, fault)
        assert table.write(turn).version == turn + 1
        assert proxy.left == 0, kind
    assert table.seen() == (len(kinds) + 2, [*range(len(kinds) + 2)])
    # Files of attempts that came to nothing would be left over: one file and one transaction for each version.
    names = table.aws.names(f"{table.key}/")
    assert sum(name.startswith("data/") for name in names) == len(kinds) + 2


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
    """The version may be there or not; if it is, its files are."""
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


def test_who_gives_up_does_not_wait_for_the_next_try() -> None:
    sent: list[float] = []
    given_up = time.monotonic() + 0.5

    async def busy() -> None:
        sent.append(time.monotonic())
        error = ConnectionResetError("busy")
        error.headers = {"retry-after": "60"}  # type: ignore[attr-defined]
        raise error

    started = time.monotonic()
    with pytest.raises(ConnectionResetError, match="busy"):
        asyncio.run(Retries().call_async(busy, lambda: time.monotonic() > given_up))
    assert time.monotonic() - started < 30
    assert len(sent) == 1
