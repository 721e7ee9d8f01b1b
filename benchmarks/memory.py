"""The memory and the seconds of a Python worker that scans one fragment of 4 GiB.

    python benchmarks/memory.py [--data DIR] [--gib 4] [--only WORD]

pylance writes three tables of one fragment and one file: vectors, text and numbers. One task reads
all rows of a table into Spark's `noop` sink. Meanwhile the benchmark reads the memory of the worker
every hundredth of a second: the resident memory, and its part without mapped files. The system can
take back the memory of mapped files, and no other part. The benchmark runs on Linux only.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance_spark
from benchmarks import report
from benchmarks import spark as bench
from benchmarks.measuring import memory_of, seconds_of
from benchmarks.tables import batch_reader, write_once

GIB = 1 << 30
#: Rows of a batch.
ROWS = 1 << 15


def vectors(rng: np.random.Generator) -> pa.RecordBatch:
    """Return vectors of 1,024 floats."""
    values = pa.array(rng.random(ROWS * 1024, np.float32))
    return pa.record_batch({"vector": pa.FixedSizeListArray.from_arrays(values, 1024)})


def text(rng: np.random.Generator) -> pa.RecordBatch:
    """Return documents of about four kilobytes."""
    words = np.array([f"word{number} " for number in range(5_000)])
    documents = ["".join(words[rng.integers(0, len(words), 500)]) for _ in range(256)]
    return pa.record_batch({"text": [documents[number] for number in rng.integers(0, 256, ROWS)]})


def numbers(rng: np.random.Generator) -> pa.RecordBatch:
    """Return eight columns of numbers."""
    return pa.record_batch({f"c{number}": rng.random(ROWS * 16) for number in range(8)})


#: The function that makes the batches of each table.
TABLES: dict[str, Callable[[np.random.Generator], pa.RecordBatch]] = {
    "vectors": vectors,
    "text": text,
    "numbers": numbers,
}


def write(path: Path, name: str, num_bytes: int) -> None:
    """Write a table of one fragment, with about `num_bytes` bytes of values."""
    import lance

    make_batch = TABLES[name]
    rng = np.random.default_rng(1)
    batch_bytes = make_batch(rng).nbytes

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(-(-num_bytes // batch_bytes)):
            yield make_batch(rng)

    reader = batch_reader(batches())
    lance.write_dataset(reader, str(path), max_rows_per_file=1 << 30, max_bytes_per_file=1 << 40)


class WorkerMemory:
    """A context in which a thread reads the memory of all Python workers of this machine.

    Attributes
    ----------
    resident : int
        The most resident bytes of a worker.
    anonymous : int
        The most bytes of a worker without mapped files.
    """

    def __init__(self) -> None:
        self.resident = self.anonymous = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> WorkerMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        workers: list[Path] = []
        turn = 0
        while not self._stop.wait(0.01):
            if turn % 20 == 0:
                workers = _worker_processes()
            turn += 1
            for process in workers:
                self.resident = max(self.resident, memory_of(process, "VmRSS"))
                self.anonymous = max(self.anonymous, memory_of(process, "RssAnon"))


def _worker_processes() -> list[Path]:
    processes = (path for path in Path("/proc").iterdir() if path.name.isdigit())
    return [process for process in processes if _is_worker(process)]


def _is_worker(process: Path) -> bool:
    try:
        return b"pyspark.daemon" in (process / "cmdline").read_bytes()
    except OSError:
        return False


def main() -> None:
    parser = report.argument_parser(__doc__, scale=False, rounds=None)
    parser.add_argument("--gib", type=float, default=4, help="GiB of values in a table")
    parser.add_argument("--only", default="", help="part of the name of a table")
    arguments = parser.parse_args()
    spark = bench.session(cores=1)
    lance_spark.enable(spark)
    lines = []
    for name in TABLES:
        if arguments.only not in name:
            continue
        path = write_once(
            arguments.data / f"memory-{name}-{arguments.gib:g}.lance",
            partial(write, name=name, num_bytes=int(arguments.gib * GIB)),
        )
        # One task reads the whole table.
        reader = spark.read.format("lance").option("target_rows_per_partition", 1 << 62)
        frame = reader.load(str(path))
        (fragment,) = lance_spark.open_dataset(str(path)).fragments
        with WorkerMemory() as memory:
            seconds = seconds_of(partial(bench.drain, frame))
        lines.append(
            [
                name,
                f"{fragment.size_bytes / GIB:.2f}",
                f"{seconds:.1f} s",
                f"{memory.resident >> 20}",
                f"{memory.anonymous >> 20}",
            ]
        )
        print(" | ".join(lines[-1]), flush=True)
    print()
    header = [
        "values of 4 GiB",
        "GiB of the file",
        "seconds",
        "MiB resident at most",
        "MiB without mapped files",
    ]
    print(report.table(header, lines))
    spark.stop()


if __name__ == "__main__":
    main()
