"""The cost of starting a read: a table of ten rows, and a Python data source of ten rows.

    python benchmarks/start.py [--rounds 15]

Each round opens a new DataFrame and collects its rows. In each round, Spark asks for the schema,
plans the read and runs a task.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pyarrow as pa

import lance_spark
from benchmarks import report
from benchmarks import spark as bench
from benchmarks.measuring import median_seconds


def main() -> None:
    parser = report.argument_parser(__doc__, data=None, scale=False, rounds=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "ten.lance")
        lance_spark.write_dataset(pa.table({"id": list(range(10))}), path)
        spark = bench.session()
        lance_spark.enable(spark)

        def read(pushdown: bool, local: bool) -> None:
            spark.conf.set("spark.lance.pushdown.enabled", str(pushdown).lower())
            spark.conf.set("spark.lance.pushdown.local", str(local).lower())
            spark.read.format("lance").load(path).collect()

        seconds = median_seconds(
            {
                "read while it is planned": lambda: read(True, True),
                "read by a task": lambda: read(True, False),
                "without push-down": lambda: read(False, False),
                "nothing": lambda: spark.read.format("nothing").load().collect(),
            },
            arguments.rounds,
        )
        spark.stop()
    least = seconds["nothing"]
    header = ["ten rows", "seconds", "times a source that does nothing"]
    lines = [[name, f"{median:.3f}", f"{median / least:.2f}"] for name, median in seconds.items()]
    print(report.table(header, lines))


if __name__ == "__main__":
    main()
