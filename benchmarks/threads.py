"""A service that answers from one process by many threads: this package against pylance.

    python benchmarks/threads.py [--data DIR] [--scale 1.0] [--rounds 3] [--threads 1,4,16]
        [--only WORD] [--update]

pylance has written the table, of 200,000 rows with a B-tree and an IVF_PQ index of vectors. Each
thread asks one question after the other, in turns: a row by the B-tree, 20 rows by their positions,
the 10 nearest vectors, the number of rows of a filter. Each client runs in a process of its own, and
the processes take turns. The most calls a second of the rounds count. Memory is the resident set at
the end, beyond that of the process after one call of each sort.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import report
from benchmarks.measuring import memory_of, run_in_turns, run_python
from benchmarks.tables import write_once

ROWS, DIMENSION = 200_000, 64
SECONDS = 3.0
CLIENTS = ("lance_spark", "pylance")
CODE = "import sys; from benchmarks import threads; threads.serve(*sys.argv[1:])"


def write_table(path: Path, rows: int) -> None:
    """Write the table and its indexes."""
    import lance

    rng = np.random.default_rng(0)
    vectors = rng.standard_normal(rows * DIMENSION, dtype=np.float32)
    table = pa.table(
        {
            "id": pa.array(rng.permutation(rows)),
            "a": pa.array(rng.integers(0, 1_000, rows).astype(np.int32)),
            "s": pa.array(rng.integers(0, 1 << 40, rows)).cast(pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIMENSION),
        }
    )
    dataset = lance.write_dataset(table, path, max_rows_per_file=-(-rows // 4))
    dataset.create_scalar_index("id", "BTREE")
    dataset.create_scalar_index("a", "BTREE")
    dataset.create_index("vector", "IVF_PQ", num_partitions=64, num_sub_vectors=8)


def questions(dataset: Any, rows: int) -> dict[str, Callable[[np.random.Generator], int]]:
    """Return the calls of a thread by name. Each returns its number of rows."""

    def vector(rng: np.random.Generator) -> int:
        nearest = {
            "column": "vector",
            "q": rng.standard_normal(DIMENSION, dtype=np.float32),
            "k": 10,
            "nprobes": 4,
        }
        found: pa.Table = dataset.to_table(columns=["id"], nearest=nearest)
        return found.num_rows

    return {
        "lookup": lambda rng: dataset.to_table(filter=f"id = {rng.integers(rows)}").num_rows,
        "take": lambda rng: dataset.take(rng.integers(0, rows, 20).tolist()).num_rows,
        "search": vector,
        "count": lambda rng: dataset.count_rows(f"a = {rng.integers(1_000)}"),
    }


def serve(client: str, path: str, count: str, rows: str, only: str) -> None:
    """Ask by `count` threads for some seconds, and print calls a second and bytes of memory."""
    if client == "pylance":
        import lance

        dataset = lance.dataset(path)
    else:
        import lance_spark

        dataset = lance_spark.open_dataset(path)
    calls = [
        call for name, call in questions(dataset, int(rows)).items() if not only or name == only
    ]
    for call in calls:
        call(np.random.default_rng(1))
    before = _resident()
    asked = [0] * int(count)
    ends = time.perf_counter() + SECONDS
    errors: list[BaseException] = []

    def ask(number: int) -> None:
        rng = np.random.default_rng(number)
        try:
            while time.perf_counter() < ends:
                for call in calls:
                    call(rng)
                    asked[number] += 1
        except BaseException as error:
            errors.append(error)

    started = time.perf_counter()
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(int(count))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    seconds = time.perf_counter() - started
    print(json.dumps([sum(asked) / seconds, _resident() - before]))


def _resident() -> int:
    return memory_of(Path("/proc/self"), "VmRSS")


def measure(client: str, path: Path, count: int, rows: int, only: str) -> tuple[float, int]:
    """Return the calls a second, and the bytes of memory, of a process of a client."""
    calls, memory = json.loads(run_python(CODE, client, str(path), str(count), str(rows), only))
    return calls, memory


def main() -> None:
    parser = report.argument_parser(__doc__, update=True)
    parser.add_argument("--threads", default="1,4,16", help="numbers of threads")
    parser.add_argument("--only", default="", help="the name of a question")
    arguments = parser.parse_args()
    rows = int(ROWS * arguments.scale)
    path = arguments.data / f"threads-{rows}.lance"
    write_once(path, partial(write_table, rows=rows))
    lines = []
    for count in map(int, arguments.threads.split(",")):
        actions = {
            client: partial(measure, client, path, count, rows, arguments.only)
            for client in CLIENTS
        }
        results = run_in_turns(actions, arguments.rounds, warm_up=False)
        calls = {client: max(calls for calls, _ in values) for client, values in results.items()}
        memory = {
            client: statistics.median(memory for _, memory in values)
            for client, values in results.items()
        }
        lines.append(
            [
                str(count),
                *(f"{calls[client]:,.0f}" for client in CLIENTS),
                f"{calls['lance_spark'] / calls['pylance']:.2f}",
                *(f"{memory[client] / (1 << 20):,.0f}" for client in CLIENTS),
            ]
        )
        print("| " + " | ".join(lines[-1]) + " |", flush=True)
    header = ["threads", *(f"{client}, calls/s" for client in CLIENTS), "ratio"]
    text = report.table([*header, *(f"{client}, MiB more" for client in CLIENTS)], lines)
    print(f"\n{text}")
    if arguments.update:
        report.put_into_readme("threads", text)


if __name__ == "__main__":
    main()
