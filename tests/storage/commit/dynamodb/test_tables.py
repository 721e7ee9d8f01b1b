"""Tables on s3+ddb:// beside pylance, on a server in place of S3 and DynamoDB."""

from __future__ import annotations

import os
import re
from typing import Any

import lance
import pytest

import lance_spark
from lance_spark.errors import (
    CorruptTableError,
    InvalidInputError,
    InvalidOptionError,
    StorageError,
    TableExistsError,
)
from lance_spark.storage import dynamodb
from lance_spark.storage.commit import ManifestEntry
from lance_spark.storage.dynamodb import DynamoDbManifestStore
from lance_spark.storage.dynamodb import _key as _KEY
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
from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.killed import rows


def test_both_write_one_table(aws: Aws, uri: str, key: str) -> None:
    they_write(aws, uri, 1, mode="create")
    assert we_write(aws, uri, 2).version == 2
    assert they_read(aws, uri) == [1, 2]
    they_write(aws, uri, 3)
    assert we_read(aws, uri) == [1, 2, 3]
    assert [we_read(aws, uri, n) for n in (1, 2, 3)] == [[1], [1, 2], [1, 2, 3]]
    assert [they_read(aws, uri, n) for n in (1, 2, 3)] == [[1], [1, 2], [1, 2, 3]]
    ours = lance_spark.open_dataset(uri, storage_options=aws.ours)
    assert [version.version for version in ours.versions()] == [1, 2, 3]
    assert not [name for name in aws.names(key) if STAGING.search(name)]


def test_entries_are_those_of_pylance(aws: Aws, uri: str, key: str) -> None:
    they_write(aws, uri, 1, mode="create")
    we_write(aws, uri, 2)
    theirs, ours = entries(aws, key).values()
    assert set(ours) == set(theirs)
    assert ours["committer"] == theirs["committer"]
    for version, item in enumerate((theirs, ours), 1):
        assert item["path"] == {"S": f"{key}/{manifest(version)}"}
        content = aws.s3.get_object(Bucket=BUCKET, Key=item["path"]["S"])["Body"].read()
        assert item["size"] == {"N": str(len(content))}


def test_a_table_of_this_package(aws: Aws, uri: str) -> None:
    we_write(aws, uri, 1, mode="create")
    they_write(aws, uri, 2)
    assert we_read(aws, uri) == they_read(aws, uri) == [1, 2]
    with pytest.raises(TableExistsError, match="versions 1 to 2"):
        we_write(aws, uri, 3, mode="create")


@pytest.mark.parametrize("folder", ["deep/er%20there", "a b", "slash/"])
def test_paths(aws: Aws, key: str, folder: str) -> None:
    uri = f"s3+ddb://{BUCKET}/{key}/{folder}?ddbTableName={TABLE}"
    they_write(aws, uri, 1, mode="create")
    dataset = we_write(aws, uri, 2)
    assert they_read(aws, uri) == [1, 2]
    again = lance_spark.open_dataset(dataset.uri, storage_options=aws.ours)
    assert again.to_table().num_rows == 2


def test_each_goes_on_after_the_other(aws: Aws, uri: str) -> None:
    """Both clients plan on version 1. The second client commits on top of the first."""
    they_write(aws, uri, 1, mode="create")
    theirs = lance.dataset(uri, storage_options=aws.theirs)
    we_write(aws, uri, 2)
    theirs.insert(rows(3))
    assert we_read(aws, uri) == [1, 2, 3]
    ours = lance_spark.open_dataset(uri, 1, storage_options=aws.ours)
    assert ours.delete([("x", "==", 1)]).version == 4
    assert they_read(aws, uri) == [2, 3]


def test_tables_without_entries(aws: Aws, uri: str, key: str) -> None:
    """Versions from before the table had a manifest store are found, and not written over."""
    plain = f"s3://{BUCKET}/{key}"
    they_write(aws, plain, 1, mode="create")
    they_write(aws, plain, 2)
    they_write(aws, plain, 3)
    assert we_read(aws, uri) == [1, 2, 3]
    assert we_read(aws, uri, 2) == [1, 2]
    old = lance_spark.open_dataset(uri, 1, storage_options=aws.ours)
    assert old.delete([("x", "==", 1)]).version == 4
    assert list(entries(aws, key)) == [4]
    assert they_read(aws, uri) == we_read(aws, uri) == [2, 3]
    assert (
        lance_spark.open_dataset(uri, 2, storage_options=aws.ours).delete([("x", "==", 2)]).version
        == 5
    )
    listed = lance_spark.open_dataset(uri, storage_options=aws.ours).versions()
    assert [item.version for item in listed] == [1, 2, 3, 4, 5]


