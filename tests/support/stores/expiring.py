"""A server in place of S3 and DynamoDB whose keys expire, and a namespace that hands them out."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import botocore.session
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

REGION = "us-east-1"
BUCKET = "expiring"
#: Every secret that is handed out has it.
MARK = "hunter2"
_KEY = re.compile(r"Credential=AKIA([0-9]+)/")
_FOREVER = 10**15


class Expiring:
    """Both servers.

    Attributes
    ----------
    seconds : float
        How long keys that are handed out from now on are valid.
    offset : int or None
        Milliseconds before that clients are to renew them.
    shift : float
        Seconds by which the clock of the store and the namespace is ahead of that of the machine.
    lag : float
        Seconds by which the clock of the namespace is late.
    down : bool
        Whether the namespace answers nothing but errors.
    asked : int
        How often it handed out keys.
    keys : set of str
        Keys that the store was used with.
    refused : int
        Requests with a key that had expired.
    extra : dict of str to str
        Further storage options that the namespace gives.
    """

    def __init__(self) -> None:
        self.seconds, self.offset, self.shift, self.lag = 1000.0, 60_000, 0.0, 0.0
        self.down, self.asked, self.refused = False, 0, 0
        self.keys: set[str] = set()
        self.headers: set[str] = set()
        self.extra: dict[str, str] = {}
        self.locations: dict[str, str] = {}
        self.endpoint = self.uri = ""

    def now(self) -> float:
        """Milliseconds since 1970."""
        return (time.time() + self.shift) * 1000

    def handed_out(self) -> dict[str, str]:
        self.asked += 1
        expires = int(self.now() + (self.seconds - self.lag) * 1000)
        return {
            "aws_access_key_id": f"AKIA{expires}",
            "aws_secret_access_key": f"{MARK}-secret-{self.asked}",
            "aws_session_token": f"{MARK}-token-{self.asked}",
            "expires_at_millis": str(expires),
            "refresh_offset_millis": str(self.offset),
            **self.fixed,
            **self.extra,
        }

    @property
    def fixed(self) -> dict[str, str]:
        return {
            "aws_region": REGION,
            "aws_endpoint": self.endpoint,
            "dynamodb_endpoint": self.endpoint,
            "allow_http": "true",
        }

    def client(self, service: str) -> Any:
        """A client with a key that does not expire."""
        return botocore.session.Session().create_client(
            service,
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id=f"AKIA{_FOREVER}",
            aws_secret_access_key="x",
        )

    def theirs(self) -> dict[str, str]:
        """Storage options with a key that does not expire."""
        key = {"aws_access_key_id": f"AKIA{_FOREVER}", "aws_secret_access_key": "x"}
        return {**self.fixed, **key}


@contextmanager
def serving() -> Iterator[Expiring]:
    servers = Expiring()
    application = DomainDispatcherApplication(create_backend_app)

    def checked(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        found = _KEY.search(environ.get("HTTP_AUTHORIZATION", ""))
        if found is None or int(found[1]) < servers.now():
            servers.refused += 1
            body = b"<Error><Code>ExpiredToken</Code><Message>expired</Message></Error>"
            kind = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            start_response("400 Bad Request", kind)
            return [body]
        servers.keys.add(found[1])
        answer: Iterable[bytes] = application(environ, start_response)
        return answer

    class Namespace(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            servers.headers.add(str(self.headers.get("x-api")))
            *_, name, action = unquote(self.path.partition("?")[0]).split("/")
            status, answer = 200, dict[str, Any]()
            if servers.down:
                status, answer = 500, {"code": 18, "error": f"down, {self.headers.get('x-api')}"}
            elif action == "list":
                answer = {"tables": sorted(servers.locations), "namespaces": []}
            else:
                if action == "declare":
                    servers.locations[name] = f"s3://{BUCKET}/named/{name}"
                location = servers.locations.get(name)
                answer = {"location": location, "storage_options": servers.handed_out()}
                if location is None:
                    status, answer = 404, {"code": 4, "error": f"no table {name}"}
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer

        def log_message(self, *_args: object) -> None:
            """Do nothing."""

    store = make_server("127.0.0.1", 0, checked, threaded=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), Namespace) as namespace:
        for server in (store, namespace):
            threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.endpoint = f"http://127.0.0.1:{store.server_port}"
        servers.uri = f"http://127.0.0.1:{namespace.server_port}"
        client = servers.client("s3")
        client.create_bucket(Bucket=BUCKET)
        try:
            yield servers
        finally:
            for entry in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
                client.delete_object(Bucket=BUCKET, Key=entry["Key"])
            client.delete_bucket(Bucket=BUCKET)
            namespace.shutdown()
            store.shutdown()
