"""The cost of starting: the first statements of a new process, beside Parquet, and reads of ten
rows.

    python benchmarks/start.py [--rounds 3] [--only cold|warm]

"cold" starts a process for each format, in turns, and shows the least seconds of each statement
after the start of Spark, and of the second statement of its kind. Processor time is that of the
process, of Spark's JVM and of all Python processes together: it depends less on what else runs. The
first process of a user compiles Java classes, so it is run before and not measured.

"warm" opens a new DataFrame of ten rows and collects them, in a session that has done so before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import pyarrow as pa

import lance_spark
from benchmarks import report
from benchmarks import spark as bench
from benchmarks.measuring import ROOT, median_seconds, processes_below, processor_seconds

ROWS = 100_000
FORMATS = ("parquet", "lance")
#: An option of the process that runs the statements of a format in a folder, and writes JSON.
CHILD = "--statements"


def used() -> float:
    """Return the processor time of this process and of those below it."""
    return sum(map(processor_seconds, (os.getpid(), *processes_below(os.getpid()))))


def run_statements(name: str, folder: str) -> dict[str, Any]:
    """Run the statements of a format in this process.

    Returns
    -------
    dict
        Seconds and processor time of each statement, and the number of Python processes.
    """
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    table = f"{folder}/t.{name}"
    rows = spark.range(ROWS).selectExpr(
        "id",
        "id * 0.5 AS x",
        "concat('name ', id) AS s",
        "array(float(id % 10), float(1)) AS vector",
    )
    results: dict[str, list[float]] = {}

    def measure(statement: str, action: Callable[[], object]) -> None:
        begun, before = time.perf_counter(), used()
        action()
        results[statement] = [time.perf_counter() - begun, used() - before]

    def read() -> object:
        frame = spark.read.format(name).load(table)
        return frame.selectExpr("sum(id)", "sum(x)", "max(s)").collect()

    def write() -> object:
        writer = rows.write.format(name).mode("overwrite")
        if name == "lance":
            writer = writer.option("vector.arrow.fixed-size-list.size", 2)
        return writer.save(table)

    statements: dict[str, Callable[[], object]] = {"write": write, "read": read}
    if name == "lance":
        spark.range(100).selectExpr("id * 2000 AS id", "1.0 AS x").createOrReplaceTempView("source")
        merge = f"""MERGE INTO lance.`{table}` t USING source s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET x = s.x
            WHEN NOT MATCHED THEN INSERT (id, x, s, vector)
                VALUES (s.id, s.x, 'new', array(float(0), float(1)))"""
        search = f"SELECT id FROM lance_vector_search('{table}', array(1.0, 1.0), 5)"
        index = f"ALTER TABLE lance.`{table}` CREATE INDEX ids USING btree (id)"
        statements |= {
            "MERGE": lambda: spark.sql(merge),
            "search": lambda: spark.sql(search).collect(),
            "index": lambda: spark.sql(index),
        }
        measure("enable", lambda: lance_spark.enable(spark))
    for statement, action in statements.items():
        measure(f"first {statement}", action)
        if statement == "read":
            processes = len(python_processes())
    for statement, action in statements.items():
        if statement != "index":
            measure(f"second {statement}", action)
    spark.stop()
    return {"statements": results, "processes": processes}


def python_processes() -> list[int]:
    """Return the processes below this one that Spark has started for Python."""
    return [process for process in processes_below(os.getpid()) if b"pyspark" in command(process)]


def command(process: int) -> bytes:
    """Return the command line of a process that is not the JVM."""
    try:
        line = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
    return b"" if b"java" in line.split(b"\0")[0] else line


def cold(rounds: int) -> str:
    """Return a table of the least times of each statement in new processes."""
    best: dict[str, dict[str, list[float]]] = {name: {} for name in FORMATS}
    processes: dict[str, int] = {}
    for number in range(rounds + 1):
        for name in FORMATS:
            with tempfile.TemporaryDirectory() as folder:
                ran = subprocess.run(
                    [sys.executable, __file__, CHILD, name, folder],
                    env={
                        **os.environ,
                        "PYSPARK_PYTHON": sys.executable,
                        "PYTHONPATH": str(ROOT),
                    },
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    check=True,
                )
            answer = json.loads(ran.stdout.splitlines()[-1])
            processes[name] = answer["processes"]
            for statement, times in answer["statements"].items() if number else ():
                least = best[name].setdefault(statement, times)
                best[name][statement] = [min(pair) for pair in zip(least, times, strict=True)]
    job = ("enable", "first write", "first read")
    for times_of in best.values():
        parts = [times_of[statement] for statement in job if statement in times_of]
        times_of["cold job"] = [sum(column) for column in zip(*parts, strict=True)]
    lines = []
    for statement in ("cold job", *job, *best["lance"]):
        if statement not in [line[0] for line in lines]:
            cells = [best[name].get(statement) for name in FORMATS]
            lines.append([statement, *(text for pair in cells for text in texts(pair))])
    lines.append(["Python processes", *(f"{processes[n]}" if i else "" for n in FORMATS for i in (1, 0))])  # fmt: skip
    header = [f"{name}, {unit}" for name in FORMATS for unit in ("s", "processor s")]
    return report.table([f"{ROWS:,} rows", *header], lines)


def texts(times: list[float] | None) -> list[str]:
    """Return the cells of a statement."""
    return [f"{seconds:.2f}" for seconds in times] if times else ["", ""]


def warm(rounds: int) -> str:
    """Return a table of reads of ten rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "ten.lance")
        lance_spark.write_dataset(pa.table({"id": list(range(10))}), path)
        spark = bench.session()
        lance_spark.enable(spark)

        def read(pushdown: bool, local: bool) -> None:
            spark.conf.set("spark.lance.pushdown.enabled", str(pushdown).lower())
            spark.conf.set("spark.lance.pushdown.local", str(local).lower())
            spark.read.format("lance").load(path).collect()

        seconds = median_seconds(
            {
                "read while it is planned": lambda: read(True, True),
                "read by a task": lambda: read(True, False),
                "without push-down": lambda: read(False, False),
                "nothing": lambda: spark.read.format("nothing").load().collect(),
            },
            5 * rounds,
        )
        spark.stop()
    least = seconds["nothing"]
    header = ["ten rows", "seconds", "times a source that does nothing"]
    lines = [[name, f"{median:.3f}", f"{median / least:.2f}"] for name, median in seconds.items()]
    return report.table(header, lines)


def main() -> None:
    parser = report.argument_parser(__doc__, data=None, scale=False, rounds=3)
    parser.add_argument("--only", choices=["cold", "warm"])
    parser.add_argument(CHILD, nargs=2, metavar=("FORMAT", "FOLDER"))
    arguments = parser.parse_args()
    if arguments.statements:
        print(json.dumps(run_statements(*arguments.statements)))
        return
    tables = {"cold": cold, "warm": warm}
    for name in [arguments.only] if arguments.only else tables:
        print(tables[name](arguments.rounds), end="\n\n")


if __name__ == "__main__":
    main()
