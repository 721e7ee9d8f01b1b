"""Real S3 servers, each in a process of its own: programs of PyPI, Ceph's gateway, or a server that
is running already, with a bucket.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.config import Config

from tests.support.stores.azurite import free_port

BUCKET = "bucket"
KEY = "k"
SECRET = "secretsecret"
CEPH, NAMED = "Ceph gateway", "named server"
_START_SECONDS = 60
#: The address of a server that is running, with the key in AWS_ACCESS_KEY_ID and
#: AWS_SECRET_ACCESS_KEY, and the bucket in the second variable.
ENDPOINT, BUCKET_VARIABLE = "LANCE_SPARK_TEST_S3", "LANCE_SPARK_TEST_S3_BUCKET"


@dataclass(frozen=True)
class Running:
    """A server, and storage options for both clients."""

    endpoint: str
    key: str = KEY
    secret: str = SECRET
    bucket: str = BUCKET

    @property
    def options(self) -> dict[str, str]:
        return {
            "aws_access_key_id": self.key,
            "aws_secret_access_key": self.secret,
            "aws_region": os.environ.get("AWS_REGION", "us-east-1"),
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }

    def client(self) -> Any:
        return botocore.session.Session().create_client(
            "s3",
            region_name=self.options["aws_region"],
            endpoint_url=self.endpoint,
            aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
            config=Config(retries={"max_attempts": 1}),
        )


def _localbucket(folder: Path, port: int) -> tuple[list[str], dict[str, str]]:
    return ["localbucket", "--port", str(port), str(folder)], {}


def _ministack(folder: Path, port: int) -> tuple[list[str], dict[str, str]]:
    del folder
    return ["ministack"], {"GATEWAY_PORT": str(port)}


def _nanio(folder: Path, port: int) -> tuple[list[str], dict[str, str]]:
    keys = {"NANIO_ACCESS_KEY": KEY, "NANIO_SECRET_KEY": SECRET}
    return ["nanio", "serve", "--port", str(port), "--data-dir", str(folder)], keys


#: Commands and variables of programs of PyPI. `nanio` ignores the condition of a put.
PROGRAMS: dict[str, Callable[[Path, int], tuple[list[str], dict[str, str]]]] = {
    "localbucket": _localbucket,
    "ministack": _ministack,
    "nanio": _nanio,
}


@contextlib.contextmanager
def serving(name: str) -> Iterator[Running]:
    """Start a server by its name: one of `PROGRAMS`, `CEPH`, or `NAMED` by the environment.

    The test is skipped if it is not installed.
    """
    if name == NAMED:
        yield _named()
        return
    with tempfile.TemporaryDirectory() as made:
        folder, port = Path(made), free_port()
        if name == CEPH:
            from tests.support.stores import ceph

            with ceph.serving(folder, port, KEY, SECRET):
                yield _with_bucket(port)
            return
        command, variables = PROGRAMS[name](folder, port)
        beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        program = shutil.which(command[0], path=beside)
        if program is None:
            pytest.skip(f"{name} is not installed: pip install {name}")
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, *command[1:]],
                cwd=folder,
                env={**os.environ, **variables},
                stdout=log,
                stderr=log,
            )
        try:
            wait_for(port)
            yield _with_bucket(port)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _named() -> Running:
    endpoint = os.environ.get(ENDPOINT)
    if not endpoint:
        pytest.skip(f"{ENDPOINT} names no server")
    return Running(
        endpoint,
        os.environ.get("AWS_ACCESS_KEY_ID", KEY),
        os.environ.get("AWS_SECRET_ACCESS_KEY", SECRET),
        os.environ.get(BUCKET_VARIABLE, BUCKET),
    )


def wait_for(port: int) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"the server on port {port} does not start")


def _with_bucket(port: int) -> Running:
    running = Running(f"http://127.0.0.1:{port}")
    client = running.client()
    if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=BUCKET)
    return running
