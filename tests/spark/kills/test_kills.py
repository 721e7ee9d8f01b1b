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
    changes = ["append:writing:executor", "update:writing:executor", "optimize:writing:executor"]
    statements = ["sql_merge:writing:executor", "sql_update:committed:planner"]
    log = kills.run(*changes, "optimize", *statements, "update:commit:driver")
    assert [log.answers.get(n) for n in range(1, 8)] == [*["done"] * 5, None, None], (
        log.answers,
        kills.output,
    )
    assert len(list(tmp_path.glob("killed.*"))) == 6
    # The update by SQL has a version, although it was not acknowledged. The last change has none:
    # its manifest did not have its name yet.
    assert {n for _, n in kills.rows.values()} == {0, 1, 2, 10, 12}
    kills.clean()
