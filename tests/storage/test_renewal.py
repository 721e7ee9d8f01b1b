"""Credentials that expire: a namespace issues new credentials, and running work continues with
them.
"""

from __future__ import annotations

import json
import pickle
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidOptionError, LanceError, StorageError
from lance_spark.namespace import TableEntry, connect
from lance_spark.storage import dynamodb, renewal
from lance_spark.storage.store import ObjectStore
from tests.support.settled import settled
from tests.support.stores import expiring
from tests.support.stores.azurite import ACCOUNT, CONTAINER, KEY, Azurite
from tests.support.stores.expiring import BUCKET, MARK, Expiring
from tests.support.stores.gcs import BUCKET as GOOGLE_BUCKET
from tests.support.stores.gcs import Gcs, _Handler

HEADER = f"{MARK}-header"


@pytest.fixture(scope="module")
def running() -> Iterator[Expiring]:
    with expiring.serving() as servers:
        yield servers


@pytest.fixture
def servers(running: Expiring, monkeypatch: pytest.MonkeyPatch) -> Expiring:
    running.seconds, running.offset, running.lag = 1000, 60_000, 0.0
    running.issued = running.refused = 0
    running.keys.clear()
    running.extra.clear()
    running.namespace.is_down = False
    running.namespace.locations = {"t": f"s3://{BUCKET}/t"}
    renewal._KnownCredentials.by_source.clear()
    monkeypatch.setattr(renewal, "_now", running.now)
    return running


def entry(servers: Expiring, name: str = "t") -> TableEntry:
    properties = {"uri": servers.uri, "headers.x-api": HEADER}
    return connect("rest", properties).describe_table((name,))


def store_of(servers: Expiring) -> ObjectStore:
    result = entry(servers)
    return ObjectStore.from_uri(result.location, result.storage_options)


def expires_now(servers: Expiring) -> None:
    """Move all clocks to a time at which no issued key is valid."""
    servers.shift += servers.seconds + 1


def test_reads_listings_and_commits_after_the_first_credentials(servers: Expiring) -> None:
    store = store_of(servers)
    store.write_bytes("a", b"x" * 1000)
    source = store.open("a")
    for _ in range(2):
        expires_now(servers)
        assert source.read([(10, 20)])[0].tobytes() == b"x" * 20  # type: ignore[list-item]
        assert store.list_names("") == ["a"]
        assert not store.put_if_absent("a", b"y")
    assert len(servers.keys) == 3
    assert servers.issued == 3
    assert servers.refused == 0


def test_a_running_upload(servers: Expiring) -> None:
    store = store_of(servers)
    output = store.open_output("large")
    part = bytes(5 << 20)
    for _ in range(3):
        output.write(part)
        output.write(b"z")
        output._output._wait_for(0)  # type: ignore[attr-defined]
        expires_now(servers)
    output.close()
    assert store.open("large").size == 3 * (5 << 20) + 3
    assert len(servers.keys) >= 3
    assert servers.refused == 0


def test_stores_share_what_was_renewed(servers: Expiring) -> None:
    result = entry(servers)
    expires_now(servers)
    stores = [ObjectStore.from_uri(result.location, result.storage_options) for _ in range(3)]
    stores.append(stores[0].below("folder"))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda store: store.write_bytes("x", b"1"), stores))
    assert servers.issued == 2
    assert len({id(store._fs) for store in stores}) == 1
    # Tasks get the newest credentials.
    data = pickle.dumps(stores[0])
    renewal._KnownCredentials.by_source.clear()
    pickle.loads(data).write_bytes("x", b"2")
    assert servers.issued == 2
    assert servers.refused == 0


def test_the_newest_of_two_processes_are_used(servers: Expiring) -> None:
    first, second = entry(servers), entry(servers)
    store = ObjectStore.from_uri(first.location, first.storage_options)
    ObjectStore.from_uri(second.location, second.storage_options)
    store.write_bytes("x", b"")
    expected = str(second.storage_options["expires_at_millis"])
    assert store.options["expires_at_millis"] == expected
    assert servers.keys == {expected}


def test_tables_of_two_sources_share_no_client(servers: Expiring) -> None:
    servers.namespace.locations["u"] = f"s3://{BUCKET}/u"
    entries = entry(servers), entry(servers, "u")
    options = entries[0].storage_options
    source = entries[1].storage_options["credential_source"]
    first = ObjectStore.from_uri(entries[0].location, options)
    second = ObjectStore.from_uri(entries[1].location, {**options, "credential_source": source})
    assert first._fs is not second._fs


def test_a_table_beside_pylance(servers: Expiring) -> None:
    rows = pa.table({"x": range(10)})
    for number in range(3):
        result = entry(servers)
        expires_now(servers)
        options = dict(result.storage_options)
        lance_spark.write_dataset(rows, result.location, "append", storage_options=options)
        dataset = lance_spark.open_dataset(result.location, storage_options=options)
        expires_now(servers)
        assert dataset.to_table().num_rows == 10 * (number + 1)
    theirs = lance.dataset(f"s3://{BUCKET}/t", storage_options=servers.lasting_options())
    assert theirs.count_rows() == 30
    assert servers.refused == 0


