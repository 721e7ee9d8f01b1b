"""A check that the Python of Spark's workers on the driver has this package.

Spark finds the format "lance" among the modules `pyspark_*` of that Python. Without the module, its
error DATA_SOURCE_NOT_FOUND names neither the interpreter nor the setting.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any
from weakref import WeakSet

from lance_spark.errors import UnsupportedError

#: Finds the modules without importing them.
_PROBE = """
import importlib.util, sys
names = ("pyspark_lance", "lance_spark")
missing = [name for name in names if importlib.util.find_spec(name) is None]
print("lance_spark probe:", ",".join(missing))
"""
_REPLY = "lance_spark probe:"
_SECONDS = 30
#: JVMs whose workers have the package.
_checked: WeakSet[Any] = WeakSet()


def check_worker_python(spark: Any) -> None:
    """Check that Python workers on the driver can import this package, once for each JVM.

    Parameters
    ----------
    spark : SparkSession
        A classic session, not a client of Spark Connect.

    Raises
    ------
    UnsupportedError
        They cannot. The message names the setting.
    """
    gateway = spark.sparkContext._gateway
    if gateway in _checked:
        return
    name, path = _worker_python(spark)
    python = shutil.which(name)
    if python is None:
        raise UnsupportedError(
            f"Spark's workers run {name!r}, and the program is not found. {_advice()}"
        )
    missing = _missing_module(python, path)
    if missing:
        raise UnsupportedError(
            f"Spark's workers run {python}, which has no module {missing}: Spark would not find "
            f"the format lance (DATA_SOURCE_NOT_FOUND). {_advice()}"
        )
    _checked.add(gateway)


def _worker_python(spark: Any) -> tuple[str, str | None]:
    """Return the interpreter that Spark looks for formats with, and its PYTHONPATH."""
    jvm = spark.sparkContext._jvm
    module = getattr(jvm.org.apache.spark.api.python, "PythonUtils$")
    python = getattr(module, "MODULE$").defaultPythonExec()
    return str(python), jvm.java.lang.System.getenv("PYTHONPATH")


def _missing_module(python: str, path: str | None) -> str:
    """Return the name of a module that an interpreter does not find; empty if it finds all."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = path
    try:
        output = subprocess.run(  # noqa: S603 - the program that Spark runs
            [python, "-c", _PROBE],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        # Spark's own error will say what is wrong with the program.
        return ""
    lines = [line for line in output.splitlines() if line.startswith(_REPLY)]
    return lines[-1].removeprefix(_REPLY).strip().partition(",")[0] if lines else ""


def _advice() -> str:
    return (
        "Set PYSPARK_PYTHON in the environment, before Spark starts, to a Python that has the "
        f"package, such as {sys.executable}, or install lance-spark there"
    )
