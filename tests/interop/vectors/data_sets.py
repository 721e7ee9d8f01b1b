"""Vectors of five shapes, tables of them, and queries near them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]

DIMENSION = 24
DATA_SETS = ("uniform", "clustered", "normalised", "skewed", "duplicates")


def data_set(name: str, rows: int) -> Array:
    """Return float32 vectors of a shape."""
    rng = np.random.default_rng(3)
    normal = rng.normal(size=(rows, DIMENSION))
    clusters = rng.normal(size=(40, DIMENSION))[rng.integers(0, 40, rows)] * 3 + normal
    vectors = {
        "uniform": rng.random((rows, DIMENSION)),
        "clustered": clusters,
        "normalised": normal / np.linalg.norm(normal, axis=1, keepdims=True),
        "skewed": normal * rng.pareto(1.5, size=(rows, 1)),
        "duplicates": clusters[rng.integers(0, 300, rows)],
    }[name]
    return vectors.astype(np.float32)


def write(path: Path, vectors: Array, **options: Any) -> str:
    """Write a table of numbers `i` and vectors `v`, and return its URI."""
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    data = pa.table({"i": range(len(vectors)), "v": column})
    return str(lance.write_dataset(data, str(path), max_rows_per_file=2_000, **options).uri)


def queries_of(vectors: Array, count: int) -> Array:
    """Return vectors near some of a table."""
    rng = np.random.default_rng(4)
    if vectors.dtype == np.uint8:
        return vectors[rng.integers(0, len(vectors), count)] ^ rng.integers(
            0, 4, (count, vectors.shape[1])
        ).astype(np.uint8)
    near = vectors[rng.integers(0, len(vectors), count)]
    noise = rng.normal(size=near.shape) * near.std(axis=1, keepdims=True) / 3
    return (near + noise).astype(vectors.dtype)
