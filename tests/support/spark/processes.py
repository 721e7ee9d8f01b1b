"""The environment of processes that start a Spark: the home of Spark, variables, and options of Java."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: A folder on the path of the Python processes of the session that tests share.
WORKERS = Path(__file__).with_name("workers")
#: A JVM that lives for some tests needs less processor time without its second compiler, and with a
#: garbage collector of one thread.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def make_home(home: Path) -> Path:
    """Make a home of Spark that consists of links into the installed pyspark; return it.

    Spark puts `python/lib/pyspark.zip` first on the path of each Python process that it starts, and
    Python compiles the modules of an archive again in each of them. Here the archives are folders,
    whose modules are compiled once: a process starts in a quarter of the time. Executors write
    their logs into the home, which keeps them out of the installed package.
    """
    import py4j
    import pyspark

    installed = Path(pyspark.__file__).parent
    home.mkdir(parents=True)
    for name in ("bin", "jars"):
        (home / name).symlink_to(installed / name)
    packages = {"pyspark": installed, "py4j": Path(py4j.__file__).parent}
    for archive in (installed / "python" / "lib").glob("*.zip"):
        package = archive.name.split("-")[0].removesuffix(".zip")
        folder = home / "python" / "lib" / archive.name
        folder.mkdir(parents=True)
        (folder / package).symlink_to(packages[package])
    return home


@functools.cache
def shared_home() -> Path:
    """Return the home of Spark that processes share which keep no logs."""
    import pyspark

    key = zlib.crc32(pyspark.__file__.encode())
    home = ROOT / "build" / f"spark-{pyspark.__version__}-{key:08x}"
    if not home.exists():
        home.parent.mkdir(exist_ok=True)
        made = make_home(Path(tempfile.mkdtemp(dir=home.parent)) / "home")
        try:
            made.rename(home)
        except OSError:
            # Another process was faster.
            shutil.rmtree(made)
        made.parent.rmdir()
    return home


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a process that uses this checkout and this interpreter, and more."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **more}
    variables.setdefault("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)
    if "SPARK_HOME" not in more:
        variables["SPARK_HOME"] = str(shared_home())
    for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        variables.pop(name, None)
    return variables
