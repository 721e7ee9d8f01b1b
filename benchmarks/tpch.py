"""The 22 queries of TPC-H on Lance tables and on the same tables in Parquet.

    python benchmarks/tpch.py [--scale 1] [--rounds 3] [--only 1,6,14]

DuckDB makes the rows, and has the text of the queries. Spark writes both tables from the same rows,
with the same number of files. The two formats take turns. The shortest time of a query counts. The
answers of both formats must be equal. The tables stay in `build/tpch` for the next run.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance_spark
from benchmarks import report
from benchmarks import spark as bench
from benchmarks.measuring import ROOT, run_in_turns

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
LARGE_TABLES = ("lineitem", "orders", "partsupp")
FORMATS = ("lance", "parquet")
Rows = list[tuple[object, ...]]


def duckdb_connection() -> Any:
    """Return a connection of DuckDB with the TPC-H extension."""
    import duckdb
    import duckdb_extension_tpch

    connection = duckdb.connect()
    folder = Path(duckdb_extension_tpch.__file__).parent
    (extension,) = folder.rglob("tpch.duckdb_extension")
    connection.load_extension(str(extension))
    return connection


def write_tables(spark: Any, folder: Path, scale: float) -> None:
    """Write the tables in both formats, unless an earlier run wrote them."""
    done = folder / "done"
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    connection = duckdb_connection()
    connection.execute(f"CALL dbgen(sf={scale})")
    for name in TABLES:
        rows = folder / f"{name}.parquet"
        connection.execute(f"COPY {name} TO '{rows}' (FORMAT parquet)")
        frame = spark.read.parquet(str(rows))
        files = 8 if name in LARGE_TABLES else 1
        for format_name in FORMATS:
            path = str(folder / format_name / name)
            frame.repartition(files).write.format(format_name).mode("overwrite").save(path)
        rows.unlink()
    done.touch()


def run_query(spark: Any, folder: Path, query: str, format_name: str) -> tuple[float, Rows]:
    """Run a query on the tables of a format; return its seconds and its rows."""
    for name in TABLES:
        frame = spark.read.format(format_name).load(str(folder / format_name / name))
        frame.createOrReplaceTempView(name)
    start = time.perf_counter()
    rows = spark.sql(query).collect()
    return time.perf_counter() - start, [tuple(row) for row in rows]


def comparable(rows: Rows) -> list[str]:
    """Return rows in a form that is equal for equal answers.

    Rows are sorted. Numbers are rounded, because Spark may add the same numbers in another order.
    """
    return sorted(
        repr(tuple(round(value, 2) if isinstance(value, float) else value for value in row))
        for row in rows
    )


def main() -> None:
    parser = report.argument_parser(__doc__, data=None)
    parser.add_argument("--only", default="", help="numbers of queries, with commas between them")
    arguments = parser.parse_args()
    spark = bench.session()
    lance_spark.enable(spark)
    folder = ROOT / "build" / "tpch" / f"{arguments.scale:g}"
    write_tables(spark, folder, arguments.scale)
    connection = duckdb_connection()
    queries = dict(connection.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
    chosen = [int(number) for number in arguments.only.split(",") if number] or sorted(queries)
    lines, ratios = [], []
    for number in chosen:
        query = queries[number].rstrip("; \n")
        results = run_in_turns(
            {name: partial(run_query, spark, folder, query, name) for name in FORMATS},
            arguments.rounds,
        )
        best = {name: min(seconds for seconds, _ in results[name]) for name in FORMATS}
        answers = [comparable(rows) for name in FORMATS for _, rows in results[name]]
        equal = all(answer == answers[0] for answer in answers)
        ratios.append(best["parquet"] / best["lance"])
        times = [f"{best[name]:.2f}" for name in FORMATS]
        lines.append([str(number), *times, f"{ratios[-1]:.2f}", "yes" if equal else "NO"])
        print(" ".join(lines[-1]), flush=True)
    header = ["query", "Lance s", "Parquet s", "speed / Parquet", "same answer"]
    print(report.table(header, lines))
    print(
        f"geometric mean {statistics.geometric_mean(ratios):.2f}, slowest {min(ratios):.2f}, "
        f"of {len(ratios)} queries"
    )
    if any(line[-1] == "NO" for line in lines):
        sys.exit("answers differ")


if __name__ == "__main__":
    main()
