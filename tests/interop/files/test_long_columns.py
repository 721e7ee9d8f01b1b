"""Columns of more than 2 GiB of text in one file. They take little space on disk, and are never
completely in memory.

``make test-long`` also reads such a column in one piece: `string` columns cannot hold that,
`large_string` columns can.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark.errors import LanceError
from tests.support.cells import ALL_CELLS
from tests.support.encodings.handmade import ours

LONG = ALL_CELLS
ROWS = 2_200
SIZE = 1 << 20
STEP = 20
MOST_MEMORY = 400 << 20


def batches(dtype: pa.DataType, *, equal_values: bool = False) -> Iterator[pa.RecordBatch]:
    for start in range(0, ROWS, STEP):
        values = [text(0 if equal_values else row) for row in range(start, start + STEP)]
        yield pa.record_batch(
            [pa.array(range(start, start + STEP)), pa.array(values, dtype)], ["i", "c"]
        )


def text(row: int) -> str:
    return f"{row:07}".ljust(SIZE, "x")


def write(path: Path, writer: str, dtype: pa.DataType, *, equal_values: bool = False) -> Path:
    schema = pa.schema([("i", pa.int64()), ("c", dtype)])
    reader = pa.RecordBatchReader.from_batches(schema, batches(dtype, equal_values=equal_values))
    module = lance if writer == "pylance" else lance_spark
    module.write_dataset(reader, str(path), data_storage_version="2.2")
    (file,) = (path / "data").iterdir()
    assert ROWS * SIZE > 1 << 31
    return file


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    usual = pa.default_memory_pool()
    proxy = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(proxy)
    yield proxy
    pa.set_memory_pool(usual)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("writer", "equal_values"),
    [("we", False), ("pylance", False), ("we", True)],
    ids=["we", "pylance", "same"],
)
def test_in_pieces(tmp_path: Path, pool: pa.MemoryPool, writer: str, equal_values: bool) -> None:
    """Batches are cut by the decoded size of values, not by their size in the file."""
    write(tmp_path / "t.lance", writer, pa.string(), equal_values=equal_values)
    dataset = lance_spark.open_dataset(str(tmp_path / "t.lance"))
    num_rows = 0
    for batch in dataset.to_batches():
        assert batch.nbytes <= 64 << 20
        rows = batch.column("i").to_pylist()
        assert rows == list(range(num_rows, num_rows + len(rows)))
        for position in (0, len(rows) - 1):
            assert batch.column("c")[position].as_py() == text(
                0 if equal_values else rows[position]
            )
        assert pc.all(pc.equal(pc.binary_length(batch.column("c")), SIZE)).as_py()
        num_rows += len(rows)
    assert num_rows == ROWS
    rows = [ROWS - 1, 0, 1_111]
    taken_rows = dataset.take(rows)
    assert taken_rows["c"].to_pylist() == [text(0 if equal_values else row) for row in rows]
    assert pool.max_memory() < MOST_MEMORY


if LONG:

    def test_string_in_one_piece(tmp_path: Path) -> None:
        file = write(tmp_path / "t.lance", "we", pa.string(), equal_values=True)
        with pytest.raises(LanceError, match=r"column 'c'.*large_string.*Read fewer rows at once"):
            ours(file, np.arange(ROWS))

    def test_large_string_in_one_piece(tmp_path: Path) -> None:
        write(tmp_path / "t.lance", "we", pa.large_string())
        table = lance_spark.open_dataset(str(tmp_path / "t.lance")).to_table(columns=["c"])
        assert table.nbytes > 1 << 31
        assert table["c"][ROWS - 1].as_py() == text(ROWS - 1)
