"""Reading without Spark: this package against pylance, one thread each.

    python benchmarks/decode.py [--data DIR] [--scale 1.0] [--rounds 3]

Both clients run in processes of their own that are bound to one processor.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import spark as bench
from benchmarks import tables

READ = {
    "lance_spark": (
        "import lance_spark\n"
        "def run(): return sum(b.num_rows for b in lance_spark.open_dataset(path).to_batches())\n"
    ),
    "pylance": (
        "import lance\n"
        "def run(): return sum(b.num_rows for b in "
        "lance.dataset(path).to_batches(batch_size=65536))\n"
    ),
}
MEASURE = """
import sys, time
path = sys.argv[1]
{read}
run()
best = []
for _ in range(int(sys.argv[2])):
    started = time.perf_counter()
    run()
    best.append(time.perf_counter() - started)
print(sorted(best)[len(best) // 2])
"""


def measure(client: str, path: Path, rounds: int) -> float:
    """Median seconds of a full read in a fresh process on one processor."""
    out = subprocess.run(
        [sys.executable, "-c", MEASURE.format(read=READ[client]), str(path), str(rounds)],
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
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    lines = []
    for name, folder in tables.prepare(arguments.data, arguments.scale).items():
        seconds = {client: [] for client in READ}
        for _ in range(3):
            for client in READ:
                seconds[client].append(measure(client, folder / "table.lance", arguments.rounds))
        ours, theirs = (statistics.median(seconds[client]) for client in READ)
        lines.append([name, f"{ours:.3f} s", f"{theirs:.3f} s", f"{theirs / ours:.2f}"])
        print(" | ".join(lines[-1]), flush=True)
    print()
    print(bench.table(["table", "lance_spark", "pylance", "speed / pylance"], lines))


if __name__ == "__main__":
    main()
