"""Tables by name and SQL: queries by name and by path, statements beside `LanceTable` and Parquet,
the first statement of a session, and growth.

    python benchmarks/sql.py [--data DIR] [--scale 1.0] [--rounds 3] [--only PART ...]

| part | what is compared |
| --- | --- |
| `names` | queries of a table by its name, and the same by its path |
| `small` | the same of a table of ten rows, one of them with an option |
| `changes` | DELETE, UPDATE and MERGE, the same by `LanceTable`, and the same rows written anew as Parquet |
| `first` | the first statements of a new session: by name, by path, and of Parquet |
| `growth` | a namespace of 10 and of 1,000 tables; a table of 10 and of 10,000 versions |
| `cluster` | MERGE of 10 million rows on two executors with a core each, and a join that is written as Parquet |

Clients take turns in one run; a first round is not counted. `--scale` is a factor of all rows, tables
and versions.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyspark.sql import SparkSession

import lance_spark
from benchmarks import change_tables
from benchmarks import spark as bench
from benchmarks.lance_table import CASES, Case, Runner, prepare

CATALOG = "bench"
PARTS = ("names", "small", "changes", "first", "growth", "cluster")
#: The changes of `lance_table` as statements.
STATEMENTS = {
    "delete 0.1 %": "DELETE FROM {table} WHERE bucket = 7",
    "upsert 1 %": "MERGE INTO {table} AS t USING new AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "update 1 %": "UPDATE {table} SET price = price + 1 WHERE bucket >= 500 AND bucket < 510",
    "update a column everywhere": "UPDATE {table} SET price = price * 1.25D",
}
#: Run in a process of its own, whose argument is how the table is named.
_FIRST = """
import json, sys, time
from pyspark.sql import SparkSession
import lance_spark

way, name = sys.argv[1:]
quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
spark = SparkSession.builder.master("local[2]").config(map=quiet).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
seconds = {}

def timed(title, action):
    started = time.perf_counter()
    action()
    seconds[title] = time.perf_counter() - started

def frame():
    if way == "name":
        return spark.table(name)
    return spark.read.format("parquet" if way == "Parquet" else "lance").load(name)

timed("enable", lambda: way == "Parquet" or lance_spark.enable(spark))
timed("first query", lambda: frame().where("id = 5").collect())
timed("second query", lambda: frame().where("id = 6").collect())
if way == "name":
    timed("first UPDATE", lambda: spark.sql(f"UPDATE {name} SET id = id WHERE id = 5"))
    timed("second UPDATE", lambda: spark.sql(f"UPDATE {name} SET id = id WHERE id = 6"))
print(json.dumps(seconds))
"""
#: Run in a process of its own: its arguments are a folder and the number of rows.
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

def checked(frame):
    return frame.selectExpr("count(*)", "sum(cast(xxhash64(id, bucket, price, name) AS DECIMAL(38)))")

ours, theirs = (checked(f).first() for f in
    (spark.table("lance.t"), spark.read.parquet(str(folder / "merged.parquet"))))
assert ours == theirs, (ours, theirs)
print(json.dumps(seconds))
"""


class SqlRunner(Runner):
    """Runs statements, the same by `LanceTable`, and the same on Parquet."""

    def actions(self) -> dict[str, Callable[[Case], float]]:
        """Return how each client makes a change."""
        return {
            "sql": self._statement,
            "LanceTable": self.by_lance_table,
            "parquet": self.by_parquet,
        }

    def _statement(self, case: Case) -> float:
        change_tables.copied(self.source, self.place)
        self.new.createOrReplaceTempView("new")
        statement = STATEMENTS[case.title].format(table=f"{CATALOG}.`{self.place}`")
        started = time.perf_counter()
        self.spark.sql(statement)
        return time.perf_counter() - started


def names(spark: SparkSession, folder: Path, scale: float, rounds: int) -> str:
    """Time queries by name and by path."""
    prepare(spark, folder, "rows", scale)
    path = str(folder / "rows.lance")

    def by_path(condition: str | None) -> None:
        frame = spark.read.format("lance").load(path)
        _drained(frame, condition)

    def by_name(condition: str | None) -> None:
        _drained(spark.table(f"{CATALOG}.rows"), condition)

    lines = []
    for title, condition in (("all rows", None), ("one row", "id = 12345"), ("none", "id < 0")):
        seconds = bench.timed(
            {
                "name": lambda condition=condition: by_name(condition),
                "path": lambda condition=condition: by_path(condition),
            },
            rounds if condition is None else rounds * 5,
        )
        ratio = seconds["path"] / seconds["name"]
        lines.append([title, *(f"{one:.3f} s" for one in seconds.values()), f"{ratio:.2f}"])
    return bench.table(["query", "by name", "by path", "speed / by path"], lines)


def small(spark: SparkSession, folder: Path, scale: float, rounds: int) -> str:
    """Time queries of a small table by name and by path, in turns."""
    path = folder / "small.lance"
    shutil.rmtree(path, ignore_errors=True)
    spark.range(0, 10, 1, 1).selectExpr("id", "id * 2 AS price").write.format("lance").save(
        str(path)
    )

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
        seconds = bench.timed(
            {
                "name": lambda query=query: by_name(*query),
                "path": lambda query=query: by_path(*query),
            },
            rounds * 20,
        )
        ratio = seconds["name"] / seconds["path"]
        lines.append([title, *(f"{one * 1000:.0f} ms" for one in seconds.values()), f"{ratio:.2f}"])
    shutil.rmtree(path)
    return bench.table(["query", "by name", "by path", "time / by path"], lines)


