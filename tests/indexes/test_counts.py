"""Rows that meet conditions are counted by indexes that know them, without data files."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from tests.interop.test_overlays import commit, overlay

ROWS = 4_000
#: Conditions that an index decides.
DECIDED = [
    "a = 7",
    "a IN (3, 7, 11)",
    "a >= 7 AND a < 9",
    "a = 7 OR (a > 40 AND s = 'text 41')",
    "s >= 'text 3' AND s < 'text 31' AND a <> 5",
]
#: Conditions for which the rows are read.
READ = ["f > 3.0", "a = 7 AND id < 2000", "a = 7 OR id = 4", "s LIKE 'text 1%'", "NOT a IN (3, 7)"]


def rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    floats = pa.array(np.where(ids % 5 == 0, np.nan, ids % 10 - 0.0))
    texts = pa.array([f"text {number % 50}" for number in ids.tolist()], mask=ids % 11 == 3)
    return pa.table(
        {"id": ids, "a": pa.array(ids % 50, mask=ids % 7 == 2), "s": texts, "f": floats}
    )


@pytest.mark.parametrize("stable", [False, True])
def test_counts_by_indexes(stable: bool, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows(0, ROWS), path, max_rows_per_file=1_000, enable_stable_row_ids=stable)
    for column, kind in (("a", "BTREE"), ("s", "BITMAP"), ("f", "BTREE")):
        lance.dataset(path).create_scalar_index(column, kind)
    lance.dataset(path).delete("id % 9 = 1 OR (id > 1000 AND id < 1100)")

    def check() -> None:
        for text in DECIDED + READ:
            dataset = lance_spark.open_dataset(path)
            expected = dataset.to_table(["id"], filter=text, use_scalar_index=False).num_rows
            assert dataset.count_rows(text) == expected > 0, text
            if text not in READ:
                assert lance.dataset(path).count_rows(text) == expected, text

    check()
    # Fragments that no index covers are read, and others are not.
    lance.write_dataset(rows(ROWS, 500), path, mode="append")
    lance.dataset(path).update({"a": "7"}, where="id % 100 = 42")
    check()
    for fragment in lance.dataset(path).get_fragments()[:4]:
        for file in fragment.data_files():
            (tmp_path / "t.lance" / "data" / file.path).unlink()
    if not stable:
        counted = [lance_spark.open_dataset(path).count_rows(text) for text in DECIDED]
        assert counted == [lance.dataset(path).count_rows(text) for text in DECIDED]
    for text in READ if not stable else DECIDED + READ:
        with pytest.raises(lance_spark.LanceError):
            lance_spark.open_dataset(path).count_rows(text)


def test_counts_read_overlaid_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    path = tmp_path / "t.lance"
    numbers = pa.table({"number": np.arange(1_000) % 50})
    lance.write_dataset(numbers, str(path)).create_scalar_index("number", "BTREE")
    commit(path, 0, overlay(path, "o.lance", pa.table({"number": [8, 7, 7]}), [7, 8, 9]))
    assert lance_spark.open_dataset(str(path)).count_rows("number = 7") == 1_000 // 50 + 1
