"""Changes of a large table by SQL and by the local API, beside pylance and Spark over Parquet.

    python benchmarks/sql_changes.py [--data DIR] [--scale 1.0] [--rounds 3] [--only WORD] [--update]

The table has 4 million rows of six columns in eight fragments. The local API and pylance each run
in a process of their own, SQL and Parquet in one session of Spark. Each change is made to a new
copy of the table. The clients take turns; the first round warms up, and the least seconds of the
others count. Parquet has no changes: Spark writes all rows again, as a table format without
deletion files does.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import report
from benchmarks.measuring import run_in_turns, seconds_of
from benchmarks.tables import copy_table, write_once

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ROWS, FRAGMENTS = 4_000_000, 8
#: Rows of the sources of merges and inserts. Half of them are new.
LARGE, SMALL = 100_000, 100
#: The number of values of column `a`, which are spread over the whole table.
BUCKETS = 1_000
COLUMNS = ("id", "a", "b", "c", "d", "s")
CLIENTS = ("pylance", "SQL", "local", "Parquet")
MERGE = (
    "USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
#: By title: the statement, rows of the source, and the query whose rows Parquet gets.
CHANGES: dict[str, tuple[str, int, str]] = {
    "delete 1 %": ("DELETE FROM {t} WHERE a < 10", 0, "SELECT * FROM old WHERE a >= 10"),
    "update 1 %": (
        "UPDATE {t} SET b = b + 1 WHERE a < 10",
        0,
        "SELECT * EXCEPT (b), IF(a < 10, b + 1, b) AS b FROM old",
    ),
    "update all rows": (
        "UPDATE {t} SET b = b + 1",
        0,
        "SELECT * EXCEPT (b), b + 1 AS b FROM old",
    ),
    "merge 100,000 rows": ("MERGE INTO {t} t " + MERGE, LARGE, ""),
    "merge 100 rows": ("MERGE INTO {t} t " + MERGE, SMALL, ""),
    "merge 100 rows, B-tree": ("MERGE INTO {t} t " + MERGE, SMALL, ""),
    "insert 100,000 rows": (
        "INSERT INTO {t} SELECT * FROM source",
        LARGE,
        "SELECT * FROM old UNION ALL SELECT * FROM source",
    ),
}
MERGED = ", ".join(f"coalesce(s.{name}, t.{name}) AS {name}" for name in COLUMNS)
PARQUET_MERGE = f"SELECT {MERGED} FROM old t FULL JOIN source s ON t.id = s.id"


def rows_of(rows: int, start: int, seed: int) -> pa.Table:
    """Return rows of numbers and strings; `id` counts from `start`."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    rng = np.random.default_rng(seed)
    words = [pa.array(rng.integers(0, 1 << 40, rows)).cast(pa.string()) for _ in range(2)]
    values = [
        np.arange(start, start + rows),
        rng.integers(0, BUCKETS, rows).astype(np.int32),
        rng.random(rows),
        rng.integers(0, 1 << 40, rows),
        rng.random(rows).astype(np.float32),
        pc.binary_join_element_wise(*words, " "),
    ]
    return pa.table(values, names=COLUMNS)


