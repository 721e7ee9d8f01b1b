"""Fresh reads after random upserts, deletes, crashes and compactions by pylance and by this package.

Each read is compared with a dictionary, and with pylance where it can read the same rows: it reads
a log only after it has claimed the shard.
"""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import LsmScanner, ShardSnapshot
from lance_spark.mem_wal.compaction import compact_mem_wal
from lance_spark.mem_wal.table.details import details_of
from lance_spark.mem_wal.table.shard_manifest import read_latest_manifest
from lance_spark.table.open import open_table
from tests.interop.mem_wal.shards import (
    OwnWriter,
    PylanceWriter,
    StepWriter,
    key_field,
    pylance_snapshots,
)
from tests.support.cells import number_of

HISTORIES = number_of(8, 1_000)
_KEYS = 25


class History:
    """A table with one shard, and the rows that it should have."""

    def __init__(self, path: str, seed: int) -> None:
        self.path, self.pick = path, random.Random(seed)
        self.is_composite = self.pick.random() < 0.4
        keys = [key_field("a", pa.string(), 1), key_field("b", pa.int32(), 2)]
        self.keys = pa.schema(keys if self.is_composite else [key_field("id", pa.int64())])
        version = self.pick.choice(["2.0", "2.1", "2.2"])
        # Files of version 2.0 have no null structs, so no tombstones of tables with structs.
        nested = pa.list_(pa.string())
        if version != "2.0":
            nested = pa.struct([("x", pa.int32()), ("tags", nested)])
        self.schema = pa.schema([*self.keys, ("text", pa.string()), ("nested", nested)])
        self.model: dict[Any, str] = {}
        self.step = 0
        numbers = list(range(self.pick.randrange(_KEYS)))
        dataset = lance.write_dataset(
            self.rows(numbers),
            path,
            data_storage_version=version,
            enable_stable_row_ids=self.pick.random() < 0.3,
            max_rows_per_file=7,
        )
        if numbers and self.pick.random() < 0.3:
            dataset.create_scalar_index(self.keys.names[0], "BTREE")
            dataset = lance.dataset(path)
        dataset.initialize_mem_wal(unsharded=True)
        self.shard = str(uuid.uuid4())

    def key_of(self, number: int) -> Any:
        return (f"k\0{number % 5}", number // 5) if self.is_composite else number

    def key_table(self, numbers: list[int]) -> pa.Table:
        keys = [self.key_of(number) for number in numbers]
        columns = zip(*keys, strict=True) if self.is_composite and keys else [keys]
        if not keys:
            columns = [[] for _ in self.keys]
        return pa.table(
            [pa.array(list(c), f.type) for c, f in zip(columns, self.keys, strict=True)], self.keys
        )

    def rows(self, numbers: list[int]) -> pa.Table:
        """Return new rows of keys, and note them in the model."""
        self.step += 1
        texts = [f"{self.step}.{place}" for place in range(len(numbers))]
        nested: list[Any] = [[text] if self.step % 3 else None for text in texts]
        if pa.types.is_struct(self.schema.field("nested").type):
            nested = [tags and {"x": self.step, "tags": tags} for tags in nested]
        for number, text in zip(numbers, texts, strict=True):
            self.model[self.key_of(number)] = text
        rows = self.key_table(numbers)
        rows = rows.append_column("text", pa.array(texts, pa.string()))
        column = pa.array(nested, self.schema.field("nested").type)
        return rows.append_column("nested", column).cast(self.schema)

    def session(self) -> None:
        """Let a writer claim the shard, write some rows, and close or be killed."""
        writers: list[Any] = [PylanceWriter, StepWriter, OwnWriter]
        writer = self.pick.choice(writers)(self.path, self.shard)
        for _ in range(self.pick.randrange(4)):
            numbers = [self.pick.randrange(_KEYS) for _ in range(self.pick.randrange(1, 7))]
            if self.pick.random() < 0.3:
                writer.delete(self.key_table(numbers))
                for number in numbers:
                    self.model.pop(self.key_of(number), None)
            else:
                writer.put(self.rows(numbers))
        if self.pick.random() < 0.5:
            writer.close()

    def by_key(self, table: pa.Table) -> dict[Any, str]:
        names = self.keys.names
        rows = table.to_pylist()
        text_of = {
            (tuple(row[name] for name in names) if self.is_composite else row[names[0]]): row[
                "text"
            ]
            for row in rows
        }
        assert len(text_of) == len(rows), "a key is there twice"
        for row in rows:
            tags = row["nested"]["tags"] if isinstance(row["nested"], dict) else row["nested"]
            assert tags is None or tags == [row["text"]]
        return text_of

    def check(self) -> None:
        fresh = lance_spark.open_dataset(self.path).fresh()
        assert self.by_key(fresh.to_table()) == self.model
        assert fresh.count_rows() == len(self.model)
        number = self.pick.randrange(_KEYS)
        text = self.model.get(self.key_of(number), "none")
        assert fresh.count_rows(f"text = '{text}'") == (text != "none")
        key = self.key_of(number)
        condition = f"a = '{key[0]}' AND b = {key[1]}" if self.is_composite else f"id = {key}"
        if "\0" not in condition:
            assert fresh.to_table(["text"], filter=condition)["text"].to_pylist() == [
                text for text in [text] if text != "none"
            ]
        filters = [(name, "==", part) for name, part in self.parts(key)]
        assert self.by_key(fresh.to_table(filters=filters)) == (
            {key: text} if text != "none" else {}
        )

    def parts(self, key: Any) -> list[tuple[str, Any]]:
        return list(zip(self.keys.names, key if self.is_composite else [key], strict=True))

    def check_pylance(self) -> None:
        """Compare with pylance's scanners, by SSTables and by a claim."""
        dataset = lance.dataset(self.path)
        snapshots = pylance_snapshots(self.path)
        scanner = lance.LsmScanner.from_snapshots(dataset, snapshots)
        own = [ShardSnapshot(part.shard_id) for part in snapshots]
        for part, snapshot in zip(own, snapshots, strict=True):
            for generation, folder in _sstables(self.path, snapshot.shard_id):
                part.with_sstable(generation, folder)
        opened = lance_spark.open_dataset(self.path)
        assert self.by_key(LsmScanner.from_snapshots(opened, own).to_table()) == self.by_key(
            scanner.to_table()
        )
        if not any(
            generation <= self.compacted() for generation, _ in _sstables(self.path, self.shard)
        ):
            claimed = PylanceWriter(self.path, self.shard)
            assert self.by_key(claimed._writer.lsm_scanner().to_table()) == self.model

    def compacted(self) -> int:
        """Return the newest generation that the table has."""
        details = details_of(open_table(self.path).manifest)
        assert details is not None
        return details.compacted.get(uuid.UUID(self.shard), 0)

    def compact(self) -> None:
        compact_mem_wal(open_table(self.path))


def _sstables(path: str, shard: str) -> list[tuple[int, str]]:
    manifest = read_latest_manifest(open_table(path).store, uuid.UUID(shard))
    return (
        [] if manifest is None else [(part.generation, part.folder) for part in manifest.sstables]
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_fresh_read_is_the_newest_row_of_each_key(tmp_path: Path, seed: int) -> None:
    history = History(str(tmp_path / "t.lance"), seed)
    for number in range(6):
        history.session()
        history.check()
        if history.pick.random() < 0.25:
            history.compact()
            history.check()
        if number == 5 or history.pick.random() < 0.2:
            history.check_pylance()
            history.check()
