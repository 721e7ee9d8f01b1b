"""Servers in place of S3 that each accept one key, in processes of their own. Run as a program,
this module is one of the servers.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import botocore.session

REGION = "us-east-1"
SECRET = "hunter2-secret"


class KeyedS3:
    """A server.

    Attributes
    ----------
    key : str
        The only access key that it accepts.
    endpoint : str
    """

    def __init__(self, key: str, endpoint: str) -> None:
        self.key = key
        self.endpoint = endpoint
        self._client = botocore.session.Session().create_client(
            "s3",
            region_name=REGION,
            endpoint_url=endpoint,
            aws_access_key_id=key,
            aws_secret_access_key=SECRET,
        )

    @property
    def options(self) -> dict[str, str]:
        """Return storage options for both clients."""
        return {
            "aws_access_key_id": self.key,
            "aws_secret_access_key": SECRET,
            "aws_region": REGION,
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }

    def create_bucket(self, bucket: str) -> None:
        self._client.create_bucket(Bucket=bucket)

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        """Return the keys in a bucket."""
        result = self._client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ())
        return [item["Key"] for item in result]


@contextmanager
def serving(key: str, bucket: str) -> Iterator[KeyedS3]:
    """Start a server that has a bucket."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__)), key],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        server = KeyedS3(key, f"http://127.0.0.1:{int(process.stdout.readline())}")
        server.create_bucket(bucket)
        yield server
    finally:
        process.kill()
        process.wait()


def main(key: str) -> None:
    """Serve until killed; print the port."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application = DomainDispatcherApplication(create_backend_app)

    def checked(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if f"Credential={key}/" not in environ.get("HTTP_AUTHORIZATION", ""):
            body = b"<Error><Code>InvalidAccessKeyId</Code><Message>another key</Message></Error>"
            response_headers = [
                ("Content-Type", "application/xml"),
                ("Content-Length", str(len(body))),
            ]
            start_response("403 Forbidden", response_headers)
            return [body]
        result: Iterable[bytes] = application(environ, start_response)
        return result

    server = make_server("127.0.0.1", 0, checked, threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
