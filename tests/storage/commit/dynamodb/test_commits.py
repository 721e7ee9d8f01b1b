"""Commits that are interrupted or uncertain, on s3+ddb:// beside pylance."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import lance_spark
from lance_spark.errors import StorageError, UncertainCommitError
from lance_spark.storage.commit import ManifestEntry
from lance_spark.storage.dynamodb import DynamoDbManifestStore
from lance_spark.storage.store import ObjectStore
from tests.storage.commit.dynamodb.calls import (
    STAGING,
    TABLE,
    entries,
    manifest,
    they_read,
    they_write,
    we_read,
    we_write,
)
from tests.support.forking import CONTEXT
from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.killed import STEPS, append_until


def test_many_at_once(aws: Aws, uri: str) -> None:
    they_write(aws, uri, 0, mode="create")

    def write(value: int) -> None:
        (we_write if value % 2 else they_write)(aws, uri, value)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(1, 13)))
    assert we_read(aws, uri) == they_read(aws, uri) == list(range(13))
    assert lance_spark.open_dataset(uri, storage_options=aws.ours).version == 13


@pytest.mark.sample(3)
@pytest.mark.parametrize("reader", ["ours", "theirs"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_writers(aws: Aws, uri: str, key: str, step: str, reader: str) -> None:
    they_write(aws, uri, 1, mode="create")
    process = CONTEXT.Process(target=append_until, args=(step, uri, aws.ours))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    read = we_read if reader == "ours" else they_read
    if step == "commit":
        assert read(aws, uri) == [1]
        assert list(entries(aws, key)) == [1]
        we_write(aws, uri, 2)
    else:
        assert STAGING.search(entries(aws, key)[2]["path"]["S"])
        assert read(aws, uri) == [1, 2]
        # The reader has finished.
        assert entries(aws, key)[2]["path"] == {"S": f"{key}/{manifest(2)}"}
        assert not [name for name in aws.names(key) if STAGING.search(name)]
    they_write(aws, uri, 3)
    assert we_read(aws, uri) == they_read(aws, uri) == [1, 2, 3]


def half_done(aws: Aws, key: str, version: int, *, copied: bool) -> str:
    """Set a version back to the state after the commit of its writer."""
    item = entries(aws, key)[version]
    place = item["path"]["S"]
    staging = f"{place}-b77cf1d6-9b0b-4a7f-8cb1-0a1fc4a9d1ae"
    aws.s3.copy_object(Bucket=BUCKET, Key=staging, CopySource={"Bucket": BUCKET, "Key": place})
    if not copied:
        aws.s3.delete_object(Bucket=BUCKET, Key=place)
    aws.dynamodb.put_item(TableName=TABLE, Item={**item, "path": {"S": staging}})
    return staging


@pytest.mark.sample(3)
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize(
    "read",
    [
        we_read,
        lambda aws, uri: we_read(aws, uri, 2),
        lambda aws, uri: lance_spark.open_dataset(uri, 1, storage_options=aws.ours).versions(),
        lambda aws, uri: we_write(aws, uri, 7),
        lambda aws, uri: lance_spark.open_dataset(uri, 1, storage_options=aws.ours).delete(
            [("x", "==", 1)]
        ),
    ],
    ids=["newest", "by number", "list", "append", "change of an old version"],
)
def test_half_done_commits_of_pylance_are_finished(
    aws: Aws, uri: str, key: str, read: Any, copied: bool
) -> None:
    they_write(aws, uri, 1, mode="create")
    they_write(aws, uri, 2)
    staging = half_done(aws, key, 2, copied=copied)
    read(aws, uri)
    assert entries(aws, key)[2]["path"] == {"S": f"{key}/{manifest(2)}"}
    assert manifest(2) in [name[1:] for name in aws.names(key)]
    assert staging not in [key + name for name in aws.names(key)]
    assert they_read(aws, uri, 2) == we_read(aws, uri, 2) == [1, 2]


def test_somebody_else_finishes_meanwhile(
    aws: Aws, uri: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    they_write(aws, uri, 1, mode="create")
    they_write(aws, uri, 2)
    half_done(aws, key, 2, copied=False)
    copy = ObjectStore.copy

    def late(store: ObjectStore, source: str, target: str) -> None:
        assert they_read(aws, uri) == [1, 2]
        copy(store, source, target)

    monkeypatch.setattr(ObjectStore, "copy", late)
    assert we_read(aws, uri) == [1, 2]


def test_a_reader_without_write_permission_reads_the_staging_file(
    aws: Aws, uri: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    they_write(aws, uri, 1, mode="create")
    they_write(aws, uri, 2)
    staging = half_done(aws, key, 2, copied=False)

    def forbidden(*_: object) -> None:
        raise StorageError("permission denied") from PermissionError("permission denied")

    monkeypatch.setattr(ObjectStore, "copy", forbidden)
    assert we_read(aws, uri) == we_read(aws, uri, 2) == [1, 2]
    assert entries(aws, key)[2]["path"] == {"S": staging}


def test_a_commit_without_its_final_manifest_is_valid(
    aws: Aws, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    they_write(aws, uri, 1, mode="create")

    def broken(*_: object) -> None:
        raise StorageError("connection lost")

    with monkeypatch.context() as patch:
        patch.setattr(DynamoDbManifestStore, "put_final", broken)
        assert we_write(aws, uri, 2).version == 2
    assert they_read(aws, uri) == [1, 2]


PUT = DynamoDbManifestStore.put_if_absent


def lost_answer(store: DynamoDbManifestStore, root: str, entry: ManifestEntry) -> bool:
    PUT(store, root, entry)
    raise ConnectionResetError("connection reset")


def lost_request(store: DynamoDbManifestStore, root: str, entry: ManifestEntry) -> bool:
    raise ConnectionResetError("connection reset")


def repeated_request(store: DynamoDbManifestStore, root: str, entry: ManifestEntry) -> bool:
    PUT(store, root, entry)
    return PUT(store, root, entry)


@pytest.mark.parametrize("failure", [lost_answer, lost_request, repeated_request])
def test_unknown_outcomes_are_looked_up(
    aws: Aws, uri: str, key: str, failure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    they_write(aws, uri, 1, mode="create")
    failed: list[int] = []

    def once(store: DynamoDbManifestStore, root: str, entry: ManifestEntry) -> bool:
        if failed:
            return PUT(store, root, entry)
        failed.append(entry.version)
        return bool(failure(store, root, entry))

    monkeypatch.setattr(DynamoDbManifestStore, "put_if_absent", once)
    assert we_write(aws, uri, 2).version == 2
    assert failed == [2]
    assert they_read(aws, uri) == [1, 2]
    assert list(entries(aws, key)) == [1, 2]


def test_an_outcome_that_stays_unknown(
    aws: Aws, uri: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    they_write(aws, uri, 1, mode="create")
    with monkeypatch.context() as patch:
        patch.setattr(DynamoDbManifestStore, "put_if_absent", lost_request)
        with pytest.raises(UncertainCommitError, match="version 2"):
            we_write(aws, uri, 2)
    # A request may still be running: the file that it names must exist when it arrives.
    staged = [name[1:] for name in aws.names(key) if STAGING.search(name)]
    assert staged
    size = aws.s3.head_object(Bucket=BUCKET, Key=f"{key}/{staged[0]}")["ContentLength"]
    entry = ManifestEntry(2, staged[0], size)
    assert DynamoDbManifestStore(TABLE, aws.ours).put_if_absent(f"s3://{BUCKET}/{key}", entry)
    assert they_read(aws, uri) == [1, 2]
    assert we_read(aws, uri) == [1, 2]


def test_a_refused_commit_leaves_nothing(
    aws: Aws, uri: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    they_write(aws, uri, 1, mode="create")
    before = aws.names(key)

    def refused(store: DynamoDbManifestStore, root: str, entry: ManifestEntry) -> bool:
        raise PermissionError("not you")

    monkeypatch.setattr(DynamoDbManifestStore, "put_if_absent", refused)
    with pytest.raises(StorageError, match="permission denied") as caught:
        we_write(aws, uri, 2)
    assert not isinstance(caught.value, UncertainCommitError)
    assert aws.names(key) == before
