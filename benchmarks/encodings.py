"""Decoding and encoding of every encoding of every file version: this package against pylance,
without Spark.

    python benchmarks/encodings.py [--rounds 7] [--least] [--decode] [--markdown] [--update]
    [--version 2.1] [WORD ...]

Each case is a column in a file of its own. pylance writes the file. Both clients read the whole
file, and both clients write the column. Each client runs in a process that is bound to one
processor. The clients take turns. After a read, the client reads one byte of each 4 KiB of the
arrays, because arrays of this package may be views of the mapped file.

A ratio is the time of pylance by the time of this package: above 1, this package is faster. "page"
names the encoding that pylance wrote; this package may write another encoding of the column.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np
import pyarrow as pa

from benchmarks import lance_files, page_names, pages, report
from benchmarks.lance_files import READ_ROWS
from benchmarks.measuring import run_in_turns
from benchmarks.pages import Case
from benchmarks.tables import total_bytes

CLIENTS = ("lance_spark", "pylance")
#: Rows of a batch that is written, as Spark passes them.
WRITE_ROWS = 10_000
WRITABLE_VERSIONS = ("0.1", "2.0", "2.1", "2.2")
HEADER = [
    "version",
    "encoding",
    "page",
    "MB",
    "ms",
    "decode",
    "decode, wall",
    "encode",
    "encode, wall",
    "size / pylance",
]
#: Seconds of a client's turn, without a first run that warms up.
TURN_SECONDS = 0.1
#: The most runs in a turn.
TURN_RUNS = 10


class Seconds(NamedTuple):
    """Seconds of the processor and of the clock."""

    processor: float
    wall: float


# The processes of the clients


def touch(arrays: Iterable[pa.Array]) -> None:
    """Read a byte of every 4 KiB of arrays, so that the system loads the pages of mapped files."""
    for array in arrays:
        for buffer in array.buffers():
            if buffer is not None and buffer.size:
                np.frombuffer(buffer, np.uint8)[::4096].sum()


def read_by_lance_spark(path: str, whole_table: bool) -> None:
    if not whole_table:
        touch(lance_files.read_by_lance_spark(path))
        return
    import lance_spark

    for batch in lance_spark.open_dataset(path).to_batches(batch_size=READ_ROWS):
        touch(batch.columns)


def read_by_pylance(path: str, whole_table: bool) -> None:
    if not whole_table:
        batches = lance_files.read_by_pylance(path)
    else:
        import lance

        batches = lance.dataset(path).to_batches(batch_size=READ_ROWS)
    for batch in batches:
        touch(batch.columns)


def write_by_lance_spark(table: pa.Table, path: str, version: str, whole_table: bool) -> None:
    if not whole_table:
        lance_files.write_by_lance_spark(table, path, version)
        return
    import lance_spark

    lance_spark.write_dataset(table, path, data_storage_version=version)


def write_by_pylance(table: pa.Table, path: str, version: str, whole_table: bool) -> None:
    if not whole_table:
        lance_files.write_by_pylance(table, path, version)
        return
    import lance

    lance.write_dataset(table, path, data_storage_version=version)


READERS = {"lance_spark": read_by_lance_spark, "pylance": read_by_pylance}
WRITERS = {"lance_spark": write_by_lance_spark, "pylance": write_by_pylance}


def load(path: str) -> pa.Table:
    """Return the column of an Arrow file, in the batches of the file."""
    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file).read_all()


def remove(path: str | Path) -> None:
    """Remove a file or a table, if it exists."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


@dataclass(frozen=True)
class Order:
    """A read or a write that a client's process repeats for a turn.

    Attributes
    ----------
    path : str
        The file or the table.
    whole_table : bool
        Whether `path` is a table.
    data : str or None
        The Arrow file of the column to write. None means a read.
    version : str or None
        The file version to write.
    """

    path: str
    whole_table: bool
    data: str | None = None
    version: str | None = None

    def action(self, client: str) -> Callable[[], None]:
        """Return the function that carries out the order once."""
        if self.data is None or self.version is None:
            return partial(READERS[client], self.path, self.whole_table)
        table = load(self.data)
        return partial(WRITERS[client], table, self.path, self.version, self.whole_table)


