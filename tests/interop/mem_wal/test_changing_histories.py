"""Random histories of a MemWAL whose columns, indexes and settings change, by both clients in turns.

After each step, fresh reads are compared with a dictionary: all rows, filters, and the search of a
key. Filters are evaluated on the same rows in a table without MemWAL. In between, the scanner is
compared with that of pylance, and at the end the base table.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset import Dataset, LsmScanner, ShardSnapshot
from lance_spark.mem_wal import compaction, stream_batches
from lance_spark.mem_wal.stream_batches import StreamBatch, StreamMode, shaped_rows, write_batch
from lance_spark.mem_wal.table.shard_manifest import read_latest_manifest
from lance_spark.table.open import open_table
from tests.interop.mem_wal.shards import PylanceWriter, key_field, pylance_snapshots
from tests.support.cells import number_of

HISTORIES = number_of(4, 1_000)
_KEYS, _STEPS = 20, 10
_TIME = datetime(2024, 1, 2, 3, tzinfo=UTC)
_POINT = pa.struct([pa.field("x", pa.int32()), pa.field("tags", pa.list_(pa.string()))])
#: For each type of a column, some values.
_TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "number": (pa.int32(), [None, 1, 2, -5, 2**31 - 1]),
    "text": (pa.string(), [None, "", "a", "äö", "漢\0x"]),
    "float": (pa.float64(), [None, float("nan"), -0.0, 0.0, 1.5]),
    "decimal": (pa.decimal128(12, 2), [None, Decimal("1.23"), Decimal("-9.00")]),
    "time": (pa.timestamp("us", "Europe/Berlin"), [None, _TIME]),
    "point": (_POINT, [None, {"x": 1, "tags": ["a", None]}, {"x": None, "tags": None}]),
    "group": (pa.dictionary(pa.int8(), pa.string()), [None, "u", "v"]),
    "bytes": (pa.large_binary(), [None, b"", b"\xff\0"]),
}
_FILTERS = {
    "number": ["{} = 1", "{} > 1", "{} IN (1, 2)", "NOT ({} = 2)"],
    "text": ["{} = 'a'", "{} > 'a'", "{} IN ('', 'äö')"],
    "float": ["{} = 1.5", "{} < 1.0"],
    "point": ["{}.x = 1"],
}


class History:
    """A table with a MemWAL, and the rows that it should have."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.pick = str(path), random.Random(seed)
        self.copy = str(path.with_name("copy"))
        composite = [key_field("a", pa.string(), 1), key_field("b", pa.int32(), 2)]
        dtype = self.pick.choice([pa.int64(), pa.uint64(), pa.string(), None])
        self.keys = composite if dtype is None else [key_field("id", dtype)]
        #: Number, name and type of each column. Numbers are not used again.
        self.columns: list[list[Any]] = []
        self.numbers = iter(range(1000))
        for kind in self.pick.sample(list(_TYPES), 3):
            self.columns.append([next(self.numbers), kind, kind])
        self.model: dict[Any, dict[int, str]] = {}
        self.batches: Iterator[int] = iter(range(1000))
        rows = self.rows(list(range(self.pick.randrange(_KEYS))))
        lance.write_dataset(
            rows,
            self.path,
            max_rows_per_file=7,
            data_storage_version=self.pick.choice(["2.1", "2.2"]),
            enable_stable_row_ids=self.pick.random() < 0.5,
        )
        self.initialize()
        self.note(rows)

    def initialize(self) -> None:
        column = self.pick.choice(self.keys).name
        sharding = {"bucket_column": column, "num_buckets": 3}
        self.any_client().initialize_mem_wal(**self.pick.choice([sharding, {"unsharded": True}]))

    def own(self) -> Dataset:
        return lance_spark.open_dataset(self.path)

    def any_client(self) -> Any:
        return lance.dataset(self.path) if self.pick.random() < 0.5 else self.own()

    def key(self, number: int) -> tuple[Any, ...]:
        if len(self.keys) == 2:
            return f"k{number % 4}", number // 4 - 2
        dtype = self.keys[0].type
        if pa.types.is_string(dtype):
            return (f"ä\0{number}",)
        return (2**64 - number - 1 if number % 2 and dtype == pa.uint64() else number,)

    def key_rows(self, numbers: list[int]) -> pa.Table:
        parts = zip(*map(self.key, numbers), strict=True) if numbers else [[] for _ in self.keys]
        arrays = [
            pa.array(list(part), field.type) for part, field in zip(parts, self.keys, strict=True)
        ]
        return pa.table(arrays, schema=pa.schema(self.keys))

    def rows(self, numbers: list[int]) -> pa.Table:
        """Return new rows of keys."""
        rows = self.key_rows(numbers)
        for _, name, kind in self.columns:
            dtype, values = _TYPES[kind]
            column = pa.array([self.pick.choice(values) for _ in numbers], dtype)
            rows = rows.append_column(pa.field(name, dtype), column)
        return rows

    def by_key(self, rows: pa.Table) -> dict[Any, dict[int, str]]:
        keys = list(zip(*(rows[field.name].to_pylist() for field in self.keys), strict=True))
        assert len(set(keys)) == len(keys), "a key is there twice"
        columns = {number: rows[name].to_pylist() for number, name, _ in self.columns}
        # NaN is not equal to itself, and the zeros are equal.
        return {
            key: {number: repr(values[place]) for number, values in columns.items()}
            for place, key in enumerate(keys)
        }

    def note(self, rows: pa.Table, deleted: list[int] = ()) -> None:  # type: ignore[assignment]
        self.model.update(self.by_key(rows))
        for number in deleted:
            self.model.pop(self.key(number), None)

    def changes(self) -> tuple[list[int], list[int]]:
        """Return keys to write and to delete."""
        chosen = self.pick.sample(range(_KEYS), self.pick.randrange(1, 8))
        stop = self.pick.randrange(len(chosen) + 1)
        return chosen[stop:], chosen[:stop]

    # Steps

    def write(self) -> None:
        written, deleted = self.changes()
        rows, own = self.rows(written), self.own()
        is_ours, closes = self.pick.random() < 0.5, self.pick.random() < 0.5
        parts = own.split_by_shard(rows)
        gone = own.split_by_shard(self.key_rows(deleted))
        for shard in {*parts, *gone}:
            writer: Any = own.mem_wal_writer(shard) if is_ours else PylanceWriter(self.path, shard)
            if shard in parts:
                writer.put(parts[shard])
            if shard in gone:
                writer.delete(gone[shard])
            if closes:
                writer.close()
        self.note(rows, deleted)

    def stream(self) -> None:
        written, deleted = self.changes()
        table = open_table(self.path)
        rows = self.rows([*written, *deleted])
        flags = pa.chunked_array([[False] * len(written) + [True] * len(deleted)])
        mode = self.pick.choice(list(StreamMode))
        batch = StreamBatch("q", next(self.batches), mode=mode)
        write_batch(table, shaped_rows(table, rows, flags, None), batch)
        self.note(rows.slice(0, len(written)), deleted)

    def compact(self) -> None:
        self.own().compact_mem_wal(flush=self.pick.random() < 0.5)

    def compact_beside_another_client(self) -> None:
        changes = [self.index, self.optimize, self.rename, self.add]
        change = self.pick.choice(changes)
        original = compaction.commit_tasks

        def commit_tasks(*arguments: Any) -> Any:
            compaction.commit_tasks = original
            change()
            return original(*arguments)

        compaction.commit_tasks = commit_tasks
        try:
            self.own().compact_mem_wal()
        finally:
            compaction.commit_tasks = original

    def clean(self) -> None:
        self.own().clean_mem_wal(timedelta())

    def index(self) -> None:
        kinds = {kind: name for _, name, kind in self.columns if kind in ("number", "text", "time")}
        name = self.pick.choice([self.keys[0].name, *kinds.values()])
        kind = self.pick.choice(["BTREE", "BITMAP", "ZONEMAP"])
        lance.dataset(self.path).create_scalar_index(name, kind, replace=True)

    def optimize(self) -> None:
        optimize = lance.dataset(self.path).optimize
        (optimize.optimize_indices if self.pick.random() < 0.5 else optimize.compact_files)()

    def rename(self) -> None:
        column = self.pick.choice(self.columns)
        name = f"{column[2]}{next(self.numbers)}"
        self.any_client().alter_columns({"path": column[1], "name": name})
        column[1] = name

    def swap(self) -> None:
        """Give two columns the names of one another."""
        first, second = self.pick.sample(self.columns, 2)
        for old, new in ((first[1], "other"), (second[1], first[1]), ("other", second[1])):
            self.any_client().alter_columns({"path": old, "name": new})
        first[1], second[1] = second[1], first[1]

    def replace_column(self) -> None:
        """Drop a column, and add one of the same name."""
        number, name, _ = column = self.pick.choice(self.columns)
        self.own().drop_columns([name])
        self.columns.remove(column)
        for values in self.model.values():
            values.pop(number)
        self.add(name)

    def add(self, name: str | None = None) -> None:
        number, kind = next(self.numbers), self.pick.choice(list(_TYPES))
        self.columns.append([number, name or f"{kind}{number}", kind])
        field = pa.field(self.columns[-1][1], _TYPES[kind][0])
        self.any_client().add_columns(pa.schema([field]))
        for values in self.model.values():
            values[number] = "None"

    def disable(self) -> None:
        self.own().disable_mem_wal()
        assert self.by_key(lance.dataset(self.path).to_table()) == self.model
        self.initialize()

    # Checks

    def check(self) -> None:
        rows = self.own().fresh().to_table()
        assert self.by_key(rows) == self.model
        copy = lance_spark.write_dataset(rows, self.copy, mode="overwrite")
        condition = self.condition()
        if condition is not None:
            fresh = self.own().fresh()
            expected = self.by_key(copy.to_table(filter=condition))
            assert self.by_key(fresh.to_table(filter=condition)) == expected, condition
            assert self.own().fresh().count_rows(condition) == len(expected), condition
        key = self.key(self.pick.randrange(_KEYS))
        filters = [(field.name, "==", part) for field, part in zip(self.keys, key, strict=True)]
        found = {key: self.model[key]} if key in self.model else {}
        assert self.by_key(self.own().fresh().to_table(filters=filters)) == found

    def condition(self) -> str | None:
        """Return a random filter of the columns."""
        filters = [
            text.format(name)
            for _, name, kind in self.columns
            for text in (*_FILTERS.get(kind, ()), "{} IS NULL")
        ]
        first, second = (self.pick.choice(filters) for _ in range(2))
        return self.pick.choice([first, f"({first}) OR ({second})", f"({first}) AND ({second})"])

    def check_pylance(self) -> None:
        """Compare the scanners of both clients, over the same SSTables."""
        theirs = pylance_snapshots(self.path)
        ours = []
        for snapshot in theirs:
            manifest = read_latest_manifest(
                open_table(self.path).store, uuid.UUID(snapshot.shard_id)
            )
            assert manifest is not None
            ours.append(ShardSnapshot(snapshot.shard_id))
            for sstable in manifest.sstables:
                ours[-1].with_sstable(sstable.generation, sstable.folder)
        rows = LsmScanner.from_snapshots(self.own(), ours).to_table()
        scanner = lance.LsmScanner.from_snapshots(lance.dataset(self.path), theirs)
        assert self.by_key(rows) == self.by_key(scanner.to_table())


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_table_that_changes(tmp_path: Path, seed: int) -> None:
    stream_batches._WRITERS.clear()
    history = History(tmp_path / "t", seed)
    changes = [history.rename, history.swap, history.replace_column, history.add]
    steps = [
        *[history.write] * 5,
        *[history.stream] * 3,
        *[history.compact] * 2,
        *[history.compact_beside_another_client] * 2,
        *changes,
        *[history.clean, history.index, history.optimize, history.disable],
    ]
    for _ in range(_STEPS):
        step = history.pick.choice(steps)
        step()
        history.check()
        if history.pick.random() < 0.2:
            history.check_pylance()
    compacted = history.own().compact_mem_wal(flush=True)
    lance.dataset(history.path).validate()
    for rows in (compacted, compacted.fresh(), lance.dataset(history.path)):
        assert history.by_key(rows.to_table()) == history.model
