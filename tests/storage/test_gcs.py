"""Tables on Google Cloud Storage, by gcsfs, against an emulator."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import lance_spark
from lance_spark.errors import StorageError
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.store import ObjectStore
from tests.storage.gcs import BUCKET, Gcs
from tests.storage.store_suite import StoreSuite
from tests.storage.table_suite import TableSuite, rows, values


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
    for given in (
        {"token": "anon", "endpoint_url": gcs.endpoint},
        {"service_account_key": account},
        {"google_base_url": gcs.endpoint, "google_skip_signature": "true"},
    ):
        dataset = lance_spark.open_dataset(root, storage_options=given)
        assert values(dataset.to_table()) == [1]
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(gcs.account))
    assert values(lance_spark.open_dataset(root).to_table()) == [1]


def test_what_is_forbidden_was_not_done(gcs: Gcs, root: str, store: ObjectStore) -> None:
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
