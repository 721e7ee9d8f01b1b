"""The tables that `changes.py` changes. pylance writes each table once.

| name | table |
| --- | --- |
| `rows` | 5 million rows in five fragments: numbers, short strings, long strings |
| `deleted` | the rows of `rows`; 15 % of the rows of each fragment are deleted |
| `small` | the rows of `rows` in 200 fragments |
| `vectors` | 500,000 vectors of 64 floats in two fragments |
| `fragments-N` | N fragments of one row |
| `versions` | 1,000 versions; each version overwrote the version before |
| `appended` | 1,000 versions; each version appended to the version before |

The first four tables exist twice: without stable row ids, and with stable row ids as `rows-stable`
and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.tables import batch_reader, write_once

ROWS = 5_000_000
VECTORS = 500_000
FRAGMENTS = 5
SMALL_FRAGMENTS = 200
DIMENSIONS = 64
VERSIONS = 1_000
APPENDS = (1, 100, 10_000)
#: The number of values of column `bucket`. Rows with one value are spread over the whole table.
BUCKETS = 1_000
FILE_VERSION = "2.2"
#: Rows of a batch.
STEP = 100_000
_LARGE = ("rows", "deleted", "small", "vectors")
#: Suffixes of the names of tables without and with stable row ids.
SUFFIXES = ("", "-stable")


def names(scale: float) -> list[str]:
    """Return the names of all tables."""
    appends = [f"fragments-{scaled(count, scale)}" for count in APPENDS]
    large = [name + suffix for name in _LARGE for suffix in SUFFIXES]
    return [*large, *dict.fromkeys(appends), "versions", "appended"]


def scaled(count: int, scale: float) -> int:
    """Return a number of rows, fragments or versions for tables of a scale."""
    return max(int(count * scale), 1)


def prepare(folder: Path, scale: float) -> None:
    """Write the tables that do not exist."""
    for name in names(scale):
        write_once(folder / name, partial(_write, name, scale))


def row_to_append(number: int = 0) -> pa.Table:
    """Return a table of one row."""
    return pa.table({"id": pa.array([number], pa.int64()), "text": ["x"]})


def _write(name: str, scale: float, path: Path) -> None:
    import lance

    base_name, _, count = name.partition("-")
    stable = name.endswith("-stable")
    uri = str(path)
    rows = scaled(ROWS, scale)
    if base_name in ("rows", "deleted", "small"):
        fragments = SMALL_FRAGMENTS if base_name == "small" else FRAGMENTS
        _write_batches(row_batches(rows), uri, -(-rows // fragments), stable)
        if base_name == "deleted":
            lance.dataset(uri).delete(f"bucket < {BUCKETS * 15 // 100}")
    elif base_name == "vectors":
        rows = scaled(VECTORS, scale)
        _write_batches(vector_batches(rows), uri, -(-rows // 2), stable)
    elif base_name == "fragments":
        fragment_rows = pa.concat_tables(row_to_append(number) for number in range(int(count)))
        lance.write_dataset(
            fragment_rows, uri, max_rows_per_file=1, data_storage_version=FILE_VERSION
        )
    else:
        mode = "overwrite" if base_name == "versions" else "append"
        lance.write_dataset(row_to_append(), uri, data_storage_version=FILE_VERSION)
        for number in range(1, scaled(VERSIONS, scale)):
            lance.write_dataset(row_to_append(number), uri, mode=mode)


def _write_batches(
    batches: Iterator[pa.RecordBatch], uri: str, rows_per_file: int, stable: bool
) -> None:
    import lance

    lance.write_dataset(
        batch_reader(batches),
        uri,
        max_rows_per_file=rows_per_file,
        data_storage_version=FILE_VERSION,
        enable_stable_row_ids=stable,
    )


def row_batches(count: int, *, seed: int = 2024, step: int = STEP) -> Iterator[pa.RecordBatch]:
    """Yield rows of numbers, short strings and long strings."""
    rng = np.random.default_rng(seed)
    for start in range(0, count, step):
        rows = min(step, count - start)
        words = [pa.array(rng.integers(0, 1 << 48, rows)).cast(pa.string()) for _ in range(3)]
        yield pa.record_batch(
            {
                "id": np.arange(start, start + rows),
                "bucket": rng.integers(0, BUCKETS, rows).astype(np.int32),
                "price": rng.random(rows) * 1000,
                "name": words[0],
                "text": pc.binary_join_element_wise(*words, " "),
            }
        )


def vector_batches(count: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of vectors, with the columns `id` and `bucket`."""
    rng = np.random.default_rng(2024)
    for start in range(0, count, STEP):
        rows = min(STEP, count - start)
        values = pa.array(rng.random(rows * DIMENSIONS, dtype=np.float32))
        yield pa.record_batch(
            {
                "id": np.arange(start, start + rows),
                "bucket": rng.integers(0, BUCKETS, rows).astype(np.int32),
                "vector": pa.FixedSizeListArray.from_arrays(values, DIMENSIONS),
            }
        )
