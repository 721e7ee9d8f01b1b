"""Azurite, Microsoft's server in place of Azure, for the time of some tests. It is found on the
PATH, or npm installs it into a cache folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ACCOUNT = "devstoreaccount1"
# The key of Azurite's only account, which is public.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = "container"
_PACKAGE = "azurite@3"
_INSTALL_SECONDS = 60
_START_SECONDS = 30


class Azurite:
    """The server.

    Attributes
    ----------
    endpoint : str
        URL of the account.
    """

    def __init__(self, port: int) -> None:
        self.host = f"127.0.0.1:{port}"
        self.endpoint = f"http://{self.host}/{ACCOUNT}"
        from azure.storage.blob import BlobServiceClient

        with BlobServiceClient(self.endpoint, credential=KEY) as client:
            client.create_container(CONTAINER)

    @property
    def options(self) -> dict[str, Any]:
        """Return storage options with the names of pylance."""
        return {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": KEY,
            "azure_storage_endpoint": self.endpoint,
            "allow_http": "true",
        }


def _program() -> list[str]:
    """Return the command that starts the server. The test is skipped if it cannot be installed."""
    result = shutil.which("azurite-blob")
    if result is not None:
        return [result]
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("there is no Azurite: neither azurite-blob nor node and npm are installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "lance_spark_tests" / _PACKAGE
    script = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    installed_marker = folder / "installed"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            # Processes of a run of the tests wait for each other.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not installed_marker.exists():
                _install(npm, folder)
                installed_marker.touch()
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stdout", None) or b""
        pytest.skip(f"npm could not install {_PACKAGE}: {error}; {output[-300:]!r}")
    return [node, str(script)]


def _install(npm: str, folder: Path) -> None:
    failed = folder / "failed"
    if failed.exists() and time.time() - failed.stat().st_mtime < 3600:
        raise OSError(f"the last try failed less than an hour ago: {failed}")
    failed.touch()
    command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts", _PACKAGE]  # fmt: skip
    subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_INSTALL_SECONDS,
        cwd=folder,
    )
    failed.unlink()


def free_port() -> int:
    """Return a port that no server uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving() -> Iterator[Azurite]:
    """Start a server that keeps nothing on disk."""
    program = _program()
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        # The server may be older than the package that talks to it.
        arguments = ["--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--blobPort", str(port)]  # fmt: skip
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*program, *arguments], cwd=folder, stdout=output, stderr=output
            )
        try:
            _wait(process, port, log)
            yield Azurite(port)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.1)
    pytest.skip(f"Azurite does not start: {log.read_bytes()[-300:]!r}")
