"""A short form of the load test of `make soak`."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa

import lance_spark
from tests.soak.load import load
from tests.soak.worker import batches_of, rows


def test_load_on_a_local_disk(tmp_path: Path) -> None:
    path = tmp_path / "table"
    figures = load(str(path), 8, writers=4, readers=3, age=2)
    assert not figures.wrong
    # Few commits, because other programs may use the machine.
    assert figures.counts["commits"] > 4
    assert figures.counts["reads"] > 2
    theirs = lance.dataset(str(path))
    theirs.validate()
    ours = lance_spark.open_dataset(str(path)).to_table()
    assert theirs.to_table().equals(ours)
    assert ours.num_rows == figures.counts["rows in the end"]


def test_the_load_detects_half_a_batch() -> None:
    batch = rows(7, 3)
    assert batches_of(batch) == ({7: 3}, [])
    for pieces in (
        [batch.slice(1)],
        [batch, batch.slice(0, 1)],
        [batch.slice(1), rows(7, 4).slice(0, 1)],
    ):
        (wrong,) = batches_of(pa.concat_tables(pieces))[1]
        assert wrong.startswith("half a batch")
