"""Tables with indexed columns of all types, and filters on them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import lance_spark

ROWS = 30_000


def rows(ids: np.ndarray, version: str = "stable") -> pa.Table:
    """Return rows with a column of each type that an index takes."""
    # Files of version 2.0 do not record which structs are null.
    no_struct = pa.array(ids % 5 == 0) if version != "2.0" else None
    rng = np.random.default_rng(3)
    f = ids * 0.5 - 1000
    f[ids % 97 == 0] = math.nan
    f[ids % 89 == 1] = -0.0
    f[ids % 83 == 2] = 0.0
    f[ids % 101 == 5] = np.copysign(math.nan, -1)
    f[ids % 103 == 6] = -math.inf
    words = np.array([f"k{number % 20_011:05}" for number in ids.tolist()])
    few = np.array(["red", "green", "blue", "", "ünï\U0001f600"])[ids % 5]
    return pa.table(
        {
            "id": ids,
            "x": rng.permutation(ids).astype(np.int32),
            "tiny": pa.array((ids % 250).astype(np.uint8), mask=ids % 7 == 0),
            "f": pa.array(f, mask=ids % 3 == 0),
            "g": pa.array(f.astype(np.float32), mask=ids % 50 == 3),
            "s": pa.array(words, mask=ids % 11 == 4),
            "few": pa.array(few, mask=ids % 13 == 0),
            "big": pa.array(words).cast(pa.large_string()),
            "raw": pa.array([word.encode() for word in words]),
            "fix": pa.array([word.encode() for word in words], pa.binary(6)),
            "flag": pa.array(ids % 1000 == 1, mask=ids % 10 == 0),
            "day": pa.array((ids // 3).astype(np.int32), pa.date32()),
            "ts": pa.array(ids * 1_000_003, pa.timestamp("us")),
            "tz": pa.array(ids * 1_000_003, pa.timestamp("us", "UTC")),
            "d": pa.array(ids - 500).cast(pa.decimal128(22, 2)),
            "nulls": pa.nulls(len(ids), pa.int64()),
            "st": pa.StructArray.from_arrays([pa.array(ids)], ["a"], mask=no_struct),
        }
    )


#: The indexed columns, and conditions on each that both clients can parse.
FILTERS: dict[str, list[str]] = {
    "id": ["id = 17", "id >= 100 AND id < 120", "id IN (3, 29999, 77777)", "id < 0"],
    "x": ["x = 5", "x > 29990", "x <= 3 AND x <> 2", "x BETWEEN 10 AND 12 OR x = 40"],
    "tiny": ["tiny = 249", "tiny IS NULL AND id < 100", "tiny IN (1, 2)"],
    "f": ["f = 0.0", "f = -0.0", "f < -1000", "f IS NULL AND id < 60", "f > 0 AND f < 10"],
    "g": ["g IS NULL", "g = -1000", "g IN (0, 5)"],
    "s": ["s = 'k00017'", "s LIKE 'k1999%'", "s >= 'k20008'", "s IN ('k00001', 'nope', '')"],
    "few": ["few = 'red' AND id < 50", "few IS NULL", "few = '' AND id > 29900"],
    "big": ["big = 'k00003'", "big < 'k00004'"],
    "flag": ["flag", "flag IS NULL AND id < 99"],
    "day": ["day = DATE '1970-02-01'", "day < DATE '1970-01-03'"],
    "d": ["d = 17", "d < -495"],
    "nulls": ["nulls IS NULL AND id < 5", "nulls = 3"],
    "st.a": ["st.a = 17", "st.a > 29990"],
}
#: More conditions, of this package alone.
OWN_FILTERS: dict[str, list[str]] = {
    "f": ["f > 13990", "isnan(f) AND id < 500", "NOT f <= 13995", "f >= 'Infinity'"],
    "raw": ["raw = X'6b3030303137'", "raw < X'6b30303033'"],
    "fix": ["fix = X'6b3030303137'", "fix IN (X'6b3030303137', X'00')"],
    "ts": [
        "ts = TIMESTAMP_NTZ'1970-01-01 00:00:17.000051'",
        "ts < TIMESTAMP_NTZ'1970-01-01 00:00:05'",
    ],
    "tz": ["tz = TIMESTAMP '1970-01-01 00:00:17.000051Z'"],
    "s": ["s LIKE 'k0001%' AND s > 'k00015'", "startswith(s, 'k2001')", "s <=> NULL"],
}


def write(
    path: Path, version: str = "stable", *, stable_row_ids: bool = False, num_rows: int = ROWS
) -> None:
    """Write a table of several fragments, some of whose rows are deleted."""
    lance.write_dataset(
        rows(np.arange(num_rows), version),
        str(path),
        max_rows_per_file=min(9_000, num_rows // 3),
        data_storage_version=version,
        enable_stable_row_ids=stable_row_ids,
    )
    lance_spark.open_dataset(str(path)).delete("id % 7 = 6 OR (id > 9000 AND id < 9600)")


def change(path: Path, version: str = "stable") -> None:
    """Change rows after the indexes were made, by both clients."""
    lance_spark.open_dataset(str(path)).delete("id % 31 = 5")
    dataset = lance.dataset(str(path))
    dataset.insert(rows(np.arange(100, 700), version))
    dataset.update({"x": "x + 7", "s": "'k99999'"}, where="id % 1000 = 1")


def ids(table: pa.Table) -> list[Any]:
    return sorted(zip(*(table[name].to_pylist() for name in ("id", "x")), strict=True))
