"""Fresh reads while a writer, flushes, compactions and drains go on."""

from __future__ import annotations

import random
import threading
import uuid
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.table.open import open_table
from tests.interop.mem_wal.shards import PylanceWriter, key_field

#: Acknowledged writes of each test.
WRITES = 40
SCHEMA = pa.schema([key_field("id", pa.int64()), pa.field("n", pa.int64())])
_KEYS = 6


def row(key: int, number: int) -> pa.Table:
    return pa.table({"id": [key], "n": [number]}, schema=SCHEMA)


class Changes(threading.Thread):
    """Writes increasing numbers; deletes keys; now and then closes, crashes and compacts."""

    def __init__(self, path: str, seed: int) -> None:
        super().__init__()
        self.path, self.pick = path, random.Random(seed)
        self.shard = str(uuid.uuid4())
        #: The last number, and the key, of an acknowledged write; a negative number deletes.
        self.acknowledged: dict[int, int] = {}
        self.started: dict[int, int] = {}
        self.error: BaseException | None = None

    def writer(self) -> Any:
        if self.pick.random() < 0.3:
            return PylanceWriter(self.path, self.shard)
        return lance_spark.open_dataset(self.path).mem_wal_writer(self.shard)

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error

    def work(self) -> None:
        writer = self.writer()
        for number in range(1, WRITES + 1):
            key = self.pick.randrange(_KEYS)
            is_deletion = self.pick.random() < 0.15
            self.started[key] = number
            if is_deletion:
                writer.delete(pa.table({"id": pa.array([key], pa.int64())}))
            else:
                writer.put(row(key, number))
            self.acknowledged[key] = -number if is_deletion else number
            chance = self.pick.random()
            if chance < 0.12:
                writer.close()
                writer = self.writer()
            elif chance < 0.16:
                writer = self.writer()
            if self.pick.random() < 0.1:
                compact_mem_wal(open_table(self.path))


@pytest.mark.parametrize("seed", range(2))
def test_a_read_has_what_was_acknowledged_before_it(tmp_path: Path, seed: int) -> None:
    path = str(tmp_path / "t.lance")
    dataset = lance.write_dataset(
        pa.table({"id": list(range(_KEYS)), "n": [0] * _KEYS}, schema=SCHEMA), path
    )
    dataset.initialize_mem_wal(unsharded=True)
    changes = Changes(path, seed)
    changes.start()
    reads = 0
    while changes.is_alive() or not reads:
        before = dict(changes.acknowledged)
        table = lance_spark.open_dataset(path).fresh().to_table()
        after = dict(changes.started)
        rows = dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))
        assert len(rows) == table.num_rows
        for key, number in before.items():
            if after.get(key) == abs(number):
                # Nothing has changed the key since.
                assert rows.get(key, -1) == (number if number > 0 else -1), (key, number)
            elif key in rows:
                assert rows[key] >= abs(number), (key, number)
        reads += 1
    changes.join()
    if changes.error is not None:
        raise changes.error
    table = lance_spark.open_dataset(path).fresh().to_table()
    rows = dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))
    for key, number in changes.acknowledged.items():
        assert rows.get(key, -1) == (number if number > 0 else -1)
    assert reads > 3
