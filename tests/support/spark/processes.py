"""The environment of processes that start Spark: the home of Spark, variables, and options of
Java.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lance_spark.spark.jvm.classes import class_jar
from lance_spark.spark.jvm.shims.pyspark_names import bare_jvm

ROOT = Path(__file__).parents[3]
#: A folder on the path of the Python processes of the shared session.
WORKERS = Path(__file__).with_name("workers")
#: The folder of the installed pyspark, the home of Spark that tests share, and its archive of classes.
PYSPARK = Path(str(getattr(find_spec("pyspark"), "origin", ""))).parent
_KEY = f"spark-{version('pyspark')}-{zlib.crc32(os.fsencode(PYSPARK)):08x}"
HOME = ROOT / "build" / _KEY
CLASSES = HOME / "classes.jsa"
#: The folder in which the tests' sessions keep compiled classes.
CLASS_CACHE = ROOT / "build" / "compiled"
#: A JVM that lives for a few tests needs less processor time without its second compiler, with a
#: garbage collector of one thread, without a search for compiled methods to drop, and with classes
#: that are already parsed and verified.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:-UseCodeCacheFlushing -XX:ReservedCodeCacheSize=240m"
)
#: Spark's scripts read what Java prints: it must not print that it cannot use the archive.
JAVA_OPTIONS = f"{SHORT_LIVED} -XX:SharedArchiveFile={CLASSES} -Xlog:disable"
if " " in str(CLASSES):
    JAVA_OPTIONS = SHORT_LIVED
#: Uses most classes that a test of a Python data source uses, and waits until Java has written
#: them.
USE_CLASSES = """
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "localhost")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", sys.argv[1])
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", sys.argv[2] + "/warehouse")
    .config("spark.local.dir", sys.argv[2] + "/local")
    .getOrCreate()
)
table = sys.argv[2] + "/t.lance"
rows = spark.range(1000).selectExpr("id", "id % 7 g", "cast(id as string) s")
rows.write.format("lance").mode("append").save(table)
frame = spark.read.format("lance").load(table)
frame.where("g > 2").groupBy("g").agg({"id": "sum"}).orderBy("g").collect()
frame.join(rows, "id").count()
java = spark.sparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait(60)
"""


def make_home(home: Path) -> Path:
    """Make a home of Spark that consists of links into the installed pyspark; return it.

    Spark puts `python/lib/pyspark.zip` first on the path of each Python process that it starts, and
    Python compiles the modules of an archive again in each of them. Here the archives are folders,
    whose modules are compiled once: a process starts in a quarter of the time. Executors write
    their logs into the home, which keeps them out of the installed package.
    """
    packages = {
        "pyspark": PYSPARK,
        "py4j": Path(str(getattr(find_spec("py4j"), "origin", ""))).parent,
    }
    home.mkdir(parents=True)
    for name in ("bin", "jars"):
        (home / name).symlink_to(PYSPARK / name)
    for archive in (PYSPARK / "python" / "lib").glob("*.zip"):
        package = archive.name.split("-")[0].removesuffix(".zip")
        folder = home / "python" / "lib" / archive.name
        folder.mkdir(parents=True)
        (folder / package).symlink_to(packages[package])
    return home


@functools.cache
def shared_home() -> Path:
    """Return the home of Spark for processes that keep no logs. It is made once for a checkout."""
    if not HOME.exists():
        HOME.parent.mkdir(exist_ok=True)
        new_home = make_home(Path(tempfile.mkdtemp(dir=HOME.parent)) / "home")
        try:
            new_home.rename(HOME)
        except OSError:
            # Another process was faster.
            shutil.rmtree(new_home)
        else:
            archive_classes()
        new_home.parent.rmdir()
    return HOME


def archive_classes() -> None:
    """Let Java write the classes of a short job to the archive: without it, processes start
    slower.
    """
    with (
        tempfile.TemporaryDirectory(dir=HOME.parent) as folder,
        suppress(OSError, subprocess.SubprocessError),
    ):
        archive = Path(folder) / CLASSES.name
        options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
        subprocess.run(
            [sys.executable, "-c", USE_CLASSES, options, folder],
            env=environment(SPARK_HOME=str(HOME), JAVA_TOOL_OPTIONS=SHORT_LIVED),
            capture_output=True,
            timeout=300,
            check=True,
        )
        archive.rename(CLASSES)


def write_kept_jar(path: Path) -> None:
    """Write what `write_jar` writes: the classes are compiled once for a checkout, not each time."""
    with bare_jvm() as jvm:
        loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
        path.write_bytes(class_jar(jvm, loader, CLASS_CACHE))


def environment(**more_variables: str) -> dict[str, str]:
    """Return the variables of a process that uses this checkout and this interpreter, and further
    variables.
    """
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        **more_variables,
    }
    variables.setdefault("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)
    variables.setdefault("LANCE_SPARK_CLASS_CACHE", str(CLASS_CACHE))
    if "SPARK_HOME" not in more_variables:
        variables["SPARK_HOME"] = str(shared_home())
    for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        variables.pop(name, None)
    return variables


def logged_session(log: str) -> Any:
    """Start a session of one core, with short-lived Java, that writes its event log into a
    folder.
    """
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
        .config("spark.driver.host", "localhost")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", f"file://{log}")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("INFO")
    return spark
