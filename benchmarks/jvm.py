"""The parts of a scan's processor time: samples of Spark's JVM by Java's flight recorder, and the
time of the Python workers.

    python benchmarks/jvm.py [--data DIR] [--table ints+floats] [--seconds 20]

The benchmark repeats a scan of all rows into Spark's `noop` sink for some seconds. `PARTS` assigns
classes to parts of the scan. A sample counts for the part of its innermost frame that has a part.
The benchmark needs the commands `jcmd` and `jfr` of a JDK.
"""

from __future__ import annotations

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
from benchmarks import report, tables
from benchmarks import spark as bench

#: For each part of a scan, parts of the names of its classes.
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
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS_PER_SECOND


def descendants(pid: int) -> list[int]:
    """Return the children of a process, and the descendants of each child."""
    # Linux lists children by the thread that started them.
    children = {
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    }
    return [*sorted(children), *(pid for child in sorted(children) for pid in descendants(child))]


def part_of(sample: dict[str, object]) -> str:
    """Return the part of a scan that a sample belongs to."""
    stack: dict[str, list[dict[str, dict[str, dict[str, str]]]]] = sample["stackTrace"]  # type: ignore[assignment]
    for frame in stack["frames"]:
        name = frame["method"]["type"]["name"].replace("/", ".")
        for part, class_names in PARTS.items():
            if any(class_name in name for class_name in class_names):
                return part
    return "all else"


def main() -> None:
    parser = report.argument_parser(__doc__, rounds=None)
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
    workers = descendants(pid)
    before = [processor_seconds(process) for process in (pid, *workers)]
    with tempfile.TemporaryDirectory() as folder_name:
        recording = Path(folder_name) / "scan.jfr"
        start = ["JFR.start", "name=scan", "settings=profile"]
        subprocess.run(["jcmd", str(pid), *start], check=True, capture_output=True)
        started = time.perf_counter()
        while time.perf_counter() - started < arguments.seconds:
            bench.drain(frame)
        elapsed = time.perf_counter() - started
        stop = ["JFR.stop", "name=scan", f"filename={recording}"]
        subprocess.run(["jcmd", str(pid), *stop], check=True, capture_output=True)
        after = [processor_seconds(process) for process in (pid, *workers)]
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
    print(report.table(["task threads of the JVM", "samples"], rows))


if __name__ == "__main__":
    main()
