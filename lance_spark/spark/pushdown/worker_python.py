"""Check that the Python workers of Spark on the driver have this package.

Spark looks for the format "lance" in the modules `pyspark_*` of that Python. Without the module,
its error DATA_SOURCE_NOT_FOUND names neither the interpreter nor the setting.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any
from weakref import WeakSet

from lance_spark.errors import UnsupportedError

#: Looks for the modules without running them.
_PROBE = """
import importlib.util, sys
names = ("pyspark_lance", "lance_spark")
missing = [name for name in names if importlib.util.find_spec(name) is None]
print("lance_spark probe:", ",".join(missing))
"""
_ANSWER = "lance_spark probe:"
_SECONDS = 30
#: JVMs whose workers have the package.
_checked: WeakSet[Any] = WeakSet()


def check_worker_python(spark: Any) -> None:
    """Check once for each JVM that Python workers on the driver can import this package.

    Parameters
    ----------
    spark : SparkSession
        A classic session.

    Raises
    ------
    UnsupportedError
        They cannot import it. The message says what to set.
    """
    gateway = spark.sparkContext._gateway
    if gateway in _checked:
        return
    python, path = _interpreter(spark)
    executable = shutil.which(python)
    if executable is None:
        raise UnsupportedError(f"Spark's workers run {python!r}, which was not found. {_advice()}")
    missing = _missing(executable, path)
    if missing:
        raise UnsupportedError(
            f"Spark's workers run {executable}, which has no module {missing}: Spark would report "
            f"DATA_SOURCE_NOT_FOUND for the format lance. {_advice()}"
        )
    _checked.add(gateway)


def _interpreter(spark: Any) -> tuple[str, str | None]:
    """Return the interpreter with which Spark looks for formats, and its PYTHONPATH.

    Both come from the environment of the JVM.
    """
    jvm = spark.sparkContext._jvm
    module = getattr(jvm.org.apache.spark.api.python, "PythonUtils$")
    python = getattr(module, "MODULE$").defaultPythonExec()
    return str(python), jvm.java.lang.System.getenv("PYTHONPATH")


def _missing(python: str, path: str | None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = path
    try:
        answer = subprocess.run(  # noqa: S603 - the program that Spark runs
            [python, "-c", _PROBE],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        # Spark reports what is wrong with the program.
        return ""
    lines = [line for line in answer.splitlines() if line.startswith(_ANSWER)]
    return lines[-1].removeprefix(_ANSWER).strip().partition(",")[0] if lines else ""


def _advice() -> str:
    return (
        "Set PYSPARK_PYTHON in the environment, before Spark starts, to a Python that has the "
        f"package, such as {sys.executable}, or install lance-spark there"
    )
