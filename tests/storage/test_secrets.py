"""Secrets among the options and in URIs are in no message, no repr, no log and no cause of an
error.
"""

from __future__ import annotations

import json
import logging
import pickle
import traceback
import uuid
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import lance_spark
from lance_spark.errors import InvalidInputError, InvalidOptionError, LanceError
from lance_spark.mutations.merge_schema import begin_merging_write
from lance_spark.spark.read.snapshot import TableSnapshot
from lance_spark.storage import store as store_module
from lance_spark.storage.errors import is_secret, secret_values
from lance_spark.storage.options import AZURE, GOOGLE, S3
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.write import begin_write
from tests.support.stores.aws import REGION
from tests.support.stores.azurite import ACCOUNT, CONTAINER, Azurite
from tests.support.stores.table_suite import rows

MARK = "hunter2"


def secret(name: str) -> str:
    return f"{MARK}-{name}/+="


ACCOUNT_FILE = {
    "type": "service_account",
    "private_key": secret("pem"),
    "private_key_id": secret("id"),
}
SAS = f"sv=2024&sp=rl&sig={quote(secret('sig'), safe='')}"
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "s3": (
        "s3://bucket/t",
        {name: secret(name) for name in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")},
    ),
    "s3 of fsspec": (
        "s3a://bucket/t",
        {"key": secret("key"), "secret": secret("secret"), "client_kwargs": {"aws_session_token": secret("token")}},
    ),
    "azure key": ("az://container/t", {"account_name": "me", "azure_storage_account_key": secret("account")}),
    "azure signature": ("abfss://container@me.dfs.core.windows.net/t", {"sas_token": f"?{SAS}"}),
    "azure principal": (
        "az://container/t",
        {"account_name": "me", "client_id": "id", "tenant_id": "tenant", "azure_client_secret": secret("client")},
    ),
    "azure connection": (
        "abfs://container/t",
        {"connection_string": f"AccountName=me;AccountKey={secret('connection')};EndpointSuffix=core.windows.net"},
    ),
    "google account": ("gs://bucket/t", {"google_service_account_key": json.dumps(ACCOUNT_FILE)}),
    "google token": ("gcs://bucket/t", {"google_bearer_token": secret("bearer")}),
    "google dict": ("gs://bucket/t", {"token": ACCOUNT_FILE}),
    "user in the URI": (f"sftp://me:{MARK}-pass@host/t", {"password": secret("password")}),
    "query in the URI": (f"ftp://host/t?token={MARK}-query", {"commit_lock": "tests.storage.commit.test_lock:lock"}),
}  # fmt: skip


def test_names_of_secret_options() -> None:
    """All options whose names show that they hold a secret, and no option that helps to understand
    an error.
    """
    names = {
        *S3,
        *AZURE,
        *GOOGLE,
        "key",
        "secret",
        "password",
        "passphrase",
        "passwd",
        "credential",
    }
    for name in names:
        secret_parts = (
            "secret",
            "token",
            "_key",
            "sas",
            "credential",
            "connection_string",
            "passw",
            "passph",
        )
        if name.startswith("container_") or "key_enabled" in name:
            continue
        assert is_secret(name) or not any(part in name for part in secret_parts), name
    for name in ("region", "endpoint", "account_name", "bucket", "io_threads", "account_host"):
        assert not is_secret(name)


def test_all_spellings_of_a_secret() -> None:
    result = secret_values(
        {
            "connection_string": f"AccountName=me;AccountKey={secret('a')};SharedAccessSignature={SAS}",
            "service_account_key": json.dumps(ACCOUNT_FILE),
            "client_kwargs": {"aws_secret_access_key": secret("nested")},
            "region": "somewhere",
            "secret": "abc",
        }
    )
    for name in ("a", "sig", "pem", "id", "nested"):
        assert secret(name) in result
        assert quote(secret(name), safe="") in result
    assert not {"me", "somewhere", "abc"} & set(result)


class Leaky(MemoryFileSystem):
    """Fails in every call, and repeats all arguments: as text, as in URLs, and in earlier
    errors.
    """

    cachable = False
    kind: type[Exception] = OSError

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.text = f"cannot sign {arguments} {quote(json.dumps(arguments, default=str), safe='')}"

    def fail(self, *args: Any, **kwargs: Any) -> Any:
        try:
            raise ValueError(self.text, *args)
        except ValueError as error:
            raise self.kind(f"{self.text} {args}") from error

    info = ls = cat_file = pipe_file = rm_file = cp_file = open = find = cat_ranges = fail


def shown_text(error: BaseException) -> str:
    """Return everything that an error shows."""
    return f"{error} {error!r} {error.__cause__!r}" + "".join(traceback.format_exception(error))


