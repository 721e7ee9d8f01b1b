"""Rows of a table with a column for each type of index, and filters that the indexes answer."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.int64()),
        ("g", pa.int64()),
        ("s", pa.string()),
        ("t", pa.string()),
        ("l", pa.list_(pa.string())),
        ("z", pa.float64()),
        ("k", pa.string()),
        ("v", pa.list_(pa.float32(), 8)),
    ]
)


def vector(number: int) -> list[float]:
    """Return a vector of the base-7 digits of a number."""
    return [float(number // 7**place % 7) for place in range(8)]


def rows(rng: random.Random, count: int) -> pa.Table:
    ids = np.array([rng.randrange(1 << 40) for _ in range(count)])
    numbers = ids.tolist()
    return pa.table(
        {
            "id": ids,
            "x": ids % 5_000,
            "g": [None if n % 10 == 0 else n % 9 for n in numbers],
            "s": [None if n % 13 == 0 else f"word {n % 700} end" for n in numbers],
            "t": [None if n % 17 == 0 else f"every w{n % 40} v{n % 300}" for n in numbers],
            "l": [[f"t{n % 20}", f"t{n % 7}"][: n % 3] for n in numbers],
            "z": [None if n % 19 == 0 else n % 1_000 * 0.5 for n in numbers],
            "k": [f"k{n % 2_000}" for n in numbers],
            "v": [None if n % 23 == 0 else vector(n) for n in numbers],
        },
        SCHEMA,
    )


def filters(rng: random.Random) -> list[str]:
    """Return a filter that each index answers, with random values."""
    n = rng.randrange(5_000)
    return [
        rng.choice([f"x = {n}", f"x BETWEEN {n} AND {n + 20}", f"x IN ({n}, {n + 7}, 3)"]),
        rng.choice([f"g = {n % 9}", "g IS NULL", f"g IN (1, {n % 9})"]),
        rng.choice([f"contains(s, 'd {n % 700}')", f"s LIKE '%{n % 70}%'", "s IS NULL"]),
        f"array_has_any(l, ['t{n % 20}', 't{n % 11}'])",
        rng.choice([f"z > {490 + n % 10}", f"z = {n % 500}", "z IS NULL"]),
        rng.choice([f"k = 'k{n % 2_000}'", f"k IN ('k{n % 2_000}', 'k3')"]),
        f"x < {n} AND g = {n % 9} OR k = 'k{n % 2_000}'",
    ]
