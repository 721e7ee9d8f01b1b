"""Memory of a scan: a file may be longer than the memory, and batches have a size limit."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.scan.fragment.reader import FragmentReader

MIB = 1024 * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory")
def test_a_file_longer_than_the_address_space_is_read(tmp_path: Path) -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << 60, 8 * MIB)
    table = pa.table({str(column): numbers for column in range(4)})
    lance.write_dataset(table, tmp_path / "t", max_rows_per_file=1 << 30)
    (file,) = (tmp_path / "t" / "data").iterdir()
    # What the process has already, and half of the file.
    script = f"""
import resource
import lance_spark
from lance_spark.indexes import cache
dataset = lance_spark.open_dataset({str(tmp_path / "t")!r})
dataset.head(1)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + {file.stat().st_size // 2}
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
cache._LEAST_BYTES = 1
assert cache.default_bytes() == limit // cache._SHARE
print(sum(batch.num_rows for batch in dataset.to_batches(columns=["3"])))
"""
    result = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert (result.stdout.strip(), result.returncode) == (str(8 * MIB), 0), result.stderr


def test_batches_have_a_size_limit(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    vectors = pa.FixedSizeListArray.from_arrays(np.zeros(20_000 * 768, np.float32), 768)
    text = pa.array(["x" * 1000] * 20_000)
    lance.write_dataset(pa.table({"id": range(20_000), "v": vectors, "t": text}), str(path))
    dataset = lance_spark.open_dataset(str(path))
    for columns in (["v"], ["t"], ["id", "v", "t"]):
        sizes = [batch.nbytes for batch in dataset.to_batches(columns)]
        assert max(sizes) <= 17 * MIB
        assert np.mean(sizes[:-1]) > 4 * MIB
    assert [batch.num_rows for batch in dataset.to_batches(["id"])] == [20_000]


def test_a_window_of_many_columns_has_more_rows(tmp_path: Path) -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << 62, 20_000)
    table = pa.table({f"c{number}": numbers for number in range(400)})
    dataset = lance_spark.write_dataset(table, tmp_path / "t")
    (fragment,) = dataset.fragments
    for columns, least, most in ((3, 7, 8), (8, 15, 16), (64, 31, 32), (400, 45, 50)):
        schema = dataset._reader.select(table.column_names[:columns])
        with closing(FragmentReader(dataset._table.paths, fragment, schema)) as reader:
            assert least * MIB <= reader.window_rows() * columns * 8 <= most * MIB
            assert 8 * columns <= reader.row_bytes() < 9 * columns


def test_long_items_of_dictionaries(tmp_path: Path) -> None:
    """A page that repeats a few long texts is small in the file for any number of rows."""
    path = tmp_path / "t.lance"
    rng = np.random.default_rng(5)
    texts = ["".join(chr(c) for c in rng.integers(97, 123, 4_000)) for _ in range(50)]
    rows = [texts[number] for number in rng.integers(0, 50, 20_000)]
    # pylance makes one page of one batch.
    lance.write_dataset(pa.table({"t": rows}), str(path), data_storage_version="2.2")
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    try:
        seen = 0
        for batch in lance_spark.open_dataset(str(path)).to_batches():
            result = batch.column("t").to_pylist()
            assert result == rows[seen : seen + len(result)]
            seen += len(result)
            del batch
    finally:
        pa.set_memory_pool(usual)
    assert seen == len(rows)
    assert pool.max_memory() < 64 * MIB


def test_the_first_rows_in_an_order_hold_no_others(tmp_path: Path) -> None:
    numbers = np.random.default_rng(1).random(6 * MIB)
    dataset = lance_spark.write_dataset(pa.table({"x": numbers}), tmp_path / "t")
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    try:
        first = dataset.to_table(order_by=["x"], limit=10, offset=5)["x"].to_pylist()
    finally:
        pa.set_memory_pool(usual)
    assert first == np.sort(numbers)[5:15].tolist()
    # The column alone has 48 MiB.
    assert pool.max_memory() < 40 * MIB
