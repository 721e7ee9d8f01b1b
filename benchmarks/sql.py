"""Tables by name and SQL statements.

    python benchmarks/sql.py [--data DIR] [--scale 1.0] [--rounds 3] [--only PART ...]

| part | compares |
| --- | --- |
| `names` | queries of a table by its name, and by its path |
| `small` | queries of a table of ten rows by its name, and by its path |
| `changes` | DELETE, UPDATE and MERGE, the same changes by `LanceTable`, and a write of the changed rows as Parquet |
| `first` | the first statements of a new session: by name, by path, and of Parquet |
| `growth` | a namespace of 10 and of 1,000 tables; a table of 10 and of 10,000 versions |
| `cluster` | a MERGE of 10 million rows on two executors with a core each, and a join that Spark writes as Parquet |

The compared queries and statements take turns, after a round that is not measured. `--scale` is a
factor of all numbers of rows, tables and versions.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import DataFrame, SparkSession

import lance_spark
from benchmarks import report
from benchmarks import spark as bench
from benchmarks.lance_table import CASES, Case, Runner, prepare
from benchmarks.measuring import median_seconds, run_python, seconds_of
from benchmarks.tables import copy_table

CATALOG = "bench"
#: SQL statements for cases of `lance_table`, by the titles of the cases.
STATEMENTS = {
    "delete 0.1 %": "DELETE FROM {table} WHERE bucket = 7",
    "upsert 1 %": "MERGE INTO {table} AS t USING new AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "update 1 %": "UPDATE {table} SET price = price + 1 WHERE bucket >= 500 AND bucket < 510",
    "update a column everywhere": "UPDATE {table} SET price = price * 1.25D",
}
#: The code of part `first`, for a new process. Its arguments are "name", "path" or "Parquet", and the
#: name or the path of the table.
_FIRST = """
import json, sys, time
from pyspark.sql import SparkSession
import lance_spark

access, name = sys.argv[1:]
quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
spark = SparkSession.builder.master("local[2]").config(map=quiet).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
seconds = {}

def timed(title, action):
    started = time.perf_counter()
    action()
    seconds[title] = time.perf_counter() - started

def frame():
    if access == "name":
        return spark.table(name)
    return spark.read.format("parquet" if access == "Parquet" else "lance").load(name)

timed("enable", lambda: access == "Parquet" or lance_spark.enable(spark))
timed("first query", lambda: frame().where("id = 5").collect())
timed("second query", lambda: frame().where("id = 6").collect())
if access == "name":
    timed("first UPDATE", lambda: spark.sql(f"UPDATE {name} SET id = id WHERE id = 5"))
    timed("second UPDATE", lambda: spark.sql(f"UPDATE {name} SET id = id WHERE id = 6"))
print(json.dumps(seconds))
"""
#: The code of part `cluster`, for a new process. Its arguments are a folder and the number of rows.
_CLUSTER = """
import json, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
import lance_spark

folder, rows = Path(sys.argv[1]), int(sys.argv[2])
quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
builder = SparkSession.builder.master("local-cluster[2,1,1536]").config(map=quiet)
spark = builder.config("spark.sql.shuffle.partitions", "8").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
lance_spark.enable(spark, root=str(folder))
columns = ("id", "id % 1000 AS bucket", "id / 7 AS price", "concat('name ', id) AS name")
target = spark.range(0, rows, 1, 8).selectExpr(*columns)
target.writeTo("lance.t").create()
target.write.parquet(str(folder / "t.parquet"))
new = spark.range(0, rows // 10, 1, 8).selectExpr("id * 11 AS id", "-1L AS bucket",
    "0D AS price", "'new' AS name")