def test_versions_of_the_first_naming_scheme(aws: Aws, uri: str, key: str) -> None:
    lance.write_dataset(rows(1), uri, storage_options=aws.theirs, enable_v2_manifest_paths=False)
    we_write(aws, uri, 2)
    assert entries(aws, key)[2]["path"] == {"S": f"{key}/_versions/2.manifest"}
    they_write(aws, uri, 3)
    assert we_read(aws, uri) == they_read(aws, uri) == [1, 2, 3]
    assert we_read(aws, uri, 2) == [1, 2]


def test_detached_versions_are_not_the_newest(aws: Aws, uri: str, key: str) -> None:
    they_write(aws, uri, 1, mode="create")
    fragment = lance.fragment.LanceFragment.create(
        f"s3://{BUCKET}/{key}", rows(2), storage_options=aws.theirs
    )
    detached = lance.LanceDataset.commit(
        uri,
        lance.LanceOperation.Append([fragment]),
        read_version=1,
        detached=True,
        storage_options=aws.theirs,
    )
    assert max(entries(aws, key)) == detached.version
    assert we_read(aws, uri) == [1]
    assert we_write(aws, uri, 3).version == 2
    assert we_read(aws, uri, detached.version) == [1, 2]


def test_branches_and_tags(aws: Aws, uri: str, key: str) -> None:
    theirs = they_write(aws, uri, 1, mode="create")
    branch = theirs.create_branch("side/way")
    lance.write_dataset(rows(2), branch, mode="append", storage_options=aws.theirs)
    ours = lance_spark.open_dataset(uri, branch="side/way", storage_options=aws.ours)
    assert sorted(ours.to_table()["x"].to_pylist()) == [1, 2]
    changed = ours.delete([("x", "==", 1)])
    assert set(entries(aws, f"{key}/tree/side/way")) >= {changed.version}
    newest = lance.dataset(uri, storage_options=aws.theirs).checkout_version(("side/way", None))
    assert newest.to_table()["x"].to_pylist() == [2]
    assert we_read(aws, uri) == [1]
    theirs.tags.create("first", 1)
    tagged = lance_spark.open_dataset(uri, tag="first", storage_options=aws.ours)
    assert tagged.to_table()["x"].to_pylist() == [1]
    main = lance_spark.open_dataset(ours.uri, branch="main", storage_options=aws.ours)
    assert main.to_table()["x"].to_pylist() == [1]


def test_clones(aws: Aws, uri: str, key: str) -> None:
    theirs = they_write(aws, uri, 1, mode="create")
    target = f"s3+ddb://{BUCKET}/{key}-clone?ddbTableName={TABLE}"
    theirs.shallow_clone(target, 1, storage_options=aws.theirs)
    assert we_read(aws, target) == [1]


@pytest.mark.parametrize(
    ("keys", "types", "message"),
    [
        ("base_uri", ("S", "N"), "its keys are HASH base_uri (S), and manifests need"),
        ("version base_uri", ("N", "S"), "HASH version (N), RANGE base_uri (S)"),
        ("base_uri version", ("S", "S"), "RANGE version (S)"),
    ],
)
def test_tables_of_another_layout_are_refused(
    aws: Aws, key: str, keys: str, types: tuple[str, str], message: str
) -> None:
    aws.create_table(f"other-{key}", keys, types)
    with pytest.raises(StorageError, match=re.escape(message)):
        we_write(aws, f"s3+ddb://{BUCKET}/{key}?ddbTableName=other-{key}", 1)
    assert aws.names(key) == []


def test_a_table_that_is_not_there(aws: Aws, key: str) -> None:
    with pytest.raises(StorageError, match="DynamoDB table nowhere not found in region us-east-1"):
        we_read(aws, f"s3+ddb://{BUCKET}/{key}?ddbTableName=nowhere")


@pytest.mark.parametrize(
    "uri",
    [
        f"s3+ddb://{BUCKET}/t",
        f"s3+ddb://{BUCKET}/t?",
        f"s3+ddb://{BUCKET}/t?ddbTableName=",
        f"s3+ddb://{BUCKET}/t?table=x",
        f"s3+ddb://{BUCKET}/t?ddbTableName=x&region=y",
        "s3+ddb://?ddbTableName=x",
    ],
)
def test_uris_without_the_parameter(aws: Aws, uri: str) -> None:
    with pytest.raises(InvalidInputError, match="ddbTableName=name"):
        we_read(aws, uri)


