"""Uploads in parts: requests, memory, and files after a failure."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import threading
import tracemalloc
from typing import Any

import fsspec.asyn
import moto.s3.models
import numpy as np
import pytest

from lance_spark.errors import InvalidOptionError, StorageError
from lance_spark.storage import retry
from lance_spark.storage.multipart import PartSizes
from lance_spark.storage.retry import Retries
from lance_spark.storage.s3 import S3Output
from lance_spark.storage.store import ObjectStore
from tests.support.stores import proxy as faults
from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.proxy import Fault, FaultProxy

MIB = 1024 * 1024
STEP = 5 * MIB
#: Sizes of parts in these tests.
PART = 10_000
NUMBERS = itertools.count()


@pytest.fixture
def proxy(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> FaultProxy:
    """The server accepts parts of any size."""
    monkeypatch.setattr(moto.s3.models, "S3_UPLOAD_PART_MIN_SIZE", 1)
    return proxy


@pytest.fixture
def key() -> str:
    return f"u{next(NUMBERS)}"


@pytest.fixture
def store(aws: Aws, proxy: FaultProxy, key: str) -> ObjectStore:
    options = {**aws.ours, "endpoint_url": proxy.endpoint, "client_max_retries": 4}
    return ObjectStore.from_uri(f"s3://{BUCKET}/{key}", options)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = PartSizes(PART, 3, constant=True)
    monkeypatch.setattr(PartSizes, "of", lambda *_args: sizes)


def written(store: ObjectStore, name: str, size: int, *, replace: bool = False) -> bytes:
    """Write a file in pieces of many lengths."""
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    output = store.open_output(name, replace=replace)
    at = 0
    for step in itertools.cycle((1, PART // 3, PART, 3 * PART + 7)):
        output.write(data[at : at + step])
        at += step
        if at >= size:
            break
    assert output.tell() == size
    output.close()
    return data.tobytes()


def left_over(aws: Aws, key: str) -> list[str]:
    """Return names below a key: objects, and uploads that began and did not end."""
    uploads = aws.s3.list_multipart_uploads(Bucket=BUCKET, Prefix=key).get("Uploads", ())
    return aws.names(f"{key}/") + [f"upload of {item['Key']}" for item in uploads]


def kinds(proxy: FaultProxy) -> list[str]:
    return [request.split()[0] + ("?" if "?" in request else "") for request in proxy.requests]


@pytest.mark.parametrize("size", [1, PART - 1, PART])
@pytest.mark.usefixtures("small_parts")
def test_a_small_file_is_one_put(store: ObjectStore, proxy: FaultProxy, size: int) -> None:
    data = written(store, "small", size)
    assert kinds(proxy) == ["PUT"]
    assert store.read_bytes("small") == data


def test_an_empty_file(store: ObjectStore, proxy: FaultProxy) -> None:
    store.open_output("empty").close()
    assert kinds(proxy) == ["PUT"]
    assert store.read_bytes("empty") == b""


@pytest.mark.parametrize("parts", [2, 7])
@pytest.mark.usefixtures("small_parts")
def test_parts(store: ObjectStore, aws: Aws, proxy: FaultProxy, key: str, parts: int) -> None:
    data = written(store, "large", parts * PART - 5)
    assert sorted(kinds(proxy)) == ["POST?"] * 2 + ["PUT?"] * parts
    assert kinds(proxy)[0] == kinds(proxy)[-1] == "POST?"
    assert store.read_bytes("large") == data
    assert left_over(aws, key) == ["large"]
    assert proxy.most_at_once <= 3


def test_parts_of_the_size_that_s3_wants(
    store: ObjectStore, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moto.s3.models, "S3_UPLOAD_PART_MIN_SIZE", STEP)
    data = bytes(range(256)) * (11 * MIB // 256)
    output = store.open_output("large")
    output.write(data)
    output.close()
    assert sorted(kinds(proxy)) == ["POST?"] * 2 + ["PUT?"] * 3
    result = hashlib.sha256(store.read_bytes("large"))
    assert result.digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize(
    "fault",
    [faults.SLOW_DOWN, faults.TOO_MANY, faults.DENIED_AFTER, faults.RESET, faults.LOST, faults.TRUNCATED],
    ids=["slow down", "too many", "denied after", "reset", "lost", "truncated"],
)  # fmt: skip
@pytest.mark.parametrize(
    "request_", [r"^POST .*\?uploads", r"partNumber=2", r"^POST .*uploadId="], ids=["begin", "part", "end"]
)  # fmt: skip
@pytest.mark.usefixtures("small_parts")
def test_each_request_is_sent_again(
    store: ObjectStore, aws: Aws, proxy: FaultProxy, key: str, request_: str, fault: Fault
) -> None:
    proxy.fail(request_, fault)
    data = written(store, "large", 5 * PART)
    assert proxy.left == 0
    assert store.read_bytes("large") == data
    assert aws.names(f"{key}/") == ["large"]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.usefixtures("small_parts")
def test_an_aborted_upload_leaves_no_object(
    store: ObjectStore, aws: Aws, proxy: FaultProxy, key: str, replace: bool
) -> None:
    store.write_bytes("x", b"old")
    # One upload begins whose name no client learns.
    proxy.fail(r"^POST .*\?uploads", faults.DENIED_AFTER)
    proxy.delay(0.02)
    output = store.open_output("x" if replace else "y", replace=replace)
    output.write(b"x" * 7 * PART)
    output.abort()
    output.abort()
    assert left_over(aws, key) == ["x"]
    assert store.read_bytes("x") == b"old"


@pytest.mark.parametrize("request_", [r"^POST .*\?uploads", "partNumber=2", r"^POST .*uploadId="])
@pytest.mark.usefixtures("small_parts")
def test_a_part_that_fails_for_good(
    store: ObjectStore, aws: Aws, proxy: FaultProxy, key: str, request_: str
) -> None:
    proxy.fail(request_, *[faults.SLOW_DOWN] * 5)
    with pytest.raises(StorageError, match=f"{key}/large.*SlowDown"):
        written(store, "large", 5 * PART)
    assert left_over(aws, key) == []


@pytest.mark.usefixtures("small_parts")
def test_refusals_are_not_repeated(store: ObjectStore, proxy: FaultProxy) -> None:
    elsewhere = ObjectStore.from_uri("s3://no-such-bucket/t", store.options)
    output = elsewhere.open_output("x")
    output.write(b"x" * 2 * PART)
    with pytest.raises(StorageError, match="no-such-bucket"):
        output.close()
    output.abort()
    assert len(proxy.matching(r"^POST .*\?uploads")) == 1


class Server:
    """Accepts parts without keeping them. Each part waits for permission."""

    def __init__(self) -> None:
        self.loop = fsspec.asyn.get_loop()
        self.s3_additional_kwargs: dict[str, Any] = {}
        self.methods: list[str] = []
        self.bytes = 0
        self.gate = threading.Semaphore(0)
        self.is_open = False
        #: Answers to requests that complete the upload, in order.
        self.ends: list[Exception] = []

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = path.partition("/")
        return bucket, key, None

    async def _call_s3(
        self, method: str, *, Body: bytes = b"", **_arguments: object
    ) -> dict[str, Any]:
        self.methods.append(method)
        if method == "upload_part":
            while not self.is_open and not self.gate.acquire(blocking=False):
                await asyncio.sleep(0.001)
        self.bytes += len(Body)
        if method == "complete_multipart_upload" and self.ends:
            raise self.ends.pop(0)
        return {"UploadId": "id", "ETag": "tag", "ContentLength": self.bytes}

    def rm_file(self, _path: str) -> None:
        self.methods.append("delete_object")

    def call_s3(self, method: str, **arguments: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(
            self._call_s3(method, **arguments), self.loop
        ).result()


def output_to(server: Server, sizes: PartSizes) -> S3Output:
    return S3Output(server, "b/k", "s3://b/k", sizes, Retries(0))


def test_the_writer_waits_for_nothing_but_room() -> None:
    server = Server()
    output = output_to(server, PartSizes(100, 3, constant=True))
    # Three parts are being sent and do not end; the next part is being filled.
    output.write(b"x" * 400)
    done = threading.Event()

    def write_on() -> None:
        output.write(b"y")
        done.set()

    writer = threading.Thread(target=write_on)
    writer.start()
    assert not done.wait(0.1)
    assert server.methods.count("upload_part") == 3
    server.gate.release()
    assert done.wait(10)
    writer.join()
    server.is_open = True
    output.close()
    assert (server.bytes, server.methods[-1]) == (401, "complete_multipart_upload")


@pytest.mark.parametrize("whole", [True, False])
def test_an_upload_that_is_gone_was_completed_by_a_request_before(
    monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """If its answer was lost: S3 does not know the upload any more. An upload that a rule of the
    bucket has aborted is no file.
    """
    monkeypatch.setattr(retry, "_FIRST_WAIT", 0.001)
    server = Server()
    server.is_open = True
    server.ends = [ConnectionResetError(), FileNotFoundError("no such upload")]
    output = S3Output(server, "b/k", "s3://b/k", PartSizes(100, 3, constant=True), Retries(3))
    output.write(b"x" * 250)
    if whole:
        output.close()
        assert server.methods[-1] == "head_object"
        return
    server.bytes = -1
    with pytest.raises(StorageError, match="s3://b/k"):
        output.close()
    assert server.methods[-1] == "delete_object"


def test_memory_of_a_large_file() -> None:
    """300 MB through parts of 128 KiB: at most 5 are held, whatever the size of the pieces."""
    part = 128 * 1024
    server = Server()
    server.is_open = True
    output = output_to(server, PartSizes(part, 4, constant=True))
    piece = bytes(MIB)
    output.write(piece)
    tracemalloc.start()
    try:
        for _ in range(299):
            output.write(piece)
        output.close()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert server.bytes == 300 * MIB
    assert part < peak < 6 * part + MIB // 2


def test_sizes() -> None:
    sizes = PartSizes()
    assert [sizes.size(number) // MIB for number in (0, 99, 100, 250, 9_999)] == [5, 5, 10, 15, 500]
    assert sum(sizes.size(number) for number in range(10_000)) > 2.4e12
    for number in range(0, 10_000, 50):
        size = sizes.size(number)
        count = sizes.under_way(size)
        assert 1 <= count <= 10
        assert (count + 1) * size <= max(11 * STEP, 2 * size)
    assert PartSizes(constant=True).size(9_999) == STEP
    assert PartSizes(64 * MIB).size(150) == 64 * MIB


def test_a_file_of_too_many_parts() -> None:
    server = Server()
    server.is_open = True
    output = output_to(server, PartSizes(1, 100, constant=True))
    output.write(b"x" * 10_000)
    with pytest.raises(StorageError, match="lance_initial_upload_size"):
        output.write(b"xy")


def test_options(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PartSizes.of({}, None) == PartSizes(STEP, 10, constant=False)
    options = {"LANCE_initial_upload_size": str(8 * MIB), "lance_upload_concurrency": 4}
    assert PartSizes.of(options, None) == PartSizes(8 * MIB, 4)
    monkeypatch.setenv("LANCE_INITIAL_UPLOAD_SIZE", str(6 * MIB))
    monkeypatch.setenv("LANCE_UPLOAD_CONCURRENCY", "3")
    assert PartSizes.of({}, None) == PartSizes(6 * MIB, 3)
    assert PartSizes.of({"lance_initial_upload_size": 1}, None).first == STEP
    with pytest.raises(InvalidOptionError, match="lance_upload_concurrency"):
        PartSizes.of({"lance_upload_concurrency": "no"}, None)
    # None of these options is an argument of the file system.
    store = ObjectStore.from_uri(f"s3://{BUCKET}/options", {**aws.ours, **options})
    store.write_bytes("x", b"1")
