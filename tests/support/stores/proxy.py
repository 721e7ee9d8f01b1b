"""An HTTP proxy before the server of a store, which injects faults: errors, lost answers, broken
connections, delays.

Requests are told apart by their text, "PUT /bucket/key?query". `FaultProxy.fail` spoils the first ones that match a pattern, in the
order of the faults given; `FaultProxy.schedule` spoils any, as a seed decides.
"""

from __future__ import annotations

import http.client
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "proxy-connection"})
_CODES = {429: "TooManyRequests", 500: "InternalError", 503: "SlowDown"}


@dataclass(frozen=True)
class Fault:
    """The fault of a request.

    Attributes
    ----------
    status : int
        Answer with this instead of the server's own; 0 = the server's own.
    arrives : bool
        Whether the server gets the request.
    resets : bool
        Reset the connection instead of an answer.
    keeps : float, optional
        Send that part of the answer's body, then reset the connection.
    delay : float
        Seconds before the server gets it.
    dies : bool
        Whether every later request is refused.
    retry_after : str, optional
        What an answer of `status` says of when to come again.
    """

    status: int = 0
    arrives: bool = True
    resets: bool = False
    keeps: float | None = None
    delay: float = 0.0
    dies: bool = False
    retry_after: str | None = None


SLOW_DOWN = Fault(status=503, arrives=False)
INTERNAL_ERROR = Fault(status=500, arrives=False)
TOO_MANY = Fault(status=429, arrives=False)
#: The connection breaks before the server gets the request, or after the server has executed it.
RESET = Fault(arrives=False, resets=True)
LOST = Fault(resets=True)
#: The server executes the request, but the answer is an error.
DENIED_AFTER = Fault(status=500)
TRUNCATED = Fault(keeps=0.5)
#: Faults that leave the effect of a request unknown, and faults that only reads can have.
ALL = (SLOW_DOWN, INTERNAL_ERROR, TOO_MANY, RESET, LOST, DENIED_AFTER, TRUNCATED)


@dataclass
class _Rule:
    pattern: re.Pattern[str]
    faults: list[Fault] = field(default_factory=list)


class FaultProxy:
    """The proxy.

    Attributes
    ----------
    endpoint : str
    requests : list of str
        Those that came, also if the server never got them.
    most_at_once : int
        How many were under way at the same time.
    spans : list of tuple of float
        When each request arrived, and when its answer was known, on a clock of its own.
    """

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        assert parts.hostname is not None
        self._target = (parts.hostname, parts.port)
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._chance: Callable[[str], Fault | None] | None = None
        self._always = Fault()
        self._under_way = 0
        self.clear()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def clear(self) -> None:
        """Remove all faults, and forget all requests."""
        with self._lock:
            self._rules.clear()
            self._chance = None
            self._always = Fault()
            self.requests: list[str] = []
            self.spans: list[tuple[float, float]] = []
            self.most_at_once = 0

    def fail(self, pattern: str, *faults: Fault) -> None:
        """Inject faults into the next requests that match a pattern, one fault for each request."""
        with self._lock:
            self._rules.append(_Rule(re.compile(pattern), list(faults)))

    def schedule(self, seed: int, share: float, faults: Sequence[Fault] = ALL) -> None:
        """Inject faults into a share of all requests, by a seed."""
        rng = random.Random(seed)

        def chance(_request: str) -> Fault | None:
            return rng.choice(faults) if rng.random() < share else None

        with self._lock:
            self._chance = chance

    def delay(self, seconds: float) -> None:
        """Delay every request."""
        with self._lock:
            self._always = Fault(delay=seconds)

    def matching(self, pattern: str) -> list[str]:
        """Return the requests that match a pattern."""
        with self._lock:
            return [request for request in self.requests if re.search(pattern, request)]

    @property
    def left(self) -> int:
        """Return the faults that no request has had yet."""
        with self._lock:
            return sum(len(rule.faults) for rule in self._rules)

    def meet(self, request: str) -> Fault:
        with self._lock:
            self.requests.append(request)
            for rule in self._rules:
                if rule.faults and rule.pattern.search(request):
                    fault = rule.faults.pop(0)
                    self._always = SLOW_DOWN if fault.dies else self._always
                    return fault
            result = self._chance(request) if self._chance is not None else None
            return result or self._always

    @contextmanager
    def counted(self) -> Iterator[None]:
        begun = time.perf_counter()
        with self._lock:
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                self.spans.append((begun, time.perf_counter()))

    def ask(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, Any, bytes]:
        line = http.client.HTTPConnection(*self._target, timeout=60)
        try:
            line.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                if name.lower() not in _HOP | {"expect", "content-length"}:
                    line.putheader(name, value)
            line.putheader("Content-Length", str(len(body)))
            line.endheaders(body)
            answer = line.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            line.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *args: object) -> None:
        """A client that closes its connection is not an error."""


class _Handler(BaseHTTPRequestHandler):
    owner: FaultProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _pass(self) -> None:
        body = self._body()
        with self.owner.counted():
            fault = self.owner.meet(f"{self.command} {self.path}")
            time.sleep(fault.delay)
            status, headers, answer = 0, None, b""
            if fault.arrives:
                status, headers, answer = self.owner.ask(
                    self.command, self.path, self.headers, body
                )
        if fault.resets:
            self._reset()
        elif fault.status:
            self._refuse(fault.status, fault.retry_after)
        else:
            self._answer(status, headers, answer, fault.keeps)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(chunks)

    def _answer(self, status: int, headers: Any, body: bytes, keeps: float | None) -> None:
        self.send_response_only(status)
        is_head = self.command == "HEAD"
        for name, value in headers.items():
            if name.lower() not in _HOP and (is_head or name.lower() != "content-length"):
                self.send_header(name, value)
        if not is_head and status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not is_head:
            self.wfile.write(body if keeps is None else body[: int(len(body) * keeps)])
        if keeps is not None:
            self._reset()

    def _refuse(self, status: int, retry_after: str | None) -> None:
        code = _CODES[status]
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        if retry_after is not None:
            self.send_header("Retry-After", retry_after)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    def _reset(self) -> None:
        self.close_connection = True
        # Without lingering, closing sends a reset instead of an orderly end.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


@contextmanager
def spoiling(target: str) -> Iterator[FaultProxy]:
    proxy = FaultProxy(target)
    try:
        yield proxy
    finally:
        proxy.stop()
