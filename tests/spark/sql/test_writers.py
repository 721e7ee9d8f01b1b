"""SQL and pylance write one table: no row is lost, and no row occurs twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.soak.statements import run_statements


def test_sql_and_pylance_at_the_same_time(spark: Any, tmp_path: Path) -> None:
    counts, wrong = run_statements(spark, tmp_path, 5, writers=3, pylance_writers=1)
    assert not wrong
    assert counts.total() > 5
