"""Few rows of several fragments are decoded together, and equal those of a scan."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptFileError, LanceError

ROWS, FRAGMENTS = 6_000, 6


def _table() -> pa.Table:
    random = np.random.default_rng(1)
    numbers = random.integers(0, 1 << 40, ROWS)
    absent = random.random(ROWS) < 0.2
    texts = [None if gone else f"text {n}" for n, gone in zip(numbers, absent, strict=True)]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(random.random(ROWS * 4)), 4)
    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "n": pa.array(numbers, mask=absent),
            "t": pa.array(texts),
            "few": pa.array([f"item {n % 7}" for n in numbers.tolist()]),
            "l": pa.array([[n, None] if n % 3 else None for n in range(ROWS)]),
            "s": pa.StructArray.from_arrays([pa.array(numbers), vectors], names=["a", "v"]),
        }
    )


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_rows_equal_those_of_the_table(tmp_path: Path, version: str) -> None:
    path, table = str(tmp_path / "t.lance"), _table()
    lance.write_dataset(
        table, path, max_rows_per_file=ROWS // FRAGMENTS, data_storage_version=version
    )
    lance.dataset(path).delete("id % 10 = 3")
    table = table.filter(pa.array(np.arange(ROWS) % 10 != 3))
    dataset, oracle = lance_spark.open_dataset(path), lance.dataset(path)
    random = np.random.default_rng(2)
    for count in (2, 10, 200, 1_500):
        rows = random.choice(len(table), count)
        taken = dataset.take(rows)
        assert taken.to_pylist() == table.take(rows).to_pylist()
        assert taken.equals(oracle.take(rows))


def test_the_error_names_the_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    lance.write_dataset(_table().select(["n"]), str(path), max_rows_per_file=ROWS // FRAGMENTS)
    dataset = lance_spark.open_dataset(str(path))
    damaged = path / "data" / lance.dataset(str(path)).get_fragments()[2].data_files()[0].path
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with pytest.raises(LanceError, match=damaged.name) as error:
        dataset.take([10, 2_500, 5_000])
    assert isinstance(error.value, CorruptFileError)
