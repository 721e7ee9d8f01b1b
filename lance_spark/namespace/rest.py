"""The REST namespace: a server manages the tables. See docs/src/spec.yaml of the specification.

| operation | request |
| --- | --- |
| list_namespaces, list_tables | GET /v1/namespace/ID/list, GET /v1/namespace/ID/table/list |
| others of a namespace | POST /v1/namespace/ID/ACTION, with a JSON object |
| others of a table | POST /v1/table/ID/ACTION, with a JSON object |

ID is the names with `$` between, and `$` for the root. Answers are JSON objects. The answer to a
refused request has `code` and `error`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from lance_spark.errors import InvalidInputError, LanceError, StorageError
from lance_spark.namespace.client import ClientNamespace, error_of
from lance_spark.namespace.identifiers import DELIMITER, Identifier, text_of
from lance_spark.storage.errors import scrub
from lance_spark.table.commit.options import Backoff

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
