"""2 GiB of large blobs through an executor of 512 MiB: written, read, copied and changed by `make
test-long`; its name keeps it out of `make test`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lance_spark
from lance_spark import LanceTable
from tests.spark.conftest import ROOT

VALUE, COUNT = 5 << 20, 410
#: Anonymous memory of Python workers: some batches of values, and the interpreter with its
#: libraries.
WORKER_MIB = 320
#: Memory of the executor's Java process: its heap, and other memory of Java.
JAVA_MIB = 900


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    session = (
        SparkSession.builder.master("local-cluster[1,1,512]")
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.local.dir", str(tmp_path / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    if session.conf.get("spark.sql.execution.arrow.maxBytesPerBatch", None) is None:
        # Spark 4.0 counts only rows.
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "16")
    yield session
    session.stop()


@contextmanager
def watched() -> Iterator[dict[str, int]]:
    """Record the maximum of anonymous memory, in MiB, of any Python worker and any executor below
    this process.
    """
    peaks = {"python": 0, "java": 0}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            for name, size in _descendants(os.getpid()):
                peaks[name] = max(peaks[name], size)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        done.set()
        thread.join()


def _descendants(root: int) -> Iterator[tuple[str, int]]:
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                lines = dict(
                    line.split(":", 1) for line in (folder / "status").read_text().splitlines()
                )
            except (OSError, ValueError):
                continue
            parents[int(folder.name)] = int(lines["PPid"])
            sizes[int(folder.name)] = int(lines.get("RssAnon", "0 kB").split()[0]) >> 10
    for process in parents:
        above = process
        while above in parents and above != root:
            above = parents[above]
        if above != root or process == root:
            continue
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if b"pyspark" in command and b"java" not in command:
            yield "python", sizes[process]
        elif b"CoarseGrainedExecutorBackend" in command:
            yield "java", sizes[process]


def test_a_column_that_is_larger_than_the_executor(cluster: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    blob = F.expr(f"cast(repeat(cast(id % 10 as string), {VALUE}) as binary)")
    frame = cluster.range(0, COUNT, 1, 1).select("id", blob.alias("b"))
    started = time.perf_counter()
    with watched() as writing:
        frame.write.format("lance").option("b.lance.encoding", "blob").mode("append").save(path)
    written = time.perf_counter()
    with watched() as reading:
        result = cluster.read.format("lance").load(path)
        sums = result.agg(F.sum(F.length("b")), F.count("b"), F.sum("id")).first()
    read = time.perf_counter()
    print(f"write {written - started:.0f} s {writing}, read {read - written:.0f} s {reading}")
    assert tuple(sums) == (VALUE * COUNT, COUNT, COUNT * (COUNT - 1) // 2)
    copied = str(tmp_path / "copy.lance")
    with watched() as copying:
        result.where("id < 200").write.format("lance").mode("append").save(copied)
    table = LanceTable.forPath(cluster, copied)
    with watched() as changing:
        table.add_columns({"n": F.length("b")})
        assert table.update("length(b) > 3", {"n": "n + 1"}).num_updated_rows == 200
        source = cluster.range(100, 300).toDF("k")
        merge = table.merge(source, "id = k").whenMatchedUpdate("length(b) > 3", {"n": "0"})
        assert merge.execute().num_updated_rows == 100
    print(f"copy {copying}, change {changing}")
    lance_spark.enable(cluster)
    with watched() as merging:
        # The values of both clauses travel as locators.
        rows = cluster.read.format("lance").load(path).where("id BETWEEN 100 AND 299")
        merge = table.alias("t").merge(rows.withColumn("n", F.lit(1)), "t.id = source.id")
        merged = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        assert (merged.num_updated_rows, merged.num_inserted_rows) == (100, 100)
    print(f"merge {merging}")
    assert lance.dataset(copied).count_rows("n = 1") == 200
    for peaks in (writing, reading, copying, changing, merging):
        assert 0 < peaks["python"] < WORKER_MIB, peaks
        assert 0 < peaks["java"] < JAVA_MIB, peaks
    dataset = lance.dataset(path)
    dataset.validate()
    for position, file in zip(
        (0, 7, 409), dataset.take_blobs("b", indices=[0, 7, 409]), strict=True
    ):
        assert file.read() == str(position % 10).encode() * VALUE
