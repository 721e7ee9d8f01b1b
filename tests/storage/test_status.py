"""What errors of stores mean is decided by the status of the answer, whatever its body is."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from s3fs import S3FileSystem

from lance_spark.errors import MissingFileError, StorageError
from lance_spark.storage import connect, retry
from lance_spark.storage.errors import (
    code_of,
    is_refusal,
    kind_of,
    secret_values,
    status_of,
    translated,
)
from lance_spark.storage.retry import is_transient
from lance_spark.storage.store import ObjectStore
from tests.support.stores import s3_products
from tests.support.stores.s3_products import BUCKET, Body, Product, S3Server, serving

BODIES = {
    "Amazon": s3_products.AMAZON,
    "plain": s3_products.XML,
    "MinIO": s3_products.MINIO,
    "Ceph": s3_products.CEPH,
    "empty": s3_products.EMPTY,
    "HTML": s3_products.HTML,
    "JSON": s3_products.JSON,
    "text": s3_products.TEXT,
}
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with serving(Product()) as made:
        yield made


@pytest.fixture
def store(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    monkeypatch.setattr(retry, "_FIRST_WAIT", 0.002)
    connect.forget_probes()
    options = {**server.options, "client_max_retries": "3"}
    return ObjectStore.from_uri(f"s3://{BUCKET}/t{next(NUMBERS)}", options)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_every_body(server: S3Server, store: ObjectStore, body: Body) -> None:
    server.product = Product(body)
    assert store.put_if_absent("a", b"1")
    assert not store.put_if_absent("a", b"2")
    assert store.read_bytes("a") == b"1"
    with pytest.raises(MissingFileError, match="file not found"):
        store.read_bytes("b")
    assert not store.exists("b")
    for status in (401, 403):
        server.product = Product(body, condition=(status, "Unauthorized"))
        with pytest.raises(StorageError, match="permission denied") as caught:
            store.put_if_absent("c", b"1")
        assert is_refusal(caught.value)
    # Another request is being served, and this one is sent again.
    server.product = Product(body, conflicts=2)
    assert store.put_if_absent("d", b"1")
    assert not store.put_if_absent("d", b"2")
    server.product = Product(body, conflicts=9)
    with pytest.raises(StorageError, match=r"ConditionalRequestConflict|409 Conflict") as caught:
        store.put_if_absent("e", b"1")
    assert is_transient(caught.value)


@pytest.mark.parametrize("status", [304, 412])
def test_statuses_of_existing_objects(server: S3Server, store: ObjectStore, status: int) -> None:
    server.product = Product(s3_products.XML, exists=status)
    assert store.put_if_absent("a", b"1")
    assert not store.put_if_absent("a", b"2")


def test_long_manifests_are_sent_whole(
    server: S3Server, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some servers ignore the condition of the last request of an upload, which is not probed."""
    server.product = Product()
    defaults = list(S3FileSystem._pipe_file.__defaults__ or ())
    assert defaults[0] == 50 * 2**20
    monkeypatch.setattr(S3FileSystem._pipe_file, "__defaults__", (10, *defaults[1:]))
    store.write_bytes("other", bytes(100))
    assert any("uploads" in request for request in server.requests)
    server.requests.clear()
    assert store.put_if_absent("long", bytes(100))
    assert not store.put_if_absent("long", bytes(100))
    assert not any("upload" in request for request in server.requests)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("status", [400, 405, 501])
def test_servers_that_do_not_know_the_condition(
    server: S3Server, store: ObjectStore, body: Body, status: int
) -> None:
    server.product = Product(body, condition=(status, "NotImplemented"))
    with pytest.raises(StorageError, match="does not refuse to replace"):
        store.put_if_absent("a", b"1")
    assert not store.list_tree("_transactions")
    assert not store.exists("a")


def test_a_missing_bucket_is_named(server: S3Server) -> None:
    server.product = Product()
    elsewhere = ObjectStore.from_uri("s3://nobucket/t", server.options)
    with pytest.raises(MissingFileError, match="bucket does not exist"):
        elsewhere.write_bytes("a", b"1")


