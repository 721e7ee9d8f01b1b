"""Clients of Spark Connect: the classes get onto a server that is not configured for them.

A client needs no Java. A task on the server compiles the classes; the client sends them back to the
server as an artifact, and reads the source `Installer`, which adds them for all sessions.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lance_spark.errors import UnsupportedError
from lance_spark.spark.jvm.classes import INSTALLER, PROBE, installer_jar

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMN = "jar"


def enable_rules(spark: Any) -> None:
    """Add the rules to the sessions of the server, and the classes if the server lacks them.

    Raises UnsupportedError: the server does not allow it, its Python lacks this package, or its
    executors lack Java.
    """
    from pyspark.errors import PySparkException

    try:
        if not _asks(spark, enable="true"):
            _install(spark)
            _asks(spark, enable="true")
    except PySparkException as error:
        raise UnsupportedError(
            f"push-down and tables by name are off: the server of Spark Connect cannot take the "
            f"classes of this package ({_line(error)}); configure the server by "
            "`python -m lance_spark conf`, or select columns by .schema(...) or the option columns"
        ) from error


def is_on_server(spark: Any) -> bool:
    """Return whether the server of a client has the rules."""
    from pyspark.errors import PySparkException

    try:
        return _asks(spark)
    except PySparkException:
        # The jar on the server is of another release.
        return False


def _asks(spark: Any, **options: str) -> bool:
    """Return whether the server has the rules; False if it does not have the class that knows."""
    from pyspark.errors import PySparkException

    try:
        # Spark makes the relation when it is asked for the columns.
        return bool(spark.read.format(PROBE).options(**options).load().columns)
    except PySparkException as error:
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            return False
        raise


def _install(spark: Any) -> None:
    """Compile the classes on the server, and add them to it."""
    (row,) = spark.range(0, 1, 1, 1).mapInArrow(_make_jar, f"{_COLUMN} binary").collect()
    jar = bytes(row[0])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"lance-spark-{zlib.crc32(jar):08x}.jar"
        path.write_bytes(jar)
        spark.addArtifacts(str(path))
    _ = spark.read.format(INSTALLER).load().columns


def _make_jar(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for _ in batches:
        yield pa.record_batch([pa.array([installer_jar()], pa.binary())], [_COLUMN])


def _line(error: Exception) -> str:
    """Return the last line of Python's traceback in an error, or its first line."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if line.startswith(("ModuleNotFoundError", "FileNotFound"))]
    return (python or lines or [type(error).__name__])[0]
