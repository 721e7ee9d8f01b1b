"""Executors and the driver of Spark are killed with `kill -9` during changes of a table: each
acknowledged change is present once.
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
    changes = ["append:writing:executor", "optimize", "sql_merge:writing:executor"]
    log = kills.run(*changes, "sql_update:committed:planner", "update:commit:driver")
    assert [log.answers.get(n) for n in range(1, 6)] == [*["done"] * 3, None, None], (
        log.answers,
        kills.output,
    )
    assert len(list(tmp_path.glob("killed.*"))) == 4
    # The update by SQL has a version, although it was not acknowledged. The last change has none:
    # its manifest did not have its name yet.
    assert {n for _, n in kills.rows.values()} == {0, 1, 10, 11}
    kills.clean()
