"""Rows by position: this package against pylance, one thread each.

    python benchmarks/take.py [--data DIR] [--scale 1.0] [--rounds 15]

Tables of a million rows that pylance has written. Both clients have the table open and its files in
the page cache, and run in processes of their own that are bound to one processor. Both keep what
they have read of the ends of files; pylance also keeps the search structures of pages.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import spark as bench
from benchmarks.tables import WORDS

ROWS = 1_000_000
STEP = 50_000
COUNTS = (1, 1_000)

OPEN = {
    "lance_spark": "import lance_spark\ndataset = lance_spark.open_dataset(path)\n",
    "pylance": "import lance\ndataset = lance.dataset(path)\n",
}
MEASURE = """
import sys, time
import numpy as np
path, count, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
{open}
rng = np.random.default_rng(count)
total = int(sys.argv[4])
picks = [rng.integers(0, total, count).tolist() for _ in range(rounds + 2)]
took = []
for rows in picks:
    started = time.perf_counter()
    assert dataset.take(rows).num_rows == count
    took.append(time.perf_counter() - started)
print(sorted(took[2:])[rounds // 2])
"""


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


#: What a table's only column holds, and the share of the rows that it has.
TABLES: dict[str, tuple[Callable[[int, np.random.Generator], pa.Array], float]] = {
    "ints": (_ints, 1.0),
    "strings": (_strings, 1.0),
    "long strings": (_long_strings, 0.2),
    "vectors": (_vectors, 1.0),
    "lists": (_lists, 1.0),
}


def prepare(folder: Path, name: str, rows: int) -> Path:
    """Return a table, which pylance writes if it is not there."""
    import lance

    path = folder / f"take-{name.replace(' ', '_')}-{rows}.lance"
    make, _ = TABLES[name]
    schema = pa.schema({"value": make(1, np.random.default_rng(0)).type})

    def batches() -> Iterator[pa.RecordBatch]:
        rng = np.random.default_rng(2024)
        for start in range(0, rows, STEP):
            yield pa.record_batch([make(min(STEP, rows - start), rng)], schema=schema)

    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), str(path))
    return path


def measure(client: str, path: Path, count: int, rounds: int, rows: int) -> float:
    """Median seconds of taking random rows, in a fresh process on one processor."""
    arguments = [str(path), str(count), str(rounds), str(rows)]
    out = subprocess.run(
        [sys.executable, "-c", MEASURE.format(open=OPEN[client]), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {0}),
    )
    return float(out.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("demo-data/benchmarks"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    lines = []
    for name, (_, share) in TABLES.items():
        rows = max(1, int(ROWS * share * arguments.scale))
        path = prepare(arguments.data, name, rows)
        for count in COUNTS:
            seconds: dict[str, list[float]] = {client: [] for client in OPEN}
            for _ in range(3):
                for client in OPEN:
                    seconds[client].append(measure(client, path, count, arguments.rounds, rows))
            ours, theirs = (statistics.median(seconds[client]) for client in OPEN)
            lines.append(
                [
                    name,
                    str(count),
                    f"{ours * 1e3:.2f} ms",
                    f"{theirs * 1e3:.2f} ms",
                    f"{theirs / ours:.2f}",
                ]
            )
            print(" | ".join(lines[-1]), flush=True)
    print()
    print(bench.table(["table", "rows", "lance_spark", "pylance", "speed / pylance"], lines))


if __name__ == "__main__":
    main()
