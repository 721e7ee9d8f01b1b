"""Executors and the driver of Spark are killed with `kill -9` while a table is changed: what was
acknowledged is there, once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.spark.kills.harness import Kills

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="needs /proc and 127.0.0.2"
)


def test_executors_and_the_driver_are_killed(tmp_path: Path) -> None:
    kills = Kills(tmp_path)
    changes = ["append:writing:executor", "update:writing:executor", "optimize:writing:executor"]
    log = kills.run(*changes, "optimize", "update:commit:driver")
    assert [log.answers.get(n) for n in range(1, 6)] == [*["done"] * 4, None], (
        log.answers,
        kills.output,
    )
    assert len(list(tmp_path.glob("killed.*"))) == 4
    # Nobody saw the update, whose manifest had no name yet.
    assert len({n for _, n in kills.rows.values()}) == 2
    kills.clean()
