"""The example of spark-submit, run as its text says on a cluster of processes. `make test` runs it
with the other examples (`tests/test_examples.py`), and spark-submit in `test_cluster`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cells import ALL_CELLS
from tests.support.spark.processes import JAVA_OPTIONS, ROOT, environment, make_home
from tests.test_examples import check_spark_submit

SUBMIT = Path(sys.executable).with_name("spark-submit")


@pytest.mark.skipif(not ALL_CELLS, reason="make test runs the example with the other examples")
@pytest.mark.skipif(not SUBMIT.exists(), reason=f"no spark-submit beside {sys.executable}")
def test_the_example_runs(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home")
    homes = {"SPARK_HOME": str(home), "SPARK_LOCAL_DIRS": str(tmp_path / "local")}
    command = [
        str(SUBMIT),
        *("--master", "local-cluster[2,1,1024]"),
        *("--properties-file", "spark-conf/spark-defaults.conf"),
        *("--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.driver.host=localhost"),
        *("--conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}"),
        *("--conf", f"spark.executor.extraJavaOptions={JAVA_OPTIONS}"),
        "examples/spark_submit.py",
        str(tmp_path),
    ]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(**homes),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    executors = {path.parent.name for path in home.glob("work/*/*/stderr")}
    assert len(executors) == 2
    check_spark_submit(ran.stdout, tmp_path)
