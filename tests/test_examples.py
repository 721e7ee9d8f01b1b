"""The examples that need no Spark run as they stand, and leave tables behind that pylance reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lance

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_tables(tmp_path: Path) -> None:
    program = EXAMPLES / "tables.py"
    run = subprocess.run(
        [sys.executable, program, tmp_path], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "on the branch 980 rows, on main 1470" in run.stdout
    assert "compaction: 7 fragments became 1" in run.stdout
    table = lance.dataset(str(tmp_path / "orders.lance"))
    table.validate()
    assert table.count_rows() == 1470
    assert table.count_rows("amount < 3.0") == table.count_rows("amount = 0.0") > 0
    assert list(table.tags.list()) == ["before-the-audit"]
    assert table.checkout_version(("trial", None)).count_rows() == 980
