"""`enable` says what to set where Spark's workers run a Python without this package."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from lance_spark.errors import UnsupportedError
from lance_spark.spark.pushdown import enable
from tests.support.spark.processes import ROOT, environment

JOB = """
from pyspark.sql import SparkSession
import lance_spark
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
try:
    lance_spark.enable(spark)
except lance_spark.errors.UnsupportedError as error:
    print("said:", error)
"""


def test_a_worker_without_the_package_is_reported(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    bare = tmp_path / "bare" / "bin" / "python"
    made = {**environment(), "PYSPARK_PYTHON": str(bare)}
    # The job itself has the package, and its workers do not look where it has it from.
    del made["PYTHONPATH"]
    script = tmp_path / "job.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{JOB}")
    run = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=made,
        capture_output=True,
        text=True,
        check=True,
    )
    (said,) = [line for line in run.stdout.splitlines() if line.startswith("said:")]
    assert str(bare) in said
    assert "DATA_SOURCE_NOT_FOUND" in said
    assert (
        "Set PYSPARK_PYTHON in the environment, before Spark starts, to a Python that has the "
        f"package, such as {sys.executable}" in said
    )


def test_the_worker_python_is_checked_once(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[object] = []
    original = subprocess.run

    def run(*given: Any, **options: Any) -> Any:
        runs.append(given)
        return original(*given, **options)

    monkeypatch.setattr(enable.subprocess, "run", run)
    enable._checked.discard(spark.sparkContext._gateway)
    for _ in range(3):
        enable.check_worker_python(spark)
    assert len(runs) == 1


def test_a_missing_program_is_reported(
    spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "python")
    monkeypatch.setattr(enable, "_worker_python", lambda spark: (nowhere, os.defpath))
    enable._checked.discard(spark.sparkContext._gateway)
    with pytest.raises(UnsupportedError, match="PYSPARK_PYTHON"):
        enable.check_worker_python(spark)
