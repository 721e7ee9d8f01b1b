"""Vector search: builds, single queries, joins of many queries, exact search, recall against time.

    python benchmarks/search.py [--data DIR] [--scale 1.0] [--rounds 5] [--only PART ...]
        [--sizes 1 2 5] [--dimension 128] [--partitions N] [--update]

One table has a million vectors of 128 items, another one 200,000 of 768 items, both in clusters of
different sizes. The same rows are in Parquet. All clients take turns, and use indexes that pylance
built, with the same numbers of partitions. Parts:

| part | what is measured |
| --- | --- |
| `build` | IVF_PQ by this package, with faiss and without it, beside pylance; a process for each |
| `query` | one query, in process beside pylance, and through Spark beside a query of ten rows |
| `join` | many queries: `nearest_join`, beside pylance in a loop and in a Python UDF |
| `exact` | exact search: in process beside pylance; Spark beside a UDF over Parquet |
| `curves` | recall and time by types and parameters; `--update` puts them into the docs |
| `growth` | builds, their memory, and searches of `--sizes` million vectors; with `--rounds 0`, |
| | no searches |

`growth` runs only if `--only` names it. Processor times are those of the process and all its
threads.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lance
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance_spark
from benchmarks import recall_curves, report, vector_growth
from benchmarks import spark as bench
from benchmarks.measuring import Used, median_seconds, median_used, run_python
from benchmarks.tables import batch_reader, write_once
from benchmarks.vector_tables import NPROBES, K, batches, queries_of, search

PARTS = ("build", "query", "join", "exact", "curves", "growth")
FRAGMENTS = 8
#: Queries of the join, and those that pylance answers in a loop: it takes as long for each.
QUERIES, LOOP_QUERIES = 10_000, 300
#: Rows of the largest table of curves.
CURVE_ROWS = 1_000_000


class Data(NamedTuple):
    """A table of vectors.

    Attributes
    ----------
    rows, dimension : int
    num_partitions, num_sub_vectors : int
        Of its IVF_PQ index.
    """

    rows: int
    dimension: int
    num_partitions: int
    num_sub_vectors: int

    @property
    def name(self) -> str:
        """The table in words."""
        return f"{self.rows:,} x {self.dimension}"


DATA = (Data(1_000_000, 128, 256, 16), Data(200_000, 768, 128, 48))
BUILD = """
import os, sys, time
path, partitions, sub_vectors = sys.argv[1], *map(int, sys.argv[2:])
{open}
begun, used = time.perf_counter(), time.process_time()
dataset.create_index(
    "v", "IVF_PQ", name="built", metric="l2", num_partitions=partitions,
    num_sub_vectors=sub_vectors, replace=True,
)
print(time.perf_counter() - begun, time.process_time() - used)
"""
OPEN = {
    "lance_spark, faiss": "import lance_spark; dataset = lance_spark.open_dataset(path)",
    "lance_spark, numpy": (
        "sys.modules['faiss'] = None; import lance_spark; dataset = lance_spark.open_dataset(path)"
    ),
    "pylance": "import lance; dataset = lance.dataset(path)",
}


def write_lance(path: Path, data: Data) -> None:
    """Write the table, with an index of pylance."""
    lance.write_dataset(
        batch_reader(batches(data.rows, data.dimension)),
        str(path),
        max_rows_per_file=data.rows // FRAGMENTS,
    )
    lance.dataset(str(path)).create_index(
        "v",
        "IVF_PQ",
        metric="l2",
        num_partitions=data.num_partitions,
        num_sub_vectors=data.num_sub_vectors,
    )


def write_parquet(path: Path, source: Path, spark: SparkSession) -> None:
    """Write the rows of a table as Parquet."""
    spark.read.format("lance").load(str(source)).write.parquet(str(path))


class Table:
    """A prepared table, opened by both clients.

    Parameters
    ----------
    data : Data
    folder : Path
        Where tables of earlier runs are.
    spark : SparkSession
    num_queries : int
        Queries of the join.
    """

    def __init__(self, data: Data, folder: Path, spark: SparkSession, num_queries: int) -> None:
        self.data, self.spark = data, spark
        name = f"search-{data.dimension}-{data.rows}"
        self.path = write_once(folder / f"{name}.lance", partial(write_lance, data=data))
        parquet = partial(write_parquet, source=self.path, spark=spark)
        self.parquet = write_once(folder / f"{name}.parquet", parquet)
        self.own = lance_spark.open_dataset(str(self.path))
        self.theirs = lance.dataset(str(self.path))
        self.in_spark = lance_spark.LanceTable.forPath(spark, str(self.path))
        self.queries = queries_of(num_queries, data.dimension)

    def search(self, client: Any, numbers: Iterator[int], **keys: Any) -> list[int]:
        """Answer the next query in process."""
        return search(client, self.queries[next(numbers) % len(self.queries)], **keys)


def counter() -> Iterator[int]:
    """Yield numbers, so that each query of a client is another one."""
    return iter(range(sys.maxsize))


def several(action: Callable[[], object], times: int) -> Callable[[], object]:
    """Return an action that is done some times, for clocks that are coarse."""
    return lambda: [action() for _ in range(times)]


def builds(table: Table, rounds: int) -> list[list[str]]:
    """Build the same index by each client."""
    data = table.data
    times: dict[str, list[Used]] = {client: [] for client in OPEN}
    path = table.path.with_name(f"{table.path.stem}-built.lance")
    shutil.rmtree(path, ignore_errors=True)
    lance.write_dataset(batch_reader(batches(data.rows, data.dimension)), str(path))
    for _ in range(rounds):
        for client, opened in OPEN.items():
            arguments = (str(path), str(data.num_partitions), str(data.num_sub_vectors))
            line = run_python(BUILD.format(open=opened), *arguments)
            times[client].append(Used(*map(float, line.split())))
    shutil.rmtree(path)
    best = {client: min(used) for client, used in times.items()}
    oracle = best["pylance"]
    return [
        [
            *(f"{data.name}: {client}", f"{used.wall:.1f} s", f"{used.processor:.1f} s"),
            *(f"{oracle.wall / used.wall:.2f}", f"{oracle.processor / used.processor:.2f}"),
        ]
        for client, used in best.items()
    ]


def one_query(table: Table, rounds: int) -> list[list[str]]:
    """Measure single queries, by the index."""
    lines = []
    for name, keys in {"codes": {}, "refined": {"refine_factor": 5}}.items():
        actions = {
            client: several(partial(table.search, dataset, counter(), **keys), 20)
            for client, dataset in {"own": table.own, "pylance": table.theirs}.items()
        }
        used = median_used(actions, rounds)
        numbers = counter()

        def in_spark(keys: Any = keys, numbers: Iterator[int] = numbers) -> object:
            query = table.queries[next(numbers) % len(table.queries)]
            frame = table.in_spark.nearest("v", query, K, nprobes=NPROBES, columns=["id"], **keys)
            return frame.collect()

        frame = table.in_spark.toDF()
        spark = median_seconds(
            {"nearest": in_spark, "ten rows": lambda frame=frame: frame.limit(10).collect()},
            rounds,
        )
        own, oracle = used["own"], used["pylance"]
        lines.append(
            [
                f"{table.data.name}: {name}",
                *(f"{one.wall / 20 * 1000:.2f} ms" for one in (own, oracle)),
                f"{own.wall / oracle.wall:.2f}",
                f"{own.processor / oracle.processor:.2f}",
                f"{spark['nearest'] * 1000:.0f} ms",
                f"{(spark['nearest'] - spark['ten rows']) * 1000:+.0f} ms",
            ]
        )
        print(" | ".join(lines[-1]), flush=True)
    return lines


def pylance_frame(table: Table, frame: DataFrame) -> DataFrame:
    """Search by pylance in Python workers: each task opens the table, and answers its queries."""
    path, nprobes = str(table.path), NPROBES

    def search(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        dataset = lance.dataset(path)
        for part in parts:
            for number, query in zip(
                part["number"].to_pylist(), part["v"].to_pylist(), strict=True
            ):
                nearest = {"column": "v", "q": query, "k": K, "nprobes": nprobes}
                table = dataset.to_table(columns=["id", "_distance"], nearest=nearest)
                numbers = pa.array([number] * len(table), pa.int64())
                yield pa.record_batch(
                    [numbers, *(column.combine_chunks() for column in table.columns)],
                    names=["number", "id", "_distance"],
                )

    return frame.mapInArrow(search, "number long, id long, _distance float")


def joins(table: Table, rounds: int) -> list[list[str]]:
    """Answer many queries."""
    vectors_column = pa.FixedSizeListArray.from_arrays(
        pa.array(table.queries.ravel()), table.data.dimension
    )
    path = table.path.with_name(f"{table.path.stem}-queries.lance")
    shutil.rmtree(path, ignore_errors=True)
    count = len(table.queries)
    rows = pa.table({"number": pa.array(range(count), pa.int64()), "v": vectors_column})
    lance.write_dataset(rows, str(path), max_rows_per_file=-(-count // 2))
    queries = table.spark.read.format("lance").load(str(path))
    numbers = counter()
    joined = partial(
        table.in_spark.nearest_join,
        queries.withColumnRenamed("v", "q"),
        ("q", "v"),
        K,
        nprobes=NPROBES,
        columns=["id"],
    )
    seconds = median_seconds(
        {
            "join": lambda: bench.drain(joined()),
            "loop": several(partial(table.search, table.theirs, numbers), LOOP_QUERIES),
            "UDF": lambda: bench.drain(pylance_frame(table, queries)),
        },
        rounds,
    )
    loop = seconds["loop"] * count / LOOP_QUERIES
    return [
        [
            f"{table.data.name}: {count:,} queries",
            *(f"{value:.1f} s" for value in (seconds["join"], loop, seconds["UDF"])),
            f"{loop / seconds['join']:.1f}",
            f"{seconds['UDF'] / seconds['join']:.1f}",
        ]
    ]


def exact(table: Table, rounds: int) -> list[list[str]]:
    """Search without the index."""
    numbers = counter()

    def in_spark() -> object:
        query = table.queries[next(numbers) % len(table.queries)]
        return table.in_spark.nearest("v", query, K, use_index=False, columns=["id"]).collect()

    def over_parquet() -> object:
        query = table.queries[next(numbers) % len(table.queries)]

        @functions.pandas_udf("float")  # type: ignore[call-overload, untyped-decorator]
        def distance(column: pd.Series) -> pd.Series:
            differences = np.stack(column.to_numpy()) - query
            return pd.Series(np.einsum("ij,ij->i", differences, differences))

        frame = table.spark.read.parquet(str(table.parquet))
        nearest_rows = frame.select("id", distance("v").alias("d")).orderBy("d").limit(K)
        return nearest_rows.collect()

    used = median_used(
        {
            client: partial(table.search, dataset, counter(), use_index=False)
            for client, dataset in {"own": table.own, "pylance": table.theirs}.items()
        },
        rounds,
    )
    spark = median_seconds({"nearest": in_spark, "parquet": over_parquet}, rounds)
    own, oracle = used["own"], used["pylance"]
    return [
        [
            f"{table.data.name}: exact",
            *(f"{one.wall * 1000:.0f} ms" for one in (own, oracle)),
            f"{oracle.wall / own.wall:.2f}",
            f"{oracle.processor / own.processor:.2f}",
            *(f"{spark[client] * 1000:.0f} ms" for client in ("nearest", "parquet")),
            f"{spark['parquet'] / spark['nearest']:.1f}",
        ]
    ]


TABLES: dict[str, tuple[Callable[[Table, int], list[list[str]]], Sequence[str]]] = {
    "build": (
        builds,
        ("build", "wall", "processor", "speed / pylance", "processor speed / pylance"),
    ),
    "query": (
        one_query,
        (
            *("one query", "in process", "pylance", "time / pylance", "processor time / pylance"),
            *("through Spark", "more than ten rows"),
        ),
    ),
    "join": (
        joins,
        ("join", "nearest_join", "pylance, loop", "pylance, UDF", "speed / loop", "speed / UDF"),
    ),
    "exact": (
        exact,
        (
            *("exact search", "in process", "pylance", "speed / pylance"),
            *("processor speed / pylance", "Spark", "Parquet, UDF", "speed / Parquet"),
        ),
    ),
}


def main() -> None:
    parser = report.argument_parser(__doc__, rounds=5, update=True)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:-1], help="parts to run")
    parser.add_argument(
        "--sizes", nargs="+", type=float, default=(1, 2, 5), help="millions of vectors of `growth`"
    )
    parser.add_argument("--dimension", type=int, default=128, help="items of vectors of `growth`")
    parser.add_argument(
        "--partitions", type=int, help="of indexes of `growth`; by default, more for more rows"
    )
    arguments = parser.parse_args()
    folder, scale, rounds = arguments.data, arguments.scale, arguments.rounds
    compared = [part for part in TABLES if part in arguments.only]
    if compared:
        compare(folder, scale, rounds, compared)
    if "curves" in arguments.only:
        rows = int(CURVE_ROWS * scale)
        recall_curves.measure(folder, rows, rounds, update=arguments.update)
    if "growth" in arguments.only:
        sizes = [int(millions * 1e6 * scale) for millions in arguments.sizes]
        vector_growth.measure(
            folder,
            sizes,
            rounds,
            dimension=arguments.dimension,
            num_partitions=arguments.partitions,
        )


def compare(folder: Path, scale: float, rounds: int, parts: Sequence[str]) -> None:
    """Run the parts in which clients take turns, and print a table of each."""
    spark = bench.session()
    lance_spark.enable(spark)
    num_queries = max(100, int(QUERIES * min(scale, 1)))
    tables = [
        Table(data._replace(rows=int(data.rows * scale)), folder, spark, num_queries)
        for data in DATA
    ]
    for part in parts:
        measure, header = TABLES[part]
        lines = [line for table in tables for line in measure(table, rounds)]
        print(f"\n{report.table(list(header), lines)}\n", flush=True)


if __name__ == "__main__":
    main()
