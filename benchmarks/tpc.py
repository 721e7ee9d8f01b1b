"""The 22 queries of TPC-H, or the 99 of TPC-DS, on Lance tables and on the same tables in Parquet.

    python benchmarks/tpc.py h [--scale 1] [--rounds 3] [--only 1,6,14]
    python benchmarks/tpc.py ds [--scale 1] [--rounds 3] [--only 9,64]

DuckDB makes the rows, and has the text of the queries. Spark writes both tables from the same rows,
with the same number of files. The two formats take turns. The shortest time of a query counts. The
answers of both formats must be equal. The tables stay in `build/tpch` or `build/tpcds` for the next run.
The bytes of each table are printed beside those of Parquet.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance_spark
from benchmarks import report
from benchmarks import spark as bench
from benchmarks.measuring import ROOT, run_in_turns

#: Tables of at least this many rows are written in eight files.
LARGE = 500_000
FORMATS = ("lance", "parquet")
Rows = list[tuple[object, ...]]


def duckdb_connection(suite: str, database: str = ":memory:") -> Any:
    """Return a connection of DuckDB with the extension of TPC-H (`h`) or TPC-DS (`ds`)."""
    import duckdb

    module = import_module(f"duckdb_extension_tpc{suite}")
    connection = duckdb.connect(database)
    (extension,) = Path(str(module.__file__)).parent.rglob(f"tpc{suite}.duckdb_extension")
    connection.load_extension(str(extension))
    return connection


def write_tables(spark: Any, folder: Path, suite: str, scale: float) -> None:
    """Write the tables in both formats, unless an earlier run wrote them."""
    done = folder / "done"
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # In memory, the rows of TPC-DS take more than 1.5 GB for each scale factor.
    database = folder / "made.duckdb"
    connection = duckdb_connection(suite, str(database))
    connection.execute("SET memory_limit = '4GB'")
    connection.execute(f"CALL {'dbgen' if suite == 'h' else 'dsdgen'}(sf={scale})")
    for (name,) in connection.execute("SHOW TABLES").fetchall():
        rows = folder / f"{name}.parquet"
        connection.execute(f"COPY {name} TO '{rows}' (FORMAT parquet)")
        (count,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()
        frame = spark.read.parquet(str(rows))
        for format_name in FORMATS:
            path = str(folder / format_name / name)
            files = frame.repartition(8 if count >= LARGE else 1)
            files.write.format(format_name).mode("overwrite").save(path)
        rows.unlink()
    connection.close()
    database.unlink()
    done.touch()


def tables_of(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "parquet").iterdir())


def stored_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def print_sizes(folder: Path) -> None:
    """Print the bytes of each table of at least 1 MB in both formats, and of all tables."""
    sizes = {
        name: [stored_bytes(folder / format_name / name) for format_name in FORMATS]
        for name in tables_of(folder)
    }
    sizes["all tables"] = [sum(column) for column in zip(*sizes.values(), strict=True)]
    lines = [
        [name, f"{lance / 1e6:.1f}", f"{parquet / 1e6:.1f}", f"{lance / parquet:.2f}"]
        for name, (lance, parquet) in sizes.items()
        if parquet >= 1e6
    ]
    print(report.table(["table", "Lance MB", "Parquet MB", "Lance / Parquet"], lines))


def run_query(spark: Any, folder: Path, query: str, format_name: str) -> tuple[float, float, Rows]:
    """Run a query on the tables of a format; return its seconds, those of its plan, and its rows."""
    for name in tables_of(folder):
        frame = spark.read.format(format_name).load(str(folder / format_name / name))
        frame.createOrReplaceTempView(name)
    start = time.perf_counter()
    frame = spark.sql(query)
    frame._jdf.queryExecution().executedPlan()
    planned = time.perf_counter()
    rows = frame.collect()
    return time.perf_counter() - start, planned - start, [tuple(row) for row in rows]


def comparable(rows: Rows) -> list[str]:
    """Return rows in a form that is equal for equal answers.

    Rows are sorted. Numbers are rounded, because Spark may add the same numbers in another order.
    """
    return sorted(
        repr(tuple(rounded(value) if isinstance(value, float) else value for value in row))
        for row in rows
    )


def rounded(value: float) -> float:
    """Return a number with two digits after the point, and at most nine in all."""
    return round(float(f"{value:.9g}"), 2)


def compare(
    spark: Any,
    folder: Path,
    queries: dict[int, str],
    only: str,
    rounds: int,
    *,
    warm_up: bool = True,
) -> None:
    """Run queries on both formats in turns, and print their times.

    - `only`: Numbers of queries with commas between them; all if empty.
    - `warm_up`: Whether each query runs once before the rounds.

    Exits with an error if answers differ.
    """
    chosen = [int(number) for number in only.split(",") if number] or sorted(queries)
    lines, ratios = [], []
    for number in chosen:
        query = queries[number].rstrip("; \n")
        results = run_in_turns(
            {name: partial(run_query, spark, folder, query, name) for name in FORMATS},
            rounds,
            warm_up=warm_up,
        )
        best = {name: min(whole for whole, _, _ in results[name]) for name in FORMATS}
        plans = {name: min(plan for _, plan, _ in results[name]) for name in FORMATS}
        answers = [comparable(rows) for name in FORMATS for _, _, rows in results[name]]
        equal = all(answer == answers[0] for answer in answers)
        ratios.append(best["parquet"] / best["lance"])
        times = [f"{seconds[name]:.2f}" for seconds in (best, plans) for name in FORMATS]
        lines.append([str(number), *times, f"{ratios[-1]:.2f}", "yes" if equal else "NO"])
        print(" ".join(lines[-1]), flush=True)
    header = ["query", "Lance s", "Parquet s", "plan: Lance s", "Parquet s", "speed / Parquet"]
    print(report.table([*header, "same answer"], lines))
    print(
        f"geometric mean {statistics.geometric_mean(ratios):.2f}, slowest {min(ratios):.2f}, "
        f"of {len(ratios)} queries"
    )
    if any(line[-1] == "NO" for line in lines):
        sys.exit("answers differ")


def main() -> None:
    parser = report.argument_parser(__doc__, data=None)
    parser.add_argument("suite", choices=("h", "ds"), help="TPC-H or TPC-DS")
    parser.add_argument("--only", default="", help="numbers of queries, with commas between them")
    parser.add_argument("--no-warm-up", action="store_true", help="for queries that take minutes")
    arguments = parser.parse_args()
    suite = arguments.suite
    spark = bench.session()
    lance_spark.enable(spark)
    # The queries of TPC-DS have aliases in double quotes.
    spark.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    folder = ROOT / "build" / f"tpc{suite}" / f"{arguments.scale:g}"
    write_tables(spark, folder, suite, arguments.scale)
    print_sizes(folder)
    connection = duckdb_connection(suite)
    found = connection.execute(f"SELECT query_nr, query FROM tpc{suite}_queries()").fetchall()
    warm_up = not arguments.no_warm_up
    compare(spark, folder, dict(found), arguments.only, arguments.rounds, warm_up=warm_up)


if __name__ == "__main__":
    main()
