"""Tables on Azure, by adlfs, against Azurite."""

from __future__ import annotations

import uuid
from typing import Any

import lance
import pytest
from azure.core.exceptions import ResourceExistsError

import lance_spark
from lance_spark.errors import StorageError
from lance_spark.storage.commit import ConditionalPut
from lance_spark.storage.errors import is_refusal
from lance_spark.storage.store import ObjectStore
from tests.support.stores.azurite import ACCOUNT, CONTAINER, Azurite
from tests.support.stores.store_suite import StoreSuite
from tests.support.stores.table_suite import TableSuite, rows, values


@pytest.fixture
def options(azurite: Azurite) -> dict[str, Any]:
    return azurite.options


@pytest.fixture
def root() -> str:
    return f"az://{CONTAINER}/{uuid.uuid4().hex}"


class TestFiles(StoreSuite):
    pass


class TestTables(TableSuite):
    pass


@pytest.mark.parametrize("scheme", ["abfs", "abfss"])
def test_uris_that_name_the_account(azurite: Azurite, scheme: str) -> None:
    options = {k: v for k, v in azurite.options.items() if "account_name" not in k}
    path = f"{CONTAINER}@{ACCOUNT}.dfs.core.windows.net/{uuid.uuid4().hex}/ü t"
    uri = f"{scheme}://{path}"
    lance_spark.write_dataset(rows(1), uri, storage_options=options)
    written = lance_spark.write_dataset(rows(2), uri, "append", storage_options=options)
    assert written.version == 2
    # pylance knows only the longer name.
    theirs = lance.dataset(f"abfss://{path}", storage_options=azurite.options)
    assert values(theirs.to_table()) == [1, 2]
    lance.write_dataset(rows(3), f"abfss://{path}", mode="append", storage_options=azurite.options)
    assert values(lance_spark.open_dataset(uri, storage_options=options).to_table()) == [1, 2, 3]


def test_names_of_adlfs_and_of_the_emulator(
    azurite: Azurite, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance_spark.write_dataset(rows(1), root, storage_options=azurite.options)
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};"
        f"AccountKey={azurite.options['azure_storage_account_key']};BlobEndpoint={azurite.endpoint};"
    )
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", azurite.endpoint)
    for store_options in ({"connection_string": connection}, {"use_emulator": "true"}):
        dataset = lance_spark.open_dataset(root, storage_options=store_options)
        assert values(dataset.to_table()) == [1]


def test_shared_access_signatures(azurite: Azurite, root: str) -> None:
    import datetime

    from azure.storage.blob import ContainerSasPermissions, generate_container_sas

    lance_spark.write_dataset(rows(1), root, storage_options=azurite.options)

    def signed(**rights: bool) -> dict[str, str]:
        token = generate_container_sas(
            ACCOUNT,
            CONTAINER,
            account_key=azurite.options["azure_storage_account_key"],
            permission=ContainerSasPermissions(read=True, list=True, **rights),
            expiry=datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1),
        )
        return {"account_name": ACCOUNT, "sas_token": token, "endpoint": azurite.endpoint}

    whole = signed(write=True, create=True, delete=True)
    lance_spark.write_dataset(rows(2), root, "append", storage_options=whole)
    reading = signed()
    assert values(lance_spark.open_dataset(root, storage_options=reading).to_table()) == [1, 2]
    with pytest.raises(StorageError, match="permission denied") as caught:
        lance_spark.write_dataset(rows(3), root, "append", storage_options=reading)
    assert reading["sas_token"] not in str(caught.value)
    store = ObjectStore.from_uri(root, reading)
    with pytest.raises(StorageError, match="permission denied") as caught:
        store.put_if_absent("_versions/new", b"1")
    assert is_refusal(caught.value)


def test_a_wrong_key_is_no_missing_table(azurite: Azurite, root: str) -> None:
    options = {**azurite.options, "azure_storage_account_key": "d3Jvbmc="}
    with pytest.raises(StorageError, match="permission denied"):
        lance_spark.open_dataset(root, storage_options=options)


def test_a_container_that_is_not_there(azurite: Azurite) -> None:
    with pytest.raises(StorageError):
        lance_spark.write_dataset(rows(1), "az://no-such/t", storage_options=azurite.options)


def test_adlfs_that_hands_on_the_error_of_azure() -> None:
    class Older:
        def pipe_file(self, path: str, data: bytes, overwrite: bool = True) -> None:
            raise ResourceExistsError("The specified blob already exists.")

    assert not ConditionalPut(Older(), {"overwrite": False}).put_if_absent("c/x", b"1")
