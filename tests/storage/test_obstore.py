"""Stores by obstore: the suites of all stores, and where it differs from the packages of fsspec."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lance_spark
from lance_spark.errors import InvalidOptionError, LanceError, StorageError
from lance_spark.storage import connect, multipart
from lance_spark.storage.options import config_of
from lance_spark.storage.retry import is_transient
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore
from tests.storage.retry.tables import KINDS
from tests.support.stores import azurite, gcs, keyed_s3, s3_products
from tests.support.stores import proxy as faults
from tests.support.stores.aws import BUCKET, SECRET, Aws
from tests.support.stores.azurite import Azurite
from tests.support.stores.gcs import Gcs
from tests.support.stores.proxy import FaultProxy
from tests.support.stores.store_suite import StoreSuite
from tests.support.stores.table_suite import TableSuite, rows, values

pytest.importorskip(
    "obstore", reason="obstore is not installed: pip install 'lance-spark[obstore]'"
)
#: A server that cannot commit.
IGNORING = s3_products.PRODUCTS["Garage"]
OBSTORE = {"file_system": "obstore"}
MIB = 1024 * 1024
_SECONDS = 20


class OnS3:
    """Tables on S3."""

    @pytest.fixture
    def options(self, aws: Aws) -> dict[str, Any]:
        return aws.theirs | OBSTORE

    @pytest.fixture
    def root(self) -> str:
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"


class TestFilesOnS3(OnS3, StoreSuite):
    """Files on S3."""

    def test_it_is_obstore(self, store: ObjectStore) -> None:
        assert type(store._fs).__name__ == "ObstoreFileSystem"
        assert store.lists_in_order


class TestTablesOnS3(OnS3, TableSuite):
    """Tables on S3."""


class TestTablesOnGoogle(TableSuite):
    """Tables on Google Cloud Storage."""

    @pytest.fixture
    def options(self, gcs: Gcs) -> dict[str, Any]:
        return gcs.options | OBSTORE

    @pytest.fixture
    def root(self) -> str:
        return f"gs://{gcs.BUCKET}/{uuid.uuid4().hex}"


class TestTablesOnAzure(TableSuite):
    """Tables on Azure."""

    @pytest.fixture
    def options(self, azurite: Azurite) -> dict[str, Any]:
        return azurite.options | OBSTORE

    @pytest.fixture
    def root(self) -> str:
        return f"az://{azurite.CONTAINER}/{uuid.uuid4().hex}"


@pytest.fixture
def options(aws: Aws, proxy: FaultProxy) -> dict[str, Any]:
    return {**aws.ours, **OBSTORE, "endpoint_url": proxy.endpoint, "client_max_retries": 4}


@pytest.fixture
def root() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


def test_requests_that_fail_are_sent_again(store: ObjectStore, proxy: FaultProxy) -> None:
    store.write_bytes("d/a", b"x" * 1000)
    for (name, fault), number in zip(KINDS.items(), itertools.count()):
        for action in (
            lambda: store.open("d/a", 1000).read([ByteRange(10, 900)])[0].tobytes() == b"x" * 900,
            lambda: store.read_bytes("d/a", 2000) == b"x" * 1000,
            lambda: store.list("d")[0] == ("a", 1000),
            lambda: [file.name for file in store.list_first("d", 1)] == ["a"],
            lambda number=number: store.put_if_absent(f"new/{number}", b"mine"),
        ):
            proxy.clear()
            proxy.fail(BUCKET, fault, fault)
            assert action(), name  # type: ignore[no-untyped-call]
            # Answers without a body cannot be cut.
            assert proxy.left == 0 or fault.keeps is not None, name
        assert not store.put_if_absent(f"new/{number}", b"other")
        assert store.read_bytes(f"new/{number}") == b"mine"


def test_nothing_is_repeated_by_both(options: dict[str, Any], proxy: FaultProxy, root: str) -> None:
    for retries in (0, 3):
        store = ObjectStore.from_uri(root, {**options, "client_max_retries": retries})
        for fault in (faults.SLOW_DOWN, faults.TOO_MANY, faults.DENIED_AFTER):
            proxy.clear()
            proxy.fail(BUCKET, *[fault] * 30)
            with pytest.raises(StorageError):
                store.list("")
            assert len(proxy.requests) == retries + 1
    proxy.clear()
    with pytest.raises(LanceError, match="the bucket does not exist"):
        ObjectStore.from_uri("s3://no-such-bucket/t", options).read_bytes("x")
    assert len(proxy.requests) == 1


def uploads(aws: Aws) -> int:
    return len(aws.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ()))


def test_uploads(aws: Aws, options: dict[str, Any], proxy: FaultProxy, root: str) -> None:
    options = options | {"lance_initial_upload_size": 5 * MIB}
    store = ObjectStore.from_uri(root, options)
    data = np.random.default_rng(0).integers(0, 256, 12 * MIB).astype(np.uint8)
    proxy.fail("^PUT .*partNumber", faults.SLOW_DOWN, faults.RESET)
    output = store.open_output("large")
    for start in range(0, len(data), MIB):
        output.write(data[start : start + MIB])
    output.close()
    assert proxy.left == 0
    assert len(proxy.matching("^PUT .*partNumber")) == 3 + 2
    assert store.read_bytes("large") == data.tobytes()
    # The answer of the last request is lost.
    proxy.clear()
    proxy.fail("^POST .*uploadId", faults.LOST)
    with_lost_answer = store.open_output("lost")
    with_lost_answer.write(data)
    with_lost_answer.close()
    assert store.open("lost").size == len(data)
    # A file that is given up, and one whose parts are refused, leave nothing behind.
    aborted = store.open_output("aborted")
    aborted.write(data)
    aborted.abort()
    proxy.clear()
    proxy.fail("^PUT .*partNumber", *[faults.SLOW_DOWN] * 30)
    refused = ObjectStore.from_uri(root, options | {"client_max_retries": 0}).open_output("no")
    refused.write(data)
    with pytest.raises(StorageError, match="SlowDown"):
        refused.close()
    proxy.clear()
    assert sorted(store.list_names("")) == ["large", "lost"]
    assert uploads(aws) == 0


def test_a_file_with_too_many_parts(
    options: dict[str, Any], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multipart.PartSizes, "max_parts", 1)
    monkeypatch.setattr(multipart.PartSizes.__init__, "__defaults__", (5 * MIB, 10, False, 1))
    store = ObjectStore.from_uri(root, options | {"lance_initial_upload_size": 5 * MIB})
    output = store.open_output("x")
    output.write(bytes(6 * MIB))
    with pytest.raises(StorageError, match=r"more than 1 parts.*lance_initial_upload_size"):
        output.close()
    assert store.list("") == []


def test_answers_of_other_servers(
    store: ObjectStore, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status decides, not the body."""
    monkeypatch.setattr(faults, "_CODES", dict.fromkeys((401, 403, 409, 412), ""))
    store.write_bytes("x", b"1")
    for status, error_class in (
        (401, PermissionError),
        (403, PermissionError),
        (412, FileExistsError),
    ):
        proxy.clear()
        proxy.fail("^PUT", faults.Fault(status=status, arrives=False))
        with pytest.raises(StorageError) as caught:
            store.write_bytes("x", b"2")
        assert isinstance(caught.value.__cause__, error_class), status
    # Another request for the object is being served.
    proxy.clear()
    proxy.fail("^PUT", faults.Fault(status=409, arrives=False))
    assert store.put_if_absent("y", b"1")
    assert proxy.left == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_uses_the_package_of_fsspec(aws: Aws, root: str) -> None:
    options = aws.theirs | OBSTORE
    lance_spark.write_dataset(rows(1, 2), root, storage_options=options)
    process = os.fork()
    if not process:
        status = 1
        try:
            opened = lance_spark.open_dataset(root, storage_options=options)
            store = ObjectStore.from_uri(root, options)
            is_s3fs = type(store._fs).__name__ == "S3FileSystem"
            status = int(not (is_s3fs and values(opened.to_table()) == [1, 2]))
        finally:
            os._exit(status)
    end = time.monotonic() + _SECONDS
    while not (answer := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            pytest.fail("the process waits for threads of its parent")
        time.sleep(0.01)
    assert answer[1] == 0


def test_options() -> None:
    aws = {
        "key": "k",
        "secret": "s",
        "endpoint_url": "http://host:9000",
        "client_kwargs": {"region_name": "eu-west-1"},
        "config_kwargs": {"read_timeout": 1.5, "s3": {"addressing_style": "virtual"}},
        "s3_additional_kwargs": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "id"},
    }
    config = config_of("s3", aws)
    assert config.credentials == {"access_key_id": "k", "secret_access_key": "s", "token": None}
    assert config.settings["region"] == "eu-west-1"
    assert config.settings["sse_kms_key_id"] == "id"
    assert config.client["allow_http"]
    assert config.client["read_timeout"] == "1500ms"
    assert config.bucket_in_host
    assert "s" not in config.settings.values()
    azure = config_of("abfss", {"account_name": "me", "account_key": "a2V5"})
    assert azure.server == "https://me.blob.core.windows.net"
    assert azure.credentials == {"access_key": "a2V5"}
    assert config_of("gs", {"token": "bearer"}).credentials == {"token": "bearer"}
    for scheme, refused in (
        ("s3", {"s3_additional_kwargs": {"ACL": "private"}}),
        ("s3", {"assume_role": "x"}),
        ("gs", {"consistency": "md5"}),
        ("az", {"credential": "x"}),
    ):
        with pytest.raises(InvalidOptionError, match="together with file_system=obstore"):
            config_of(scheme, {**refused})
    with pytest.raises(InvalidOptionError, match="file_system must be one of fsspec, obstore"):
        ObjectStore.from_uri("s3://bucket/t", {"file_system": "other"})
    # Options serve tables on stores of several kinds.
    assert ObjectStore.from_uri("memory://t", OBSTORE).scheme == "memory"


