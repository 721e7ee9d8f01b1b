"""A server in place of S3 and DynamoDB whose keys expire, and a namespace that issues keys."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import botocore.session
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from tests.support.stores import namespaces

REGION = "us-east-1"
BUCKET = "expiring"
#: The secret of every issued key.
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
    namespace : NamespaceTables
        The tables of the namespace.
    issued : int
        How often the namespace handed out keys.
    keys : set of str
        Keys that the store was used with.
    refused : int
        Requests with a key that had expired.
    extra : dict of str to str
        Further storage options that the namespace gives.
    """

    def __init__(self) -> None:
        self.seconds, self.offset, self.shift, self.lag = 1000.0, 60_000, 0.0, 0.0
        self.issued = self.refused = 0
        self.keys: set[str] = set()
        self.extra: dict[str, str] = {}
        self.namespace = namespaces.NamespaceTables(
            lambda name: f"s3://{BUCKET}/named/{name}", self.issue_options
        )
        self.endpoint = self.uri = ""

    def now(self) -> float:
        """Return a time in milliseconds since 1970."""
        return (time.time() + self.shift) * 1000

    def issue_options(self) -> dict[str, str]:
        """Return storage options with a new key, which expires."""
        self.issued += 1
        expires = int(self.now() + (self.seconds - self.lag) * 1000)
        return {
            "aws_access_key_id": f"AKIA{expires}",
            "aws_secret_access_key": f"{MARK}-secret-{self.issued}",
            "aws_session_token": f"{MARK}-token-{self.issued}",
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
        """Return a client with a key that does not expire."""
        return botocore.session.Session().create_client(
            service,
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id=f"AKIA{_FOREVER}",
            aws_secret_access_key="x",
        )

    def lasting_options(self) -> dict[str, str]:
        """Return storage options with a key that does not expire."""
        key = {"aws_access_key_id": f"AKIA{_FOREVER}", "aws_secret_access_key": "x"}
        return {**self.fixed, **key}


@contextmanager
def serving() -> Iterator[Expiring]:
    servers = Expiring()
    application = DomainDispatcherApplication(create_backend_app)

    def checked(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        key = _KEY.search(environ.get("HTTP_AUTHORIZATION", ""))
        if key is None or int(key[1]) < servers.now():
            servers.refused += 1
            body = b"<Error><Code>ExpiredToken</Code><Message>expired</Message></Error>"
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            start_response("400 Bad Request", headers)
            return [body]
        servers.keys.add(key[1])
        reply: Iterable[bytes] = application(environ, start_response)
        return reply

    store = make_server("127.0.0.1", 0, checked, threaded=True)
    with namespaces.serving(servers.namespace.reply) as servers.uri:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        servers.endpoint = f"http://127.0.0.1:{store.server_port}"
        client = servers.client("s3")
        client.create_bucket(Bucket=BUCKET)
        try:
            yield servers
        finally:
            for entry in client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
                client.delete_object(Bucket=BUCKET, Key=entry["Key"])
            client.delete_bucket(Bucket=BUCKET)
            store.shutdown()
