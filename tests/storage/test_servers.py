"""What users do with tables, on servers with the protocol of S3 that are not Amazon's.

`make test` takes servers that start in a moment; `make test-long` takes all of them.
"""

from __future__ import annotations

import datetime
import os
import re
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import LanceError, StorageError
from lance_spark.storage import connect
from lance_spark.storage.multipart import PartSizes
from lance_spark.storage.store import ObjectStore
from tests.support.stores import s3_products, s3_programs
from tests.support.stores.s3_products import (
    BUCKET,
    EMPTY,
    MINIO,
    PRODUCTS,
    Product,
    S3Server,
)
from tests.support.stores.table_suite import rows, values

#: Servers of `make test`, and those that are not installed with the tests or start slowly.
QUICK = ("localbucket",)
OTHERS = ("ministack", "nanio", s3_programs.CEPH, s3_programs.NAMED)
EVERY = os.environ.get("LANCE_SPARK_TEST_SERVERS") == "all"
#: They ignore the condition of a put, or refuse it.
UNSAFE = (
    "nanio",
    *(name for name, product in PRODUCTS.items() if product.ignores or product.condition),
)


@contextmanager
def serving(name: str) -> Iterator[Any]:
    if name not in PRODUCTS:
        with s3_programs.serving(name) as running:
            yield running
        return
    with s3_products.serving(PRODUCTS[name]) as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    connect.forget_probes()


#: With both file systems, where that is cheap.
USES = [(name, "fsspec") for name in (*PRODUCTS, *QUICK, *(OTHERS if EVERY else ()))]
USES += [(name, "obstore") for name in ("MinIO", "R2", *QUICK, *(OTHERS if EVERY else ()))]


@pytest.mark.parametrize(("name", "file_system"), USES)
def test_everyday_use(name: str, file_system: str) -> None:
    with serving(name) as server:
        bucket = getattr(server, "bucket", BUCKET)
        # nanio answers 403 if a key has "%".
        folder = "t" if name == "nanio" else "a b+ü%2541&.lance"
        uri = f"s3://{bucket}/{uuid.uuid4().hex}/{folder}"
        options = {**server.options, "file_system": file_system}
        if name in UNSAFE:
            refuses(uri, options)
        else:
            every_step(uri, options)
            if name not in PRODUCTS:
                long_file(uri, options)


def refuses(uri: str, options: dict[str, str]) -> None:
    """The server cannot commit: nothing is written, and pylance's tables can be read."""
    with pytest.raises(StorageError, match="does not refuse to replace") as caught:
        lance_spark.write_dataset(rows(1), uri, storage_options=options)
    assert options["aws_endpoint"] in str(caught.value)
    store = ObjectStore.from_uri(uri, options)
    assert store.list_tree("_transactions") == store.list_tree("_versions") == []
    assert store.list_tree("data") == []


def every_step(uri: str, options: dict[str, str]) -> None:
    written = lance_spark.write_dataset(rows(0, 1, 2), uri, storage_options=options)
    assert values(lance.dataset(uri, storage_options=options).to_table()) == [0, 1, 2]
    lance.write_dataset(rows(3), uri, mode="append", storage_options=options)
    assert values(lance_spark.open_dataset(uri, storage_options=options).to_table()) == [0, 1, 2, 3]
    side_by_side(uri, options)
    dataset = lance_spark.open_dataset(uri, storage_options=options)
    assert dataset.version == 10
    assert values(dataset.to_table()) == [0, 1, 2, 3, *range(10, 18)]
    dataset.delete("x >= 12")
    new = pa.table({"x": pa.array([1, 20], pa.int64()), "s": ["changed", "new"]})
    dataset.merge_insert("x").when_matched_update_all().when_not_matched_insert_all().execute(new)
    theirs = lance.dataset(uri, storage_options=options)
    assert values(theirs.to_table()) == [0, 1, 2, 3, 10, 11, 20]
    assert theirs.to_table(filter="x = 1")["s"].to_pylist() == ["changed"]
    dataset = lance_spark.open_dataset(uri, storage_options=options)
    dataset.tags.create("first", 1)
    with pytest.raises(LanceError):
        dataset.tags.create("first", 2)
    assert set(lance.dataset(uri, storage_options=options).tags.list()) == {"first"}
    branch = dataset.create_branch("side", 1)
    lance_spark.write_dataset(rows(5), uri, "append", branch="side", storage_options=options)  # type: ignore[arg-type]
    assert values(
        lance_spark.open_dataset(uri, branch="side", storage_options=options).to_table()
    ) == [0, 1, 2, 5]
    assert branch.branch == "side"
    dataset.branches.delete("side")
    dataset.tags.delete("first")
    dataset.compact_files()
    dataset = lance_spark.open_dataset(uri, storage_options=options)
    dataset.cleanup_old_versions(datetime.timedelta(0), delete_unverified=True)
    assert [version.version for version in dataset.versions()] == [dataset.version]
    assert values(lance.dataset(uri, storage_options=options).to_table()) == [
        0,
        1,
        2,
        3,
        10,
        11,
        20,
    ]
    type(written).drop(uri, storage_options=options)
    with pytest.raises(LanceError):
        lance_spark.open_dataset(uri, storage_options=options)


