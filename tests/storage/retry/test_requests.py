"""Requests that fail on their way to a server are sent again."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from typing import Any

import pytest
from google.auth.exceptions import RefreshError
from requests.exceptions import ProxyError

from lance_spark.errors import InvalidOptionError, LanceError, StorageError
from lance_spark.storage.remote import PART
from lance_spark.storage.retry import Retries, Tries, is_transient
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore
from tests.storage.retry.tables import every_kind
from tests.support.stores import proxy as faults
from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.proxy import Fault, FaultProxy


# -- requests that can be repeated -----------------------------------------------------------------
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
        "list_first": lambda: [file.name for file in store.list_first("d", 1)] == ["a"],
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
            # Answers of these requests cannot be cut.
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
            # Retries of s3fs and botocore would be added.
            assert len(proxy.requests) == retries + 1
    hurried = ObjectStore.from_uri(
        f"s3://{BUCKET}/{key}", {**options, "client_retry_timeout": "0s"}
    )
    proxy.clear()
    proxy.fail(BUCKET, faults.SLOW_DOWN)
    with pytest.raises(StorageError, match="SlowDown"):
        hurried.list("")


def test_permanent_errors_are_not_retried(
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
        # The error that gcsfs raises for 502.
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
def test_transient_errors(error: Exception, expected: bool) -> None:
    assert is_transient(error) is expected
    wrapped = StorageError("x")
    wrapped.__cause__ = error
    assert is_transient(wrapped) is expected


def test_requests_that_the_storage_package_repeats_are_not_repeated_again() -> None:
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


def test_waits_end_at_the_retry_timeout() -> None:
    tries = Retries(3, 20).tries()
    # The last try is made when the time ends, and not later.
    for retry_after in ("3600", "Fri, 31 Dec 2099 23:59:59 GMT"):
        wait = tries.wait_after(_with_headers(retry_after))
        assert wait is not None
        assert 19 < wait <= 20
    for retry_after in ("0", "Thu, 01 Jan 1970 00:00:00 GMT", "soon", "-5"):
        wait = Retries(3, 20).tries().wait_after(_with_headers(retry_after))
        assert wait is not None
        assert 0 < wait <= 0.1
    assert Retries(3, 0).tries().wait_after(_with_headers("1")) is None


def test_a_cancelled_request_does_not_wait_for_the_next_try() -> None:
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
