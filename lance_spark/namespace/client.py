"""Namespaces that another program manages: requests to the program, and its answers.

The specification of namespaces (docs/src/spec.yaml) has the same fields for the requests of the
REST protocol and of the Python package lance-namespace. A request is the name of an operation and a
mapping of fields. An answer is a mapping of fields.

A new table is declared before it is written: the name is taken from then on.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from lance_spark.errors import (
    CommitConflictError,
    InvalidInputError,
    LanceError,
    NamespaceExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedError,
    UnsupportedFeatureError,
)
from lance_spark.namespace.base import (
    DELIMITER,
    Identifier,
    Namespace,
    TableEntry,
    display,
    text_of,
)
from lance_spark.storage.errors import scrub
from lance_spark.storage.options import (
    COMMIT_LOCK,
    CREDENTIAL_SOURCE,
    DISK_CACHE,
    DISK_CACHE_BYTES,
    DISK_CACHE_DATA,
    EXPIRES_AT,
)
from lance_spark.storage.renewal import source_text
from lance_spark.storage.uri import parse_uri
from lance_spark.table.commit.options import Backoff

# --------------------------------------------------------------------------------------------------
# Credentials of a table from a namespace, which returns new credentials before they expire.
#
# The answer to `describe_table` has storage options. If `expires_at_millis` is among them, the
# option `credential_source` is added. It says how to request new credentials from the namespace. It
# travels with the other storage options to tasks, so every process of a job can request them. It
# contains the properties of the namespace, some of which are secret, such as headers.

#: The function that requests new credentials from a namespace.
_FUNCTION = "lance_spark.namespace:storage_options_of"
_CODE, _DISK = "names code to run", "is about the disk of this machine"
#: Storage options that a namespace must not choose, and why.
_OF_USERS = {
    COMMIT_LOCK: _CODE,
    CREDENTIAL_SOURCE: _CODE,
    "manifest_store": _CODE,
    DISK_CACHE: _DISK,
    DISK_CACHE_BYTES: _DISK,
    DISK_CACHE_DATA: _DISK,
}


def with_source(
    options: Mapping[str, str],
    impl: str | None,
    properties: Mapping[str, str],
    identifier: Identifier,
) -> dict[str, str]:
    """Return the storage options of an answer; if they expire, with their source.

    - `impl`, `properties`: Arguments of `lance_spark.namespace.connect`; without `impl`, no source
      is added.

    Raises StorageError: the answer has an option that only users may set.
    """
    lower = {name.lower() for name in options}
    for name, reason in _OF_USERS.items():
        if name in lower:
            raise StorageError(
                f"the namespace gives the storage option {name} of table {display(identifier)}, "
                f"which {reason}; set it in the options of the catalog or of the read"
            )
    if impl is None or EXPIRES_AT not in lower:
        return dict(options)
    request = {"impl": impl, "properties": dict(properties), "id": list(identifier)}
    source = source_text(_FUNCTION, request, options)
    return {**options, CREDENTIAL_SOURCE: source}


# --------------------------------------------------------------------------------------------------
# Namespaces that another program manages: requests to the program, and its answers.

#: Errors by their code in the specification. All other codes mean an error of the store.
_ERRORS: Mapping[int, type[LanceError]] = {
    0: UnsupportedError,
    1: NamespaceNotFoundError,
    2: NamespaceExistsError,
    3: NamespaceNotEmptyError,
    4: TableNotFoundError,
    5: TableExistsError,
    13: InvalidInputError,
}
_CONCURRENT = 14
_PAGE = 1_000


def error_of(code: int, message: str) -> LanceError:
    """Return the error of a code."""
    if code == _CONCURRENT:
        return CommitConflictError(message, retryable=True)
    return _ERRORS.get(code, StorageError)(message)


class ClientNamespace(Namespace):
    """A namespace that another program manages.

    - `label`: Name of the program in errors.
    - `impl`, `properties`: Arguments with which `lance_spark.namespace.connect` opens this
      namespace in another process. Without `impl`, nothing renews the credentials of tables.
    - `storage_options`: Settings of the stores of the tables. Settings that the program returns for
      a table replace them.
    """

    def __init__(
        self,
        label: str,
        impl: str | None,
        properties: Mapping[str, str],
        storage_options: Mapping[str, Any],
    ) -> None:
        self._label = label
        self._impl = impl
        self._properties = dict(properties)
        self._options = dict(storage_options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._label!r})"

    @abstractmethod
    def _ask(
        self, operation: str, identifier: Identifier, fields: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Send a request; return the fields of the answer."""

    def list_namespaces(self, parent: Identifier = ()) -> list[str]:
        """Return the sorted names of the namespaces in a parent; see `Namespace`."""
        return self._listed("list_namespaces", parent, "namespaces")

    def describe_namespace(self, identifier: Identifier) -> dict[str, str]:
        """Return the properties of a namespace; see `Namespace`."""
        return _texts(self._ask("describe_namespace", identifier, {}).get("properties"))

    def create_namespace(
        self, identifier: Identifier, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a namespace; see `Namespace`."""
        text_of(identifier)
        fields = {"mode": "Create", "properties": dict(properties or {})}
        self._ask("create_namespace", identifier, fields)

    def drop_namespace(self, identifier: Identifier) -> None:
        """Remove an empty namespace; see `Namespace`."""
        text_of(identifier)
        self._ask("drop_namespace", identifier, {})

    def list_tables(self, parent: Identifier = ()) -> list[str]:
        """Return the sorted names of the tables in a namespace; see `Namespace`."""
        return self._listed("list_tables", parent, "tables")

    def describe_table(self, identifier: Identifier) -> TableEntry:
        """Return the entry of a table; see `Namespace`."""
        text_of(identifier)
        return self._entry(
            self._ask("describe_table", identifier, {"vend_credentials": True}), identifier
        )

    def new_table(self, identifier: Identifier) -> TableEntry:
        """Declare a table, and return where to write it; see `Namespace`."""
        text_of(identifier)
        return self._entry(
            self._ask("declare_table", identifier, {"vend_credentials": True}), identifier
        )

    def check_location(self, identifier: Identifier, location: str) -> None:
        """Refuse all locations: the program chooses them; see `Namespace`."""
        raise InvalidInputError(
            f"{self._label}: table {display(identifier)} cannot be at {location}: the namespace "
            "chooses where a new table is; remove LOCATION"
        )

    def cancel_table(self, identifier: Identifier, entry: TableEntry) -> None:
        """Remove the declaration of a table that was not written; see `Namespace`.

        The name stays if there is a table: another client may have written to the declared name.
        """
        if not entry.has_version():
            with suppress(TableNotFoundError):
                self._ask("deregister_table", identifier, {})

    def register_table(self, identifier: Identifier, entry: TableEntry) -> None:
        """Give a table a name, unless `new_table` has declared it; see `Namespace`."""
        try:
            existing = self.describe_table(identifier)
        except TableNotFoundError:
            fields = {"location": entry.location, "properties": dict(entry.properties)}
            self._ask("register_table", identifier, fields)
            return
        # A client may give the same place as a path and as a URI.
        if parse_uri(existing.location) != parse_uri(entry.location):
            raise TableExistsError(
                f"{self._label}: {display(identifier)} exists already; choose another name"
            )

    def deregister_table(self, identifier: Identifier) -> TableEntry:
        """Remove the name of a table, and keep its files; see `Namespace`."""
        entry = self.describe_table(identifier)
        self._ask("deregister_table", identifier, {})
        return entry

    def drop_table(self, identifier: Identifier) -> None:
        """Remove the name of a table, and delete its files; see `Namespace`."""
        text_of(identifier)
        self._ask("drop_table", identifier, {})

    def rename_table(self, identifier: Identifier, new: Identifier) -> None:
        """Give a table another name; see `Namespace`."""
        text_of(identifier)
        text_of(new)
        fields = {"new_table_name": new[-1], "new_namespace_id": list(new[:-1])}
        self._ask("rename_table", identifier, fields)

    def _entry(self, answer: Mapping[str, Any], identifier: Identifier) -> TableEntry:
        if answer.get("managed_versioning"):
            raise UnsupportedFeatureError(
                f"{self._label}: versions of table {display(identifier)} are managed by the "
                "namespace, which this release does not support; use another client"
            )
        location = answer.get("location") or answer.get("table_uri")
        if not isinstance(location, str) or not location:
            raise StorageError(
                f"{self._label}: the answer has no location of table {display(identifier)}"
            )
        returned = _texts(answer.get("storage_options"))
        renewable = with_source(returned, self._impl, self._properties, identifier)
        options = {**self._options, **renewable}
        return TableEntry(location, _texts(answer.get("properties")), options, chosen=True)

    def _listed(self, operation: str, parent: Identifier, key: str) -> list[str]:
        names: set[str] = set()
        token = None
        sent: set[str] = set()
        while True:
            fields = {"limit": _PAGE, **({"page_token": token} if token else {})}
            answer = self._ask(operation, parent, fields)
            names.update(answer.get(key) or ())
            following = answer.get("page_token")
            # A program that returns a token again must not cause an endless loop.
            if not following or following in sent:
                return sorted(names)
            token = following
            sent.add(token)


def _texts(value: Any) -> dict[str, str]:
    return {str(name): str(item) for name, item in value.items()} if value else {}


# --------------------------------------------------------------------------------------------------
# The REST namespace: a server manages the tables. See docs/src/spec.yaml of the specification.
#
# | operation | request |
# | --- | --- |
# | list_namespaces, list_tables | GET /v1/namespace/ID/list, GET /v1/namespace/ID/table/list |
# | others of a namespace | POST /v1/namespace/ID/ACTION, with a JSON object |
# | others of a table | POST /v1/table/ID/ACTION, with a JSON object |
#
# ID is the names with `$` between, and `$` for the root. Answers are JSON objects. The answer to a
# refused request has `code` and `error`.

#: Routes of operations that change nothing, which are sent again if the server is busy.
_READS = {
    "list_namespaces": "namespace/{}/list",
    "list_tables": "namespace/{}/table/list",
    "describe_namespace": "namespace/{}/describe",
    "describe_table": "table/{}/describe",
}
_GETS = frozenset({"list_namespaces", "list_tables"})
#: Answers of a server or of a proxy that is busy.
_BUSY = frozenset({429, 502, 503, 504})
_RETRIES = 5
_SECONDS = 60.0
_MAX_BYTES = 64 << 20
_TEXT_LENGTH = 500


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects: another server must not get the headers, which may be secret."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        """Return None, so that the answer is an error."""


_OPENER = build_opener(_NoRedirects)


class RestNamespace(ClientNamespace):
    """The namespace of a server.

    - `uri`: URI of the server, such as ``https://catalog.example.org``.
    - `headers`: Headers of all requests, such as ``x-api-key``. Errors and `repr` do not show them.
    - `storage_options`: Settings of the stores of the tables. Settings that the server returns for
      a table replace them.

    Raises InvalidInputError: the URI does not begin with ``http://`` or ``https://`` and the name
    of a server.
    """

    def __init__(
        self,
        uri: str,
        headers: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        parts = urlsplit(uri)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInputError(
                "the uri of a REST namespace must begin with http:// or https:// and a server"
            )
        label = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
        sent = {f"headers.{name}": value for name, value in (headers or {}).items()}
        super().__init__(label, "rest", {"uri": uri, **sent}, storage_options or {})
        self._uri = uri.rstrip("/")
        self._headers = dict(headers or {})

    def _ask(
        self, operation: str, identifier: Identifier, fields: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        action, _, target = operation.partition("_")
        route = _READS.get(operation, f"{target}/{{}}/{action}")
        path = route.format(quote(text_of(identifier) if identifier else DELIMITER, safe=""))
        backoff = Backoff()
        for _ in range(_RETRIES if operation in _READS else 0):
            try:
                return self._send(operation, path, identifier, fields)
            except _BusyError:
                backoff.wait()
        return self._send(operation, path, identifier, fields)

    def _send(
        self, operation: str, path: str, identifier: Identifier, fields: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        query, data = {"delimiter": DELIMITER}, None
        if operation in _GETS:
            query |= {name: str(value) for name, value in fields.items()}
        else:
            data = json.dumps({"id": list(identifier), **fields}).encode()
        headers = {"Content-Type": "application/json", **self._headers}
        url = f"{self._uri}/v1/{path}?{urlencode(query)}"
        request = Request(url, data, headers)  # noqa: S310 - http or https
        name = f"{self._label}/v1/{path}"
        try:
            with _OPENER.open(request, timeout=_SECONDS) as answer:
                content = answer.read(_MAX_BYTES)
        except HTTPError as error:
            with error:
                content = error.read(_MAX_BYTES)
                raise _refusal(error.code, content, name, self._properties) from None
        except (HTTPException, OSError) as error:
            raise _BusyError(f"{name}: no answer: {getattr(error, 'reason', error)}") from None
        try:
            fields_of_answer = json.loads(content or b"{}")
        except ValueError:
            fields_of_answer = None
        if not isinstance(fields_of_answer, dict):
            raise StorageError(f"{name}: the answer is not a JSON object; check the URI")
        return fields_of_answer


class _BusyError(StorageError):
    """The server did not answer, or asks to try again later."""


def _refusal(status: int, content: bytes, name: str, properties: Mapping[str, str]) -> LanceError:
    try:
        answer = json.loads(content)
        code, text = int(answer["code"]), str(answer.get("error") or answer.get("detail") or "")
    except (ValueError, KeyError, TypeError):
        code, text = -1, content.decode(errors="replace")
    # A server may repeat a header.
    message = f"{name}: status {status}: {scrub(text, properties)[:_TEXT_LENGTH]}"
    return _BusyError(message) if status in _BUSY else error_of(code, message)
