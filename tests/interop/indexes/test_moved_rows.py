"""Indexes that hold the old addresses of rows that a compaction of pylance moved."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark

FILTERS = ["x = 5", "x = 2999", "x > 2990", "x < 3 OR x = 1500", "x = 3100", "x IN (1, 2, 950)"]


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
@pytest.mark.parametrize("who", ["own", "pylance"])
def test_rows_are_found_by_their_new_addresses(kind: str, who: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")

    def compare() -> None:
        dataset = lance_spark.open_dataset(path)
        for text in FILTERS:
            expected = dataset.to_table(filter=text, use_scalar_index=False)
            assert dataset.to_table(filter=text) == expected
            assert lance.dataset(path).count_rows(text) == len(expected)

    lance.write_dataset(pa.table({"x": range(3000)}), path, max_rows_per_file=500)
    if who == "own" and kind != "ZONEMAP":
        lance_spark.open_dataset(path).create_scalar_index("x", kind)
    else:
        lance.dataset(path).create_scalar_index("x", kind)
    lance.dataset(path).delete("x % 6 = 1 OR (x < 900 AND x > 100)")
    lance.dataset(path).optimize.compact_files(
        target_rows_per_fragment=1000, defer_index_remap=True
    )
    compare()
    if kind != "ZONEMAP":
        assert "  index: " in lance_spark.open_dataset(path).explain(filter="x = 5")
    lance.write_dataset(pa.table({"x": range(3000, 3500)}), path, mode="append")
    # The first segment gets the new fragments, and keeps the old addresses.
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    compare()
