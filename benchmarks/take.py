"""Rows by position: this package against pylance, on one processor each.

    python benchmarks/take.py [--data DIR] [--scale 1.0] [--rounds 15]

pylance has written the tables, of a million rows each. Each client runs in a process that is bound
to one processor. Before the measurement, the client opens the table and takes rows twice, so that
the files are in the page cache. Both clients keep the metadata at the ends of files in memory.
pylance also keeps the search structures of pages.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import report
from benchmarks.measuring import run_in_turns, run_python
from benchmarks.tables import WORDS, write_once

ROWS = 1_000_000
STEP = 50_000
#: Numbers of rows that are taken at a time.
COUNTS = (1, 1_000)

#: The code by which each client opens the table.
CLIENTS = {
    "lance_spark": "import lance_spark\ndataset = lance_spark.open_dataset(path)\n",
    "pylance": "import lance\ndataset = lance.dataset(path)\n",
}
MEASURE = """
import sys, time
import numpy as np
path, count, rounds, total = sys.argv[1], *map(int, sys.argv[2:])
{open}
rng = np.random.default_rng(count)
choices = [rng.integers(0, total, count).tolist() for _ in range(rounds + 2)]
seconds = []
for rows in choices:
    start = time.perf_counter()
    assert dataset.take(rows).num_rows == count
    seconds.append(time.perf_counter() - start)
print(sorted(seconds[2:])[rounds // 2])
"""
#: Processes of each client, in turns.
PROCESSES = 3


def _ints(rows: int, rng: np.random.Generator) -> pa.Array:
    return pa.array(rng.integers(0, 1 << 40, rows))


def _strings(rows: int, rng: np.random.Generator) -> pa.Array:
    parts = [pa.array(WORDS[rng.integers(0, len(WORDS), rows)]) for _ in range(5)]
    return pc.binary_join_element_wise(*parts, " ")


def _long_strings(rows: int, rng: np.random.Generator) -> pa.Array:
    letters = rng.integers(97, 123, rows * 600, dtype=np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * 600
    return pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    )


def _vectors(rows: int, rng: np.random.Generator) -> pa.Array:
    values = pa.array(rng.random(rows * 128, dtype=np.float32))
    return pa.FixedSizeListArray.from_arrays(values, 128)


def _lists(rows: int, rng: np.random.Generator) -> pa.Array:
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(rng.integers(0, 10, rows), out=offsets[1:])
    values = pa.array(rng.integers(0, 1 << 40, int(offsets[-1])))
    return pa.ListArray.from_arrays(pa.array(offsets), values)


#: For each table, the function that makes its only column, and its number of rows as a share of ROWS.
TABLES: dict[str, tuple[Callable[[int, np.random.Generator], pa.Array], float]] = {
    "ints": (_ints, 1.0),
    "strings": (_strings, 1.0),
    "long strings": (_long_strings, 0.2),
    "vectors": (_vectors, 1.0),
    "lists": (_lists, 1.0),
}


def prepare(folder: Path, name: str, rows: int) -> Path:
    """Write a table by pylance, unless the table exists; return its path."""
    make, _ = TABLES[name]
    schema = pa.schema({"value": make(1, np.random.default_rng(0)).type})

    def batches() -> Iterator[pa.RecordBatch]:
        rng = np.random.default_rng(2024)
        for start in range(0, rows, STEP):
            yield pa.record_batch([make(min(STEP, rows - start), rng)], schema=schema)

    def write(path: Path) -> None:
        import lance

        lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), str(path))

    return write_once(folder / f"take-{name.replace(' ', '_')}-{rows}.lance", write)


def measure(client: str, path: Path, count: int, rounds: int, rows: int) -> float:
    """Return the median seconds of taking random rows, in a new process on one processor."""
    code = MEASURE.format(open=CLIENTS[client])
    return float(run_python(code, str(path), str(count), str(rounds), str(rows), processor=0))


def main() -> None:
    arguments = report.argument_parser(__doc__, rounds=15).parse_args()
    lines = []
    for name, (_, share) in TABLES.items():
        rows = max(1, int(ROWS * share * arguments.scale))
        path = prepare(arguments.data, name, rows)
        for count in COUNTS:
            seconds = run_in_turns(
                {
                    client: partial(measure, client, path, count, arguments.rounds, rows)
                    for client in CLIENTS
                },
                PROCESSES,
                warm_up=False,
            )
            lance_seconds, pylance_seconds = (
                statistics.median(seconds[client]) for client in CLIENTS
            )
            lines.append(
                [
                    name,
                    str(count),
                    f"{lance_seconds * 1e3:.2f} ms",
                    f"{pylance_seconds * 1e3:.2f} ms",
                    f"{pylance_seconds / lance_seconds:.2f}",
                ]
            )
            print(" | ".join(lines[-1]), flush=True)
    print()
    print(report.table(["table", "rows", *CLIENTS, "speed / pylance"], lines))


if __name__ == "__main__":
    main()
