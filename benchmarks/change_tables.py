"""The tables that `changes.py` changes, made once by pylance and kept in a folder of the caller's
choice.

| name | what |
| --- | --- |
| `rows` | 5 million rows in five fragments: numbers, short strings, long strings |
| `deleted` | the same, 15 % of the rows of each fragment deleted |
| `small` | the same in 200 fragments |
| `vectors` | 500,000 vectors of 64 floats in two fragments |
| `fragments-N` | N fragments of one row |
| `versions` | 1,000 versions, each of which overwrote the one before |
| `appended` | 1,000 versions, each of which appended to the one before |

The first four are there with and without stable row ids. A copy shares the data files with its
original: they are linked.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROWS = 5_000_000
VECTORS = 500_000
FRAGMENTS = 5
SMALL_FRAGMENTS = 200
DIMENSIONS = 64
VERSIONS = 1_000
APPENDS = (1, 100, 10_000)
#: `bucket` has one of so many values: conditions on it choose rows all over the table.
BUCKETS = 1_000
FILE_VERSION = "2.2"
_STEP = 100_000
_SHARED = ("rows", "deleted", "small", "vectors")
KINDS = ("", "-stable")


def names(scale: float) -> list[str]:
    """Return the names of all tables."""
    appends = [f"fragments-{scaled(count, scale)}" for count in APPENDS]
    both = [name + kind for name in _SHARED for kind in KINDS]
    return [*both, *dict.fromkeys(appends), "versions", "appended"]


def scaled(count: int, scale: float) -> int:
    """Return a number of rows, fragments or versions of smaller tables."""
    return max(int(count * scale), 1)


def prepare(folder: Path, scale: float) -> None:
    """Write the tables that are not there yet."""
    for name in names(scale):
        path = folder / name
        if not path.exists():
            unfinished = folder / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            _write(name, unfinished, scale)
            unfinished.rename(path)


def copied(path: Path, target: Path) -> None:
    """Copy a table; files that nobody writes to are linked."""
    for root, _, files in os.walk(path):
        folder = target / Path(root).relative_to(path)
        folder.mkdir(parents=True)
        linked = folder.name == "data"
        for file in files:
            (os.link if linked else shutil.copyfile)(Path(root) / file, folder / file)


def one_row(number: int = 0) -> pa.Table:
    """Return a row that is appended."""
    return pa.table({"id": pa.array([number], pa.int64()), "text": ["x"]})


def _write(name: str, path: Path, scale: float) -> None:
    import lance

    kind, _, count = name.partition("-")
    stable = name.endswith("-stable")
    uri = str(path)
    rows = scaled(ROWS, scale)
    if kind in ("rows", "deleted", "small"):
        fragments = SMALL_FRAGMENTS if kind == "small" else FRAGMENTS
        _write_batches(_rows(rows), uri, -(-rows // fragments), stable)
        if kind == "deleted":
            lance.dataset(uri).delete(f"bucket < {BUCKETS * 15 // 100}")
    elif kind == "vectors":
        rows = scaled(VECTORS, scale)
        _write_batches(_vectors(rows), uri, -(-rows // 2), stable)
    elif kind == "fragments":
        many = pa.concat_tables(one_row(number) for number in range(int(count)))
        lance.write_dataset(many, uri, max_rows_per_file=1, data_storage_version=FILE_VERSION)
    else:
        mode = "overwrite" if kind == "versions" else "append"
        lance.write_dataset(one_row(), uri, data_storage_version=FILE_VERSION)
        for number in range(1, scaled(VERSIONS, scale)):
            lance.write_dataset(one_row(number), uri, mode=mode)


def _write_batches(
    batches: Iterator[pa.RecordBatch], uri: str, rows_per_file: int, stable: bool
) -> None:
    import lance

    first = next(batches)

    def all_of_them() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    lance.write_dataset(
        pa.RecordBatchReader.from_batches(first.schema, all_of_them()),
        uri,
        max_rows_per_file=rows_per_file,
        data_storage_version=FILE_VERSION,
        enable_stable_row_ids=stable,
    )


def _rows(count: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(2024)
    for start in range(0, count, _STEP):
        rows = min(_STEP, count - start)
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


def _vectors(count: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(2024)
    for start in range(0, count, _STEP):
        rows = min(_STEP, count - start)
        values = pa.array(rng.random(rows * DIMENSIONS, dtype=np.float32))
        yield pa.record_batch(
            {
                "id": np.arange(start, start + rows),
                "bucket": rng.integers(0, BUCKETS, rows).astype(np.int32),
                "vector": pa.FixedSizeListArray.from_arrays(values, DIMENSIONS),
            }
        )
