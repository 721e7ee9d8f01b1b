"""Files of one column of strings, without Spark: this package against pylance and the Parquet files
of pyarrow.

    python benchmarks/strings.py [--rows 200000] [--rounds 3] [NAME ...]

Sizes are sizes of whole files. Times are processor times, the best of the rounds. pyarrow writes
Parquet with its defaults: Snappy and dictionaries. For "fsst", the metadata of the column asks this
package for FSST.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import corpus, report
from benchmarks.lance_files import (
    read_by_lance_spark,
    read_by_pylance,
    write_by_lance_spark,
    write_by_pylance,
)

VERSION = "2.2"
FSST = {"lance-encoding:compression": "fsst"}


def processor_seconds(action: Callable[[], object], rounds: int) -> float:
    """Return the least processor time of an action."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return min(seconds)


def measure(array: pa.Array, folder: Path, rounds: int) -> list[float]:
    """Write and read a column by each client; return the figures in the order of `HEADER`."""
    # Batches have as many rows as batches of Spark.
    data = pa.Table.from_batches(pa.table({"c": array}).to_batches(max_chunksize=10_000))
    fsst_data = data.cast(pa.schema([pa.field("c", array.type, metadata=FSST)]))
    writers: dict[str, Callable[[str], object]] = {
        "lance_spark": lambda path: write_by_lance_spark(data, path, VERSION),
        "pylance": lambda path: write_by_pylance(data, path, VERSION),
        "fsst": lambda path: write_by_lance_spark(fsst_data, path, VERSION),
        "parquet": lambda path: pq.write_table(data, path),
        "zstd": lambda path: pq.write_table(data, path, compression="zstd"),
    }
    paths = {name: folder / name for name in writers}

    def seconds_of_write(name: str) -> float:
        def write() -> None:
            paths[name].unlink(missing_ok=True)
            writers[name](str(paths[name]))

        return processor_seconds(write, rounds)

    write = {name: seconds_of_write(name) for name in writers}
    size = {name: path.stat().st_size for name, path in paths.items()}

    def seconds_of_lance_spark(file: str) -> float:
        return processor_seconds(lambda: read_by_lance_spark(str(paths[file])), rounds)

    def seconds_of_pylance(file: str) -> float:
        return processor_seconds(lambda: read_by_pylance(str(paths[file])).read_all(), rounds)

    read = seconds_of_lance_spark("lance_spark")
    return [
        data.nbytes / 1e6,
        size["lance_spark"] / size["pylance"],
        size["fsst"] / size["pylance"],
        size["lance_spark"] / size["parquet"],
        size["lance_spark"] / size["zstd"],
        write["pylance"] / write["lance_spark"],
        write["parquet"] / write["lance_spark"],
        write["zstd"] / write["lance_spark"],
        write["pylance"] / write["fsst"],
        seconds_of_pylance("pylance") / read,
        seconds_of_pylance("pylance") / seconds_of_lance_spark("pylance"),
        seconds_of_pylance("lance_spark") / read,
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
    "read speed / pylance, each its own file",
    "read speed / pylance, file of pylance",
    "read speed / pylance, file of this package",
]


def main() -> None:
    parser = report.argument_parser(__doc__, data=None, scale=False)
    parser.add_argument("names", nargs="*", help="columns; all columns by default")
    parser.add_argument("--rows", type=int, default=200_000)
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, array in corpus.columns(arguments.rows).items():
            if arguments.names and name not in arguments.names:
                continue
            figures = measure(array, Path(folder), arguments.rounds)
            lines.append([name, f"{figures[0]:.1f}", *(f"{ratio:.2f}" for ratio in figures[1:])])
            print(" | ".join(lines[-1]), flush=True)
    print()
    print(report.table(HEADER, lines))


if __name__ == "__main__":
    main()