new.createOrReplaceTempView("new")
seconds = {}
started = time.perf_counter()
spark.sql("MERGE INTO lance.t AS t USING new AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
seconds["MERGE"] = time.perf_counter() - started
started = time.perf_counter()
old = spark.read.parquet(str(folder / "t.parquet"))
merged = old.join(new, "id", "left_anti").unionByName(new)
merged.write.parquet(str(folder / "merged.parquet"))
seconds["Parquet"] = time.perf_counter() - started

def checksum(frame):
    return frame.selectExpr("count(*)", "sum(cast(xxhash64(id, bucket, price, name) AS DECIMAL(38)))")

lance_sum, parquet_sum = (checksum(frame).first() for frame in
    (spark.table("lance.t"), spark.read.parquet(str(folder / "merged.parquet"))))
assert lance_sum == parquet_sum, (lance_sum, parquet_sum)
print(json.dumps(seconds))
"""


class SqlRunner(Runner):
    """Runs the cases by statements, by `LanceTable`, and by Parquet."""

    def actions(self) -> dict[str, Callable[[Case], float]]:
        """Return the function of each client that makes a change and returns its seconds."""
        return {
            "sql": self.by_statement,
            "LanceTable": self.by_lance_table,
            "parquet": self.by_parquet,
        }

    def by_statement(self, case: Case) -> float:
        """Change a copy of the table by a statement; return the seconds."""
        copy_table(self.source, self.target)
        self.upsert_frame.createOrReplaceTempView("new")
        statement = STATEMENTS[case.title].format(table=f"{CATALOG}.`{self.target}`")
        return seconds_of(lambda: self.spark.sql(statement))


def names(spark: SparkSession, folder: Path, scale: float, rounds: int) -> str:
    """Compare queries of a table by name and by path."""
    prepare(spark, folder, "rows", scale)
    path = str(folder / "rows.lance")

    def read(frame: DataFrame, condition: str | None) -> None:
        if condition is None:
            bench.drain(frame)
        else:
            frame.where(condition).collect()

    def by_path(condition: str | None) -> None:
        read(spark.read.format("lance").load(path), condition)

    def by_name(condition: str | None) -> None:
        read(spark.table(f"{CATALOG}.rows"), condition)

    lines = []
    for title, condition in (("all rows", None), ("one row", "id = 12345"), ("none", "id < 0")):
        seconds = median_seconds(
            {"name": partial(by_name, condition), "path": partial(by_path, condition)},
            rounds if condition is None else rounds * 5,
        )
        ratio = f"{seconds['path'] / seconds['name']:.2f}"
        lines.append([title, f"{seconds['name']:.3f} s", f"{seconds['path']:.3f} s", ratio])
    return report.table(["query", "by name", "by path", "speed / by path"], lines)


def small(spark: SparkSession, folder: Path, scale: float, rounds: int) -> str:
    """Compare queries of a small table by name and by path."""
    path = folder / "small.lance"
    shutil.rmtree(path, ignore_errors=True)
    rows = spark.range(0, 10, 1, 1).selectExpr("id", "id * 2 AS price")
    rows.write.format("lance").save(str(path))

    def by_path(columns: str, condition: str, options: dict[str, str]) -> None:
        frame = spark.read.format("lance").options(**options).load(str(path))
        frame.where(condition).selectExpr(columns).collect()

    def by_name(columns: str, condition: str, options: dict[str, str]) -> None:
        frame = spark.read.options(**options).table(f"{CATALOG}.small")
        frame.where(condition).selectExpr(columns).collect()

    queries: dict[str, tuple[str, str, dict[str, str]]] = {
        "all rows": ("*", "true", {}),
        "one row": ("*", "id = 5", {}),
        "count": ("count(*)", "true", {}),
        "with an option": ("*", "true", {"batch_size": "1000"}),
    }
    lines = []
    for title, query in queries.items():
        seconds = median_seconds(
            {"name": partial(by_name, *query), "path": partial(by_path, *query)}, rounds * 20
        )
        milliseconds = [f"{seconds[access] * 1000:.0f} ms" for access in ("name", "path")]
        lines.append([title, *milliseconds, f"{seconds['name'] / seconds['path']:.2f}"])
    shutil.rmtree(path)
    return report.table(["query", "by name", "by path", "time / by path"], lines)


def changes(spark: SparkSession, folder: Path, scale: float, rounds: int) -> str:
    """Compare statements with `LanceTable` and with Parquet."""
    rows = prepare(spark, folder, "rows", scale)
    runner = SqlRunner(spark, folder, "rows", rows)
    lines = []
    for case in CASES:
        if case.title not in STATEMENTS:
            continue
        figures = runner.run(case, rounds)
        seconds = {client: statistics.median(result.seconds) for client, result in figures.items()}
        lines.append(
            [
                case.title,
                f"{seconds['sql']:.2f} s",
                f"{seconds['LanceTable'] / seconds['sql']:.2f}",
                f"{seconds['parquet'] / seconds['sql']:.2f}",
                f"{figures['sql'].written / 1e6:,.1f}",
                f"{figures['LanceTable'].written / 1e6:,.1f}",
            ]
        )
    header = ["statement", "seconds", "speed / LanceTable", "speed / Parquet"]
    return report.table([*header, "MB written", "LanceTable"], lines)


def first(spark: SparkSession, folder: Path, scale: float, rounds: int) -> str:
    """Compare the first statements of new sessions by name, by path, and of Parquet."""
    prepare(spark, folder, "rows", scale)
    copy = folder / "first.lance"
    table_names = {
        "name": f"lance.`{copy}`",
        "path": str(copy),
        "Parquet": str(folder / "rows.parquet"),
    }
    # The seconds of each statement, by the statement's title and the access to the table.
    seconds: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for access, name in table_names.items():
            shutil.rmtree(copy, ignore_errors=True)
            copy_table(folder / "rows.lance", copy)
            for title, duration in json.loads(run_python(_FIRST, access, name)).items():
                seconds.setdefault(title, {}).setdefault(access, []).append(duration)
    shutil.rmtree(copy, ignore_errors=True)

    def median(durations: list[float] | None) -> str:
        return "" if durations is None else f"{statistics.median(durations):.2f} s"

    lines = [
        [title, *(median(durations.get(access)) for access in table_names)]
        for title, durations in seconds.items()
    ]
    return report.table(["statement", "by name", "by path", "Parquet"], lines)


def growth(spark: SparkSession, folder: Path, scale: float, rounds: int) -> str:
    """Compare statements for few and many tables of a namespace, and versions of a table."""
    root = folder / "growth"
    shutil.rmtree(root, ignore_errors=True)
    few, many = 10, max(int(1000 * scale), 20)
    versions = max(int(10_000 * scale), 20)
    actions = {
        size: _statements(spark, root / size, f"{CATALOG}_{size}", num_tables, num_versions)
        for size, num_tables, num_versions in (("few", few, few), ("many", many, versions))
    }
    lines = []
    for title in actions["few"]:
        seconds = median_seconds({size: actions[size][title] for size in actions}, rounds * 3)
        ratio = f"{seconds['many'] / seconds['few']:.2f}"
        lines.append([title, f"{seconds['few']:.3f} s", f"{seconds['many']:.3f} s", ratio])
    shutil.rmtree(root)
    header = ["statement", f"{few} tables, {few} versions"]
    return report.table([*header, f"{many:,} tables, {versions:,} versions", "times"], lines)


def _statements(
    spark: SparkSession, root: Path, catalog: str, num_tables: int, num_versions: int
) -> dict[str, Callable[[], object]]:
    """Make a namespace whose first table has many versions; return statements on its tables."""
    sql = spark.sql
    lance_spark.enable(spark, catalog, root=str(root))
    sql(f"CREATE TABLE {catalog}.t0 AS SELECT id FROM range(10)")
    for number in range(1, num_tables):
        shutil.copytree(root / "t0.lance", root / f"t{number}.lance")
    for number in range(num_versions):
        lance_spark.open_dataset(str(root / "t0.lance")).update_config({"n": str(number)})
    return {
        "SHOW TABLES": lambda: sql(f"SHOW TABLES IN {catalog}").collect(),
        "SELECT": lambda: sql(f"SELECT * FROM {catalog}.t1").collect(),
        "SELECT of many versions": lambda: sql(f"SELECT * FROM {catalog}.t0").collect(),
        "INSERT": lambda: sql(f"INSERT INTO {catalog}.t1 VALUES (1)"),
        "INSERT into many versions": lambda: sql(f"INSERT INTO {catalog}.t0 VALUES (1)"),
    }


def cluster(spark: SparkSession, folder: Path, scale: float, rounds: int) -> str:
    """Compare a MERGE on two executors with a join, once."""
    root = folder / "cluster"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    rows = max(int(10_000_000 * scale), 1000)
    seconds = json.loads(run_python(_CLUSTER, str(root), str(rows)))
    shutil.rmtree(root)
    line = [
        f"{rows:,}",
        f"{seconds['MERGE']:.1f} s",
        f"{seconds['Parquet']:.1f} s",
        f"{seconds['Parquet'] / seconds['MERGE']:.2f}",
    ]
    return report.table(["rows", "MERGE", "Parquet", "speed / Parquet"], [line])


#: The function of each part. It returns a table of results.
PARTS = {
    function.__name__: function for function in (names, small, changes, first, growth, cluster)
}


def main() -> None:
    parser = report.argument_parser(__doc__)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS), help="parts")
    arguments = parser.parse_args()
    folder = arguments.data.absolute() / f"lance-table-{arguments.scale:g}"
    folder.mkdir(parents=True, exist_ok=True)
    spark = bench.session()
    lance_spark.enable(spark, CATALOG, root=str(folder))
    for part in arguments.only:
        text = PARTS[part](spark, folder, arguments.scale, arguments.rounds)
        print(f"\n{part}\n\n{text}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