def _drained(frame: object, condition: str | None) -> None:
    if condition is None:
        bench.drain(frame)
    else:
        frame.where(condition).collect()


def changes(spark: SparkSession, folder: Path, scale: float, rounds: int) -> str:
    """Time statements beside `LanceTable` and Parquet."""
    rows = prepare(spark, folder, "rows", scale)
    runner = SqlRunner(spark, folder, "rows", rows)
    lines = []
    for case in CASES:
        if case.title not in STATEMENTS:
            continue
        measured = runner.run(case, rounds)
        seconds = {name: statistics.median(one.seconds) for name, one in measured.items()}
        own = seconds["sql"]
        lines.append(
            [
                case.title,
                f"{own:.2f} s",
                f"{seconds['LanceTable'] / own:.2f}",
                f"{seconds['parquet'] / own:.2f}",
                f"{measured['sql'].written / 1e6:,.1f}",
                f"{measured['LanceTable'].written / 1e6:,.1f}",
            ]
        )
    header = ["statement", "seconds", "speed / LanceTable", "speed / Parquet"]
    return bench.table([*header, "MB written", "LanceTable"], lines)


def first(spark: SparkSession, folder: Path, scale: float, rounds: int) -> str:
    """Time the first statements of new sessions."""
    prepare(spark, folder, "rows", scale)
    given = {
        "name": f"lance.`{folder / 'first.lance'}`",
        "path": str(folder / "first.lance"),
        "Parquet": str(folder / "rows.parquet"),
    }
    seconds: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for way, name in given.items():
            shutil.rmtree(folder / "first.lance", ignore_errors=True)
            change_tables.copied(folder / "rows.lance", folder / "first.lance")
            for title, taken in _process(_FIRST, way, name).items():
                seconds.setdefault(title, {}).setdefault(way, []).append(taken)
    shutil.rmtree(folder / "first.lance", ignore_errors=True)
    lines = [
        [title, *(f"{statistics.median(ways[w]):.2f} s" if w in ways else "" for w in given)]
        for title, ways in seconds.items()
    ]
    return bench.table(["statement", *(f"by {way}" for way in given)], lines)


def _process(code: str, *arguments: str) -> dict[str, float]:
    """Run code in a new process, and return what it prints last."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    told: dict[str, float] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return told


def growth(spark: SparkSession, folder: Path, scale: float, rounds: int) -> str:
    """Time statements of namespaces with many tables, and of a table with many versions."""
    place = folder / "growth"
    shutil.rmtree(place, ignore_errors=True)
    few, many = 10, max(int(1000 * scale), 20)
    versions = max(int(10_000 * scale), 20)
    actions = {
        size: _growing(spark, place / size, f"{CATALOG}_{size}", tables, number)
        for size, tables, number in (("few", few, few), ("many", many, versions))
    }
    lines = []
    for title in actions["few"]:
        seconds = bench.timed({size: actions[size][title] for size in actions}, rounds * 3)
        ratio = seconds["many"] / seconds["few"]
        lines.append([title, *(f"{one:.3f} s" for one in seconds.values()), f"{ratio:.2f}"])
    shutil.rmtree(place)
    header = ["statement", f"{few} tables, {few} versions"]
    return bench.table([*header, f"{many:,} tables, {versions:,} versions", "times"], lines)


def _growing(
    spark: SparkSession, root: Path, catalog: str, tables: int, versions: int
) -> dict[str, Callable[[], object]]:
    """Make a namespace, whose first table has many versions, and return statements."""
    sql = spark.sql
    lance_spark.enable(spark, catalog, root=str(root))
    sql(f"CREATE TABLE {catalog}.t0 AS SELECT id FROM range(10)")
    for number in range(1, tables):
        shutil.copytree(root / "t0.lance", root / f"t{number}.lance")
    for number in range(versions):
        lance_spark.open_dataset(str(root / "t0.lance")).update_config({"n": str(number)})
    return {
        "SHOW TABLES": lambda: sql(f"SHOW TABLES IN {catalog}").collect(),
        "SELECT": lambda: sql(f"SELECT * FROM {catalog}.t1").collect(),
        "SELECT of many versions": lambda: sql(f"SELECT * FROM {catalog}.t0").collect(),
        "INSERT": lambda: sql(f"INSERT INTO {catalog}.t1 VALUES (1)"),
        "INSERT into many versions": lambda: sql(f"INSERT INTO {catalog}.t0 VALUES (1)"),
    }


def cluster(spark: SparkSession, folder: Path, scale: float, rounds: int) -> str:
    """Time a MERGE on two executors, once."""
    place = folder / "cluster"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    rows = max(int(10_000_000 * scale), 1000)
    seconds = _process(_CLUSTER, str(place), str(rows))
    shutil.rmtree(place)
    line = [f"{rows:,}", *(f"{one:.1f} s" for one in seconds.values())]
    ratio = f"{seconds['Parquet'] / seconds['MERGE']:.2f}"
    return bench.table(["rows", "MERGE", "Parquet", "speed / Parquet"], [[*line, ratio]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("demo-data/benchmarks"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()
    folder = arguments.data.absolute() / f"lance-table-{arguments.scale:g}"
    folder.mkdir(parents=True, exist_ok=True)
    spark = bench.session()
    lance_spark.enable(spark, CATALOG, root=str(folder))
    for part in arguments.only:
        run = globals()[part]
        print(f"\n{part}\n\n{run(spark, folder, arguments.scale, arguments.rounds)}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
