"""The memory of a mutation is bounded by a window of rows, and does not grow with the fragment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

ROWS = 8_000_000
#: Bytes of an offset for each row, as an array, twice over.
LIMIT = 2 * 8 * ROWS

CHANGE = """
import sys, threading
import pyarrow.compute as pc
import lance_spark

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024

def change(path):
    dataset = lance_spark.open_dataset(path)
    if sys.argv[1] == "delete":
        dataset.delete([("bucket", "<", 900)])
    elif sys.argv[1] == "update":
        dataset.update({"bucket": lambda rows: pc.add(rows["bucket"], 1)}, mode="columns")
    else:
        dataset.add_columns({"more": lambda rows: pc.add(rows["bucket"], 1)})

change(sys.argv[2])
before, highest, stop = anonymous(), [0], threading.Event()

def watch():
    while not stop.wait(0.002):
        highest[0] = max(highest[0], anonymous())

thread = threading.Thread(target=watch)
thread.start()
change(sys.argv[3])
stop.set()
thread.join()
print(highest[0] - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells it there")
@pytest.mark.parametrize("change", ["delete", "update", "add_columns"])
def test_memory_does_not_grow_with_the_fragment(tmp_path: Path, change: str) -> None:
    rng = np.random.default_rng(1)
    for name, rows in (("small", 1_000), ("large", ROWS)):
        table = pa.table({"bucket": rng.integers(0, 1_000, rows).astype(np.int32)})
        lance.write_dataset(table, str(tmp_path / name), max_rows_per_file=rows)
    paths = [str(tmp_path / "small"), str(tmp_path / "large")]
    command = [sys.executable, "-c", CHANGE, change, *paths]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert int(done.stdout) < LIMIT
