"""Random nested tables on a cluster, and by a client of Spark Connect: `make test-long`; its name
keeps it out of `make test`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.spark.processes import ROOT
from tests.support.spark.random_tables import REMOTE

TABLES = 1_000


@pytest.mark.parametrize("session", ["local-cluster[2,1,1024]", REMOTE])
def test_random_tables(session: str) -> None:
    module = "tests.support.spark.random_tables"
    command = [sys.executable, "-m", module, session, "0", str(TABLES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    assert int(done.stdout.split()[-1]) > TABLES // 4
