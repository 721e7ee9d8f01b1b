"""A REST namespace on a server of HTTP in this process, and its tables."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import unquote

#: A status and the content of a reply: bytes, a value for JSON, or the address of a redirection.
Reply = tuple[int, Any]
_REDIRECTIONS = (301, 302, 307)


class Request(NamedTuple):
    """What a client sent."""

    method: str
    path: str
    headers: Message
    body: bytes


@dataclass
class NamespaceTables:
    """The tables of a namespace, which replies to the requests that list, describe and declare.

    Attributes
    ----------
    location_of : callable
        Returns the location of a table that a client declares, by its name.
    storage_options : callable
        Returns the storage options of a reply that describes a table.
    locations : dict of str to str
        The location of each table.
    requests : list of Request
        All requests so far.
    is_down : bool
        Whether every reply is an error of the server.
    """

    location_of: Callable[[str], str]
    storage_options: Callable[[], Mapping[str, str]]
    locations: dict[str, str] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    is_down: bool = False

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        *_, name, action = unquote(request.path.partition("?")[0]).split("/")
        if self.is_down:
            return 500, {"code": 18, "error": f"down, {request.headers.get('x-api')}"}
        if action == "list":
            return 200, {"tables": sorted(self.locations), "namespaces": []}
        if action == "declare":
            self.locations[name] = self.location_of(name)
        if name not in self.locations:
            return 404, {"code": 4, "error": f"no table {name}"}
        options = dict(self.storage_options())
        return 200, {"location": self.locations[name], "storage_options": options}


@contextmanager
def serving(reply_to: Callable[[Request], Reply]) -> Iterator[str]:
    """Serve replies to requests; yield the URI of the server."""

    class Handler(BaseHTTPRequestHandler):
        def _reply(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, content = reply_to(Request(self.command, self.path, self.headers, body))
            self.send_response(status)
            if status in _REDIRECTIONS:
                self.send_header("Location", content)
                content = b""
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _reply

        def log_message(self, *_args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