def timed_run(order: Order, action: Callable[[], None]) -> Seconds:
    """Carry out an order once, and return its seconds."""
    if order.data is not None:
        remove(order.path)
    wall, processor = time.perf_counter(), time.process_time()
    action()
    processor, wall = time.process_time() - processor, time.perf_counter() - wall
    return Seconds(processor, wall)


def serve(client: str, processor: int) -> None:
    """Carry out the orders of the standard input, and print the mean seconds of each order."""
    # The clients have not started threads yet. Threads inherit the processor of the process.
    os.sched_setaffinity(0, {processor})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    for line in sys.stdin:
        order = Order(**json.loads(line))
        action = order.action(client)
        gc.collect()
        # The turn of the other client has replaced the content of the processor's caches. In this
        # process, memory was freed. The first run restores both.
        first = timed_run(order, action)
        runs = max(1, min(TURN_RUNS, round(TURN_SECONDS / first.wall)))
        seconds = np.array([timed_run(order, action) for _ in range(runs)]).mean(axis=0)
        print(json.dumps(seconds.tolist()), flush=True)


class Client:
    """A process of a client."""

    def __init__(self, name: str, processor: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name, "--processor", str(processor)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, order: Order) -> Seconds:
        """Send an order to the process, and return its mean seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        return Seconds(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# The measurements


@dataclass(frozen=True)
class Measurement:
    """The figures of a case.

    Attributes
    ----------
    case : Case
    page : str
        The name of pylance's page.
    megabytes : float
        The size of the column in Arrow.
    read, write : dict of str to Seconds
        The seconds of each client. `write` is empty if this package cannot write the file version.
    size_ratio : float or None
        The bytes of this package by the bytes of pylance.
    """

    case: Case
    page: str
    megabytes: float
    read: dict[str, Seconds]
    write: dict[str, Seconds]
    size_ratio: float | None

    @property
    def too_slow(self) -> bool:
        """Whether this package decodes slower than the case demands."""
        return float(ratios(self.read)[0]) < self.case.at_least

    def cells(self) -> list[str]:
        """Return the cells of the table's line."""
        decode, decode_wall = ratios(self.read)
        return [
            self.case.version,
            self.case.name,
            f"`{self.page}`",
            f"{self.megabytes:.1f}",
            f"{1000 * self.read['lance_spark'].processor:.1f}",
            f"**{decode}**" if self.too_slow else decode,
            decode_wall,
            *(ratios(self.write) if self.write else ["", ""]),
            "" if self.size_ratio is None else f"{self.size_ratio:.2f}",
        ]


def ratios(seconds: dict[str, Seconds]) -> list[str]:
    """Return the seconds of pylance by the seconds of this package: processor and wall."""
    pairs = zip(seconds["lance_spark"], seconds["pylance"], strict=True)
    return [f"{by_pylance / by_lance_spark:.2f}" for by_lance_spark, by_pylance in pairs]


def write_column(case: Case, data: Path) -> float:
    """Write a case's column to an Arrow file; return the column's megabytes."""
    table = case.table()
    with pa.ipc.new_file(str(data), table.schema) as file:
        # Batches of a file have their own buffers. pylance would count the whole buffer of an
        # array for each slice of the array, and would write a page for each slice.
        file.write_table(table, max_chunksize=WRITE_ROWS)
    return table.nbytes / 1e6


def write_pylance_file(case: Case, data: Path, path: Path) -> str:
    """Write a case's column by pylance; return the name of the page, as the case expects it."""
    remove(path)
    write_by_pylance(load(str(data)), str(path), case.version, case.whole_table)
    page = page_names.page_name(path, case.version)
    if not page.startswith(case.page):
        raise SystemExit(f"{case.key}: pylance wrote {page}, not {case.page}")
    return page


