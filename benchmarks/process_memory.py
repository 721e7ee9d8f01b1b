"""The memory of Spark's processes during a scan, beside a scan of the same rows in Parquet.

    python benchmarks/process_memory.py [--data DIR] [--rows 4000000] [--heap 1g]

Each scan has a Spark session of its own, whose JVM is driver and executor. Every twentieth of a
second, the script adds up the memory of the JVM and of the Python workers of tasks. A page that
processes share counts once. Pages of the table's files that a process maps into memory are listed
apart: the system's cache has them, and takes them back when memory is short. The Python processes in which the driver plans are listed apart: they
do nothing while tasks run. Linux only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import report
from benchmarks import spark as bench
from benchmarks.measuring import processes_below

#: Columns of the table, as Spark's expressions of `id`.
COLUMNS = {
    "numbers": [f"id * {number + 3} AS n{number}" for number in range(8)],
    "strings": [
        f"concat('text ', id % 1000003, ' of column {number}') AS s{number}" for number in range(4)
    ],
    "vectors": ["transform(sequence(1, 128), i -> CAST(i + id AS FLOAT)) AS v"],
}
QUERIES = {
    "scan": "SELECT * FROM t",
    "GROUP BY": "SELECT {first} AS k, count(*) FROM t GROUP BY 1",
    "sort": "SELECT * FROM t ORDER BY {first}",
}
FIRST = {"numbers": "n0 % 1000", "strings": "substr(s0, 1, 8)", "vectors": "v[0] % 1000"}
#: Vectors are wide: a table of vectors has a fraction of the rows.
SHARE = {"numbers": 1, "strings": 1, "vectors": 8}


def session(heap: str) -> object:
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": heap,
        "spark.sql.shuffle.partitions": "4",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write(folder: Path, name: str, rows: int) -> None:
    """Write the same rows in both formats."""
    spark = session("3g")
    frame = spark.range(0, rows // SHARE[name], 1, 4).selectExpr(*COLUMNS[name])
    frame.write.parquet(str(folder / "parquet"))
    options = {"v.arrow.fixed-size-list.size": 128} if name == "vectors" else {}
    again = spark.read.parquet(str(folder / "parquet"))
    again.write.format("lance").mode("append").options(**options).save(str(folder / "lance"))
    spark.stop()


def run(folder: Path, client: str, query: str, heap: str) -> None:
    """Run a query in a session of its own."""
    spark = session(heap)
    if client == "lance":
        import lance_spark

        lance_spark.enable(spark)
    spark.read.format(client).load(str(folder / client)).createOrReplaceTempView("t")
    bench.drain(spark.sql(query))
    spark.stop()


def resident(process: int) -> Counter[str]:
    """Return the bytes of a process, with its share of pages that it shares.

    The keys are "mapped" for files of the table, and "other".
    """
    sizes: Counter[str] = Counter()
    try:
        lines = Path(f"/proc/{process}/smaps").read_text().splitlines()
    except OSError:
        return sizes
    key = "other"
    for line in lines:
        name, *values = line.split()
        if not name.endswith(":"):
            key = "mapped" if line.endswith(".lance") else "other"
        elif name == "Pss:":
            sizes[key] += int(values[0]) * 1024
    return sizes


def is_planner(process: int) -> bool:
    """Return whether the driver plans in a process: its module is not that of tasks' workers."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
    return b"pyspark.daemon\0pyspark_lance.worker" in command


def peak(command: list[str]) -> Counter[str]:
    """Run a command; return the most that the processes below it had.

    The keys are "tasks" and "mapped" of the JVM and the workers, and "planners".
    """
    most: Counter[str] = Counter()
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            now: Counter[str] = Counter()
            for number in processes_below(process.pid):
                sizes = resident(number)
                if is_planner(number):
                    now["planners"] += sizes.total()
                else:
                    now["tasks"] += sizes["other"]
                    now["mapped"] += sizes["mapped"]
            most |= now
            time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("demo-data/benchmarks"))
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--heap", default="1g")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--write", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        folder = arguments.data / f"process-memory-{arguments.write}-{arguments.rows}"
        return write(folder, arguments.write, arguments.rows)
    if arguments.run:
        folder, client, query = arguments.run
        return run(Path(folder), client, query, arguments.heap)
    lines = []
    for name in COLUMNS:
        folder = arguments.data / f"process-memory-{name}-{arguments.rows}"
        options = ["--data", str(arguments.data), "--rows", str(arguments.rows)]
        if not folder.exists():
            subprocess.run([sys.executable, __file__, *options, "--write", name], check=True)
        for title, template in QUERIES.items():
            query = template.format(first=FIRST[name])
            sizes = {}
            for client in ("lance", "parquet"):
                call = ["--heap", arguments.heap, "--run", str(folder), client, query]
                sizes[client] = peak([sys.executable, __file__, *call])
            lance, parquet = (sizes[client]["tasks"] >> 20 for client in ("lance", "parquet"))
            apart = [str(sizes["lance"][key] >> 20) for key in ("mapped", "planners")]
            numbers = [str(lance), str(parquet), f"{lance - parquet:+}", *apart]
            lines.append([name, title, *numbers])
            print(" | ".join(lines[-1]), flush=True)
    print()
    header = ["columns", "query", "MiB, Lance", "MiB, Parquet", "difference", "mapped", "planning"]
    print(report.table(header, lines))
    return None


if __name__ == "__main__":
    main()
