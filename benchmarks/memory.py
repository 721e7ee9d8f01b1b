"""What a Python worker needs while it scans one fragment of 4 GiB, and how fast.

    python benchmarks/memory.py [--data DIR] [--gib 4] [--only WORD]

Fragments of vectors, of text, and of numbers, written by pylance, one file each. One task at a time
reads all rows into Spark's `noop` sink; every hundredth of a second the memory of the worker is
looked at: all that is resident, and the part that is not a mapped file, which the system cannot
take back. Linux only.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance_spark
from benchmarks import spark as bench

GIB = 1 << 30
ROWS = 1 << 15


def vectors(rng: np.random.Generator) -> pa.RecordBatch:
    """Vectors of 1,024 floats."""
    values = pa.array(rng.random(ROWS * 1024, np.float32))
    return pa.record_batch({"vector": pa.FixedSizeListArray.from_arrays(values, 1024)})


def text(rng: np.random.Generator) -> pa.RecordBatch:
    """Documents of about four kilobytes."""
    words = np.array([f"word{number} " for number in range(5_000)])
    lines = ["".join(words[rng.integers(0, len(words), 500)]) for _ in range(256)]
    return pa.record_batch({"text": [lines[number] for number in rng.integers(0, 256, ROWS)]})


def numbers(rng: np.random.Generator) -> pa.RecordBatch:
    """Eight columns."""
    return pa.record_batch({f"c{number}": rng.random(ROWS * 16) for number in range(8)})


KINDS: dict[str, Callable[[np.random.Generator], pa.RecordBatch]] = {
    "vectors": vectors,
    "text": text,
    "numbers": numbers,
}


def write(path: Path, kind: str, size: int) -> None:
    """Write one fragment of about so many bytes of values."""
    import lance

    rng = np.random.default_rng(1)
    first = KINDS[kind](rng)

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(-(-size // first.nbytes)):
            yield KINDS[kind](rng)

    reader = pa.RecordBatchReader.from_batches(first.schema, batches())
    lance.write_dataset(reader, str(path), max_rows_per_file=1 << 30, max_bytes_per_file=1 << 40)


class Watched:
    """The most that a Python worker of this machine holds, in bytes, while this is entered.

    Attributes
    ----------
    resident, own : int
    """

    def __init__(self) -> None:
        self.resident = self.own = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watched:
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
                workers = [
                    one for one in Path("/proc").iterdir() if one.name.isdigit() and _is_worker(one)
                ]
            turn += 1
            for one in workers:
                try:
                    status = (one / "status").read_text()
                except OSError:
                    continue
                facts = dict(line.split(":", 1) for line in status.splitlines())
                if "VmRSS" in facts:
                    self.resident = max(self.resident, int(facts["VmRSS"].split()[0]) * 1024)
                    self.own = max(self.own, int(facts["RssAnon"].split()[0]) * 1024)


def _is_worker(process: Path) -> bool:
    try:
        return b"pyspark.daemon" in (process / "cmdline").read_bytes()
    except OSError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("demo-data/benchmarks"))
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    spark = bench.session(cores=1)
    lance_spark.enable(spark)
    lines = []
    for kind in KINDS:
        if arguments.only not in kind:
            continue
        path = arguments.data / f"memory-{kind}-{arguments.gib:g}.lance"
        if not path.exists():
            write(path, kind, int(arguments.gib * GIB))
        whole = 1 << 62
        frame = (
            spark.read.format("lance").option("target_rows_per_partition", whole).load(str(path))
        )
        (fragment,) = lance_spark.open_dataset(str(path)).fragments
        started = time.perf_counter()
        with Watched() as seen:
            bench.drain(frame)
        seconds = time.perf_counter() - started
        lines.append(
            [
                kind,
                f"{fragment.size_bytes / GIB:.2f}",
                f"{seconds:.1f} s",
                f"{seen.resident >> 20}",
                f"{seen.own >> 20}",
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
    print(bench.table(header, lines))
    spark.stop()


if __name__ == "__main__":
    main()
