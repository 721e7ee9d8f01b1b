"""Reads of whole tables without Spark: this package against pylance, on one processor each.

    python benchmarks/decode.py [--data DIR] [--scale 1.0] [--rounds 3]

Each client runs in a process that is bound to one processor.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import report, tables
from benchmarks.measuring import run_in_turns, run_python

#: The function `read` of each client.
CLIENTS = {
    "lance_spark": (
        "import lance_spark\n"
        "def read(): return sum(batch.num_rows for batch in "
        "lance_spark.open_dataset(path).to_batches())\n"
    ),
    "pylance": (
        "import lance\n"
        "def read(): return sum(batch.num_rows for batch in "
        "lance.dataset(path).to_batches(batch_size=65536))\n"
    ),
}
MEASURE = """
import sys, time
path, rounds = sys.argv[1], int(sys.argv[2])
{read}
read()
seconds = []
for _ in range(rounds):
    start = time.perf_counter()
    read()
    seconds.append(time.perf_counter() - start)
print(sorted(seconds)[rounds // 2])
"""
#: Processes of each client, in turns.
PROCESSES = 3


def measure(client: str, path: Path, rounds: int) -> float:
    """Return the median seconds of a full read in a new process on one processor."""
    code = MEASURE.format(read=CLIENTS[client])
    return float(run_python(code, str(path), str(rounds), processor=0))


def main() -> None:
    arguments = report.argument_parser(__doc__).parse_args()
    lines = []
    for name, folder in tables.prepare(arguments.data, arguments.scale).items():
        path = folder / "table.lance"
        seconds = run_in_turns(
            {client: partial(measure, client, path, arguments.rounds) for client in CLIENTS},
            PROCESSES,
            warm_up=False,
        )
        lance_seconds, pylance_seconds = (statistics.median(seconds[client]) for client in CLIENTS)
        ratio = f"{pylance_seconds / lance_seconds:.2f}"
        lines.append([name, f"{lance_seconds:.3f} s", f"{pylance_seconds:.3f} s", ratio])
        print(" | ".join(lines[-1]), flush=True)
    print()
    print(report.table(["table", *CLIENTS, "speed / pylance"], lines))


if __name__ == "__main__":
    main()
