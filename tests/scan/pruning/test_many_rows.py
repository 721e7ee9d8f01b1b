"""The number of rows that the segments of an index leave together is limited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.scan.pruning import candidates

TEXT = "a BETWEEN 100 AND 119"


def test_segments_past_the_limit_are_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "t")
    for start in range(4):
        # The values of each fragment are spread over all of them.
        part = pa.table({"a": np.arange(2000) * 4 % 2000 + start})
        lance_spark.write_dataset(part, path, mode="append" if start else "create")
    dataset = lance_spark.open_dataset(path).create_scalar_index("a", "BTREE", num_segments=4)
    expected = dataset.to_table(filter=TEXT, use_scalar_index=False)
    counts = []
    for limit in (1 << 20, 45, 25, 0):
        monkeypatch.setattr(candidates, "_MAX_ROWS", limit)
        slices = [piece for task in dataset.plan(filter=TEXT) for piece in task.slices]
        counts.append(sum(piece.num_rows for piece in slices))
        assert dataset.to_table(filter=TEXT) == expected
    assert counts[0] == len(expected) == 80
    assert counts[1:] == [40 + 2 * 2000, 20 + 3 * 2000, 4 * 2000]