def test_manifests_in_dynamodb(servers: Expiring) -> None:
    keys = {"base_uri": "HASH", "version": "RANGE"}
    types = {"base_uri": "S", "version": "N"}
    servers.client("dynamodb").create_table(
        TableName="renewed",
        KeySchema=[{"AttributeName": name, "KeyType": key_type} for name, key_type in keys.items()],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": attribute_type}
            for name, attribute_type in types.items()
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    servers.namespace.locations["t"] = f"s3+ddb://{BUCKET}/d?ddbTableName=renewed"
    result = entry(servers)
    dataset = lance_spark.write_dataset(
        pa.table({"x": [1]}), result.location, storage_options=dict(result.storage_options)
    )
    expires_now(servers)
    dataset.delete("x = 1")
    assert dataset.latest_version == 2
    assert servers.refused == 0
    servers.client("dynamodb").delete_table(TableName="renewed")


def shown_text(error: BaseException) -> str:
    return f"{error!r} {error.__cause__!r}" + "".join(traceback.format_exception(error))


def test_without_a_namespace(servers: Expiring) -> None:
    options = servers.issue_options()
    store = ObjectStore.from_uri(f"s3://{BUCKET}/t", options)
    store.write_bytes("x", b"1")
    expires_now(servers)
    reused = {"expires_at_millis", "no namespace can renew them; open the table again"}
    for attempt in (
        lambda: store.read_bytes("x"),
        lambda: lance_spark.open_dataset(f"s3://{BUCKET}/t", storage_options=options),
    ):
        with pytest.raises(StorageError, match="the credentials of the store expired at") as raised:
            attempt()
        assert all(text in str(raised.value) for text in reused)
        assert MARK not in shown_text(raised.value)
    assert servers.refused == 0


def test_a_namespace_that_fails(servers: Expiring) -> None:
    store = store_of(servers)
    servers.namespace.is_down = True
    servers.shift += 950
    store.write_bytes("x", b"1")
    expires_now(servers)
    begun = time.monotonic()
    with pytest.raises(StorageError, match=r"expired at .* and could not be renewed") as raised:
        store.read_bytes("x")
    assert time.monotonic() - begun < 5
    assert "status 500: down" in str(raised.value)
    assert MARK not in shown_text(raised.value)
    servers.namespace.is_down = False
    assert store.read_bytes("x") == b"1"


def test_a_clock_that_is_late(servers: Expiring) -> None:
    store = store_of(servers)
    servers.lag = 2000
    expires_now(servers)
    with pytest.raises(StorageError, match="expired by the clock of this machine") as raised:
        store.read_bytes("x")
    assert MARK not in shown_text(raised.value)


def test_credentials_of_a_short_life_are_not_renewed_for_each_request(servers: Expiring) -> None:
    # They live long enough for a slow machine, and shorter than the offset.
    servers.seconds, servers.offset = 1000, 3_600_000
    store = store_of(servers)
    for _ in range(5):
        store.write_bytes("x", b"1")
    assert servers.issued == 2


def test_credentials_without_an_end(servers: Expiring) -> None:
    result = entry(servers)
    kept = {name: text for name, text in result.storage_options.items() if "_millis" not in name}
    assert renewal.credentials_of(kept) is None


@pytest.mark.parametrize("option", ["expires_at_millis", "refresh_offset_millis"])
@pytest.mark.parametrize("text", ["soon", "-1", "1e9", ""])
def test_malformed_times(option: str, text: str) -> None:
    options = {"expires_at_millis": "1", option: text}
    with pytest.raises(InvalidOptionError, match=f"{option} must be a whole number of milli"):
        ObjectStore.from_uri("s3://bucket/t", options)


@pytest.mark.parametrize("text", ["", "os:system", "[]", "{}", f'{{"function": "{MARK}"}}', 7])
def test_malformed_sources(text: Any) -> None:
    options = {"expires_at_millis": "1", "credential_source": text}
    with pytest.raises(InvalidOptionError, match="not a source of credentials") as raised:
        ObjectStore.from_uri("s3://bucket/t", options)
    assert MARK not in shown_text(raised.value)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("credential_source", "names code to run"),
        ("Commit_Lock", "names code to run"),
        ("manifest_store", "names code to run"),
        ("Disk_Cache", "is about the disk of this machine"),
        ("disk_cache_bytes", "is about the disk of this machine"),
    ],
)
def test_a_namespace_chooses_no_code_and_no_folder(
    servers: Expiring, option: str, reason: str
) -> None:
    servers.extra[option] = "os:system"
    with pytest.raises(StorageError, match=f"{option.lower()} of table t, which {reason}"):
        entry(servers)


