"""The 22 queries of TPC-H on tables of Lance, beside the same tables in Parquet.

    python benchmarks/tpch.py [--scale 1] [--rounds 3] [--only 1,6,14]

DuckDB makes the rows, and has the text of the queries. Spark writes both tables from the same
rows, as many files each. The queries run in turns, the shortest time of each counts, and the
answers must be equal. The data stays in build/tpch for the next run.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance_spark
from benchmarks import spark as bench

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
FORMATS = ("lance", "parquet")


def duck() -> Any:
    """Return a connection of DuckDB that knows TPC-H."""
    import duckdb
    import duckdb_extension_tpch

    connection = duckdb.connect()
    folder = Path(duckdb_extension_tpch.__file__).parent
    (extension,) = folder.rglob("tpch.duckdb_extension")
    connection.load_extension(str(extension))
    return connection


def make_data(spark: Any, folder: Path, scale: float) -> None:
    """Make the tables in both formats, unless they are there."""
    done = folder / "done"
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    connection = duck()
    connection.execute(f"CALL dbgen(sf={scale})")
    for name in TABLES:
        rows = folder / f"{name}.parquet"
        connection.execute(f"COPY {name} TO '{rows}' (FORMAT parquet)")
        frame = spark.read.parquet(str(rows))
        files = 8 if name in ("lineitem", "orders", "partsupp") else 1
        for format_name in FORMATS:
            path = str(folder / format_name / name)
            frame.repartition(files).write.format(format_name).mode("overwrite").save(path)
        rows.unlink()
    done.touch()


def answer(spark: Any, query: str) -> list[tuple[object, ...]]:
    """Run a query. Return its rows, with sums rounded as their order may differ."""
    return [
        tuple(round(value, 2) if isinstance(value, float) else value for value in row)
        for row in spark.sql(query).collect()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    spark = bench.session()
    lance_spark.enable(spark)
    folder = bench.ROOT / "build" / "tpch" / f"{arguments.scale:g}"
    make_data(spark, folder, arguments.scale)
    queries = dict(duck().execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
    chosen = [int(number) for number in arguments.only.split(",") if number] or sorted(queries)
    rows, ratios = [], []
    for number in chosen:
        best: dict[str, float] = {}
        answers: dict[str, list[tuple[object, ...]]] = {}
        for turn in range(arguments.rounds + 1):
            for format_name in FORMATS:
                for name in TABLES:
                    path = str(folder / format_name / name)
                    frame = spark.read.format(format_name).load(path)
                    frame.createOrReplaceTempView(name)
                begun = time.perf_counter()
                answers[format_name] = answer(spark, queries[number].rstrip("; \n"))
                seconds = time.perf_counter() - begun
                if turn:
                    best[format_name] = min(best.get(format_name, seconds), seconds)
        same = sorted(map(repr, answers["lance"])) == sorted(map(repr, answers["parquet"]))
        ratio = best["parquet"] / best["lance"]
        ratios.append(ratio)
        times = [f"{best[name]:.2f}" for name in FORMATS]
        rows.append([str(number), *times, f"{ratio:.2f}", "yes" if same else "NO"])
        print(" ".join(rows[-1]), flush=True)
    header = ["query", "lance s", "parquet s", "speed / Parquet", "same answer"]
    print(bench.table(header, rows))
    print(
        f"geometric mean {statistics.geometric_mean(ratios):.2f}, slowest {min(ratios):.2f}, "
        f"of {len(ratios)} queries"
    )
    if any(row[-1] == "NO" for row in rows):
        sys.exit("answers differ")


if __name__ == "__main__":
    main()
