"""Tables of vectors in clusters, and searches of them by this package and by pylance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float32]
#: Rows of an answer, and partitions that a search reads unless it says another number.
K, NPROBES = 10, 20
#: Rows that are generated at a time.
_CHUNK_ROWS, _CLUSTERS = 125_000, 2_000


def vectors(rows: int, dimension: int, seed: int) -> Iterator[Floats]:
    """Yield vectors of clusters, whose sizes and widths differ. The clusters have no seed."""
    shape = np.random.default_rng(dimension)
    centers = shape.standard_normal((_CLUSTERS, dimension)).astype(np.float32)
    widths = shape.uniform(0.2, 0.9, _CLUSTERS).astype(np.float32)
    shares = shape.pareto(2.0, _CLUSTERS) + 0.1
    random = np.random.default_rng(seed)
    for start in range(0, rows, _CHUNK_ROWS):
        count = min(_CHUNK_ROWS, rows - start)
        chosen = random.choice(_CLUSTERS, count, p=shares / shares.sum())
        noise = random.standard_normal((count, dimension), np.float32)
        yield centers[chosen] + noise * widths[chosen, None]


def batches(rows: int, dimension: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table: a number `id` and a vector `v`."""
    first = 0
    for part in vectors(rows, dimension, seed=1):
        column = pa.FixedSizeListArray.from_arrays(pa.array(part.ravel()), dimension)
        ids = pa.array(np.arange(first, first + len(part)))
        yield pa.record_batch([ids, column], names=["id", "v"])
        first += len(part)


def queries_of(count: int, dimension: int) -> Floats:
    """Return vectors of the same clusters that are not in a table, one a row."""
    return np.concatenate(list(vectors(count, dimension, seed=2)))


def nearest(query: Floats, **keys: Any) -> dict[str, Any]:
    """Return the argument `nearest` of both clients."""
    return {"column": "v", "q": query, "k": K, "nprobes": NPROBES, **keys}


def search(dataset: Any, query: Floats, **keys: Any) -> list[int]:
    """Return the ids of the nearest rows, by a dataset of either client."""
    answer = dataset.to_table(columns=["id", "_distance"], nearest=nearest(query, **keys))
    return answer["id"].to_pylist()  # type: ignore[no-any-return]


def searches(dataset: Any, queries: Floats, **keys: Any) -> list[list[int]]:
    """Return the ids of the nearest rows of each query, one query after the other."""
    return [search(dataset, query, **keys) for query in queries]


def recall(answers: list[list[int]], expected: list[list[int]]) -> float:
    """Return the part of the expected rows that are in the answers."""
    shared = sum(len(set(ids) & set(best)) for ids, best in zip(answers, expected, strict=True))
    return shared / sum(map(len, expected))
