"""Codes of vectors that wait on the local disk."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.errors import CorruptFileError
from lance_spark.indexes.vectors import build
from lance_spark.indexes.vectors.build import CodeRuns, EncodedVectors

SCHEMA = pa.schema([("codes", pa.list_(pa.uint8(), 3)), ("scale", pa.float32())])
ROWS = 20_000


def _part(seed: int) -> EncodedVectors:
    rng = np.random.default_rng(seed)
    codes = pa.FixedSizeListArray.from_arrays(pa.array(rng.integers(0, 9, 3 * ROWS, np.uint8)), 3)
    scale = pa.array(rng.random(ROWS, np.float32))
    numbers = rng.integers(0, 4, ROWS, np.uint32)
    ids = np.arange(seed * ROWS, (seed + 1) * ROWS, dtype=np.uint64)
    return EncodedVectors(
        numbers, ids, pa.RecordBatch.from_arrays([codes, scale], schema=SCHEMA), 0
    )


def test_runs_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_RUN_BYTES", 1)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    parts = [_part(seed) for seed in range(3)]
    with CodeRuns(4, SCHEMA) as written:
        for part in parts:
            written.add(part)
        written.finish()
        assert written.num_rows == 3 * ROWS
        for number in range(4):
            for part, (ids, codes) in zip(parts, written.partition(number), strict=True):
                is_there = part.numbers == number
                assert ids.tolist() == part.ids[is_there].tolist()
                assert codes.equals(part.codes.filter(pa.array(is_there)))
        # A read of a map would end the process.
        for file in tmp_path.rglob("*"):
            if file.is_file():
                os.truncate(file, 100)
        with pytest.raises(CorruptFileError, match="lost bytes while it was read"):
            written.partition(3)
    assert list(tmp_path.iterdir()) == []
