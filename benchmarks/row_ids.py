"""What stable row ids that are in no order cost: they stand in the manifest, four bytes for each
row.

    python -m benchmarks.row_ids [ROWS ...]

A table of fragments of a million rows is made, whose row ids are a random permutation, as sorting
by a column leaves them. All fragments share one data file. Printed are the size of the manifest,
and the seconds to open the newest version, to count its rows, and to append a row, here and by
pylance. Each is the best of three.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import encode, read_manifest
from lance_spark.table.manifest.versions import list_manifests
from lance_spark.table.rows.sequences import encode_row_ids

FRAGMENT_ROWS = 1_000_000
_TIMES = 3


def make(path: Path, rows: int) -> int:
    """Make the table; return the bytes of its manifest."""
    first = pa.table({"v": pa.array(np.zeros(FRAGMENT_ROWS, np.int8))})
    lance.write_dataset(first, path, enable_stable_row_ids=True)
    store = ObjectStore.from_uri(path)
    (location,) = list_manifests(store)
    manifest = read_manifest(store, location)
    proto = manifest.to_proto()
    ids = np.random.default_rng(0).permutation(rows).astype(np.uint64)
    (template,) = list(proto.fragments)
    del proto.fragments[:]
    for number in range(rows // FRAGMENT_ROWS):
        fragment = proto.fragments.add()
        fragment.CopyFrom(template)
        fragment.id = number
        start = number * FRAGMENT_ROWS
        fragment.inline_row_ids = encode_row_ids(ids[start : start + FRAGMENT_ROWS])
    proto.next_row_id = rows
    proto.max_fragment_id = len(proto.fragments) - 1
    data = encode(proto, manifest.index_section, manifest.transaction_section)
    (path / location.path).write_bytes(data)
    return len(data)


def seconds(run: Callable[[], object]) -> float:
    """Return the seconds of the best of some runs."""
    found = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def main(sizes: list[int]) -> None:
    """Print a line for each number of rows."""
    row = pa.table({"v": pa.array([1], pa.int8())})
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t"
            size = make(path, rows)
            text = str(path)
            runs: dict[str, Callable[[], object]] = {
                "open": lambda: open_dataset(text),  # noqa: B023
                "count": lambda: open_dataset(text).count_rows(),  # noqa: B023
                "append": lambda: write_dataset(row, text, "append"),  # noqa: B023
                "pylance open": lambda: lance.dataset(path),  # noqa: B023
                "pylance count": lambda: lance.dataset(path).count_rows(),  # noqa: B023
                "pylance append": lambda: lance.write_dataset(row, path, mode="append"),  # noqa: B023
            }
            times = ", ".join(f"{name} {seconds(run):.2f} s" for name, run in runs.items())
            print(f"{rows:,} rows: manifest {size / 2**20:.1f} MiB, {times}", flush=True)


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1:]] or [10_000_000, 100_000_000])
