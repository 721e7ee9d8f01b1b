"""Reading large blobs takes the memory of a few values, for any number of values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lance
import pytest

ROOT = Path(__file__).parents[3]
VALUE, COUNT = 5 << 20, 60

SCRIPT = """
import sys, threading, time
import numpy as np
import pyarrow as pa
import lance_spark
import lance_spark.scan.blob_files
import lance_spark.scan.blobs
import lance_spark.table.commit.write

path, size, count, version = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) >> 10

class Watch(threading.Thread):
    peak, done = 0, False

    def run(self):
        while not self.done:
            self.peak = max(self.peak, anonymous())
            time.sleep(0.002)

def measured(job):
    watch, before = Watch(daemon=True), anonymous()
    watch.start()
    job()
    watch.done = True
    watch.join()
    return watch.peak - before

field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
schema = pa.schema([("i", pa.int64()), field])

def batches():
    for at in range(count):
        value = np.full(size, at % 251, np.uint8)
        edges = np.array([0, size], np.int64)
        blob = pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(edges), pa.py_buffer(value)])
        yield pa.RecordBatch.from_arrays([pa.array([at], pa.int64()), blob], schema=schema)

def write():
    lance_spark.write_dataset(batches(), path, schema=schema, data_storage_version=version)

def scan():
    seen = 0
    for batch in lance_spark.open_dataset(path).to_batches(blob_handling="all_binary"):
        for at, value in zip(batch["i"].to_pylist(), batch["b"]):
            content = np.frombuffer(value.as_buffer(), np.uint8)
            assert len(content) == size and (content == at % 251).all()
            seen += 1
    assert seen == count

print(measured(write), measured(scan))
"""


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_large_values_written_and_scanned(tmp_path: Path, version: str) -> None:
    path = str(tmp_path / "t")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, path, str(VALUE), str(COUNT), version],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    written, scanned = map(int, done.stdout.split())
    assert written < 64, f"{written} MiB to write"
    assert scanned < 96, f"{scanned} MiB to scan"
    assert lance.dataset(path).count_rows() == COUNT
