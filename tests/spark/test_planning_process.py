"""The processes in which Spark plans: modules are excluded from garbage collection."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import gc, sys
from lance_spark.spark.planning_process import leave_modules_uncollected as leave
counts = []
for _ in range(2):
    leave()
    counts.append(gc.get_freeze_count())
import json.tool
leave()
print(*counts, gc.get_freeze_count())
"""


@pytest.mark.parametrize(
    "module", ["pyspark.sql.worker.plan_data_source_read", "", "pyspark.worker"]
)
def test_only_planning_processes_freeze(module: str) -> None:
    command = [sys.executable, "-c", CODE, *filter(None, [module])]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second, later = map(int, ran.stdout.split())
    if module.startswith("pyspark.sql"):
        # A second step freezes no objects, unless it loads modules.
        assert 1000 < first == second < later
    else:
        assert first == second == later == 0
