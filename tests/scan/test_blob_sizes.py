"""Rows with blobs are read in pieces by the sizes in descriptors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.mutations.rewrite.writers import RowRewriter
from lance_spark.scan.fragment import column_reader
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.take import (
    blob_bytes,
    cut_by_bytes,
    described_schema,
    loads_blobs,
    take_addresses,
)
from lance_spark.scan.top_rows import SortKey, TopRows, top_batches

BLOB = {"lance-encoding:blob": "true"}
SIZES = [400, 700, None, 100, 5_000, 0, 300, 300, 300]
SLICES = [(0, 1), (1, 4), (4, 5), (5, 9)]


@pytest.fixture(params=["2.0", "2.1", "2.2"])
def dataset(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(column_reader, "WINDOW_BYTES", 1_000)
    values = [None if size is None else b"x" * size for size in SIZES]
    field = pa.field("b", pa.large_binary(), metadata=BLOB)
    schema = pa.schema([("id", pa.int64()), field])
    rows = pa.table([range(len(SIZES)), pa.array(values, field.type)], schema)
    return lance_spark.write_dataset(
        rows, tmp_path, data_storage_version=request.param, max_rows_per_file=4
    )


def test_cuts(dataset: Any) -> None:
    table, fragments = dataset._table, dataset.fragments
    schema = dataset._reader.select(None, blob_handling="all_binary")
    addresses = np.array([f << 32 | o for f in range(3) for o in range(4)][: len(SIZES)], np.uint64)
    parts = list(cut_by_bytes(table.paths, fragments, schema, addresses, None))
    assert [(part.start, part.stop) for part in parts] == SLICES
    described = described_schema(schema, table.manifest.data_storage_version)
    assert (loads_blobs(schema), loads_blobs(described)) == (True, False)
    (batch,) = (
        take_addresses(table.paths, fragments, described, addresses, None)
        .combine_chunks()
        .to_batches()
    )
    assert blob_bytes(batch, described).tolist() == [size or 0 for size in SIZES]
    without = dataset._reader.select(["id"])
    (whole,) = cut_by_bytes(table.paths, fragments, without, addresses, None)
    assert (whole.start, whole.stop) == (0, len(SIZES))


def test_first_rows_come_in_pieces(dataset: Any) -> None:
    (task,) = dataset.plan(rows_per_task=100, blob_handling="all_binary")
    top = TopRows((SortKey(dataset._table.schema.fields[0], False, True),), 9)
    batches = list(top_batches(task, top, ScanMetrics()))
    assert max(batch.nbytes for batch in batches) < 5_200
    assert sum(batch.num_rows for batch in batches) == 9
    assert len(batches) >= len(SLICES)


def test_moved_rows_are_read_in_pieces(dataset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rewriter = RowRewriter(dataset._table, dataset._table.schema, ["id"], tag=b"tagtagta")
    read: list[int] = []
    source = rewriter._source_of(("id",)).reader
    monkeypatch.setattr(
        source, "read", lambda rows, old=source.read: (read.append(len(rows)), old(rows))[1]
    )
    ids = pa.record_batch({"id": pa.array([10, 11, 12, 13])})
    rewriter.move(np.arange(4, dtype=np.uint64), ids)
    assert read == [1, 3]
    rewriter.abort()
