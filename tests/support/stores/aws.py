"""A server in place of S3 and DynamoDB, in this process. It records every request."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import botocore.session
import pyarrow as pa
from moto.dynamodb.responses import DynamoHandler
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
from werkzeug.serving import WSGIRequestHandler

REGION = "us-east-1"
KEY = "AKIATEST"
SECRET = "not-so-secret"
BUCKET = "bucket"


class Aws:
    """The server, and clients of the server.

    Attributes
    ----------
    requests : list of str
        "GET", "PUT" ... with the path for S3; the name of the operation for DynamoDB.
    ranges : list of (str, str or None)
        The same, each with the range of a file that it asks for: "bytes=100-199".
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.ranges: list[tuple[str, str | None]] = []
        self._collecting: list[list[str]] = []
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        port = self._server.get_host_and_port()[1]
        self.endpoint = f"http://127.0.0.1:{port}"
        session = botocore.session.Session()
        common: dict[str, Any] = {
            "region_name": REGION,
            "endpoint_url": self.endpoint,
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
        }
        self.s3 = session.create_client("s3", **common)
        self.dynamodb = session.create_client("dynamodb", **common)
        self.s3.create_bucket(Bucket=BUCKET)

    def stop(self) -> None:
        # The content belongs to the process, so the next server in it would have the same content.
        reset = urllib.request.Request(f"{self.endpoint}/moto-api/reset", method="POST")
        urllib.request.urlopen(reset).close()
        self._server.stop()

    @property
    def ours(self) -> dict[str, Any]:
        """Storage options for this package."""
        return {
            "key": KEY,
            "secret": SECRET,
            "endpoint_url": self.endpoint,
            "dynamodb_endpoint": self.endpoint,
            "client_kwargs": {"region_name": REGION},
        }

    @property
    def theirs(self) -> dict[str, str]:
        """Storage options for pylance."""
        return {
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "aws_region": REGION,
            "aws_endpoint": self.endpoint,
            "dynamodb_endpoint": self.endpoint,
            "allow_http": "true",
        }

    def create_table(
        self, name: str, keys: str = "base_uri version", types: tuple[str, str] = ("S", "N")
    ) -> None:
        key_types = ("HASH", "RANGE")
        names = keys.split()
        self.dynamodb.create_table(
            TableName=name,
            KeySchema=[
                {"AttributeName": key, "KeyType": key_type}
                for key, key_type in zip(names, key_types, strict=False)
            ],
            AttributeDefinitions=[
                {"AttributeName": key, "AttributeType": attribute_type}
                for key, attribute_type in zip(names, types, strict=False)
            ],
            BillingMode="PAY_PER_REQUEST",
        )

    def entries(self, table: str) -> list[dict[str, Any]]:
        """Return the items, oldest version first."""
        items = self.dynamodb.scan(TableName=table)["Items"]
        return sorted(items, key=lambda item: int(item["version"]["N"]))

    def names(self, prefix: str) -> list[str]:
        """Return the keys of the bucket, without the prefix."""
        result = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
        return [item["Key"][len(prefix) :] for item in result]

    def rename(self, old: str, new: str) -> None:
        self.s3.copy_object(Bucket=BUCKET, Key=new, CopySource={"Bucket": BUCKET, "Key": old})
        self.s3.delete_object(Bucket=BUCKET, Key=old)

    @contextmanager
    def counted(self) -> Iterator[list[str]]:
        """Collect the requests of a block, in a list that has them as they are answered."""
        result: list[str] = []
        self._collecting.append(result)
        try:
            yield result
        finally:
            self._collecting = [other for other in self._collecting if other is not result]

    def note(self, text: str, byte_range: str | None) -> None:
        """Note a request, and the range of a file that it asks for."""
        self.requests.append(text)
        self.ranges.append((text, byte_range))
        for requests in self._collecting:
            requests.append(text)


@contextmanager
def one_at_a_time(handler: type, name: str) -> Iterator[None]:
    """The server checks whether a key exists, and then puts it: two requests at the same time would
    both succeed.
    """
    lock = threading.Lock()
    answer = getattr(handler, name)

    def locked(self: Any) -> Any:
        with lock:
            return answer(self)

    setattr(handler, name, locked)
    try:
        yield
    finally:
        setattr(handler, name, answer)


@contextmanager
def serving() -> Iterator[Aws]:
    puts = one_at_a_time(S3Response, "put_object"), one_at_a_time(DynamoHandler, "put_item")
    with puts[0], puts[1], noting() as aws:
        yield aws


@contextmanager
def noting() -> Iterator[Aws]:
    lock = threading.Lock()
    log_request = WSGIRequestHandler.log_request
    aws: Aws | None = None

    def note(self: WSGIRequestHandler, *args: object, **kwargs: object) -> None:
        target = self.headers.get("X-Amz-Target")
        text = target.rpartition(".")[2] if target else f"{self.command} {self.path}"
        if aws is not None:
            with lock:
                aws.note(text, self.headers.get("Range"))

    WSGIRequestHandler.log_request = note  # type: ignore[method-assign]
    try:
        aws = Aws()
        yield aws
    finally:
        WSGIRequestHandler.log_request = log_request  # type: ignore[method-assign]
        if aws is not None:
            aws.stop()


def numbers(start: int) -> pa.Table:
    return pa.table({"i": pa.array(range(start, start + 3), pa.int64())})
