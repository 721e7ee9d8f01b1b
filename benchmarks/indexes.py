"""Queries that an index answers: with the index and without, pylance alone, and Spark's Parquet.

    python benchmarks/indexes.py [--data DIR] [--scale 1.0] [--rounds 5] [--builds]

One table has ten million rows of numbers and words in ten fragments, another one a million rows of
lists and texts. The same rows are in Parquet. "index" and "no index" are queries by Spark with
`lance_spark.enable(spark)`; "in process" is `Dataset.to_table`, and "pylance" the same query by
pylance, both without Spark. All take turns. The processor time of "in process" and "pylance" is
that of their process and all its threads.

pylance builds the indexes, unless they exist. With `--builds`, both clients build them, each in a
process of its own that is bound to one processor.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, functions

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance_spark
from benchmarks import report
from benchmarks import spark as bench
from benchmarks.measuring import median_seconds, run_python

FRAGMENTS = 10
TAGS, WORDS = 5_000, 20_000
SIZES = {"numbers": 10_000_000, "documents": 1_000_000}
#: The indexed columns of each table.
INDEXES = {
    "numbers": {"id": "BTREE", "word": "BTREE", "g": "BITMAP"},
    "documents": {"tags": "LABEL_LIST", "title": "NGRAM", "text": "INVERTED"},
}
#: Numbers of keys of the small side of a join.
KEYS = (10, 100, 1_000)


class Query(NamedTuple):
    """A query of a table.

    Attributes
    ----------
    table : str
    condition : callable
        Takes the number of rows, and returns the condition in Spark's SQL.
    of_pylance : callable, optional
        The same in pylance's language, if it differs.
    """

    table: str
    condition: Callable[[int], str]
    of_pylance: Callable[[int], str] | None = None


QUERIES = {
    "one integer": Query("numbers", lambda rows: f"id = {rows // 3}"),
    "one string": Query("numbers", lambda rows: f"word = 'word {rows // 3:09}'"),
    "a range of 0.1 %": Query(
        "numbers", lambda rows: f"id >= {rows // 2} AND id < {rows // 2 + rows // 1000}"
    ),
    "IN of 1,000": Query(
        "numbers", lambda rows: f"id IN ({', '.join(map(str, range(5, rows, rows // 1000)))})"
    ),
    "a prefix": Query("numbers", lambda rows: f"word LIKE 'word {rows // 3000:06}%'"),
    "one of 5,000 values": Query("numbers", lambda _: "g = 77"),
    "an item of lists": Query(
        "documents",
        lambda _: "array_contains(tags, 'tag 77')",
        lambda _: "array_has(tags, 'tag 77')",
    ),
    "a part of texts": Query("documents", lambda rows: f"contains(title, '{rows // 3:07}')"),
}
#: Full-text queries, of a word in every second text and of a word in few.
WORD_QUERIES = {"a common word": "w1", "a rare word": f"w{WORDS - 3}"}
BUILD = """
import sys, time
path, column, index_type = sys.argv[1:]
{open}
dataset.create_scalar_index(column, index_type, replace=True)
# `lance_spark` returns the new version. A build from the old one would conflict with the first.
{open}
begun = time.process_time()
dataset.create_scalar_index(column, index_type, replace=True)
print(time.process_time() - begun)
"""
OPEN = {
    "lance_spark": "import lance_spark; dataset = lance_spark.open_dataset(path)",
    "pylance": "import lance; dataset = lance.dataset(path)",
}


def numbers(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield rows whose columns are in no order."""
    rng = np.random.default_rng(11)
    ids = rng.permutation(rows)
    step = rows // FRAGMENTS
    for start in range(0, rows, step):
        part = ids[start : start + step]
        words = pa.array(np.char.mod("word %09d", part))
        columns = [part, words, rng.integers(0, 5_000, len(part)), rng.random(len(part))]
        yield pa.record_batch(list(map(pa.array, columns)), names=["id", "word", "g", "price"])


