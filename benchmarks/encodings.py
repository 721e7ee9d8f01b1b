"""Every encoding of every file version: this package against pylance on the same pages, without
Spark.

    python benchmarks/encodings.py [--rounds 7] [--least] [--decode] [--markdown] [--update]
    [--version 2.1] [WORD ...]

A file of one column is read whole by both clients, and the column is written by both, in processes
of their own that are bound to one processor; their rounds take turns. A byte of each page of memory
that comes out is looked at, because what this package hands out may be a view of the mapped file.
Ratios are pylance's time over this package's: above 1, this package is faster. "page" is what
pylance wrote; what this package writes of the column need not be the same encoding. ``--markdown``
prints a table, ``--update`` puts it into README.md. ``--decode`` leaves writing out; ``--least``
takes the least of the rounds, not their median, for machines with other work. WORDs choose cases,
whose names have all of them.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np
import pyarrow as pa

from benchmarks import pages
from benchmarks.pages import Case

CLIENTS = ("lance_spark", "pylance")
#: Rows of a batch, as they come from Spark and as pylance is asked for them.
WRITE_ROWS = 10_000
READ_ROWS = 65_536
WRITABLE = ("0.1", "2.0", "2.1", "2.2")
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
#: Seconds of a client's turn, after a first run that does not count, and how often it repeats what
#: it does at most.
_TURN = 0.1
_MOST = 10
_BEGIN, _END = "<!-- encodings -->\n", "<!-- end of encodings -->\n"


# The processes of the clients


def touch(array: pa.Array) -> int:
    """Look at a byte of every 4 KiB of an array."""
    return sum(
        int(np.frombuffer(buffer, np.uint8)[::4096].sum())
        for buffer in array.buffers()
        if buffer is not None and buffer.size
    )


def read_ours(path: str, whole: bool) -> int:
    if whole:
        import lance_spark

        return sum(
            touch(column)
            for batch in lance_spark.open_dataset(path).to_batches(batch_size=READ_ROWS)
            for column in batch.columns
        )
    from lance_spark.file.reader import FileReader
    from lance_spark.storage.local import LocalSource

    reader = FileReader.open(LocalSource(path))
    arrays = reader.read(reader.schema.fields, range(reader.num_rows))
    reader.close()
    return sum(touch(array) for array in arrays)


def read_theirs(path: str, whole: bool) -> int:
    if whole:
        import lance

        batches = lance.dataset(path).to_batches(batch_size=READ_ROWS)
    else:
        from lance.file import LanceFileReader

        batches = LanceFileReader(path).read_all(batch_size=READ_ROWS).to_batches()
    return sum(touch(column) for batch in batches for column in batch.columns)


def write_ours(table: pa.Table, path: str, version: str, whole: bool) -> None:
    if whole:
        import lance_spark

        lance_spark.write_dataset(table, path, data_storage_version=version)
        return
    from lance_spark.file.schema.schema import Schema
    from lance_spark.file.writer import FileWriter
    from lance_spark.storage.write.output import LocalOutput

    major, minor = version.split(".")
    output = LocalOutput(path)
    writer = FileWriter(output, Schema.from_arrow(table.schema), (int(major), int(minor)))
    for batch in table.to_batches():
        writer.write(batch)
    writer.finish()
    output.close()


def write_theirs(table: pa.Table, path: str, version: str, whole: bool) -> None:
    if whole:
        import lance

        lance.write_dataset(table, path, data_storage_version=version)
        return
    from lance.file import LanceFileWriter

    with LanceFileWriter(path, table.schema, version=version) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)


def load(path: str) -> pa.Table:
    """Return the column that a file of Arrow's holds, in its batches."""
    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file).read_all()


def remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


def serve(client: str, processor: int) -> None:
    """Do what the lines of the standard input say, and print the seconds that it took."""
    # The clients' threads are not there yet, and will be bound like this one.
    os.sched_setaffinity(0, {processor})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    read, write = {
        "lance_spark": (read_ours, write_ours),
        "pylance": (read_theirs, write_theirs),
    }[client]
    for line in sys.stdin:
        order = json.loads(line)
        path, whole = order["path"], order["whole"]
        table = load(order["data"]) if order["do"] == "write" else None

        def run(
            path: str = path, whole: bool = whole, table: pa.Table | None = table
        ) -> tuple[float, float]:
            if table is not None:
                remove(path)
            wall, used = time.perf_counter(), time.process_time()
            if table is None:
                read(path, whole)
            else:
                write(table, path, order["version"], whole)  # noqa: B023
            used, wall = time.process_time() - used, time.perf_counter() - wall
            return used, wall

        gc.collect()
        # What comes first finds the memory given back and the caches full of the other client's
        # data.
        _, first = run()
        times = max(1, min(_MOST, round(_TURN / first)))
        seconds = np.array([run() for _ in range(times)]).mean(axis=0)
        print(json.dumps(seconds.tolist()), flush=True)


