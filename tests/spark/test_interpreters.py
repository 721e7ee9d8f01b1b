"""Steps of planning run with the driver's Python, and tasks with the Python of Spark's own tasks."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.spark.processes import JAVA_OPTIONS, ROOT, environment

SUBMIT = Path(sys.executable).with_name("spark-submit")
pytestmark = pytest.mark.skipif(not SUBMIT.exists(), reason=f"no spark-submit beside {SUBMIT}")

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import lance_spark

spark = SparkSession.builder.getOrCreate()
lance_spark.enable(spark, root=sys.argv[1])
spark.range(10).repartition(2).writeTo("lance.t").create()
spark.sql("UPDATE lance.t SET id = id + 10 WHERE id > 7")
print("sum", spark.sql("SELECT sum(id * id) FROM lance.t").collect()[0][0])
changes = spark.readStream.format("lance").load(f"{sys.argv[1]}/t.lance")
writer = changes.writeStream.format("lance").option("checkpointLocation", f"{sys.argv[1]}/c")
writer.trigger(availableNow=True).start(f"{sys.argv[1]}/copy.lance").awaitTermination()
spark.sql("OPTIMIZE lance.t")
print("copied", spark.read.format("lance").load(f"{sys.argv[1]}/copy.lance").count())
"""
TOTAL = sum(i * i for i in (*range(8), 18, 19))


def interpreter(folder: Path, name: str, given: str = "", python: str = sys.executable) -> Path:
    """Return a program that runs an interpreter after other commands, and logs its arguments."""
    path = folder / name
    path.write_text(
        f'#!/bin/sh\n{given}\necho "$@" >> {folder}/{name}.log\nexec {python} "$@"\n',
        encoding="utf-8",
    )
    path.chmod(0o755)
    return path


def submit(folder: Path, *options: str, **variables: str) -> str:
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.shuffle.partitions": "1",
    }
    confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    ran = subprocess.run(
        [str(SUBMIT), "--master", "local[2]", *confs, *options, str(program), str(folder / "lake")],
        cwd=folder,
        env=environment(SPARK_LOCAL_DIRS=str(folder / "local")) | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-6000:]
    return ran.stdout


@pytest.mark.parametrize("given", ["variables", "settings"])
def test_tasks_have_another_interpreter_than_the_driver(tmp_path: Path, given: str) -> None:
    driver, tasks = interpreter(tmp_path, "driver"), interpreter(tmp_path, "tasks")
    options: list[str] = []
    variables = {"PYSPARK_DRIVER_PYTHON": str(driver), "PYSPARK_PYTHON": str(tasks)}
    if given == "settings":
        options = ["--conf", f"spark.pyspark.driver.python={driver}"]
        options += ["--conf", f"spark.pyspark.python={tasks}"]
        variables = {"PYSPARK_PYTHON": "/nowhere/python"}
    assert f"sum {TOTAL}\ncopied 10" in submit(tmp_path, *options, **variables)
    of_driver, of_tasks = (
        (tmp_path / f"{name}.log").read_text().splitlines() for name in ("driver", "tasks")
    )
    assert "-m pyspark.daemon pyspark_lance.worker" in of_driver
    assert not [line for line in of_driver if line.endswith("pyspark.worker")]
    assert "-m pyspark.daemon pyspark.worker" in of_tasks
    assert {line for line in of_tasks if line.startswith("-m")} == {
        "-m pyspark.daemon pyspark.worker"
    }


def test_a_zip_of_the_package_reaches_all_processes(tmp_path: Path) -> None:
    package = tmp_path / "package.zip"
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("lance_spark", "pyspark_lance"):
            for path in (ROOT / name).rglob("*"):
                if path.suffix != ".pyc":
                    archive.write(path, path.relative_to(ROOT))
    # Python reads no .pth files of folders on PYTHONPATH: the checkout is not installed there.
    libraries = Path(str(getattr(find_spec("numpy"), "origin", ""))).parents[1]
    python = interpreter(
        tmp_path,
        "python",
        f'export PYTHONPATH="$PYTHONPATH:{libraries}"',
        str(getattr(sys, "_base_executable", sys.executable)),
    )
    output = submit(tmp_path, "--py-files", str(package), PYTHONPATH="", PYSPARK_PYTHON=str(python))
    assert f"sum {TOTAL}\ncopied 10" in output
