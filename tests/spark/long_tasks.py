"""Ten thousand tasks that return columns, and tasks that end in other ways, leave no memory:
`make test-long`; its name keeps it out of `make test`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import lance_spark
from tests.support.settled import settled
from tests.support.spark.processes import ROOT, WORKERS

PARTITIONS = 1_000
ROUNDS = 10
#: Rows of a partition; a batch of the stopped queries has more bytes than a socket buffers.
ROWS = 400


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(WORKERS), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    session = (
        SparkSession.builder.master("local[2, 4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(tmp_path_factory.mktemp("local")))
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "50ms")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.quantile", "0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    lance_spark.enable(session)
    session.conf.set("spark.lance.pushdown.local", "false")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = str(tmp_path_factory.mktemp("tasks") / "t.lance")
    ids = np.arange(PARTITIONS * ROWS)
    words = pa.array([f"word {number % 90}" for number in ids])
    texts = pa.array([f"{number:08}" * 20 for number in ids])
    rows = pa.table({"id": ids, "word": words, "text": texts})
    lance.write_dataset(rows, path, max_rows_per_file=ROWS * 50)
    return spark.read.format("lance").option("target_rows_per_partition", ROWS).load(path)


def allocated(spark: Any) -> int:
    """Return the bytes of Arrow's allocator, once they are none or have not been for 30 seconds."""
    allocator = spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()
    return settled(allocator.getAllocatedMemory, 0)


def heap_mib(spark: Any) -> int:
    spark._jvm.System.gc()
    runtime = spark._jvm.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory()) >> 20


def workers(spark: Any) -> dict[int, int]:
    """Return the anonymous memory of the JVM's Python workers in MiB, by process id."""
    memory = {}
    for process in spark._jvm.java.lang.ProcessHandle.current().descendants().toArray():
        folder = Path("/proc", str(process.pid()))
        try:
            command = (folder / "cmdline").read_bytes()
            lines = dict(
                line.split(":", 1) for line in (folder / "status").read_text().splitlines()
            )
        except OSError:
            continue
        if b"pyspark.daemon\0pyspark.worker" in command:
            memory[process.pid()] = int(lines["RssAnon"].split()[0]) >> 10
    return memory


def run(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def test_ten_thousand_tasks(spark: Any, table: Any) -> None:
    assert table.rdd.getNumPartitions() >= PARTITIONS
    # After some rounds, the workers load numba.
    for _ in range(4):
        run(table)
    heap, memory = heap_mib(spark), max(workers(spark).values())
    for _ in range(ROUNDS):
        run(table)
    assert allocated(spark) == 0
    assert heap_mib(spark) < heap + 32
    assert max(workers(spark).values()) < memory + 32


def stopped_by_limit(spark: Any, table: Any) -> None:
    assert len(table.where("length(text) > 3").limit(5).collect()) == 5


def failing(spark: Any, table: Any) -> None:
    def fails(number: int) -> int:
        raise ValueError(number)

    with pytest.raises(Exception, match="ValueError"):
        run(table.select(sf.udf(fails, "long")("id"), "text"))


def cancelled(spark: Any, table: Any) -> None:
    context, done = spark.sparkContext, threading.Event()

    def cancel() -> None:
        while not done.wait(0.5):
            context.cancelJobGroup("cancelled")

    context.setJobGroup("cancelled", "cancelled", interruptOnCancel=True)
    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        with pytest.raises(Exception, match="cancelled"):
            run(table)
    finally:
        done.set()
        canceller.join()
        context.setLocalProperty("spark.jobGroup.id", None)


def with_killed_workers(spark: Any, table: Any) -> None:
    def kill() -> None:
        for _ in range(2):
            time.sleep(0.3)
            # The daemon, which has the least id, starts them again.
            for worker in sorted(workers(spark))[1:]:
                os.kill(worker, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        assert table.select("id", "text").where("length(text) > 3").groupBy().count().first()[0]
    finally:
        killer.join()


@pytest.mark.parametrize(
    "end", [stopped_by_limit, failing, cancelled, with_killed_workers], ids=lambda end: end.__name__
)
def test_tasks_that_end_early(spark: Any, table: Any, end: Callable[[Any, Any], None]) -> None:
    end(spark, table)
    heap = heap_mib(spark)
    for _ in range(4):
        end(spark, table)
    assert allocated(spark) == 0
    assert heap_mib(spark) < heap + 32
    # Later queries are not harmed.
    assert table.groupBy().sum("id").first()[0] == sum(range(PARTITIONS * ROWS))
