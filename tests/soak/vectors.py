"""Vectors of a load: indexes, and a comparison of their answers with scans."""

from __future__ import annotations

import random
from typing import Any

from tests.soak.rows import vector

#: Codes of one byte tell items of vectors apart: so many rows are measured again, all partitions.
_EXACT = {"nprobes": 100, "refine_factor": 20}


def create_vector_index(dataset: Any, index_type: str, rng: random.Random) -> None:
    """Create an index of vectors by one of the clients."""
    dataset.create_index("v", index_type, num_partitions=rng.choice([1, 3, 8]), replace=True)


def far_rows(dataset: Any, rng: random.Random) -> list[str]:
    """Return what a client finds that are not the nearest rows."""
    q = vector(rng.randrange(1 << 22))
    nearest: dict[str, Any] = {"column": "v", "q": q, "k": 10, "metric": "l2"}
    columns = ["id", "v", "_distance"]
    scanned = dataset.to_table(columns=columns, nearest={**nearest, "use_index": False})
    table = dataset.to_table(columns=columns, nearest={**nearest, **_EXACT})
    measured = [
        sum((a - b) ** 2 for a, b in zip(own, q, strict=True)) for own in table["v"].to_pylist()
    ]
    ids = table["id"].to_pylist()
    if measured == table["_distance"].to_pylist() == scanned["_distance"].to_pylist():
        return [] if len(set(ids)) == len(ids) else [f"{q}: rows twice: {ids}"]
    return [f"{q}: rows at {table['_distance'].to_pylist()}, {scanned['_distance'].to_pylist()}"]