def test_errors_are_those_of_s3fs(aws: Aws) -> None:
    other = "s3://no-such-bucket/t"
    uri = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    lance_spark.write_dataset(rows(1), uri, storage_options=aws.theirs)
    with keyed_s3.serving("AKIAONE", "one") as keyed, s3_products.serving(IGNORING) as ignoring:
        wrong = {**keyed.options, "aws_access_key_id": "AKIAOTHER"}
        anonymous = {**keyed.options, "aws_skip_signature": "true"}
        no_file = {**aws.theirs, "aws_ca_bundle": "/no/such/file"}
        actions: list[tuple[str, dict[str, str], Callable[[str, dict[str, Any]], object]]] = [
            (other, aws.theirs, opened),
            (other, aws.theirs, created),
            (other, aws.theirs, lambda *at: ObjectStore.from_uri(*at).list("d")),
            (other, aws.theirs, lambda *at: ObjectStore.from_uri(*at).delete(["a", "b"])),
            (uri + "2", aws.theirs, opened),
            (uri, aws.theirs, created),
            (uri, aws.theirs, lambda *at: ObjectStore.from_uri(*at).read_bytes("x")),
            (uri, aws.theirs, lambda *at: ObjectStore.from_uri(*at).open("x")),
            (uri, aws.theirs, lambda *at: ObjectStore.from_uri(*at).copy("x", "y")),
            (uri, no_file, opened),
            ("s3://one/t", wrong, opened),
            ("s3://one/t", wrong, created),
            ("s3://one/t", anonymous, opened),
            (f"s3://{BUCKET}/t", ignoring.options, created),
        ]
        for place, options, act in actions:
            answers = []
            for file_system in ("fsspec", "obstore"):
                connect.forget_probes()
                try:
                    answer = repr(act(place, {**options, "file_system": file_system}))
                except LanceError as error:
                    text = re.sub(r"[0-9a-f-]{36}", "<uuid>", str(error))
                    answer = f"{type(error).__name__} {type(error.__cause__).__name__} {text}"
                answers.append(answer)
            assert answers[0] == answers[1]
    for endpoint in ("nonsense", "http://", "ftp://host", "http://[x"):
        # obstore would panic.
        with pytest.raises(InvalidOptionError, match="endpoint must be a URL"):
            opened(uri, {**aws.theirs, **OBSTORE, "aws_endpoint": endpoint})


def opened(uri: str, options: dict[str, Any]) -> object:
    return lance_spark.open_dataset(uri, storage_options=options)


def created(uri: str, options: dict[str, Any]) -> object:
    return lance_spark.write_dataset(rows(1), uri, storage_options=options)


def test_a_panic_is_an_error(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {})

    def fail(*_: object, **__: object) -> None:
        raise panic("request valid")

    monkeypatch.setattr("obstore.get", fail)
    with pytest.raises(StorageError, match="obstore failed: request valid"):
        store.read_bytes("x")


def test_errors_show_no_secrets_and_can_be_classified(aws: Aws, root: str) -> None:
    options = {**aws.theirs, **OBSTORE, "aws_endpoint": "http://127.0.0.1:1"}
    store = ObjectStore.from_uri(root, options | {"client_max_retries": 0})
    with pytest.raises(StorageError) as caught:
        store.read_bytes("x")
    assert SECRET not in f"{caught.value}{caught.value.__cause__!r}"
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert is_transient(caught.value.__cause__)
