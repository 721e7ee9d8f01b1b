"""What starting a read costs: a table of ten rows against a Python data source that does nothing.

    python benchmarks/start.py [--rounds 15]

Each round opens a DataFrame anew and collects it, so that the schema is asked for, the read is
planned and a task runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import pyarrow as pa

import lance_spark
from benchmarks import spark as bench


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
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

        seconds = bench.timed(
            {
                "read while it is planned": lambda: read(True, True),
                "read by a task": lambda: read(True, False),
                "without push-down": lambda: read(False, False),
                "nothing": lambda: spark.read.format("nothing").load().collect(),
            },
            arguments.rounds,
        )
        spark.stop()
    nothing = seconds["nothing"]
    print(
        bench.table(
            ["ten rows", "seconds", "times a source that does nothing"],
            [[name, f"{one:.3f}", f"{one / nothing:.2f}"] for name, one in seconds.items()],
        )
    )


if __name__ == "__main__":
    main()
