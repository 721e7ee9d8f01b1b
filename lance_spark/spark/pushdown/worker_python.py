"""The Python that Spark's workers on the driver run, and whether it has this package.

Spark finds the format "lance" among the modules `pyspark_*` of that Python. Where it has no such
module, Spark says DATA_SOURCE_NOT_FOUND and names neither the interpreter nor the setting.
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
missing = [name for name in ("pyspark_lance", "lance_spark") if importlib.util.find_spec(name) is None]
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
        A classic one.

    Raises
    ------
    UnsupportedError
        They cannot; the message says what to set.
    """
    gateway = spark.sparkContext._gateway
    if gateway in _checked:
        return
    python, path = _of_workers(spark)
    result = shutil.which(python)
    if result is None:
        raise UnsupportedError(
            f"Spark's workers run {python!r}, and there is no such program: {_advice()}"
        )
    missing = _missing(result, path)
    if missing:
        raise UnsupportedError(
            f"Spark's workers run {result}, which has no module {missing}: Spark would say "
            "DATA_SOURCE_NOT_FOUND for the format "
            f"lance. {_advice()}"
        )
    _checked.add(gateway)


def _of_workers(spark: Any) -> tuple[str, str | None]:
    """Return the interpreter that Spark looks for formats with, and its PYTHONPATH: those of the
    JVM's environment.
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
        # Spark will say what is wrong with the program.
        return ""
    lines = [line for line in answer.splitlines() if line.startswith(_ANSWER)]
    return lines[-1].removeprefix(_ANSWER).strip().partition(",")[0] if lines else ""


def _advice() -> str:
    return (
        "Set PYSPARK_PYTHON in the environment, before Spark starts, to a Python that has the "
        f"package, such as {sys.executable}, "
        "or install lance-spark there"
    )