def side_by_side(uri: str, options: dict[str, str]) -> None:
    """Eight writers at the same time, half of them of pylance."""

    def append(number: int) -> None:
        if number % 2:
            lance.write_dataset(rows(number), uri, mode="append", storage_options=options)
        else:
            lance_spark.write_dataset(rows(number), uri, "append", storage_options=options)  # type: ignore[arg-type]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(10, 18)))


def long_file(uri: str, options: dict[str, str]) -> None:
    """24 MB in parts, written by one client and read by the other."""
    data = np.random.default_rng(0).bytes(24_000_000)
    table = pa.table({"b": [data[at : at + 1_000_000] for at in range(0, len(data), 1_000_000)]})
    lance_spark.write_dataset(table, uri, storage_options=options)
    assert lance.dataset(uri, storage_options=options).to_table() == table
    lance.write_dataset(table, uri, mode="overwrite", storage_options=options)
    assert lance_spark.open_dataset(uri, storage_options=options).to_table() == table


def write_parts(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, parts: int, step: int
) -> ObjectStore:
    """Write a file whose parts grow, as the parts of a longer one do: after every ten."""

    def size(sizes: PartSizes, number: int) -> int:
        return step if sizes.constant else (number // 10 + 1) * step

    monkeypatch.setattr(PartSizes, "size", size)
    store = ObjectStore.from_uri(f"s3://{BUCKET}/{uuid.uuid4().hex}", server.options)
    data = np.random.default_rng(0).bytes(parts * step)
    with closing(store.open_output("long")) as output:
        output.write(data)
    assert store.read_bytes("long") == data
    return store


def test_a_hundred_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_products.serving(Product()) as server:
        monkeypatch.setattr("lance_spark.storage.s3.wants_equal_parts", lambda _: True)
        write_parts(server, monkeypatch, 100, 10_000)
        assert sum("partNumber" in request for request in server.requests) == 100


def test_r2_gets_parts_of_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_products.serving(PRODUCTS["R2"]) as server:
        with pytest.raises(StorageError, match="InvalidPart"):
            write_parts(server, monkeypatch, 30, 1000)
        monkeypatch.setattr("lance_spark.storage.endpoints._EQUAL_PARTS", ("127.0.0.1",))
        write_parts(server, monkeypatch, 30, 1000)


def test_listings_without_a_start() -> None:
    """Older servers ignore `start-after`, and return the first names."""
    with s3_products.serving(Product(starts_after=False)) as server:
        uri = f"s3://{BUCKET}/t"
        for number in range(6):
            mode = "append" if number else "create"
            lance_spark.write_dataset(rows(number), uri, mode, storage_options=server.options)  # type: ignore[arg-type]
        store = ObjectStore.from_uri(uri, server.options)
        names = sorted(store.list_names("_versions"))
        for at in range(5):
            assert [name for name, _ in store.list_first("_versions", 1, after=names[at])] == [
                names[at + 1]
            ]
            assert [name for name, _ in store.list_first("_versions", 9, after=names[at])] == names[
                at + 1 :
            ]
        assert [name for name, _ in store.list_first("_versions", 1, after=names[-1])] == []
        dataset = lance_spark.open_dataset(uri, storage_options=server.options)
        assert [version.version for version in dataset.versions()] == [1, 2, 3, 4, 5, 6]


def test_buckets_in_names_of_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names lead to this machine, as a DNS server would answer."""
    resolve: Callable[..., Any] = socket.getaddrinfo

    def local(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        return resolve("127.0.0.1" if name.endswith(".example.test") else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", local)
    with s3_products.serving(Product(virtual_hosts=True)) as server:
        endpoint = server.endpoint.replace("127.0.0.1", "s3.example.test")
        options = {
            **server.options,
            "aws_endpoint": endpoint,
            "aws_virtual_hosted_style_request": "true",
        }
        uri = f"s3://{BUCKET}/a b/t"
        lance_spark.write_dataset(rows(1), uri, storage_options=options)
        lance_spark.write_dataset(rows(2), uri, "append", storage_options=options)  # type: ignore[arg-type]
        assert values(lance_spark.open_dataset(uri, storage_options=options).to_table()) == [1, 2]
        assert {header["host"].partition(".")[0] for header in server.headers} == {BUCKET}


@pytest.mark.parametrize("file_system", ["fsspec", "obstore"])
def test_a_server_with_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_system: str
) -> None:
    product = Product(checksums=(400, "InvalidArgument"), chunks=(400, "InvalidArgument"))
    with s3_products.serving(product, s3_products.certificate(tmp_path)) as server:
        options = {**server.options, "file_system": file_system}
        authority = str(tmp_path / s3_products.AUTHORITY)
        uri = f"s3://{BUCKET}/t"
        with pytest.raises(StorageError, match=r"(?i)certificate"):
            lance_spark.write_dataset(
                rows(1), uri, storage_options={**options, "client_max_retries": "0"}
            )
        any_certificate = {**options, "allow_invalid_certificates": "true"}
        lance_spark.write_dataset(rows(1), uri, storage_options=any_certificate)
        lance.write_dataset(rows(2), uri, mode="append", storage_options=any_certificate)
        trusting = {**options, "aws_ca_bundle": authority}
        lance_spark.write_dataset(rows(3), uri, "append", storage_options=trusting)  # type: ignore[arg-type]
        monkeypatch.setenv("AWS_CA_BUNDLE", authority)
        assert values(lance_spark.open_dataset(uri, storage_options=options).to_table()) == [
            1,
            2,
            3,
        ]


PAGE = Path(__file__).parents[2] / "docs" / "howto" / "stores.md"


@pytest.mark.parametrize(("name", "server"), [("minio", "MinIO"), ("minio", "Ceph"), ("r2", "R2")])
def test_lines_of_the_how_to_page(name: str, server: str) -> None:
    """Only the address is another one."""
    (block,) = re.findall(rf"```python\n({name} = .*?)```", PAGE.read_text(), re.DOTALL)
    (endpoint,) = re.findall(r'"aws_endpoint": "(.*)"', block)
    with s3_products.serving(PRODUCTS[server]) as running:
        exec(
            block.replace(endpoint, running.endpoint),
            {"lance_spark": lance_spark, "table": rows(1, 2)},
        )
        uri = f"s3://{BUCKET}/{name}/orders.lance"
        assert values(lance.dataset(uri, storage_options=running.options).to_table()) == [1, 2]


@pytest.mark.parametrize("file_system", ["fsspec", "obstore"])
def test_removal_of_several_objects(file_system: str) -> None:
    """What a server does not remove by one request is removed by a request for each object."""
    names = [f"d/{number}" for number in range(4)] + ["d/a&b<c>+ü%25 \"'", "d/\x01"]
    together, singly = names[:5], names[5:]
    answers: tuple[tuple[Product, list[str]], ...] = (
        (Product(), singly),
        (Product(MINIO, removals=(501, "NotImplemented")), names),
        (Product(EMPTY, removals=(403, "AccessDenied")), names),
        (Product(kept="/[12]$"), [*names[1:3], *singly]),
        (Product(is_silent=True), names),
        (Product(wants_md5=True), singly),
        (Product(MINIO, checksums=(400, "InvalidArgument")), singly),
    )
    for product, alone in answers:
        with s3_products.serving(product) as server:
            options = {**server.options, "file_system": file_system}
            store = ObjectStore.from_uri(f"s3://{BUCKET}/t", options)
            expected = len(alone)
            if file_system == "obstore":
                # obstore refuses the last name, does not say which objects it has removed, and sends
                # a checksum besides Content-MD5.
                all_alone = product.checksums or set(alone) & set(together)
                names, expected = together, len(together) if all_alone else 0
            server.objects.update({f"t/{name}": (b"", "", 0.0) for name in [*names, "x"]})
            assert store.delete_each(names) == [None] * len(names)
            assert [*server.objects] == ["t/x"], product
            posts = sum(request.startswith("POST") for request in server.requests)
            assert (posts, len(server.requests)) == (1, 1 + expected), product