class _OfAzure(Exception):
    def __init__(self, status: int, code: str | None) -> None:
        super().__init__(f"azure {status}")
        self.status_code, self.error_code = status, code


class ResourceExistsError(_OfAzure):
    """As Azure's library raises it for each answer 409."""


class _OfGoogle(Exception):
    def __init__(self, code: Any) -> None:
        super().__init__("google")
        self.code = code


def of_adlfs(error: Exception) -> Exception:
    """Return the exception that adlfs makes of one of Azure's library."""
    try:
        try:
            raise error
        except Exception:
            raise FileExistsError("x")  # noqa: B904 - as adlfs does
    except FileExistsError as made:
        return made


def of_s3fs(error: OSError, status: int, code: str) -> Exception:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error.__cause__ = ClientError(answer, "PutObject")
    return error


@pytest.mark.parametrize(
    ("error", "kind", "transient"),
    [
        (of_adlfs(ResourceExistsError(409, "BlobAlreadyExists")), FileExistsError, False),
        (of_adlfs(ResourceExistsError(409, None)), FileExistsError, False),
        (of_adlfs(ResourceExistsError(409, "BlobImmutableDueToPolicy")), FileExistsError, False),
        # Not the blob: the container is being deleted.
        (of_adlfs(ResourceExistsError(409, "ContainerBeingDeleted")), None, False),
        (_OfAzure(412, "ConditionNotMet"), FileExistsError, False),
        (_OfAzure(403, "UnauthorizedBlobOverwrite"), FileExistsError, False),
        (_OfAzure(403, "AuthorizationFailure"), PermissionError, False),
        (_OfAzure(404, "ContainerNotFound"), FileNotFoundError, False),
        (_OfAzure(503, "ServerBusy"), None, True),
        (_OfGoogle(412), FileExistsError, False),
        (_OfGoogle("412"), FileExistsError, False),
        (_OfGoogle(401), PermissionError, False),
        (_OfGoogle(429), None, True),
        (OSError("Forbidden: https://storage"), PermissionError, False),
        (of_s3fs(OSError(22, None), 412, "412"), FileExistsError, False),
        # S3 can report an error after the status 200. botocore changes it to 500.
        (of_s3fs(OSError(22, ""), 500, "PreconditionFailed"), FileExistsError, False),
        (of_s3fs(PermissionError("old"), 400, "ExpiredToken"), PermissionError, False),
        (of_s3fs(OSError(5, "x"), 409, ""), None, True),
        (of_s3fs(OSError(5, "x"), 409, "ConditionalRequestConflict"), None, True),
        (of_s3fs(OSError(5, "x"), 409, "InvalidBucketState"), None, False),
        (FileNotFoundError("local"), FileNotFoundError, False),
        (FileExistsError("local"), FileExistsError, False),
        (OSError(28, "No space left"), None, False),
    ],
)  # fmt: skip
def test_kinds(error: Exception, kind: type[OSError] | None, transient: bool) -> None:
    assert kind_of(error) is kind
    assert is_transient(error) is transient or isinstance(error, FileExistsError)
    with pytest.raises(StorageError) as caught, translated("x", {"secret_key": "azure"}):
        raise error
    # Callers look at the class of the cause.
    cause = caught.value.__cause__
    distinguished = (FileNotFoundError, FileExistsError, PermissionError)
    assert isinstance(cause, kind or Exception)
    assert isinstance(cause, distinguished) is (kind is not None)
    assert is_transient(caught.value) is transient
    # A copy without secrets keeps what decides.
    assert status_of(caught.value) == status_of(error)
    assert code_of(caught.value) == code_of(error)


def test_an_earlier_answer_is_not_taken_for_that_of_a_broken_connection() -> None:
    error = ConnectionResetError("broken")
    error.__context__ = _OfGoogle(404)
    assert kind_of(error) is None
    assert is_transient(error)


def test_faults_of_the_package_are_no_errors_of_a_store() -> None:
    with pytest.raises(AttributeError, match="items"), translated("x"):
        secret_values(3)  # type: ignore[arg-type]
    # A library that cannot read the answer of a server.
    with pytest.raises(StorageError, match="TypeError"), translated("x"):
        json.loads(None)  # type: ignore[arg-type]
