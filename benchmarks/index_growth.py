"""How the time and the memory of a BTREE build grow with the rows of a segment.

    python benchmarks/index_growth.py [--data DIR] [--scale 1.0]

One task builds one segment, in a process of its own. The values are in no order. The files of a
case are deleted before the next; the largest needs about 3 GB.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import report
from benchmarks.measuring import run_python

ROWS = (1_000_000, 10_000_000, 50_000_000)
COLUMNS = ("id", "word")
_BATCH_ROWS, _FRAGMENT_ROWS = 500_000, 5_000_000
BUILD = """
import sys, time
from pathlib import Path
import lance_spark
from benchmarks.measuring import memory_of
from lance_spark.mutations.indexes.create import IndexRequest, plan_index
path, column = sys.argv[1:]
dataset = lance_spark.open_dataset(path)
request = IndexRequest(column=column, index_type="BTREE", options={})
(task,) = plan_index(dataset._table, request)
begun, wall = time.process_time(), time.perf_counter()
task.run()
print(time.process_time() - begun, time.perf_counter() - wall,
      # `getrusage` would count the memory of the process that started this one.
      memory_of(Path("/proc/self"), "VmHWM") / 2**20)
"""


def batches(column: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of one column."""
    for start in range(0, rows, _BATCH_ROWS):
        # Numbers that do not repeat, and lie anywhere.
        numbers = np.arange(start, min(start + _BATCH_ROWS, rows)) * 7_368_787 % 1_000_000_007
        words = column == "word"
        values = pa.array(np.char.mod("word %010d", numbers)) if words else pa.array(numbers)
        yield pa.record_batch([values], names=[column])


def main() -> None:
    arguments = report.argument_parser(__doc__, rounds=1).parse_args()
    lines = []
    for column in COLUMNS:
        for count in ROWS:
            rows = int(count * arguments.scale)
            path = arguments.data / "index-growth.lance"
            shutil.rmtree(path, ignore_errors=True)
            schema = next(batches(column, 1)).schema
            reader = pa.RecordBatchReader.from_batches(schema, batches(column, rows))
            lance.write_dataset(reader, str(path), max_rows_per_file=_FRAGMENT_ROWS)
            try:
                cpu, wall, memory = map(float, run_python(BUILD, str(path), column).split())
            finally:
                shutil.rmtree(path, ignore_errors=True)
            per_row = cpu / rows * 1e6
            texts = [f"{cpu:.1f}", f"{wall:.1f}", f"{per_row:.2f}", f"{memory:.0f}"]
            lines.append([column, f"{rows:,}", *texts])
            print(" | ".join(lines[-1]), flush=True)
    header = ["column", "rows", "processor time, s", "time, s", "processor time per row, µs"]
    print("\n" + report.table([*header, "peak memory, MiB"], lines))


if __name__ == "__main__":
    main()
