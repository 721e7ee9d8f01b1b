"""Stores that accept the condition of a put and ignore it are detected before the first commit."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

import lance_spark
from lance_spark.errors import StorageError
from lance_spark.storage import connect
from lance_spark.storage.endpoints import is_own_endpoint
from lance_spark.storage.store import ObjectStore
from tests.support.stores import gcs
from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.table_suite import rows, values


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    connect.forget_probes()
    yield
    connect.forget_probes()


class Server:
    """Another server for the same buckets, which changes each request before it is served."""

    def __init__(
        self, aws: Aws, change: Callable[[dict[str, Any]], list[bytes] | None], refusal: str
    ) -> None:
        self.requests: list[str] = []
        app = DomainDispatcherApplication(create_backend_app)

        def serve(environ: dict[str, Any], respond: Any) -> Any:
            self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
            refused = change(environ)
            if refused is not None:
                respond(refusal, [("Content-Type", "application/xml")])
                return refused
            return app(environ, respond)

        self.server = make_server("127.0.0.1", 0, serve, threaded=True)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        self.options = {**aws.theirs, "aws_endpoint": self.endpoint}

    def puts(self, name: str = "") -> int:
        return sum(request.startswith("PUT") and name in request for request in self.requests)


@contextmanager
def changed(
    aws: Aws,
    change: Callable[[dict[str, Any]], list[bytes] | None],
    refusal: str = "501 Not Implemented",
) -> Iterator[Server]:
    changed_server = Server(aws, change, refusal)
    thread = threading.Thread(target=changed_server.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield changed_server
    finally:
        changed_server.server.shutdown()
        changed_server.server.server_close()
        thread.join()


def without_condition(environ: dict[str, Any]) -> None:
    environ.pop("HTTP_IF_NONE_MATCH", None)


@pytest.fixture
def careless(aws: Aws) -> Iterator[Server]:
    """The server ignores If-None-Match."""
    with changed(aws, without_condition) as server:
        yield server


@contextmanager
def one_lock(version: int) -> Iterator[None]:
    assert version > 0
    with LOCK:
        yield


LOCK = threading.Lock()


def test_a_careless_store_is_refused_before_anything_is_written(aws: Aws, careless: Server) -> None:
    uri = f"s3://{BUCKET}/careless/t"
    for turn in range(2):
        with pytest.raises(StorageError) as caught:
            lance_spark.write_dataset(rows(1), uri, storage_options=careless.options)
        for word in (careless.endpoint, "commit_lock", "manifest_store", uri):
            assert word in str(caught.value)
        assert careless.puts() == 2, turn
    # The result of a process holds for all tables of the bucket.
    store = ObjectStore.from_uri(f"s3://{BUCKET}/careless/other", careless.options)
    with pytest.raises(StorageError, match="does not refuse to replace"):
        store.put_if_absent("_versions/1", b"1")
    assert careless.puts() == 2
    assert aws.names("careless/") == []


def test_a_failed_put_does_not_prove_a_refusal(aws: Aws) -> None:
    """The first object exists, but this does not prove that the second put was refused."""
    puts: list[str] = []

    def busy(environ: dict[str, Any]) -> list[bytes] | None:
        without_condition(environ)
        if environ["REQUEST_METHOD"] == "PUT":
            puts.append(environ["PATH_INFO"])
            if len(puts) == 2:
                return [b"<Error><Code>SlowDown</Code></Error>"]
        return None

    with (
        changed(aws, busy, "503 Slow Down") as server,
        pytest.raises(StorageError, match="does not refuse"),
    ):
        lance_spark.write_dataset(rows(1), f"s3://{BUCKET}/lost/t", storage_options=server.options)
    assert len(puts) == 3


def test_a_careless_store_can_be_read(aws: Aws, careless: Server) -> None:
    uri = f"s3://{BUCKET}/read"
    lance.write_dataset(rows(1), uri, storage_options=aws.theirs)
    dataset = lance_spark.open_dataset(uri, storage_options=careless.options)
    assert values(dataset.to_table()) == [1]
    assert not careless.puts()
    with pytest.raises(StorageError, match="does not refuse"):
        dataset.delete([("x", "==", 1)])
    assert len(aws.names("read/_versions/")) == 1


def test_a_lock_takes_the_place_of_the_condition(aws: Aws, careless: Server) -> None:
    """pylance, which takes the same lock, writes at the same time."""
    uri = f"s3://{BUCKET}/locked"
    options = {**careless.options, "commit_lock": one_lock}
    lance_spark.write_dataset(rows(0), uri, storage_options=options)
    assert not careless.puts("probe")

    def append(number: int) -> None:
        if number % 2:
            lance_spark.write_dataset(rows(number), uri, "append", storage_options=options)
        else:
            lance.write_dataset(
                rows(number),
                uri,
                mode="append",
                storage_options=careless.options,
                commit_lock=one_lock,
            )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(1, 9)))
    dataset = lance_spark.open_dataset(uri, storage_options=careless.options)
    assert dataset.version == 9
    assert values(dataset.to_table()) == list(range(9))


def test_a_manifest_store_takes_the_place_of_the_condition(aws: Aws, careless: Server) -> None:
    aws.create_table("careless")
    uri = f"s3+ddb://{BUCKET}/by-database?ddbTableName=careless"
    lance_spark.write_dataset(rows(1), uri, storage_options=careless.options)
    written = lance_spark.write_dataset(rows(2), uri, "append", storage_options=careless.options)
    assert written.version == 2
    assert not careless.puts("probe")


def test_a_store_that_does_not_know_the_condition(aws: Aws) -> None:
    body = (
        b"<Error><Code>NotImplemented</Code><Message>A header is not implemented</Message></Error>"
    )

    def refuse(environ: dict[str, Any]) -> list[bytes] | None:
        return [body] if "HTTP_IF_NONE_MATCH" in environ else None

    with changed(aws, refuse) as server:
        uri = f"s3://{BUCKET}/unknown"
        with pytest.raises(StorageError, match="commit_lock"):
            lance_spark.write_dataset(rows(1), uri, storage_options=server.options)
    assert aws.names("unknown/") == []


def test_an_honest_server_is_asked_once(aws: Aws) -> None:
    with changed(aws, lambda _: None) as server:
        for name in ("one", "two"):
            uri = f"s3://{BUCKET}/honest-{name}"
            lance_spark.write_dataset(rows(1), uri, storage_options=server.options)
            lance_spark.write_dataset(rows(2), uri, "append", storage_options=server.options)
        methods = [request.split()[0] for request in server.requests if "probe" in request]
        assert methods == ["PUT", "PUT", "DELETE"]
    assert not [name for name in aws.names("honest") if "probe" in name]


def test_google_look_alikes(tmp_path: Path) -> None:
    uri = f"gs://{gcs.BUCKET}/t"
    with gcs.serving(tmp_path, honest=False) as server:
        with pytest.raises(StorageError, match="does not refuse to replace") as caught:
            lance_spark.write_dataset(rows(1), uri, storage_options=server.options)
        assert server.endpoint in str(caught.value)
        assert server.names("t/") == []


def test_a_failing_store_is_not_taken_for_a_careless_store(aws: Aws) -> None:
    """The condition is probed again next time."""
    failing = True

    def fail(environ: dict[str, Any]) -> list[bytes] | None:
        message = b"<Error><Code>InvalidRequest</Code><Message>not today</Message></Error>"
        return [message] if failing and environ["REQUEST_METHOD"] == "PUT" else None

    with changed(aws, fail) as server:
        uri = f"s3://{BUCKET}/later"
        options = {**server.options, "client_max_retries": "0"}
        with pytest.raises(StorageError, match="nothing was written"):
            lance_spark.write_dataset(rows(1), uri, storage_options=options)
        failing = False
        lance_spark.write_dataset(rows(1), uri, storage_options=options)


@pytest.mark.parametrize("cleaner", ["ours", "theirs"])
def test_cleanup_removes_probe_files_of_a_crash(
    aws: Aws, cleaner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"s3://{BUCKET}/left-by-a-crash-{cleaner}"
    with monkeypatch.context() as crashing:
        crashing.setattr(ObjectStore, "_delete_one", lambda *_: None)
        lance_spark.write_dataset(rows(1), uri, storage_options=aws.theirs)
    prefix = uri.removeprefix(f"s3://{BUCKET}/")
    assert [name for name in aws.names(prefix) if name.endswith(".probe.txn")]
    age = datetime.timedelta(0)
    if cleaner == "ours":
        dataset = lance_spark.open_dataset(uri, storage_options=aws.theirs)
        dataset.cleanup_old_versions(age, delete_unverified=True)
    else:
        theirs = lance.dataset(uri, storage_options=aws.theirs)
        theirs.cleanup_old_versions(age, delete_unverified=True)
    assert not [name for name in aws.names(prefix) if "probe" in name]
    dataset = lance_spark.open_dataset(uri, storage_options=aws.theirs)
    assert values(dataset.to_table()) == [1]


@pytest.mark.parametrize(
    ("scheme", "endpoint", "is_own"),
    [
        ("s3", "https://s3.eu-west-1.amazonaws.com", True),
        ("s3", "https://s3.dualstack.us-east-1.amazonaws.com", True),
        ("s3a", "https://s3.cn-north-1.amazonaws.com.cn", True),
        ("s3", "https://amazonaws.com.example.org", False),
        ("s3", "https://notamazonaws.com", False),
        ("s3", "https://account.r2.cloudflarestorage.com", False),
        ("s3", None, False),
        ("gs", "https://storage.googleapis.com", True),
        ("gs", "http://127.0.0.1:4443", False),
        ("az", "https://me.blob.core.windows.net", True),
        ("abfss", "https://me.blob.core.chinacloudapi.cn", True),
        ("abfss", "http://127.0.0.1:10000", False),
        ("ftp", "https://storage.googleapis.com", False),
    ],
)
def test_whose_servers_are_known(scheme: str, endpoint: str | None, is_own: bool) -> None:
    assert is_own_endpoint(scheme, endpoint) is is_own


def test_the_clouds_own_servers_are_not_asked() -> None:
    azure = {"account_name": "me", "account_key": "c2VjcmV0"}
    aws = {"key": "k", "secret": "s", "client_kwargs": {"region_name": "eu-west-1"}}
    for uri, options in (
        ("s3://bucket/t", aws),
        ("gs://bucket/t", {"token": "anon"}),
        ("az://container/t", azure),
        ("abfss://container@me.dfs.core.windows.net/t", azure),
        ("memory://t", {}),
        ("/t", {}),
    ):
        store = ObjectStore.from_uri(uri, options)
        assert not connect.is_probed(store.scheme, store._fs), uri
        # No request is sent: there is no network here.
        store.check_put_if_absent()
    other_store = ObjectStore.from_uri("s3://bucket/t", {**aws, "endpoint": "http://127.0.0.1:1"})
    assert connect.is_probed("s3", other_store._fs)