def prepare(folder: Path, scale: float) -> None:
    """Write the tables and the sources that do not exist."""
    import lance
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = int(ROWS * scale)

    def write_table(path: Path, with_index: bool = False) -> None:
        table = rows_of(rows, 0, 1)
        size = -(-rows // FRAGMENTS)
        dataset = lance.write_dataset(
            table, path, max_rows_per_file=size, data_storage_version="2.1"
        )
        if with_index:
            dataset.create_scalar_index("id", "BTREE")

    def write_source(count: int, path: Path) -> None:
        rng = np.random.default_rng(2)
        old = rng.choice(rows, count // 2, replace=False)
        ids = np.concatenate([old, np.arange(rows, rows + count - len(old))])
        source = rows_of(count, 0, 3).set_column(0, "id", pa.array(rng.permutation(ids)))
        pq.write_table(source, path)

    write_once(folder / "rows.lance", write_table)
    write_once(folder / "B-tree.lance", partial(write_table, with_index=True))
    write_once(folder / "rows.parquet", lambda path: pq.write_table(rows_of(rows, 0, 1), path))
    for count in (LARGE, SMALL):
        write_once(folder / f"source-{count}.parquet", partial(write_source, count))


def change(client: str, title: str, path: str, source: str) -> float:
    """Make a change of the table at a path by a client without Spark; return the seconds."""
    import pyarrow.parquet as pq

    rows = pq.read_table(source) if source else None
    if client == "pylance":
        import lance as module

        open_table: Callable[[str], Any] = module.dataset
        write: Callable[..., Any] = module.write_dataset
    else:
        import lance_spark

        open_table, write = lance_spark.open_dataset, lance_spark.write_dataset

    def run() -> None:
        if title.startswith("insert"):
            write(rows, path, mode="append")
            return
        dataset = open_table(path)
        if title.startswith("merge"):
            merge = dataset.merge_insert("id").when_matched_update_all()
            merge.when_not_matched_insert_all().execute(rows)
        elif title.startswith("delete"):
            dataset.delete("a < 10")
        elif client == "pylance":
            dataset.update({"b": "b + 1"}, "a < 10" if "1 %" in title else None)
        elif "1 %" in title:
            dataset.update({"b": _incremented}, "a < 10")
        else:
            dataset.update({"b": _incremented}, mode="columns")

    return seconds_of(run)


def _incremented(rows: pa.RecordBatch) -> pa.Array:
    import pyarrow.compute as pc

    return pc.add(rows.column("b"), 1.0)


def serve(client: str) -> None:
    """Make the changes that lines of the standard input name; print the seconds of each."""
    for line in sys.stdin:
        print(change(client, *json.loads(line)), flush=True)


class Served:
    """A process of a client without Spark, which makes the changes that it is told.

    Parameters
    ----------
    client : str
        As in `CLIENTS`.
    """

    def __init__(self, client: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "benchmarks" / "sql_changes.py"), "--serve", client],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def change(self, title: str, path: str, source: str) -> float:
        """Make a change; see `change`."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([title, path, source]) + "\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Clients:
    """The processes and the session that make the changes.

    Parameters
    ----------
    folder : Path
        The tables and the sources.
    """

    def __init__(self, folder: Path) -> None:
        from benchmarks.spark import session

        self.folder = folder
        self.root = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
        self.processes = {client: Served(client) for client in ("pylance", "local")}
        self.spark: SparkSession = session()
        import lance_spark

        lance_spark.enable(self.spark, "lance", root=str(self.root))
        self.copies = 0

    def run(self, client: str, title: str) -> float:
        """Make a change of a new copy of the table; return the seconds."""
        statement, count, query = CHANGES[title]
        source = str(self.folder / f"source-{count}.parquet") if count else ""
        if source:
            self.spark.read.parquet(source).createOrReplaceTempView("source")
        if client == "Parquet":
            self.spark.read.parquet(str(self.folder / "rows.parquet")).createOrReplaceTempView(
                "old"
            )
            rows = self.spark.sql(query or PARQUET_MERGE)
            path = str(self.root / "rows.parquet")
            return seconds_of(lambda: rows.write.mode("overwrite").parquet(path))
        self.copies += 1
        path = self.root / f"t{self.copies}.lance"
        copy_table(self.folder / ("B-tree.lance" if "B-tree" in title else "rows.lance"), path)
        if client == "SQL":
            text = statement.format(t=f"lance.t{self.copies}")
            seconds = seconds_of(lambda: self.spark.sql(text))
        else:
            seconds = self.processes[client].change(title, str(path), source)
        shutil.rmtree(path)
        return seconds

    def close(self) -> None:
        """End the processes, and delete the copies."""
        for process in self.processes.values():
            process.close()
        self.spark.stop()
        shutil.rmtree(self.root)


def main() -> None:
    parser = report.argument_parser(__doc__, data="demo-data/sql-changes", update=True)
    parser.add_argument("--only", default="", help="part of the title of a change")
    parser.add_argument("--serve", help="only for this program: a client")
    parser.add_argument("--prepare", action="store_true", help="only for this program")
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve)
        return
    folder = arguments.data.absolute() / f"{arguments.scale:g}"
    if arguments.prepare:
        prepare(folder, arguments.scale)
        return
    # Another process writes the tables, so that the process of Spark does not load pylance.
    options = ["--data", str(arguments.data), "--scale", str(arguments.scale)]
    subprocess.run([sys.executable, __file__, "--prepare", *options], check=True)
    clients = Clients(folder)
    lines, speeds = [], []
    for title in CHANGES:
        if arguments.only not in title:
            continue
        actions = {client: partial(clients.run, client, title) for client in CLIENTS}
        seconds = {
            client: min(results)
            for client, results in run_in_turns(actions, arguments.rounds).items()
        }
        ratios = [seconds["pylance"] / seconds[client] for client in ("SQL", "local")]
        speeds.append(ratios)
        lines.append(
            [
                title,
                *(f"{seconds[client]:.2f}" for client in CLIENTS),
                *(f"{ratio:.2f}" for ratio in ratios),
                f"{seconds['Parquet'] / seconds['SQL']:.1f}",
            ]
        )
        print("| " + " | ".join(lines[-1]) + " |", flush=True)
    clients.close()
    means = [statistics.geometric_mean(ratios) for ratios in zip(*speeds, strict=True)]
    lines.append(["geometric mean", *[""] * len(CLIENTS), *(f"{mean:.2f}" for mean in means), ""])
    header = ["change", *CLIENTS, "speed of SQL / pylance", "local / pylance", "SQL / Parquet"]
    text = report.table(header, lines)
    print(f"\n{text}")
    if arguments.update:
        report.put_into_readme("sql_changes", text)


if __name__ == "__main__":
    main()
