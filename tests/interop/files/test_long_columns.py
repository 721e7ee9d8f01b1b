"""Columns of more than 2 GiB of text in one file, which take next to nothing on disk and never
stand in memory whole.

``make test-long`` also reads such a column in one piece: `string` columns cannot hold that,
`large_string` columns can.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_spark
from lance_spark.errors import LanceError
from tests.support.encodings.handmade import ours

LONG = int(os.environ.get("LANCE_SPARK_TEST_TABLES", "0")) >= 10_000
ROWS = 2_200
SIZE = 1 << 20
STEP = 20
MOST_MEMORY = 400 << 20


def batches(kind: pa.DataType, *, same: bool = False) -> Iterator[pa.RecordBatch]:
    for start in range(0, ROWS, STEP):
        values = [text(0 if same else row) for row in range(start, start + STEP)]
        yield pa.record_batch(
            [pa.array(range(start, start + STEP)), pa.array(values, kind)], ["i", "c"]
        )


def text(row: int) -> str:
    return f"{row:07}".ljust(SIZE, "x")


def write(path: Path, who: str, kind: pa.DataType, *, same: bool = False) -> Path:
    schema = pa.schema([("i", pa.int64()), ("c", kind)])
    reader = pa.RecordBatchReader.from_batches(schema, batches(kind, same=same))
    module = lance if who == "pylance" else lance_spark
    module.write_dataset(reader, str(path), data_storage_version="2.2")
    (file,) = (path / "data").iterdir()
    assert ROWS * SIZE > 1 << 31
    return file


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    usual = pa.default_memory_pool()
    found = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(found)
    yield found
    pa.set_memory_pool(usual)


@pytest.mark.parametrize(
    ("who", "same"),
    [("we", False), ("pylance", False), ("we", True)],
    ids=["we", "pylance", "same"],
)
def test_in_pieces(tmp_path: Path, pool: pa.MemoryPool, who: str, same: bool) -> None:
    """Batches are cut by what values decode to, not by what they take in the file."""
    write(tmp_path / "t.lance", who, pa.string(), same=same)
    dataset = lance_spark.open_dataset(str(tmp_path / "t.lance"))
    seen = 0
    for batch in dataset.to_batches():
        assert batch.nbytes <= 64 << 20
        rows = batch.column("i").to_pylist()
        assert rows == list(range(seen, seen + len(rows)))
        for at in (0, len(rows) - 1):
            assert batch.column("c")[at].as_py() == text(0 if same else rows[at])
        assert pc.all(pc.equal(pc.binary_length(batch.column("c")), SIZE)).as_py()
        seen += len(rows)
    assert seen == ROWS
    rows = [ROWS - 1, 0, 1_111]
    taken = dataset.take(rows)
    assert taken["c"].to_pylist() == [text(0 if same else row) for row in rows]
    assert pool.max_memory() < MOST_MEMORY


if LONG:

    def test_string_in_one_piece(tmp_path: Path) -> None:
        file = write(tmp_path / "t.lance", "we", pa.string(), same=True)
        with pytest.raises(LanceError, match=r"column 'c'.*large_string.*Read fewer rows at once"):
            ours(file, np.arange(ROWS))

    def test_large_string_in_one_piece(tmp_path: Path) -> None:
        write(tmp_path / "t.lance", "we", pa.large_string())
        found = lance_spark.open_dataset(str(tmp_path / "t.lance")).to_table(columns=["c"])
        assert found.nbytes > 1 << 31
        assert found["c"][ROWS - 1].as_py() == text(ROWS - 1)