def test_errors_do_not_show_what_was_renewed(servers: Expiring) -> None:
    store = store_of(servers)
    expires_now(servers)
    store.write_bytes("x", b"1")
    source = json.loads(store.options["credential_source"])
    assert source["request"]["properties"]["headers.x-api"] == HEADER
    texts = [f"{MARK}-secret-2", f"{MARK}-token-1", HEADER]
    from lance_spark.storage.errors import scrub

    assert MARK not in scrub(" ".join(texts), store._secrets)
    assert MARK not in repr(entry(servers))
    assert MARK not in repr(store)


def renewing_by(monkeypatch: pytest.MonkeyPatch, answers: Any) -> dict[str, str]:
    """Return storage options whose source calls a function of the test."""
    monkeypatch.setitem(globals(), "answer", lambda request: answers())
    first = answers()
    source = renewal.source_text(f"{__name__}:answer", {"test": id(answers)}, first)
    return {**first, "credential_source": source}


def expiring_in(seconds: float) -> dict[str, str]:
    at = str(int((time.time() + seconds) * 1000))
    return {"expires_at_millis": at, "refresh_offset_millis": "500"}


def test_google(monkeypatch: pytest.MonkeyPatch, gcs: Gcs, servers: Expiring) -> None:
    sent: list[str | None] = []
    dispatch = _Handler._dispatch

    def noted(self: Any, method: str) -> None:
        sent.append(self.headers.get("Authorization"))
        dispatch(self, method)

    monkeypatch.setattr(_Handler, "_dispatch", noted)
    numbers = iter(range(100))

    def answers() -> dict[str, str]:
        token = f"{MARK}-{next(numbers)}"
        return {**expiring_in(100 + servers.shift), "google_storage_token": token}

    options = {**gcs.options, **renewing_by(monkeypatch, answers)}
    options = {name: text for name, text in options.items() if "service_account" not in name}
    options |= {"google_base_url": gcs.endpoint, "lance_initial_upload_size": str(1 << 18)}
    store = ObjectStore.from_uri(f"gs://{GOOGLE_BUCKET}/renewed", options)
    output = store.open_output("x")
    for _ in range(3):
        num_sent = len(sent)
        output.write(bytes((1 << 18) + 1))
        # A thread sends the part. Its token must not expire before.
        assert settled(lambda count=num_sent: len(sent) > count, True)
        servers.shift += 101
    output.close()
    assert store.open("x").size == 3 * ((1 << 18) + 1)
    tokens = [int(text.rpartition("-")[2]) for text in dict.fromkeys(sent) if text is not None]
    assert tokens == list(range(tokens[0], tokens[0] + len(tokens)))
    assert len(tokens) >= 3


@pytest.mark.parametrize("by", ["signature", "key"])
def test_azure(monkeypatch: pytest.MonkeyPatch, azurite: Azurite, by: str) -> None:
    from azure.storage.blob import generate_account_sas

    signatures: list[str] = []

    def answers() -> dict[str, str]:
        now = datetime.now(UTC)
        signature = generate_account_sas(
            ACCOUNT,
            KEY,
            "sco",
            "rwdlacup",
            expiry=now + timedelta(seconds=2),
            start=now - timedelta(minutes=len(signatures)),
        )
        signatures.append(signature)
        times = expiring_in(1)
        if by == "signature":
            return {**times, "azure_storage_sas_token": signature}
        key = "AAAA" if len(signatures) == 1 else KEY
        return {**times, "azure_storage_account_key": key}

    renewed = renewing_by(monkeypatch, answers)
    options = {**azurite.options, **renewed}
    if by == "signature":
        del options["azure_storage_account_key"]
    if by == "key":
        time.sleep(1)
    store = ObjectStore.from_uri(f"az://{CONTAINER}/renewed", options)
    store.write_bytes("small", b"1")
    output = store.open_output("x")
    for _ in range(2):
        output.write(bytes((5 << 20) + 1))
        time.sleep(2.1 if by == "signature" else 0.6)
    output.close()
    store.copy("x", "y")
    assert store.open("y").size == 2 * ((5 << 20) + 1)
    assert store.list_names("") == ["small", "x", "y"]
    assert len(signatures) >= 3
    with pytest.raises(LanceError):
        store.read_bytes("nothing")


def test_a_process_keeps_few_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = renewal.Credentials(
        None, {renewal.EXPIRES_AT: str(int(time.time() * 1000) + 10**6)}
    )
    first = credentials.client((0,), object)
    assert credentials.client((0,), object) is first
    for number in range(1, 200):
        credentials.client((number,), object)
    assert credentials.client((0,), object) is not first
    # Each new token of a session has a connection.
    monkeypatch.setattr(dynamodb, "_client", lambda _: object())
    connections = [
        dynamodb._Connection.of("t", {"token": str(number)}, None)
        for number in (*range(200), 199, 0)
    ]
    assert connections[-2] is connections[-3]
    assert connections[-1] is not connections[0]
    dynamodb._Connection._by_settings.clear()
