"""SQL and pylance change the same tables: no row is lost, and no row occurs twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.soak.mixed import Clients, run_mixed


def test_sql_and_pylance_at_the_same_time(spark: Any, tmp_path: Path) -> None:
    clients = Clients(sql=3, pylance=1, maintenance=False)
    counts, wrong = run_mixed(spark, tmp_path, 5, clients)
    assert not wrong
    assert counts.total() > 5
