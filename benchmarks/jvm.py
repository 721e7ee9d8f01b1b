"""Where the time of a scan goes: in Spark's JVM, sampled by Java's flight recorder, and in the
Python workers.

    python benchmarks/jvm.py [--data DIR] [--table ints+floats] [--seconds 20]

The scan of all rows into Spark's `noop` sink is repeated for some seconds. A sample counts for the
first of the lines below that one of its frames belongs to, seen from the innermost. Needs a JDK
(`jcmd`, `jfr`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance_spark
from benchmarks import spark as bench
from benchmarks import tables

#: What frames of a sample's stack say, by parts of the names of their classes.
PARTS = {
    "waiting for Python, receiving batches": (
        "java.net.Socket", "sun.nio.ch", "java.io.DataInputStream", "java.io.BufferedInputStream",
        "arrow.vector.ipc",
    ),
    "taking values out of Arrow's vectors": (
        "ArrowColumnVector", "org.apache.arrow.", "ColumnarBatchRow", "ColumnarArray",
        "ColumnarBatch",
    ),
    "writing values into Spark's rows": ("UnsafeRowWriter", "UnsafeArrayWriter", "UnsafeWriter", "UnsafeProjection", "UnsafeRow"),
    "handing rows to the sink": ("WritingSparkTask", "NoopWriter", "DataWritingSparkTask", "WholeStageCodegen", "GeneratedIterator"),
}  # fmt: skip
TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process, its children that have ended included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(one) for one in fields[11:15]) / TICKS


def below(pid: int) -> list[int]:
    """Return the processes that a process has started, and theirs."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    children = [int(one) for one in listed]
    # The JVM starts processes from threads of its own.
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += [int(one) for one in (task / "children").read_text().split()]
    found = sorted(set(children))
    return [*found, *(one for child in found for one in below(child))]


def part_of(sample: dict[str, object]) -> str:
    """Return what a sample was doing."""
    stack: dict[str, list[dict[str, dict[str, dict[str, str]]]]] = sample["stackTrace"]  # type: ignore[assignment]
    for frame in stack["frames"]:
        name = frame["method"]["type"]["name"].replace("/", ".")
        for part, marks in PARTS.items():
            if any(mark in name for mark in marks):
                return part
    return "all else"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("demo-data/benchmarks"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--table", default="ints+floats")
    parser.add_argument("--seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    folder = tables.prepare(arguments.data, arguments.scale)[arguments.table]
    spark = bench.session()
    lance_spark.enable(spark)
    frame = spark.read.format("lance").load(str(folder / "table.lance"))
    for _ in range(3):
        bench.drain(frame)
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    workers = below(pid)
    before = [processor_seconds(one) for one in (pid, *workers)]
    with tempfile.TemporaryDirectory() as scratch:
        recording = Path(scratch) / "scan.jfr"
        start = ["JFR.start", "name=scan", "settings=profile"]
        subprocess.run(["jcmd", str(pid), *start], check=True, capture_output=True)
        begun = time.perf_counter()
        while time.perf_counter() - begun < arguments.seconds:
            bench.drain(frame)
        elapsed = time.perf_counter() - begun
        stop = ["JFR.stop", "name=scan", f"filename={recording}"]
        subprocess.run(["jcmd", str(pid), *stop], check=True, capture_output=True)
        after = [processor_seconds(one) for one in (pid, *workers)]
        events = "jdk.ExecutionSample,jdk.NativeMethodSample"
        printed = subprocess.run(
            ["jfr", "print", "--json", "--stack-depth", "64", "--events", events, str(recording)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    spark.stop()
    samples: Counter[str] = Counter()
    for event in json.loads(printed)["recording"]["events"]:
        values = event["values"]
        if "Executor task" in ((values.get("sampledThread") or {}).get("javaName") or ""):
            samples[part_of(values)] += 1
    jvm, python = after[0] - before[0], sum(after[1:]) - sum(before[1:])
    print(f"{elapsed:.1f} s, processor time: JVM {jvm:.1f} s, Python workers {python:.1f} s\n")
    total = sum(samples.values())
    rows = [[part, f"{count / total:.0%}"] for part, count in samples.most_common()]
    print(bench.table(["task threads of the JVM", "samples"], rows))


if __name__ == "__main__":
    main()
