"""Tables on Google Cloud Storage, by gcsfs, against an emulator."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import lance
import pytest

import lance_spark
from lance_spark.errors import StorageError
from lance_spark.storage import google
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import encode, read_manifest
from tests.support.stores.gcs import BUCKET, Gcs
from tests.support.stores.store_suite import StoreSuite
from tests.support.stores.table_suite import TableSuite, rows, values


@pytest.fixture
def options(gcs: Gcs) -> dict[str, Any]:
    return gcs.options


@pytest.fixture
def root() -> str:
    return f"gs://{BUCKET}/{uuid.uuid4().hex}"


class TestFiles(StoreSuite):
    pass


class TestTables(TableSuite):
    pass


def test_names_of_gcsfs(gcs: Gcs, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lance_spark.write_dataset(rows(1), root, storage_options=gcs.options)
    account = gcs.account.read_text()
    for store_options in (
        {"token": "anon", "endpoint_url": gcs.endpoint},
        {"service_account_key": account},
        {"google_base_url": gcs.endpoint, "google_skip_signature": "true"},
    ):
        dataset = lance_spark.open_dataset(root, storage_options=store_options)
        assert values(dataset.to_table()) == [1]
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(gcs.account))
    assert values(lance_spark.open_dataset(root).to_table()) == [1]


def test_a_forbidden_request_changes_nothing(gcs: Gcs, root: str, store: ObjectStore) -> None:
    store.check_put_if_absent()
    with gcs.refusing():
        for action in (
            lambda: store.put_if_absent("_versions/1", b"1"),
            lambda: store.write_bytes("x", b"1"),
            lambda: lance_spark.write_dataset(rows(1), root, storage_options=gcs.options),
        ):
            with pytest.raises(StorageError, match="permission denied") as caught:
                action()
            assert is_refusal(caught.value)
    assert store.list_tree("_versions") == []


MANY = 300


def test_the_newest_of_many_versions(gcs: Gcs, root: str, store: ObjectStore) -> None:
    """All versions are listed neither to open the table nor to commit."""
    lance_spark.write_dataset(rows(1), root, storage_options=gcs.options)
    manifest = read_manifest(store, versions.latest(store))
    proto = type(manifest.message)()
    proto.CopyFrom(manifest.message)
    proto.version = MANY
    proto.transaction_file = ""
    for number in range(2, MANY):
        gcs.put(f"{root.rpartition('/')[2]}/{versions.NamingScheme.V2.locate(number).path}", b"no")
    store.write_bytes(versions.NamingScheme.V2.locate(MANY).path, encode(proto, None, None))
    before, gcs.requests[:] = gcs.listed, []
    dataset = lance_spark.open_dataset(root, storage_options=gcs.options)
    assert dataset.version == MANY
    assert len(gcs.requests) == 2
    assert gcs.listed == before + 1
    written = lance_spark.write_dataset(rows(2), root, "append", storage_options=gcs.options)
    assert written.version == MANY + 1
    # One page to find newer versions, one page to check that the version number is new.
    assert gcs.listed < before + 40
    assert len(store.list_names("_versions")) == MANY + 1
    assert values(lance.dataset(root, storage_options=gcs.options).to_table()) == [1, 2]


def test_names_in_their_order(store: ObjectStore) -> None:
    names = sorted(
        ["0", "1.a", "1/", "10", "9", "A", "a b+", "z", "ü", "\U0001f600"], key=str.encode
    )
    names.remove("1/")
    for name in names:
        store.write_bytes(f"d/{name}", b"")
    store.write_bytes("d/1/below", b"")
    assert store.lists_in_order
    for limit, after in itertools.product((1, 2, 20), ("", "1", "5", *names)):
        expected = [name for name in names if name.encode() > after.encode()][:limit]
        assert [file.name for file in store.list_first("d", limit, after)] == expected
    assert store.list_first("nowhere", 3) == []


def test_zonal_buckets_list_in_no_order(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_zonal(_fs: object, bucket: str) -> bool:
        return bucket == BUCKET

    monkeypatch.setattr(type(store._fs), "_is_zonal_bucket", is_zonal, raising=False)
    google._is_zonal_bucket.cache_clear()
    assert not store.lists_in_order
    assert ObjectStore.from_uri("gs://another/t", store.options).lists_in_order
    google._is_zonal_bucket.cache_clear()


@pytest.mark.slow
def test_a_server_that_says_nothing_is_not_waited_for_without_end(options: dict[str, Any]) -> None:
    fs = ObjectStore.from_uri(f"gs://{BUCKET}/t", options)._fs
    assert 0 < fs.requests_timeout.sock_connect < fs.requests_timeout.sock_read <= 180
    assert fs.requests_timeout.total is None
    limited_fs = ObjectStore.from_uri(f"gs://{BUCKET}/t", {**options, "timeout": "7s"})._fs
    assert limited_fs.requests_timeout == 7