def check_equal_values(case: Case, path: Path) -> None:
    """Stop the benchmark if the clients read different values."""
    if case.whole_table:
        import lance

        import lance_spark

        column = lance_spark.open_dataset(str(path)).to_table()["c"]
        expected = lance.dataset(str(path)).to_table()["c"]
    else:
        column = pa.chunked_array(lance_files.read_by_lance_spark(str(path)))
        expected = lance_files.read_by_pylance(str(path)).read_all()["c"]
    if pa.types.is_dictionary(column.type):
        column, expected = (array.cast(column.type.value_type) for array in (column, expected))
    if not column.cast(expected.type).equals(expected):
        raise SystemExit(f"{case.key}: the clients read different values")


class Bench:
    """Measures cases.

    Parameters
    ----------
    folder : Path
        The folder of the files.
    clients : dict of str to Client
    rounds : int
    average : callable
        Returns one number for the seconds of all rounds.
    encode : bool
        Whether the clients write, too.
    """

    def __init__(
        self,
        folder: Path,
        clients: dict[str, Client],
        rounds: int,
        average: Callable[[list[float]], float],
        encode: bool,
    ) -> None:
        self._folder = folder
        self._clients = clients
        self._rounds = rounds
        self._average = average
        self._encode = encode
        folder.mkdir(parents=True, exist_ok=True)

    def measure(self, case: Case) -> Measurement:
        """Read and write a case's column by both clients in turns."""
        data, path = (self._folder / f"{case.key}.{suffix}" for suffix in ("arrow", "lance"))
        megabytes = write_column(case, data)
        page = write_pylance_file(case, data, path)
        check_equal_values(case, path)
        read_order = Order(str(path), case.whole_table)
        read = self._seconds(dict.fromkeys(CLIENTS, read_order))
        write: dict[str, Seconds] = {}
        size_ratio = None
        if self._encode and case.version in WRITABLE_VERSIONS:
            written = {client: self._folder / f"{case.key}.{client}" for client in CLIENTS}
            write = self._seconds(
                {
                    client: Order(str(target), case.whole_table, str(data), case.version)
                    for client, target in written.items()
                }
            )
            size_ratio = total_bytes(written["lance_spark"]) / total_bytes(written["pylance"])
            for target in written.values():
                remove(target)
        remove(data)
        remove(path)
        return Measurement(case, page, megabytes, read, write, size_ratio)

    def _seconds(self, orders: dict[str, Order]) -> dict[str, Seconds]:
        results = run_in_turns(
            {name: partial(self._clients[name].run, order) for name, order in orders.items()},
            self._rounds,
        )
        return {
            client: Seconds(*(self._average(list(column)) for column in zip(*turns, strict=True)))
            for client, turns in results.items()
        }


def main() -> None:
    parser = report.argument_parser(
        __doc__, data="demo-data/encodings", scale=False, rounds=7, update=True
    )
    parser.add_argument("words", nargs="*", help="run the cases whose names have all words")
    parser.add_argument("--version", action="append", help="run the cases of a file version")
    parser.add_argument(
        "--least",
        action="store_true",
        help="take the least time of the rounds, not their median, on a machine with other work",
    )
    parser.add_argument("--decode", action="store_true", help="do not write")
    parser.add_argument("--processor", type=int, default=0)
    parser.add_argument("--markdown", action="store_true", help="print the table")
    parser.add_argument("--serve", choices=CLIENTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.processor)
        return
    cases = [
        case
        for case in pages.cases()
        if (not arguments.version or case.version in arguments.version)
        and all(word in case.key for word in arguments.words)
    ]
    clients = {client: Client(client, arguments.processor) for client in CLIENTS}
    average = min if arguments.least else statistics.median
    bench = Bench(arguments.data, clients, arguments.rounds, average, not arguments.decode)
    measurements = []
    for case in cases:
        measurements.append(bench.measure(case))
        print(" | ".join(measurements[-1].cells()), flush=True)
    for client in clients.values():
        client.close()
    slow = [measurement.case.key for measurement in measurements if measurement.too_slow]
    if slow:
        print(f"slower than wanted: {', '.join(slow)}")
    text = report.table(HEADER, [measurement.cells() for measurement in measurements])
    if arguments.markdown:
        print(f"\n{text}")
    if arguments.update:
        report.put_into_readme("encodings", text)


if __name__ == "__main__":
    main()
