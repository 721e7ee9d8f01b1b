"""The tables that the benchmarks read and write, made once and kept in a folder of the caller's
choice.
"""

from __future__ import annotations

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


def _low(start: int, rows: int, rng: np.random.Generator) -> pa.RecordBatch:
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
    "low-cardinality": (_low, ROWS, STEP),
    "nullable ints": (_nullable, ROWS, STEP),
    "vectors": (_vectors, VECTORS, 20_000),
}


def batches(name: str, scale: float = 1.0) -> Iterator[pa.RecordBatch]:
    """The rows of a table, the same in every run."""
    make, rows, step = TABLES[name]
    rows = max(1, int(rows * scale))
    rng = np.random.default_rng(2024)
    for start in range(0, rows, step):
        yield make(start, min(step, rows - start), rng)


def schema(name: str) -> pa.Schema:
    """The Arrow schema of a table."""
    make, _, _ = TABLES[name]
    return make(0, 1, np.random.default_rng(0)).schema


def prepare(folder: Path, scale: float = 1.0) -> dict[str, Path]:
    """Write each table as a Lance table (by pylance, four fragments) and as an Arrow IPC file;
    return the folders.
    """
    import lance

    made = {}
    for name in TABLES:
        root = folder / f"{name.replace(' ', '_')}-{scale:g}"
        made[name] = root
        if (root / "done").exists():
            continue
        root.mkdir(parents=True, exist_ok=True)
        rows = max(1, int(TABLES[name][1] * scale))
        lance.write_dataset(
            pa.RecordBatchReader.from_batches(schema(name), batches(name, scale)),
            str(root / "table.lance"),
            mode="overwrite",
            max_rows_per_file=-(-rows // 4),
        )
        (root / "done").touch()
    return made
