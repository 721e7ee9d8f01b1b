"""A server of Spark Connect in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.support.cells import ALL_CELLS
from tests.support.spark.processes import environment
from tests.support.spark.settings import INTERPRETED
from tests.support.spark.versions import SPARK

SUBMIT = Path(sys.executable).with_name("spark-submit")
JARS = Path(pyspark.__file__).parent / "jars"
#: Maximum duration of a start of a server.
SECONDS = 300
#: The server ends when its standard input closes, so it cannot outlive the tests.
WATCHED = '"$@" </dev/null & server=$!; read -r _; kill $server; wait $server'
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    **({} if ALL_CELLS else INTERPRETED),
}


def skip_module_without_connect() -> None:
    """Skip the module that calls this if a server or the packages of clients are missing."""
    try:
        import pyspark.sql.connect.proto  # noqa: F401
        from grpc_status import rpc_status  # noqa: F401

        if SPARK >= (4, 1):
            import zstandard  # noqa: F401
    except (ImportError, RuntimeError) as error:
        # Packages of pyspark[connect]. Its protobuf refuses modules of much older releases.
        pytest.skip(f"no client of Spark Connect: {error}", allow_module_level=True)
    if not SUBMIT.exists() or not list(JARS.glob("spark-connect_*.jar")):
        pytest.skip("no spark-submit or no server of Spark Connect", allow_module_level=True)


def variables(folder: Path) -> dict[str, str]:
    """Return the variables of the processes of a server and its clients."""
    # Servers use free ports.
    return environment(SPARK_LOCAL_DIRS=str(folder / "local"), SPARK_TESTING="1")


@contextmanager
def running_server(folder: Path, arguments: list[str], conf: dict[str, str]) -> Iterator[str]:
    """Run a server as long as the context; return its address. Its log is in the folder."""
    settings = {**conf, "spark.connect.grpc.binding.port": "0"}
    command = [
        *(str(SUBMIT), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]", "--name", "lance_spark tests"),
        *arguments,
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
    ]
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", WATCHED, "sh", *command],
            env=variables(folder) | {"SPARK_TESTING": ""},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + SECONDS
        while not (port := re.search(r"server started at.*:(\d+)", log.read_text())):
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.2)
        yield f"sc://localhost:{port[1]}"
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
