"""A claimant that sleeps between its claim and the end of the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CommitConflictError
from lance_spark.mem_wal import claims
from lance_spark.mem_wal.entries import Entry

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), False, KEY)])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, SCHEMA)


def test_a_claim_ends_if_the_log_was_cleaned_up_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log seems to end at entries that are gone, before those of a later writer."""
    uri = str(tmp_path / "t")
    dataset = lance_spark.write_dataset(rows(0), uri).initialize_mem_wal(unsharded=True)
    first = dataset.mem_wal_writer()
    for number in range(1, 4):
        first.put(rows(number))
    first.close(flush=False)
    original = claims.read_tail

    def read_late(*arguments: Any) -> Iterator[Entry]:
        monkeypatch.setattr(claims, "read_tail", original)
        later = dataset.mem_wal_writer()
        later.put(rows(4))
        later.flush()
        later.put(rows(5))
        lance_spark.open_dataset(uri).clean_mem_wal(older_than=timedelta())
        return original(*arguments)

    monkeypatch.setattr(claims, "read_tail", read_late)
    with pytest.raises(CommitConflictError, match="fenced"):
        dataset.mem_wal_writer()
    with lance_spark.open_dataset(uri).mem_wal_writer() as writer:
        writer.put(rows(6))
    fresh = lance_spark.open_dataset(uri).fresh().to_table()
    assert sorted(fresh["id"].to_pylist()) == list(range(7))
