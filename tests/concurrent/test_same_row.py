"""Processes change the same row at the same time: the row stays one row, and has every change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lance
import pytest

import lance_spark
from tests.concurrent.writers import rows

WRITERS = 3
UPDATES = 4
ROW = 2

UPDATER = """
import sys
import pyarrow.compute as pc
import lance_spark

path, row, updates = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(updates):
    lance_spark.open_dataset(path).update(
        {"value": lambda batch: pc.add(batch["value"], 1)},
        [("id", "==", row)],
        conflict_retries=100,
    )
"""


def run(path: Path) -> None:
    """Start processes, and let them begin at the same time."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", UPDATER, str(path), str(ROW), str(UPDATES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for _ in range(WRITERS)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors[-3000:]
    finally:
        for process in processes:
            process.kill()


@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_one_row_gets_every_update(tmp_path: Path, stable_row_ids: bool) -> None:
    path = tmp_path / "table"
    lance.write_dataset(rows([1, 2, 3]), str(path), enable_stable_row_ids=stable_row_ids)
    run(path)
    theirs = lance.dataset(str(path))
    theirs.validate()
    changed = {"id": ROW, "value": ROW + WRITERS * UPDATES}
    expected = [{"id": 1, "value": 1}, changed, {"id": 3, "value": 3}]
    for table in (theirs.to_table(), lance_spark.open_dataset(str(path)).to_table()):
        assert sorted(table.to_pylist(), key=lambda row: row["id"]) == expected