class Client:
    """A process of one client."""

    def __init__(self, name: str, processor: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", name, "--processor", str(processor)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, **order: Any) -> tuple[float, float]:
        """Return seconds of the processor and of the clock."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        used, wall = json.loads(self._process.stdout.readline())
        return used, wall

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# The measurements


@dataclass(frozen=True)
class Found:
    """What was measured of one case: seconds as pairs of processor and clock."""

    case: Case
    page: str
    megabytes: float
    read: dict[str, tuple[float, float]]
    write: dict[str, tuple[float, float]]
    size: float | None

    def row(self) -> list[str]:
        def ratios(seconds: dict[str, tuple[float, float]]) -> list[str]:
            if not seconds:
                return ["", ""]
            ours, theirs = (seconds[client] for client in CLIENTS)
            return [f"{b / a:.2f}" for a, b in zip(ours, theirs, strict=True)]

        decode = ratios(self.read)
        if float(decode[0]) < self.case.at_least:
            decode[0] = f"**{decode[0]}**"
        return [
            self.case.version,
            self.case.name,
            f"`{self.page}`",
            f"{self.megabytes:.1f}",
            f"{1000 * self.read['lance_spark'][0]:.1f}",
            *decode,
            *ratios(self.write),
            "" if self.size is None else f"{self.size:.2f}",
        ]


def prepare(case: Case, folder: Path) -> tuple[Path, Path, float, str]:
    """Write a case's column for Arrow and by pylance; return both places, the column's megabytes
    and the page's name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data, path = folder / f"{case.key}.arrow", folder / f"{case.key}.lance"
    table = case.table()
    with pa.ipc.new_file(str(data), table.schema) as file:
        # Slices of one array would not do: pylance takes each for as large as the whole, and for
        # worth a page.
        file.write_table(table, max_chunksize=WRITE_ROWS)
    remove(str(path))
    write_theirs(load(str(data)), str(path), case.version, case.whole)
    page = pages.page_name(path, case.version)
    if not page.startswith(case.page):
        raise SystemExit(f"{case.key}: pylance wrote {page}, not {case.page}")
    return data, path, table.nbytes / 1e6, page


def weight(path: Path) -> int:
    if path.is_dir():
        return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    return path.stat().st_size


def check(case: Case, path: Path) -> None:
    """Both clients must read the same values."""
    if case.whole:
        import lance

        import lance_spark

        ours = lance_spark.open_dataset(str(path)).to_table()["c"]
        theirs = lance.dataset(str(path)).to_table()["c"]
    else:
        from lance.file import LanceFileReader

        from lance_spark.file.reader import FileReader
        from lance_spark.storage.local import LocalSource

        reader = FileReader.open(LocalSource(str(path)))
        ours = pa.chunked_array(reader.read(reader.schema.fields, range(reader.num_rows)))
        theirs = LanceFileReader(str(path)).read_all(batch_size=READ_ROWS).to_table()["c"]
    if pa.types.is_dictionary(ours.type):
        ours, theirs = (array.cast(ours.type.value_type) for array in (ours, theirs))
    if not ours.cast(theirs.type).equals(theirs):
        raise SystemExit(f"{case.key}: the clients read different values")


def measure(
    case: Case,
    folder: Path,
    clients: dict[str, Client],
    rounds: int,
    pick: Callable[..., float],
    encode: bool,
) -> Found:
    data, path, megabytes, page = prepare(case, folder)
    check(case, path)

    def interleaved(orders: dict[str, dict[str, Any]]) -> dict[str, tuple[float, float]]:
        seconds: dict[str, list[tuple[float, float]]] = {client: [] for client in orders}
        for turn in range(rounds + 1):
            for client, order in orders.items():
                found = clients[client](**order)
                if turn:
                    seconds[client].append(found)
        return {
            client: (pick(used for used, _ in pairs), pick(wall for _, wall in pairs))
            for client, pairs in seconds.items()
        }

    read = interleaved(
        {client: {"do": "read", "path": str(path), "whole": case.whole} for client in CLIENTS}
    )
    write, size = {}, None
    if encode and case.version in WRITABLE:
        out = {client: folder / f"{case.key}.{client}" for client in CLIENTS}
        order = {
            "do": "write",
            "data": str(data),
            "version": case.version,
            "whole": case.whole,
        }
        write = interleaved({client: {**order, "path": str(out[client])} for client in CLIENTS})
        size = weight(out["lance_spark"]) / weight(out["pylance"])
        for place in out.values():
            remove(str(place))
    for place in (data, path):
        remove(str(place))
    return Found(case, page, megabytes, read, write, size)


def markdown(found: list[Found]) -> str:
    lines = [f"| {' | '.join(HEADER)} |", f"|{'---|' * len(HEADER)}"]
    return "\n".join(lines + [f"| {' | '.join(one.row())} |" for one in found])


def update(text: str) -> None:
    """Put a table into its place in README.md."""
    path = Path(__file__).parent / "README.md"
    before, _, rest = path.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    path.write_text(f"{before}{_BEGIN}{text}\n{_END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--version", action="append")
    parser.add_argument("--data", type=Path, default=Path("demo-data/encodings"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--least", action="store_true", help="of the rounds, not their median")
    parser.add_argument("--decode", action="store_true", help="do not write")
    parser.add_argument("--processor", type=int, default=0)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--serve", choices=CLIENTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.processor)
        return
    chosen = [
        case
        for case in pages.cases()
        if (not arguments.version or case.version in arguments.version)
        and all(word in case.key for word in arguments.words)
    ]
    clients = {client: Client(client, arguments.processor) for client in CLIENTS}
    found = []
    for case in chosen:
        one = measure(
            case,
            arguments.data,
            clients,
            arguments.rounds,
            min if arguments.least else statistics.median,
            not arguments.decode,
        )
        found.append(one)
        print(" | ".join(one.row()), flush=True)
    for client in clients.values():
        client.close()
    missed = [one.case.key for one in found if "*" in one.row()[5]]
    if missed:
        print(f"slower than wanted: {', '.join(missed)}")
    if arguments.markdown:
        print(f"\n{markdown(found)}")
    if arguments.update:
        update(markdown(found))


if __name__ == "__main__":
    main()
