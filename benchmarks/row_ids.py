"""The cost of stable row ids that are in no order. The manifest holds them, in four bytes for each
row.

    python -m benchmarks.row_ids [ROWS ...]

The benchmark makes a table whose fragments have a million rows each. The row ids are a random
permutation, as after a sort of the rows by a column. All fragments share one data file. The
benchmark prints the size of the manifest, and the seconds of this package and of pylance to open
the newest version, to count its rows and to append a row. Each time is the best of three.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from benchmarks.measuring import seconds_of
from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import encode, read_manifest
from lance_spark.table.manifest.versions import list_manifests
from lance_spark.table.rows.sequences import encode_row_ids

FRAGMENT_ROWS = 1_000_000
ROUNDS = 3


def write_table(path: Path, rows: int) -> int:
    """Write the table, and return the bytes of its manifest."""
    fragment_rows = pa.table({"v": pa.array(np.zeros(FRAGMENT_ROWS, np.int8))})
    lance.write_dataset(fragment_rows, path, enable_stable_row_ids=True)
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


def main(sizes: list[int]) -> None:
    """Print a line for each number of rows."""
    row = pa.table({"v": pa.array([1], pa.int8())})
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t"
            manifest_bytes = write_table(path, rows)
            uri = str(path)
            actions: dict[str, Callable[[], object]] = {
                "open": lambda: open_dataset(uri),  # noqa: B023
                "count": lambda: open_dataset(uri).count_rows(),  # noqa: B023
                "append": lambda: write_dataset(row, uri, "append"),  # noqa: B023
                "pylance open": lambda: lance.dataset(path),  # noqa: B023
                "pylance count": lambda: lance.dataset(path).count_rows(),  # noqa: B023
                "pylance append": lambda: lance.write_dataset(row, path, mode="append"),  # noqa: B023
            }
            times = ", ".join(
                f"{name} {min(seconds_of(action) for _ in range(ROUNDS)):.2f} s"
                for name, action in actions.items()
            )
            print(f"{rows:,} rows: manifest {manifest_bytes / 2**20:.1f} MiB, {times}", flush=True)


if __name__ == "__main__":
    main([int(rows) for rows in sys.argv[1:]] or [10_000_000, 100_000_000])
