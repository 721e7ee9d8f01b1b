"""Namespaces of servers and of the package lance-namespace, which pylance serves; servers that
fail.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    InvalidOptionError,
    NamespaceExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedError,
    UnsupportedFeatureError,
)
from lance_spark.namespace import Namespace, TableEntry, connect
from lance_spark.namespace.client import RestNamespace
from lance_spark.namespace.directory import DirectoryNamespace
from lance_spark.namespace.external import ExternalNamespace
from lance_spark.storage.uri import parse_uri
from tests.support import pylance_namespace as theirs
from tests.support.stores.namespaces import Reply, Request, serving

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture(params=["rest", "external", "external rest"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Namespace]:
    root = {"root": str(tmp_path / "root")}
    if request.param == "external":
        yield ExternalNamespace("dir", root)
        return
    with theirs.RestAdapter("dir", root, port=0) as adapter:
        uri = f"http://127.0.0.1:{adapter.port}/"
        if request.param == "rest":
            yield connect("rest", {"uri": uri})
        else:
            yield ExternalNamespace("rest", {"uri": uri})


def test_namespaces(server: Namespace, tmp_path: Path) -> None:
    assert server.list_namespaces() == []
    server.create_namespace(("db",), {"owner": "me"})
    server.create_namespace(("db", "a-ü"))
    assert server.list_namespaces() == ["db"]
    assert server.list_namespaces(("db",)) == ["a-ü"]
    assert server.describe_namespace(("db",)) == {"owner": "me"}
    assert DirectoryNamespace(str(tmp_path / "root")).list_namespaces(("db",)) == ["a-ü"]
    with pytest.raises(NamespaceExistsError):
        server.create_namespace(("db",))
    with pytest.raises(NamespaceNotFoundError):
        server.create_namespace(("no", "x"))
    with pytest.raises(NamespaceNotFoundError):
        server.describe_namespace(("no",))
    with pytest.raises(NamespaceNotEmptyError):
        server.drop_namespace(("db",))
    server.drop_namespace(("db", "a-ü"))
    server.drop_namespace(("db",))
    assert server.list_namespaces() == []


@pytest.mark.parametrize("identifier", [("t",), ("db", "t")])
def test_tables(server: Namespace, identifier: tuple[str, ...]) -> None:
    server.create_namespace(("db",))
    with pytest.raises(TableNotFoundError):
        server.describe_table(identifier)
    entry = server.new_table(identifier)
    lance_spark.write_dataset(ROWS, entry.location)
    server.register_table(identifier, entry)
    assert server.list_tables(identifier[:-1]) == ["t"]
    result = server.describe_table(identifier)
    assert lance.dataset(result.location).to_table() == ROWS
    assert parse_uri(result.location) == parse_uri(entry.location)
    with pytest.raises(TableExistsError):
        server.new_table(identifier)
    with pytest.raises(TableExistsError, match="exists already; choose another name"):
        server.register_table(identifier, TableEntry(entry.location + "x"))
    # The server of pylance has no such operation, and answers with an internal error.
    with pytest.raises((UnsupportedError, StorageError), match="not implemented"):
        server.rename_table(identifier, (*identifier[:-1], "new"))
    server.drop_table(identifier)
    assert server.list_tables(identifier[:-1]) == []
    with pytest.raises(TableNotFoundError):
        server.drop_table(identifier)


def test_a_name_stays_if_another_client_has_written_the_table(server: Namespace) -> None:
    server.create_namespace(("db",))
    for name, is_written in ("t", True), ("u", False):
        entry = server.new_table(("db", name))
        if is_written:
            lance.write_dataset(ROWS, entry.location)
        server.cancel_table(("db", name), entry)
    assert server.list_tables(("db",)) == ["t"]
    assert lance.dataset(server.describe_table(("db", "t")).location).count_rows() == 3


def test_a_name_is_free_after_rows_that_could_not_be_made(server: Namespace) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise ValueError("the program has an error")

    server.create_namespace(("db",))
    place: dict[str, Any] = {"namespace_client": server, "table_id": ["db", "t"]}
    with pytest.raises(ValueError, match="the program has an error"):
        lance_spark.write_dataset(broken(), schema=ROWS.schema, **place)
    assert server.list_tables(("db",)) == []


def test_deregistered_tables_keep_their_files(server: Namespace) -> None:
    server.create_namespace(("db",))
    entry = server.new_table(("db", "t"))
    lance_spark.write_dataset(ROWS, entry.location)
    result = server.deregister_table(("db", "t"))
    assert parse_uri(result.location) == parse_uri(entry.location)
    assert server.list_tables(("db",)) == []
    assert lance.dataset(entry.location).count_rows() == 3


@pytest.fixture
def answering() -> Iterator[Callable[..., tuple[RestNamespace, list[Any]]]]:
    """Return a function that starts a server with these replies, of which the last is repeated. It
    returns the namespace of the server, and the list of its requests.
    """
    with ExitStack() as servers:

        def start(*answers: Reply, headers: dict[str, str] | None = None) -> Any:
            waiting, requests = list(answers), list[Request]()

            def reply_to(request: Request) -> Reply:
                requests.append(request)
                return waiting.pop(0) if len(waiting) > 1 else waiting[0]

            return RestNamespace(servers.enter_context(serving(reply_to)), headers), requests

        yield start


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lance_spark.table.commit.options.time.sleep", lambda _: None)


def test_requests(answering: Any) -> None:
    namespace, requests = answering(
        (200, {"tables": ["b", "a"], "page_token": "p 2"}),
        (200, {"tables": ["c"], "page_token": None}),
        headers={"x-api-key": "s3cret"},
    )
    assert namespace.list_tables(("d b", "ü")) == ["a", "b", "c"]
    paths = [path for _, path, _, _ in requests]
    assert paths == [
        "/v1/namespace/d%20b%24%C3%BC/table/list?delimiter=%24&limit=1000",
        "/v1/namespace/d%20b%24%C3%BC/table/list?delimiter=%24&limit=1000&page_token=p+2",
    ]
    assert {command for command, *_ in requests} == {"GET"}
    assert {sent["X-api-key"] for _, _, sent, _ in requests} == {"s3cret"}
    assert "s3cret" not in repr(namespace)


def test_the_root(answering: Any) -> None:
    namespace, requests = answering((200, {"namespaces": []}))
    assert namespace.list_namespaces() == []
    assert requests[0][1].startswith("/v1/namespace/%24/list?")


def test_a_page_token_that_never_ends(answering: Any) -> None:
    namespace, requests = answering((200, {"tables": ["a"], "page_token": "same"}))
    assert namespace.list_tables() == ["a"]
    assert len(requests) == 2
    pages = [(200, {"tables": [name], "page_token": name}) for name in "abab"]
    namespace, requests = answering(*pages, (200, {"tables": ["beyond the loop"]}))
    assert namespace.list_tables() == ["a", "b"]
    assert len(requests) == 3


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_reads_are_sent_again(answering: Any, status: int) -> None:
    namespace, requests = answering((status, b"later"), (status, {"code": 17}), (200, {}))
    assert namespace.list_tables() == []
    assert len(requests) == 3
    namespace, requests = answering((status, b"later"))
    with pytest.raises(StorageError, match=f"status {status}: later"):
        namespace.list_tables()
    assert len(requests) == 6


def test_changes_are_sent_once(answering: Any) -> None:
    namespace, requests = answering((503, b"later"))
    with pytest.raises(StorageError, match="status 503"):
        namespace.create_namespace(("db",))
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (400, {"code": 13, "error": "bad"}, InvalidInputError),
        (404, {"code": 4, "error": "no table"}, TableNotFoundError),
        (406, {"code": 0, "error": "not here"}, UnsupportedError),
        (409, {"code": 14, "error": "at once"}, CommitConflictError),
        (403, {"code": 15, "error": "forbidden"}, StorageError),
        (500, b"\xff<html>", StorageError),
        (404, [], StorageError),
        (500, {"code": "x"}, StorageError),
        (200, b"not json", StorageError),
        (200, [1], StorageError),
    ],
)
def test_errors(answering: Any, status: int, answer: Any, error: type[Exception]) -> None:
    namespace, _ = answering((status, answer), headers={"authorization": "s3cret"})
    with pytest.raises(error) as raised:
        namespace.drop_table(("db", "t"))
    assert "/v1/table/db%24t/drop" in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_another_server_does_not_get_the_headers(answering: Any) -> None:
    other_server, stolen = answering((200, {}))
    namespace, _ = answering((302, f"{other_server._uri}/v1"), headers={"x-api-key": "s3cret"})
    with pytest.raises(StorageError, match="status 302"):
        namespace.list_tables()
    assert stolen == []


@pytest.mark.usefixtures("no_waits")
def test_no_server() -> None:
    with pytest.raises(StorageError, match="no answer"):
        RestNamespace("http://127.0.0.1:9").list_tables()


@pytest.mark.parametrize("uri", ["", "file:///etc/passwd", "ftp://x", "http://", "catalog"])
def test_wrong_uris(uri: str) -> None:
    with pytest.raises(InvalidInputError, match="must begin with http"):
        RestNamespace(uri)


def test_a_password_in_the_uri_is_not_shown() -> None:
    assert repr(RestNamespace("http://me:pw@host/x")) == "RestNamespace('http://host/x')"


def test_storage_options(answering: Any) -> None:
    reply = {"location": "s3://b/t", "storage_options": {"aws_session_token": "s3cret"}}
    namespace, requests = answering((200, reply))
    entry = namespace.describe_table(("t",))
    assert entry.storage_options == {"aws_session_token": "s3cret"}
    assert json.loads(requests[0][3])["vend_credentials"] is True
    assert "s3cret" not in repr(entry)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"location": "s3://b/t", "managed_versioning": True}, UnsupportedFeatureError),
        ({}, StorageError),
        ({"location": 7}, StorageError),
    ],
)
def test_tables_that_cannot_be_used(answering: Any, answer: Any, error: type[Exception]) -> None:
    namespace, _ = answering((200, answer))
    with pytest.raises(error):
        namespace.describe_table(("t",))
    with pytest.raises(error):
        namespace.new_table(("t",))


def test_properties(tmp_path: Path) -> None:
    result = connect("dir", {"root": str(tmp_path), "storage.region": "x"})
    assert isinstance(result, DirectoryNamespace)
    rest = connect("rest", {"uri": "http://host", "headers.x-api-key": "s3cret"})
    assert isinstance(rest, RestNamespace)
    assert rest._headers == {"x-api-key": "s3cret"}
    with pytest.raises(InvalidOptionError, match="needs the property 'root'"):
        connect("dir", {})
    with pytest.raises(
        InvalidOptionError, match=r"no property 'rot'; its properties are root, storage"
    ):
        connect("dir", {"rot": "/"})
    with pytest.raises(InvalidOptionError, match=r"the namespace 'no\.such\.Class' cannot be used"):
        connect("no.such.Class", {"password": "s3cret"})


def test_errors_of_other_implementations(tmp_path: Path) -> None:
    namespace = ExternalNamespace("dir", {"root": str(tmp_path)})

    class Failing:
        def list_tables(self, _request: object) -> None:
            raise RuntimeError("boom")

    namespace._client = Failing()
    with pytest.raises(StorageError, match="dir: list_tables failed: RuntimeError: boom"):
        namespace.list_tables()
    with pytest.raises(StorageError, match="drop_table failed: AttributeError"):
        namespace.drop_table(("t",))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lance_namespace", None)
    with pytest.raises(InvalidOptionError, match=r"pip install lance-spark\[namespaces\]"):
        connect("glue", {})
