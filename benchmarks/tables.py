"""The tables of the benchmarks, and functions that write, copy and measure tables.

Each table is written once and stays in the folder of `--data` for the next run.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROWS = 8_000_000
VECTORS = 200_000
STEP = 500_000

WORDS = np.array(
    [
        "alpha",
        "bravo",
        "charlie",
        "delta",
        "echo",
        "foxtrot",
        "golf",
        "hotel",
        "india",
        "juliett",
        "kilo",
        "lima",
        "mike",
        "november",
        "oscar",
        "papa",
        "quebec",
        "romeo",
        "sierra",
        "tango",
        "uniform",
        "victor",
        "whiskey",
        "xray",
        "yankee",
        "zulu",
    ]
)


def _numbers(start: int, rows: int, rng: np.random.Generator) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": np.arange(start, start + rows),
            "count": rng.integers(0, 100_000, rows).astype(np.int32),
            "price": rng.random(rows) * 1000,
            "score": rng.random(rows).astype(np.float32),
        }
    )


def _strings(start: int, rows: int, rng: np.random.Generator) -> pa.RecordBatch:
    parts = [pa.array(WORDS[rng.integers(0, len(WORDS), rows)]) for _ in range(3)]
    number = pa.array(rng.integers(0, 10**6, rows)).cast(pa.string())
    return pa.record_batch({"text": pc.binary_join_element_wise(*parts, number, " ")})


def _few_words(start: int, rows: int, rng: np.random.Generator) -> pa.RecordBatch:
    return pa.record_batch({"category": pa.array(WORDS[rng.integers(0, len(WORDS), rows)])})


def _nullable(start: int, rows: int, rng: np.random.Generator) -> pa.RecordBatch:
    return pa.record_batch(
        {"maybe": pa.array(rng.integers(0, 2**40, rows), mask=rng.random(rows) < 0.1)}
    )


def _vectors(start: int, rows: int, rng: np.random.Generator) -> pa.RecordBatch:
    values = rng.random(rows * 256, dtype=np.float32)
    return pa.record_batch(
        {
            "id": np.arange(start, start + rows),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(values), 256),
        }
    )


TABLES: dict[str, tuple[Callable[[int, int, np.random.Generator], pa.RecordBatch], int, int]] = {
    "ints+floats": (_numbers, ROWS, STEP),
    "strings": (_strings, ROWS, STEP),
    "low-cardinality": (_few_words, ROWS, STEP),
    "nullable ints": (_nullable, ROWS, STEP),
    "vectors": (_vectors, VECTORS, 20_000),
}


def batches(name: str, scale: float = 1.0) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table. The rows are the same in every run."""
    make, _, step = TABLES[name]
    rows = row_count(name, scale)
    rng = np.random.default_rng(2024)
    for start in range(0, rows, step):
        yield make(start, min(step, rows - start), rng)


def row_count(name: str, scale: float) -> int:
    """Return the number of rows of a table."""
    return max(1, int(TABLES[name][1] * scale))


def prepare(folder: Path, scale: float = 1.0) -> dict[str, Path]:
    """Write each table by pylance in four fragments, unless the table exists.

    Returns the folder of each table. The table is the folder's `table.lance`.
    """
    folders = {name: folder / f"{name.replace(' ', '_')}-{scale:g}" for name in TABLES}
    for name, root in folders.items():
        write_four_fragments(root / "table.lance", batches(name, scale), row_count(name, scale))
    return folders


def write_four_fragments(path: Path, rows: Iterator[pa.RecordBatch], count: int) -> None:
    """Write a table by pylance in four fragments, unless the table exists."""
    import lance

    write_once(
        path,
        lambda unfinished: lance.write_dataset(
            batch_reader(rows), str(unfinished), max_rows_per_file=-(-count // 4)
        ),
    )


def write_once(path: Path, write: Callable[[Path], object]) -> Path:
    """Write a table, unless the table exists; return its path.

    `write` gets a temporary path, so that an interrupted write leaves no table at `path`.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        write(unfinished)
        unfinished.rename(path)
    return path


def batch_reader(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    """Return a reader of batches. Its schema is the schema of the first batch."""
    first = next(batches)
    return pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))


def copy_table(source: Path, target: Path) -> None:
    """Copy a Lance table.

    Files of data and of indexes are hard links, because no client changes such a file.
    """
    for root, _, files in os.walk(source):
        folder = target / Path(root).relative_to(source)
        folder.mkdir(parents=True)
        has_links = folder.name == "data" or folder.parent.name == "_indices"
        copy_file = os.link if has_links else shutil.copyfile
        for file in files:
            copy_file(Path(root) / file, folder / file)


def total_bytes(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
