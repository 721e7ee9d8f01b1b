"""Writers of shards that end as a process does that is killed, for the tests of fresh reads."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any, ClassVar

import lance
import pyarrow as pa

import lance_spark
from lance_spark.mem_wal.entries import Entry, delete_rows, put_rows, read_tail, write_entry
from lance_spark.mem_wal.sstable import write_sstable
from lance_spark.mem_wal.table.shard_manifest import ShardManifest, publish, read_latest_manifest
from lance_spark.table.open import open_table

KEY = {"lance-schema:unenforced-primary-key": "true"}


def key_field(name: str, dtype: pa.DataType, position: int | None = None) -> pa.Field:
    """Return the field of a column of the primary key."""
    metadata = dict(KEY)
    if position is not None:
        metadata["lance-schema:unenforced-primary-key:position"] = str(position)
    return pa.field(name, dtype, nullable=False, metadata=metadata)


class PylanceWriter:
    """A writer of pylance. Without `close`, its rows stay in the log."""

    #: A writer that is collected could flush its rows.
    kept: ClassVar[list[Any]] = []

    def __init__(self, path: str, shard: str) -> None:
        self._writer = lance.dataset(path).mem_wal_writer(shard, max_wal_flush_interval_ms=5)
        self.kept.append(self._writer)

    def put(self, rows: pa.Table) -> None:
        self._writer.put(rows)

    def delete(self, keys: pa.Table) -> None:
        self._writer.delete(keys)

    def close(self) -> None:
        self._writer.close()


class StepWriter:
    """The steps of the protocol by the functions of this package, without the class of writers."""

    def __init__(self, path: str, shard: str) -> None:
        self._table = open_table(path)
        store, number = self._table.store, uuid.UUID(shard)
        manifest = read_latest_manifest(store, number) or ShardManifest(
            number, version=0, spec_id=1
        )
        self._manifest = replace(
            manifest, version=manifest.version + 1, writer_epoch=manifest.writer_epoch + 1
        )
        assert publish(store, self._manifest)
        self._rows: list[pa.Table] = []
        self._position = manifest.replay_after
        for entry in read_tail(store, number, manifest.replay_after):
            self._position = entry.position
            is_old = entry.generation is not None and (
                entry.generation < manifest.current_generation
            )
            if entry.rows is not None and not is_old:
                self._rows.append(entry.rows)
        if self._manifest.writer_epoch > 1:
            self._append(None)

    def _append(self, rows: pa.Table | None) -> None:
        self._position += 1
        epoch, generation = self._manifest.writer_epoch, self._manifest.current_generation
        entry = Entry(self._position, epoch, generation, rows is None, rows)
        assert write_entry(self._table.store, self._manifest.shard, entry)

    def put(self, rows: pa.Table) -> None:
        self._rows.append(put_rows(self._table.schema, rows))
        self._append(self._rows[-1])

    def delete(self, keys: pa.Table) -> None:
        self._rows.append(delete_rows(self._table.schema, keys))
        self._append(self._rows[-1])

    def close(self) -> None:
        if not self._rows:
            return
        manifest = self._manifest
        schema = self._rows[-1].schema
        rows = pa.concat_tables([table.cast(schema) for table in self._rows])
        sstable = write_sstable(self._table, manifest.shard, manifest.current_generation, rows)
        flushed = replace(
            manifest,
            version=manifest.version + 1,
            replay_after=self._position,
            last_seen=self._position,
            current_generation=manifest.current_generation + 1,
            sstables=(*manifest.sstables, sstable),
        )
        assert publish(self._table.store, flushed)


class OwnWriter:
    """A writer of this package. Without `close`, its rows stay in the log."""

    def __init__(self, path: str, shard: str) -> None:
        self._writer = lance_spark.open_dataset(path).mem_wal_writer(shard)

    def put(self, rows: pa.Table) -> None:
        self._writer.put(rows)

    def delete(self, keys: pa.Table) -> None:
        self._writer.delete(keys)

    def close(self) -> None:
        self._writer.close()


def pylance_snapshots(path: str) -> list[lance.ShardSnapshot]:
    """Return the SSTables that the table does not have, as pylance's scanners take them."""
    from lance_spark.mem_wal.table.details import details_of
    from lance_spark.mem_wal.table.shard_manifest import list_shards

    table = open_table(path)
    details = details_of(table.manifest)
    assert details is not None
    snapshots = []
    for shard in list_shards(table.store):
        manifest = read_latest_manifest(table.store, shard)
        assert manifest is not None
        snapshot = lance.ShardSnapshot(str(shard)).with_current_generation(
            manifest.current_generation
        )
        for sstable in manifest.sstables:
            if sstable.generation > details.compacted.get(shard, 0):
                snapshot = snapshot.with_sstable(sstable.generation, sstable.folder)
        snapshots.append(snapshot)
    return snapshots
