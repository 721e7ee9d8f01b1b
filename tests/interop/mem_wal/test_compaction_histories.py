"""Random histories of a MemWAL: writers, streams, compactions and cleanups of both clients in turns.

Each step of this package can be killed at any of its writes to the store, before or after it. Then
every later write fails, as in a process that is gone. After each step the rows are compared with a
dictionary; at the end with pylance, from the SSTables and from the base table.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import CompactedSsTable

import lance_spark
from lance_spark.mem_wal import stream_batches
from lance_spark.mem_wal.cleanup import clean_mem_wal
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.mem_wal.open import flush_logs
from lance_spark.mem_wal.stream_batches import StreamBatch, StreamMode, shaped_rows, write_batch
from lance_spark.mem_wal.table.details import details_of
from lance_spark.mem_wal.table.shard_manifest import list_shards, read_latest_manifest
from lance_spark.storage.store import ObjectStore
from lance_spark.table.open import open_table
from tests.interop.mem_wal.shards import PylanceWriter
from tests.interop.mem_wal.test_compaction import base, fresh, some_rows
from tests.support.cells import number_of

HISTORIES = number_of(4, 1_000)
_KEYS = 30
_STEPS = 12


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def killed_at(step: int, after: bool) -> Iterator[None]:
    """Kill the process at one of its writes to the store: before it, or after it."""
    count = 0
    originals = {
        name: getattr(ObjectStore, name)
        for name in ("put_if_absent", "write_bytes", "open_output", "delete", "remove_folder")
    }

    def wrapped(name: str) -> Callable[..., Any]:
        def call(store: ObjectStore, *arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == step and after:
                originals[name](store, *arguments, **options)
            if count >= step:
                raise Killed
            return originals[name](store, *arguments, **options)

        return call

    try:
        for name in originals:
            setattr(ObjectStore, name, wrapped(name))
        yield
    finally:
        for name, original in originals.items():
            setattr(ObjectStore, name, original)


class History:
    """A table with some shards, and the rows that it should have."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.pick = root, random.Random(seed)
        numbers = list(range(self.pick.randrange(_KEYS)))
        dataset = lance.write_dataset(
            some_rows(numbers, "base"),
            root,
            max_rows_per_file=7,
            enable_stable_row_ids=self.pick.random() < 0.4,
            data_storage_version=self.pick.choice(["2.0", "2.1", "2.2"]),
        )
        if numbers and self.pick.random() < 0.5:
            dataset.create_scalar_index("id", "BTREE")
            dataset = lance.dataset(root)
        dataset.initialize_mem_wal(bucket_column="id", num_buckets=self.pick.choice([1, 3]))
        self.model = {number: f"base{number}" for number in numbers}
        self.count = self.batch = 0

    def changes(self) -> tuple[list[int], list[int], str]:
        """Return keys to write and to delete, and what names begin with."""
        self.count += 1
        chosen = self.pick.sample(range(_KEYS), self.pick.randrange(1, 8))
        deleted = [key for key in chosen if self.pick.random() < 0.3]
        return [key for key in chosen if key not in deleted], deleted, f"{self.count}."

    def note(self, written: list[int], deleted: list[int], text: str) -> None:
        self.model.update({key: f"{text}{key}" for key in written})
        for key in deleted:
            self.model.pop(key, None)

    def killed(self, run: Callable[[], object], writes: int) -> bool:
        """Run a step of this package; return whether it was killed.

        Parameters
        ----------
        writes : int
            About the most writes to the store that the step makes.
        """
        if self.pick.random() < 0.3:
            run()
            return False
        try:
            with killed_at(self.pick.randrange(1, writes + 2), self.pick.random() < 0.5):
                run()
        except Killed:
            # Another process goes on.
            stream_batches._WRITERS.clear()
            return True
        return False

    def write(self) -> None:
        """Let a writer of one of the clients write some rows to each shard."""
        written, deleted, text = self.changes()
        dataset = lance_spark.open_dataset(str(self.root))
        is_ours, closes = self.pick.random() < 0.5, self.pick.random() < 0.6
        keys = some_rows([*written, *deleted], text)
        for shard, rows in dataset.split_by_shard(keys).items():
            writer: Any = (
                dataset.mem_wal_writer(shard) if is_ours else PylanceWriter(str(self.root), shard)
            )
            ids = rows["id"].to_pylist()
            writer.put(some_rows([key for key in ids if key in written], text))
            gone = pa.table({"id": pa.array([key for key in ids if key in deleted], pa.int64())})
            if gone.num_rows:
                writer.delete(gone)
            if closes:
                if not is_ours:
                    writer.close()
                elif self.killed(writer.close, 11):
                    writer._failure = RuntimeError("killed")
        self.note(written, deleted, text)

    def stream(self) -> None:
        """Write a batch of a stream, until it is written."""
        written, deleted, text = self.changes()
        table = open_table(str(self.root))
        flags = pa.chunked_array([[False] * len(written) + [True] * len(deleted)])
        rows = shaped_rows(table, some_rows([*written, *deleted], text), flags, None)
        mode = self.pick.choice(list(StreamMode))
        batch = StreamBatch("q", self.batch, mode=mode)
        while self.killed(lambda: write_batch(table, rows, batch), 24):
            self.check_keys({*written, *deleted})
        if self.pick.random() < 0.3:
            stream_batches._WRITERS.clear()
            assert write_batch(table, rows, batch) == []
        self.batch += 1
        self.note(written, deleted, text)

    def compact(self) -> None:
        self.killed(lambda: compact_mem_wal(open_table(str(self.root))), 9)

    def compact_by_pylance(self) -> None:
        """Compact the oldest generation of each shard, as a user of pylance does it."""
        table = open_table(str(self.root))
        details = details_of(table.manifest)
        assert details is not None
        for shard in list_shards(table.store):
            manifest = read_latest_manifest(table.store, shard)
            assert manifest is not None
            generation = details.compacted.get(shard, 0) + 1
            folders = {part.generation: part.folder for part in manifest.sstables}
            if generation not in folders:
                continue
            folder = self.root / "_mem_wal" / str(shard) / folders[generation]
            rows = lance.dataset(folder).to_table()
            gone = rows.filter(rows["_tombstone"])["id"].to_pylist()
            if gone:
                lance.dataset(self.root).delete(f"id in ({', '.join(map(str, gone))})")
            kept = rows.filter(pa.compute.invert(rows["_tombstone"])).drop_columns(["_tombstone"])
            merge = lance.dataset(self.root).merge_insert("id").when_matched_update_all()
            merge = merge.when_not_matched_insert_all()
            mark = CompactedSsTable(str(shard), generation)
            merge.mark_sstables_as_compacted([mark]).execute(kept)

    def clean(self) -> None:
        self.killed(lambda: clean_mem_wal(open_table(str(self.root)), timedelta()), 8)

    def optimize(self) -> None:
        dataset = lance.dataset(self.root)
        if self.pick.random() < 0.5:
            dataset.optimize.optimize_indices()
        else:
            dataset.optimize.compact_files()

    def rows(self) -> dict[int, str]:
        rows = lance_spark.open_dataset(str(self.root)).fresh().to_table()
        names = dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
        assert len(names) == rows.num_rows
        return names

    def check_keys(self, unsure: set[int]) -> None:
        """Compare the rows of other keys than those of a batch that is not written whole."""
        rows = self.rows()
        assert {key: name for key, name in rows.items() if key not in unsure} == {
            key: name for key, name in self.model.items() if key not in unsure
        }


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_history(tmp_path: Path, seed: int) -> None:
    stream_batches._WRITERS.clear()
    history = History(tmp_path / "t", seed)
    steps = [
        *[history.write] * 3,
        *[history.stream] * 3,
        *[history.compact] * 2,
        history.compact_by_pylance,
        history.clean,
        history.optimize,
    ]
    for _ in range(_STEPS):
        step = history.pick.choice(steps)
        step()
        assert history.rows() == history.model, step.__name__
    flush_logs(open_table(str(history.root)))
    stream_batches._WRITERS.clear()
    assert fresh(history.root) == history.model
    compact_mem_wal(open_table(str(history.root)))
    clean_mem_wal(open_table(str(history.root)), timedelta())
    assert base(history.root) == history.rows() == history.model
    for number, shard in enumerate(list_shards(open_table(str(history.root)).store)):
        with lance.dataset(history.root).mem_wal_writer(str(shard)) as writer:
            writer.put(some_rows([1000 + number], "last"))
        assert fresh(history.root)[1000 + number] == f"last{1000 + number}"
