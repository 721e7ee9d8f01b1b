"""Columns of strings in files of their own: this package against pylance and pyarrow's Parquet,
without Spark.

    python benchmarks/strings.py [--rows 200000] [--rounds 3] [NAME ...]

Sizes are of whole files; times are of the processor, the best of the rounds. Parquet writes its
defaults, Snappy with dictionaries. "fsst" is this package asked for FSST by the column's metadata.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import corpus
from benchmarks.spark import table

FSST = {"lance-encoding:compression": "fsst"}


def seconds(action: Callable[[], object], rounds: int) -> float:
    """The least processor time of an action."""
    found = []
    for _ in range(rounds):
        started = time.process_time()
        action()
        found.append(time.process_time() - started)
    return min(found)


def write_ours(data: pa.Table, path: Path) -> None:
    from lance_spark.file.schema.schema import Schema
    from lance_spark.file.writer import FileWriter
    from lance_spark.storage.write.output import LocalOutput

    path.unlink(missing_ok=True)
    output = LocalOutput(str(path))
    writer = FileWriter(output, Schema.from_arrow(data.schema), (2, 2))
    for batch in data.to_batches():
        writer.write(batch)
    writer.finish()
    output.close()


def read_ours(path: Path) -> None:
    from lance_spark.file.reader import FileReader
    from lance_spark.storage.local import LocalSource

    reader = FileReader.open(LocalSource(str(path)))
    reader.read(reader.schema.fields, range(reader.num_rows))
    reader.close()


def write_theirs(data: pa.Table, path: Path) -> None:
    from lance.file import LanceFileWriter

    path.unlink(missing_ok=True)
    with LanceFileWriter(str(path), data.schema, version="2.2") as writer:
        for batch in data.to_batches():
            writer.write_batch(batch)


def read_theirs(path: Path) -> None:
    from lance.file import LanceFileReader

    LanceFileReader(str(path)).read_all(batch_size=65536).to_table()


def measure(array: pa.Array, folder: Path, rounds: int) -> list[float]:
    """Ratios in the order of the table's columns."""
    # Rows come in batches, as they do from Spark.
    data = pa.Table.from_batches(pa.table({"c": array}).to_batches(max_chunksize=10_000))
    asked = data.cast(pa.schema([pa.field("c", array.type, metadata=FSST)]))
    ours, theirs, fsst, parquet, zstd = (folder / name for name in "otfpz")
    write = {
        ours: seconds(lambda: write_ours(data, ours), rounds),
        theirs: seconds(lambda: write_theirs(data, theirs), rounds),
        fsst: seconds(lambda: write_ours(asked, fsst), rounds),
        parquet: seconds(lambda: pq.write_table(data, parquet), rounds),
        zstd: seconds(lambda: pq.write_table(data, zstd, compression="zstd"), rounds),
    }
    size = {path: path.stat().st_size for path in write}
    read = seconds(lambda: read_ours(ours), rounds)
    return [
        data.nbytes / 1e6,
        size[ours] / size[theirs],
        size[fsst] / size[theirs],
        size[ours] / size[parquet],
        size[ours] / size[zstd],
        write[theirs] / write[ours],
        write[parquet] / write[ours],
        write[zstd] / write[ours],
        write[theirs] / write[fsst],
        seconds(lambda: read_theirs(theirs), rounds) / read,
        seconds(lambda: read_theirs(theirs), rounds) / seconds(lambda: read_ours(theirs), rounds),
        seconds(lambda: read_theirs(ours), rounds) / read,
    ]


HEADER = [
    "column",
    "MB",
    "size / pylance",
    "fsst: size / pylance",
    "size / Parquet",
    "size / Parquet zstd",
    "write speed / pylance",
    "write speed / Parquet",
    "write speed / Parquet zstd",
    "fsst: write speed / pylance",
    "read speed / pylance, own files",
    "read speed / pylance, its file",
    "read speed / pylance, our file",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, array in corpus.columns(arguments.rows).items():
            if arguments.names and name not in arguments.names:
                continue
            found = measure(array, Path(folder), arguments.rounds)
            lines.append([name, f"{found[0]:.1f}", *(f"{ratio:.2f}" for ratio in found[1:])])
            print(" | ".join(lines[-1]), flush=True)
    print()
    print(table(HEADER, lines))


if __name__ == "__main__":
    main()
