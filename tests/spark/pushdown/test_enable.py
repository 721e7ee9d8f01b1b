"""`python -m lance_spark conf`: a jar and a fragment of configuration that enable push-down in
every session; and the check of the Python of Spark's workers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lance_spark import __version__
from lance_spark.errors import UnsupportedError
from lance_spark.spark.jvm import enable
from lance_spark.spark.jvm.classes import extension_class, write_jar
from tests.support.spark.processes import ROOT, environment

ENABLE = """
from pyspark.sql import SparkSession
import lance_spark
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
try:
    lance_spark.enable(spark)
except lance_spark.errors.UnsupportedError as error:
    print("said:", error)
"""


def run(*command: str) -> str:
    ran = subprocess.run(
        [sys.executable, *command], env=environment(), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


def test_conf_turns_push_down_on(tmp_path: Path) -> None:
    output = run("-m", "lance_spark", "conf", str(tmp_path / "made"))
    jar = tmp_path / "made" / f"lance-spark-rule-{__version__}.jar"
    fragment = tmp_path / "made" / "lance-spark-defaults.conf"
    assert sorted(path.name for path in jar.parent.iterdir()) == [fragment.name, jar.name]
    assert str(jar) in output
    assert str(fragment) in output
    assert re.search(
        r"spark\.sql\.extensions +your\.Extension,org\.lancespark\.Extension\n", output
    )
    assert jar.stat().st_size < 420_000
    with zipfile.ZipFile(jar) as opened:
        assert "org/lancespark/Extension.class" in opened.namelist()
    write_jar(tmp_path / "again.jar")
    assert (tmp_path / "again.jar").read_bytes() == jar.read_bytes()
    settings = dict(
        line.split() for line in fragment.read_text().splitlines() if line[:6] == "spark."
    )
    assert settings["spark.sql.redaction.options.regex"] == enable.REDACTION_FOR_CLUSTERS


def test_an_impossible_folder_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = subprocess.run(
        [sys.executable, "-m", "lance_spark", "conf", str(tmp_path / "file" / "below")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("lance_spark: ")
    assert "Traceback" not in ran.stderr


def test_a_worker_without_the_package_is_reported(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    bare = tmp_path / "bare" / "bin" / "python"
    made = {**environment(), "PYSPARK_PYTHON": str(bare)}
    # The job has the package on a path that its workers do not have.
    del made["PYTHONPATH"]
    script = tmp_path / "job.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{ENABLE}")
    run = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=made,
        capture_output=True,
        text=True,
        check=True,
    )
    (line_said,) = [line for line in run.stdout.splitlines() if line.startswith("said:")]
    assert str(bare) in line_said
    assert "DATA_SOURCE_NOT_FOUND" in line_said
    assert (
        "Set PYSPARK_PYTHON in the environment, before Spark starts, to a Python that has the "
        f"package, such as {sys.executable}" in line_said
    )
    # In a checkout any Python finds the modules, but not what they need.
    assert enable._missing_module(str(bare), str(ROOT)) == "pyarrow"


def test_the_worker_python_is_checked_once(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[object] = []
    original = subprocess.run

    def run(*arguments: Any, **options: Any) -> Any:
        runs.append(arguments)
        return original(*arguments, **options)

    monkeypatch.setattr(enable.subprocess, "run", run)
    enable._checked.discard(spark.sparkContext._gateway)
    for _ in range(3):
        enable.check_worker_python(spark, extension_class(spark))
    assert len(runs) == 1


def test_a_missing_program_is_reported(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "python")
    monkeypatch.setattr(enable, "_worker_pythons", lambda *_: ([nowhere], os.defpath))
    enable._checked.discard(spark.sparkContext._gateway)
    with pytest.raises(UnsupportedError, match="PYSPARK_PYTHON"):
        enable.check_worker_python(spark, None)