@pytest.mark.parametrize("error_class", [OSError, RuntimeError, PermissionError, FileNotFoundError])
@pytest.mark.parametrize("name", OPTIONS)
def test_errors_of_stores_show_no_secrets(
    name: str, error_class: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    uri, options = OPTIONS[name]
    uri_secret = MARK in uri

    def connect(location: Any, arguments: Any, secrets: Any = None) -> Leaky:
        every = {**arguments, "asked for": location.uri} if uri_secret else dict(arguments)
        made = Leaky(**every)
        made.kind = error_class
        return made

    monkeypatch.setattr(store_module, "connect", connect)
    caplog.set_level(logging.DEBUG, "lance_spark")
    options = {**options, "client_max_retries": "0"}
    store = ObjectStore.from_uri(uri, options)
    assert MARK in store._fs.text
    texts = [repr(store), str(store), store.name("x"), store.display]
    for action in (
        lambda: store.open("x"),
        lambda: store.read_bytes("x"),
        lambda: store.write_bytes("x", b"1"),
        lambda: store.list("x"),
        lambda: store.list_tree("x"),
        lambda: store.exists("x"),
        lambda: store.copy("x", "y"),
        lambda: store.delete(["x"]),
        lambda: store.open_output("x"),
        store.check_put_if_absent,
        lambda: store.put_if_absent("_versions/1.manifest", b"1"),
        lambda: lance_spark.open_dataset(uri, storage_options=options),
        lambda: lance_spark.write_dataset(rows(1), uri, storage_options=options),
    ):
        try:
            action()
        except LanceError as error:
            texts.append(shown_text(error))
    assert len(texts) >= 8
    texts += [
        record.getMessage() for record in caplog.records if record.name.startswith("lance_spark")
    ]
    for text in texts:
        assert MARK not in text, text[:2000]


def test_errors_of_a_database_show_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    from lance_spark.storage.dynamodb import DynamoDbManifestStore

    options = {
        "aws_secret_access_key": secret("dynamo"),
        "aws_access_key_id": secret("id"),
        "region": REGION,
        "endpoint": "http://127.0.0.1:9",
        "client_max_retries": "0",
    }

    def leak(self: object, *args: object) -> None:
        raise RuntimeError(f"cannot sign with {options}")

    for name in ("get", "latest", "since"):
        monkeypatch.setattr(DynamoDbManifestStore, name, leak)
    with pytest.raises(LanceError, match="cannot sign") as caught:
        lance_spark.open_dataset("s3+ddb://bucket/t?ddbTableName=table", storage_options=options)
    assert MARK not in shown_text(caught.value)


def test_secrets_are_pickled_with_the_store() -> None:
    uri, options = OPTIONS["s3"]
    store = pickle.loads(pickle.dumps(ObjectStore.from_uri(uri, options)))
    assert store.options == options
    assert MARK not in repr(store)


@pytest.mark.parametrize("scheme", ["az", "abfss", "abfs"])
def test_signatures_in_uris(scheme: str) -> None:
    with pytest.raises(InvalidInputError, match="sas_token") as caught:
        lance_spark.open_dataset(f"{scheme}://container/t?{SAS}")
    assert MARK not in shown_text(caught.value)


def test_a_closed_port(caplog: pytest.LogCaptureFixture) -> None:
    uri, options = OPTIONS["s3"]
    closed = {**options, "endpoint": "http://127.0.0.1:9", "client_max_retries": "0"}
    caplog.set_level(logging.DEBUG, "lance_spark")
    for action in (
        lambda: lance_spark.open_dataset(uri, storage_options=closed),
        lambda: lance_spark.write_dataset(rows(1), uri, storage_options=closed),
    ):
        with pytest.raises(LanceError) as caught:
            action()
        assert MARK not in shown_text(caught.value)
    logged = [
        record.getMessage() for record in caplog.records if record.name.startswith("lance_spark")
    ]
    assert not [text for text in logged if MARK in text]


@pytest.mark.parametrize("how", ["key", "signature"])
def test_a_server_that_refuses(azurite: Azurite, how: str) -> None:
    """The answer of Azurite to a wrong signature repeats the signature."""
    import base64

    wrong = base64.b64encode(f"{MARK} no key".encode()).decode()
    signed = f"sv=2024-11-04&sp=rl&se=2099-01-01&sr=c&sig={quote(wrong, safe='')}"
    credentials = {"account_key": wrong} if how == "key" else {"sas_token": signed}
    options = {"account_name": ACCOUNT, "endpoint": azurite.endpoint, **credentials}
    uri = f"az://{CONTAINER}/{uuid.uuid4().hex}"
    for action in (
        lambda: lance_spark.open_dataset(uri, storage_options=options),
        lambda: lance_spark.write_dataset(rows(1), uri, storage_options=options),
    ):
        with pytest.raises(LanceError, match="permission denied") as caught:
            action()
        for text in (wrong, quote(wrong, safe="")):
            assert text not in shown_text(caught.value)


URI = f"memory://me:{MARK}@host/t"


@pytest.fixture
def table() -> lance_spark.Dataset:
    MemoryFileSystem.store.clear()
    return lance_spark.write_dataset(rows(1), URI)


def test_a_password_in_the_uri_is_in_no_repr_and_no_message(table: lance_spark.Dataset) -> None:
    job = begin_write(URI, rows(2).schema)
    shown = [repr(item) for item in (table, *table.plan(), job, TableSnapshot(URI, 1))]
    for wrong in (
        lambda: lance_spark.write_dataset(pa.table({}), URI, "append"),
        lambda: lance_spark.write_dataset(rows(1), URI),
        lambda: begin_merging_write(URI, rows(1).schema, mode="overwrite"),
        lambda: lance_spark.open_dataset(URI, 9),
    ):
        with pytest.raises(LanceError) as caught:
            wrong()
        shown.append(str(caught.value))
    assert not [item for item in shown if MARK in item]


@pytest.mark.parametrize(
    "endpoint", [f"http://me:{MARK}@127.0.0.1:9/a", f"me:{MARK}@host", "https://[x"]
)
def test_a_password_in_an_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidOptionError, match="without user and password") as caught:
        ObjectStore.from_uri("az://container/t", {"azure_storage_endpoint": endpoint})
    assert MARK not in str(caught.value)
