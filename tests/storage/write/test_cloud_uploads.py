"""Uploads in parts to Google Cloud Storage and Azure: requests, memory, and files after a
failure.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
import tracemalloc
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from lance_spark.errors import InvalidOptionError, StorageError
from lance_spark.storage import azure as upload_azure
from lance_spark.storage import google as upload_google
from lance_spark.storage import multipart, retry
from lance_spark.storage import output as outputs
from lance_spark.storage.multipart import PartSizes
from lance_spark.storage.output import RemoteOutput
from lance_spark.storage.retry import Tries
from lance_spark.storage.store import ObjectStore
from tests.support.stores import azurite
from tests.support.stores import gcs as gcs_server
from tests.support.stores import proxy as faults
from tests.support.stores.azurite import Azurite
from tests.support.stores.gcs import Gcs
from tests.support.stores.proxy import Fault, FaultProxy, spoiling

MIB = 1024 * 1024
#: The minimum of Google, and the size of blocks in these tests.
PART = 256 * 1024


class Cloud:
    """A server behind a proxy that injects faults, and the form of its requests."""

    root: str
    options: dict[str, Any]
    begin: str | None
    part: str
    second: str
    end: str | None
    most_at_once: int

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.folder = uuid.uuid4().hex
        self.store = ObjectStore.from_uri(f"{self.root}/{self.folder}", self.options)

    def left_over(self) -> list[str]:
        """Return names below the folder, and uploads that began and did not end."""
        raise NotImplementedError


class Google(Cloud):
    root = f"gs://{gcs_server.BUCKET}"
    begin, part = "^POST .*uploadType=resumable&name=[^&]*$", "^POST .*upload_id"
    second, end = part, None
    most_at_once = 1

    def __init__(self, proxy: FaultProxy, server: Gcs) -> None:
        self.server = server
        self.options = {"token": "anon", "endpoint_url": proxy.endpoint, "client_max_retries": 4}
        self.options["lance_initial_upload_size"] = 1
        super().__init__(proxy)

    def left_over(self) -> list[str]:
        return self.server.names(f"{self.folder}/") + ["upload"] * self.server.sessions(self.folder)


class Azure(Cloud):
    root = f"az://{azurite.CONTAINER}"
    begin, part, end = None, "comp=block&", "comp=blocklist"
    # Return the number in base64.
    second = "MDAwMDAwMDI"
    most_at_once = 3

    def __init__(self, proxy: FaultProxy, server: Azurite) -> None:
        endpoint = f"{proxy.endpoint}/{azurite.ACCOUNT}"
        self.options = {**server.options, "azure_storage_endpoint": endpoint}
        self.options["client_max_retries"] = 4
        self.past = ObjectStore.from_uri(self.root, server.options)
        super().__init__(proxy)

    def left_over(self) -> list[str]:
        return sorted(self.past.list_names(self.folder))


@pytest.fixture(scope="module", params=["google", "azure"])
def running(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any, FaultProxy]]:
    class_and_fixture = {"google": (Google, "gcs"), "azure": (Azure, "azurite")}[request.param]
    server = request.getfixturevalue(class_and_fixture[1])
    with spoiling(server.endpoint) as proxy:
        yield class_and_fixture[0], server, proxy


@pytest.fixture
def cloud(running: tuple[Any, Any, FaultProxy], monkeypatch: pytest.MonkeyPatch) -> Cloud:
    monkeypatch.setattr(retry, "_FIRST_WAIT", 0.002)
    monkeypatch.setattr(upload_azure, "sizes_of", lambda _: PartSizes(PART, 3, constant=True))
    cloud_class, server, proxy = running
    proxy.clear()
    made: Cloud = cloud_class(proxy, server)
    return made


def written(cloud: Cloud, name: str, size: int, *, replace: bool = False) -> bytes:
    """Write a file in pieces of many lengths."""
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    output = cloud.store.open_output(name, replace=replace)
    at = 0
    try:
        for step in itertools.cycle((1, PART // 3, PART, 3 * PART + 7)):
            output.write(data[at : at + step])
            at += step
            if at >= size:
                break
        assert output.tell() == size
        output.close()
    finally:
        output.abort()
    return data.tobytes()


@pytest.mark.parametrize("size", [0, 1, PART])
def test_a_small_file_is_one_request(cloud: Cloud, size: int) -> None:
    name = "small a+ü%41"
    if size:
        data = written(cloud, name, size)
    else:
        data = b""
        cloud.store.open_output(name).close()
    assert len(cloud.proxy.requests) == 1
    assert cloud.store.read_bytes(name) == data


def test_parts(cloud: Cloud) -> None:
    data = written(cloud, "large ü+", 7 * PART - 5)
    assert len(cloud.proxy.matching(cloud.part)) == 7
    assert len(cloud.proxy.requests) == 8
    assert cloud.proxy.most_at_once <= cloud.most_at_once
    assert cloud.store.read_bytes("large ü+") == data
    assert cloud.left_over() == ["large ü+"]
    # Replace an existing file.
    again = written(cloud, "large ü+", 2 * PART + 1, replace=True)
    assert cloud.store.read_bytes("large ü+") == again


@pytest.mark.parametrize(
    "fault",
    [faults.SLOW_DOWN, faults.TOO_MANY, faults.DENIED_AFTER, faults.RESET, faults.LOST],
    ids=["slow down", "too many", "denied after", "reset", "lost"],
)
@pytest.mark.parametrize("request_", ["begin", "part", "end", "whole"])
def test_each_request_is_sent_again(cloud: Cloud, request_: str, fault: Fault) -> None:
    size = PART if request_ == "whole" else 3 * PART - 5
    pattern = {"begin": cloud.begin, "part": cloud.second, "end": cloud.end, "whole": "small"}
    if request_ == "begin" and cloud.begin is None:
        pytest.skip("Azure has no request that begins an upload")
    name = "small" if request_ == "whole" else "large"
    if request_ == "end" and cloud.end is None:
        # The last part ends the upload.
        cloud.proxy.fail(cloud.part, Fault(), Fault(), fault)
    else:
        cloud.proxy.fail(str(pattern[request_]), fault)
    data = written(cloud, name, size)
    assert cloud.proxy.left == 0
    assert cloud.store.read_bytes(name) == data
    # The packages repeat nothing. Google is asked which bytes of a part it has, and gets the rest.
    expected = 2 if request_ == "whole" else 5
    if isinstance(cloud, Google) and request_ in ("part", "end") and not fault.arrives:
        expected += 1
    assert len(cloud.proxy.matching("^(PUT|POST)")) == expected
    if request_ != "begin" or not fault.arrives:
        assert cloud.left_over() == [name]


@pytest.mark.parametrize("replace", [False, True])
def test_an_aborted_upload_leaves_no_object(cloud: Cloud, replace: bool) -> None:
    cloud.store.write_bytes("x", b"old")
    cloud.proxy.delay(0.02)
    output = cloud.store.open_output("x" if replace else "y", replace=replace)
    output.write(b"x" * 7 * PART)
    assert "y" not in cloud.left_over()
    output.abort()
    output.abort()
    assert cloud.left_over() == ["x"]
    assert cloud.store.read_bytes("x") == b"old"


@pytest.mark.parametrize("request_", ["part", "end"])
def test_a_part_that_fails_for_good(cloud: Cloud, request_: str) -> None:
    pattern = cloud.end if request_ == "end" and cloud.end else cloud.second
    passed = [Fault()] * 4 if request_ == "end" and not cloud.end else []
    cloud.proxy.fail(pattern, *passed, *[faults.SLOW_DOWN] * 5)
    with pytest.raises(StorageError, match=f"{cloud.folder}/large"):
        written(cloud, "large", 5 * PART)
    assert cloud.proxy.left == 0
    assert cloud.left_over() == []


def test_a_file_that_lacks_a_part_is_not_finished(cloud: Cloud) -> None:
    output = cloud.store.open_output("broken")
    cloud.proxy.fail(cloud.second, *[faults.SLOW_DOWN] * 5)
    with pytest.raises(StorageError):
        output.write(b"x" * 20 * PART)
    output.write(b"the end")
    with pytest.raises(StorageError, match="broken"):
        output.close()
    assert cloud.left_over() == []


def test_retries_wait_for_the_retry_after_header(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float | None] = []
    wait_after = Tries.wait_after

    def noted(tries: Tries, error: BaseException) -> float | None:
        waits.append(wait_after(tries, error))
        return None if waits[-1] is None else 0.001

    monkeypatch.setattr(Tries, "wait_after", noted)
    cloud.proxy.fail(cloud.part, Fault(status=503, arrives=False, retry_after="17"))
    written(cloud, "late", 2 * PART)
    assert waits == [17]


def test_google_has_ended_a_session(gcs: Gcs) -> None:
    folder = uuid.uuid4().hex
    options = {**gcs.options, "lance_initial_upload_size": PART}
    output = ObjectStore.from_uri(f"{Google.root}/{folder}", options).open_output("x")
    output.write(bytes(2 * PART + 1))
    while not gcs.sessions(folder):
        time.sleep(0.01)
    gcs.storage.resumable.clear()
    with pytest.raises(StorageError, match=f"{folder}/x.*ended the upload"):
        output.close()
    assert gcs.names(folder) == []


def test_google_has_taken_a_piece_of_a_part() -> None:
    """Google reports how many bytes it has; only the rest is sent again."""
    with swallowing() as server:
        server.takes = PART + 1
        store = ObjectStore.from_uri(
            "gs://b/t",
            {"token": "anon", "endpoint_url": server.url, "lance_initial_upload_size": 2 * PART},
        )
        output = store.open_output("x")
        output.write(bytes(3 * PART))
        output.close()
        assert (
            server.ranges
            == [
                f"bytes 0-{2 * PART - 1}/*",
                f"bytes {PART + 1}-{2 * PART - 1}/*",
                f"bytes {2 * PART}-{3 * PART - 1}/{3 * PART}",
                f"bytes {3 * PART}-{3 * PART - 1}/{3 * PART}",
            ][:3]
        )


class Swallowing(BaseHTTPRequestHandler):
    """Accepts uploads as Google and Azure do, and keeps no bytes."""

    protocol_version = "HTTP/1.1"
    server: Swallower

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        for at in range(0, size, 16384):
            self.rfile.read(min(16384, size - at))
        status, headers = 201, {}
        content_range = re.fullmatch(
            r"bytes (\d+)-(\d+)/(.*)", self.headers.get("Content-Range", "")
        )
        if content_range is not None:
            self.server.ranges.append(content_range[0])
            has = int(content_range[2]) + 1
            if self.server.takes is not None:
                has, self.server.takes = int(content_range[1]) + self.server.takes, None
            status = 200 if content_range[3] == str(has) else 308
            headers = {"Range": f"bytes=0-{has - 1}"}
        self.server.bytes += size
        self._answer(status, headers)

    def do_POST(self) -> None:
        if "Content-Range" in self.headers:
            self.do_PUT()
            return
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, {"Location": f"{self.server.url}/session?upload_id=1"})

    def _answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, text in {"Content-Length": "0", **headers}.items():
            self.send_header(name, text)
        self.end_headers()


class Swallower(ThreadingHTTPServer):
    daemon_threads = True
    bytes = 0
    #: The server accepts so many bytes of the next part.
    takes: int | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Swallowing)
        self.ranges: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def swallowing() -> Iterator[Swallower]:
    server = Swallower()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_memory_of_a_large_file(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """52 MiB in pieces of 4 MiB, through 2 parts of 512 KiB on Google, 4 of them on Azure, and what
    their packages hold.
    """
    part = MIB // 2
    held = {"gs": 2, "az": 4}[scheme]
    monkeypatch.setattr(upload_azure, "sizes_of", lambda _: PartSizes(part, 3, constant=True))
    with swallowing() as server:
        options: dict[str, Any] = {
            "gs": {"token": "anon", "endpoint_url": server.url, "lance_initial_upload_size": part},
            "az": {
                "account_name": azurite.ACCOUNT,
                "account_key": azurite.KEY,
                "endpoint": f"{server.url}/{azurite.ACCOUNT}",
            },
        }
        store = ObjectStore.from_uri(f"{scheme}://b/t", options[scheme])
        piece = bytes(4 * MIB)
        output = store.open_output("x")
        output.write(piece)
        tracemalloc.start()
        try:
            for _ in range(12):
                output.write(piece)
            output.close()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert server.bytes >= 52 * MIB
        assert part < peak < 2 * held * part + MIB


def test_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = upload_azure.sizes_of({})
    assert [blocks.size(number) // MIB for number in (0, 99, 100, 49_999)] == [5, 5, 10, 2500]
    assert sum(blocks.size(number) for number in range(blocks.max_parts)) > 60e12
    assert blocks.max_parts == 50_000
    assert upload_azure.sizes_of({"lance_initial_upload_size": 10**12}).size(0) == 4000 * MIB
    grain = 256 * 1024
    for initial_size, size in (
        (None, 8 * MIB),
        (1, grain),
        (grain + 1, 2 * grain),
        (10**12, 1024 * MIB),
    ):
        options = {} if initial_size is None else {"Lance_Initial_Upload_Size": initial_size}
        sizes = upload_google.sizes_of(options)
        assert (sizes.size(0), sizes.size(10**6), sizes.under_way(size)) == (size, size, 1)
    monkeypatch.setenv("LANCE_INITIAL_UPLOAD_SIZE", "no")
    for of in (upload_azure.sizes_of, upload_google.sizes_of):
        with pytest.raises(InvalidOptionError, match=multipart.INITIAL_UPLOAD_SIZE):
            of({})


def test_buckets_that_take_no_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zonal buckets, to which gcsfs writes in another way."""
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
    from fsspec.implementations.memory import MemoryFileSystem

    class Zonal(AsyncFileSystemWrapper):  # type: ignore[misc]
        def split_path(self, path: str) -> tuple[str, str, None]:
            bucket, _, key = path.removeprefix("gs://").partition("/")
            return bucket, key, None

        async def _set_session(self) -> None:
            raise AssertionError("nothing is sent yet")

        async def _is_zonal_bucket(self, bucket: str) -> bool:
            return bucket == "zonal"

        def open(self, *_args: object, **_kwargs: object) -> None:
            """The behaviour of the package with a file is not tested."""

    fs = Zonal(MemoryFileSystem(), asynchronous=False)
    fs._location = "http://nowhere"
    retries = retry.Retries()
    for bucket, output_class in (("zonal", RemoteOutput), ("other", upload_google.GoogleOutput)):
        path = f"gs://{bucket}/x"
        output: Any = outputs.start(fs, path, path, {}, retries, {}, replace=True)
        assert type(output) is output_class
