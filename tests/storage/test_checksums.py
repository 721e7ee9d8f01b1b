"""Checksums of requests, which many servers other than Amazon's do not know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lance_spark.errors import InvalidOptionError, StorageError
from lance_spark.storage import connect
from lance_spark.storage.options import to_fsspec
from lance_spark.storage.store import ObjectStore
from tests.support.stores import s3_products
from tests.support.stores.s3_products import BUCKET, PRODUCTS, Product, S3Server, serving

CALCULATION, VALIDATION = "request_checksum_calculation", "response_checksum_validation"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Over TLS, where checksums are trailers of a body in chunks."""
    certificate = s3_products.certificate(tmp_path_factory.mktemp("tls"))
    with serving(Product(), certificate) as made:
        yield made


def put(server: S3Server, product: Product, **options: Any) -> list[dict[str, str]]:
    """Write a file, read it, and return the headers of the requests."""
    connect.forget_probes()
    server.product = product
    server.headers.clear()
    every = {**server.options, "allow_invalid_certificates": "true", **options}
    # fsspec would hand out the file system of an earlier test.
    every["skip_instance_cache"] = True
    store = ObjectStore.from_uri(f"s3://{BUCKET}/t", {"client_max_retries": "0", **every})
    store.write_bytes("x", b"some bytes")
    assert store.read_bytes("x") == b"some bytes"
    return list(server.headers)


def is_checked(headers: list[dict[str, str]]) -> tuple[bool, bool]:
    """Return whether the put and the read had checksums."""
    return (
        any("x-amz-sdk-checksum-algorithm" in header for header in headers),
        any("x-amz-checksum-mode" in header for header in headers),
    )


def test_other_servers_get_no_checksums_that_they_may_not_know(server: S3Server) -> None:
    headers = put(server, Product())
    assert is_checked(headers) == (False, False)
    assert not any("aws-chunked" in header.get("content-encoding", "") for header in headers)
    # The signature covers the bytes instead, which the server checks.
    assert len(headers[0]["x-amz-content-sha256"]) == 64


@pytest.mark.parametrize("way", ["option", "argument", "environment", "profile"])
def test_the_user_decides(
    server: S3Server, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {}
    if way == "option":
        options = {f"aws_{CALCULATION}": "WHEN_SUPPORTED", VALIDATION: "when_supported"}
    elif way == "argument":
        options = {"config_kwargs": dict.fromkeys((CALCULATION, VALIDATION), "when_supported")}
    elif way == "environment":
        for name in (CALCULATION, VALIDATION):
            monkeypatch.setenv(f"AWS_{name}".upper(), "when_supported")
    else:
        profile = tmp_path / "config"
        profile.write_text(
            f"[default]\n{CALCULATION} = when_supported\n{VALIDATION} = when_supported\n"
        )
        monkeypatch.setenv("AWS_CONFIG_FILE", str(profile))
    assert is_checked(put(server, Product(), **options)) == (True, True)


def test_amazon_gets_checksums() -> None:
    store = ObjectStore.from_uri(
        f"s3://{BUCKET}/t",
        {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region": "eu-west-1"},
    )
    config = store._fs.s3.meta.config
    assert (config.request_checksum_calculation, config.response_checksum_validation) == (
        "when_supported",
        "when_supported",
    )


@pytest.mark.parametrize("name", ["Ceph", "R2", "Google's S3 door", "Qumulo", "Backblaze"])
def test_errors_name_the_setting(server: S3Server, name: str) -> None:
    """401 and 403 are not taken for wrong credentials only."""
    with pytest.raises(StorageError, match=f"aws_{CALCULATION} to when_required"):
        put(server, PRODUCTS[name], aws_request_checksum_calculation="when_supported")
    put(server, PRODUCTS[name])


def test_a_server_that_wants_a_checksum(server: S3Server) -> None:
    """A bucket with locks on its objects."""
    locked = s3_products.Body(
        "<Error><Code>InvalidRequest</Code><Message>Content-MD5 OR x-amz-checksum- HTTP header is "
        "required for Put Object requests with Object Lock parameters</Message></Error>"
    )
    product = Product(locked, unchecked=(400, "InvalidRequest"))
    with pytest.raises(StorageError, match=f"aws_{CALCULATION} to when_supported"):
        put(server, product)
    put(server, product, aws_request_checksum_calculation="when_supported")


def test_values() -> None:
    with pytest.raises(InvalidOptionError, match=f"{CALCULATION}: must be one of"):
        to_fsspec("s3", {f"aws_{CALCULATION}": "never"}, {})