def test_no_region(aws: Aws, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    options = {**aws.ours, "client_kwargs": {}}
    options.pop("dynamodb_endpoint")
    with pytest.raises(InvalidOptionError, match="region"):
        lance_spark.open_dataset(uri, storage_options=options)


def test_settings_from_the_environment(aws: Aws, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    they_write(aws, uri, 1, mode="create")
    monkeypatch.setenv("DYNAMODB_ENDPOINT", aws.endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", aws.ours["key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", aws.ours["secret"])
    options = {"endpoint_url": aws.endpoint}
    assert lance_spark.open_dataset(uri, storage_options=options).count_rows() == 1


@pytest.mark.parametrize(
    "path",
    [
        "elsewhere/_versions/18446744073709551614.manifest",
        "{key}/_versions/../../other/_versions/1.manifest",
        "{key}/data/x.lance",
        "{key}/_versions/18446744073709551613.manifest",
        "{key}/_versions/18446744073709551614.manifest-x",
        "/{key}/_versions/18446744073709551614.manifest",
        "",
    ],
)
def test_entries_with_a_wrong_path_are_refused(aws: Aws, uri: str, key: str, path: str) -> None:
    they_write(aws, uri, 1, mode="create")
    item = {**entries(aws, key)[1], "path": {"S": path.format(key=key)}}
    aws.dynamodb.put_item(TableName=TABLE, Item=item)
    for version in (None, 1):
        with pytest.raises(CorruptTableError, match="entry"):
            we_read(aws, uri, version)
    with pytest.raises(CorruptTableError, match="entry"):
        we_write(aws, uri, 2)


def test_an_entry_without_a_file(aws: Aws, uri: str, key: str) -> None:
    they_write(aws, uri, 1, mode="create")
    aws.s3.delete_object(Bucket=BUCKET, Key=f"{key}/{manifest(1)}")
    with pytest.raises(StorageError, match=r"18446744073709551614\.manifest: file not found"):
        we_read(aws, uri)


def test_many_entries_come_in_pages(aws: Aws, key: str) -> None:
    store = DynamoDbManifestStore(TABLE, aws.ours)
    root = f"s3://{BUCKET}/{key}"
    padding = "x" * 30_000
    for version in range(1, 61):
        assert store.put_if_absent(root, ManifestEntry(version, manifest(version), 1, padding))
    with aws.counted() as requests:
        result = store.since(root, 5)
    assert [item.version for item in result] == list(range(5, 61))
    assert requests.count("Query") > 1
    assert not store.put_if_absent(root, ManifestEntry(60, manifest(60)))
    newest = store.latest(root)
    assert newest == ManifestEntry(60, manifest(60), 1, padding)


def test_requests(aws: Aws, uri: str) -> None:
    they_write(aws, uri, 1, mode="create")
    we_read(aws, uri)
    with aws.counted() as requests:
        lance_spark.open_dataset(uri, storage_options=aws.ours)
    assert [request.split()[0] for request in requests] == ["Query", "GET"]
    with aws.counted() as requests:
        lance_spark.open_dataset(uri, 1, storage_options=aws.ours)
    assert [request.split()[0] for request in requests] == ["GetItem", "GET"]


def test_a_forked_process_has_a_connection_of_its_own(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the connection of its parent, each process would take answers of the other."""
    store = DynamoDbManifestStore(TABLE, aws.ours)
    connection = store._connection
    assert store._connection is connection
    process = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process + 1)
    dynamodb._forget_connections()
    forked_connection = store._connection
    assert forked_connection is not connection
    assert forked_connection.client is not connection.client
    assert store._connection is forked_connection


def test_an_answer_to_another_question_is_none(
    aws: Aws, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DynamoDbManifestStore(TABLE, aws.ours)
    root = f"s3://{BUCKET}/{key}"
    for version in (1, 2):
        store.put_if_absent(root, ManifestEntry(version, "_versions/x", 1))
    monkeypatch.setattr(dynamodb, "_key", lambda base, _: _KEY(base, 2))
    with pytest.raises(StorageError, match=r"requested version 1 of .*, received 2"):
        store.get(root, 1)


def test_time_and_retries_are_those_of_the_options(aws: Aws) -> None:
    def limits(**options: Any) -> tuple[Any, ...]:
        uri = f"s3+ddb://{BUCKET}/limits?ddbTableName={TABLE}"
        store = ObjectStore.from_uri(uri, {**aws.ours, **options}).manifest_store
        assert isinstance(store, DynamoDbManifestStore)
        config = store._connection.client.meta.config
        return config.read_timeout, config.connect_timeout, config.retries["total_max_attempts"]

    assert limits() == (60, 60, 5)
    assert limits(timeout="3s", connect_timeout="2s", client_max_retries="0") == (3, 2, 1)


def test_a_table_with_escapes_in_its_uri_is_dropped(aws: Aws) -> None:
    aws.create_table("dropped")
    uri = f"s3+ddb://{BUCKET}/a%20b/x%2541.lance?ddbTableName=dropped"
    for _ in range(2):
        written = lance_spark.write_dataset(rows(1), uri, storage_options=aws.theirs)
        type(written).drop(uri, storage_options=aws.theirs)
        assert aws.names("a b/") == aws.entries("dropped") == []
