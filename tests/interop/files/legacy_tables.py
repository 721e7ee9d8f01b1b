"""Tables of version 0.1 that this package and pylance write, and the values at their bounds."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from lance_spark.file.open import open_file
from lance_spark.file.v0_1.reader import LegacyFileReader
from lance_spark.storage.local import LocalSource

GROUP = 25


def as_stored(table: pa.Table, path: Path) -> lance.LanceDataset:
    """Write a table with pylance; return what it reads: this is what version 0.1 can hold."""
    lance.write_dataset(table, str(path), data_storage_version="0.1")
    return lance.dataset(str(path))


def data_file(path: Path) -> LegacyFileReader:
    (file,) = (path / "data").glob("*.lance")
    reader = open_file(LocalSource(str(file)))
    assert isinstance(reader, LegacyFileReader)
    return reader


def extremes(rows: int) -> pa.Table:
    """Return values whose bounds have special rules, in runs of a batch."""
    run = np.arange(rows) // 1_024
    floats = np.choose(run % 4, [np.nan, -0.0, np.inf, run * 1.5])
    floats[::5] = np.nan
    floats[1::7] = np.where(floats[1::7] == 0, 0.0, floats[1::7])
    long = ["é" * 40, "x" * 64, "y" * 65, "\U0010ffff" * 17]
    texts = [f"{long[r % 4]}{i % 3}" if i % 2 else "b" for i, r in enumerate(run.tolist())]
    raw = [b"\xff" * 70 if r % 2 else b"\x00" * 66 + bytes([i % 251]) for i, r in enumerate(run)]
    return pa.table(
        {
            "f": floats,
            "h": np.where(np.isnan(floats), -run, floats),
            "g": floats.astype(np.float32),
            "s": pa.array([None if i % 9 == 0 else text for i, text in enumerate(texts)]),
            "n": pa.array([None] * rows, pa.string()),
            "b": pa.array(raw, pa.binary()),
            "u": pa.array(run.astype(np.uint64) + np.uint64(2**63)),
            "d": pa.array((run - 2) * 10**12).cast(pa.decimal128(38, 3)),
            "t": pa.array(run.astype(np.int32), pa.date32()),
            "z": run % 3 == 0,
        }
    )
