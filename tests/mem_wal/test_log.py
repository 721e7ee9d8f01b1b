"""The writer's end of a log: failed requests are repeated, but not without end."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from lance_spark.errors import StorageError
from lance_spark.mem_wal import writer as log_module
from lance_spark.mem_wal.writer import Log
from lance_spark.mem_wal.writer_options import WriterOptions
from lance_spark.storage.store import ObjectStore

_MAX_U64 = 2**64 - 1


@pytest.mark.parametrize(
    ("retries", "delay_ms", "delays"),
    [
        (3, 50, [0.05, 0.1, 0.2]),
        (0, 50, []),
        (2, _MAX_U64, [60.0, 60.0]),
    ],
)
def test_delays(
    retries: int,
    delay_ms: int,
    delays: list[float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _failed_append(tmp_path, monkeypatch, retries, delay_ms) == pytest.approx(delays)


def test_retries_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(_failed_append(tmp_path, monkeypatch, _MAX_U64, 1)) == 100


def _failed_append(
    folder: Path, monkeypatch: pytest.MonkeyPatch, retries: int, delay_ms: int
) -> list[float]:
    """Append to a log whose store is gone, and return the delays in seconds."""
    delays: list[float] = []

    def fail(*_: object) -> bool:
        raise StorageError("the store is gone")

    monkeypatch.setattr(log_module, "write_entry", fail)
    monkeypatch.setattr(log_module.time, "sleep", delays.append)
    options = WriterOptions(
        max_wal_persist_retries=retries, wal_persist_retry_base_delay_ms=delay_ms
    )
    log = Log(ObjectStore.from_uri(str(folder)), uuid.uuid4(), 1, 1, options)
    with pytest.raises(StorageError, match="the store is gone"):
        log.append(pa.table({"id": [1]}), 1)
    return delays
