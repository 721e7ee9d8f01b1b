"""The number of requests that find versions on S3, for any number of versions."""

from __future__ import annotations

import itertools
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from botocore.utils import parse_timestamp

import lance_spark
from lance_spark.errors import (
    CorruptTableError,
    PathNotFoundError,
    StorageError,
    TableNotFoundError,
    VersionNotFoundError,
)
from lance_spark.storage import s3
from lance_spark.storage.kept_ranges import KEPT
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.refs import tags
from tests.support.stores.aws import BUCKET, Aws

MANY = 24


def rows(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("requests") / "t"
    dataset = lance.write_dataset(rows(0), str(path))
    for value in range(1, MANY):
        dataset.update_config({"step": str(value)})
    return path


def uploaded(aws: Aws, local: Path, name: str, oldest: int = 1) -> str:
    """Return a copy of the table without versions before the oldest."""
    for file in local.rglob("*"):
        key = f"{name}/{file.relative_to(local).as_posix()}"
        located = versions.parse_name(file.name)
        if file.is_file() and (located is None or located.version >= oldest):
            aws.s3.put_object(Bucket=BUCKET, Key=key, Body=file.read_bytes())
    return f"s3://{BUCKET}/{name}"


@pytest.fixture(scope="module")
def long(aws: Aws, local: Path) -> str:
    return uploaded(aws, local, "long")


def store_at(aws: Aws, uri: str) -> ObjectStore:
    return ObjectStore.from_uri(uri, aws.ours)


def methods(requests: list[str]) -> list[str]:
    return ["LIST" if "list-type" in request else request.split()[0] for request in requests]


def test_opening(aws: Aws, long: str) -> None:
    lance_spark.open_dataset(long, storage_options=aws.ours)
    KEPT.clear()
    with aws.counted() as requests:
        dataset = lance_spark.open_dataset(long, storage_options=aws.ours)
    assert dataset.version == MANY
    assert methods(requests) == ["LIST", "GET"]
    assert "max-keys=1&" in requests[0] + "&"


def test_a_kept_manifest(aws: Aws) -> None:
    """A process reads the manifest again only if the listing shows another one."""
    uri = f"s3://{BUCKET}/kept-manifest"
    rows = pa.table({"a": [1, 2, 3]})

    def opened(expected: list[str]) -> lance_spark.Dataset:
        with aws.counted() as requests:
            dataset = lance_spark.open_dataset(uri, storage_options=aws.ours)
        assert methods(requests) == expected
        return dataset

    lance.write_dataset(rows, uri, storage_options=aws.theirs)
    assert opened(["LIST", "GET"]).count_rows() == 3
    assert opened(["LIST"]).count_rows() == 3
    # Options in another order, and another thread, are the same store.
    backwards = dict(reversed(aws.ours.items()))
    with aws.counted() as requests, ThreadPoolExecutor(1) as pool:
        other = pool.submit(lance_spark.open_dataset, uri, storage_options=backwards).result()
    assert methods(requests) == ["LIST"]
    assert other._table.store._fs is store_at(aws, uri)._fs
    lance.write_dataset(rows, uri, mode="append", storage_options=aws.theirs)
    assert opened(["LIST", "GET"]).count_rows() == 6
    # The table is created again: its first two versions have other manifests.
    for number in range(2):
        lance_spark.Dataset.drop(uri, storage_options=aws.ours)
        lance.write_dataset(rows.slice(number), uri, storage_options=aws.theirs)
        assert opened(["LIST", "GET"]).count_rows() == 3 - number
    # A change that was planned on the table of before is refused.
    old = opened(["LIST"])
    lance_spark.Dataset.drop(uri, storage_options=aws.ours)
    lance.write_dataset(rows, uri, storage_options=aws.theirs)
    with pytest.raises(VersionNotFoundError, match="created again"):
        old.update_config({"key": "value"})
    assert lance.dataset(uri, storage_options=aws.theirs).version == 1


def test_opening_by_number(aws: Aws, long: str) -> None:
    with aws.counted() as requests:
        dataset = lance_spark.open_dataset(long, 3, storage_options=aws.ours)
    assert dataset.version == 3
    assert methods(requests) == ["GET"]
    with pytest.raises(VersionNotFoundError, match="versions 1 to 24"):
        lance_spark.open_dataset(long, MANY + 1, storage_options=aws.ours)


def test_a_prefix_that_does_not_exist(aws: Aws) -> None:
    aws.s3.put_object(Bucket=BUCKET, Key="absent-not/file", Body=b"")
    with aws.counted() as requests, pytest.raises(PathNotFoundError, match="does not exist"):
        lance_spark.open_dataset(f"s3://{BUCKET}/absent", storage_options=aws.ours)
    assert methods(requests)[-2:] == ["HEAD", "LIST"]
    with pytest.raises(TableNotFoundError, match="no manifest"):
        lance_spark.open_dataset(f"s3://{BUCKET}/absent-not", storage_options=aws.ours)


def test_a_commit_does_not_look_at_the_history(aws: Aws, local: Path) -> None:
    # A process asks an unknown server once whether commits are safe.
    store_at(aws, f"s3://{BUCKET}/few").check_put_if_absent()
    # The first commit on a server that is not Amazon's probes whether it honours conditions.
    first = uploaded(aws, local, "first", MANY - 1)
    lance_spark.write_dataset(rows(1), first, "append", storage_options=aws.ours)
    counts = []
    for name, oldest in (("few", MANY - 1), ("many", 1)):
        uri = uploaded(aws, local, name, oldest)
        with aws.counted() as requests:
            written = lance_spark.write_dataset(rows(1), uri, "append", storage_options=aws.ours)  # type: ignore[arg-type]
        assert written.version == MANY + 1
        # Some are sent together.
        counts.append(sorted(methods(requests)))
        assert not [request for request in requests if "max-keys=1000" in request]
    few, many = counts
    assert few == many
    assert many.count("LIST") <= 5
    assert lance.dataset(f"s3://{BUCKET}/many", storage_options=aws.theirs).count_rows() == 2


def test_catching_up_lists_only_new_versions(aws: Aws, long: str) -> None:
    store = store_at(aws, long)
    with aws.counted() as requests:
        result = versions.list_since(store, MANY - 2)
    assert [item.version for item in result] == [MANY - 2, MANY - 1, MANY]
    assert len(requests) == 1
    with aws.counted() as requests:
        result = versions.list_since(store, 2)
    assert [item.version for item in result] == list(range(2, MANY + 1))
    assert len(requests) == 2


def test_an_old_version_that_is_gone(aws: Aws, local: Path) -> None:
    store = store_at(aws, uploaded(aws, local, "gone", MANY - 3))
    result = versions.list_since(store, 5)
    assert [item.version for item in result] == list(range(MANY - 3, MANY + 1))


def test_the_first_naming_scheme(aws: Aws) -> None:
    uri = f"s3://{BUCKET}/v1"
    for value in range(12):
        lance.write_dataset(
            rows(value),
            uri,
            mode="append" if value else "create",
            enable_v2_manifest_paths=False,
            storage_options=aws.theirs,
        )
    store = store_at(aws, uri)
    result = versions.newest(store)
    assert result is not None
    assert result.version == 12
    assert [item.version for item in versions.list_since(store, 11)][-2:] == [11, 12]
    written = lance_spark.write_dataset(rows(12), uri, "append", storage_options=aws.ours)  # type: ignore[arg-type]
    assert written.version == 13
    assert lance.dataset(uri, storage_options=aws.theirs).count_rows() == 13


@pytest.mark.parametrize("version", [1, 2, 19, 20])
def test_two_naming_schemes_are_noticed(aws: Aws, local: Path, version: int) -> None:
    """Names of the first scheme sort before or after names of the second scheme."""
    name = f"mixed{version}"
    uri = uploaded(aws, local, name)
    old = f"{name}/{versions.NamingScheme.V2.locate(version).path}"
    aws.rename(old, f"{name}/{versions.NamingScheme.V1.locate(version).path}")
    with pytest.raises(CorruptTableError, match="two naming schemes"):
        lance_spark.write_dataset(rows(1), uri, "append", storage_options=aws.ours)  # type: ignore[arg-type]


def test_other_files_are_passed_over(aws: Aws, local: Path) -> None:
    uri = uploaded(aws, local, "others", MANY - 1)
    staging = f"others/{versions.NamingScheme.V2.locate(MANY + 1).path}-b77cf1d6-9b0b-4a7f-8cb1-0a1fc4a9d1ae"
    for key in (staging, "others/_versions/0", "others/_versions/"):
        aws.s3.put_object(Bucket=BUCKET, Key=key, Body=b"")
    store = store_at(aws, uri)
    result = versions.newest(store)
    assert result is not None
    assert result.version == MANY
    assert [item.version for item in versions.list_since(store, MANY)] == [MANY]


def test_the_size_of_a_manifest(aws: Aws, local: Path) -> None:
    """One request, which shows where the manifest is."""
    store = store_at(aws, uploaded(aws, local, "sizes"))
    path = versions.NamingScheme.V2.locate(3).path
    expected = len(store.read_bytes(path))
    with aws.counted() as requests:
        assert tags.manifest_size(store, 3) == expected
    assert methods(requests) == ["HEAD"]
    aws.rename(f"sizes/{path}", f"sizes/{versions.NamingScheme.V1.locate(3).path}")
    with aws.counted() as requests:
        assert tags.manifest_size(store, 3) == expected
    assert methods(requests) == ["HEAD", "HEAD"]
    for missing in (MANY + 1, 2**63 + 1):
        with pytest.raises(VersionNotFoundError, match=str(missing)):
            tags.manifest_size(store, missing)


def test_no_table(aws: Aws) -> None:
    store = store_at(aws, f"s3://{BUCKET}/nothing")
    with aws.counted() as requests:
        assert versions.newest(store) is None
    assert len(requests) == 1
    assert versions.list_since(store, 1) == []


def test_directory_buckets_list_in_no_order(aws: Aws, local: Path) -> None:
    bucket = "tables--use1-az4--x-s3"
    assert not store_at(aws, f"s3://{bucket}/t").lists_in_order
    assert store_at(aws, f"s3://{BUCKET}/t--x-s3").lists_in_order


def test_empty_objects_are_read(aws: Aws) -> None:
    aws.s3.put_object(Bucket=BUCKET, Key="empty/file", Body=b"")
    assert store_at(aws, f"s3://{BUCKET}/empty").read_bytes("file") == b""


def test_pages_that_are_not_full(aws: Aws, long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 may return fewer names than exist, even none."""
    import s3fs

    ask = s3fs.S3FileSystem.call_s3
    sizes = itertools.cycle([0, 3, 0, 2])

    def cut(self: object, method: str, *args: object, **kwargs: Any) -> dict[str, Any]:
        if kwargs.get("ContinuationToken") == "first":
            del kwargs["ContinuationToken"]
        size = next(sizes)
        if size:
            kwargs["MaxKeys"] = min(size, kwargs["MaxKeys"])
            return dict(ask(self, method, *args, **kwargs))
        if "StartAfter" in kwargs:
            return dict(ask(self, method, *args, **kwargs))
        token = kwargs.get("ContinuationToken", "first")
        return {"IsTruncated": True, "NextContinuationToken": token}

    store = store_at(aws, long)
    monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", cut)
    newest = versions.newest(store)
    assert newest is not None
    assert newest.version == MANY
    assert [item.version for item in versions.list_since(store, 5)] == [*range(5, MANY + 1)]


@pytest.mark.parametrize("replace", [False, True])
def test_an_upload_that_is_given_up(aws: Aws, replace: bool) -> None:
    store = store_at(aws, f"s3://{BUCKET}/given-up-{replace}")
    store.write_bytes("old", b"whole")
    output = store.open_output("old" if replace else "new", replace=replace)
    output.write(b"part")
    with aws.counted() as requests:
        output.abort()
    del output
    assert methods(requests) == ([] if replace else ["DELETE"])
    assert store.list("data") == []
    assert store.read_bytes("old") == b"whole"
    assert not store.exists("new")


def test_a_failing_store_is_not_taken_for_a_missing_file(
    aws: Aws, long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    ask = s3fs.S3FileSystem.call_s3

    def failing(self: object, method: str, *args: object, **kwargs: object) -> object:
        if method == "head_object":
            raise OSError("the line is dead")
        return ask(self, method, *args, **kwargs)

    store = store_at(aws, long)
    path = versions.NamingScheme.V2.locate(1).path
    assert store.exists(path)
    assert not store.exists(path + "x")
    assert not store.exists(versions.FOLDER)
    monkeypatch.setattr(s3fs.S3FileSystem, "call_s3", failing)
    with pytest.raises(StorageError, match="the line is dead"):
        store.exists(path)


@pytest.mark.slow
def test_a_server_that_says_nothing_is_not_waited_for_without_end() -> None:
    """Reads, puts and parts of files are sent without a request before them."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = ObjectStore.from_uri(
            "s3://bucket/t",
            {
                "key": "a",
                "secret": "b",
                "region": "us-east-1",
                "endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}",
                "timeout": "1s",
                "client_max_retries": "0",
            },
        )

        def upload() -> None:
            with closing(store.open_output("data/x")) as output:
                output.write(bytes(6 << 20))

        requests = (
            lambda: store.read_bytes("x"),
            lambda: store.write_bytes("x", b"1"),
            lambda: store.put_if_absent("x", b"1"),
            upload,
        )
        with ThreadPoolExecutor(len(requests)) as pool:
            for future in [pool.submit(request) for request in requests]:
                with pytest.raises(StorageError):
                    future.result(30)


@pytest.mark.parametrize(
    "value",
    [
        "Sun, 29 Nov 2026 06:13:48 GMT",
        "2026-11-29T06:13:48.123Z",
        "2026-11-29T06:13:48Z",
        "2026-11-29T06:13:48+02:00",
        "Sunday, 29-Nov-26 06:13:48 GMT",
        "29 Nov 2026 06:13:48 GMT",
        1796019228,
        1796019228.5,
        "1796019228",
    ],
)
def test_times_are_those_of_botocore(value: str | float) -> None:
    assert s3.parse_time(value) == parse_timestamp(value)


@pytest.mark.parametrize("value", ["Sun, 31 Nov 2026 06:13:48 GMT", "soon", "2026-13-29T06:13:48Z"])
def test_a_text_that_is_no_time(value: str) -> None:
    with pytest.raises(ValueError, match="Invalid timestamp"):
        s3.parse_time(value)