def documents(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of lists and texts. The frequencies of words differ as in a language."""
    rng = np.random.default_rng(12)
    ids = rng.permutation(rows)
    vocabulary = pa.array([f"w{number}" for number in range(WORDS)])
    tags = pa.array([f"tag {number}" for number in range(TAGS)])
    step = rows // FRAGMENTS
    for start in range(0, rows, step):
        part = ids[start : start + step]
        chosen = np.minimum(np.exp(rng.random(10 * len(part)) * np.log(WORDS)), WORDS - 1)
        columns = [
            pa.array(part),
            pa.ListArray.from_arrays(
                np.arange(0, 3 * len(part) + 1, 3, dtype=np.int32),
                tags.take(pa.array(rng.integers(0, TAGS, 3 * len(part)))),
            ),
            pa.array(np.char.mod("title %07d", part)),
            pc.binary_join(
                pa.ListArray.from_arrays(
                    np.arange(0, 10 * len(part) + 1, 10, dtype=np.int32),
                    vocabulary.take(pa.array(chosen.astype(np.int64))),
                ),
                " ",
            ),
        ]
        yield pa.record_batch(columns, names=["id", "tags", "title", "text"])


def prepare(folder: Path, batches: Iterator[pa.RecordBatch], rows: int) -> None:
    """Write the table in both formats, unless an earlier run wrote it."""
    done = folder / "done"
    if done.exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    first = next(batches)
    reader = pa.RecordBatchReader.from_batches(
        first.schema, (batch for source in ([first], batches) for batch in source)
    )
    lance.write_dataset(reader, str(folder / "table.lance"), max_rows_per_file=rows // FRAGMENTS)
    spark = bench.session()
    frame = spark.read.format("lance").load(str(folder / "table.lance"))
    frame.repartition(FRAGMENTS).write.parquet(str(folder / "parquet"))
    done.touch()


def build(path: Path, table: str) -> list[list[str]]:
    """Build the indexes of a table by both clients; the last stay."""
    lines = []
    for column, index_type in INDEXES[table].items():
        seconds = {
            client: float(
                run_python(
                    BUILD.format(open=OPEN[client]), str(path), column, index_type, processor=0
                )
            )
            for client in ("pylance", "lance_spark")
        }
        times = [f"{seconds[client]:.2f} s" for client in ("lance_spark", "pylance")]
        ratio = f"{seconds['lance_spark'] / seconds['pylance']:.2f}"
        lines.append([f"{index_type} of {column}", *times, ratio])
        print(" | ".join(lines[-1]), flush=True)
    return lines


def build_missing(path: Path, table: str) -> None:
    """Build the indexes of a table by pylance, unless they exist."""
    existing = {index.name for index in lance.dataset(str(path)).describe_indices()}
    for column, index_type in INDEXES[table].items():
        if f"{column}_idx" not in existing:
            lance.dataset(str(path)).create_scalar_index(column, index_type)  # type: ignore[arg-type]


def collect(frame: DataFrame, text: str) -> Sequence[object]:
    """Run a query. A frame that was planned before would have its rows already."""
    return frame.where(text).collect()


def ten(frame: DataFrame) -> Sequence[object]:
    """Run a query of ten rows."""
    return frame.limit(10).collect()


def joined(frame: DataFrame, keys: DataFrame) -> Sequence[object]:
    """Join a table with the few rows of another one that a filter leaves."""
    # Spark does not know the size of a DataFrame that Python made.
    small = functions.broadcast(keys.where("n >= 0"))
    return frame.join(small, frame.id == keys.k).collect()


class Report:
    """The lines of the table of queries."""

    HEADER = (
        *("query", "rows", "index, ms", "in process, ms", "pylance, ms", "speed / no index"),
        *("speed / Parquet", "time / (3 pylance + ten rows)", "processor time / pylance"),
    )

    def __init__(self, rounds: int, seconds_of_ten: float) -> None:
        self.rounds = rounds
        self.seconds_of_ten = seconds_of_ten
        self.lines: list[list[str]] = []

    def add(self, name: str, actions: dict[str, Callable[[], Any]]) -> None:
        """Measure the actions of a query in turns, and print a line."""
        counts = {len(action()) for action in actions.values()}
        if len(counts) > 1:
            raise SystemExit(f"{name}: the clients find {counts} rows")
        seconds = median_seconds(actions, self.rounds)
        used = {
            client: processor_seconds(actions[client], self.rounds)
            for client in ("in process", "pylance")
            if client in actions
        }
        index, oracle = seconds.get("index"), seconds.get("pylance")

        def shown(client: str) -> str:
            return f"{seconds[client] * 1000:.1f}" if client in seconds else ""

        def ratio(client: str) -> str:
            return f"{seconds[client] / index:.1f}" if index and client in seconds else ""

        goal = f"{index / (3 * oracle + self.seconds_of_ten):.2f}" if index and oracle else ""
        cost = f"{used['in process'] / used['pylance']:.2f}" if len(used) == 2 else ""
        self.lines.append(
            [
                *(name, f"{counts.pop():,}", *map(shown, ("index", "in process", "pylance"))),
                *(ratio("no index"), ratio("parquet"), goal, cost),
            ]
        )
        print(" | ".join(self.lines[-1]), flush=True)


def processor_seconds(action: Callable[[], object], rounds: int) -> float:
    """Return the median processor time of an action in this process."""
    used = []
    for _ in range(rounds):
        begun = time.process_time()
        action()
        used.append(time.process_time() - begun)
    return statistics.median(used)


def main() -> None:
    parser = report.argument_parser(__doc__, rounds=5)
    parser.add_argument("--builds", action="store_true", help="build all indexes by both clients")
    arguments = parser.parse_args()
    spark = bench.session()
    lance_spark.enable(spark)
    counts = {name: int(count * arguments.scale) for name, count in SIZES.items()}
    folders = {name: arguments.data / f"indexes-{name}-{count}" for name, count in counts.items()}
    built = []
    for name, make in (("numbers", numbers), ("documents", documents)):
        prepare(folders[name], make(counts[name]), counts[name])
        path = folders[name] / "table.lance"
        if arguments.builds:
            built += build(path, name)
        else:
            build_missing(path, name)
    paths = {name: str(folder / "table.lance") for name, folder in folders.items()}
    frames = {
        name: {
            "index": spark.read.format("lance").load(path),
            "no index": spark.read.format("lance").option("use_scalar_index", "false").load(path),
            "parquet": spark.read.parquet(str(folders[name] / "parquet")),
        }
        for name, path in paths.items()
    }
    ten_rows = partial(ten, frames["numbers"]["index"])
    seconds_of_ten = median_seconds({"ten": ten_rows}, arguments.rounds)["ten"]
    lines = Report(arguments.rounds, seconds_of_ten)
    datasets = {name: lance_spark.open_dataset(path) for name, path in paths.items()}
    oracles = {name: lance.dataset(path) for name, path in paths.items()}
    for query_name, (table, condition, of_pylance) in QUERIES.items():
        text = condition(counts[table])
        other = (of_pylance or condition)(counts[table])
        actions: dict[str, Callable[[], Any]] = {
            client: partial(collect, frame, text) for client, frame in frames[table].items()
        }
        actions["in process"] = partial(datasets[table].to_table, filter=text)
        actions["pylance"] = partial(oracles[table].to_table, filter=other)
        lines.add(query_name, actions)
    for count in KEYS:
        step = counts["numbers"] // count
        pairs = [(number * step, number) for number in range(count)]
        keys = spark.createDataFrame(pairs, ["k", "n"])
        lines.add(
            f"join of {count:,} keys",
            {client: partial(joined, frame, keys) for client, frame in frames["numbers"].items()},
        )
    for query_name, word in WORD_QUERIES.items():
        lines.add(
            query_name,
            {
                "in process": partial(
                    datasets["documents"].to_table, ["id"], full_text_query=word, limit=10
                ),
                "pylance": partial(
                    oracles["documents"].to_table, ["id"], full_text_query=word, limit=10
                ),
            },
        )
    print(f"\nA query of ten rows takes {seconds_of_ten * 1000:.0f} ms.\n")
    print(report.table(list(Report.HEADER), lines.lines))
    if built:
        print()
        print(report.table(["index", "lance_spark", "pylance", "time / pylance"], built))


if __name__ == "__main__":
    main()
